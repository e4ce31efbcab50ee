/* The autograd graph: leaves, views, in-place changes, hooks, custom functions, long chains. */
#include <aril/aril.h>

#include "core/tensor.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *vec(int n, const float *v)
{
    return aril_from(v, ARIL_SHAPE(n), ARIL_F32, test_device());
}

static void check_values(aril_tensor *t, const float *want, int n)
{
    float got[64];
    CHECK_INT(aril_numel(t), n);
    CHECK_INT(aril_read(t, got), ARIL_OK);
    for (int i = 0; i < n; i++) CHECK_NEAR(got[i], want[i], 1e-5 * (1 + fabsf(want[i])));
}

TEST(leaf_accumulates_gradients)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(3, (float[]){ 1, 2, 3 }));
    CHECK(aril_requires_grad(x) && aril_is_leaf(x) && !aril_has_grad(x));
    aril_backward(aril_sum(aril_square(x), ARIL_ALL));
    check_values(aril_grad(x), (float[]){ 2, 4, 6 }, 3);
    aril_backward(aril_sum(aril_square(x), ARIL_ALL));
    check_values(aril_grad(x), (float[]){ 4, 8, 12 }, 3);
    aril_zero_grad(x);
    CHECK(!aril_has_grad(x));
    CHECK(aril_ok());
    aril_release(x);
}

TEST(returned_gradient_is_not_aliased)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(2, (float[]){ 1, 2 }));
    aril_tensor *start = vec(2, (float[]){ 1, 1 });
    aril_backward_with(aril_add_scalar(x, 1), start, (aril_grad_opts){ 0 });
    aril_backward_with(aril_add_scalar(x, 1), start, (aril_grad_opts){ 0 });
    check_values(aril_grad(x), (float[]){ 2, 2 }, 2);
    check_values(start, (float[]){ 1, 1 }, 2);
    aril_release(x);
}

TEST(gradients_does_not_change_leaf_gradients)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(2, (float[]){ 3, 4 })),
                *w = aril_parameter(vec(2, (float[]){ 5, 6 }));
    aril_tensor *g[2];
    CHECK_INT(aril_gradients(aril_sum(aril_mul(x, w), ARIL_ALL), ARIL_LIST(x, w), g,
                             (aril_grad_opts){ 0 }),
              0);
    check_values(g[0], (float[]){ 5, 6 }, 2);
    check_values(g[1], (float[]){ 3, 4 }, 2);
    CHECK(!aril_has_grad(x) && !aril_has_grad(w));
    /* for an intermediate value, and for the same input twice */
    aril_tensor *m = aril_square(x), *y = aril_sum(aril_mul(m, m), ARIL_ALL);
    CHECK_INT(aril_gradients(y, ARIL_LIST(m, m), g, (aril_grad_opts){ .retain_graph = true }), 0);
    check_values(g[0], (float[]){ 18, 32 }, 2);
    check_values(g[1], (float[]){ 18, 32 }, 2);
    CHECK(aril_gradients(y, ARIL_LIST(w), g, (aril_grad_opts){ .retain_graph = true }) < 0);
    CHECK(strstr(aril_error(), "does not depend"));
    aril_clear_error();
    CHECK_INT(aril_gradients(y, ARIL_LIST(w), g, (aril_grad_opts){ .allow_unused = true }), 0);
    check_values(g[0], (float[]){ 0, 0 }, 2);
    aril_release(x);
    aril_release(w);
}

TEST(third_derivative)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(2, (float[]){ 0.5f, 2 })),
                *g = aril_sum(aril_exp(aril_mul_scalar(x, 2)), ARIL_ALL);
    for (int k = 0; k < 3; k++) {
        aril_tensor *d;
        CHECK_INT(aril_gradients(aril_sum(g, ARIL_ALL), ARIL_LIST(x), &d,
                                 (aril_grad_opts){ .create_graph = true }),
                  0);
        g = d;
    }
    check_values(g, (float[]){ 8 * expf(1), 8 * expf(4) }, 2);
    aril_release(x);
}

