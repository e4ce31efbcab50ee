/* In-place updates of lists of parameters: the ops, their references, and calls for many. */
#include "ops/update/update.h"

#include "ops/table/apply.h"
#include "ops/table/plans.h"
#include "ops/table/sample.h"
#include "ops/table/stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const aril__attr update_attr_list[] = {
    { "rule", ARIL__I64, 1, offsetof(struct update_attrs, rule), 0, NULL },
    { "missed", ARIL__I64, 1, offsetof(struct update_attrs, missed), 0, NULL },
#define TYPE_NUMBER ARIL__F64
#define TYPE_FLAG   ARIL__I64
#define ATTR(name, type, scope, below) \
    { #name, TYPE_##type, 1, offsetof(struct update_attrs, name), 0, NULL },
    OPTIM_OPTIONS(ATTR, NOTHING)
};

typedef const struct update_attrs attributes;

/* ---- shape rules ---- */

/* Input i of an item must have the parameter's shape and dtype, or f32 if that is narrower. */
static aril_status check_like(const aril__call *c, int number, const aril_tensor *p,
                              const aril_tensor *t, const char *what)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    bool same = t->ndim == p->ndim;
    for (int d = 0; d < t->ndim && same; d++)
        same = t->dim[d] == p->dim[d] || t->dim[d] < 0 || p->dim[d] < 0;
    if (!same)
        return aril__fail(ARIL_ERR_SHAPE, "%s: parameter %d has shape %s, but its %s has %s",
                          c->op->name, number, aril__text(a, p), what, aril__text(b, t));
    bool low = p->dtype == ARIL_F16 || p->dtype == ARIL_BF16;
    if (t->dtype != p->dtype && !(low && t->dtype == ARIL_F32))
        return aril__fail(ARIL_ERR_DTYPE, "%s: parameter %d is %s, but its %s is %s", c->op->name,
                          number, aril__dtypes[p->dtype].name, what, aril__dtypes[t->dtype].name);
    return ARIL_OK;
}

static aril_status check_number(const aril__call *c, int i, const char *what)
{
    char text[ARIL__SHAPE_TEXT];
    if (c->in[i] && c->in[i]->numel != 1 && c->in[i]->numel >= 0)
        return aril__fail(ARIL_ERR_SHAPE, "%s: %s must be a scalar, got shape %s", c->op->name,
                          what, aril__text(text, c->in[i]));
    return ARIL_OK;
}

static aril_status check_slot(const aril__call *c, const aril__rule_row *rule, int number,
                              aril_tensor *const *item, int i)
{
    const aril_tensor *t = item[ARIL__ITEM_SLOT + i];
    if (i == ARIL__MASTER_SLOT)
        return t ? check_like(c, number, item[ARIL__ITEM_P], t, "master") : ARIL_OK;
    const char *name = rule->slot[i];
    if (!t && (!name || rule->optional >> i & 1)) return ARIL_OK;
    if (!t || !name)
        return aril__fail(ARIL_ERR_ARG, "%s: %s %s state %d", c->op->name, rule->name,
                          t ? "has no" : "needs", i);
    if (!(rule->scalar >> i & 1)) return check_like(c, number, item[ARIL__ITEM_P], t, name);
    if (t->dtype != ARIL_F64 || t->numel != 1)
        return aril__fail(ARIL_ERR_DTYPE, "%s: %s of %s must be an f64 scalar", c->op->name, name,
                          rule->name);
    return ARIL_OK;
}

static aril_status check_item(const aril__call *c, const aril__rule_row *rule, int number,
                              aril_tensor *const *item)
{
    const aril_tensor *p = item[ARIL__ITEM_P];
    if (!(DT_FLOAT >> p->dtype & 1))
        return aril__fail(ARIL_ERR_DTYPE, "%s: not defined for %s", c->op->name,
                          aril__dtypes[p->dtype].name);
    if (p->dtype != c->type)
        return aril__fail(ARIL_ERR_DTYPE,
                          "%s: parameter 0 is %s, parameter %d is %s; all must have the same dtype",
                          c->op->name, aril__dtypes[c->type].name, number,
                          aril__dtypes[p->dtype].name);
    aril_status s = check_like(c, number, p, item[ARIL__ITEM_GRAD], "gradient");
    for (int i = 0; i < ARIL__UPDATE_SLOTS && s == ARIL_OK; i++)
        s = check_slot(c, rule, number, item, i);
    return s;
}

