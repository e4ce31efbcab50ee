/* Losses as modules, by name.
 *
 *     aril_nn_loss_opts opts = { .label_smoothing = 0.1 };
 *     aril_module *loss = aril_nn_loss_with("cross_entropy", opts);
 *     aril_tensor *l = aril_forward_n(loss, ARIL_LIST(aril_forward(net, x), y));
 *
 * The functions themselves, with their formulas, are in aril/loss.h. */
#ifndef ARIL_NN_LOSS_H
#define ARIL_NN_LOSS_H

#include "aril/loss.h"
#include "aril/module.h"

ARIL_C_BEGIN

/* Options of all losses; as in aril/loss.h, 0 selects the default. An option that a loss does not
 * have is an error. */
typedef struct aril_nn_loss_opts {
    aril_reduction reduction; /* all; ARIL_BATCHMEAN: kl_div */
    /* cross_entropy, nll, multi_margin: per class [C]; mse, l1, smooth_l1, huber, bce,
     * bce_with_logits, multilabel_margin, multilabel_soft_margin, soft_margin: broadcast. The
     * module stores a copy as a buffer, as in PyTorch. */
    aril_tensor *weight;
    aril_tensor *pos_weight; /* bce_with_logits */
    int64_t ignore_index;    /* cross_entropy, nll; default -100, ARIL_ZERO: 0 */
    double label_smoothing;  /* cross_entropy */
    /* multi_margin, hinge, hinge_embedding, margin_ranking, cosine_embedding, triplet_margin */
    double margin;
    double p;           /* multi_margin: 1 or 2; triplet_margin */
    double eps;         /* poisson_nll, gaussian_nll, triplet_margin */
    double beta;        /* smooth_l1 */
    double delta;       /* huber */
    int64_t blank;      /* ctc */
    bool full;          /* poisson_nll, gaussian_nll */
    bool rate;          /* poisson_nll */
    bool log_target;    /* kl_div */
    bool sum_classes;   /* multi_margin: Stanford CS231n's form */
    bool swap;          /* triplet_margin */
    bool zero_infinity; /* ctc */
} aril_nn_loss_opts;

/* Creates a loss by name, such as "cross_entropy", "cross_entropy_loss" or PyTorch's
 * "CrossEntropyLoss":
 *     of x, target        mse l1 smooth_l1 huber poisson_nll bce bce_with_logits nll cross_entropy
 *                         kl_div multi_margin (the multi-class SVM) multilabel_margin
 *                         multilabel_soft_margin soft_margin hinge (the binary SVM) hinge_embedding
 *     of x, target, var   gaussian_nll
 *     of a, b, target     margin_ranking cosine_embedding
 *     of three tensors    triplet_margin (anchor, positive, negative)
 *     of four             ctc (log_probs, targets, input_lengths, target_lengths)
 * "mae" is l1, "svm" multi_margin. NULL, with an error that suggests the closest name, if there is
 * no such loss. */
ARIL_API aril_module *aril_nn_loss(const char *name);
ARIL_API aril_module *aril_nn_loss_with(const char *name, aril_nn_loss_opts opts);

/* The names above; *n receives how many. */
ARIL_API const char *const *aril_nn_loss_names(int *n);

/* True for losses whose targets are class indices (cross_entropy, nll, multi_margin). False, with
 * an error, if there is no such loss. */
ARIL_API bool aril_nn_loss_is_of_classes(const char *name);

/* True for losses of the difference between prediction and target (mse, l1, smooth_l1, huber):
 * targets may have any unit, and both may be scaled to standard deviation 1. False, with an error,
 * if there is no such loss. */
ARIL_API bool aril_nn_loss_is_difference(const char *name);

ARIL_C_END

#endif