TEST(no_grad_and_inference)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(2, (float[]){ 1, 2 })), *y;
    {
        ARIL_NO_GRAD;
        CHECK(!aril_grad_enabled());
        y = aril_square(x);
        CHECK(!aril_requires_grad(y));
        {
            ARIL_ENABLE_GRAD;
            CHECK(aril_requires_grad(aril_square(x)));
        }
        CHECK(!aril_grad_enabled());
    }
    CHECK(aril_grad_enabled());
    {
        ARIL_INFERENCE;
        y = aril_square(x);
    }
    CHECK_INT(aril_set_requires_grad(y, true), ARIL_ERR_STATE);
    aril_clear_error();
    aril_tensor *d = aril_detach(x);
    CHECK(!aril_requires_grad(d) && aril_shares_memory(d, x));
    aril_release(x);
}

TEST(graph_is_freed_unless_retained)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(2, (float[]){ 1, 2 })),
                *y = aril_sum(aril_exp(x), ARIL_ALL);
    CHECK_INT(aril_backward_with(y, NULL, (aril_grad_opts){ .retain_graph = true }), 0);
    CHECK_INT(aril_backward(y), 0);
    CHECK_INT(aril_backward(y), ARIL_ERR_GRAD);
    CHECK(strstr(aril_error(), "retain_graph"));
    aril_clear_error();
    aril_release(x);
}

TEST(overwritten_saved_value_is_an_error)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(2, (float[]){ 1, 2 })), *y = aril_exp(x);
    aril_mul_scalar_(y, 2); /* exp saved its result */
    CHECK_INT(aril_backward(aril_sum(y, ARIL_ALL)), ARIL_ERR_GRAD);
    CHECK(strstr(aril_error(), "exp") && strstr(aril_error(), "modified in place"));
    aril_clear_error();
    /* through a detached alias, and through the base of a view */
    aril_tensor *z = aril_exp(x);
    aril_copy_(aril_detach(z), aril_scalar(0));
    CHECK_INT(aril_backward(aril_sum(z, ARIL_ALL)), ARIL_ERR_GRAD);
    aril_clear_error();
    aril_release(x);
}

TEST(in_place_op_saves_the_overwritten_value)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(2, (float[]){ 1, 2 })),
                *b = aril_parameter(vec(2, (float[]){ 3, 5 }));
    aril_tensor *y = aril_mul_scalar(x, 1);
    aril_mul_(y, b); /* the gradient for b needs the old y */
    aril_mul_(y, y); /* (x b)^2 */
    aril_backward(aril_sum(y, ARIL_ALL));
    CHECK(aril_ok());
    check_values(aril_grad(x), (float[]){ 18, 100 }, 2);
    check_values(aril_grad(b), (float[]){ 6, 40 }, 2);
    aril_release(x);
    aril_release(b);
}

TEST(in_place_change_of_a_leaf_is_an_error)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(2, (float[]){ 1, 2 }));
    CHECK_INT(aril_tensor_status(aril_add_scalar_(x, 1)), ARIL_ERR_GRAD);
    CHECK(strstr(aril_error(), "ARIL_NO_GRAD"));
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_copy_(aril_slice(x, 0, 0, 1, 1), aril_scalar(0))),
              ARIL_ERR_GRAD);
    aril_clear_error();
    check_values(x, (float[]){ 1, 2 }, 2);
    {
        ARIL_NO_GRAD;
        aril_add_scalar_(x, 1);
    }
    check_values(x, (float[]){ 2, 3 }, 2);
    CHECK(aril_ok() && aril_requires_grad(x));
    aril_release(x);
}

TEST(writes_through_views_reach_the_base)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(4, (float[]){ 1, 2, 3, 4 }));
    aril_tensor *y = aril_reshape(aril_mul_scalar(x, 1), ARIL_SHAPE(2, 2));
    aril_tensor *t = aril_t(y), *row = aril_slice(t, 0, 1, 2, 1); /* elements 1 and 3 */
    aril_tensor *other = aril_slice(y, 0, 0, 1, 1);               /* elements 0 and 1 */
    aril_mul_scalar_(row, 10);
    /* y, t and other see the change, and their gradients do too */
    aril_tensor *loss = aril_add(aril_sum(aril_square(y), ARIL_ALL), aril_sum(other, ARIL_ALL));
    aril_backward(loss);
    CHECK(aril_ok());
    check_values(other, (float[]){ 1, 20 }, 2);
    check_values(aril_grad(x), (float[]){ 2 + 1, 400 + 10, 6, 800 }, 4);
    aril_release(x);
}