/* The rule, and every item. Sets the dtype of the call. */
static aril_status check_items(aril__call *c)
{
    attributes *a = c->attrs;
    if (a->rule[0] < 0 || a->rule[0] >= ARIL__RULES)
        return aril__fail(ARIL_ERR_ARG, "%s: unknown update rule %lld", c->op->name,
                          (long long)a->rule[0]);
    if (!(a->beta1[0] >= 0 && a->beta1[0] < 1 && a->beta2[0] >= 0 && a->beta2[0] < 1))
        return aril__fail(ARIL_ERR_ARG,
                          "%s: beta1 and beta2 must be at least 0 and below 1, got %g and %g",
                          c->op->name, a->beta1[0], a->beta2[0]);
    aril_tensor *const *item = c->in + c->op->fixed;
    int n = aril__items(c->op, c->n_in);
    aril_status s = ARIL_OK;
    c->type = (aril_dtype)item[ARIL__ITEM_P]->dtype;
    for (int i = 0; i < n && s == ARIL_OK; i++)
        s = check_item(c, &aril__rules[a->rule[0]], i, item + i * ARIL__ITEM);
    return s;
}

static aril_status update_infer(aril__call *c)
{
    aril_status s = check_items(c);
    if (s == ARIL_OK) s = check_number(c, ARIL__UPDATE_LR, "the learning rate");
    if (s == ARIL_OK) s = check_number(c, ARIL__UPDATE_STEP, "the step");
    if (s == ARIL_OK) s = check_number(c, ARIL__UPDATE_FACTOR, "the factor");
    if (s == ARIL_OK) s = check_number(c, ARIL__UPDATE_MOMENTUM, "the momentum");
    if (s < 0) return s;
    const aril__rule_row *rule = &aril__rules[((attributes *)c->attrs)->rule[0]];
    const aril_tensor *norms = c->in[ARIL__UPDATE_NORMS];
    int n = aril__items(c->op, c->n_in);
    if (!norms != !(rule->facts & NORMS))
        return aril__fail(ARIL_ERR_ARG, "update: %s %s norms", rule->name,
                          norms ? "takes no" : "needs");
    if (norms && (norms->dtype != ARIL_F64 || norms->ndim != 2 || norms->dim[0] != n ||
                  norms->dim[1] != 2)) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(norms->dtype == ARIL_F64 ? ARIL_ERR_SHAPE : ARIL_ERR_DTYPE,
                          "update: norms must be f64 [%d,2], got %s %s", n,
                          aril__dtypes[norms->dtype].name, aril__text(text, norms));
    }
    return ARIL_OK;
}

static aril_status update_norms_infer(aril__call *c)
{
    aril_status s = check_items(c);
    if (s == ARIL_OK) s = check_number(c, ARIL__NORMS_STEP, "the step");
    if (s == ARIL_OK) s = check_number(c, ARIL__NORMS_FACTOR, "the factor");
    if (s == ARIL_OK) s = check_number(c, ARIL__NORMS_MOMENTUM, "the momentum");
    c->out[0].dtype = ARIL_F64;
    c->out[0].ndim = 2;
    c->out[0].dim[0] = aril__items(c->op, c->n_in);
    c->out[0].dim[1] = 2;
    return s;
}

/* ---- what kernels read ---- */

static double number_or(const aril_tensor *t, double otherwise)
{
    if (t) aril__dtypes[t->dtype].load[ARIL__C_F64](&otherwise, aril__base(t), t->offset, 1, 1);
    return otherwise;
}

unsigned aril__update_present(aril_tensor *const *item)
{
    unsigned present = 0;
    for (int i = 0; i < ARIL__RULE_SLOTS; i++)
        if (item[ARIL__ITEM_SLOT + i]) present |= 1u << i;
    return present;
}

