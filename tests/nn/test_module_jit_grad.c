/* Compiled modules where autograd records: forward and backward are programs. */
#include "aril/aril.h"
#include "aril/zoo.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *normal(uint64_t seed, aril_shape shape)
{
    aril_generator *g = aril_generator_new(seed);
    aril_tensor *x = aril_randn_from(g, shape, ARIL_F32, test_device());
    aril_generator_free(g);
    return x;
}

static void check_near(aril_tensor *got, aril_tensor *want, double tol, const char *what)
{
    char *why = test_difference(got, want, tol, tol);
    CHECK_MSG(!why && aril_ok(), "%s: %s", what, why ? why : aril_error());
}

static void check_bits(aril_tensor *got, aril_tensor *want, const char *what)
{
    char *why = test_difference_in_bits(got, want);
    CHECK_MSG(!why && aril_ok(), "%s: %s", what, why ? why : aril_error());
}

/* The same parameters, gradients and buffers. */
static void check_same(aril_module *a, aril_module *b, double tol)
{
    const aril_named *p = aril_state(a), *q = aril_state(b);
    CHECK_INT(p->n, q->n);
    for (int i = 0; i < p->n && !test_failed(); i++) {
        check_near(p->at[i], q->at[i], tol, p->name[i]);
        CHECK_INT(aril_has_grad(p->at[i]), aril_has_grad(q->at[i]));
        if (aril_has_grad(q->at[i]))
            check_near(aril_grad(p->at[i]), aril_grad(q->at[i]), tol, p->name[i]);
    }
}

/* How often forward functions of this module ran. */
static int calls;

static void release_both(aril_module *a, aril_module *b)
{
    aril_module_release(a);
    aril_module_release(b);
}

/* ---- elementwise: bits ---- */

static aril_tensor *curve(aril_module *self, aril_tensor *x)
{
    calls++;
    aril_tensor *w = aril_module_tensor(self, "w");
    return aril_mul(aril_tanh(aril_add(aril_mul(x, w), aril_square(x))), aril_sigmoid(x));
}

static aril_module *curve_new(void)
{
    aril_module *m = aril_module_new("Curve", 0, curve);
    aril_module_parameter(m, "w", normal(3, ARIL_SHAPE(4, 5)));
    return m;
}

TEST(elementwise_gradients_have_the_bits_of_eager_mode)
{
    ARIL_SCOPE;
    aril_module *a = curve_new(), *b = curve_new();
    aril_module_jit(a);
    calls = 0;
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        aril_tensor *x = normal((uint64_t)i, ARIL_SHAPE(4, 5)), *x2 = aril_copy(x);
        aril_set_requires_grad(x, true), aril_set_requires_grad(x2, true);
        aril_tensor *y = aril_forward(a, x), *y2 = aril_forward(b, x2);
        CHECK(aril_requires_grad(y));
        check_bits(y, y2, "result");
        aril_tensor *start = normal(7, ARIL_SHAPE(4, 5));
        CHECK_INT(aril_backward_with(y, start, (aril_grad_opts){ 0 }), ARIL_OK);
        CHECK_INT(aril_backward_with(y2, start, (aril_grad_opts){ 0 }), ARIL_OK);
        check_bits(aril_grad(x), aril_grad(x2), "gradient of the input");
        check_bits(aril_grad(aril_module_tensor(a, "w")), aril_grad(aril_module_tensor(b, "w")),
                   "gradient of the parameter");
    }
    CHECK_INT(calls, 4);
    CHECK(!aril_module_eager_reason(a));
    release_both(a, b);
}

/* ---- networks ---- */

/* Trains both for some steps: losses, gradients, weights and statistics agree. */
static void train_both(aril_module *a, aril_module *b, aril_tensor *x, int steps, double tol)
{
    aril_module_jit(a);
    aril_optim *p = aril_sgd(aril_parameters(a), (aril_sgd_opts){ .lr = 0.01, .momentum = 0.9 });
    aril_optim *q = aril_sgd(aril_parameters(b), (aril_sgd_opts){ .lr = 0.01, .momentum = 0.9 });
    for (int i = 0; i < steps && !test_failed(); i++) {
        ARIL_SCOPE;
        aril_seed((uint64_t)i);
        aril_tensor *u = aril_mean(aril_square(aril_forward(a, x)), ARIL_ALL);
        aril_tensor *drawn = aril_rand(ARIL_SHAPE(2), ARIL_F32, aril_cpu());
        aril_seed((uint64_t)i);
        aril_tensor *v = aril_mean(aril_square(aril_forward(b, x)), ARIL_ALL);
        check_bits(drawn, aril_rand(ARIL_SHAPE(2), ARIL_F32, aril_cpu()), "the generator");
        check_near(u, v, tol, "loss");
        CHECK_INT(aril_backward(u), ARIL_OK);
        CHECK_INT(aril_backward(v), ARIL_OK);
        check_same(a, b, tol);
        aril_step(p), aril_step(q);
    }
    const char *why = aril_module_eager_reason(a);
    CHECK_MSG(!why, "%s", why);
    aril_optim_free(p), aril_optim_free(q);
}

