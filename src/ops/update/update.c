/* In-place parameter updates: one op for all optimizer rules, and one pass over many parameters. */
#include "ops/update/update.h"

#include "core/parallel.h"
#include "core/profile.h"
#include "ops/table/apply.h"
#include "ops/table/sample.h"

#include <math.h>
#include <stdlib.h>

enum { GRAIN = 1 << 15 };

/* Kernels: a rule with or without its optional slots. */
enum {
    SGD,
    SGD_MOMENTUM,
    ADAM,
    ADAM_LARGEST,
    ADAMAX,
    NADAM,
    RADAM,
    ADAGRAD,
    ADADELTA,
    RMSPROP,
    RMSPROP_CENTERED,
    RMSPROP_MOMENTUM,
    RMSPROP_BOTH,
    RPROP,
    LARS,
    LAMB,
    LION,
    AVERAGE,
};

/* Constants of a kernel: the same for all elements of a parameter. */
typedef struct constants {
    bool skip;  /* a gradient overflowed: skip the update */
    bool plain; /* factor, most, decay and shrink have no effect */
    double factor, most, decay, shrink;
    double own[7];
} constants;

typedef struct part part;
typedef void update_fn(const part *u, int64_t begin, int64_t end);

struct part {
    void *p;
    const void *grad;
    void *slot[ARIL__UPDATE_SLOTS]; /* those present, in order, without scalar slots */
    update_fn *fn;
    int64_t end; /* of this parameter, in the concatenation of all */
    constants k;
};

typedef struct norms_job {
    const void *p, *grad;
    void *m, *v;
    double factor, most, k[7];
    double *sums; /* two per chunk */
    void (*fn)(const struct norms_job *j, int64_t begin, int64_t end, double *sum);
} norms_job;

#define TEMPLATE "ops/update/update.inc"
#include "ops/vector/each_target.inc"

/* ---- the rules ---- */

/* Inputs for computing the constants. */
typedef struct values {
    double lr, t, factor;
    const double *norms; /* of the parameter and of the direction; NULL: none */
    double *single;      /* the scalar slot */
} values;

typedef const struct update_attrs attributes;

static double rate(attributes *a, const values *v)
{
    return v->lr / (1 + a->decay[0] * (v->t - 1));
}

static void sgd_constants(attributes *a, const values *v, double *k)
{
    k[0] = rate(a, v);
    k[1] = a->momentum[0];
    k[2] = v->t <= 1 ? 1 : 1 - a->dampening[0];
    k[3] = a->nesterov[0] ? 1 : 0;
    k[4] = a->nesterov[0] ? a->momentum[0] : 1;
}

static void adam_constants(attributes *a, const values *v, double *k)
{
    k[0] = v->lr / (1 - pow(a->beta1[0], v->t));
    k[1] = 1 - a->beta1[0];
    k[2] = a->beta2[0];
    k[3] = 1 - a->beta2[0];
    k[4] = 1 / sqrt(1 - pow(a->beta2[0], v->t));
    k[5] = a->eps[0];
}

static void adamax_constants(attributes *a, const values *v, double *k)
{
    adam_constants(a, v, k);
    k[3] = a->eps[0];
}

static void nadam_constants(attributes *a, const values *v, double *k)
{
    double b1 = a->beta1[0], d = a->momentum_decay[0];
    double mu = b1 * (1 - 0.5 * pow(0.96, v->t * d));
    double next = b1 * (1 - 0.5 * pow(0.96, (v->t + 1) * d));
    double product = (v->t <= 1 ? 1 : *v->single) * mu;
    *v->single = product;
    k[0] = v->lr * (1 - mu) / (1 - product);
    k[1] = v->lr * next / (1 - product * next);
    k[2] = 1 - b1;
    k[3] = a->beta2[0];
    k[4] = 1 / sqrt(1 - pow(a->beta2[0], v->t));
    k[5] = a->eps[0];
    k[6] = 1 - a->beta2[0];
}

static void radam_constants(attributes *a, const values *v, double *k)
{
    double b2 = a->beta2[0], last = 2 / (1 - b2) - 1, power = pow(b2, v->t);
    double length = last - 2 * v->t * power / (1 - power);
    k[0] = v->lr / (1 - pow(a->beta1[0], v->t));
    k[1] = 1 - a->beta1[0];
    k[2] = b2;
    k[3] = length > 5;
    k[4] = 1 - b2;
    if (length > 5)
        k[0] *= sqrt(1 - power) *
                sqrt((length - 4) * (length - 2) * last / ((last - 4) * (last - 2) * length));
    k[5] = a->eps[0];
}