aril__update_values aril__update_values_of(const aril__run *r, int i)
{
    attributes *a = r->attrs;
    bool is_update = r->op == &aril__op_update; /* else only the norms */
    aril_tensor *const *item = r->in + r->op->fixed + i * ARIL__ITEM;
    const aril_tensor *norms = is_update ? r->in[ARIL__UPDATE_NORMS] : NULL;
    const aril_tensor *step = r->in[is_update ? ARIL__UPDATE_STEP : ARIL__NORMS_STEP];
    aril__update_values v = {
        .lr = is_update ? number_or(r->in[ARIL__UPDATE_LR], 0) : 0,
        .t = step ? number_or(step, 0) - (double)a->missed[0] : 2,
        .factor = number_or(r->in[is_update ? ARIL__UPDATE_FACTOR : ARIL__NORMS_FACTOR], 1),
        .momentum = number_or(r->in[is_update ? ARIL__UPDATE_MOMENTUM : ARIL__NORMS_MOMENTUM], NAN),
    };
    if (norms) {
        int64_t at = norms->offset + i * norms->stride[0];
        aril__dtypes[ARIL_F64].load[ARIL__C_F64](&v.norm_p, aril__base(norms), at, 1, 1);
        aril__dtypes[ARIL_F64].load[ARIL__C_F64](&v.norm_d, aril__base(norms),
                                                 at + norms->stride[1], 1, 1);
    }
    for (int k = 0; k < ARIL__RULE_SLOTS; k++)
        if (aril__rules[a->rule[0]].scalar >> k & 1)
            v.slot[k] = aril__ptr(item[ARIL__ITEM_SLOT + k]);
    return v;
}

void aril__update_put_norms(aril__run *r, int i, double of_p, double of_d)
{
    aril_tensor *t = r->out[0];
    int64_t at = t->offset + i * t->stride[0];
    aril__dtypes[t->dtype].store[ARIL__C_F64](aril__base(t), at, 1, &of_p, 1);
    aril__dtypes[t->dtype].store[ARIL__C_F64](aril__base(t), at + t->stride[1], 1, &of_d, 1);
}

/* ---- references: one element at a time, in double ---- */

/* Where element i, in logical order, is stored. */
static int64_t offset_of(const aril_tensor *t, int64_t i)
{
    int64_t at = t->offset;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += i % t->dim[d] * t->stride[d];
        i /= t->dim[d];
    }
    return at;
}

static double get(const aril_tensor *t, int64_t i)
{
    double v;
    aril__dtypes[t->dtype].load[ARIL__C_F64](&v, aril__base(t), offset_of(t, i), 1, 1);
    return v;
}

static void put(aril_tensor *t, int64_t i, double v)
{
    aril__dtypes[t->dtype].store[ARIL__C_F64](aril__base(t), offset_of(t, i), 1, &v, 1);
}

/* The parameter: the master's value where p is its rounding. */
static double value_of(aril_tensor *const *item, int64_t e)
{
    const aril_tensor *p = item[ARIL__ITEM_P], *master = item[ARIL__ITEM_MASTER];
    double x = get(p, e), wide, rounded;
    if (!master) return x;
    _Alignas(8) unsigned char narrow[8];
    wide = get(master, e);
    aril__dtypes[p->dtype].store[ARIL__C_F64](narrow, 0, 1, &wide, 1);
    aril__dtypes[p->dtype].load[ARIL__C_F64](&rounded, narrow, 0, 1, 1);
    return rounded == x ? wide : x;
}

static void set_value(aril_tensor *const *item, int64_t e, double x)
{
    if (item[ARIL__ITEM_MASTER]) {
        put(item[ARIL__ITEM_MASTER], e, x);
        x = get(item[ARIL__ITEM_MASTER], e); /* p is the rounding of what was stored */
    }
    put(item[ARIL__ITEM_P], e, x);
}

/* Calls the rule's formula, or its direction, for element e of an item. Returns the result; *x: the
 * parameter before. */
static double element(const aril__run *r, const aril__update_constants *k, aril_tensor *const *item,
                      int64_t e, bool direction, double *x)
{
    const aril__rule_row *rule = &aril__rules[((attributes *)r->attrs)->rule[0]];
    double s[ARIL__RULE_SLOTS] = { 0 }, g = get(item[ARIL__ITEM_GRAD], e) * k->factor;
    unsigned present = aril__update_present(item) & ~rule->scalar;
    *x = value_of(item, e);
    g = g > k->max ? k->max : g < -k->max ? -k->max : g;
    for (int i = 0; i < ARIL__UPDATE_SLOTS; i++)
        if (present >> i & 1) s[i] = get(item[ARIL__ITEM_SLOT + i], e);
    double result = direction ? rule->direction(k, present, *x, g, s)
                              : rule->update(k, present, *x * k->shrink, g + k->decay * *x, s);
    for (int i = 0; i < ARIL__UPDATE_SLOTS && !direction; i++)
        if (present >> i & 1) put(item[ARIL__ITEM_SLOT + i], e, s[i]);
    return result;
}

