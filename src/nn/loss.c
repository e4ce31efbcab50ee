/* The table of losses, and the modules created from it. */
#include "nn/loss.h"

#include "aril/nn_loss.h"
#include "aril/create.h"
#include "aril/loss.h"
#include "aril/reduce.h"
#include "core/error.h"
#include "core/tensor.h"
#include "nn/module.h"

#include <string.h>

/* ---- options ---- */

/* O(bit, name, set): its bit in `takes`, the field's name, and the test whether it was set. */
#define OPTIONS(O)                                      \
    O(WEIGHT, weight, o->weight != NULL)                \
    O(POS_WEIGHT, pos_weight, o->pos_weight != NULL)    \
    O(IGNORE, ignore_index, o->ignore_index != 0)       \
    O(SMOOTH, label_smoothing, o->label_smoothing != 0) \
    O(MARGIN, margin, o->margin != 0)                   \
    O(P, p, o->p != 0)                                  \
    O(EPS, eps, o->eps != 0)                            \
    O(BETA, beta, o->beta != 0)                         \
    O(DELTA, delta, o->delta != 0)                      \
    O(BLANK, blank, o->blank != 0)                      \
    O(FULL, full, o->full)                              \
    O(RATE, rate, o->rate)                              \
    O(LOG_TARGET, log_target, o->log_target)            \
    O(SUM_CLASSES, sum_classes, o->sum_classes)         \
    O(SWAP, swap, o->swap)                              \
    O(ZERO_INF, zero_infinity, o->zero_infinity)

enum {
#define NUMBER(bit, name, set) BIT_##bit,
    OPTIONS(NUMBER)
#undef NUMBER
};
enum {
#define BIT(bit, name, set) bit = 1 << BIT_##bit,
    OPTIONS(BIT)
#undef BIT
};

/* ---- the losses ---- */

#define RUN(loss) static aril_tensor *run_##loss(aril_tensor *const *in, const aril_nn_loss_opts *o)

/* Losses whose only options are a reduction and a weight. */
#define PLAIN(loss, call)                                                       \
    RUN(loss)                                                                   \
    {                                                                           \
        return call(in[0], in[1], (aril_loss_opts){ o->reduction, o->weight }); \
    }
PLAIN(mse, aril_mse_loss_with)
PLAIN(l1, aril_l1_loss_with)
PLAIN(bce, aril_bce_loss_with)
PLAIN(multilabel_margin, aril_multilabel_margin_loss_with)
PLAIN(multilabel_soft_margin, aril_multilabel_soft_margin_loss_with)
PLAIN(soft_margin, aril_soft_margin_loss_with)

RUN(smooth_l1)
{
    return aril_smooth_l1_loss_with(in[0], in[1],
                                    (aril_smooth_l1_opts){ o->reduction, o->weight, o->beta });
}

RUN(huber)
{
    return aril_huber_loss_with(in[0], in[1],
                                (aril_huber_opts){ o->reduction, o->weight, o->delta });
}

RUN(poisson_nll)
{
    aril_poisson_nll_opts opts = {
        .reduction = o->reduction, .rate = o->rate, .full = o->full, .eps = o->eps
    };
    return aril_poisson_nll_loss_with(in[0], in[1], opts);
}

RUN(gaussian_nll)
{
    aril_gaussian_nll_opts opts = { .reduction = o->reduction, .full = o->full, .eps = o->eps };
    return aril_gaussian_nll_loss_with(in[0], in[1], in[2], opts);
}

RUN(bce_with_logits)
{
    aril_bce_with_logits_opts opts = { o->reduction, o->weight, o->pos_weight };
    return aril_bce_with_logits_with(in[0], in[1], opts);
}

RUN(nll)
{
    return aril_nll_loss_with(in[0], in[1],
                              (aril_nll_loss_opts){ o->reduction, o->weight, o->ignore_index });
}

