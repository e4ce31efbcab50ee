/* Modules: trees, names, forward, sizes from the first input, hooks, changes to a whole tree. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static aril_tensor *randn(aril_shape shape)
{
    return aril_randn(shape, ARIL_F32, test_device());
}

static bool equal(aril_tensor *a, aril_tensor *b)
{
    ARIL_SCOPE;
    return aril_numel(a) == aril_numel(b) &&
           aril_item_int(aril_all(aril_eq(aril_detach(a), aril_detach(b)), ARIL_ALL)) == 1;
}

/* The two-layer network of the guide. */
struct two_layer {
    aril_module *linear1, *linear2;
};

static aril_tensor *two_layer_forward(aril_module *self, aril_tensor *x)
{
    struct two_layer *m = aril_module_data(self);
    return aril_forward(m->linear2, aril_relu(aril_forward(m->linear1, x)));
}

static aril_module *two_layer_new(int64_t in, int64_t hidden, int64_t out)
{
    aril_module *self = aril_module_new("TwoLayer", sizeof(struct two_layer), two_layer_forward);
    struct two_layer *m = aril_module_data(self);
    m->linear1 = aril_module_add(self, "linear1", aril_nn_linear(in, hidden));
    m->linear2 = aril_module_add(self, "linear2", aril_nn_linear(hidden, out));
    return self;
}

static aril_module *small_net(void)
{
    return aril_nn_sequential(aril_nn_conv2d(0, 4, 3), aril_nn_relu(), aril_nn_max_pool2d(2),
                              aril_nn_dropout(0.5), aril_nn_flatten(), aril_nn_linear(0, 8),
                              aril_nn_relu(), aril_nn_linear(0, 3));
}