static aril_status update_ref(aril__run *r)
{
    int n = aril__items(r->op, r->n_in);
    for (int i = 0; i < n; i++) {
        aril_tensor *const *item = r->in + ARIL__UPDATE_FIXED + i * ARIL__ITEM;
        aril__update_values v = aril__update_values_of(r, i);
        aril__update_constants k;
        aril__update_constants_of(r->attrs, &v, &k);
        if (k.skip) return ARIL_OK;
        double x;
        for (int64_t e = 0; e < item[ARIL__ITEM_P]->numel; e++)
            set_value(item, e, element(r, &k, item, e, false, &x));
    }
    return ARIL_OK;
}

static aril_status update_norms_ref(aril__run *r)
{
    int n = aril__items(r->op, r->n_in);
    for (int i = 0; i < n; i++) {
        aril_tensor *const *item = r->in + ARIL__NORMS_FIXED + i * ARIL__ITEM;
        aril__update_values v = aril__update_values_of(r, i);
        aril__update_constants k;
        aril__update_constants_of(r->attrs, &v, &k);
        double of_p = 0, of_d = 0, x;
        for (int64_t e = 0; e < item[ARIL__ITEM_P]->numel && !k.skip; e++) {
            double d = element(r, &k, item, e, true, &x);
            of_p += x * x;
            of_d += d * d;
        }
        aril__update_put_norms(r, i, sqrt(of_p), sqrt(of_d));
    }
    return ARIL_OK;
}

/* ---- rows ---- */

