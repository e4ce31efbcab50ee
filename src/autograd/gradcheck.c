/* Compares gradients with finite differences. */
#include "autograd/backward.h"

#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct check {
    aril_fn *fn;
    void *ctx;
    int n_in, n_out;
    aril_tensor *const *in;
    double eps, atol, rtol;
    bool keep_kinks;
} check;

/* Fixed weights in (0.5, 1.5), so that no derivative cancels by accident. */
static aril_tensor *weights_like(aril_tensor *y, int k)
{
    aril_tensor *w = aril_zeros(aril_shape_of(y), ARIL_F64, aril_cpu());
    double *p = aril_data_strided(w);
    uint32_t key[2] = { 0x5eed, (uint32_t)k }, out[4];
    for (int64_t i = 0; p && i < aril_numel(w); i++) {
        uint32_t counter[4] = { (uint32_t)i, 0, 0, 0 };
        aril__philox(key, counter, out);
        p[i] = 0.5 + out[0] / 4294967296.0;
    }
    return aril_to(w, aril_device_of(y));
}

/* The weighted sum of all floating-point results: the scalar that is differentiated. */
static aril_tensor *total(const check *c, aril_tensor *const *in)
{
    aril_tensor *out[ARIL__MAX_OUT] = { 0 }, *sum = NULL;
    c->fn(c->ctx, in, out);
    for (int k = 0; k < c->n_out; k++) {
        if (!out[k]) {
            aril__fail(ARIL_ERR_STATE, "gradcheck: the function did not set result %d", k);
            return aril__poison();
        }
        if (aril__is_poison(out[k])) return aril__pass_on(out[k]);
        if (!aril__is_float((aril_dtype)out[k]->dtype)) continue;
        aril_tensor *w = weights_like(out[k], k);
        aril_tensor *part = aril_sum(aril_mul(aril_cast(out[k], ARIL_F64), w), ARIL_ALL);
        sum = sum ? aril_add(sum, part) : part;
    }
    if (sum) return sum;
    aril__fail(ARIL_ERR_GRAD, "gradcheck: none of the results is floating point");
    return aril__poison();
}

/* The value with another number in `slot`, a view of one element. */
static double value_at(const check *c, aril_tensor *slot, double was, double x)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_write(slot, &x);
    double v = aril_item(total(c, c->in));
    aril_write(slot, &was);
    return v;
}

/* A view of element k of x, which is contiguous. */
static aril_tensor *element(aril_tensor *x, int64_t k)
{
    ARIL_NO_GRAD;
    return aril_select(aril_reshape(x, ARIL_SHAPE(-1)), 0, k);
}

/* One element: 0 if the slope agrees with g (or there is a kink), else the error. */
static double compare(const check *c, aril_tensor *slot, double g, double middle, double *slope)
{
    double x = aril_item(slot), h = c->eps * fmax(1, fabs(x));
    double high = value_at(c, slot, x, x + h), low = value_at(c, slot, x, x - h);
    *slope = (high - low) / (2 * h);
    double off = fabs(*slope - g), tolerance = c->atol + c->rtol * fmax(fabs(*slope), fabs(g));
    if (off <= tolerance) return 0;
    /* Left and right slopes differ where there is a kink; either is correct then. */
    double right = (high - middle) / h, left = (middle - low) / h;
    if (!c->keep_kinks && fabs(right - left) > fmax(100 * h, tolerance)) return 0;
    return isfinite(off) ? off / tolerance : INFINITY;
}

static aril_status compare_all(const check *c, aril_tensor *const *grads, const char *what)
{
    double middle;
    {
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        middle = aril_item(total(c, c->in));
    }
    for (int i = 0; i < c->n_in; i++) {
        aril_tensor *x = c->in[i];
        if (!aril_requires_grad(x)) continue;
        ARIL_SCOPE;
        const double *g = aril_data(grads[i]);
        double worst = 0, worst_slope = 0, slope;
        int64_t at = 0;
        if (!g) return aril_error_code();
        for (int64_t k = 0; k < x->numel && aril_ok(); k++) {
            double off = compare(c, element(x, k), g[k], middle, &slope);
            if (off > worst || isnan(off)) {
                worst = off;
                worst_slope = slope;
                at = k;
            }
        }
        if (!aril_ok()) return aril_error_code();
        if (worst > 0)
            return aril__fail(ARIL_ERR_GRAD,
                              "gradcheck: %s of input %d, element %" PRId64
                              ": %.9g, by finite differences %.9g",
                              what, i, at, g[at], worst_slope);
    }
    return ARIL_OK;
}

