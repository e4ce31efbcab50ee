/* Connectionist temporal classification (Graves and others, 2006). */
#include "aril/loss.h"

#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/loss/loss.h"
#include "ops/table/sample.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_ctc_loss_grad;

ATTR_LIST(ctc, CTC_ATTRS)

/* ---- shapes ---- */

static bool may_be(int64_t a, int64_t b)
{
    return a == b || a < 0 || b < 0;
}

/* in: log_probs [T,N,C], targets [N,S] or [sum], input lengths [N], target lengths [N]. */
static aril_status check(const aril__call *c, aril_tensor *const *in)
{
    const char *name = c->op->name;
    const aril_tensor *x = in[0], *y = in[1];
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (x->ndim != 3)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected log-probabilities [T,N,C] or [T,C], got %s",
                          name, aril__text(a, x));
    for (int i = 1; i < 4; i++)
        if (!aril__is_int((aril_dtype)in[i]->dtype))
            return aril__fail(ARIL_ERR_DTYPE, "%s: %s must be integers, got %s", name,
                              i == 1 ? "targets" : "lengths", aril__dtypes[in[i]->dtype].name);
    if (y->ndim != 1 && (y->ndim != 2 || !may_be(y->dim[0], x->dim[1])))
        return aril__fail(
            ARIL_ERR_SHAPE,
            "%s: targets %s do not match log-probabilities %s: expected [N,S], or all concatenated",
            name, aril__text(b, y), aril__text(a, x));
    for (int i = 2; i < 4; i++)
        if (in[i]->ndim != 1 || !may_be(in[i]->dim[0], x->dim[1]))
            return aril__fail(ARIL_ERR_SHAPE,
                              "%s: %s lengths %s do not match log-probabilities %s: expected [N]",
                              name, i == 2 ? "input" : "target", aril__text(b, in[i]),
                              aril__text(a, x));
    const struct ctc_attrs *at = c->attrs;
    if (at->blank[0] < 0 || (x->dim[2] >= 0 && at->blank[0] >= x->dim[2]))
        return aril__fail(ARIL_ERR_INDEX,
                          "%s: blank %" PRId64 " is out of range for %" PRId64 " classes", name,
                          at->blank[0], x->dim[2]);
    return ARIL_OK;
}

static aril_status ctc_infer(aril__call *c)
{
    if (check(c, c->in) < 0) return ARIL_ERR_SHAPE;
    c->out[0].dtype = (aril_dtype)c->in[0]->dtype;
    c->out[0].ndim = 1;
    c->out[0].dim[0] = c->in[0]->dim[1];
    return ARIL_OK;
}

static aril_status ctc_grad_infer(aril__call *c)
{
    const aril_tensor *g = c->in[0], *x = c->in[1];
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (check(c, c->in + 1) < 0) return ARIL_ERR_SHAPE;
    if (g->ndim != 1 || !may_be(g->dim[0], x->dim[1]) || g->dtype != x->dtype)
        return aril__fail(ARIL_ERR_SHAPE, "%s: gradient %s does not match log-probabilities %s",
                          c->op->name, aril__text(a, g), aril__text(b, x));
    c->out[0].dtype = (aril_dtype)x->dtype;
    c->out[0].ndim = 3;
    for (int d = 0; d < 3; d++) c->out[0].dim[d] = x->dim[d];
    return ARIL_OK;
}

/* ---- references ---- */

aril_status aril__ctc_starts(const aril__run *r, aril_tensor *const *in, int64_t *start)
{
    const char *name = r->op->name;
    const aril_tensor *x = in[0], *y = in[1];
    int64_t next = 0, width = y->ndim == 2 ? y->dim[1] : y->numel;
    for (int64_t n = 0; n < x->dim[1]; n++) {
        int64_t times = aril__get_i64(in[2], n), length = aril__get_i64(in[3], n);
        start[n] = y->ndim == 2 ? n * width : next;
        if (times < 0 || times > x->dim[0])
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: input length %" PRId64 " is out of range for %" PRId64 " times",
                              name, times, x->dim[0]);
        if (length < 0 || length > (y->ndim == 2 ? width : width - next))
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: target length %" PRId64 " is out of range: %" PRId64
                              " labels available",
                              name, length, y->ndim == 2 ? width : width - next);
        next += length;
        for (int64_t i = 0; i < length; i++) {
            int64_t label = aril__get_i64(y, start[n] + i);
            if (label < 0 || label >= x->dim[2])
                return aril__fail(ARIL_ERR_INDEX,
                                  "%s: label %" PRId64 " is out of range for %" PRId64 " classes",
                                  name, label, x->dim[2]);
        }
    }
    return ARIL_OK;
}

/* One sample. The states of a target of S labels are blank, l1, blank, l2, ... blank: 2S + 1 of
 * them. */
typedef struct sample {
    const aril_tensor *x, *target;
    int64_t n, start, times, states, blank;
} sample;