/* The attributes of a sample: R(adam, .beta1 = { 0.9 }). */
#define R(name, ...)                               \
    &(const struct update_attrs)                   \
    {                                              \
        .rule = { ARIL__RULE_##name }, __VA_ARGS__ \
    }
/* One parameter of a sample: its own shape or values, those of the gradient, the slots; WITH: and
 * the master. */
#define I(p, grad, a, b, c)            p, grad, a, b, c, "-"
#define WITH(p, grad, a, b, c, master) p, grad, a, b, c, master

static const aril__sample update_samples[] = {
    { .in = { "p[]", "-", "-", "-", "-", I("[3,5]", "[3,5]", "-", "-", "-") },
      .attrs = R(sgd, .weight_decay = { 0.1 }) },
    { .in = { "p[]", "-", "-", "-", "-", I("[70]", "[70]", "[70]", "-", "-"),
              I("[2,3]", "[2,3]", "[2,3]", "-", "-") },
      .attrs = R(sgd, .momentum = { 0.9 }) },
    { .in = { "p[]", "1[]", "p[]", "-", "-", I("[2,40]", "[2,40]", "[2,40]", "-", "-") },
      .attrs = R(sgd, .momentum = { 0.9 }, .dampening = { 0.3 }, .maximize = { 1 }) },
    { .in = { "p[1]", "1[]", "-", "-", "-", I("[4]", "[4]", "[4]", "-", "-") },
      .attrs = R(sgd, .momentum = { 0.5 }, .nesterov = { 1 }, .decay = { 0.2 }) },
    { .in = { "p[]", "-", "-", "-", "-", I("[0,2]", "[0,2]", "-", "-", "-"),
              I("[]", "[]", "-", "-", "-") },
      .attrs = R(sgd, .clip_value = { 0.5 }) },
    { .in = { "p[]", "1[]", "-", "-", "-", I("[3,5]", "[3,5]", "[3,5]", "+[3,5]", "-"),
              I("[9]", "[9]", "[9]", "+[9]", "-") },
      .attrs = R(adam, .beta1 = { 0.9 }, .beta2 = { 0.99 }, .eps = { 1e-3 }) },
    { .in = { "p[]", "1[]", "p[]", "-", "-", I("[80]", "[80]", "[80]", "+[80]", "+[80]") },
      .attrs = R(adam, .beta1 = { 0.8 }, .beta2 = { 0.9 }, .eps = { 1e-3 }, .weight_decay = { 0.1 },
                 .decoupled = { 1 }, .clip_value = { 0.5 }) },
    { .in = { "p[]", "1[]", "-", "-", "-", I("[2,17]", "[2,17]", "[2,17]", "+[2,17]", "-") },
      .attrs = R(adamax, .beta1 = { 0.9 }, .beta2 = { 0.95 }, .eps = { 1e-2 }) },
    { .in = { "p[]", "1[]", "-", "-", "-", I("[9]", "[9]", "[9]", "+[9]", "p[]") },
      .attrs = R(nadam, .beta1 = { 0.9 }, .beta2 = { 0.95 }, .eps = { 1e-2 },
                 .momentum_decay = { 4e-3 }) },
    { .in = { "p[]", "1[]", "-", "-", "-", I("[9]", "[9]", "[9]", "+[9]", "-") },
      .attrs = R(radam, .beta1 = { 0.9 }, .beta2 = { 0.95 }, .eps = { 1e-2 }) },
    { .in = { "p[]", "1[]", "-", "-", "-", I("[9]", "[9]", "+[9]", "-", "-") },
      .attrs = R(adagrad, .decay = { 0.1 }, .eps = { 1e-2 }) },
    { .in = { "p[]", "1[]", "-", "-", "-", I("[9]", "[9]", "+[9]", "+[9]", "-") },
      .attrs = R(adadelta, .alpha = { 0.9 }, .eps = { 1e-2 }) },
    { .in = { "p[]", "1[]", "-", "-", "-", I("[33]", "[33]", "+[33]", "-", "[33]") },
      .attrs = R(rmsprop, .alpha = { 0.9 }, .eps = { 1e-2 }, .momentum = { 0.9 }) },
    { .in = { "p[]", "1[]", "-", "-", "-", I("[9]", "[9]", "[9]", "+[9]", "-") },
      .attrs = R(rprop, .eta_minus = { 0.5 }, .eta_plus = { 1.2 }, .step_min = { 1e-6 },
                 .step_max = { 50 }) },
    { .in = { "p[]", "1[]", "-", "-", "p[2,2]", I("[9]", "[9]", "[9]", "+[9]", "-"),
              I("[2,3]", "[2,3]", "[2,3]", "+[2,3]", "-") },
      .attrs =
          R(lamb, .beta1 = { 0.9 }, .beta2 = { 0.99 }, .eps = { 1e-3 }, .weight_decay = { 0.1 }) },
    { .in = { "p[]", "1[]", "-", "-", "-", I("[9]", "[9]", "[9]", "-", "-") },
      .attrs = R(lion, .beta1 = { 0.9 }, .beta2 = { 0.99 }) },
    { .in = { "p[]", "-", "-", "-", "-", I("[9]", "[9]", "-", "-", "-") },
      .attrs = R(average, .decay = { 0 }) },
    { .in = { "p[]", "1[]", "p[]", "p[]", "-", WITH("[70]", "[70]", "[70]", "+[70]", "-", "[70]") },
      .attrs = R(adam, .beta1 = { 0.9 }, .beta2 = { 0.99 }, .eps = { 1e-3 }) },
    { .in = { "p[]", "1[]", "-", "p[]", "-", WITH("[9]", "[9]", "[9]", "-", "-", "[9]") },
      .attrs = R(sgd, .momentum = { 0.9 }, .weight_decay = { 0.1 }) },
    SAMPLE_END
};

/* Input i of every item. */
#define UPDATE_SLOT(i) IN(ARIL__UPDATE_FIXED + ARIL__ITEM_SLOT + (i))
#define NORMS_SLOT(i)  IN(ARIL__NORMS_FIXED + ARIL__ITEM_SLOT + (i))

OP(update, .doc = "one optimizer step on a list of parameters, in place",
   .min_in = ARIL__UPDATE_FIXED + ARIL__ITEM, .max_in = ARIL__ANY, .fixed = ARIL__UPDATE_FIXED,
   .each = ARIL__ITEM, .flags = NONDIFF | STRIDED,
   .optional = IN(ARIL__UPDATE_STEP) | IN(ARIL__UPDATE_FACTOR) | IN(ARIL__UPDATE_MOMENTUM) |
               IN(ARIL__UPDATE_NORMS) | UPDATE_SLOT(0) | UPDATE_SLOT(1) | UPDATE_SLOT(2) |
               UPDATE_SLOT(ARIL__MASTER_SLOT),
   .writes = IN(ARIL__UPDATE_FIXED + ARIL__ITEM_P) | UPDATE_SLOT(0) | UPDATE_SLOT(1) |
             UPDATE_SLOT(2) | UPDATE_SLOT(ARIL__MASTER_SLOT),
   .infer = update_infer, .ref = update_ref, .samples = update_samples, WITH_ATTRS(update));

static const aril__sample update_norms_samples[] = {
    { .in = { "-", "-", "-", I("[3,5]", "[3,5]", "[3,5]", "-", "-"),
              I("[70]", "[70]", "[70]", "-", "-") },
      .attrs = R(lars, .weight_decay = { 0.1 }) },
    { .in = { "1[]", "p[]", "-", I("[70]", "[70]", "[70]", "+[70]", "-") },
      .attrs =
          R(lamb, .beta1 = { 0.9 }, .beta2 = { 0.99 }, .eps = { 1e-3 }, .weight_decay = { 0.1 }) },
    { .in = { "1[]", "-", "p[]", WITH("[9]", "[9]", "[9]", "+[9]", "-", "[9]") },
      .attrs = R(lamb, .beta1 = { 0.9 }, .beta2 = { 0.99 }, .eps = { 1e-3 }) },
    SAMPLE_END
};
OP(update_norms, .doc = "norms of parameters and of their update directions",
   .min_in = ARIL__NORMS_FIXED + ARIL__ITEM, .max_in = ARIL__ANY, .n_out = 1,
   .fixed = ARIL__NORMS_FIXED, .each = ARIL__ITEM, .flags = NONDIFF | STRIDED,
   .optional = IN(ARIL__NORMS_STEP) | IN(ARIL__NORMS_FACTOR) | IN(ARIL__NORMS_MOMENTUM) |
               NORMS_SLOT(0) | NORMS_SLOT(1) | NORMS_SLOT(2) | NORMS_SLOT(ARIL__MASTER_SLOT),
   .infer = update_norms_infer, .ref = update_norms_ref, .samples = update_norms_samples,
   WITH_ATTRS(update));

/* ---- calls for many parameters ---- */

static bool same_attrs(const struct update_attrs *a, const struct update_attrs *b)
{
    const char *p = (const char *)a, *q = (const char *)b; /* attributes have no gaps */
    return a == b || memcmp(p, q, sizeof *a) == 0;
}

static const aril__device *device_of(const aril_tensor *t)
{
    return t->storage ? t->storage->device : NULL;
}

/* Whether two parameters can be in one list. */
static bool same_list(const aril__update *a, const aril__update *b)
{
    return a->lr == b->lr && a->step == b->step && a->factor == b->factor &&
           a->momentum == b->momentum && a->p->dtype == b->p->dtype &&
           device_of(a->p) == device_of(b->p) && same_attrs(a->attrs, b->attrs);
}

/* The norms that the updates of a list need. The items follow the room for the other inputs. */
static aril_status find_norms(aril__update *first, int n, aril_tensor **in)
{
    aril_tensor *out[ARIL__MAX_OUT];
    aril_tensor **from = in + ARIL__UPDATE_FIXED - ARIL__NORMS_FIXED;
    if (!(aril__rules[first->attrs->rule[0]].facts & NORMS)) return ARIL_OK;
    from[ARIL__NORMS_STEP] = first->step;
    from[ARIL__NORMS_FACTOR] = first->factor;
    from[ARIL__NORMS_MOMENTUM] = first->momentum;
    aril_status s = aril__apply(&aril__op_update_norms, ARIL__NORMS_FIXED + n * ARIL__ITEM, from,
                                first->attrs, out);
    if (s == ARIL_OK) first->norms = out[0];
    return s;
}

static void fill_fixed(const aril__update *first, aril_tensor **in)
{
    in[ARIL__UPDATE_LR] = first->lr;
    in[ARIL__UPDATE_STEP] = first->step;
    in[ARIL__UPDATE_FACTOR] = first->factor;
    in[ARIL__UPDATE_MOMENTUM] = first->momentum;
    in[ARIL__UPDATE_NORMS] = first->norms;
}

static void give_back(aril__update *first)
{
    if (first->reserved)
        aril__device_free(first->p->storage->device, first->reserved, first->reserved_bytes);
    first->reserved = NULL;
}

/* Allocates what the kernel of a list asks for, so that no list lacks memory once another was
 * updated. */
static aril_status reserve(aril__update *first, int n, aril_tensor **in)
{
    if (aril__self()->tracer || !first->p->storage) return ARIL_OK;
    fill_fixed(first, in);
    aril__run r = { .op = &aril__op_update,
                    .attrs = first->attrs,
                    .n_in = ARIL__UPDATE_FIXED + n * ARIL__ITEM,
                    .in = in,
                    .type = (aril_dtype)first->p->dtype,
                    .device = first->p->storage->device };
    const aril__row_list *rows = aril__rows_for(&r);
    int i = 0;
    while (i < rows->n && !(rows->at[i]->dtypes >> r.type & 1)) i++;
    first->reserved_bytes = i < rows->n && rows->at[i]->workspace ? rows->at[i]->workspace(&r) : 0;
    if (first->reserved_bytes == 0) return ARIL_OK;
    first->reserved = aril__device_alloc(r.device, first->reserved_bytes);
    return first->reserved ? ARIL_OK : ARIL_ERR_MEMORY;
}

/* Everything that can fail for lack of memory, before anything is changed. */
static aril_status prepare(aril__update *first, int n, aril_tensor **in)
{
    aril_status s = find_norms(first, n, in);
    return s == ARIL_OK ? reserve(first, n, in) : s;
}

static aril_status update_list(aril__update *first, int n, aril_tensor **in)
{
    aril_tensor *out[ARIL__MAX_OUT];
    aril__workspace ahead = { .data = first->reserved, .bytes = first->reserved_bytes };
    if (ahead.data) ahead.device = first->p->storage->device;
    fill_fixed(first, in);
    aril__workspace_ahead = ahead.data ? &ahead : NULL;
    aril_status s =
        aril__apply(&aril__op_update, ARIL__UPDATE_FIXED + n * ARIL__ITEM, in, first->attrs, out);
    aril__workspace_ahead = NULL;
    give_back(first);
    return s;
}

size_t aril__update_buffer(int n)
{
    size_t inputs = ARIL__UPDATE_FIXED + (size_t)n * ARIL__ITEM;
    return inputs * sizeof(aril_tensor *) + (size_t)n * sizeof(bool);
}

/* Calls `fn` for each list: for its first update, and the inputs of all of its items. */
static aril_status each_list(int n, aril__update *u, aril_tensor **in,
                             aril_status (*fn)(aril__update *first, int n, aril_tensor **in),
                             bool finish)
{
    bool *taken = (bool *)(in + ARIL__UPDATE_FIXED + n * ARIL__ITEM);
    for (int i = 0; i < n; i++) taken[i] = u[i].done;
    for (int first = 0; first < n; first++) {
        int items = 0;
        if (taken[first]) continue;
        for (int i = first; i < n; i++) {
            if (taken[i] || !same_list(&u[first], &u[i])) continue;
            aril_tensor **item = in + ARIL__UPDATE_FIXED + items++ * ARIL__ITEM;
            item[ARIL__ITEM_P] = u[i].p;
            item[ARIL__ITEM_GRAD] = u[i].grad;
            memcpy(item + ARIL__ITEM_SLOT, u[i].slot, sizeof u[i].slot);
            taken[i] = true;
        }
        aril_status s = fn(&u[first], items, in);
        if (s < 0) return s;
        for (int i = first; i < n && finish; i++) u[i].done |= same_list(&u[first], &u[i]);
    }
    return ARIL_OK;
}

aril_status aril__update_all(int n, aril__update *u, void *buffer)
{
    for (int i = 0; i < n; i++) u[i].norms = NULL, u[i].reserved = NULL;
    aril_status s = each_list(n, u, buffer, prepare, false);
    if (s == ARIL_OK) s = each_list(n, u, buffer, update_list, true);
    for (int i = 0; i < n; i++) {
        give_back(&u[i]);
        if (s == ARIL_OK) u[i].done = false;
    }
    return s;
}