TEST(custom_module)
{
    ARIL_SCOPE;
    aril_module *m = two_layer_new(6, 5, 4);
    const aril_named *p = aril_parameters(m);
    CHECK(p && p->n == 4);
    CHECK_STR(p->name[0], "linear1.weight");
    CHECK_STR(p->name[1], "linear1.bias");
    CHECK_STR(p->name[2], "linear2.weight");
    CHECK_STR(p->name[3], "linear2.bias");
    CHECK(aril_size(p->at[0], 0) == 5 && aril_size(p->at[0], 1) == 6 &&
          aril_size(p->at[3], 0) == 4);
    CHECK(aril_parameters(m) == p && p->at[0] == aril_module_tensor(m, "linear1.weight"));
    CHECK_INT(aril_parameter_count(m), 5 * 6 + 5 + 4 * 5 + 4);

    aril_tensor *x = randn(ARIL_SHAPE(2, 6));
    aril_tensor *y = aril_forward(m, x);
    aril_tensor *want =
        aril_linear(aril_relu(aril_linear(x, p->at[0], p->at[1])), p->at[2], p->at[3]);
    CHECK(equal(y, want));
    CHECK_INT(aril_backward(aril_sum(y, ARIL_ALL)), ARIL_OK);
    for (int i = 0; i < p->n; i++) CHECK(aril_has_grad(p->at[i]));
    aril_module_zero_grad(m);
    for (int i = 0; i < p->n; i++) CHECK(!aril_has_grad(p->at[i]));
    CHECK(aril_module_at(m, "linear2") == aril_module_child(m, 1) && aril_module_at(m, "") == m);
    CHECK_STR(aril_module_child_name(m, 1), "linear2");
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(freed_module_leaves_no_memory)
{
    int64_t bytes = aril_memory(test_device()).live, blocks = aril__live_blocks();
    aril_module *m = two_layer_new(50, 50, 50); /* outside any scope */
    CHECK(aril_memory(test_device()).live > bytes);
    aril_module_keep(m);
    aril_module_release(m);
    CHECK(aril_memory(test_device()).live > bytes);
    aril_module_release(m);
    CHECK_INT(aril_memory(test_device()).live, bytes);
    CHECK_INT(aril__live_blocks(), blocks);
}

TEST(sizes_are_inferred_from_the_first_input)
{
    ARIL_SCOPE;
    aril_module *m = small_net();
    CHECK(m && !aril_module_built(m));
    CHECK(!aril_parameters(m));
    CHECK_MSG(strstr(aril_error(), "\"0\" (Conv2d)"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_module_build(m, ARIL_SHAPE(2, 10, 10)), ARIL_OK);
    CHECK(aril_module_built(m));
    const aril_named *p = aril_parameters(m);
    CHECK(p && p->n == 6);
    CHECK_STR(p->name[0], "0.weight");
    CHECK_STR(p->name[5], "7.bias");
    CHECK_INT(aril_size(p->at[0], 1), 2);
    CHECK_INT(aril_size(aril_module_tensor(m, "5.weight"), 1), 4 * 4 * 4);
    CHECK(aril_module_training(m));
    aril_tensor *y = aril_forward(m, randn(ARIL_SHAPE(5, 2, 10, 10)));
    CHECK(aril_ndim(y) == 2 && aril_size(y, 0) == 5 && aril_size(y, 1) == 3);
    aril_module_release(m);

    m = small_net(); /* or by the first forward itself */
    y = aril_forward(m, randn(ARIL_SHAPE(5, 3, 8, 8)));
    CHECK(aril_size(y, 1) == 3 && aril_module_built(m));
    y = aril_forward(m, randn(ARIL_SHAPE(5, 2, 8, 8)));
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_SHAPE);
    CHECK_MSG(strncmp(aril_tensor_error(y), "0 (Conv2d): ", 12) == 0, "%s", aril_tensor_error(y));
    aril_clear_error();
    aril_module_release(m);
}

TEST(errors_name_the_module)
{
    ARIL_SCOPE;
    aril_module *block = aril_nn_sequential(aril_nn_relu(), aril_nn_linear(4, 4));
    aril_module *m = aril_nn_sequential();
    CHECK(aril_module_add(m, "layer1", block) == block);
    aril_tensor *y = aril_forward(m, randn(ARIL_SHAPE(2, 5)));
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_SHAPE);
    CHECK_MSG(strncmp(aril_error(), "layer1.1 (Linear): ", 19) == 0, "%s", aril_error());
    aril_clear_error();
    y = aril_forward(block, NULL);
    CHECK_MSG(strncmp(aril_error(), "Sequential: ", 12) == 0, "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_forward_n(m, ARIL_LIST(y, y))), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "expected at most 1 input"), "%s", aril_error());
    aril_clear_error();
    /* Errors outside modules do not name them. */
    aril_matmul(randn(ARIL_SHAPE(2, 3)), randn(ARIL_SHAPE(2, 3)));
    CHECK_MSG(strncmp(aril_error(), "matmul", 6) == 0, "%s", aril_error());
    aril_clear_error();

    CHECK(!aril_module_at(m, "layer1.7") && strstr(aril_error(), "layer1.7"));
    aril_clear_error();
    CHECK(!aril_module_tensor(m, "layer1.1.wait") && strstr(aril_error(), "layer1.1.wait"));
    aril_clear_error();
    CHECK(!aril_module_add(m, "a.b", aril_nn_relu()));
    aril_clear_error();
    CHECK(!aril_module_add(m, "layer1", aril_nn_relu()) && strstr(aril_error(), "already"));
    aril_clear_error();
    CHECK(!aril_module_add(block, "round", aril_module_keep(m)) &&
          strstr(aril_error(), "contains"));
    aril_clear_error();
    CHECK(!aril_nn_linear(-1, 3) && !aril_ok());
    aril_clear_error();
    CHECK(!aril_nn_sequential(aril_nn_relu(), aril_nn_linear(3, 0), aril_nn_relu()));
    CHECK_MSG(strstr(aril_error(), "Linear"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_forward(NULL, randn(ARIL_SHAPE(1)))), ARIL_ERR_ARG);
    aril_clear_error();
    aril_module_release(m);
}

TEST(fused_sequential_is_bitwise_the_same)
{
    ARIL_SCOPE;
    for (int kind = 0; kind < 2; kind++) {
        aril_seed(3);
        aril_module *layer = kind ? aril_nn_linear(40, 30) : aril_nn_conv2d(3, 8, 3);
        aril_tensor *x = randn(kind ? ARIL_SHAPE(7, 40) : ARIL_SHAPE(2, 3, 9, 9));
        aril_tensor *gx[2], *gw[2], *y[2];
        aril_module *fused = aril_nn_sequential(aril_module_keep(layer), aril_nn_relu());
        for (int i = 0; i < 2; i++) {
            aril_tensor *in = aril_parameter(aril_copy(x));
            y[i] = i ? aril_relu(aril_forward(layer, in)) : aril_forward(fused, in);
            aril_tensor *w = aril_module_tensor(layer, "weight");
            aril_tensor *g[2];
            aril_gradients(aril_sum(aril_square(y[i]), ARIL_ALL), ARIL_LIST(in, w), g,
                           (aril_grad_opts){ 0 });
            gx[i] = g[0];
            gw[i] = g[1];
            aril_release(in);
        }
        CHECK_MSG(equal(y[0], y[1]) && equal(gx[0], gx[1]) && equal(gw[0], gw[1]), "kind %d", kind);
        aril_module_release(fused);
        aril_module_release(layer);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

static void count_call(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                       aril_tensor **out, void *ctx)
{
    (void)m;
    (void)n_in;
    (void)in;
    (void)n_out;
    (void)out;
    ++*(int *)ctx;
}

static void halve_result(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                         aril_tensor **out, void *ctx)
{
    (void)m;
    (void)n_in;
    (void)in;
    (void)n_out;
    (void)ctx;
    out[0] = aril_mul_scalar(out[0], 0.5);
}

static void negate_input(aril_module *m, int n_in, aril_tensor **in, void *ctx)
{
    (void)m;
    (void)n_in;
    (void)ctx;
    in[0] = aril_neg(in[0]);
}

static aril_tensor *double_grad(aril_module *m, int out, aril_tensor *grad, void *ctx)
{
    (void)m;
    (void)out;
    ++*(int *)ctx;
    return aril_mul_scalar(grad, 2);
}

TEST(hooks)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_sequential(aril_nn_linear(3, 3), aril_nn_relu());
    aril_module *linear = aril_module_child(m, 0);
    aril_tensor *x = randn(ARIL_SHAPE(4, 3)), *w = aril_module_tensor(m, "0.weight");
    aril_tensor *plain = aril_forward(m, x);
    int calls = 0, grads = 0;
    int counter = aril_module_hook_after(linear, count_call, &calls);
    CHECK(counter > 0);
    CHECK(equal(aril_forward(m, x), plain) && calls == 1);
    int halver = aril_module_hook_after(m, halve_result, NULL);
    CHECK(equal(aril_forward(m, x), aril_mul_scalar(plain, 0.5)) && calls == 2);
    CHECK_INT(aril_module_unhook(m, halver), ARIL_OK);
    int negater = aril_module_hook_before(m, negate_input, NULL);
    CHECK(equal(aril_forward(m, aril_neg(x)), plain));
    CHECK_INT(aril_module_unhook(m, negater), ARIL_OK);
    CHECK_INT(aril_module_unhook(linear, counter), ARIL_OK);
    CHECK(aril_module_unhook(linear, counter) < 0);
    aril_clear_error();

    CHECK_INT(aril_backward(aril_sum(aril_forward(m, x), ARIL_ALL)), ARIL_OK);
    aril_tensor *g = aril_copy(aril_grad(w));
    aril_module_zero_grad(m);
    int back = aril_module_hook_backward(linear, double_grad, &grads);
    CHECK_INT(aril_backward(aril_sum(aril_forward(m, x), ARIL_ALL)), ARIL_OK);
    CHECK_INT(grads, 1);
    CHECK(equal(aril_grad(w), aril_mul_scalar(g, 2)));
    aril_module_zero_grad(m);
    /* A hook removed before backward is skipped, and so is one whose module was released. */
    aril_tensor *loss = aril_sum(aril_forward(m, x), ARIL_ALL);
    CHECK_INT(aril_module_unhook(linear, back), ARIL_OK);
    CHECK_INT(aril_backward(loss), ARIL_OK);
    CHECK(grads == 1 && equal(aril_grad(w), g));
    aril_module_hook_backward(linear, double_grad, &grads);
    loss = aril_sum(aril_forward(m, x), ARIL_ALL);
    aril_module_release(m);
    CHECK_INT(aril_backward(loss), ARIL_OK);
    CHECK_INT(grads, 1);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(shared_weights_count_once)
{
    ARIL_SCOPE;
    aril_module *a = aril_nn_linear(4, 4);
    aril_module *m =
        aril_nn_sequential(a, aril_nn_relu(), aril_module_keep(a), aril_nn_linear(4, 4));
    CHECK_INT(aril_parameters(m)->n, 4);
    CHECK_INT(aril_parameter_count(m), 2 * 20);
    CHECK_INT(aril_module_share(m, "3.weight", aril_module_tensor(m, "0.weight")), ARIL_OK);
    CHECK_INT(aril_parameters(m)->n, 3);
    CHECK_STR(aril_parameters(m)->name[2], "3.bias");
    CHECK_INT(aril_parameter_count(m), 24);
    CHECK(aril_module_tensor(m, "3.weight") == aril_module_tensor(m, "0.weight"));
    CHECK_INT(aril_module_share(m, "3.weight", aril_module_tensor(m, "0.bias")), ARIL_ERR_SHAPE);
    aril_clear_error();
    aril_tensor *x = randn(ARIL_SHAPE(2, 4));
    CHECK_INT(aril_backward(aril_sum(aril_forward(m, x), ARIL_ALL)), ARIL_OK);
    /* Both names of a shared tensor are accepted. */
    const aril_named *p = aril_parameters(m);
    aril_tensor *at[4] = { aril_copy(p->at[0]), aril_copy(p->at[1]), aril_copy(p->at[0]),
                           aril_copy(p->at[2]) };
    const char *names[4] = { "0.weight", "0.bias", "3.weight", "3.bias" };
    CHECK_INT(aril_load_state(m, &(aril_named){ 4, at, names }, (aril_load_state_opts){ 0 }),
              ARIL_OK);
    aril_module_release(m);
}

TEST(freezing)
{
    ARIL_SCOPE;
    aril_module *m = two_layer_new(3, 4, 2);
    aril_module_freeze(aril_module_at(m, "linear1"));
    CHECK_INT(aril_trainable_count(m), 10);
    CHECK_INT(aril_backward(aril_sum(aril_forward(m, randn(ARIL_SHAPE(1, 3))), ARIL_ALL)), ARIL_OK);
    CHECK(!aril_has_grad(aril_module_tensor(m, "linear1.weight")));
    CHECK(aril_has_grad(aril_module_tensor(m, "linear2.weight")));
    aril_module_unfreeze(m);
    CHECK_INT(aril_trainable_count(m), 26);
    aril_module_release(m);
}

TEST(casts_keep_the_tensors)
{
    ARIL_SCOPE;
    aril_module *m = two_layer_new(3, 40, 2);
    aril_tensor *w = aril_module_tensor(m, "linear1.weight"), *before = aril_copy(w);
    aril_tensor *x = randn(ARIL_SHAPE(2, 3)), *y = aril_forward(m, x);
    aril_backward(aril_sum(y, ARIL_ALL));
    aril_tensor *stale = aril_sum(aril_forward(m, x), ARIL_ALL);
    CHECK_INT(aril_module_cast(m, ARIL_F64), ARIL_OK);
    CHECK(aril_module_tensor(m, "linear1.weight") == w && aril_dtype_of(w) == ARIL_F64);
    CHECK(aril_requires_grad(w) && aril_dtype_of(aril_grad(w)) == ARIL_F64);
    CHECK(equal(w, aril_cast(before, ARIL_F64)));
    aril_tensor *wide = aril_forward(m, aril_cast(x, ARIL_F64));
    CHECK(aril_dtype_of(wide) == ARIL_F64);
    CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(wide, y)), ARIL_ALL)), 0, 1e-6);
    aril_module_zero_grad(m);
    CHECK(aril_backward(stale) < 0); /* its weights have another dtype now */
    aril_clear_error();
    CHECK_INT(aril_backward(aril_sum(wide, ARIL_ALL)), ARIL_OK);
    CHECK_INT(aril_module_cast(m, ARIL_F32), ARIL_OK);
    CHECK(equal(w, before));
    CHECK_INT(aril_module_cast(m, ARIL_I32), ARIL_ERR_DTYPE);
    aril_clear_error();
    CHECK_INT(aril_module_to(m, test_device()), ARIL_OK);
    CHECK(aril_module_to(m, aril_cuda(77)) < 0 && equal(w, before));
    aril_clear_error();
    aril_module_release(m);

    m = aril_nn_linear(0, 2); /* parameters created later have the dtype, too */
    aril_module_cast(m, ARIL_F64);
    CHECK(aril_dtype_of(aril_forward(m, aril_cast(x, ARIL_F64))) == ARIL_F64);
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(loading_state)
{
    ARIL_SCOPE;
    aril_module *a = two_layer_new(3, 4, 2), *b = two_layer_new(3, 4, 2);
    CHECK(!equal(aril_module_tensor(a, "linear1.weight"), aril_module_tensor(b, "linear1.weight")));
    CHECK_INT(aril_load_state(b, aril_state(a), (aril_load_state_opts){ 0 }), ARIL_OK);
    for (int i = 0; i < 4; i++) CHECK(equal(aril_state(a)->at[i], aril_state(b)->at[i]));

    aril_tensor *w = aril_copy(aril_module_tensor(b, "linear1.weight"));
    aril_tensor *at[3] = { aril_zeros_like(w), aril_zeros(ARIL_SHAPE(7), ARIL_F32, test_device()),
                           aril_zeros_like(w) };
    const char *names[3] = { "linear1.weight", "linear1.bias", "other" };
    aril_named bad = { 2, at, names };
    CHECK_INT(aril_load_state(b, &bad, (aril_load_state_opts){ .partial = true }), ARIL_ERR_SHAPE);
    CHECK_MSG(strstr(aril_error(), "\"linear1.bias\" is [4]"), "%s", aril_error());
    aril_clear_error();
    CHECK(equal(aril_module_tensor(b, "linear1.weight"), w)); /* nothing was written */
    at[1] = aril_ones(ARIL_SHAPE(4), ARIL_F64, test_device());
    bad.n = 3;
    CHECK_INT(aril_load_state(b, &bad, (aril_load_state_opts){ 0 }), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "2 missing (linear2.weight, linear2.bias)") &&
                  strstr(aril_error(), "1 unknown (other)"),
              "%s", aril_error());
    aril_clear_error();
    CHECK(equal(aril_module_tensor(b, "linear1.weight"), w));
    CHECK_INT(aril_load_state(b, &bad, (aril_load_state_opts){ .partial = true }), ARIL_OK);
    CHECK(equal(aril_module_tensor(b, "linear1.weight"), at[0]));
    CHECK_NEAR(aril_item(aril_sum(aril_module_tensor(b, "linear1.bias"), ARIL_ALL)), 4, 0);
    aril_module_release(a);
    aril_module_release(b);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(module_built_in_inference_mode_can_be_trained)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_sequential(aril_nn_linear(0, 4), aril_nn_batch_norm1d(0));
    aril_tensor *x = randn(ARIL_SHAPE(5, 3));
    {
        ARIL_INFERENCE;
        aril_nn_append(m, aril_nn_linear(4, 2));
        aril_forward(m, x);
        aril_module_parameter(m, "scale", randn(ARIL_SHAPE(2)));
        aril_module_cast(m, ARIL_F64);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_tensor *y = aril_mul(aril_forward(m, aril_cast(x, ARIL_F64)), aril_module_own(m, 0));
    CHECK_INT(aril_backward(aril_sum(y, ARIL_ALL)), ARIL_OK);
    const aril_named *p = aril_parameters(m);
    CHECK_INT(p->n, 7);
    for (int i = 0; i < p->n; i++) CHECK_MSG(aril_has_grad(p->at[i]), "%s", p->name[i]);
    aril_module_release(m);
}