TEST(writes_to_the_base_reach_views)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(3, (float[]){ 1, 2, 3 })), *y = aril_mul_scalar(x, 2);
    aril_tensor *v = aril_slice(y, 0, 1, 3, 1);
    aril_mul_(y, y); /* 4 x^2 */
    aril_backward(aril_sum(v, ARIL_ALL));
    check_values(aril_grad(x), (float[]){ 0, 16, 24 }, 3);
    /* a base without gradient gets one when its view is written to */
    aril_tensor *buffer = aril_zeros(ARIL_SHAPE(4), ARIL_F32, test_device());
    aril_copy_(aril_slice(buffer, 0, 0, 3, 1), x);
    CHECK(aril_requires_grad(buffer));
    aril_zero_grad(x);
    aril_backward(aril_sum(aril_square(buffer), ARIL_ALL));
    check_values(aril_grad(x), (float[]){ 2, 4, 6 }, 3);
    /* and loses it when it is overwritten */
    aril_copy_(buffer, aril_scalar(0));
    CHECK(!aril_requires_grad(buffer));
    CHECK(aril_ok());
    aril_release(x);
}

static aril_tensor *double_it(aril_tensor *g, void *ctx)
{
    ++*(int *)ctx;
    return aril_mul_scalar(g, 2);
}

TEST(hooks_and_retained_gradients)
{
    ARIL_SCOPE;
    int calls = 0;
    aril_tensor *x = aril_parameter(vec(2, (float[]){ 1, 2 })), *m = aril_square(x);
    aril_retain_grad(m);
    int id = aril_hook(m, double_it, &calls);
    CHECK(id > 0);
    CHECK(aril_hook(x, double_it, &calls) > 0);
    /* m is used twice: its hook sees the accumulated gradient once */
    aril_backward(aril_sum(aril_add(m, aril_mul_scalar(m, 2)), ARIL_ALL));
    CHECK_INT(calls, 2);
    check_values(aril_grad(m), (float[]){ 6, 6 }, 2);
    check_values(aril_grad(x), (float[]){ 24, 48 }, 2);
    CHECK_INT(aril_remove_hook(m, id), 0);
    CHECK_INT(aril_remove_hook(m, id), ARIL_ERR_ARG);
    aril_clear_error();
    aril_release(x);
}

/* ---- custom functions ---- */

static void my_relu_forward(aril_ctx *c)
{
    aril_ctx_save(c, 0, aril_ctx_in(c, 0));
    aril_ctx_out(c, 0, aril_clamp_min(aril_ctx_in(c, 0), 0));
}
static void my_relu_backward(aril_ctx *c)
{
    aril_ctx_grad_in(c, 0,
                     aril_where(aril_gt_scalar(aril_ctx_saved(c, 0), 0), aril_ctx_grad_out(c, 0),
                                aril_scalar(0)));
}
static const aril_function my_relu = { .name = "my_relu",
                                       .inputs = 1,
                                       .outputs = 1,
                                       .forward = my_relu_forward,
                                       .backward = my_relu_backward };

/* exp(a) and exp(a) * b; both results and an input are saved */
static void pair_forward(aril_ctx *c)
{
    aril_tensor *e = aril_exp(aril_ctx_in(c, 0));
    aril_ctx_out(c, 0, e);
    aril_ctx_out(c, 1, aril_mul(e, aril_ctx_in(c, 1)));
    aril_ctx_save(c, 0, e);
    aril_ctx_save(c, 1, aril_ctx_in(c, 1));
}
static void pair_backward(aril_ctx *c)
{
    aril_tensor *e = aril_ctx_saved(c, 0), *g0 = aril_ctx_grad_out(c, 0),
                *g1 = aril_ctx_grad_out(c, 1);
    aril_ctx_grad_in(c, 0, aril_mul(e, aril_add(g0, aril_mul(g1, aril_ctx_saved(c, 1)))));
    if (aril_ctx_wants(c, 1)) aril_ctx_grad_in(c, 1, aril_mul(g1, e));
}
static const aril_function pair = {
    .name = "pair", .inputs = 2, .outputs = 2, .forward = pair_forward, .backward = pair_backward
};