static void adagrad_constants(attributes *a, const values *v, double *k)
{
    k[0] = rate(a, v);
    k[5] = a->eps[0];
}

static void mean_constants(attributes *a, const values *v, double *k)
{
    k[0] = v->lr;
    k[1] = a->alpha[0];
    k[2] = 1 - a->alpha[0];
    k[3] = a->momentum[0];
    k[5] = a->eps[0];
}

static void rprop_constants(attributes *a, const values *v, double *k)
{
    (void)v;
    k[1] = a->eta_minus[0];
    k[2] = a->eta_plus[0];
    k[3] = a->step_min[0];
    k[4] = a->step_max[0];
}

static void lars_constants(attributes *a, const values *v, double *k)
{
    double of_p = v->norms[0], of_g = v->norms[1];
    bool known = of_p > 0 && of_g > 0;
    k[0] =
        v->lr * (known ? a->trust[0] * of_p / (of_g + a->weight_decay[0] * of_p + a->eps[0]) : 1);
    k[1] = a->momentum[0];
}

static void lamb_constants(attributes *a, const values *v, double *k)
{
    adam_constants(a, v, k);
    k[1] = 1 / (1 - pow(a->beta1[0], v->t));
    k[2] = a->weight_decay[0];
    k[0] = v->lr;
    if (v->norms && v->norms[0] > 0 && v->norms[1] > 0) k[0] *= v->norms[0] / v->norms[1];
}

static void lion_constants(attributes *a, const values *v, double *k)
{
    k[0] = v->lr;
    k[1] = a->beta1[0];
    k[2] = 1 - a->beta1[0];
    k[3] = a->beta2[0];
    k[4] = 1 - a->beta2[0];
}

static void average_constants(attributes *a, const values *v, double *k)
{
    (void)a;
    k[0] = v->lr;
}

/* The kernel without optional slots comes first, then those with the first, the second, both. */
static const struct {
    int kernel;
    void (*constants)(attributes *a, const values *v, double *k);
} how[ARIL__RULES] = {
    [ARIL__RULE_SGD] = { SGD, sgd_constants },
    [ARIL__RULE_ADAM] = { ADAM, adam_constants },
    [ARIL__RULE_ADAMAX] = { ADAMAX, adamax_constants },
    [ARIL__RULE_NADAM] = { NADAM, nadam_constants },
    [ARIL__RULE_RADAM] = { RADAM, radam_constants },
    [ARIL__RULE_ADAGRAD] = { ADAGRAD, adagrad_constants },
    [ARIL__RULE_ADADELTA] = { ADADELTA, mean_constants },
    [ARIL__RULE_RMSPROP] = { RMSPROP, mean_constants },
    [ARIL__RULE_RPROP] = { RPROP, rprop_constants },
    [ARIL__RULE_LARS] = { LARS, lars_constants },
    [ARIL__RULE_LAMB] = { LAMB, lamb_constants },
    [ARIL__RULE_LION] = { LION, lion_constants },
    [ARIL__RULE_AVERAGE] = { AVERAGE, average_constants },
};

const aril__rule_row aril__rules[ARIL__RULES] = {
    [ARIL__RULE_SGD] = { .name = "sgd", .slot = { "momentum" }, .optional = 1 },
    [ARIL__RULE_ADAM] = { .name = "adam", .slot = { "m", "v", "largest" }, .optional = 4 },
    [ARIL__RULE_ADAMAX] = { .name = "adamax", .slot = { "m", "largest" } },
    [ARIL__RULE_NADAM] = { .name = "nadam", .slot = { "m", "v", "product" }, .single = 4 },
    [ARIL__RULE_RADAM] = { .name = "radam", .slot = { "m", "v" } },
    [ARIL__RULE_ADAGRAD] = { .name = "adagrad", .slot = { "sum" } },
    [ARIL__RULE_ADADELTA] = { .name = "adadelta", .slot = { "v", "change" } },
    [ARIL__RULE_RMSPROP] = { .name = "rmsprop", .slot = { "v", "m", "momentum" }, .optional = 6 },
    [ARIL__RULE_RPROP] = { .name = "rprop", .slot = { "last", "size" } },
    [ARIL__RULE_LARS] = { .name = "lars", .slot = { "momentum" }, .norms = true },
    [ARIL__RULE_LAMB] = { .name = "lamb", .slot = { "m", "v" }, .norms = true },
    [ARIL__RULE_LION] = { .name = "lion", .slot = { "m" } },
    [ARIL__RULE_AVERAGE] = { .name = "average", .slot = { NULL } },
};