static aril_module *net_new(void)
{
    aril_seed(4);
    return aril_nn_sequential(aril_nn_linear(5, 8), aril_nn_batch_norm1d(8), aril_nn_relu(),
                              aril_nn_dropout(0.5), aril_nn_linear(8, 3));
}

TEST(statistics_and_dropout_are_those_of_eager_mode)
{
    ARIL_SCOPE;
    aril_module *a = net_new(), *b = net_new();
    train_both(a, b, normal(1, ARIL_SHAPE(6, 5)), 5, 1e-6);
    release_both(a, b);
}

typedef struct zoo_case {
    const char *name;
    aril_shape input;
    int64_t classes;
    bool tokens;
    bool small; /* enough for other devices, too */
} zoo_case;

/* Every network of src/models. The larger ones of a family differ in numbers only. */
TEST(networks_train)
{
    static const zoo_case cases[] = {
        { "lenet5", { 3, { 1, 28, 28 } }, 10, false, true },
        { "lenet5-1998", { 3, { 1, 28, 28 } }, 10, false, false },
        { "mlp", { 3, { 1, 8, 8 } }, 10, false, true },
        { "two_layer", { 1, { 20 } }, 5, false, true },
        { "convnet", { 3, { 3, 32, 32 } }, 10, false, false },
        { "alexnet", { 3, { 3, 64, 64 } }, 4, false, false },
        { "vgg11_bn", { 3, { 3, 32, 32 } }, 4, false, false },
        { "googlenet", { 3, { 3, 33, 40 } }, 4, false, false },
        { "resnet18", { 3, { 3, 32, 32 } }, 4, false, false },
        { "densenet121", { 3, { 3, 32, 32 } }, 4, false, false },
        { "squeezenet1_1", { 3, { 3, 33, 40 } }, 4, false, false },
        { "mobilenet_v2", { 3, { 3, 64, 64 } }, 4, false, false },
        { "gpt2", { 1, { 8 } }, 50, true, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !test_failed(); i++) {
        const zoo_case *c = &cases[i];
        ARIL_SCOPE;
        if (!c->small && !test_on_cpu()) continue;
        aril_zoo_opts opts = { .input = c->input, .classes = c->classes };
        aril_seed(7);
        aril_module *a = aril_zoo_make(c->name, opts);
        aril_seed(7);
        aril_module *b = aril_zoo_make(c->name, opts);
        CHECK_MSG(a && b, "%s: %s", c->name, aril_error());
        aril_shape all = { .ndim = c->input.ndim + 1, .dim = { 2 } };
        memcpy(all.dim + 1, c->input.dim, sizeof(int64_t) * (size_t)c->input.ndim);
        aril_tensor *x =
            c->tokens ? aril_randint(0, c->classes, all, ARIL_I64, test_device()) : normal(2, all);
        train_both(a, b, x, 2, 2e-3);
        if (test_failed()) printf("  of %s\n", c->name);
        release_both(a, b);
    }
}

/* ---- several results ---- */

TEST(lstm_with_some_of_its_results)
{
    ARIL_SCOPE;
    for (int used = 1; used < 8; used++) {
        aril_seed(1);
        aril_module *a =
            aril_nn_lstm_with(6, 8, (aril_nn_rnn_opts){ .layers = 2, .batch_first = true });
        aril_seed(1);
        aril_module *b =
            aril_nn_lstm_with(6, 8, (aril_nn_rnn_opts){ .layers = 2, .batch_first = true });
        aril_module_jit(a);
        for (int i = 0; i < 3; i++) {
            ARIL_SCOPE;
            aril_tensor *x = normal(5, ARIL_SHAPE(3, 4 + i, 6)), *out[2][3], *loss[2];
            for (int k = 0; k < 2; k++) {
                CHECK_INT(aril_forward_all(k ? b : a, ARIL_LIST(x), 3, out[k]), ARIL_OK);
                loss[k] = aril_scalar(0);
                for (int o = 0; o < 3; o++)
                    if (used >> o & 1)
                        loss[k] = aril_add(loss[k], aril_sum(aril_square(out[k][o]), ARIL_ALL));
                CHECK_INT(aril_backward(loss[k]), ARIL_OK);
            }
            for (int o = 0; o < 3; o++) check_near(out[0][o], out[1][o], 1e-6, "result");
        }
        check_same(a, b, 1e-5);
        CHECK(!aril_module_eager_reason(a));
        release_both(a, b);
    }
}

/* ---- calls and gradients in other orders ---- */

TEST(several_calls_before_one_backward)
{
    ARIL_SCOPE;
    aril_module *a = net_new(), *b = net_new(), *both[2] = { a, b };
    aril_module_jit(a);
    for (int round = 0; round < 2; round++) {
        aril_tensor *loss[2] = { aril_scalar(0), aril_scalar(0) };
        for (int k = 0; k < 2; k++) {
            aril_seed(9);
            for (int i = 0; i < 4; i++) /* of two sizes */
                loss[k] =
                    aril_add(loss[k],
                             aril_mean(aril_square(aril_forward(
                                           both[k], normal((uint64_t)i, ARIL_SHAPE(4 + i % 2, 5)))),
                                       ARIL_ALL));
            CHECK_INT(aril_backward(loss[k]), ARIL_OK);
        }
        check_same(a, b, 1e-6);
    }
    release_both(a, b);
}

TEST(backward_twice_needs_the_graph)
{
    ARIL_SCOPE;
    aril_module *a = net_new(), *b = net_new(), *both[2] = { a, b };
    aril_module_jit(a);
    for (int k = 0; k < 2; k++) {
        aril_seed(2);
        aril_tensor *loss = aril_sum(aril_forward(both[k], normal(1, ARIL_SHAPE(4, 5))), ARIL_ALL);
        CHECK_INT(aril_backward_with(loss, NULL, (aril_grad_opts){ .retain_graph = true }),
                  ARIL_OK);
        CHECK_INT(aril_backward(loss), ARIL_OK);
        CHECK(aril_backward(loss) < 0);
        CHECK_MSG(strstr(aril_error(), "retain_graph"), "%s", aril_error());
        aril_clear_error();
    }
    check_same(a, b, 1e-6);
    release_both(a, b);
}

TEST(second_derivatives_are_refused)
{
    ARIL_SCOPE;
    aril_module *m = curve_new();
    aril_module_jit(m);
    aril_tensor *x = normal(1, ARIL_SHAPE(4, 5)), *g;
    aril_set_requires_grad(x, true);
    aril_tensor *y = aril_sum(aril_forward(m, x), ARIL_ALL);
    CHECK(aril_gradients(y, ARIL_LIST(x), &g, (aril_grad_opts){ .create_graph = true }) < 0);
    CHECK_MSG(strstr(aril_error(), "aril_module_jit"), "%s", aril_error());
    aril_clear_error();
    aril_module_release(m);
}

TEST(gradients_of_inputs_alone)
{
    ARIL_SCOPE;
    aril_module *a = curve_new(), *b = curve_new();
    aril_module_jit(a);
    aril_tensor *x = aril_square(normal(1, ARIL_SHAPE(4, 5))), *g, *want;
    aril_tensor *leaf = normal(2, ARIL_SHAPE(4, 5));
    aril_set_requires_grad(leaf, true);
    x = aril_mul(x, leaf); /* computed from a leaf */
    CHECK_INT(aril_gradients(aril_sum(aril_forward(a, x), ARIL_ALL), ARIL_LIST(leaf), &g,
                             (aril_grad_opts){ .retain_graph = true }),
              ARIL_OK);
    CHECK_INT(aril_gradients(aril_sum(aril_forward(b, x), ARIL_ALL), ARIL_LIST(leaf), &want,
                             (aril_grad_opts){ 0 }),
              ARIL_OK);
    check_near(g, want, 1e-6, "gradient");
    CHECK(!aril_has_grad(aril_module_tensor(a, "w")));
    release_both(a, b);
}

/* What was kept for the gradient may not change meanwhile. */
TEST(changes_between_forward_and_backward_are_noticed)
{
    ARIL_SCOPE;
    aril_module *m = curve_new();
    aril_module_jit(m);
    aril_tensor *x = normal(1, ARIL_SHAPE(4, 5)), *leaf = normal(2, ARIL_SHAPE(4, 5));
    aril_set_requires_grad(leaf, true); /* its gradient depends on the parameter */
    aril_tensor *y = aril_sum(aril_forward(m, leaf), ARIL_ALL);
    {
        ARIL_NO_GRAD;
        aril_fill_(aril_module_tensor(m, "w"), 2);
    }
    CHECK(aril_backward(y) < 0);
    CHECK_MSG(strstr(aril_error(), "modified in place"), "%s", aril_error());
    aril_clear_error();
    y = aril_sum(aril_forward(m, x), ARIL_ALL);
    aril_fill_(x, 1);
    CHECK(aril_backward(y) < 0);
    CHECK_MSG(strstr(aril_error(), "modified in place"), "%s", aril_error());
    aril_clear_error();
    aril_module_release(m);
}

TEST(modules_may_end_before_their_gradient)
{
    ARIL_SCOPE;
    aril_module *a = net_new(), *b = net_new(), *both[2] = { a, b };
    aril_module_jit(a);
    aril_tensor *g[2];
    for (int k = 0; k < 2; k++) {
        aril_tensor *x = normal(1, ARIL_SHAPE(4, 5));
        aril_set_requires_grad(x, true);
        aril_seed(3);
        aril_tensor *y = aril_sum(aril_square(aril_forward(both[k], x)), ARIL_ALL);
        aril_module_release(both[k]);
        CHECK_INT(aril_backward(y), ARIL_OK);
        g[k] = aril_grad(x);
    }
    check_near(g[0], g[1], 1e-6, "gradient");
}

/* ---- aliasing ---- */

/* Results that are an input, a view of it, and twice the same. */
static void views_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                          aril_tensor **out)
{
    (void)self, (void)n_in, (void)n_out;
    calls++;
    out[0] = in[0];
    out[1] = aril_transpose(in[1], 0, 1);
    out[2] = aril_mul(in[0], in[0]);
    out[3] = out[2];
}