static void call_pair(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_call_n(&pair, (aril_list){ 2, in }, out);
}

TEST(custom_functions)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(3, (float[]){ -1, 2, 3 }));
    aril_tensor *y = aril_call(&my_relu, ARIL_LIST(x));
    check_values(y, (float[]){ 0, 2, 3 }, 3);
    aril_backward(aril_sum(aril_square(y), ARIL_ALL));
    check_values(aril_grad(x), (float[]){ 0, 4, 6 }, 3);
    aril_tensor *a = aril_parameter(aril_cast(vec(3, (float[]){ 0.1f, -0.4f, 0.7f }), ARIL_F64));
    aril_tensor *b = aril_parameter(aril_cast(vec(3, (float[]){ 1.5f, 0.3f, -2 }), ARIL_F64));
    CHECK_INT(aril_gradcheck(call_pair, NULL, ARIL_LIST(a, b),
                             (aril_gradcheck_opts){ .n_out = 2, .second = true }),
              0);
    CHECK(aril_ok());
    aril_release(x);
    aril_release(a);
    aril_release(b);
}

static void wrong_backward(aril_ctx *c)
{
    aril_ctx_grad_in(c, 0, aril_zeros(ARIL_SHAPE(7), ARIL_F32, test_device()));
}
static void no_output(aril_ctx *c)
{
    (void)c;
}

TEST(invalid_custom_functions)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(3, (float[]){ -1, 2, 3 }));
    aril_function f = my_relu;
    f.backward = wrong_backward;
    CHECK_INT(aril_backward(aril_sum(aril_call(&f, ARIL_LIST(x)), ARIL_ALL)), ARIL_ERR_SHAPE);
    CHECK(strstr(aril_error(), "my_relu") && strstr(aril_error(), "[7]") &&
          strstr(aril_error(), "[3]"));
    aril_clear_error();
    f.forward = no_output;
    CHECK_INT(aril_tensor_status(aril_call(&f, ARIL_LIST(x))), ARIL_ERR_STATE);
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_call(&my_relu, ARIL_LIST(x, x))), ARIL_ERR_ARG);
    aril_clear_error();
    aril_release(x);
}

/* ---- helpers ---- */

static void cubes(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul(aril_square(in[0]), in[0]);
}
static void cube_sum(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    cubes(ctx, in, out);
    out[0] = aril_sum(out[0], ARIL_ALL);
}

TEST(jacobian_hessian_and_products)
{
    ARIL_SCOPE;
    aril_tensor *x = vec(2, (float[]){ 2, 3 }), *v = vec(2, (float[]){ 1, 10 }), *y;
    check_values(aril_jacobian(cubes, NULL, x), (float[]){ 12, 0, 0, 27 }, 4);
    check_values(aril_hessian(cube_sum, NULL, x), (float[]){ 12, 0, 0, 18 }, 4);
    check_values(aril_vjp(cubes, NULL, x, v, &y), (float[]){ 12, 270 }, 2);
    check_values(y, (float[]){ 8, 27 }, 2);
    check_values(aril_jvp(cubes, NULL, x, v, NULL), (float[]){ 12, 270 }, 2);
    CHECK(aril_ok());
}

static void wrong_slope_forward(aril_ctx *c)
{
    aril_ctx_out(c, 0, aril_square(aril_ctx_in(c, 0)));
    aril_ctx_save(c, 0, aril_ctx_in(c, 0));
}
static void wrong_slope_backward(aril_ctx *c)
{
    aril_ctx_grad_in(c, 0, aril_mul(aril_ctx_grad_out(c, 0), aril_ctx_saved(c, 0)));
}
static void call_wrong(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    static const aril_function f = { .name = "half",
                                     .inputs = 1,
                                     .outputs = 1,
                                     .forward = wrong_slope_forward,
                                     .backward = wrong_slope_backward };
    (void)ctx;
    out[0] = aril_call(&f, ARIL_LIST(in[0]));
}
static void relu_of(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_relu(in[0]);
}

