/* Losses and distances.
 *
 * Each has a short form with PyTorch's defaults, aril_mse_loss(x, y), and a full one with options,
 * aril_mse_loss_with(x, y, (aril_loss_opts){.reduction = ARIL_SUM}). A loss is first computed for
 * each element or sample, then reduced: to its mean by default ([]), to its sum ([]), or not at
 * all. In options 0 selects the default; where the default is nonzero, ARIL_ZERO is an actual 0. */
#ifndef ARIL_LOSS_H
#define ARIL_LOSS_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* How values are reduced. Losses accept the first three. */
typedef enum aril_reduction {
    ARIL_MEAN,
    ARIL_SUM,
    ARIL_NONE,
    ARIL_BATCHMEAN, /* kl_div: the sum divided by the batch size */
    ARIL_MAX        /* embedding_bag */
} aril_reduction;

typedef struct aril_loss_opts {
    aril_reduction reduction;
    aril_tensor *weight; /* NULL, or a factor for each loss before the reduction, broadcast */
} aril_loss_opts;

/* ---- regression: x and target broadcast ---- */

/* (x - target)^2 */
ARIL_API aril_tensor *aril_mse_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_mse_loss_with(aril_tensor *x, aril_tensor *target, aril_loss_opts opts);

/* |x - target| */
ARIL_API aril_tensor *aril_l1_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_l1_loss_with(aril_tensor *x, aril_tensor *target, aril_loss_opts opts);

/* With d = |x - target|: d^2 / (2 * beta) where d < beta, else d - beta / 2. */
typedef struct aril_smooth_l1_opts {
    aril_reduction reduction;
    aril_tensor *weight;
    double beta; /* default 1; ARIL_ZERO: l1_loss */
} aril_smooth_l1_opts;
ARIL_API aril_tensor *aril_smooth_l1_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_smooth_l1_loss_with(aril_tensor *x, aril_tensor *target,
                                               aril_smooth_l1_opts opts);

/* With d = |x - target|: d^2 / 2 where d <= delta, else delta * (d - delta / 2). */
typedef struct aril_huber_opts {
    aril_reduction reduction;
    aril_tensor *weight;
    double delta; /* above 0; default 1 */
} aril_huber_opts;
ARIL_API aril_tensor *aril_huber_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_huber_loss_with(aril_tensor *x, aril_tensor *target,
                                           aril_huber_opts opts);

/* Poisson: exp(x) - target * x; with `rate`, x - target * log(x + eps). `full` adds Stirling's
 * target * log(target) - target + log(2 * pi * target) / 2 where target > 1. */
typedef struct aril_poisson_nll_opts {
    aril_reduction reduction;
    bool rate; /* x is the rate itself, not its logarithm */
    bool full;
    double eps; /* default 1e-8 */
} aril_poisson_nll_opts;
ARIL_API aril_tensor *aril_poisson_nll_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_poisson_nll_loss_with(aril_tensor *x, aril_tensor *target,
                                                 aril_poisson_nll_opts opts);

/* Gaussian: (log(v) + (x - target)^2 / v) / 2 with v = max(var, eps); `full` adds log(2 * pi) / 2.
 * var has the shape of x, or a last dimension of size 1, or omits the last axis. */
typedef struct aril_gaussian_nll_opts {
    aril_reduction reduction;
    bool full;
    double eps; /* above 0; default 1e-6 */
} aril_gaussian_nll_opts;
ARIL_API aril_tensor *aril_gaussian_nll_loss(aril_tensor *x, aril_tensor *target, aril_tensor *var);
ARIL_API aril_tensor *aril_gaussian_nll_loss_with(aril_tensor *x, aril_tensor *target,
                                                  aril_tensor *var, aril_gaussian_nll_opts opts);

/* ---- binary classification: target between 0 and 1, of x's shape ---- */

/* -(target * log(x) + (1 - target) * log(1 - x)); logarithms are clamped at -100. x in 0..1. */
ARIL_API aril_tensor *aril_bce_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_bce_loss_with(aril_tensor *x, aril_tensor *target, aril_loss_opts opts);