TEST(results_that_share_memory)
{
    ARIL_SCOPE;
    static const aril_module_class type = {
        .type = "Views", .forward = views_forward, .inputs = 2, .outputs = 4
    };
    aril_module *a = aril_module_make(&type), *b = aril_module_make(&type), *both[2] = { a, b };
    aril_module_jit(a);
    calls = 0;
    aril_tensor *x[2], *y[2];
    for (int k = 0; k < 2; k++) {
        x[k] = normal(1, ARIL_SHAPE(4, 4));
        aril_set_requires_grad(x[k], true);
        for (int i = 0; i < 3; i++) {
            aril_tensor *part = aril_slice(x[k], 0, 1, 3, 1), *out[4]; /* shares memory with x */
            CHECK_INT(aril_forward_all(both[k], ARIL_LIST(x[k], part), 4, out), ARIL_OK);
            y[k] = aril_scalar(0);
            for (int o = 0; o < 4; o++)
                y[k] = aril_add(y[k], aril_sum(aril_mul(out[o], aril_scalar(o + 1)), ARIL_ALL));
            CHECK_INT(aril_backward(y[k]), ARIL_OK);
        }
    }
    CHECK_INT(calls, 4);
    check_near(y[0], y[1], 1e-6, "loss");
    check_near(aril_grad(x[0]), aril_grad(x[1]), 1e-6, "gradient");
    CHECK(!aril_module_eager_reason(a));
    release_both(a, b);
}