TEST(gradcheck_finds_mistakes_and_avoids_kinks)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(aril_cast(vec(3, (float[]){ 0.5f, 0, -1 }), ARIL_F64));
    CHECK_INT(aril_gradcheck(relu_of, NULL, ARIL_LIST(x), (aril_gradcheck_opts){ .second = true }),
              0);
    CHECK_INT(aril_gradcheck(call_wrong, NULL, ARIL_LIST(x), (aril_gradcheck_opts){ 0 }),
              ARIL_ERR_GRAD);
    aril_clear_error();
    CHECK_INT(aril_gradcheck(relu_of, NULL, ARIL_LIST(vec(1, (float[]){ 1 })),
                             (aril_gradcheck_opts){ 0 }),
              ARIL_ERR_GRAD);
    aril_clear_error();
    aril_release(x);
}

TEST(anomaly_mode_names_the_op)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(2, (float[]){ -1, 0 }));
    aril_set_anomaly(true);
    aril_tensor *y = aril_log(x);
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_NUMBER);
    CHECK(strstr(aril_error(), "log") && strstr(aril_error(), "test_autograd.c"));
    aril_clear_error();
    /* sqrt(0) is fine, its gradient times 0 is not */
    aril_tensor *z = aril_mul_scalar(aril_sqrt(aril_mul_scalar(x, 0)), 0);
    CHECK_INT(aril_backward(aril_sum(z, ARIL_ALL)), ARIL_ERR_NUMBER);
    CHECK(strstr(aril_error(), "sqrt") && strstr(aril_error(), "test_autograd.c"));
    aril_clear_error();
    aril_set_anomaly(false);
    aril_release(x);
}

/* ---- size ---- */

TEST(graph_of_a_million_nodes)
{
    int64_t before = aril__live_blocks();
    {
        ARIL_SCOPE;
        aril_tensor *x = aril_parameter(vec(1, (float[]){ 1 })), *y = aril_keep(x);
        for (int i = 0; i < 1000000; i++) {
            ARIL_SCOPE;
            aril_set(&y, aril_add(y, x));
        }
        CHECK_INT(aril_backward(y), 0);
        CHECK_NEAR(aril_item(aril_grad(x)), 1000001, 0.5);
        aril_release(y);
        /* freed without a backward pass */
        y = aril_keep(x);
        for (int i = 0; i < 1000000; i++) {
            ARIL_SCOPE;
            aril_set(&y, aril_tanh(y));
        }
        aril_release(y);
        aril_release(x);
    }
    CHECK_INT(aril__live_blocks(), before);
}

TEST(evaluation_without_no_grad_frees_each_iteration)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(100, 100), ARIL_F32, test_device()));
    int64_t blocks = 0, bytes = 0;
    for (int i = 0; i < 50; i++) {
        ARIL_SCOPE;
        aril_item(aril_sum(aril_tanh(aril_exp(w)), ARIL_ALL));
        if (i == 0) {
            blocks = aril__live_blocks();
            bytes = aril_memory(test_device()).live;
        }
        CHECK_INT(aril__live_blocks(), blocks);
        CHECK_INT(aril_memory(test_device()).live, bytes);
    }
    aril_release(w);
}

static void deep(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *h = in[0];
    for (int i = 0; i < 8; i++) h = aril_tanh(aril_mul(h, ctx));
    out[0] = h;
}

TEST(checkpoint_gives_the_same_gradients)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(vec(3, (float[]){ 0.5f, 1, -2 })),
                *w = aril_parameter(vec(1, (float[]){ 1.3f }));
    aril_tensor *y, *plain;
    deep(w, &x, &plain);
    aril_backward(aril_sum(plain, ARIL_ALL));
    float gx[3], gw;
    aril_read(aril_grad(x), gx);
    aril_read(aril_grad(w), &gw);
    aril_zero_grad(x);
    aril_zero_grad(w);
    CHECK_INT(aril_checkpoint(deep, w, ARIL_LIST(x), 1, &y), 0);
    aril_backward(aril_sum(y, ARIL_ALL));
    CHECK(aril_ok());
    check_values(aril_grad(x), gx, 3);
    check_values(aril_grad(w), &gw, 1);
    aril_release(x);
    aril_release(w);
}

