/* Layers and containers beyond their values: fused activations, custom classes, sizes, random
 * layers. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
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

/* The largest difference relative to the largest element of b. */
static double distance(aril_tensor *a, aril_tensor *b)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    double size = aril_item(aril_amax(aril_abs(b), ARIL_ALL));
    return aril_item(aril_amax(aril_abs(aril_sub(a, b)), ARIL_ALL)) / (size + 1e-30);
}

enum { MAX_LEAVES = 8 };

/* The result and the gradients of input and parameters for sum(y^2). */
static int run(aril_module *m, aril_tensor *x, aril_tensor **got)
{
    aril_tensor *in = aril_parameter(aril_copy(x)), *leaf[MAX_LEAVES] = { in };
    const aril_named *p = aril_parameters(m);
    for (int i = 0; i < p->n; i++) leaf[i + 1] = p->at[i];
    got[0] = aril_forward(m, in);
    aril_gradients(aril_sum(aril_square(got[0]), ARIL_ALL), (aril_list){ p->n + 1, leaf }, got + 1,
                   (aril_grad_opts){ 0 });
    aril_release(in);
    return p->n + 2;
}

static void watch(aril_module *m, int n_in, aril_tensor *const *in, int n_out, aril_tensor **out,
                  void *ctx)
{
    (void)m;
    (void)n_in;
    (void)in;
    (void)n_out;
    (void)out;
    ++*(int *)ctx;
}

/* A hook between two layers prevents fusing them: results must be the same with and without it.
 * Piecewise linear activations match bit for bit; sigmoid and tanh use another formula when fused,
 * and may differ in the last digits. */