TEST(print_matches_pytorch)
{
    aril_module *m = aril_nn_sequential(
        aril_nn_conv2d_with(3, 8, 3, (aril_nn_conv_opts){ .stride = { 2 }, .padding = { 1 } }),
        aril_nn_relu(), aril_nn_max_pool2d(2), aril_nn_dropout(0.25), aril_nn_flatten(),
        aril_nn_sequential(aril_nn_linear_with(8, 2, (aril_nn_linear_opts){ .no_bias = true })));
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    aril_module_print(m, to);
    fclose(to);
    CHECK_STR(text,
              "Sequential(\n"
              "  (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1))\n"
              "  (1): ReLU()\n"
              "  (2): MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)\n"
              "  (3): Dropout(p=0.25, inplace=False)\n"
              "  (4): Flatten(start_dim=1, end_dim=-1)\n"
              "  (5): Sequential(\n"
              "    (0): Linear(in_features=8, out_features=2, bias=False)\n"
              "  )\n"
              ")\n");
    free(text);
    aril_module_release(m);
}

TEST(sequential_releases_intermediate_values)
{
    ONLY_ON_CPU("its kernels need no scratch memory");
    aril_module *m = aril_nn_sequential();
    for (int i = 0; i < 20; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        aril_module_add(m, name, aril_nn_dropout(0.5));
    }
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *x = randn(ARIL_SHAPE(1 << 16)); /* 256 KiB */
    aril_memory_reset_peak(test_device());
    int64_t live = aril_memory(test_device()).live;
    aril_forward(m, x);
    CHECK(aril_memory(test_device()).peak - live <= 2 * (4 << 16));
    CHECK_INT(aril_memory(test_device()).live - live, 4 << 16);
    aril_module_release(m);
}