static int64_t label_of(const sample *a, int64_t s)
{
    return s % 2 ? aril__get_i64(a->target, a->start + s / 2) : a->blank;
}

/* The log-probability of state s at time t. */
static double emitted(const sample *a, int64_t t, int64_t s)
{
    return aril__get(a->x, (t * a->x->dim[1] + a->n) * a->x->dim[2] + label_of(a, s));
}

/* Whether state s may follow s - 2: different labels need no blank between them. */
static bool may_skip(const sample *a, int64_t s)
{
    return s > 1 && s < a->states && s % 2 && label_of(a, s) != label_of(a, s - 2);
}

/* alpha[t][s]: over all alignments up to time t that end in state s. Returns the loss. */
static double forward(const sample *a, double *alpha)
{
    if (a->times == 0) return a->states == 1 ? 0 : INFINITY;
    for (int64_t t = 0; t < a->times; t++)
        for (int64_t s = 0; s < a->states; s++) {
            double *now = alpha + t * a->states, *last = now - a->states;
            double sum = s < 2 ? 0 : -INFINITY;
            if (t > 0)
                sum = aril__ctc_log_sum(last[s], s > 0 ? last[s - 1] : -INFINITY,
                                        may_skip(a, s) ? last[s - 2] : -INFINITY);
            now[s] = sum + emitted(a, t, s);
        }
    const double *end = alpha + a->times * a->states; /* after the last blank or the last label */
    return -aril__ctc_log_sum(end[-1], a->states > 1 ? end[-2] : -INFINITY, -INFINITY);
}

/* beta[t][s]: over all alignments after time t that begin in state s at time t. */
static void backward(const sample *a, double *beta)
{
    for (int64_t t = a->times - 1; t >= 0; t--)
        for (int64_t s = 0; s < a->states; s++) {
            double *now = beta + t * a->states, *next = now + a->states;
            now[s] = s >= a->states - 2 ? 0 : -INFINITY;
            if (t == a->times - 1) continue;
            double one = s + 1 < a->states ? next[s + 1] + emitted(a, t + 1, s + 1) : -INFINITY;
            double two = may_skip(a, s + 2) ? next[s + 2] + emitted(a, t + 1, s + 2) : -INFINITY;
            now[s] = aril__ctc_log_sum(next[s] + emitted(a, t + 1, s), one, two);
        }
}

/* d loss / d x[t][c] = -sum over states s with label c of the fraction of alignments in s at time
 * t. */
static void gradient(const sample *a, double loss, double g, const double *alpha,
                     const double *beta, aril_tensor *out)
{
    int64_t batch = a->x->dim[1], classes = a->x->dim[2];
    for (int64_t t = 0; t < a->x->dim[0]; t++)
        for (int64_t c = 0; c < classes; c++) {
            double sum = 0;
            for (int64_t s = 0; s < a->states && t < a->times; s++)
                if (label_of(a, s) == c)
                    sum += exp(alpha[t * a->states + s] + beta[t * a->states + s] + loss);
            aril__put(out, (t * batch + a->n) * classes + c, -g * sum);
        }
}

/* Enough for the states of any sample at all times. */
static int64_t states_size(aril_tensor *const *in)
{
    return in[0]->dim[0] * (2 * in[1]->numel + 1);
}

/* The start of each target, alpha and beta. */
static size_t states_scratch(aril_tensor *const *in)
{
    return (size_t)in[0]->dim[1] * sizeof(int64_t) + 2 * (size_t)states_size(in) * sizeof(double);
}

static size_t ctc_loss_scratch(const aril__run *r)
{
    return states_scratch(r->in);
}

static size_t ctc_loss_grad_scratch(const aril__run *r)
{
    return states_scratch(r->in + 1);
}

static aril_status samples_ref(aril__run *r, aril_tensor *g, aril_tensor *const *in)
{
    const struct ctc_attrs *at = r->attrs;
    const aril_tensor *x = in[0];
    int64_t batch = x->dim[1], size = states_size(in), *start = r->workspace;
    double *alpha = (double *)(void *)(start + batch);
    aril_status s = aril__ctc_starts(r, in, start);
    for (int64_t n = 0; n < batch && s == ARIL_OK; n++) {
        sample a = { .x = x,
                     .target = in[1],
                     .n = n,
                     .start = start[n],
                     .times = aril__get_i64(in[2], n),
                     .states = 2 * aril__get_i64(in[3], n) + 1,
                     .blank = at->blank[0] };
        double loss = forward(&a, alpha);
        bool nothing = at->zero_infinity[0] && isinf(loss);
        if (!g) {
            aril__put(r->out[0], n, nothing ? 0 : loss);
            continue;
        }
        double *beta = alpha + size;
        backward(&a, beta);
        if (nothing) a.times = 0;
        gradient(&a, loss, aril__get(g, n), alpha, beta, r->out[0]);
    }
    return s;
}

