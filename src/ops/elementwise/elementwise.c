#include "ops/elementwise/elementwise.h"

#include "aril/create.h"
#include "ops/table/apply.h"
#include "ops/elementwise/numbers.h"
#include "ops/shape/like.h"

#include <string.h>

/* ---- types ---- */

static aril_dtype combine(int higher, int lower) /* -1: none */
{
    if (higher < 0) return (aril_dtype)lower;
    if (lower < 0 || aril__is_float((aril_dtype)higher)) return (aril_dtype)higher;
    if (higher == ARIL_BOOL || aril__is_float((aril_dtype)lower))
        return aril__promote((aril_dtype)higher, (aril_dtype)lower);
    return (aril_dtype)higher;
}

aril_dtype aril__result_type(int n, aril_tensor *const *t)
{
    int level[3] = { -1, -1, -1 }; /* with dimensions, 0-d, weak */
    for (int i = 0; i < n; i++) {
        if (!t[i]) continue;
        bool weak = t[i]->flags & ARIL__WEAK;
        int at = weak ? 2 : t[i]->ndim == 0 ? 1 : 0;
        aril_dtype d = weak && t[i]->dtype == ARIL_F64 ? ARIL_F32 : (aril_dtype)t[i]->dtype;
        level[at] = level[at] < 0 ? (int)d : (int)aril__promote((aril_dtype)level[at], d);
    }
    if (level[1] < 0 && level[2] < 0) return level[0] < 0 ? ARIL_F32 : (aril_dtype)level[0];
    int low = level[1] < 0 && level[2] < 0 ? -1 : (int)combine(level[1], level[2]);
    return combine(level[0], low);
}

static bool needs_integers(const aril__formula *f)
{
    return f->rule == ARIL__EW_INT || f->rule == ARIL__EW_INTX;
}

static aril_status check_dtypes(aril__call *c, aril_dtype t)
{
    const aril__formula *f = c->op->formula;
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] && !aril__dtypes[c->in[i]->dtype].computes)
            return aril__fail(ARIL_ERR_DTYPE, "%s: %s is a storage-only dtype; cast it first",
                              c->op->name, aril__dtypes[c->in[i]->dtype].name);
    if (needs_integers(f) && aril__is_float(t))
        return aril__fail(ARIL_ERR_DTYPE, "%s: expected integers%s, got %s", c->op->name,
                          f->rule == ARIL__EW_INT ? " or bool" : "", aril__dtypes[t].name);
    if ((f->rule == ARIL__EW_NUMX || f->rule == ARIL__EW_INTX) && t == ARIL_BOOL)
        return aril__fail(ARIL_ERR_DTYPE, "%s: not defined for bool; use the logical ops or cast",
                          c->op->name);
    if (f->rule == ARIL__EW_FLT && !aril__is_float(t))
        return aril__fail(ARIL_ERR_DTYPE, "%s: expected a floating-point dtype, got %s",
                          c->op->name, aril__dtypes[t].name);
    return ARIL_OK;
}

static aril__cold aril_status broadcast_error(const aril__call *c)
{
    char text[5 * ARIL__SHAPE_TEXT] = "", one[ARIL__SHAPE_TEXT];
    for (int i = 0; i < c->n_in; i++) {
        size_t n = strlen(text);
        if (c->in[i])
            snprintf(text + n, sizeof text - n, "%s%s", n ? " and " : "",
                     aril__text(one, c->in[i]));
    }
    return aril__fail(ARIL_ERR_SHAPE, "%s: shapes %s do not broadcast together", c->op->name, text);
}