/* A parameter that is used twice, one that is not, a frozen one, and a buffer that changes. */
static aril_tensor *mixed(aril_module *self, aril_tensor *x)
{
    calls++;
    aril_tensor *w = aril_module_tensor(self, "w"), *count = aril_module_tensor(self, "count");
    aril_tensor *y = aril_matmul(aril_relu(aril_matmul(x, w)), aril_t(w));
    y = aril_mul(y, aril_add(aril_module_tensor(self, "frozen"), count));
    {
        ARIL_NO_GRAD;
        aril_add_(count, aril_scalar(1));
    }
    return y;
}

static aril_module *mixed_new(void)
{
    aril_module *m = aril_module_new("Mixed", 0, mixed);
    aril_module_parameter(m, "w", normal(3, ARIL_SHAPE(5, 6)));
    aril_module_parameter(m, "unused", normal(3, ARIL_SHAPE(2)));
    aril_module_parameter(m, "frozen", normal(4, ARIL_SHAPE(5)));
    aril_module_buffer(m, "count", aril_zeros(ARIL_SHAPE(), ARIL_F32, test_device()));
    aril_set_requires_grad(aril_module_tensor(m, "frozen"), false);
    return m;
}

TEST(parameters_that_are_shared_unused_or_frozen)
{
    ARIL_SCOPE;
    aril_module *a = mixed_new(), *b = mixed_new();
    calls = 0;
    aril_module_jit(a);
    aril_module_jit(b); /* compared with itself in eager mode below */
    aril_module *c = mixed_new();
    train_both(a, c, normal(1, ARIL_SHAPE(3, 5)), 4, 1e-5);
    aril_set_requires_grad(aril_module_tensor(b, "frozen"), true);
    aril_backward(aril_sum(aril_forward(b, normal(1, ARIL_SHAPE(3, 5))), ARIL_ALL));
    CHECK(aril_has_grad(aril_module_tensor(b, "frozen")));
    CHECK(!aril_has_grad(aril_module_tensor(b, "unused")));
    CHECK_INT(calls, 1 + 4 + 1);
    release_both(a, b);
    aril_module_release(c);
}

