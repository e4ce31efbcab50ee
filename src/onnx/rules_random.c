/* Random numbers: of Aril's generator, so that their values differ from those of other programs. */
#include "onnx/rules.h"

static bool dtype_attr(onnx_call *c, aril_dtype *dtype)
{
    return !has_attr(c, "dtype") || aril__onnx_dtype(aril__onnx_attr_int(c, "dtype", 1), dtype);
}

/* With `seed`, the same numbers in each run. */
static aril_tensor *drawn(onnx_call *c, aril_shape shape, bool normal)
{
    aril_device dev = aril__onnx_device(c);
    if (!has_attr(c, "seed"))
        return normal ? aril_randn(shape, ARIL_F32, dev) : aril_rand(shape, ARIL_F32, dev);
    aril_generator *g = aril_generator_new((uint64_t)(int64_t)aril__onnx_attr_float(c, "seed", 0));
    if (!g) return NULL;
    aril_tensor *y =
        normal ? aril_randn_from(g, shape, ARIL_F32, dev) : aril_rand_from(g, shape, ARIL_F32, dev);
    aril_generator_free(g);
    return y;
}

static aril_status draw(onnx_call *c, aril_shape shape, aril_dtype dtype, bool normal)
{
    double a = normal ? aril__onnx_attr_float(c, "mean", 0) : aril__onnx_attr_float(c, "low", 0);
    double b =
        normal ? aril__onnx_attr_float(c, "scale", 1) : aril__onnx_attr_float(c, "high", 1) - a;
    if (!dtype_attr(c, &dtype))
        return aril__onnx_fail(c, ARIL_ERR_DTYPE, "the dtype is not supported");
    aril_tensor *y = drawn(c, shape, normal);
    return y ? give(c, 0, aril_cast(aril_add_scalar(aril_mul_scalar(y, b), a), dtype))
             : ARIL_ERR_MEMORY;
}

static aril_status draw_shape(onnx_call *c, bool normal)
{
    aril_shape shape;
    aril_status s = aril__onnx_shape(c, aril__onnx_attr_ints(c, "shape"), &shape);
    return s < 0 ? s : draw(c, shape, ARIL_F32, normal);
}

static aril_status draw_like(onnx_call *c, bool normal)
{
    aril_tensor *x = in(c, 0);
    return draw(c, aril_shape_of(x), aril_dtype_of(x), normal);
}

static aril_status random_normal(onnx_call *c)
{
    return draw_shape(c, true);
}

static aril_status random_uniform(onnx_call *c)
{
    return draw_shape(c, false);
}

static aril_status random_normal_like(onnx_call *c)
{
    return draw_like(c, true);
}

static aril_status random_uniform_like(onnx_call *c)
{
    return draw_like(c, false);
}

static aril_status bernoulli(onnx_call *c)
{
    aril_tensor *p = in(c, 0), *u = drawn(c, aril_shape_of(p), false);
    aril_dtype dtype = aril_dtype_of(p);
    if (!u || !dtype_attr(c, &dtype))
        return aril__onnx_fail(c, ARIL_ERR_DTYPE, "the dtype is not supported");
    return give(c, 0, aril_cast(aril_lt(u, aril_cast(p, ARIL_F32)), dtype));
}

/* Draws classes from unnormalized log-probabilities [N,C]. */
static aril_status multinomial(onnx_call *c)
{
    aril_dtype dtype = ARIL_I32;
    if (!dtype_attr(c, &dtype))
        return aril__onnx_fail(c, ARIL_ERR_DTYPE, "the dtype is not supported");
    aril_tensor *p = aril_softmax(in(c, 0), 1);
    return give(c, 0,
                aril_cast(aril_multinomial(p, aril__onnx_attr_int(c, "sample_size", 1), true),
                          dtype));
}

const onnx_rule aril__onnx_random_rules[] = {
    RULE_FLAGS("RandomNormal", 1, random_normal, ONNX_RANDOM),
    RULE_FLAGS("RandomUniform", 1, random_uniform, ONNX_RANDOM),
    RULE_FLAGS("RandomNormalLike", 1, random_normal_like, ONNX_RANDOM),
    RULE_FLAGS("RandomUniformLike", 1, random_uniform_like, ONNX_RANDOM),
    RULE_FLAGS("Bernoulli", 15, bernoulli, ONNX_RANDOM),
    RULE_FLAGS("Multinomial", 7, multinomial, ONNX_RANDOM),
    { 0 },
};