TEST(fused_layers_equal_separate_ones)
{
    ONLY_ON_CPU("activations that its kernels apply");
    static const struct {
        aril_module *(*make)(void);
        bool exact;
    } act[] = { { aril_nn_relu, true },
                { aril_nn_relu6, true },
                { aril_nn_leaky_relu, true },
                { aril_nn_sigmoid, false },
                { aril_nn_tanh, false } };
    for (size_t a = 0; a < sizeof act / sizeof *act; a++) {
        for (int kind = 0; kind < 5; kind++) {
            ARIL_SCOPE;
            aril_seed(4);
            aril_module *layer = kind == 0   ? aril_nn_linear(24, 40)
                                 : kind == 1 ? aril_nn_conv2d(3, 8, 3)
                                 : kind == 2 ? aril_nn_conv_transpose2d(3, 8, 3)
                                 : kind == 3 ? aril_nn_batch_norm2d(3)
                                             : aril_nn_conv1d(3, 8, 3);
            aril_tensor *x = randn(kind == 0   ? ARIL_SHAPE(9, 24)
                                   : kind == 4 ? ARIL_SHAPE(4, 3, 50)
                                               : ARIL_SHAPE(4, 3, 9, 11));
            x = aril_mul_scalar(x, 4);
            aril_module *m = aril_nn_sequential(layer, act[a].make());
            aril_tensor *fused[MAX_LEAVES + 2], *apart[MAX_LEAVES + 2];
            int calls = 0, n = run(m, x, fused);
            CHECK(aril_module_hook_after(layer, watch, &calls) > 0);
            run(m, x, apart);
            CHECK_INT(calls, 1);
            for (int i = 0; i < n; i++)
                CHECK_MSG(act[a].exact ? equal(fused[i], apart[i])
                                       : distance(fused[i], apart[i]) < 1e-6,
                          "%s, layer %d: tensor %d differs by %g", aril_module_type(m), kind, i,
                          distance(fused[i], apart[i]));
            aril_module_release(m);
        }
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* A class with two inputs and two results, and a parameter created in the first forward. */
typedef struct mix {
    bool destroyed;
    bool *freed;
} mix;

static aril_status mix_build(aril_module *self, int n_in, aril_tensor *const *in)
{
    if (n_in != 2) return ARIL_ERR_ARG;
    aril_shape shape = ARIL_SHAPE(aril_size(in[0], -1));
    aril_tensor *scale = aril_ones(shape, aril_dtype_of(in[0]), aril_device_of(in[0]));
    return aril_tensor_status(aril_module_parameter(self, "scale", scale));
}

static void mix_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                        aril_tensor **out)
{
    (void)n_in;
    aril_tensor *scale = aril_module_own(self, 0);
    aril_tensor *sum = aril_add(in[0], in[1]);
    out[0] = aril_mul(sum, scale);
    if (n_out > 1) out[1] = aril_sub(in[0], in[1]);
}

static void mix_destroy(aril_module *self)
{
    mix *m = aril_module_data(self);
    *m->freed = true;
}

TEST(classes_with_several_inputs_and_outputs)
{
    static const aril_module_class type = { .type = "Mix",
                                            .size = sizeof(mix),
                                            .forward = mix_forward,
                                            .build = mix_build,
                                            .destroy = mix_destroy,
                                            .inputs = 2,
                                            .outputs = 2 };
    ARIL_SCOPE;
    bool gone = false;
    aril_module *m = aril_module_make(&type);
    ((mix *)aril_module_data(m))->freed = &gone;
    aril_tensor *a = randn(ARIL_SHAPE(2, 3)), *b = randn(ARIL_SHAPE(2, 3)), *out[3];
    CHECK(!aril_module_built(m));
    CHECK_INT(aril_forward_all(m, ARIL_LIST(a, b), 3, out), ARIL_OK);
    CHECK(equal(out[0], aril_add(a, b)) && equal(out[1], aril_sub(a, b)) && !out[2]);
    CHECK(equal(aril_forward_n(m, ARIL_LIST(a, b)), out[0]));
    CHECK_INT(aril_parameters(m)->n, 1);
    CHECK_STR(aril_parameters(m)->name[0], "scale");
    CHECK(aril_forward_all(m, ARIL_LIST(a, b, a), 1, out) < 0);
    CHECK_MSG(strstr(aril_error(), "Mix: expected at most 2 inputs"), "%s", aril_error());
    aril_clear_error();
    CHECK(aril_tensor_status(aril_forward(m, a)) < 0); /* in[1] is NULL, not what follows a */
    CHECK_MSG(strstr(aril_error(), "Mix: add: "), "%s", aril_error());
    aril_clear_error();
    aril_module_release(m);
    CHECK(gone);
}

static aril_tensor *nothing(aril_module *self, aril_tensor *x)
{
    (void)self;
    (void)x;
    return NULL;
}

static aril_tensor *all_of_them(aril_module *self, aril_list in)
{
    (void)self;
    aril_tensor *sum = in.at[0];
    for (int i = 1; i < in.n; i++) sum = aril_add(sum, in.at[i]);
    return sum;
}

TEST(short_classes)
{
    ARIL_SCOPE;
    aril_tensor *x = randn(ARIL_SHAPE(3));
    aril_module *m = aril_module_new("Nothing", 0, nothing);
    CHECK(aril_tensor_status(aril_forward(m, x)) == ARIL_ERR_STATE &&
          strstr(aril_error(), "no result"));
    aril_clear_error();
    aril_module_release(m);
    m = aril_module_new_n("Sum", 0, all_of_them);
    CHECK(equal(aril_forward_n(m, ARIL_LIST(x, x, x, x)), aril_mul_scalar(x, 4)));
    CHECK(aril_forward(m, x) == x); /* an input may be returned as the result */
    aril_module_release(m);
    CHECK(!aril_module_new("Missing", 0, NULL) && !aril_ok());
    aril_clear_error();
}

static aril_tensor *times(aril_tensor *x, void *ctx)
{
    return aril_mul_scalar(x, *(double *)ctx);
}

TEST(containers)
{
    ARIL_SCOPE;
    double two = 2;
    aril_module *list = aril_nn_list(aril_nn_linear(2, 3), aril_nn_lambda(times, &two));
    CHECK(aril_nn_append(list, aril_nn_relu()) && aril_module_children(list) == 3);
    CHECK_STR(aril_module_child_name(list, 2), "2");
    aril_tensor *x = randn(ARIL_SHAPE(1, 2));
    CHECK(aril_tensor_status(aril_forward(list, x)) == ARIL_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(aril_error(), "ModuleList"), "%s", aril_error());
    aril_clear_error();
    CHECK(equal(aril_forward(aril_module_child(list, 1), x), aril_mul_scalar(x, 2)));
    aril_module *dict = aril_nn_dict();
    aril_module_add(dict, "encoder", list);
    CHECK_STR(aril_parameters(dict)->name[1], "encoder.0.bias");
    aril_module_release(dict);

    CHECK(!aril_nn_residual(aril_nn_linear(-1, 2)) && !aril_ok());
    aril_clear_error();
    CHECK(!aril_nn_residual_with(aril_nn_linear(2, 2), NULL) && !aril_ok());
    aril_clear_error();
    aril_module *none = aril_nn_concat();
    CHECK(aril_tensor_status(aril_forward(none, x)) < 0);
    aril_clear_error();
    aril_module_release(none);
    aril_module *same = aril_nn_sequential(aril_nn_identity(), aril_nn_dropout(0));
    CHECK(aril_forward(aril_module_child(same, 0), x) == x && equal(aril_forward(same, x), x));
    aril_module_release(same);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(random_layers)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(20, 50, 4), ARIL_F32, test_device());
    aril_module *m = aril_nn_dropout(0.25);
    aril_tensor *y = aril_forward(m, x);
    CHECK_NEAR(aril_item(aril_mean(aril_cast(aril_eq_scalar(y, 0), ARIL_F32), ARIL_ALL)), 0.25,
               0.04);
    CHECK_NEAR(aril_item(aril_amax(y, ARIL_ALL)), 1 / 0.75, 1e-6);
    aril_module_eval(m);
    CHECK(equal(aril_forward(m, x), x));
    aril_module_release(m);
    m = aril_nn_dropout1d(0.5); /* whole channels */
    y = aril_sum(aril_forward(m, x), ARIL_AXES(2));
    CHECK(aril_item_int(
        aril_all(aril_logical_or(aril_eq_scalar(y, 0), aril_eq_scalar(y, 8)), ARIL_ALL)));
    aril_module_release(m);
    m = aril_nn_rrelu();
    y = aril_forward(m, aril_neg(x));
    CHECK(aril_item(aril_amin(y, ARIL_ALL)) >= -1.0 / 3 - 1e-6 &&
          aril_item(aril_amax(y, ARIL_ALL)) <= -1.0 / 8 + 1e-6);
    CHECK_NEAR(aril_item(aril_mean(y, ARIL_ALL)), -(1.0 / 3 + 1.0 / 8) / 2, 0.01);
    CHECK(equal(aril_forward(m, x), x));
    aril_module_release(m);
    CHECK(!aril_nn_dropout(1.5) && !aril_ok());
    aril_clear_error();
}

