#include "ops/elementwise/formula.h"

#include "aril/create.h"
#include "ops/table/apply.h"
#include "ops/elementwise/elementwise.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- parsing: recursive descent to postfix ---- */

typedef struct step {
    enum { STEP_VAR, STEP_PARAM, STEP_CONST, STEP_OP, STEP_SELECT } kind;
    int index; /* of a variable or parameter */
    double value;
    const aril__op *op;
} step;

enum { MAX_STEPS = 96 };

struct aril__formula_code {
    int n;
    step at[MAX_STEPS];
};

typedef struct parser {
    const char *p;
    aril__formula_code *out;
    bool ok;
} parser;

static void emit(parser *s, step what)
{
    if (s->out->n == MAX_STEPS)
        s->ok = false;
    else
        s->out->at[s->out->n++] = what;
}

static void emit_op(parser *s, const char *name)
{
    const aril__op *op = aril__op_find(name);
    if (!op) s->ok = false;
    emit(s, (step){ .kind = STEP_OP, .op = op });
}

static bool take(parser *s, const char *token)
{
    while (isspace((unsigned char)*s->p)) s->p++;
    size_t n = strlen(token);
    if (strncmp(s->p, token, n) != 0) return false;
    /* "<" must not match the start of "<=", nor "!" that of "!=". */
    if (n == 1 && strchr("<>!=", *token) && s->p[1] == '=') return false;
    s->p += n;
    return true;
}

static void expression(parser *s);

static void name_or_call(parser *s)
{
    char name[40];
    size_t n = 0;
    while ((isalnum((unsigned char)*s->p) || *s->p == '_') && n + 1 < sizeof name)
        name[n++] = *s->p++;
    name[n] = '\0';
    static const char *vars[] = { "a", "b", "c", "y", "g" };
    for (int i = 0; i < ARIL__VAR_COUNT; i++) {
        if (strcmp(name, vars[i]) == 0) {
            emit(s, (step){ .kind = STEP_VAR, .index = i });
            return;
        }
    }
    if (n == 2 && name[0] == 'p' && name[1] >= '0' && name[1] < '0' + ARIL__EW_PARAMS) {
        emit(s, (step){ .kind = STEP_PARAM, .index = name[1] - '0' });
        return;
    }
    if (!take(s, "(")) {
        s->ok = false;
        return;
    }
    if (strcmp(name, "K") == 0) {
        char *end;
        double v = strtod(s->p, &end);
        s->ok = s->ok && end != s->p;
        s->p = end;
        emit(s, (step){ .kind = STEP_CONST, .value = v });
    } else {
        if (strncmp(name, "k_", 2) != 0) s->ok = false;
        int given = 0;
        do {
            expression(s);
            given++;
        } while (s->ok && take(s, ","));
        const aril__op *op = n > 2 ? aril__op_find(name + 2) : NULL;
        if (!op || given != op->min_in || given != op->max_in) s->ok = false;
        emit_op(s, name + 2);
    }
    s->ok = s->ok && take(s, ")");
}

static void unary(parser *s)
{
    if (!s->ok) return;
    if (take(s, "-")) {
        unary(s);
        emit_op(s, "neg");
    } else if (take(s, "!")) {
        unary(s);
        emit_op(s, "logical_not");
    } else if (take(s, "(")) {
        expression(s);
        s->ok = s->ok && take(s, ")");
    } else {
        name_or_call(s);
    }
}

/* Binary operators, loosest first; each level is left-associative. */
static const struct {
    const char *token, *op;
    int level;
} binary_ops[] = { { "||", "logical_or", 0 }, { "&&", "logical_and", 1 }, { "==", "eq", 2 },
                   { "!=", "ne", 2 },         { "<=", "le", 3 },          { ">=", "ge", 3 },
                   { "<", "lt", 3 },          { ">", "gt", 3 },           { "+", "add", 4 },
                   { "-", "sub", 4 },         { "*", "mul", 5 },          { "/", "div", 5 } };

static void binary(parser *s, int level)
{
    if (level > 5) {
        unary(s);
        return;
    }
    binary(s, level + 1);
    for (bool found = true; found && s->ok;) {
        found = false;
        for (size_t i = 0; i < sizeof binary_ops / sizeof *binary_ops; i++) {
            if (binary_ops[i].level == level && take(s, binary_ops[i].token)) {
                binary(s, level + 1);
                emit_op(s, binary_ops[i].op);
                found = true;
                break;
            }
        }
    }
}

static void expression(parser *s)
{
    binary(s, 0);
    if (s->ok && take(s, "?")) {
        expression(s);
        s->ok = s->ok && take(s, ":");
        expression(s);
        emit(s, (step){ .kind = STEP_SELECT });
    }
}