static void drop_some(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_dropout(aril_square(in[0]), 0.5, (aril_dropout_opts){ 0 });
    out[1] = aril_dropout(in[0], 0.5, (aril_dropout_opts){ 0 });
}

TEST(checkpoint_repeats_the_dropout_mask)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(aril_ones(ARIL_SHAPE(1000), ARIL_F32, test_device())), *y[2];
    aril_seed(4);
    CHECK_INT(aril_checkpoint(drop_some, NULL, ARIL_LIST(x), 2, y), 0);
    aril_rand(ARIL_SHAPE(3), ARIL_F32, test_device()); /* the generator advances in between */
    aril_rng_state before = aril_generator_state(aril_default_generator());
    aril_backward(aril_add(aril_sum(y[0], ARIL_ALL), aril_sum(y[1], ARIL_ALL)));
    CHECK_INT((int64_t)aril_generator_state(aril_default_generator()).calls, (int64_t)before.calls);
    ARIL_NO_GRAD; /* d y0 = 2 mask0 * 2, d y1 = 2 mask1; the values were 2 mask */
    aril_tensor *want = aril_add(aril_mul_scalar(y[0], 2), y[1]);
    CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(aril_grad(x), want)), ARIL_ALL)), 0, 0);
    CHECK(aril_ok());
    aril_release(x);
}

TEST(gradients_of_many_outputs_and_of_a_repeated_input)
{
    ARIL_SCOPE;
    enum { MANY = 600 };
    aril_tensor *w = aril_parameter(vec(1, (float[]){ 2 })), *y[MANY], *g[2];
    for (int i = 0; i < MANY; i++) y[i] = aril_mul_scalar(w, 1);
    CHECK_INT(aril_gradients_n((aril_list){ MANY, y }, ARIL_LIST(w), g, (aril_grad_opts){ 0 }), 0);
    CHECK_NEAR(aril_item(g[0]), MANY, 0);
    CHECK_INT(aril_gradients(aril_mul_scalar(w, 3), ARIL_LIST(w, w), g, (aril_grad_opts){ 0 }), 0);
    CHECK_NEAR(aril_item(g[0]), 3, 0);
    CHECK_NEAR(aril_item(g[1]), 3, 0);
    CHECK(aril_ok());
    aril_release(w);
}

static struct {
    aril_tensor *tensor;
    int id, calls;
} single;

static aril_tensor *remove_itself(aril_tensor *g, void *ctx)
{
    (void)g;
    (void)ctx;
    single.calls++;
    aril_remove_hook(single.tensor, single.id);
    return NULL;
}

static aril_tensor *twice(aril_tensor *g, void *ctx)
{
    (void)ctx;
    return aril_mul_scalar(g, 2);
}

TEST(hook_may_remove_itself)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(vec(1, (float[]){ 2 }));
    single.tensor = w;
    single.calls = 0;
    single.id = aril_hook(w, remove_itself, NULL);
    aril_hook(w, twice, NULL);
    aril_backward(aril_mul_scalar(w, 3));
    CHECK_NEAR(aril_item(aril_grad(w)), 6, 0);
    aril_backward(aril_mul_scalar(w, 3));
    CHECK_NEAR(aril_item(aril_grad(w)), 12, 0);
    CHECK_INT(single.calls, 1);
    CHECK(aril_ok());
    aril_release(w);
}

TEST(graph_with_an_overwritten_saved_value_is_freed)
{
    aril_tensor *w = aril_parameter(vec(1, (float[]){ 2 }));
    int64_t before = aril__live_blocks();
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        aril_tensor *h = vec(1, (float[]){ 1 });
        aril_add_(h, aril_mul(h, w)); /* mul saved h, which now comes after mul */
        aril_tensor *u = aril_exp(h);
        aril_add_(u, aril_mul(u, w));
        CHECK_INT(aril_backward(u), ARIL_ERR_GRAD);
        aril_clear_error();
    }
    CHECK_INT(aril__live_blocks(), before);
    aril_release(w);
}

