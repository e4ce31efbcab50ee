/* Updates of parameters: SGD with momentum, Adam. One op a parameter, in place, in one pass. */
#include "ops/optim.h"

#include "core/parallel.h"
#include "ops/apply.h"
#include "ops/sample.h"

#include <math.h>

enum { GRAIN = 1 << 15 };

typedef struct sgd_job {
    void *p, *buffer;
    const void *grad;
    double sign, decay, lr, momentum;
    double fresh;      /* the gradient's part in the buffer */
    double of_g, of_b; /* what the step is made of */
} sgd_job;

typedef struct adam_job {
    void *p, *m, *v, *largest;
    const void *grad;
    double sign, decay, shrink, beta1, beta2, eps;
    double size;  /* lr / (1 - beta1^t) */
    double scale; /* 1 / sqrt(1 - beta2^t) */
} adam_job;

#define TEMPLATE "ops/optim.inc"
#include "ops/each_target.inc"

/* ---- shapes ---- */

/* Input i has to be like the parameter; in f32 too where that is in less. */
static aril_status check_like(const aril__call *c, int i, const char *what)
{
    const aril_tensor *p = c->in[0], *t = c->in[i];
    if (!t) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (t->ndim != p->ndim) goto shape;
    for (int d = 0; d < t->ndim; d++)
        if (t->dim[d] != p->dim[d] && t->dim[d] >= 0 && p->dim[d] >= 0) goto shape;
    bool low = p->dtype == ARIL_F16 || p->dtype == ARIL_BF16;
    if (t->dtype != p->dtype && !(low && t->dtype == ARIL_F32))
        return aril__fail(ARIL_ERR_DTYPE, "%s: the parameter is %s, %s %s", c->op->name,
                          aril__dtypes[p->dtype].name, what, aril__dtypes[t->dtype].name);
    return ARIL_OK;
shape:
    return aril__fail(ARIL_ERR_SHAPE, "%s: the parameter has shape %s, %s %s", c->op->name,
                      aril__text(a, p), what, aril__text(b, t));
}

static aril_status check_number(const aril__call *c, int i, const char *what)
{
    char text[ARIL__SHAPE_TEXT];
    if (c->in[i] && c->in[i]->numel != 1 && c->in[i]->numel >= 0)
        return aril__fail(ARIL_ERR_SHAPE, "%s: %s is one number, got shape %s", c->op->name, what,
                          aril__text(text, c->in[i]));
    return ARIL_OK;
}

static void out_like(aril__call *c, int out, int in)
{
    const aril_tensor *t = c->in[in] ? c->in[in] : c->in[0];
    c->out[out].dtype = (aril_dtype)t->dtype;
    c->out[out].ndim = t->ndim;
    for (int d = 0; d < t->ndim; d++) c->out[out].dim[d] = t->dim[d];
}

static double number(const aril_tensor *t)
{
    double v;
    aril__dtypes[t->dtype].load[ARIL__C_F64](&v, aril__base(t), t->offset, 1, 1);
    return v;
}

/* ---- sgd_update ---- */

ATTR_LIST(sgd_update, SGD_UPDATE_ATTRS)

static aril_status sgd_update_infer(aril__call *c)
{
    const struct sgd_update_attrs *a = c->attrs;
    aril_status s = check_like(c, 1, "its gradient");
    if (s == ARIL_OK) s = check_like(c, 3, "its buffer");
    if (s == ARIL_OK) s = check_number(c, 2, "the learning rate");
    if (s == ARIL_OK) s = check_number(c, 4, "the step");
    if (s < 0) return s;
    if (a->momentum[0] != 0 && !c->in[3])
        return aril__fail(ARIL_ERR_ARG, "sgd_update: momentum needs a buffer");
    if (a->nesterov[0] && (a->momentum[0] == 0 || a->dampening[0] != 0))
        return aril__fail(ARIL_ERR_ARG,
                          "sgd_update: nesterov needs momentum, and no dampening (%g, %g)",
                          a->momentum[0], a->dampening[0]);
    if (a->dampening[0] != 0 && !c->in[4])
        return aril__fail(ARIL_ERR_ARG, "sgd_update: dampening needs the number of the step");
    out_like(c, 0, 0);
    out_like(c, 1, 3);
    return ARIL_OK;
}

static aril_status sgd_update_ref(aril__run *r)
{
    const struct sgd_update_attrs *a = r->attrs;
    bool first = r->in[4] && number(r->in[4]) <= 1, keeps = a->momentum[0] != 0;
    sgd_job j = { .p = aril__ptr(r->out[0]),
                  .buffer = keeps ? aril__ptr(r->out[1]) : NULL,
                  .grad = aril__ptr(r->in[1]),
                  .sign = a->maximize[0] ? -1 : 1,
                  .decay = a->weight_decay[0],
                  .lr = number(r->in[2]),
                  .momentum = a->momentum[0],
                  .fresh = first ? 1 : 1 - a->dampening[0],
                  .of_g = a->nesterov[0] ? 1 : 0,
                  .of_b = a->nesterov[0] ? a->momentum[0] : 1 };
    aril__parallel_for(r->out[0]->numel, GRAIN, ARIL__PICK(sgd_range, r->type == ARIL_F64), &j);
    return ARIL_OK;
}