aril__formula_code *aril__program_parse(const char *text)
{
    aril__formula_code *p = aril__calloc(sizeof *p);
    if (!p) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a formula");
        return NULL;
    }
    parser s = { .p = text, .out = p, .ok = true };
    expression(&s);
    while (isspace((unsigned char)*s.p)) s.p++;
    if (s.ok && !*s.p) return p;
    free(p);
    return NULL;
}

void aril__program_free(aril__formula_code *p)
{
    free(p);
}

/* ---- evaluation ---- */

static bool is_constant(const aril_tensor *t)
{
    return t && t->storage && t->flags & ARIL__CONSTANT;
}

static bool is_weak_constant(const aril_tensor *t)
{
    return is_constant(t) && t->flags & ARIL__WEAK;
}

static aril_number value_of(const aril_tensor *t)
{
    return t->dtype == ARIL_F64 ? ARIL_NUMBER(*(const double *)aril__ptr(t))
                                : ARIL_NUMBER(*(const int64_t *)aril__ptr(t));
}

/* All operands are constants. For weak ones apply would compute in the default type, f32, and lose
 * precision: compute in f64 instead; the result stays weak and adopts the type of other operands.
 * It is a constant too, also a condition, so that it joins tensors of any device. */
static aril_tensor *apply_to_numbers(const aril__op *op, int n, aril_tensor *const *in,
                                     const double *params)
{
    aril_tensor *exact[3];
    aril__pause pause = aril__trace_pause(); /* a trace holds the constant result */
    for (int i = 0; i < n; i++)
        exact[i] = is_weak_constant(in[i]) ? aril__constant(value_of(in[i]), ARIL_F64) : in[i];
    aril_tensor *y = aril__apply1(op, n, exact, params);
    aril__trace_resume(pause);
    if (!(y->flags & ARIL__POISON))
        y->flags |= ARIL__CONSTANT | (y->dtype == ARIL_F64 ? ARIL__WEAK : 0);
    return y;
}

aril_tensor *aril__as_number(aril_tensor *y, unsigned flags)
{
    if (y->storage && !(y->flags & ARIL__POISON))
        y->flags |= (uint16_t)(flags & ARIL__STATE ? ARIL__STATE : flags & ARIL__CONSTANT);
    return y;
}

static aril_tensor *apply_step(const aril__op *op, int n, aril_tensor *const *in,
                               const double *params)
{
    bool constants = n <= 3, numbers = true;
    unsigned flags = 0;
    for (int i = 0; i < n; i++) {
        constants = constants && is_constant(in[i]);
        numbers = numbers && in[i] && in[i]->storage && aril__is_number(in[i]);
        flags |= in[i] ? in[i]->flags : 0u;
    }
    if (constants) return apply_to_numbers(op, n, in, params);
    aril_tensor *y = aril__apply1(op, n, in, params);
    return numbers ? aril__as_number(y, flags) : y;
}

/* A tensor condition may select between two weak scalars: the result has g's type, not the
 * default. */
static aril_tensor *select_step(aril_tensor *const *in, const aril_tensor *g)
{
    aril_tensor *of[3] = { in[0], in[1], in[2] };
    bool numbers = is_weak_constant(in[1]) && is_weak_constant(in[2]);
    for (int i = 1; i < 3 && numbers && g; i++)
        of[i] = aril__constant(value_of(in[i]), (aril_dtype)g->dtype);
    return aril__apply1(&aril__op_where, 3, of, NULL);
}

aril_tensor *aril__program_eval(const aril__formula_code *p,
                                aril_tensor *const var[ARIL__VAR_COUNT], const double *params)
{
    aril_tensor *stack[MAX_STEPS];
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const step *s = &p->at[i];
        switch (s->kind) {
        case STEP_VAR: stack[n++] = var[s->index]; break;
        case STEP_PARAM: stack[n++] = aril__scalar_f64(params[s->index]); break;
        case STEP_CONST: stack[n++] = aril__scalar_f64(s->value); break;
        case STEP_OP: {
            int arity = s->op->formula ? s->op->formula->arity : s->op->min_in;
            n -= arity;
            stack[n] = apply_step(s->op, arity, &stack[n], s->op->formula ? params : NULL);
            n++;
            break;
        }
        case STEP_SELECT:
            n -= 3;
            stack[n] = select_step(&stack[n], var[ARIL__VAR_G]);
            n++;
            break;
        }
    }
    return stack[0];
}

/* ---- the functions of formulas ---- */

enum {
    QUICK = 1, /* takes an instruction or two */
    FAILS = 2, /* not defined for all integers: a divisor of 0, a negative power */
};