RUN(cross_entropy)
{
    aril_cross_entropy_opts opts = { .reduction = o->reduction,
                                     .weight = o->weight,
                                     .ignore_index = o->ignore_index,
                                     .label_smoothing = o->label_smoothing };
    return aril_cross_entropy_with(in[0], in[1], opts);
}

RUN(kl_div)
{
    return aril_kl_div_with(in[0], in[1], (aril_kl_div_opts){ o->reduction, o->log_target });
}

RUN(multi_margin)
{
    aril_multi_margin_opts opts = { .reduction = o->reduction,
                                    .weight = o->weight,
                                    .margin = o->margin,
                                    .p = (int)o->p,
                                    .sum_classes = o->sum_classes };
    return aril_multi_margin_loss_with(in[0], in[1], opts);
}

RUN(hinge)
{
    return aril_hinge_loss_with(in[0], in[1], (aril_margin_opts){ o->reduction, o->margin });
}

RUN(hinge_embedding)
{
    return aril_hinge_embedding_loss_with(in[0], in[1],
                                          (aril_margin_opts){ o->reduction, o->margin });
}

RUN(margin_ranking)
{
    return aril_margin_ranking_loss_with(in[0], in[1], in[2],
                                         (aril_margin_opts){ o->reduction, o->margin });
}

RUN(cosine_embedding)
{
    return aril_cosine_embedding_loss_with(in[0], in[1], in[2],
                                           (aril_margin_opts){ o->reduction, o->margin });
}

RUN(triplet_margin)
{
    aril_triplet_margin_opts opts = {
        .reduction = o->reduction, .margin = o->margin, .p = o->p, .eps = o->eps, .swap = o->swap
    };
    return aril_triplet_margin_loss_with(in[0], in[1], in[2], opts);
}

RUN(ctc)
{
    aril_ctc_opts opts = { .reduction = o->reduction,
                           .blank = o->blank,
                           .zero_infinity = o->zero_infinity };
    return aril_ctc_loss_with(in[0], in[1], in[2], in[3], opts);
}

enum {
    CLASSES = ARIL__LOSS_CLASSES,
    LOGITS = ARIL__LOSS_LOGITS,
    LABELS = ARIL__LOSS_LABELS,
    BATCHMEAN = ARIL__LOSS_BATCHMEAN,
    DIFFERENCE = ARIL__LOSS_DIFFERENCE,
};

/* L(name, another name, PyTorch's name, inputs, what it is, options) */
#define LOSSES(L)                                                                            \
    L(mse, NULL, "MSELoss", 2, DIFFERENCE, WEIGHT)                                           \
    L(l1, "mae", "L1Loss", 2, DIFFERENCE, WEIGHT)                                            \
    L(smooth_l1, NULL, "SmoothL1Loss", 2, DIFFERENCE, WEIGHT | BETA)                         \
    L(huber, NULL, "HuberLoss", 2, DIFFERENCE, WEIGHT | DELTA)                               \
    L(poisson_nll, NULL, "PoissonNLLLoss", 2, 0, RATE | FULL | EPS)                          \
    L(gaussian_nll, NULL, "GaussianNLLLoss", 3, 0, FULL | EPS)                               \
    L(bce, NULL, "BCELoss", 2, LABELS, WEIGHT)                                               \
    L(bce_with_logits, NULL, "BCEWithLogitsLoss", 2, LABELS | LOGITS, WEIGHT | POS_WEIGHT)   \
    L(nll, NULL, "NLLLoss", 2, CLASSES, WEIGHT | IGNORE)                                     \
    L(cross_entropy, NULL, "CrossEntropyLoss", 2, CLASSES, WEIGHT | IGNORE | SMOOTH)         \
    L(kl_div, NULL, "KLDivLoss", 2, BATCHMEAN, LOG_TARGET)                                   \
    L(multi_margin, "svm", "MultiMarginLoss", 2, CLASSES, WEIGHT | MARGIN | P | SUM_CLASSES) \
    L(multilabel_margin, NULL, "MultiLabelMarginLoss", 2, 0, WEIGHT)                         \
    L(multilabel_soft_margin, NULL, "MultiLabelSoftMarginLoss", 2, LABELS | LOGITS, WEIGHT)  \
    L(soft_margin, NULL, "SoftMarginLoss", 2, LOGITS, WEIGHT)                                \
    L(hinge, NULL, "HingeLoss", 2, LOGITS, MARGIN)                                           \
    L(hinge_embedding, NULL, "HingeEmbeddingLoss", 2, LOGITS, MARGIN)                        \
    L(margin_ranking, NULL, "MarginRankingLoss", 3, 0, MARGIN)                               \
    L(cosine_embedding, NULL, "CosineEmbeddingLoss", 3, 0, MARGIN)                           \
    L(triplet_margin, NULL, "TripletMarginLoss", 3, 0, MARGIN | P | EPS | SWAP)              \
    L(ctc, NULL, "CTCLoss", 4, 0, BLANK | ZERO_INF)