/* ---- what else gradients are made of ---- */

static void part(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_tanh(aril_dropout(aril_matmul(in[0], ctx), 0.5, (aril_dropout_opts){ 0 }));
}

static void square_forward(aril_ctx *c)
{
    aril_ctx_save(c, 0, aril_ctx_in(c, 0));
    aril_ctx_out(c, 0, aril_square(aril_ctx_in(c, 0)));
}

static void square_backward(aril_ctx *c)
{
    aril_ctx_grad_in(c, 0,
                     aril_mul(aril_ctx_grad_out(c, 0), aril_mul_scalar(aril_ctx_saved(c, 0), 2)));
}

static void twice(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_mul(in[0], ctx);
}

static void plain(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_sub(in[0], ctx);
}

static aril_tensor *special(aril_module *self, aril_tensor *x)
{
    static const aril_function square = { .name = "square",
                                          .inputs = 1,
                                          .outputs = 1,
                                          .forward = square_forward,
                                          .backward = square_backward };
    aril_tensor *w = aril_module_tensor(self, "w"), *h, *y;
    aril_checkpoint(part, w, ARIL_LIST(x), 1, &h);
    h = aril_call(&square, ARIL_LIST(h));
    aril_cond(aril_gt_scalar(aril_sum(x, ARIL_ALL), 0), twice, plain, aril_module_tensor(self, "v"),
              ARIL_LIST(h), 1, &y);
    return y;
}

static aril_module *special_new(void)
{
    aril_module *m = aril_module_new("Special", 0, special);
    aril_module_parameter(m, "w", normal(3, ARIL_SHAPE(5, 6)));
    aril_module_parameter(m, "v", normal(4, ARIL_SHAPE(6)));
    return m;
}

TEST(checkpoints_functions_and_branches)
{
    ARIL_SCOPE;
    for (int sign = -1; sign < 2; sign += 2) {
        aril_module *a = special_new(), *b = special_new();
        train_both(a, b, aril_full(ARIL_SHAPE(3, 5), sign, ARIL_F32, test_device()), 3, 1e-6);
        release_both(a, b);
    }
}

static aril_tensor *double_it(aril_tensor *g, void *ctx)
{
    ++*(int *)ctx;
    return aril_mul_scalar(g, 2);
}

TEST(hooks_of_parameters_see_the_whole_gradient)
{
    ARIL_SCOPE;
    aril_module *a = net_new(), *b = net_new();
    int n = 0;
    aril_hook(aril_parameters(a)->at[0], double_it, &n);
    aril_hook(aril_parameters(b)->at[0], double_it, &n);
    train_both(a, b, normal(1, ARIL_SHAPE(6, 5)), 3, 1e-6);
    CHECK_INT(n, 6);
    release_both(a, b);
}