/* Every function that a formula calls, as k_NAME. */
static const struct function {
    const char *name;
    unsigned facts;
} functions[] = {
    { "abs", QUICK },       { "acos", 0 },          { "acosh", 0 },       { "asin", 0 },
    { "asinh", 0 },         { "atan", 0 },          { "atan2", 0 },       { "atanh", 0 },
    { "ceil", QUICK },      { "copysign", QUICK },  { "cos", 0 },         { "cosh", 0 },
    { "digamma", 0 },       { "erf", 0 },           { "erfc", 0 },        { "erfinv", 0 },
    { "gelu", 0 },          { "exp", 0 },           { "exp2", 0 },        { "expm1", 0 },
    { "floor", QUICK },     { "floor_div", FAILS }, { "fmod", FAILS },    { "hypot", 0 },
    { "isfinite", QUICK },  { "isinf", QUICK },     { "isnan", QUICK },   { "lgamma", 0 },
    { "log", 0 },           { "log10", 0 },         { "log1p", 0 },       { "log2", 0 },
    { "logaddexp", 0 },     { "maximum", QUICK },   { "minimum", QUICK }, { "pow", FAILS },
    { "remainder", FAILS }, { "round", QUICK },     { "shift_left", 0 },  { "shift_right", 0 },
    { "sigmoid", 0 },       { "sign", QUICK },      { "signbit", QUICK }, { "sin", 0 },
    { "sinh", 0 },          { "sqrt", QUICK },      { "square", QUICK },  { "tan", 0 },
    { "tanh", 0 },          { "trigamma", 0 },      { "trunc", QUICK },   { "zeta", 0 },
};

static uint8_t facts[ARIL__MAX_OPS];

static const struct function *function_named(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strlen(functions[i].name) == n && memcmp(functions[i].name, name, n) == 0)
            return &functions[i];
    return NULL;
}

/* A formula is quick if all of its functions are, and fails if one of them does. */
static aril_status look_up_functions(const aril__op *op)
{
    unsigned found = QUICK;
    for (const char *at = op->formula->text; (at = strstr(at, "k_")) != NULL;) {
        at += 2;
        size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
        const struct function *f = function_named(at, n);
        if (!f)
            return aril__fail(ARIL_ERR_INTERNAL,
                              "%s: formula.c does not list the function k_%.*s of its formula",
                              op->name, (int)n, at);
        found = (found & f->facts & QUICK) | ((found | f->facts) & FAILS);
    }
    facts[aril__op_number(op)] = (uint8_t)found;
    return ARIL_OK;
}

bool aril__formula_is_quick(const aril__op *op)
{
    return facts[aril__op_number(op)] & QUICK;
}

bool aril__formula_may_fail(const aril__op *op)
{
    return facts[aril__op_number(op)] & FAILS;
}

/* ---- all derivatives ---- */

static aril__derivative derivatives[ARIL__MAX_OPS][3];

const aril__derivative *aril__derivatives(const aril__op *op)
{
    return derivatives[aril__op_number(op)];
}

static aril_status parse_derivative(const aril__op *op, int i)
{
    const char *text = op->formula->grad[i];
    aril__derivative *d = &derivatives[aril__op_number(op)][i];
    if (!text || strcmp(text, "NOGRAD") == 0) return ARIL_OK;
    aril__formula_code *p = aril__program_parse(text);
    if (!p && !aril_ok()) return aril__latest_status(); /* out of memory */
    if (!p)
        return aril__fail(ARIL_ERR_INTERNAL, "%s: cannot read the derivative '%s'", op->name, text);
    d->program = p;
    int ops = 0;
    for (int k = 0; k < p->n; k++) {
        const step *s = &p->at[k];
        ops += s->kind == STEP_OP || s->kind == STEP_SELECT;
        if (s->kind == STEP_VAR && s->index <= ARIL__VAR_C) d->saves |= IN(s->index);
        if (s->kind == STEP_VAR && s->index == ARIL__VAR_Y) d->saves |= OUT(0);
    }
    if (p->n == 1 && p->at[0].kind == STEP_VAR && p->at[0].index == ARIL__VAR_G)
        d->shortcut = ARIL__IS_G;
    else if (p->n == 1 && p->at[0].kind == STEP_CONST && p->at[0].value == 0)
        d->shortcut = ARIL__IS_ZERO;
    else if (ops == 1)
        d->shortcut = ARIL__IS_ONE_OP;
    return ARIL_OK;
}

aril_status aril__formulas_start(void)
{
    for (int k = 0; k < aril__n_ops; k++) {
        const aril__op *op = aril__ops[k];
        if (!op->formula) continue;
        aril_status s = look_up_functions(op);
        for (int i = 0; i < op->formula->arity && !op->formula->is_grad && s >= 0; i++)
            s = parse_derivative(op, i);
        if (s < 0) return s;
    }
    return ARIL_OK;
}

void aril__formulas_shutdown(void)
{
    for (int k = 0; k < ARIL__MAX_OPS; k++)
        for (int i = 0; i < 3; i++) aril__program_free(derivatives[k][i].program);
    memset(derivatives, 0, sizeof derivatives);
}
