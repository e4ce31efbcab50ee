/* Public elementwise functions: written out by the preprocessor where a row says it all. */
#include "aril/math.h"

#include "aril/ops.h"
#include "ops/table/apply.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/ops.h"

#include <math.h>

/* ---- numbers ---- */

aril_tensor *(aril_scalar)(aril_number v)
{
    aril__thread *th = aril__self();
    aril_tensor *t =
        aril__tensor_new(th, v.is_float ? ARIL_F64 : ARIL_I64, 0, NULL, aril__cpu_device);
    if (aril__likely(t != NULL)) {
        t->flags |= ARIL__WEAK;
        if (v.is_float)
            *(double *)t->storage->data = v.f;
        else
            *(int64_t *)t->storage->data = v.i;
    }
    return aril__give(th, t);
}

aril_tensor *aril__scalar_f64(double v)
{
    return aril_scalar(v);
}

/* ---- from the rows ---- */

#define UNARY(op)                           \
    aril_tensor *aril_##op(aril_tensor *a)  \
    {                                       \
        return aril__op(&aril__op_##op, a); \
    }
#define UNARY_INTO(op)                                         \
    aril_tensor *aril_##op##_(aril_tensor *a)                  \
    {                                                          \
        return aril__apply_to(a, &aril__op_##op, 1, &a, NULL); \
    }
#define BINARY(op)                                                    \
    aril_tensor *aril_##op(aril_tensor *a, aril_tensor *b)            \
    {                                                                 \
        return aril__op(&aril__op_##op, a, b);                        \
    }                                                                 \
    aril_tensor *(aril_##op##_scalar)(aril_tensor * a, aril_number v) \
    {                                                                 \
        return aril__op(&aril__op_##op, a, (aril_scalar)(v));         \
    }
#define BINARY_INTO(op)                                                                         \
    aril_tensor *aril_##op##_(aril_tensor *a, aril_tensor *b)                                   \
    {                                                                                           \
        return aril__apply_to(a, &aril__op_##op, 2, (aril_tensor *[]){ a, b }, NULL);           \
    }                                                                                           \
    aril_tensor *(aril_##op##_scalar_)(aril_tensor * a, aril_number v)                          \
    {                                                                                           \
        aril_tensor *s = (aril_scalar)(v);                                                      \
        aril_tensor *y = aril__apply_to(a, &aril__op_##op, 2, (aril_tensor *[]){ a, s }, NULL); \
        return y;                                                                               \
    }
#define TERNARY(op)                                                        \
    aril_tensor *aril_##op(aril_tensor *a, aril_tensor *b, aril_tensor *c) \
    {                                                                      \
        return aril__op(&aril__op_##op, a, b, c);                          \
    }

#define INTO_CMP(x)
#define INTO_INT(x)         x
#define PUBLIC_CMP(x)       x
#define PUBLIC_INTX(x)      /* by hand */
#define EW1(op, ...)        UNARY(op) UNARY_INTO(op)
#define EW1N(op, rule, ...) PUBLIC_##rule(UNARY(op))
#define EW1P(op, ...)
#define EW2(op, ...) BINARY(op) BINARY_INTO(op)
#define EW2P(op, ...)
#define EW2N(op, rule, ...) BINARY(op) INTO_##rule(BINARY_INTO(op))
#define EW3(op, ...)        TERNARY(op)
#define EW3P(op, ...)
#include "ops/elementwise/elementwise.def"

/* ---- with parameters ---- */

static aril_tensor *with(const aril__op *op, aril_tensor *dest, aril_tensor *a, double p0,
                         double p1, double p2)
{
    struct ew_attrs attrs = { .p = { p0, p1, p2 } };
    return dest ? aril__apply_to(dest, op, 1, &a, &attrs) : aril__apply1(op, 1, &a, &attrs);
}

aril_tensor *aril_leaky_relu(aril_tensor *a, double alpha)
{
    return with(&aril__op_leaky_relu, NULL, a, alpha, 0, 0);
}

aril_tensor *aril_leaky_relu_(aril_tensor *a, double alpha)
{
    return with(&aril__op_leaky_relu, a, a, alpha, 0, 0);
}

aril_tensor *aril_elu(aril_tensor *a, double alpha)
{
    return with(&aril__op_elu, NULL, a, alpha, 0, 0);
}

aril_tensor *aril_elu_(aril_tensor *a, double alpha)
{
    return with(&aril__op_elu, a, a, alpha, 0, 0);
}

aril_tensor *aril_celu(aril_tensor *a, double alpha)
{
    return with(&aril__op_celu, NULL, a, alpha, 0, 0);
}

aril_tensor *aril_celu_(aril_tensor *a, double alpha)
{
    return with(&aril__op_celu, a, a, alpha, 0, 0);
}

aril_tensor *aril_softplus(aril_tensor *a, double beta, double threshold)
{
    return with(&aril__op_softplus, NULL, a, beta, threshold, 0);
}

aril_tensor *aril_hardtanh(aril_tensor *a, double low, double high)
{
    return with(&aril__op_hardtanh, NULL, a, low, high, 0);
}

aril_tensor *aril_hardtanh_(aril_tensor *a, double low, double high)
{
    return with(&aril__op_hardtanh, a, a, low, high, 0);
}

aril_tensor *aril_softshrink(aril_tensor *a, double lambd)
{
    return with(&aril__op_softshrink, NULL, a, lambd, 0, 0);
}

aril_tensor *aril_hardshrink(aril_tensor *a, double lambd)
{
    return with(&aril__op_hardshrink, NULL, a, lambd, 0, 0);
}

aril_tensor *aril_threshold(aril_tensor *a, double threshold, double value)
{
    return with(&aril__op_threshold, NULL, a, threshold, value, 0);
}

aril_tensor *aril_nan_to_num(aril_tensor *a, double nan, double posinf, double neginf)
{
    return with(&aril__op_nan_to_num, NULL, a, nan, posinf, neginf);
}

static aril_tensor *with_value(const aril__op *op, aril_tensor *dest, aril_tensor *a,
                               aril_tensor *b, aril_tensor *c, double value)
{
    struct ew_attrs attrs = { .p = { value } };
    aril_tensor *in[3] = { a, b, c };
    return dest ? aril__apply_to(dest, op, 3, in, &attrs) : aril__apply1(op, 3, in, &attrs);
}

aril_tensor *aril_addcmul(aril_tensor *a, aril_tensor *b, aril_tensor *c, double value)
{
    return with_value(&aril__op_addcmul, NULL, a, b, c, value);
}

aril_tensor *aril_addcmul_(aril_tensor *a, aril_tensor *b, aril_tensor *c, double value)
{
    return with_value(&aril__op_addcmul, a, a, b, c, value);
}

aril_tensor *aril_addcdiv(aril_tensor *a, aril_tensor *b, aril_tensor *c, double value)
{
    return with_value(&aril__op_addcdiv, NULL, a, b, c, value);
}

aril_tensor *aril_addcdiv_(aril_tensor *a, aril_tensor *b, aril_tensor *c, double value)
{
    return with_value(&aril__op_addcdiv, a, a, b, c, value);
}

/* ---- combinations ---- */

aril_tensor *aril_lerp_(aril_tensor *a, aril_tensor *b, aril_tensor *weight)
{
    return aril__apply_to(a, &aril__op_lerp, 3, (aril_tensor *[]){ a, b, weight }, NULL);
}

aril_tensor *aril_clamp_tensor(aril_tensor *a, aril_tensor *low, aril_tensor *high)
{
    if (low && high) return aril__op(&aril__op_clamp, a, low, high);
    if (low || high)
        return aril__op(low ? &aril__op_clamp_min : &aril__op_clamp_max, a, low ? low : high);
    aril__fail(ARIL_ERR_ARG, "clamp: neither a lower nor an upper bound");
    return aril__poison();
}

aril_tensor *aril_bitwise_not(aril_tensor *a)
{
    bool truth = a && !(a->flags & ARIL__POISON) && a->dtype == ARIL_BOOL;
    return aril__op(truth ? &aril__op_logical_not : &aril__op_bitwise_not, a);
}

/* Numbers as bounds: of floating point by hardtanh, where no gradient flows at a bound, as in
 * PyTorch, and NaN stands for a bound that is not there (an infinite one is reached by infinite
 * elements); of integers, whose bounds must not pass through a double, by the op on tensors. */
static aril_tensor *clamp_numbers(aril_tensor *dest, aril_tensor *a, const aril_number *low,
                                  const aril_number *high)
{
    if (a && aril__is_float((aril_dtype)a->dtype) && (!low || low->f == low->f) &&
        (!high || high->f == high->f)) {
        double to = high ? high->f : NAN, from = low ? low->f : NAN;
        return with(&aril__op_hardtanh, dest, a, from > to ? to : from, to, 0);
    }
    const aril__op *op = !high ? &aril__op_clamp_min : !low ? &aril__op_clamp_max : &aril__op_clamp;
    aril_tensor *in[3] = { a };
    int n = 1;
    if (low) in[n++] = (aril_scalar)(*low);
    if (high) in[n++] = (aril_scalar)(*high);
    return dest ? aril__apply_to(dest, op, n, in, NULL) : aril__apply1(op, n, in, NULL);
}

aril_tensor *(aril_clamp)(aril_tensor *a, aril_number low, aril_number high)
{
    return clamp_numbers(NULL, a, &low, &high);
}

aril_tensor *(aril_clamp_)(aril_tensor *a, aril_number low, aril_number high)
{
    return a ? clamp_numbers(a, a, &low, &high) : aril__null_tensor("clamp_");
}

aril_tensor *(aril_clamp_min)(aril_tensor *a, aril_number low)
{
    return clamp_numbers(NULL, a, &low, NULL);
}

aril_tensor *(aril_clamp_min_)(aril_tensor *a, aril_number low)
{
    return a ? clamp_numbers(a, a, &low, NULL) : aril__null_tensor("clamp_min_");
}

aril_tensor *(aril_clamp_max)(aril_tensor *a, aril_number high)
{
    return clamp_numbers(NULL, a, NULL, &high);
}

aril_tensor *(aril_clamp_max_)(aril_tensor *a, aril_number high)
{
    return a ? clamp_numbers(a, a, NULL, &high) : aril__null_tensor("clamp_max_");
}

aril_tensor *(aril_rsub_scalar)(aril_tensor *a, aril_number v)
{
    return aril_sub((aril_scalar)(v), a);
}

aril_tensor *(aril_rdiv_scalar)(aril_tensor *a, aril_number v)
{
    return aril_div((aril_scalar)(v), a);
}

aril_tensor *aril_tanhshrink(aril_tensor *a)
{
    return aril_sub(a, aril_tanh(a));
}

aril_tensor *aril_logit_eps(aril_tensor *a, double eps)
{
    return aril_logit(aril_clamp(a, eps, 1 - eps));
}