/* For second derivatives: the function whose results are the weighted gradients of the first. */
static void gradient_fn(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const check *c = ctx;
    ARIL_ENABLE_GRAD;
    aril_tensor *y = total(c, in), *wanted[ARIL__MAX_OUT], *grads[ARIL__MAX_OUT];
    int n = 0;
    for (int i = 0; i < c->n_in && n < ARIL__MAX_OUT; i++)
        if (in[i]->node) wanted[n++] = in[i];
    aril_grad_opts opts = { .create_graph = true, .allow_unused = true };
    if (aril__is_poison(y) || !y->node)
        for (int i = 0; i < n; i++)
            out[i] = aril__is_poison(y) ? aril__pass_on(y) : aril_zeros_like(wanted[i]);
    else if (aril_gradients(y, (aril_list){ n, wanted }, grads, opts) < 0)
        for (int i = 0; i < n; i++) out[i] = aril__poison();
    else
        for (int i = 0; i < n; i++) out[i] = grads[i];
}

static aril_status check_once(const check *c, const char *what)
{
    ARIL_SCOPE;
    aril_tensor **wanted = aril__calloc((size_t)c->n_in * 2 * sizeof *wanted);
    if (!wanted) return aril__fail(ARIL_ERR_MEMORY, "gradcheck: out of memory");
    aril_tensor **grads = wanted + c->n_in;
    aril_status s = ARIL_OK;
    int n = 0;
    ARIL_ENABLE_GRAD;
    aril_tensor *y = total(c, c->in);
    for (int i = 0; i < c->n_in; i++)
        if (aril_requires_grad(c->in[i])) wanted[n++] = c->in[i];
    s = aril_tensor_status(y);
    if (s == ARIL_OK && y->node)
        s = aril_gradients(y, (aril_list){ n, wanted }, grads,
                           (aril_grad_opts){ .allow_unused = true });
    else
        for (int i = 0; i < n && s == ARIL_OK; i++)
            s = aril_tensor_status(grads[i] = aril_zeros_like(wanted[i]));
    /* Move the gradients to the positions of their inputs. */
    for (int i = c->n_in, k = n; i-- > 0 && s == ARIL_OK;)
        grads[i] = aril_requires_grad(c->in[i]) ? grads[--k] : NULL;
    if (s == ARIL_OK) s = compare_all(c, grads, what);
    free(wanted);
    return s;
}

aril_status aril_gradcheck(aril_fn *fn, void *ctx, aril_list inputs, aril_gradcheck_opts opts)
{
    check c = { .fn = fn,
                .ctx = ctx,
                .n_in = inputs.n,
                .n_out = opts.n_out ? opts.n_out : 1,
                .in = inputs.at,
                .eps = opts.eps > 0 ? opts.eps : 1e-6,
                .atol = opts.atol > 0 ? opts.atol : 1e-5,
                .rtol = opts.rtol > 0 ? opts.rtol : 1e-3,
                .keep_kinks = opts.keep_kinks };
    if (!fn || inputs.n < 1 || c.n_out < 1 || c.n_out > ARIL__MAX_OUT)
        return aril__fail(ARIL_ERR_ARG,
                          "gradcheck: expected a function, inputs and 1 to %d results",
                          ARIL__MAX_OUT);
    int wants = 0;
    for (int i = 0; i < inputs.n; i++) {
        aril_tensor *x = inputs.at[i];
        aril_status s = aril__check_value("gradcheck", x);
        if (s < 0) return s;
        if (!aril_requires_grad(x)) continue;
        wants++;
        if (x->dtype != ARIL_F64 || !aril__is_dense(x))
            return aril__fail(ARIL_ERR_DTYPE, "gradcheck: input %d must be contiguous f64", i);
    }
    if (!wants)
        return aril__fail(ARIL_ERR_GRAD, "gradcheck: none of the inputs requires a gradient");
    aril_status s = check_once(&c, "gradient");
    if (s < 0 || !opts.second) return s;
    if (wants > ARIL__MAX_OUT)
        return aril__fail(ARIL_ERR_ARG,
                          "gradcheck: second derivatives are checked for at most %d inputs",
                          ARIL__MAX_OUT);
    check second = c;
    second.fn = gradient_fn;
    second.ctx = &c;
    second.n_out = wants;
    return check_once(&second, "second derivative");
}
