/* Derivatives of functions: Jacobians, Hessians and their products. */
#include "autograd/backward.h"

#include "aril/create.h"
#include "aril/math.h"
#include "aril/view.h"

/* A leaf with x's values, at which to differentiate the function. */
static aril_tensor *leaf_at(const char *what, aril_tensor *x)
{
    if (!x) return aril__null_tensor(what);
    if (aril__is_poison(x)) return aril__pass_on(x);
    aril_tensor *leaf = aril_detach(x);
    return aril_set_requires_grad(leaf, true) < 0 ? aril__poison() : leaf;
}

static aril_tensor *call(const char *what, aril_fn *fn, void *ctx, aril_tensor *x)
{
    aril_tensor *y = NULL;
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (!fn) {
        aril__fail(ARIL_ERR_ARG, "%s: the function is NULL", what);
        return aril__poison();
    }
    ARIL_ENABLE_GRAD;
    fn(ctx, &x, &y);
    if (!y) {
        aril__fail(ARIL_ERR_STATE, "%s: the function did not set its result", what);
        return aril__poison();
    }
    return y;
}

/* d y / d x, row by row: [shape of y..., shape of x...]. */
static aril_tensor *rows(const char *what, aril_tensor *y, aril_tensor *x)
{
    if (aril__is_poison(y)) return aril__pass_on(y);
    if (y->ndim + x->ndim > ARIL_MAX_DIMS) {
        aril__fail(ARIL_ERR_SHAPE, "%s: the result would have %d dimensions", what,
                   y->ndim + x->ndim);
        return aril__poison();
    }
    aril_tensor *j =
        aril_zeros(ARIL_SHAPE(y->numel, x->numel), (aril_dtype)x->dtype, aril_device_of(x));
    for (int64_t i = 0; i < y->numel && y->node && !aril__is_poison(j); i++) {
        ARIL_SCOPE;
        aril_tensor *one =
            aril_zeros(ARIL_SHAPE(y->numel), (aril_dtype)y->dtype, aril_device_of(y));
        aril_copy_(aril_slice(one, 0, i, i + 1, 1), aril_scalar(1));
        aril_tensor *start = aril_reshape(one, aril__shape(y)), *g;
        aril_grad_opts opts = { .retain_graph = true,
                                .allow_unused = true,
                                .grad_outputs = ARIL_LIST(start) };
        aril_status s = aril_gradients_n(ARIL_LIST(y), ARIL_LIST(x), &g, opts);
        if (s == ARIL_OK)
            s = aril_tensor_status(aril_copy_(aril_slice(j, 0, i, i + 1, 1),
                                              aril_reshape(g, ARIL_SHAPE(1, x->numel))));
        if (s < 0) return aril_escape(aril__poison());
    }
    aril_shape shape = aril__shape(y);
    for (int d = 0; d < x->ndim; d++) shape.dim[shape.ndim++] = x->dim[d];
    return aril_reshape(j, shape);
}

aril_tensor *aril_jacobian(aril_fn *fn, void *ctx, aril_tensor *x)
{
    ARIL_SCOPE;
    aril_tensor *leaf = leaf_at("jacobian", x), *y = call("jacobian", fn, ctx, leaf);
    ARIL_NO_GRAD;
    return aril_escape(rows("jacobian", y, leaf));
}

aril_tensor *aril_hessian(aril_fn *fn, void *ctx, aril_tensor *x)
{
    ARIL_SCOPE;
    aril_tensor *leaf = leaf_at("hessian", x), *y = call("hessian", fn, ctx, leaf), *g;
    if (aril__is_poison(y)) return aril_escape(aril__pass_on(y));
    if (y->numel != 1) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "hessian: expected a function that returns a scalar, got %s",
                   aril__text(text, y));
        return aril_escape(aril__poison());
    }
    if (!y->node) {
        aril__fail(ARIL_ERR_GRAD, "hessian: the function does not depend on its input");
        return aril_escape(aril__poison());
    }
    aril_grad_opts opts = { .create_graph = true, .allow_unused = true };
    if (aril_gradients(y, ARIL_LIST(leaf), &g, opts) < 0) return aril_escape(aril__poison());
    ARIL_NO_GRAD;
    return aril_escape(rows("hessian", g, leaf));
}

/* Hands the derivative, and the value if it is wanted, to the caller's scope. */
static aril_tensor *hand_out(aril_tensor *derivative, aril_tensor *y, aril_tensor **value)
{
    aril_tensor *out[2] = { derivative, NULL };
    if (value) out[1] = y->flags & ARIL__POISON ? aril__poison_like(y) : aril_detach(y);
    aril__fail_together(2, out);
    if (value) *value = aril_escape(out[1]);
    return aril_escape(out[0]);
}

aril_tensor *aril_vjp(aril_fn *fn, void *ctx, aril_tensor *x, aril_tensor *v, aril_tensor **value)
{
    ARIL_SCOPE;
    aril_tensor *leaf = leaf_at("vjp", x), *y = call("vjp", fn, ctx, leaf), *g;
    if (aril__is_poison(y) || !v)
        return hand_out(v ? aril__pass_on(y) : aril__null_tensor("vjp"), y, value);
    if (!y->node) return hand_out(aril_zeros_like(x), y, value);
    aril_grad_opts opts = { .allow_unused = true, .grad_outputs = ARIL_LIST(v) };
    aril_gradients_n(ARIL_LIST(y), ARIL_LIST(leaf), &g, opts);
    return hand_out(g, y, value);
}

/* J v is the derivative of u -> u J with respect to u, in the direction v. */
aril_tensor *aril_jvp(aril_fn *fn, void *ctx, aril_tensor *x, aril_tensor *v, aril_tensor **value)
{
    ARIL_SCOPE;
    aril_tensor *leaf = leaf_at("jvp", x), *y = call("jvp", fn, ctx, leaf), *g, *jv;
    if (aril__is_poison(y) || !v)
        return hand_out(v ? aril__pass_on(y) : aril__null_tensor("jvp"), y, value);
    if (!y->node) return hand_out(aril_zeros_like(y), y, value);
    aril_tensor *u = aril_zeros_like(y);
    aril_set_requires_grad(u, true);
    aril_grad_opts opts = { .create_graph = true,
                            .allow_unused = true,
                            .grad_outputs = ARIL_LIST(u) };
    if (aril_gradients_n(ARIL_LIST(y), ARIL_LIST(leaf), &g, opts) < 0) return hand_out(g, y, value);
    if (!g->node) return hand_out(aril_zeros_like(y), y, value);
    opts = (aril_grad_opts){ .allow_unused = true, .grad_outputs = ARIL_LIST(v) };
    aril_gradients_n(ARIL_LIST(g), ARIL_LIST(u), &jv, opts);
    return hand_out(jv, y, value);
}