static double number(const aril_tensor *t)
{
    double v;
    aril__dtypes[t->dtype].load[ARIL__C_F64](&v, aril__base(t), t->offset, 1, 1);
    return v;
}

static double limit(attributes *a)
{
    return a->clip_value[0] > 0 ? a->clip_value[0] : INFINITY;
}

static constants constants_of(attributes *a, const values *v)
{
    constants k = { .skip = v->factor < 0,
                    .factor = a->maximize[0] ? -v->factor : v->factor,
                    .most = limit(a),
                    .decay = a->decoupled[0] ? 0 : a->weight_decay[0],
                    .shrink = a->decoupled[0] ? 1 - v->lr * a->weight_decay[0] : 1 };
    if (a->rule[0] == ARIL__RULE_LAMB) k.decay = 0; /* it is part of the direction */
    k.plain = k.factor == 1 && isinf(k.most) && k.decay == 0 && k.shrink == 1;
    if (!k.skip) how[a->rule[0]].constants(a, v, k.own);
    return k;
}

/* Chooses the kernel, and its slots, by which slots are given. */
static void choose(part *u, const aril__rule_row *row, int64_t rule, aril_tensor *const *slot,
                   bool wide)
{
    int kernel = how[rule].kernel, n = 0, weight = 1;
    for (int i = 0; i < ARIL__UPDATE_SLOTS; i++) {
        bool optional = row->optional >> i & 1;
        if (slot[i] && optional) kernel += weight;
        if (optional) weight *= 2;
        if (slot[i] && !(row->single >> i & 1)) u->slot[n++] = aril__ptr(slot[i]);
    }
    u->fn = ARIL__PICK(rules, wide)[kernel];
}

/* ---- one parameter ---- */

/* Input i must have the parameter's shape and dtype, or f32 if that is narrower. */
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
        return aril__fail(ARIL_ERR_DTYPE, "%s: the parameter is %s, its %s %s", c->op->name,
                          aril__dtypes[p->dtype].name, what, aril__dtypes[t->dtype].name);
    return ARIL_OK;