TEST(writes_that_autograd_cannot_track_are_rejected)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(vec(2, (float[]){ 2, 3 })),
                *base = vec(4, (float[]){ 1, 1, 1, 1 });
    aril_tensor *loose, *made;
    {
        ARIL_NO_GRAD;
        loose = aril_slice(base, 0, 0, 2, 1);
    }
    {
        ARIL_INFERENCE;
        made = aril_ones(ARIL_SHAPE(2), ARIL_F32, test_device());
    }
    CHECK_INT(aril_tensor_status(aril_mul_(loose, w)), ARIL_ERR_GRAD);
    CHECK_INT(aril_tensor_status(aril_mul_(made, w)), ARIL_ERR_GRAD);
    aril_clear_error();
    check_values(base, (float[]){ 1, 1, 1, 1 }, 4);
    aril_mul_scalar_(loose, 2); /* an unrecorded write is allowed */
    {
        ARIL_NO_GRAD;
        aril_mul_(loose, w);
    }
    check_values(base, (float[]){ 4, 6, 1, 1 }, 4);
    CHECK(aril_ok());
    aril_release(w);
}

static aril_tensor *weight;

static void cube_times_weight(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul(aril_mul(aril_square(in[0]), in[0]), weight);
}

TEST(checkpoint_with_create_graph_reaches_captured_parameters)
{
    ARIL_SCOPE;
    weight = aril_parameter(vec(1, (float[]){ 3 }));
    aril_tensor *x = aril_parameter(vec(1, (float[]){ 2 })), *y, *g;
    CHECK_INT(aril_checkpoint(cube_times_weight, NULL, ARIL_LIST(x), 1, &y), 0);
    CHECK_INT(aril_backward_with(y, NULL, (aril_grad_opts){ .create_graph = true }), 0);
    CHECK_NEAR(aril_item(aril_grad(x)), 36, 0);
    CHECK_NEAR(aril_item(aril_grad(weight)), 8, 0);
    CHECK_INT(aril_gradients(aril_grad(x), ARIL_LIST(x), &g, (aril_grad_opts){ 0 }), 0);
    CHECK_NEAR(aril_item(g), 36, 0);
    CHECK(aril_ok());
    aril_zero_grad(x); /* a recorded gradient refers to its leaf */
    aril_zero_grad(weight);
    aril_release(x);
    aril_release(weight);
}

static void sets_nothing(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx, (void)in, (void)out;
}

TEST(checkpoint_reports_a_missing_output)
{
    ARIL_SCOPE;
    aril_tensor *x = vec(2, (float[]){ 1, 2 }), *y;
    CHECK_INT(aril_checkpoint(sets_nothing, NULL, ARIL_LIST(x), 1, &y), ARIL_ERR_STATE);
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_STATE);
    aril_clear_error();
    aril_tensor *w = aril_parameter(x);
    CHECK_INT(aril_checkpoint(sets_nothing, NULL, ARIL_LIST(w), 1, &y), ARIL_ERR_STATE);
    aril_clear_error();
    CHECK_INT(aril_set_requires_grad(aril_cast(vec(2, (float[]){ 1, 2 }), ARIL_F8E5M2), true),
              ARIL_ERR_DTYPE);
    aril_clear_error();
    aril_release(w);
}

TEST(failed_division_leaves_its_destination_unchanged)
{
    ONLY_ON_CPU("errors of its kernels are reported at once");
    ARIL_SCOPE;
    int32_t a[3] = { 7, 8, 9 }, b[3] = { 2, 0, 3 }, got[3];
    aril_tensor *x = aril_from(a, ARIL_SHAPE(3), ARIL_I32, test_device());
    aril_tensor *y = aril_from(b, ARIL_SHAPE(3), ARIL_I32, test_device());
    CHECK_INT(aril_tensor_status(aril_floor_div_(x, y)), ARIL_ERR_NUMBER);
    aril_clear_error();
    aril_read(x, got);
    CHECK(got[0] == 7 && got[1] == 8 && got[2] == 9);
    aril_floor_div_scalar_(x, 2);
    aril_read(x, got);
    CHECK(got[0] == 3 && got[1] == 4 && got[2] == 4);
    CHECK(aril_ok());
}

static aril_tensor *drop_root(aril_tensor *g, void *ctx)
{
    aril_tensor **root = ctx;
    aril_release(*root);
    *root = NULL;
    return g;
}