aril_status aril__ew_infer(aril__call *c)
{
    const aril__formula *f = c->op->formula;
    aril__meta *o = &c->out[0];
    aril_tensor *first = c->in[0];
    bool same = true; /* dtype and shape of all inputs */
    for (int i = 1; i < c->n_in && same; i++) {
        aril_tensor *t = c->in[i];
        same = !t || (t->dtype == first->dtype &&
                      aril__same_dims(t->ndim, t->dim, first->ndim, first->dim));
    }
    if (aril__likely(same && !(first->flags & ARIL__WEAK) && f->rule != ARIL__EW_SEL)) {
        c->type = (aril_dtype)first->dtype;
        o->ndim = first->ndim;
        for (int i = 0; i < first->ndim; i++) o->dim[i] = first->dim[i];
    } else {
        int skip = f->rule == ARIL__EW_SEL ? 1 + f->is_grad : 0;
        c->type = aril__result_type(c->n_in - skip, c->in + skip);
        if (f->is_grad) c->type = (aril_dtype)first->dtype;
        o->ndim = 0;
        for (int i = 0; i < c->n_in; i++)
            if (c->in[i] && !aril__broadcast(&o->ndim, o->dim, c->in[i]->ndim, c->in[i]->dim))
                return broadcast_error(c);
    }
    if (aril__unlikely(!aril__is_float(c->type) || c->type > ARIL_F64)) {
        aril_status s = check_dtypes(c, c->type);
        if (s < 0) return s;
        if (f->rule == ARIL__EW_REAL) c->type = ARIL_F32;
    } else if (aril__unlikely(needs_integers(f))) {
        return check_dtypes(c, c->type);
    }
    o->dtype = f->rule == ARIL__EW_CMP ? ARIL_BOOL : c->type;
    return ARIL_OK;
}

/* ---- gradients ---- */

aril_tensor *aril__undo_broadcast(aril_tensor *g, aril_tensor *like)
{
    if (!aril__same_dims(g->ndim, g->dim, like->ndim, like->dim))
        g = aril__op(&aril__op_sum_to_like, g, like);
    if (g->dtype != like->dtype) g = aril_cast(g, (aril_dtype)like->dtype);
    return g;
}

_Thread_local const aril_tensor *aril__last_use;

/* True if only the backward pass holds g, which it releases after this rule: the last derivative
 * may overwrite it. */
static bool is_free(const aril_tensor *g)
{
    const aril__storage *s = g->storage;
    return g == aril__last_use && s && s->data != s->small && !s->deleter && !g->node && !g->view &&
           atomic_load_explicit(&g->refs, memory_order_relaxed) == 1 &&
           atomic_load_explicit(&s->refs, memory_order_relaxed) == 1 && aril__is_packed(g);
}

static aril_tensor *derivative(aril__grad *c, int i, bool last)
{
    const aril__formula *f = c->op->formula;
    const aril__derivative *d = &aril__derivatives(c->op)[i];
    aril_tensor *g = c->g[0];
    aril_tensor *out;
    switch (d->program ? d->shortcut : ARIL__IS_ZERO) {
    case ARIL__IS_G: out = g; break;
    case ARIL__IS_ZERO: out = aril_zeros_like(g); break;
    case ARIL__IS_ONE_OP: {
        aril_tensor *var[ARIL__VAR_COUNT] = { [ARIL__VAR_Y] = c->y[0], [ARIL__VAR_G] = g };
        for (int k = 0; k < f->arity; k++) var[k] = c->x[k];
        out = aril__program_eval(d->program, var, c->attrs);
        break;
    }
    default: {
        aril_tensor *in[5] = { g };
        for (int k = 0; k < f->arity; k++) in[1 + k] = d->saves & IN(k) ? c->x[k] : NULL;
        in[1 + f->arity] = d->saves & OUT(0) ? c->y[0] : NULL;
        for (int k = 1; k < f->arity + 2 && last; k++) last = !in[k] || in[k]->dtype == g->dtype;
        out = last && is_free(g) ? aril__apply_to(g, f->grad_op[i], f->arity + 2, in, c->attrs)
                                 : aril__apply1(f->grad_op[i], f->arity + 2, in, c->attrs);
    }
    }
    /* x[i] is saved as LIKE if its shape or dtype differs from the result's. */
    return c->x[i] ? aril__undo_broadcast(out, c->x[i]) : out;
}

void aril__ew_vjp(aril__grad *c)
{
    if (!c->g[0]) return;
    int last = c->op->formula->arity - 1;
    while (last > 0 && !c->wants[last]) last--;
    bool passed_on = false; /* g itself is an input's gradient */
    for (int i = 0; i <= last; i++) {
        GRAD(i, derivative(c, i, i == last && !passed_on));
        passed_on |= c->wants[i] && c->dx[i] == c->g[0];
    }
}

