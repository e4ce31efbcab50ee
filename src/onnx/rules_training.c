/* Gradients, and the optimizers of ai.onnx.preview.training, whose inputs are the learning rate, the
 * number of updates so far, then the tensors of each kind. */
#include "onnx/rules.h"

/* g + coefficient * x */
static aril_tensor *regularized(onnx_call *c, aril_tensor *x, aril_tensor *g)
{
    double k = aril__onnx_attr_float(c, "norm_coefficient", 0);
    return k != 0 ? aril_add(g, aril_mul_scalar(x, k)) : g;
}

/* The number of tensors that are optimized. */
static int tensors(onnx_call *c, int kinds)
{
    if (c->n_in > 2 && (c->n_in - 2) % kinds == 0) return (c->n_in - 2) / kinds;
    aril__onnx_fail(c, ARIL_ERR_ARG, "expected %d inputs for each tensor", kinds);
    return 0;
}

static aril_status momentum(onnx_call *c)
{
    int n = tensors(c, 3);
    double alpha = aril__onnx_attr_float(c, "alpha", 0), beta = aril__onnx_attr_float(c, "beta", 1);
    bool nesterov = attr_is(c, "mode", "standard", "nesterov");
    aril_tensor *rate = in(c, 0), *count = in(c, 1);
    aril_status s = n ? ARIL_OK : ARIL_ERR_ARG;
    for (int i = 0; i < n && s == ARIL_OK; i++) {
        aril_tensor *x = in(c, 2 + i), *g = regularized(c, x, in(c, 2 + n + i));
        aril_tensor *factor =
            aril_where(aril_gt_scalar(count, 0), aril_full_like(rate, beta), aril_ones_like(rate));
        aril_tensor *v =
            aril_add(aril_mul_scalar(in(c, 2 + 2 * n + i), alpha), aril_mul(g, factor));
        aril_tensor *step = nesterov ? aril_add(g, aril_mul_scalar(v, alpha)) : v;
        s = give(c, i, aril_sub(x, aril_mul(rate, step)));
        if (s == ARIL_OK) s = give(c, n + i, v);
    }
    return s;
}

static aril_status adagrad(onnx_call *c)
{
    int n = tensors(c, 3);
    double decay = aril__onnx_attr_float(c, "decay_factor", 0),
           eps = aril__onnx_attr_float(c, "epsilon", 1e-6);
    aril_tensor *rate = in(c, 0), *count = aril_cast(in(c, 1), aril_dtype_of(rate));
    aril_status s = n ? ARIL_OK : ARIL_ERR_ARG;
    rate = aril_div(rate, aril_add_scalar(aril_mul_scalar(count, decay), 1.0));
    for (int i = 0; i < n && s == ARIL_OK; i++) {
        aril_tensor *x = in(c, 2 + i), *g = regularized(c, x, in(c, 2 + n + i));
        aril_tensor *h = aril_add(in(c, 2 + 2 * n + i), aril_square(g));
        aril_tensor *step = aril_div(aril_mul(rate, g), aril_add_scalar(aril_sqrt(h), eps));
        s = give(c, i, aril_sub(x, step));
        if (s == ARIL_OK) s = give(c, n + i, h);
    }
    return s;
}

static aril_status adam(onnx_call *c)
{
    int n = tensors(c, 4);
    double alpha = aril__onnx_attr_float(c, "alpha", 0.9),
           beta = aril__onnx_attr_float(c, "beta", 0.999);
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-6),
           after = aril__onnx_attr_float(c, "norm_coefficient_post", 0);
    aril_tensor *rate = in(c, 0), *count = aril_cast(in(c, 1), aril_dtype_of(rate));
    aril_status s = n ? ARIL_OK : ARIL_ERR_ARG;
    aril_tensor *of_alpha = aril_rsub_scalar(aril_pow(aril_full_like(count, alpha), count), 1.0);
    aril_tensor *of_beta = aril_rsub_scalar(aril_pow(aril_full_like(count, beta), count), 1.0);
    aril_tensor *corrected = aril_div(aril_mul(rate, aril_sqrt(of_beta)), of_alpha);
    rate = aril_where(aril_gt_scalar(count, 0), corrected, rate);
    for (int i = 0; i < n && s == ARIL_OK; i++) {
        aril_tensor *x = in(c, 2 + i), *g = regularized(c, x, in(c, 2 + n + i));
        aril_tensor *v =
            aril_add(aril_mul_scalar(in(c, 2 + 2 * n + i), alpha), aril_mul_scalar(g, 1 - alpha));
        aril_tensor *h = aril_add(aril_mul_scalar(in(c, 2 + 3 * n + i), beta),
                                  aril_mul_scalar(aril_square(g), 1 - beta));
        aril_tensor *step = aril_div(aril_mul(rate, v), aril_add_scalar(aril_sqrt(h), eps));
        s = give(c, i, aril_mul_scalar(aril_sub(x, step), 1 - after));
        if (s == ARIL_OK) s = give(c, n + i, v);
        if (s == ARIL_OK) s = give(c, 2 * n + i, h);
    }
    return s;
}

/* The last input is the value that is differentiated. */
static aril_status gradient(onnx_call *c)
{
    const aril__message *xs = aril__onnx_attribute(c, "xs");
    int n = xs ? (int)aril__message_count(xs, "strings") : 0;
    aril_tensor **x = aril__onnx_alloc(&c->run->arena, (size_t)n + 1, 2 * sizeof *x), **g = x + n;
    if (!x) return ARIL_ERR_MEMORY;
    if (n < 1 || n >= c->n_in) return aril__onnx_fail(c, ARIL_ERR_FORMAT, "xs are missing");
    for (int i = 0; i < n; i++)
        if (!(x[i] = in(c, i))) return aril__onnx_fail(c, ARIL_ERR_ARG, "input %d is missing", i);
    aril_tensor *y = in(c, c->n_in - 1);
    aril_status s = aril_gradients(aril_sum(y, ARIL_ALL), (aril_list){ n, x }, g,
                                   (aril_grad_opts){ .create_graph = true });
    for (int i = 0; i < n && s == ARIL_OK; i++) s = give(c, i, g[i]);
    return s;
}

const onnx_rule aril__onnx_training_rules[] = {
    RULE_OF("ai.onnx.preview.training", "Momentum", 1, momentum),
    RULE_OF("ai.onnx.preview.training", "Adagrad", 1, adagrad),
    RULE_OF("ai.onnx.preview.training", "Adam", 1, adam),
    RULE_OF("ai.onnx.preview.training", "Gradient", 1, gradient),
    { 0 },
};