static aril_status ctc_loss_ref(aril__run *r)
{
    return samples_ref(r, NULL, r->in);
}

static aril_status ctc_loss_grad_ref(aril__run *r)
{
    return samples_ref(r, r->in[0], r->in + 1);
}

/* ---- op table rows ---- */

VJP(ctc_loss)
{
    if (c->g[0])
        GRAD(0, aril__op_with(c->attrs, &aril__op_ctc_loss_grad, c->g[0], c->x[0], c->x[1], c->x[2],
                              c->x[3]));
}

VJP(ctc_loss_grad)
{
    aril__fail(ARIL_ERR_GRAD, "ctc_loss: second derivatives are not available");
    GRAD(0, aril__poison());
    GRAD(1, aril__poison());
}

static const struct ctc_attrs plain = { .blank = { 0 } };
static const struct ctc_attrs last = { .blank = { 3 }, .zero_infinity = { 1 } };
/* Random lengths: 0 or 1 where they must fit any target. */
static const aril__sample ctc_loss_samples[] = {
    { .in = { "[4,2,4]", "i4[2,3]", "i5[2]", "i2[2]" }, .attrs = &last, .flags = SAMPLE_NO_SECOND },
    { .in = { "[5,3,4]", "i3[3]", "i5[3]", "i2[3]" }, .attrs = &last, .flags = SAMPLE_NO_SECOND },
    { .in = { "[3,0,4]", "i4[0,3]", "i3[0]", "i2[0]" },
      .attrs = &plain,
      .flags = SAMPLE_NO_SECOND },
    SAMPLE_END
};
OP(ctc_loss, .doc = "connectionist temporal classification (CTC) loss of each sample", .min_in = 4,
   .max_in = 4, .n_out = 1, .cast = CAST_F32, .index_in = IN(1) | IN(2) | IN(3), .types = DT_FLOAT,
   .flags = STRIDED, .infer = ctc_infer, .ref = ctc_loss_ref, .workspace = ctc_loss_scratch,
   .vjp = ctc_loss_vjp, .saves = { IN(0) | IN(1) | IN(2) | IN(3) }, .samples = ctc_loss_samples,
   WITH_ATTRS(ctc));

static const aril__sample ctc_loss_grad_samples[] = { { .in = { "[2]", "[4,2,4]", "i4[2,3]",
                                                                "i5[2]", "i2[2]" },
                                                        .attrs = &last,
                                                        .flags = SAMPLE_NO_GRAD },
                                                      SAMPLE_END };
OP(ctc_loss_grad, .doc = "gradient of ctc_loss", .min_in = 5, .max_in = 5, .n_out = 1,
   .index_in = IN(2) | IN(3) | IN(4), .types = DT_FLOAT, .flags = GRADIENT | STRIDED,
   .infer = ctc_grad_infer, .ref = ctc_loss_grad_ref, .workspace = ctc_loss_grad_scratch,
   .vjp = ctc_loss_grad_vjp, .samples = ctc_loss_grad_samples, WITH_ATTRS(ctc));

/* ---- public ---- */

static aril_tensor *one_sequence(aril_tensor *lengths)
{
    return lengths && !aril__is_poison(lengths) && lengths->ndim == 0 ? aril_unsqueeze(lengths, 0)
                                                                      : lengths;
}

aril_tensor *aril_ctc_loss_with(aril_tensor *x, aril_tensor *targets, aril_tensor *input_lengths,
                                aril_tensor *target_lengths, aril_ctc_opts o)
{
    ARIL_SCOPE;
    struct ctc_attrs a = { .blank = { o.blank }, .zero_infinity = { o.zero_infinity } };
    if (!x || !targets || !input_lengths || !target_lengths)
        return aril_escape(aril__null_tensor("ctc_loss"));
    bool single = !aril__is_poison(x) && x->ndim == 2;
    if (single) x = aril_unsqueeze(x, 1);
    aril_tensor *lengths = one_sequence(target_lengths);
    aril_tensor *each = aril__op_with(&a, &aril__op_ctc_loss, x, targets,
                                      one_sequence(input_lengths), lengths); /* [N] */
    if (o.reduction == ARIL_MEAN && !aril__is_poison(each))
        each = aril_div(each, aril_cast(aril_clamp_min(lengths, 1), (aril_dtype)each->dtype));
    if (o.reduction == ARIL_NONE && single)
        return aril_escape(aril_sum(each, ARIL_ALL)); /* [1] -> [] */
    return aril_escape(aril__reduce_loss("ctc_loss", each, o.reduction));
}

aril_tensor *aril_ctc_loss(aril_tensor *x, aril_tensor *targets, aril_tensor *input_lengths,
                           aril_tensor *target_lengths)
{
    return aril_ctc_loss_with(x, targets, input_lengths, target_lengths,
                              (aril_ctc_opts){ .reduction = ARIL_MEAN });
}