shape:
    return aril__fail(ARIL_ERR_SHAPE, "%s: the parameter has shape %s, its %s %s", c->op->name,
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

enum { P, GRAD, LR, STEP, FACTOR, NORMS, SLOT0, INPUTS = SLOT0 + ARIL__UPDATE_SLOTS };

ATTR_LIST(update, UPDATE_ATTRS)

static aril_status check_rule(const aril__call *c, attributes *a)
{
    if (a->rule[0] < 0 || a->rule[0] >= ARIL__RULES)
        return aril__fail(ARIL_ERR_ARG, "%s: there is no rule %lld", c->op->name,
                          (long long)a->rule[0]);
    if (!(a->beta1[0] >= 0 && a->beta1[0] < 1 && a->beta2[0] >= 0 && a->beta2[0] < 1))
        return aril__fail(ARIL_ERR_ARG, "%s: beta1 and beta2 are from 0 to below 1, got %g and %g",
                          c->op->name, a->beta1[0], a->beta2[0]);
    return ARIL_OK;
}

static aril_status update_infer(aril__call *c)
{
    attributes *a = c->attrs;
    aril_status s = check_rule(c, a);
    if (s < 0) return s;
    const aril__rule_row *row = &aril__rules[a->rule[0]];
    s = check_like(c, GRAD, "gradient");
    if (s == ARIL_OK) s = check_number(c, LR, "the learning rate");
    if (s == ARIL_OK) s = check_number(c, STEP, "the step");
    if (s == ARIL_OK) s = check_number(c, FACTOR, "the factor");
    if (s == ARIL_OK && row->norms && !c->in[NORMS])
        s = aril__fail(ARIL_ERR_ARG, "update: %s needs norms", row->name);
    for (int i = 0; i < ARIL__UPDATE_SLOTS && s == ARIL_OK; i++) {
        const aril_tensor *t = c->in[SLOT0 + i];
        if (!t != !row->slot[i] && !(row->slot[i] && row->optional >> i & 1))
            return aril__fail(ARIL_ERR_ARG, "update: %s %s state %d", row->name,
                              t ? "has no" : "needs", i);
        if (row->single >> i & 1)
            s = t->dtype == ARIL_F64 && t->numel == 1
                    ? ARIL_OK
                    : aril__fail(ARIL_ERR_ARG, "update: %s of %s is one f64", row->slot[i],
                                 row->name);
        else
            s = check_like(c, SLOT0 + i, row->slot[i]);
        out_like(c, 1 + i, SLOT0 + i);
    }
    out_like(c, 0, P);
    return s;
}

static values values_of(attributes *a, const aril_tensor *lr, const aril_tensor *step,
                        const aril_tensor *factor)
{
    return (values){ .lr = number(lr),
                     .t = step ? number(step) - (double)a->missed[0] : 2,
                     .factor = factor ? number(factor) : 1 };
}

static double *single_of(const aril__rule_row *row, aril_tensor *const *slot)
{
    for (int i = 0; i < ARIL__UPDATE_SLOTS; i++)
        if (row->single >> i & 1) return aril__ptr(slot[i]);
    return NULL;
}

static void run_part(void *ctx, int64_t begin, int64_t end)
{
    const part *u = ctx;
    u->fn(u, begin, end);
}

static aril_status update_ref(aril__run *r)
{
    attributes *a = r->attrs;
    const aril__rule_row *row = &aril__rules[a->rule[0]];
    values v = values_of(a, r->in[LR], r->in[STEP], r->in[FACTOR]);
    v.norms = aril__ptr_or_null(r->in[NORMS]);
    v.single = single_of(row, r->out + 1);
    part u = { .p = aril__ptr(r->out[0]), .grad = aril__ptr(r->in[GRAD]) };
    u.k = constants_of(a, &v);
    if (u.k.skip) return ARIL_OK;
    choose(&u, row, a->rule[0], r->out + 1, r->type == ARIL_F64);
    aril__parallel_for(r->out[0]->numel, GRAIN, run_part, &u);
    return ARIL_OK;
}

/* The attributes of a sample: R(ADAM, .beta1 = { 0.9 }). */
#define R(name, ...)                               \
    &(const struct update_attrs)                   \
    {                                              \
        .rule = { ARIL__RULE_##name }, __VA_ARGS__ \
    }

static const aril__sample update_samples[] = {
    { .in = { "[3,5]", "[3,5]", "p[]", "-", "-", "-", "-", "-", "-" },
      .attrs = R(SGD, .weight_decay = { 0.1 }) },
    { .in = { "[70]", "[70]", "p[]", "-", "-", "-", "[70]", "-", "-" },
      .attrs = R(SGD, .momentum = { 0.9 }) },
    { .in = { "[2,40]", "[2,40]", "p[]", "1[]", "p[]", "-", "[2,40]", "-", "-" },
      .attrs = R(SGD, .momentum = { 0.9 }, .dampening = { 0.3 }, .maximize = { 1 }) },
    { .in = { "[4]", "[4]", "p[1]", "1[]", "-", "-", "[4]", "-", "-" },
      .attrs = R(SGD, .momentum = { 0.5 }, .nesterov = { 1 }, .decay = { 0.2 }) },
    { .in = { "[0,2]", "[0,2]", "p[]", "-", "-", "-", "-", "-", "-" },
      .attrs = R(SGD, .clip_value = { 0.5 }) },
    { .in = { "[3,5]", "[3,5]", "p[]", "1[]", "-", "-", "[3,5]", "+[3,5]", "-" },
      .attrs = R(ADAM, .beta1 = { 0.9 }, .beta2 = { 0.99 }, .eps = { 1e-3 }) },
    { .in = { "[80]", "[80]", "p[]", "1[]", "p[]", "-", "[80]", "+[80]", "+[80]" },
      .attrs = R(ADAM, .beta1 = { 0.8 }, .beta2 = { 0.9 }, .eps = { 1e-3 }, .weight_decay = { 0.1 },
                 .decoupled = { 1 }, .clip_value = { 0.5 }) },
    { .in = { "[2,17]", "[2,17]", "p[]", "1[]", "-", "-", "[2,17]", "+[2,17]", "-" },
      .attrs = R(ADAMAX, .beta1 = { 0.9 }, .beta2 = { 0.95 }, .eps = { 1e-2 }) },
    { .in = { "[9]", "[9]", "p[]", "1[]", "-", "-", "[9]", "+[9]", "-" },
      .attrs = R(RADAM, .beta1 = { 0.9 }, .beta2 = { 0.95 }, .eps = { 1e-2 }) },
    { .in = { "[9]", "[9]", "p[]", "1[]", "-", "-", "+[9]", "-", "-" },
      .attrs = R(ADAGRAD, .decay = { 0.1 }, .eps = { 1e-2 }) },
    { .in = { "[9]", "[9]", "p[]", "1[]", "-", "-", "+[9]", "+[9]", "-" },
      .attrs = R(ADADELTA, .alpha = { 0.9 }, .eps = { 1e-2 }) },
    { .in = { "[33]", "[33]", "p[]", "1[]", "-", "-", "+[33]", "-", "[33]" },
      .attrs = R(RMSPROP, .alpha = { 0.9 }, .eps = { 1e-2 }, .momentum = { 0.9 }) },
    { .in = { "[9]", "[9]", "p[]", "1[]", "-", "-", "[9]", "+[9]", "-" },
      .attrs = R(RPROP, .eta_minus = { 0.5 }, .eta_plus = { 1.2 }, .step_min = { 1e-6 },
                 .step_max = { 50 }) },
    { .in = { "[9]", "[9]", "p[]", "1[]", "-", "-", "[9]", "-", "-" },
      .attrs = R(LION, .beta1 = { 0.9 }, .beta2 = { 0.99 }) },
    { .in = { "[9]", "[9]", "p[]", "-", "-", "-", "-", "-", "-" },
      .attrs = R(AVERAGE, .decay = { 0 }) },
    SAMPLE_END
};
OP(update, .doc = "a step of an optimizer on one parameter, in place", .min_in = INPUTS,
   .max_in = INPUTS, .n_out = 1 + ARIL__UPDATE_SLOTS,
   .out = { WRITES(P), WRITES(SLOT0), WRITES(SLOT0 + 1), WRITES(SLOT0 + 2) },
   .flags = NONDIFF | INPLACE,
   .optional = IN(STEP) | IN(FACTOR) | IN(NORMS) | IN(SLOT0) | IN(SLOT0 + 1) | IN(SLOT0 + 2),
   .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = update_infer,
   .ref = update_ref, .samples = update_samples, WITH_ATTRS(update));

/* ---- update_norms ---- */

/* in: p, grad, step?, factor?, m?, v?; updates m and v */
enum { NORMS_STEP = 2, NORMS_FACTOR, NORMS_M, NORMS_V, NORMS_INPUTS };

static aril_status update_norms_infer(aril__call *c)
{
    aril_status s = check_rule(c, c->attrs);
    if (s == ARIL_OK) s = check_like(c, GRAD, "gradient");
    if (s == ARIL_OK) s = check_like(c, NORMS_M, "m");
    if (s == ARIL_OK) s = check_like(c, NORMS_V, "v");
    if (s == ARIL_OK) s = check_number(c, NORMS_STEP, "the step");
    if (s == ARIL_OK) s = check_number(c, NORMS_FACTOR, "the factor");
    if (s == ARIL_OK && !c->in[NORMS_M] != !c->in[NORMS_V])
        s = aril__fail(ARIL_ERR_ARG, "update_norms: m and v go together");
    c->out[0].dtype = ARIL_F64;
    c->out[0].ndim = 1;
    c->out[0].dim[0] = 2;
    out_like(c, 1, NORMS_M);
    out_like(c, 2, NORMS_V);
    return s;
}

static void run_norms(void *ctx, int64_t begin, int64_t end)
{
    const norms_job *j = ctx;
    j->fn(j, begin, end, j->sums + 2 * (begin / GRAIN));
}

static aril_status update_norms_ref(aril__run *r)
{
    attributes *a = r->attrs;
    const aril_tensor *p = r->in[P];
    double *out = aril__ptr(r->out[0]);
    values v = { .t = r->in[NORMS_STEP] ? number(r->in[NORMS_STEP]) - (double)a->missed[0] : 2,
                 .factor = r->in[NORMS_FACTOR] ? number(r->in[NORMS_FACTOR]) : 1 };
    out[0] = out[1] = 0;
    if (v.factor < 0) return ARIL_OK;
    int64_t chunks = aril__parallel_chunks(p->numel, GRAIN);
    enum { FEW = 16 };
    double few[2 * FEW] = { 0 };
    norms_job j = { .p = aril__ptr(p),
                    .grad = aril__ptr(r->in[GRAD]),
                    .m = aril__ptr_or_null(r->out[1]),
                    .v = aril__ptr_or_null(r->out[2]),
                    .factor = a->maximize[0] ? -v.factor : v.factor,
                    .most = limit(a),
                    .fn = ARIL__PICK(norms, r->type == ARIL_F64) };
    double k[7] = { 0 };
    lamb_constants(a, &v, k);
    j.k[0] = 1 - a->beta1[0];
    j.k[1] = a->beta2[0];
    j.k[2] = 1 - a->beta2[0];
    j.k[3] = k[1];
    j.k[4] = k[4];
    j.k[5] = k[5];
    j.k[6] = k[2];
    j.sums = chunks <= FEW ? few : aril__calloc((size_t)chunks * 2 * sizeof(double));
    if (!j.sums) return aril__fail(ARIL_ERR_MEMORY, "update_norms: no memory");
    aril__parallel_for(p->numel, GRAIN, run_norms, &j);
    for (int64_t i = 0; i < chunks; i++) {
        out[0] += j.sums[2 * i];
        out[1] += j.sums[2 * i + 1];
    }
    out[0] = sqrt(out[0]);
    out[1] = sqrt(out[1]);
    if (j.sums != few) free(j.sums);
    return ARIL_OK;
}

static const aril__sample update_norms_samples[] = {
    { .in = { "[3,5]", "[3,5]", "-", "-", "-", "-" }, .attrs = R(LARS, .weight_decay = { 0.1 }) },
    { .in = { "[70]", "[70]", "1[]", "p[]", "[70]", "+[70]" },
      .attrs =
          R(LAMB, .beta1 = { 0.9 }, .beta2 = { 0.99 }, .eps = { 1e-3 }, .weight_decay = { 0.1 }) },
    SAMPLE_END
};
OP(update_norms, .doc = "norms of a parameter and of the direction it will be updated in",
   .min_in = NORMS_INPUTS, .max_in = NORMS_INPUTS, .n_out = 3,
   .out = { FRESH, WRITES(NORMS_M), WRITES(NORMS_V) }, .flags = NONDIFF,
   .optional = IN(NORMS_STEP) | IN(NORMS_FACTOR) | IN(NORMS_M) | IN(NORMS_V), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = update_norms_infer, .ref = update_norms_ref,
   .samples = update_norms_samples, WITH_ATTRS(update));

/* ---- many parameters ---- */

typedef struct row_of_parts {
    int n;
    const part *at;
} row_of_parts;

/* Elements begin .. end of the concatenation of all parameters. */
static void run_row(void *ctx, int64_t begin, int64_t end)
{
    const row_of_parts *row = ctx;
    int low = 0, high = row->n - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (row->at[middle].end > begin)
            high = middle;
        else
            low = middle + 1;
    }
    for (int i = low; begin < end; i++) {
        const part *u = &row->at[i];
        int64_t first = i ? row->at[i - 1].end : 0, to = u->end < end ? u->end : end;
        if (to > begin) u->fn(u, begin - first, to - first);
        begin = to > begin ? to : begin;
    }
}

static bool lies_like(const aril_tensor *p, const aril_tensor *t)
{
    return t->storage && t->storage->device == aril__cpu_device && t->dtype == p->dtype &&
           aril__same_dims(p->ndim, p->dim, t->ndim, t->dim) &&
           (aril__same_dims(p->ndim, p->stride, t->ndim, t->stride) ||
            (aril__is_dense(p) && aril__is_dense(t)));
}

static bool is_here(const aril_tensor *t)
{
    return !t || (t->storage && t->storage->device == aril__cpu_device);
}

/* Whether the kernels can run on it directly. */
static bool is_simple(const aril__update *u, const aril__rule_row *row)
{
    const aril_tensor *p = u->p;
    if (!is_here(p) || !is_here(u->lr) || !is_here(u->step) || !is_here(u->factor)) return false;
    if ((p->dtype != ARIL_F32 && p->dtype != ARIL_F64) || !aril__is_packed(p)) return false;
    if (!lies_like(p, u->grad)) return false;
    for (int i = 0; i < ARIL__UPDATE_SLOTS; i++)
        if (u->slot[i] && !(row->single >> i & 1) && !lies_like(p, u->slot[i])) return false;
    return true;
}

static aril_status norms_of(const aril__update *u, aril_tensor **norms)
{
    bool means = u->attrs->rule[0] == ARIL__RULE_LAMB;
    aril_tensor *in[] = {
        u->p, u->grad, u->step, u->factor, means ? u->slot[0] : NULL, means ? u->slot[1] : NULL
    };
    aril_tensor *out[ARIL__MAX_OUT];
    aril_status s = aril__apply(&aril__op_update_norms, NORMS_INPUTS, in, u->attrs, out);
    *norms = out[0];
    return s;
}

static aril_status apply_one(const aril__update *u, aril_tensor *norms)
{
    aril_tensor *out[ARIL__MAX_OUT];
    aril_tensor *in[INPUTS] = { u->p, u->grad, u->lr, u->step, u->factor, norms };
    for (int i = 0; i < ARIL__UPDATE_SLOTS; i++) in[SLOT0 + i] = u->slot[i];
    return aril__apply(&aril__op_update, INPUTS, in, u->attrs, out);
}

/* Constants are only recomputed if they may differ from the previous ones. */
static bool same_values(const aril__update *a, const aril__update *b, const aril__rule_row *row)
{
    return a->attrs == b->attrs && a->lr == b->lr && a->step == b->step && a->factor == b->factor &&
           !row->norms && !row->single;
}

static void note_writes(const aril__update *u)
{
    aril__bump_version(u->p);
    for (int i = 0; i < ARIL__UPDATE_SLOTS; i++)
        if (u->slot[i]) aril__bump_version(u->slot[i]);
}

static aril_status update_all(int n, const aril__update *u, part *parts, bool by_op)
{
    row_of_parts row = { 0, parts };
    const aril__update *before = NULL;
    int64_t end = 0;
    for (int i = 0; i < n; i++) {
        const aril__rule_row *rule = &aril__rules[u[i].attrs->rule[0]];
        aril_tensor *norms = NULL;
        aril_status s = rule->norms ? norms_of(&u[i], &norms) : ARIL_OK;
        if (s == ARIL_OK && (by_op || !is_simple(&u[i], rule))) {
            s = apply_one(&u[i], norms);
            if (s < 0) return s;
            continue;
        }
        if (s < 0) return s;
        part *to = &parts[row.n];
        if (before && same_values(before, &u[i], rule)) {
            to->k = parts[row.n - 1].k;
        } else {
            values v = values_of(u[i].attrs, u[i].lr, u[i].step, u[i].factor);
            v.norms = aril__ptr_or_null(norms);
            v.single = single_of(rule, u[i].slot);
            to->k = constants_of(u[i].attrs, &v);
        }
        if (to->k.skip) continue;
        before = &u[i];
        to->p = aril__ptr(u[i].p);
        to->grad = aril__ptr(u[i].grad);
        choose(to, rule, u[i].attrs->rule[0], u[i].slot, u[i].p->dtype == ARIL_F64);
        to->end = end += u[i].p->numel;
        row.n++;
        note_writes(&u[i]);
    }
    aril__parallel_for(end, GRAIN, run_row, &row);
    return ARIL_OK;
}

size_t aril__update_buffer(int n)
{
    return (size_t)n * sizeof(part);
}

aril_status aril__update_all(int n, const aril__update *u, void *room)
{
    aril__thread *th = aril__self();
    aril__span span = { .depth = -1 };
    if (aril__unlikely(aril__profiling())) span = aril__span_begin("update", "update");
    aril_status s = update_all(n, u, room, th->tracer || th->mode.anomaly);
    aril__span_end(span);
    return s;
}