/* Build, step, cast, load, with each allocation failing in turn. */
static double all_at_once(void)
{
    ARIL_SCOPE;
    aril_seed(11);
    double result = 0;
    int calls = 0;
    aril_module *m = small_net();
    aril_tensor *x = randn(ARIL_SHAPE(2, 1, 6, 6));
    if (m) aril_module_hook_backward(m, double_grad, &calls);
    aril_tensor *loss = aril_sum(aril_forward(m, x), ARIL_ALL);
    aril_backward(loss);
    if (m && aril_module_cast(m, ARIL_F64) == ARIL_OK) {
        const aril_named *state = aril_state(m);
        if (state && aril_load_state(m, state, (aril_load_state_opts){ 0 }) == ARIL_OK)
            result = aril_item(aril_sum(aril_grad(state->at[0]), ARIL_ALL));
    }
    aril_module_release(m);
    return result;
}

TEST(failed_allocations)
{
    double want = all_at_once();
    want = all_at_once();
    CHECK_MSG(aril_ok() && want != 0, "%s", aril_error());
    int failures = 0;
    for (int64_t n = 1;; n++) {
        int64_t blocks = aril__live_blocks(), bytes = aril_memory(test_device()).live;
        aril_fail_allocation(n);
        double got = all_at_once();
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_MSG(!aril_ok() || got == want, "allocation %lld failed without a word", (long long)n);
        if (!aril_ok())
            CHECK_MSG(aril_error_code() == ARIL_ERR_MEMORY, "allocation %lld: %s", (long long)n,
                      aril_error());
        aril_clear_error();
        CHECK_MSG(aril__live_blocks() == blocks, "allocation %lld: %lld blocks leaked",
                  (long long)n, (long long)(aril__live_blocks() - blocks));
        CHECK_MSG(aril_memory(test_device()).live == bytes, "allocation %lld: bytes leaked",
                  (long long)n);
        if (!failed) break;
        failures++;
        CHECK(n < 100000);
    }
    CHECK_MSG(failures > 100, "%d", failures);
}

TEST(invalid_module_lists)
{
    CHECK(aril_nn_sequential_of(2, NULL) == NULL);
    CHECK(!aril_ok() && strstr(aril_error(), "2 modules") != NULL);
    aril_clear_error();
    CHECK(aril_nn_concat_of(-1, NULL) == NULL);
    aril_clear_error();
    CHECK(isnan(aril_cost_training(NULL, 1)));
}

TEST(weight_cannot_be_shared_with_an_integer_tensor)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_linear(2, 2);
    aril_tensor *integer = aril_zeros(ARIL_SHAPE(2), ARIL_I64, test_device());
    CHECK_INT(aril_module_share(m, "bias", integer), ARIL_ERR_DTYPE);
    CHECK(strstr(aril_error(), "f32") != NULL && strstr(aril_error(), "i64") != NULL);
    aril_clear_error();
    aril_module_release(m);
}
