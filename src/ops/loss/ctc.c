/* Connectionist temporal classification (Graves and others, 2006). */
#include "aril/loss.h"

#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/loss/loss.h"
#include "ops/table/sample.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

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
        return aril__fail(ARIL_ERR_SHAPE, "%s: log-probabilities [T,N,C] or [T,C] expected, got %s",
                          name, aril__text(a, x));
    for (int i = 1; i < 4; i++)
        if (!aril__is_int((aril_dtype)in[i]->dtype))
            return aril__fail(ARIL_ERR_DTYPE, "%s: %s must be integers, got %s", name,
                              i == 1 ? "targets" : "lengths", aril__dtypes[in[i]->dtype].name);
    if (y->ndim != 1 && (y->ndim != 2 || !may_be(y->dim[0], x->dim[1])))
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: targets %s for log-probabilities %s: [N,S], or all in one row", name,
                          aril__text(b, y), aril__text(a, x));
    for (int i = 2; i < 4; i++)
        if (in[i]->ndim != 1 || !may_be(in[i]->dim[0], x->dim[1]))
            return aril__fail(ARIL_ERR_SHAPE, "%s: %s lengths %s for log-probabilities %s: [N]",
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
        return aril__fail(ARIL_ERR_SHAPE, "%s: gradient %s for log-probabilities %s", c->op->name,
                          aril__text(a, g), aril__text(b, x));
    c->out[0].dtype = (aril_dtype)x->dtype;
    c->out[0].ndim = 3;
    for (int d = 0; d < 3; d++) c->out[0].dim[d] = x->dim[d];
    return ARIL_OK;
}

/* ---- kernels ---- */

typedef struct ctc_job {
    const void *x, *g;
    const int64_t *target, *times, *length;
    int64_t *start; /* where each sample's labels start */
    void *out;
    int64_t batch, classes, blank;
    int64_t most_times, most_states;
    double *scratch;
    int64_t room; /* doubles of scratch memory per sample */
    bool zero_infinity;
} ctc_job;

/* log(exp(a) + exp(b) + exp(c)) */
static double log_sum(double a, double b, double c)
{
    double most = a > b ? a : b;
    most = c > most ? c : most;
    if (most == -INFINITY) return -INFINITY;
    return most + log(exp(a - most) + exp(b - most) + exp(c - most));
}

#define TEMPLATE "ops/loss/ctc.inc"
#include "ops/table/each_real.inc"

/* Named ahead of their rows. */
extern const aril__op aril__op_ctc_loss, aril__op_ctc_loss_grad;

/* Checks lengths and labels; computes where each target starts. */
static aril_status prepare(const aril__run *r, ctc_job *j, const aril_tensor *y)
{
    const char *name = r->op->name;
    int64_t next = 0, width = y->ndim == 2 ? y->dim[1] : y->numel;
    for (int64_t n = 0; n < j->batch; n++) {
        int64_t times = j->times[n], length = j->length[n];
        j->start[n] = y->ndim == 2 ? n * width : next;
        if (times < 0 || times > j->most_times)
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: input length %" PRId64 " is out of range for %" PRId64 " times",
                              name, times, j->most_times);
        if (length < 0 || length > (y->ndim == 2 ? width : width - next))
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: target length %" PRId64 " is out of range: %" PRId64
                              " labels are there",
                              name, length, y->ndim == 2 ? width : width - next);
        next += length;
        for (int64_t i = 0; i < length; i++) {
            int64_t label = j->target[j->start[n] + i];
            if (label < 0 || label >= j->classes)
                return aril__fail(ARIL_ERR_INDEX,
                                  "%s: label %" PRId64 " is out of range for %" PRId64 " classes",
                                  name, label, j->classes);
        }
        if (2 * length + 1 > j->most_states) j->most_states = 2 * length + 1;
    }
    return ARIL_OK;
}

static aril_status run_ctc(aril__run *r, const aril_tensor *g, aril_tensor *const *in)
{
    const struct ctc_attrs *a = r->attrs;
    ctc_job j = { .x = aril__ptr(in[0]),
                  .g = g ? aril__ptr(g) : NULL,
                  .target = aril__ptr(in[1]),
                  .times = aril__ptr(in[2]),
                  .length = aril__ptr(in[3]),
                  .out = aril__ptr(r->out[0]),
                  .batch = in[0]->dim[1],
                  .classes = in[0]->dim[2],
                  .blank = a->blank[0],
                  .most_times = in[0]->dim[0],
                  .most_states = 1,
                  .zero_infinity = a->zero_infinity[0] };
    j.start = aril__malloc((size_t)(j.batch + 1) * sizeof *j.start);
    if (!j.start)
        return aril__fail(ARIL_ERR_MEMORY, "%s: no memory for %" PRId64 " samples", r->op->name,
                          j.batch);
    aril_status s = prepare(r, &j, in[1]);
    if (s == ARIL_OK) {
        j.room = j.most_states * (g ? j.most_times + 2 : 2);
        j.scratch = aril__malloc((size_t)(j.batch * j.room + 1) * sizeof *j.scratch);
        if (!j.scratch)
            s = aril__fail(ARIL_ERR_MEMORY, "%s: no memory for %" PRId64 " alignments", r->op->name,
                           j.batch * j.room);
    }
    bool f32 = r->type == ARIL_F32;
    if (s == ARIL_OK)
        aril__parallel_for(j.batch, 1,
                           g ? (f32 ? ctc_gradients_f32 : ctc_gradients_f64)
                             : (f32 ? ctc_losses_f32 : ctc_losses_f64),
                           &j);
    free(j.scratch);
    free(j.start);
    return s;
}

static aril_status ctc_loss_ref(aril__run *r)
{
    return run_ctc(r, NULL, r->in);
}

static aril_status ctc_loss_grad_ref(aril__run *r)
{
    return run_ctc(r, r->in[0], r->in + 1);
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
OP(ctc_loss, .doc = "connectionist temporal classification loss of each sample", .min_in = 4,
   .max_in = 4, .n_out = 1, .index_in = IN(1) | IN(2) | IN(3), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = ctc_infer, .ref = ctc_loss_ref,
   .vjp = ctc_loss_vjp, .saves = { IN(0) | IN(1) | IN(2) | IN(3) }, .samples = ctc_loss_samples,
   WITH_ATTRS(ctc));

static const aril__sample ctc_loss_grad_samples[] = { { .in = { "[2]", "[4,2,4]", "i4[2,3]",
                                                                "i5[2]", "i2[2]" },
                                                        .attrs = &last,
                                                        .flags = SAMPLE_NO_GRAD },
                                                      SAMPLE_END };
OP(ctc_loss_grad, .doc = "gradient of ctc_loss", .min_in = 5, .max_in = 5, .n_out = 1,
   .index_in = IN(2) | IN(3) | IN(4), .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64),
   .infer = ctc_grad_infer, .ref = ctc_loss_grad_ref, .vjp = ctc_loss_grad_vjp,
   .samples = ctc_loss_grad_samples, WITH_ATTRS(ctc));

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