TEST(invalid_options_are_rejected)
{
    aril_module *bad[] = {
        aril_nn_conv2d(3, 4, 0),
        aril_nn_conv2d(3, -4, 3),
        aril_nn_conv2d_with(3, 4, 3, (aril_nn_conv_opts){ .groups = 2 }),
        aril_nn_conv2d_with(3, 4, 3, (aril_nn_conv_opts){ .stride = { -1 } }),
        aril_nn_conv_transpose2d_with(3, 4, 3,
                                      (aril_nn_conv_opts){ .padding_mode = ARIL_PAD_REFLECT }),
        aril_nn_max_pool2d(0),
        aril_nn_max_pool2d_with(2, (aril_pool_opts){ .padding = { -1 } }),
        aril_nn_adaptive_avg_pool2d(0),
        aril_nn_adaptive_avg_pool2d_with(ARIL_SHAPE(2)),
        aril_nn_batch_norm2d(-1),
        aril_nn_layer_norm_with(ARIL_SHAPE(), (aril_nn_norm_opts){ 0 }),
        aril_nn_group_norm(4, 6),
        aril_nn_group_norm(0, 6),
        aril_nn_local_response_norm(0),
        aril_nn_prelu_with(0, 1),
        aril_nn_embedding(0, 4),
        aril_nn_embedding_with(3, 4, (aril_nn_embedding_opts){ .padding_idx = 3 }),
        aril_nn_unflatten(1, ARIL_SHAPE()),
        aril_nn_zero_pad2d(ARIL_PADS(1, 2)),
        aril_nn_lambda(NULL, NULL),
        aril_nn_bilinear(1, 1, 0),
        aril_nn_upsample_with((aril_interpolate_opts){ .mode = (aril_interpolation)9 }),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK_MSG(!bad[i], "%zu was accepted", i);
    CHECK(!aril_ok());
    aril_clear_error();
}

TEST(wrong_inputs_name_their_layer)
{
    ARIL_SCOPE;
    static const struct {
        const char *text;
        int64_t dim[2];
    } want = { "2 (BatchNorm2d): the input has 2 dimensions", { 3, 4 } };
    aril_module *m =
        aril_nn_sequential(aril_nn_relu(), aril_nn_identity(), aril_nn_batch_norm2d(4));
    aril_forward(m, randn(ARIL_SHAPE(want.dim[0], want.dim[1])));
    CHECK_MSG(strncmp(aril_error(), want.text, strlen(want.text)) == 0, "%s", aril_error());
    aril_clear_error();
    aril_module_release(m);
    m = aril_nn_glu(1);
    CHECK_INT(aril_tensor_status(aril_forward(m, randn(ARIL_SHAPE(2, 3)))), ARIL_ERR_SHAPE);
    aril_clear_error();
    aril_module_release(m);
    m = aril_nn_layer_norm(0); /* a size that cannot be inferred stays open */
    CHECK_INT(aril_tensor_status(aril_forward(m, aril_scalar(1))), ARIL_ERR_SHAPE);
    CHECK(!aril_module_built(m));
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_forward(m, randn(ARIL_SHAPE(2, 3)))), ARIL_OK);
    aril_module_release(m);
}

/* One network in evaluation mode, run by several threads concurrently. */
typedef struct job {
    aril_module *m;
    float x[4 * 12], y[4 * 3];
} job;

static void *evaluate(void *arg)
{
    job *j = arg;
    for (int i = 0; i < 50; i++) {
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        aril_tensor *x = aril_from(j->x, ARIL_SHAPE(4, 12), ARIL_F32, test_device());
        aril_read(aril_forward(j->m, x), j->y);
    }
    return NULL;
}

TEST(threads_share_a_network)
{
    aril_module *m = aril_nn_sequential(aril_nn_linear(12, 20), aril_nn_relu(),
                                        aril_nn_dropout(0.5), aril_nn_linear(20, 3));
    aril_module_eval(m);
    static job all[4];
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        all[i].m = m;
        for (int k = 0; k < 48; k++) all[i].x[k] = (float)(k + i) * 0.1F;
        CHECK(pthread_create(&thread[i], NULL, evaluate, &all[i]) == 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++) {
        float seen[12];
        memcpy(seen, all[i].y, sizeof seen);
        evaluate(&all[i]);
        CHECK(memcmp(seen, all[i].y, sizeof seen) == 0);
    }
    aril_module_release(m);
}