/* Sizes that keep changing become unknown ones. */
TEST(gradients_for_many_sizes)
{
    ARIL_SCOPE;
    aril_module *a = net_new(), *b = net_new();
    aril_module_jit(a);
    for (int64_t n = 2; n < 30; n++) {
        ARIL_SCOPE;
        aril_tensor *x = normal((uint64_t)n, ARIL_SHAPE(n, 5));
        aril_seed((uint64_t)n);
        aril_backward(aril_mean(aril_square(aril_forward(a, x)), ARIL_ALL));
        aril_seed((uint64_t)n);
        aril_backward(aril_mean(aril_square(aril_forward(b, x)), ARIL_ALL));
        check_same(a, b, 1e-5);
    }
    const char *why = aril_module_eager_reason(a);
    CHECK_MSG(!why, "%s", why);
    release_both(a, b);
}

TEST(autocast_and_half_precision)
{
    ARIL_SCOPE;
    aril_module *a = net_new(), *b = net_new(), *both[2] = { a, b };
    aril_module_jit(a);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            ARIL_SCOPE;
            aril_tensor *y;
            aril_seed(3);
            {
                ARIL_AUTOCAST(ARIL_BF16);
                y = aril_forward(both[k], normal(1, ARIL_SHAPE(6, 5)));
            }
            CHECK_INT(aril_backward(aril_sum(aril_cast(y, ARIL_F32), ARIL_ALL)), ARIL_OK);
        }
        check_same(a, b, 2e-2);
    }
    CHECK(!aril_module_eager_reason(a));
    release_both(a, b);
}

/* ---- what is not compiled ---- */

static aril_tensor *in_place(aril_module *self, aril_tensor *x)
{
    (void)self;
    return aril_mul(aril_tanh_(x), aril_module_tensor(self, "w"));
}

static aril_tensor *carries(aril_module *self, aril_tensor *x)
{
    aril_tensor *h = aril_module_tensor(self, "h"), *w = aril_module_tensor(self, "w");
    aril_copy_(h, aril_mul(x, w));
    return aril_add(h, x);
}

TEST(what_a_program_cannot_record_runs_as_it_is)
{
    ARIL_SCOPE;
    aril_module *m = aril_module_new("InPlace", 0, in_place);
    aril_module_parameter(m, "w", normal(3, ARIL_SHAPE(4)));
    aril_module_jit(m);
    aril_tensor *x = normal(1, ARIL_SHAPE(4)), *want = aril_tanh(x);
    CHECK_INT(aril_backward(aril_sum(aril_forward(m, x), ARIL_ALL)), ARIL_OK);
    check_near(aril_grad(aril_module_tensor(m, "w")), want, 1e-6, "gradient");
    check_bits(x, want, "the input");
    CHECK(aril_module_eager_reason(m) && strstr(aril_module_eager_reason(m), "in place"));
    aril_module_release(m);

    m = aril_module_new("Carries", 0, carries);
    aril_module_parameter(m, "w", normal(3, ARIL_SHAPE(4)));
    aril_module_buffer(m, "h", aril_zeros(ARIL_SHAPE(4), ARIL_F32, test_device()));
    aril_module_jit(m);
    x = normal(1, ARIL_SHAPE(4));
    CHECK_INT(aril_backward(aril_sum(aril_forward(m, x), ARIL_ALL)), ARIL_OK);
    check_near(aril_grad(aril_module_tensor(m, "w")), x, 1e-6, "gradient");
    CHECK(aril_requires_grad(aril_module_tensor(m, "h")));
    CHECK(aril_module_eager_reason(m) && strstr(aril_module_eager_reason(m), "outside"));
    aril_module_release(m);
}

static void drop_step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add(in[0], aril_dropout(in[1], 0.5, (aril_dropout_opts){ 0 }));
}

static aril_tensor *drops(aril_module *self, aril_tensor *x)
{
    aril_tensor *y;
    aril_scan(drop_step, NULL, ARIL_LIST(aril_module_tensor(self, "w")), ARIL_LIST(x), 0, &y, NULL);
    return aril_dropout(y, 0.5, (aril_dropout_opts){ 0 });
}

TEST(loops_that_draw_numbers_run_as_they_are)
{
    ARIL_SCOPE;
    aril_module *m = aril_module_new("Drops", 0, drops);
    aril_module_parameter(m, "w", normal(3, ARIL_SHAPE(4)));
    aril_module_jit(m);
    CHECK_INT(aril_backward(aril_sum(aril_forward(m, normal(1, ARIL_SHAPE(3, 4))), ARIL_ALL)),
              ARIL_OK);
    CHECK(aril_module_eager_reason(m) && strstr(aril_module_eager_reason(m), "in a loop"));
    aril_module_release(m);
}