static const aril__sample sgd_update_samples[] = {
    { .in = { "[3,5]", "[3,5]", "p[]", "-", "-" },
      .attrs = &(const struct sgd_update_attrs){ .weight_decay = { 0.1 } } },
    { .in = { "[70]", "[70]", "p[]", "[70]", "-" },
      .attrs = &(const struct sgd_update_attrs){ .momentum = { 0.9 } } },
    { .in = { "[2,40]", "[2,40]", "p[]", "[2,40]", "1[]" },
      .attrs = &(const struct sgd_update_attrs){ .momentum = { 0.9 },
                                                 .dampening = { 0.3 },
                                                 .maximize = { 1 } } },
    { .in = { "[4]", "[4]", "p[1]", "[4]", "-" },
      .attrs = &(const struct sgd_update_attrs){ .momentum = { 0.5 },
                                                 .weight_decay = { 0.01 },
                                                 .nesterov = { 1 } } },
    { .in = { "[0,2]", "[0,2]", "p[]", "-", "-" },
      .attrs = &(const struct sgd_update_attrs){ .momentum = { 0 } } },
    SAMPLE_END
};
OP(sgd_update, .doc = "a step of gradient descent on one parameter, in place", .min_in = 5,
   .max_in = 5, .n_out = 2, .out = { WRITES(0), WRITES(3) }, .flags = NONDIFF | INPLACE,
   .optional = IN(3) | IN(4), .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64),
   .infer = sgd_update_infer, .ref = sgd_update_ref, .samples = sgd_update_samples,
   WITH_ATTRS(sgd_update));

/* ---- adam_update ---- */

ATTR_LIST(adam_update, ADAM_UPDATE_ATTRS)

static aril_status adam_update_infer(aril__call *c)
{
    const struct adam_update_attrs *a = c->attrs;
    static const char *const name[] = { "", "its gradient", "its m", "its v", "its largest v" };
    aril_status s = ARIL_OK;
    for (int i = 1; i < 5 && s == ARIL_OK; i++) s = check_like(c, i, name[i]);
    if (s == ARIL_OK) s = check_number(c, 5, "the learning rate");
    if (s == ARIL_OK) s = check_number(c, 6, "the step");
    if (s < 0) return s;
    if (!(a->beta1[0] >= 0 && a->beta1[0] < 1 && a->beta2[0] >= 0 && a->beta2[0] < 1))
        return aril__fail(ARIL_ERR_ARG,
                          "adam_update: beta1 and beta2 are from 0 to below 1, got %g and %g",
                          a->beta1[0], a->beta2[0]);
    out_like(c, 0, 0);
    for (int i = 1; i < 4; i++) out_like(c, i, i + 1);
    return ARIL_OK;
}

static aril_status adam_update_ref(aril__run *r)
{
    const struct adam_update_attrs *a = r->attrs;
    double lr = number(r->in[5]), t = number(r->in[6]), decay = a->weight_decay[0];
    adam_job j = { .p = aril__ptr(r->out[0]),
                   .m = aril__ptr(r->out[1]),
                   .v = aril__ptr(r->out[2]),
                   .largest = r->out[3] ? aril__ptr(r->out[3]) : NULL,
                   .grad = aril__ptr(r->in[1]),
                   .sign = a->maximize[0] ? -1 : 1,
                   .decay = a->decoupled[0] ? 0 : decay,
                   .shrink = a->decoupled[0] ? 1 - lr * decay : 1,
                   .beta1 = a->beta1[0],
                   .beta2 = a->beta2[0],
                   .eps = a->eps[0],
                   .size = lr / (1 - pow(a->beta1[0], t)),
                   .scale = 1 / sqrt(1 - pow(a->beta2[0], t)) };
    aril__parallel_for(r->out[0]->numel, GRAIN, ARIL__PICK(adam_range, r->type == ARIL_F64), &j);
    return ARIL_OK;
}

static const aril__sample adam_update_samples[] = {
    { .in = { "[3,5]", "[3,5]", "[3,5]", "+[3,5]", "-", "p[]", "1[]" },
      .attrs =
          &(const struct adam_update_attrs){ { 0.9 }, { 0.99 }, { 1e-3 }, { 0 }, { 0 }, { 0 } } },
    { .in = { "[80]", "[80]", "[80]", "+[80]", "+[80]", "p[]", "1[]" },
      .attrs =
          &(const struct adam_update_attrs){ { 0.8 }, { 0.9 }, { 1e-3 }, { 0.1 }, { 1 }, { 0 } } },
    { .in = { "[2,17]", "[2,17]", "[2,17]", "+[2,17]", "-", "p[1]", "1[]" },
      .attrs =
          &(const struct adam_update_attrs){ { 0.9 }, { 0.95 }, { 1e-2 }, { 0.2 }, { 0 }, { 1 } } },
    { .in = { "[0]", "[0]", "[0]", "+[0]", "-", "p[]", "1[]" },
      .attrs =
          &(const struct adam_update_attrs){ { 0.9 }, { 0.99 }, { 1e-8 }, { 0 }, { 0 }, { 0 } } },
    SAMPLE_END
};
OP(adam_update, .doc = "a step of Adam or AdamW on one parameter, in place", .min_in = 7,
   .max_in = 7, .n_out = 4, .out = { WRITES(0), WRITES(2), WRITES(3), WRITES(4) },
   .flags = NONDIFF | INPLACE, .optional = IN(4), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = adam_update_infer, .ref = adam_update_ref,
   .samples = adam_update_samples, WITH_ATTRS(adam_update));