static const aril__loss losses[] = {
#define ROW(name, also, type, inputs, is, takes) \
    { #name, also, type, inputs, is, takes, run_##name },
    LOSSES(ROW)
#undef ROW
};

static const char *const names[] = {
#define NAME(name, ...) #name,
    LOSSES(NAME)
#undef NAME
};

enum { N_LOSSES = sizeof losses / sizeof *losses };

/* ---- by name ---- */

const char *const *aril_nn_loss_names(int *n)
{
    if (n) *n = N_LOSSES;
    return names;
}

static bool is_called(const aril__loss *loss, const char *name)
{
    return strcmp(name, loss->name) == 0 || (loss->also && strcmp(name, loss->also) == 0);
}

const aril__loss *aril__loss_find(const char *name)
{
    char stem[64];
    if (!name) {
        aril__fail(ARIL_ERR_ARG, "loss: the name is NULL");
        return NULL;
    }
    size_t length = strlen(name);
    if (length > 5 && length < sizeof stem && strcmp(name + length - 5, "_loss") == 0) length -= 5;
    snprintf(stem, sizeof stem, "%.*s", (int)(length < sizeof stem ? length : sizeof stem - 1),
             name);
    for (int i = 0; i < N_LOSSES; i++)
        if (is_called(&losses[i], stem) || strcmp(name, losses[i].type) == 0) return &losses[i];
    const char *near = aril_nearest(stem, names, N_LOSSES);
    if (near) {
        aril__fail(ARIL_ERR_ARG, "unknown loss '%s'; did you mean %s?", name, near);
        return NULL;
    }
    char all[512] = "";
    for (int i = 0; i < N_LOSSES; i++) {
        size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", names[i]);
    }
    aril__fail(ARIL_ERR_ARG, "unknown loss '%s'; known losses: %s", name, all);
    return NULL;
}

bool aril_nn_loss_is_of_classes(const char *name)
{
    const aril__loss *loss = aril__loss_find(name);
    return loss && loss->is & ARIL__LOSS_CLASSES;
}

bool aril_nn_loss_is_difference(const char *name)
{
    const aril__loss *loss = aril__loss_find(name);
    return loss && loss->is & ARIL__LOSS_DIFFERENCE;
}

aril_status aril__loss_check(const aril__loss *loss, const aril_nn_loss_opts *o)
{
    static const char *const option[] = {
#define TEXT(bit, name, set) #name,
        OPTIONS(TEXT)
#undef TEXT
    };
    unsigned given = 0;
#define GIVEN(bit, name, set) given |= (set) ? (unsigned)(bit) : 0;
    OPTIONS(GIVEN)
#undef GIVEN
    for (int i = 0; i < (int)(sizeof option / sizeof *option); i++)
        if (given & ~loss->takes & 1u << i)
            return aril__fail(ARIL_ERR_ARG, "%s: no option '%s'", loss->name, option[i]);
    bool batch = o->reduction == ARIL_BATCHMEAN && loss->is & BATCHMEAN;
    if (o->reduction != ARIL_MEAN && o->reduction != ARIL_SUM && o->reduction != ARIL_NONE &&
        !batch)
        return aril__fail(ARIL_ERR_ARG,
                          "%s: got reduction %d, expected ARIL_MEAN, ARIL_SUM or ARIL_NONE%s",
                          loss->name, (int)o->reduction,
                          o->reduction == ARIL_BATCHMEAN ? " (ARIL_BATCHMEAN is for kl_div)" : "");
    if (loss->takes & SUM_CLASSES && o->p != 0 && o->p != 1 && o->p != 2)
        return aril__fail(ARIL_ERR_ARG, "%s: p is %g, expected 1 or 2", loss->name, o->p);
    return ARIL_OK;
}

aril_tensor *aril__loss_per_sample(const aril__loss *loss, aril_tensor *const *in,
                                   const aril_nn_loss_opts *opts)
{
    aril_nn_loss_opts each = *opts;
    each.reduction = ARIL_NONE;
    ARIL_SCOPE;
    aril_tensor *l = loss->run(in, &each);
    aril_axes rest = { .n = 0 };
    for (int i = 1; i < aril_ndim(l); i++) rest.axis[rest.n++] = i;
    return aril_escape(rest.n ? aril_mean(l, rest) : l);
}

/* ---- modules ---- */

typedef struct loss_data {
    const aril__loss *loss;
    aril_nn_loss_opts opts;
} loss_data;

static void run_loss(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                     aril_tensor **out)
{
    const loss_data *d = aril_module_data(self);
    (void)n_out;
    bool all = n_in == d->loss->inputs;
    for (int i = 0; i < n_in; i++) all = all && in[i];
    if (!all) {
        aril__fail(ARIL_ERR_ARG, "%s expects %d inputs, got %d", d->loss->name, d->loss->inputs,
                   n_in);
        out[0] = aril__poison();
        return;
    }
    out[0] = d->loss->run(in, &d->opts);
}

static void describe_loss(const aril_module *self, char *text, size_t size)
{
    static const char *const reductions[] = { "", "reduction=sum", "reduction=none",
                                              "reduction=batchmean" };
    const loss_data *d = aril_module_data(self);
    snprintf(text, size, "%s", reductions[d->opts.reduction]);
}

static const aril__layer layers[] = {
#define LAYER(name, also, pytorch, n_in, is, takes) \
    { .base = { .type = pytorch,                    \
                .size = sizeof(loss_data),          \
                .forward = run_loss,                \
                .describe = describe_loss,          \
                .inputs = n_in } },
    LOSSES(LAYER)
#undef LAYER
};

aril_module *aril_nn_loss_with(const char *name, aril_nn_loss_opts opts)
{
    const aril__loss *loss = aril__loss_find(name);
    if (!loss || aril__loss_check(loss, &opts) < 0) return NULL;
    aril_module *m = aril__layer_make(&layers[loss - losses]);
    if (!m) return NULL;
    loss_data *d = aril_module_data(m);
    *d = (loss_data){ loss, opts };
    aril_status s = ARIL_OK;
    ARIL_SCOPE;
    if (opts.weight) {
        d->opts.weight = aril_module_buffer(m, "weight", aril_copy(opts.weight));
        s = aril_tensor_status(d->opts.weight);
    }
    if (opts.pos_weight && s == ARIL_OK) {
        d->opts.pos_weight = aril_module_buffer(m, "pos_weight", aril_copy(opts.pos_weight));
        s = aril_tensor_status(d->opts.pos_weight);
    }
    return aril__layer_made(m, s);
}

aril_module *aril_nn_loss(const char *name)
{
    return aril_nn_loss_with(name, (aril_nn_loss_opts){ 0 });
}