TEST(hook_may_drop_the_root)
{
    int64_t before = aril__live_blocks();
    {
        ARIL_SCOPE;
        aril_tensor *x = aril_parameter(vec(2, (float[]){ 1, 2 })), *root, *m;
        {
            ARIL_SCOPE;
            m = aril_escape(aril_exp(x));
            root = aril_keep(aril_sum(aril_square(m), ARIL_ALL));
        }
        CHECK(aril_hook(m, drop_root, &root) > 0);
        CHECK_INT(aril_backward(root), ARIL_OK);
        CHECK(!root && aril_ok());
        check_values(aril_grad(x), (float[]){ 2 * expf(2), 2 * expf(4) }, 2);
        aril_release(x);
    }
    CHECK_INT(aril__live_blocks(), before);
}

/* ---- gradients reuse memory that nobody else holds ---- */

static aril_tensor *held_gradient;

static aril_tensor *hold(aril_tensor *g, void *ctx)
{
    (void)ctx;
    held_gradient = aril_keep(g);
    return NULL;
}

TEST(chain_of_elementwise_ops_allocates_one_gradient)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(aril_full(ARIL_SHAPE(1000), 0.5, ARIL_F32, test_device()));
    aril_tensor *h = x;
    for (int i = 0; i < 6; i++) h = aril_tanh(aril_relu(h));
    aril_tensor *y = aril_sum(h, ARIL_ALL);
    int64_t before = aril_memory(test_device()).allocations;
    CHECK_INT(aril_backward(y), ARIL_OK);
    CHECK(aril_memory(test_device()).allocations - before <= 2);
    double want = 1, v = 0.5;
    for (int i = 0; i < 6; i++) {
        v = tanh(v);
        want *= 1 - v * v;
    }
    CHECK_NEAR(aril_item(aril_select(aril_grad(x), 0, 7)), want, 1e-6);
    aril_release(x);
}

TEST(kept_gradient_is_not_overwritten)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(aril_full(ARIL_SHAPE(1000), 0.5, ARIL_F32, test_device()));
    aril_tensor *a = aril_exp(x), *b = aril_sin(a), *c = aril_tanh(b), *d = aril_relu(c);
    aril_retain_grad(b);
    aril_hook(a, hold, NULL);
    aril_tensor *start = aril_full(ARIL_SHAPE(1000), 3, ARIL_F32, test_device());
    CHECK_INT(aril_backward_with(d, start, (aril_grad_opts){ 0 }), ARIL_OK);
    double ea = exp(0.5), tb = tanh(sin(ea)), gb = 3 * (1 - tb * tb), ga = gb * cos(ea);
    CHECK_NEAR(aril_item(aril_select(start, 0, 3)), 3, 0);
    CHECK_NEAR(aril_item(aril_select(aril_grad(b), 0, 3)), gb, 1e-6);
    CHECK_NEAR(aril_item(aril_select(held_gradient, 0, 3)), ga, 1e-6);
    CHECK_NEAR(aril_item(aril_select(aril_grad(x), 0, 3)), ga * ea, 1e-6);
    aril_release(held_gradient);
    aril_release(x);
}

TEST(gradient_used_twice_is_not_modified_in_place)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(aril_full(ARIL_SHAPE(1000), 0.5, ARIL_F32, test_device()));
    /* add and sub pass g through unchanged; atan2 has two separate derivatives */
    aril_tensor *a = aril_exp(x), *b = aril_sin(x);
    aril_tensor *y = aril_atan2(aril_sub(aril_add(a, b), aril_tanh(a)), aril_sigmoid(b));
    CHECK_INT(aril_backward(aril_sum(y, ARIL_ALL)), ARIL_OK);
    double s = 0.5, step = 1e-5, f[2];
    for (int k = 0; k < 2; k++) {
        double v = s + (k ? step : -step);
        f[k] = atan2(exp(v) + sin(v) - tanh(exp(v)), 1 / (1 + exp(-sin(v))));
    }
    CHECK_NEAR(aril_item(aril_select(aril_grad(x), 0, 3)), (f[1] - f[0]) / (2 * step), 1e-5);
    aril_release(x);
}