/* The type in which the kernel of a gradient op computes all of its steps, to avoid rounding
 * between them. */
static aril_dtype computed_in(const aril_tensor *g)
{
    return g->dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
}

/* Weak scalars adopt the type by themselves. */
static aril_tensor *in_type(aril_tensor *t, aril_dtype type)
{
    if (!t || t->flags & (ARIL__WEAK | ARIL__POISON)) return t;
    aril_tensor *y = aril_cast(t, type);
    return t->storage && aril__is_number(t) ? aril__as_number(y, t->flags) : y;
}

void aril__ew_decompose(aril__call *c, aril_tensor **out)
{
    const aril__op *base = c->op->formula->grad_of;
    int which = c->op->formula->grad_input;
    int arity = base->formula->arity;
    aril_dtype type = computed_in(c->in[0]);
    aril_tensor *var[ARIL__VAR_COUNT] = { [ARIL__VAR_G] = in_type(c->in[0], type) };
    for (int k = 0; k < arity; k++) {
        bool choice = base->formula->rule == ARIL__EW_SEL && k == 0;
        var[k] = choice ? c->in[1 + k] : in_type(c->in[1 + k], type);
    }
    var[ARIL__VAR_Y] = in_type(c->in[1 + arity], type);
    aril_tensor *y = aril__program_eval(aril__derivatives(base)[which].program, var, c->attrs);
    /* Truncated first, as kernels for integers do: 0.5 as a bool would be true. */
    if (!aril__is_float(c->type)) y = in_type(y, ARIL_I64);
    out[0] = in_type(y, c->type);
}

/* ---- rows ---- */

#define FLAGS_EW       (ELEMENTWISE | STRIDED | INPLACE | KEEPS_ORDER)
#define PARAM_ATTRS(A) A(ew, F64, 3, p, 0, NULL)
ATTR_LIST(ew, PARAM_ATTRS)

/* The parts of a row by name: TEXT_##part of VALUE(a + b) is TEXT_VALUE(a + b). */
#define TEXT_VALUE(...)  #__VA_ARGS__
#define TEXT_GRAD_A(...) #__VA_ARGS__
#define TEXT_GRAD_B(...) #__VA_ARGS__
#define TEXT_GRAD_C(...) #__VA_ARGS__
#define RULE_RULE(rule)  ARIL__EW_##rule

/* Facts, at most four: those that the formula keeps, and those that the op keeps. */
#define FORMULA_SAMPLES(domain_) .domain = ARIL__EW_##domain_,
#define FORMULA_PARAMS(names)    .params = names,
#define FORMULA_ONNX(name)
#define FORMULA_CAST(class_)
#define FORMULA_NONE()
#define OP_SAMPLES(domain)
#define OP_PARAMS(names)
#define OP_ONNX(name_)  .onnx = name_,
#define OP_CAST(class_) .cast = CAST_##class_,
#define OP_NONE()
#define EACH_FACT(of, ...)              EACH_FACT_(of, __VA_ARGS__, NONE(), NONE(), NONE(), NONE())
#define EACH_FACT_(of, w, x, y, z, ...) of##w of##x of##y of##z

#define FORWARD(nm, doc_, rule_, text_, ar, flg, formula_facts, op_facts, ...)             \
    static const aril__formula nm##_formula = { .number = ARIL__FORMULA_##nm,              \
                                                .arity = ar,                               \
                                                .rule = rule_,                             \
                                                .text = text_,                             \
                                                formula_facts __VA_ARGS__ };               \
    OP(nm, .doc = doc_, .min_in = ar, .max_in = ar, .n_out = 1, .flags = FLAGS_EW | (flg), \
       .infer = aril__ew_infer, .vjp = aril__ew_vjp, .formula = &nm##_formula,             \
       op_facts WITH_ATTRS(ew));