/* bce_loss(sigmoid(x), target) without overflow; pos_weight multiplies the loss of positives. */
typedef struct aril_bce_with_logits_opts {
    aril_reduction reduction;
    aril_tensor *weight;
    aril_tensor *pos_weight; /* NULL: 1; broadcast to x */
} aril_bce_with_logits_opts;
ARIL_API aril_tensor *aril_bce_with_logits(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_bce_with_logits_with(aril_tensor *x, aril_tensor *target,
                                                aril_bce_with_logits_opts opts);

/* ---- classification ---- */

typedef struct aril_nll_loss_opts {
    aril_reduction reduction;
    aril_tensor *weight;  /* NULL, or a factor for each class: [C] */
    int64_t ignore_index; /* targets with this value are ignored; default -100, ARIL_ZERO: 0 */
} aril_nll_loss_opts;

/* Negative log-likelihood -w[t] * x[t], where t is the target: x [N,C] or [N,C,d...] or [C] of
 * log-probabilities, target [N] or [N,d...] or [] of class indices. The mean is weighted: it
 * divides by the sum of w[t]. A target outside 0..C-1 is ARIL_ERR_INDEX. */
ARIL_API aril_tensor *aril_nll_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_nll_loss_with(aril_tensor *x, aril_tensor *target,
                                         aril_nll_loss_opts opts);

typedef struct aril_cross_entropy_opts {
    aril_reduction reduction;
    aril_tensor *weight;
    int64_t ignore_index;
    double label_smoothing; /* 0..1: the fraction of the target spread evenly over all classes */
} aril_cross_entropy_opts;

/* nll_loss of log_softmax(x), fused so that no matrix of probabilities is stored. target: class
 * indices as above, or class probabilities (float) with the shape of x; then the loss is -sum over
 * c of w[c] * target[c] * log_softmax(x)[c], and the mean is over samples. */
ARIL_API aril_tensor *aril_cross_entropy(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_cross_entropy_with(aril_tensor *x, aril_tensor *target,
                                              aril_cross_entropy_opts opts);

/* target * (log(target) - x), where x holds log-probabilities; with log_target so does the target.
 * ARIL_BATCHMEAN gives the mathematical KL divergence. */
typedef struct aril_kl_div_opts {
    aril_reduction reduction;
    bool log_target;
} aril_kl_div_opts;
ARIL_API aril_tensor *aril_kl_div(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_kl_div_with(aril_tensor *x, aril_tensor *target, aril_kl_div_opts opts);

/* ---- margins ---- */

typedef struct aril_multi_margin_opts {
    aril_reduction reduction;
    aril_tensor *weight; /* NULL, or a factor w[t] for each sample by its class: [C] */
    double margin;       /* default 1 */
    int p;               /* 1 (also 0) or 2 */
    bool sum_classes;    /* do not divide by the number of classes */
} aril_multi_margin_opts;

/* The multi-class SVM: w[t] * sum over c != t of max(0, margin - x[t] + x[c])^p / C. x [N,C] or
 * [C], target [N] or [] of class indices. With sum_classes, Stanford CS231n's form: the mean over
 * samples, or with ARIL_SUM their sum, of sum over c != t of max(0, x[c] - x[t] + 1). */
ARIL_API aril_tensor *aril_multi_margin_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_multi_margin_loss_with(aril_tensor *x, aril_tensor *target,
                                                  aril_multi_margin_opts opts);

/* Sum of max(0, 1 - x[t] + x[c]) / C over targets t and classes c that are not targets. x [N,C] or
 * [C], target of the same shape: class indices, terminated by -1 for each sample. */
ARIL_API aril_tensor *aril_multilabel_margin_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_multilabel_margin_loss_with(aril_tensor *x, aril_tensor *target,
                                                       aril_loss_opts opts);

/* bce_with_logits averaged over the classes of each sample. x, target [N,C]; weight [C]. */
ARIL_API aril_tensor *aril_multilabel_soft_margin_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_multilabel_soft_margin_loss_with(aril_tensor *x, aril_tensor *target,
                                                            aril_loss_opts opts);

/* log(1 + exp(-target * x)), target 1 or -1. */
ARIL_API aril_tensor *aril_soft_margin_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_soft_margin_loss_with(aril_tensor *x, aril_tensor *target,
                                                 aril_loss_opts opts);

typedef struct aril_margin_opts {
    aril_reduction reduction;
    double margin; /* 0: the default given at each loss */
} aril_margin_opts;

/* The binary SVM: max(0, margin - target * x), target 1 or -1; default margin 1. */
ARIL_API aril_tensor *aril_hinge_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_hinge_loss_with(aril_tensor *x, aril_tensor *target,
                                           aril_margin_opts opts);

/* x where target is 1, max(0, margin - x) where it is -1; default margin 1. */
ARIL_API aril_tensor *aril_hinge_embedding_loss(aril_tensor *x, aril_tensor *target);
ARIL_API aril_tensor *aril_hinge_embedding_loss_with(aril_tensor *x, aril_tensor *target,
                                                     aril_margin_opts opts);

/* max(0, -target * (a - b) + margin), target 1 or -1; default margin 0. */
ARIL_API aril_tensor *aril_margin_ranking_loss(aril_tensor *a, aril_tensor *b, aril_tensor *target);
ARIL_API aril_tensor *aril_margin_ranking_loss_with(aril_tensor *a, aril_tensor *b,
                                                    aril_tensor *target, aril_margin_opts opts);

/* 1 - cos(a, b) where target is 1, max(0, cos(a, b) - margin) where it is -1; default margin 0. a,
 * b [N,D] and target [N], or [D] and []. */
ARIL_API aril_tensor *aril_cosine_embedding_loss(aril_tensor *a, aril_tensor *b,
                                                 aril_tensor *target);
ARIL_API aril_tensor *aril_cosine_embedding_loss_with(aril_tensor *a, aril_tensor *b,
                                                      aril_tensor *target, aril_margin_opts opts);

/* max(0, d(anchor, positive) - d(anchor, negative) + margin), where d is pairwise_distance. [N,D]
 * or [D] each. With swap, d(positive, negative) replaces d(anchor, negative) where it is
 * smaller. */
typedef struct aril_triplet_margin_opts {
    aril_reduction reduction;
    double margin; /* default 1 */
    double p;      /* default 2 */
    double eps;    /* default 1e-6 */
    bool swap;
} aril_triplet_margin_opts;
ARIL_API aril_tensor *aril_triplet_margin_loss(aril_tensor *anchor, aril_tensor *positive,
                                               aril_tensor *negative);
ARIL_API aril_tensor *aril_triplet_margin_loss_with(aril_tensor *anchor, aril_tensor *positive,
                                                    aril_tensor *negative,
                                                    aril_triplet_margin_opts opts);

/* ---- distances ---- */

/* sum(a * b) / (max(|a|, eps) * max(|b|, eps)) along an axis, with broadcasting. */
typedef struct aril_cosine_opts {
    double eps; /* default 1e-8 */
} aril_cosine_opts;
ARIL_API aril_tensor *aril_cosine_similarity(aril_tensor *a, aril_tensor *b, int axis);
ARIL_API aril_tensor *aril_cosine_similarity_with(aril_tensor *a, aril_tensor *b, int axis,
                                                  aril_cosine_opts opts);

/* The p-norm of a - b + eps along the last axis: [N,D] -> [N]. */
typedef struct aril_distance_opts {
    double p;   /* default 2 */
    double eps; /* default 1e-6 */
    bool keepdim;
} aril_distance_opts;
ARIL_API aril_tensor *aril_pairwise_distance(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_pairwise_distance_with(aril_tensor *a, aril_tensor *b,
                                                  aril_distance_opts opts);

/* ---- sequences ---- */

/* Connectionist temporal classification: -log of the probability of all alignments that produce the
 * target labels in order, with repeats and blanks between them.
 *     log_probs        [T,N,C], of log_softmax; or [T,C] for one sequence
 *     targets          [N,S], padded; or all of them one after the other: [sum of the lengths]
 *     input_lengths    [N], at most T       target_lengths  [N]    (integers; [] for one sequence)
 * The mean first divides each loss by its target's length. A target too long for its input gives
 * infinity. The gradient is with respect to log_probs, and flows through log_softmax as usual; it
 * cannot be differentiated again. */
typedef struct aril_ctc_opts {
    aril_reduction reduction;
    int64_t blank;      /* the index of the blank class */
    bool zero_infinity; /* infinite losses, and their gradients, become 0 */
} aril_ctc_opts;
ARIL_API aril_tensor *aril_ctc_loss(aril_tensor *log_probs, aril_tensor *targets,
                                    aril_tensor *input_lengths, aril_tensor *target_lengths);
ARIL_API aril_tensor *aril_ctc_loss_with(aril_tensor *log_probs, aril_tensor *targets,
                                         aril_tensor *input_lengths, aril_tensor *target_lengths,
                                         aril_ctc_opts opts);

/* ---- penalties on parameters ---- */

/* strength * sum of |w|, or of w^2, over all elements of all tensors: []. */
ARIL_API aril_tensor *aril_l1_penalty(aril_list parameters, double strength);
ARIL_API aril_tensor *aril_l2_penalty(aril_list parameters, double strength);

ARIL_C_END

#endif