#define BACKWARD(nm, own, i, rule_, text_, ar, formula_facts)                                     \
    static const aril__formula nm##_formula = { .number = ARIL__FORMULA_##nm,                     \
                                                .arity = (ar) + 2,                                \
                                                .rule =                                           \
                                                    rule_ == ARIL__EW_SEL ? ARIL__EW_NUM : rule_, \
                                                .text = text_,                                    \
                                                .is_grad = true,                                  \
                                                .grad_of = &aril__op_##own,                       \
                                                .grad_input = i,                                  \
                                                formula_facts };                                  \
    OP(nm, .doc = "gradient of " #own, .min_in = (ar) + 2, .max_in = (ar) + 2, .n_out = 1,        \
       .flags = FLAGS_EW, .optional = ~1u, .infer = aril__ew_infer,                               \
       .decompose = aril__ew_decompose, .formula = &nm##_formula, WITH_ATTRS(ew));
#define DECLARE(nm) extern const aril__op aril__op_##nm;

#define EW1(nm, doc, rule, value, da, ...)                                              \
    DECLARE(nm##_grad)                                                                  \
    FORWARD(nm, doc, RULE_##rule, TEXT_##value, 1, 0, EACH_FACT(FORMULA_, __VA_ARGS__), \
            EACH_FACT(OP_, __VA_ARGS__), .grad = { TEXT_##da },                         \
            .grad_op = { &aril__op_##nm##_grad })                                       \
    BACKWARD(nm##_grad, nm, 0, RULE_##rule, TEXT_##da, 1, EACH_FACT(FORMULA_, __VA_ARGS__))
#define EW1N(nm, doc, rule, value, ...)                                                       \
    FORWARD(nm, doc, RULE_##rule, TEXT_##value, 1, NONDIFF, EACH_FACT(FORMULA_, __VA_ARGS__), \
            EACH_FACT(OP_, __VA_ARGS__), .grad = { NULL })
#define EW2N(nm, doc, rule, value, ...)                                                       \
    FORWARD(nm, doc, RULE_##rule, TEXT_##value, 2, NONDIFF, EACH_FACT(FORMULA_, __VA_ARGS__), \
            EACH_FACT(OP_, __VA_ARGS__), .grad = { NULL })
#define EW2(nm, doc, rule, value, da, db, ...)                                                \
    DECLARE(nm##_grad_a)                                                                      \
    DECLARE(nm##_grad_b)                                                                      \
    FORWARD(nm, doc, RULE_##rule, TEXT_##value, 2, 0, EACH_FACT(FORMULA_, __VA_ARGS__),       \
            EACH_FACT(OP_, __VA_ARGS__), .grad = { TEXT_##da, TEXT_##db },                    \
            .grad_op = { &aril__op_##nm##_grad_a, &aril__op_##nm##_grad_b })                  \
    BACKWARD(nm##_grad_a, nm, 0, RULE_##rule, TEXT_##da, 2, EACH_FACT(FORMULA_, __VA_ARGS__)) \
    BACKWARD(nm##_grad_b, nm, 1, RULE_##rule, TEXT_##db, 2, EACH_FACT(FORMULA_, __VA_ARGS__))
#define EW3(nm, doc, rule, value, da, db, dc, ...)                                            \
    DECLARE(nm##_grad_a)                                                                      \
    DECLARE(nm##_grad_b)                                                                      \
    DECLARE(nm##_grad_c)                                                                      \
    FORWARD(nm, doc, RULE_##rule, TEXT_##value, 3, 0, EACH_FACT(FORMULA_, __VA_ARGS__),       \
            EACH_FACT(OP_, __VA_ARGS__), .grad = { TEXT_##da, TEXT_##db, TEXT_##dc },         \
            .grad_op = { &aril__op_##nm##_grad_a, &aril__op_##nm##_grad_b,                    \
                         &aril__op_##nm##_grad_c })                                           \
    BACKWARD(nm##_grad_a, nm, 0, RULE_##rule, TEXT_##da, 3, EACH_FACT(FORMULA_, __VA_ARGS__)) \
    BACKWARD(nm##_grad_b, nm, 1, RULE_##rule, TEXT_##db, 3, EACH_FACT(FORMULA_, __VA_ARGS__)) \
    BACKWARD(nm##_grad_c, nm, 2, RULE_##rule, TEXT_##dc, 3, EACH_FACT(FORMULA_, __VA_ARGS__))
#include "ops/elementwise/elementwise.def"
