/* One trace of a training step with unknown batch size replays at any batch size: forward, backward
 * and update match eager mode. */
#include <aril/aril.h>

#include "support/heap_device.h"
#include "support/recorder.h"
#include "support/test.h"

#include <string.h>

enum { D = 6, H = 8, C = 3 };

typedef struct net {
    aril_tensor *w1, *b1, *gamma, *beta, *mean, *var, *w2, *b2;
} net;

static aril_tensor *weight(int64_t rows, int64_t columns)
{
    aril_shape s = columns ? ARIL_SHAPE(rows, columns) : ARIL_SHAPE(rows);
    return aril_parameter(aril_mul_scalar(aril_randn(s, ARIL_F32, aril_cpu()), 0.5));
}

static net net_new(void)
{
    ARIL_SCOPE;
    aril_seed(7);
    return (net){ .w1 = weight(H, D),
                  .b1 = weight(H, 0),
                  .gamma = aril_parameter(aril_ones(ARIL_SHAPE(H), ARIL_F32, aril_cpu())),
                  .beta = weight(H, 0),
                  .mean = aril_keep(aril_zeros(ARIL_SHAPE(H), ARIL_F32, aril_cpu())),
                  .var = aril_keep(aril_ones(ARIL_SHAPE(H), ARIL_F32, aril_cpu())),
                  .w2 = weight(C, H),
                  .b2 = weight(C, 0) };
}

static void net_free(net *n)
{
    aril_tensor *all[] = { n->w1, n->b1, n->gamma, n->beta, n->mean, n->var, n->w2, n->b2 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) aril_release(all[i]);
}

/* Forward, backward, update; returns the loss. */
static aril_tensor *step(net *n, aril_tensor *x, aril_tensor *y)
{
    aril_tensor *h = aril_linear(x, n->w1, n->b1);
    h = aril_batch_norm(h, n->gamma, n->beta, n->mean, n->var, (aril_batch_norm_opts){ 0 });
    h = aril_relu(h);
    /* the same mask at each step: the trace holds its key as a constant */
    aril_generator *g = aril_generator_new(3);
    h = aril_dropout_from(g, h, 0.25, (aril_dropout_opts){ 0 });
    aril_generator_free(g);
    /* an intermediate write through a view */
    h = aril_mul_scalar(h, 1);
    aril_mul_scalar_(aril_slice(h, 1, 0, 2, 1), 0.5);
    aril_tensor *logits = aril_linear(h, n->w2, n->b2);
    aril_tensor *loss = aril_cross_entropy(logits, y);
    loss = aril_add(loss, aril_mul_scalar(aril_mean(aril_square(aril_softmax(logits, 1)), ARIL_ALL),
                                          0.1));
    aril_backward(loss);
    ARIL_NO_GRAD;
    aril_tensor *all[] = { n->w1, n->b1, n->gamma, n->beta, n->w2, n->b2 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        aril_sub_(all[i], aril_mul_scalar(aril_grad(all[i]), 0.1));
        aril_zero_grad(all[i]);
    }
    return loss;
}

static void check_same(aril_tensor *a, aril_tensor *b)
{
    ARIL_SCOPE;
    CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(a, b)), ARIL_ALL)), 0, 1e-6);
}

TEST(training_step_replays_with_another_batch_size)
{
    ARIL_SCOPE;
    net eager = net_new(), traced = net_new();
    recorder *r = recorder_new();
    aril_tensor *loss;
    {
        ARIL_SCOPE;
        aril_tensor *x = recorder_input(r, ARIL_SHAPE(-1, D), ARIL_F32);
        aril_tensor *y = recorder_input(r, ARIL_SHAPE(-1), ARIL_I64);
        recorder_begin(r);
        loss = aril_escape(step(&traced, x, y));
        recorder_end(r);
    }
    CHECK_INT(aril_tensor_status(loss), ARIL_OK);
    CHECK_STR(aril_error(), "");
    CHECK(recorder_count(r) > 20);
    check_same(eager.w1, traced.w1); /* nothing has run yet */
    for (int k = 0; k < 4; k++) {
        ARIL_SCOPE;
        int64_t batch = (int64_t[]){ 4, 9, 2, 17 }[k];
        aril_tensor *x = aril_randn(ARIL_SHAPE(batch, D), ARIL_F32, aril_cpu());
        aril_tensor *y = aril_randint(0, C, ARIL_SHAPE(batch), ARIL_I64, aril_cpu());
        aril_tensor *played = recorder_play(r, ARIL_LIST(x, y), loss);
        CHECK_INT(aril_tensor_status(played), ARIL_OK);
        aril_tensor *ran = step(&eager, x, y);
        CHECK_STR(aril_error(), "");
        CHECK_NEAR(aril_item(played), aril_item(ran), 1e-6);
        check_same(eager.w1, traced.w1);
        check_same(eager.gamma, traced.gamma);
        check_same(eager.mean, traced.mean);
        check_same(eager.var, traced.var);
        check_same(eager.w2, traced.w2);
        check_same(eager.b2, traced.b2);
    }
    recorder_free(r);
    net_free(&eager);
    net_free(&traced);
}

/* ---- the same for a convolutional network ---- */

typedef struct convnet {
    aril_tensor *param[6]; /* conv, gamma, beta, second conv, linear weight, bias */
    aril_tensor *mean, *var;
} convnet;

static aril_tensor *small(aril_shape shape)
{
    return aril_parameter(aril_mul_scalar(aril_randn(shape, ARIL_F32, aril_cpu()), 0.3));
}

static convnet convnet_new(void)
{
    ARIL_SCOPE;
    aril_seed(11);
    return (convnet){ .param = { small(ARIL_SHAPE(4, 2, 3, 3)),
                                 aril_parameter(aril_ones(ARIL_SHAPE(4), ARIL_F32, aril_cpu())),
                                 small(ARIL_SHAPE(4)), small(ARIL_SHAPE(6, 4, 3, 3)),
                                 small(ARIL_SHAPE(C, 6 * 2 * 2)), small(ARIL_SHAPE(C)) },
                      .mean = aril_keep(aril_zeros(ARIL_SHAPE(4), ARIL_F32, aril_cpu())),
                      .var = aril_keep(aril_ones(ARIL_SHAPE(4), ARIL_F32, aril_cpu())) };
}

static aril_tensor *convnet_step(convnet *n, aril_tensor *x, aril_tensor *y)
{
    aril_tensor *const *p = n->param;
    aril_tensor *h =
        aril_conv2d(x, p[0], NULL, (aril_conv_opts){ .padding = { 1, 1 } }); /* [N,4,8,8] */
    h = aril_relu(aril_batch_norm(h, p[1], p[2], n->mean, n->var, (aril_batch_norm_opts){ 0 }));
    h = aril_max_pool2d(h, (aril_pool_opts){ .kernel = { 2 } }, NULL); /* [N,4,4,4] */
    h = aril_tanh(aril_conv2d(h, p[3], NULL, (aril_conv_opts){ 0 }));  /* [N,6,2,2] */
    h = aril_layer_norm(h, NULL, NULL, ARIL_SHAPE(6, 2, 2), (aril_norm_opts){ 0 });
    aril_tensor *logits = aril_linear(aril_flatten(h, 1, -1), p[4], p[5]); /* [N,C] */
    aril_tensor *top = aril_max(logits, ARIL_AXES(1), NULL);               /* [N] */
    aril_tensor *loss =
        aril_add(aril_cross_entropy(logits, y), aril_mul_scalar(aril_mean(top, ARIL_ALL), 0.01));
    aril_backward(loss);
    ARIL_NO_GRAD;
    for (int i = 0; i < 6; i++) {
        aril_sub_(p[i], aril_mul_scalar(aril_grad(p[i]), 0.1));
        aril_zero_grad(p[i]);
    }
    return loss;
}

TEST(convnet_replays_with_another_batch_size)
{
    ARIL_SCOPE;
    convnet eager = convnet_new(), traced = convnet_new();
    recorder *r = recorder_new();
    aril_tensor *loss;
    {
        ARIL_SCOPE;
        aril_tensor *x = recorder_input(r, ARIL_SHAPE(-1, 2, 8, 8), ARIL_F32);
        aril_tensor *y = recorder_input(r, ARIL_SHAPE(-1), ARIL_I64);
        recorder_begin(r);
        loss = aril_escape(convnet_step(&traced, x, y));
        recorder_end(r);
    }
    CHECK_STR(aril_error(), "");
    for (int k = 0; k < 3; k++) {
        ARIL_SCOPE;
        int64_t batch = (int64_t[]){ 3, 8, 5 }[k];
        aril_tensor *x = aril_randn(ARIL_SHAPE(batch, 2, 8, 8), ARIL_F32, aril_cpu());
        aril_tensor *y = aril_randint(0, C, ARIL_SHAPE(batch), ARIL_I64, aril_cpu());
        aril_tensor *played = recorder_play(r, ARIL_LIST(x, y), loss),
                    *ran = convnet_step(&eager, x, y);
        CHECK_STR(aril_error(), "");
        CHECK_NEAR(aril_item(played), aril_item(ran), 1e-6);
        for (int i = 0; i < 6; i++) check_same(eager.param[i], traced.param[i]);
        check_same(eager.mean, traced.mean);
        check_same(eager.var, traced.var);
    }
    recorder_free(r);
    for (int i = 0; i < 6; i++) {
        aril_release(eager.param[i]);
        aril_release(traced.param[i]);
    }
    aril_tensor *state[] = { eager.mean, eager.var, traced.mean, traced.var };
    for (int i = 0; i < 4; i++) aril_release(state[i]);
}

/* A trace must know what changes between its runs: an optimizer's numbers and the keys of random
 * ops do, constants do not. */
TEST(trace_tells_kinds_of_numbers_apart)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(D), ARIL_F32, aril_cpu()));
    aril_optim *o = aril_adam(ARIL_TENSORS(w), (aril_adam_opts){ .lr = 0.5 });
    recorder *r = recorder_new();
    aril_tensor *loss;
    {
        ARIL_SCOPE;
        aril_tensor *x = recorder_input(r, ARIL_SHAPE(-1, D), ARIL_F32);
        recorder_begin(r);
        aril_tensor *h = aril_dropout(aril_mul(x, w), 0.5, (aril_dropout_opts){ 0 });
        h = aril_dropout(aril_add_scalar(h, 3), 0.5, (aril_dropout_opts){ 0 });
        loss = aril_escape(aril_sum(h, ARIL_ALL));
        aril_backward(loss);
        CHECK_INT(aril_step(o), ARIL_OK);
        recorder_end(r);
    }
    CHECK_STR(aril_error(), "");
    CHECK_INT(recorder_numbers(r, ARIL__KEY), 2);      /* forward and backward share each */
    CHECK_INT(recorder_numbers(r, ARIL__STATE), 2);    /* learning rate and step count */
    CHECK_INT(recorder_numbers(r, ARIL__CONSTANT), 2); /* 3, and 1 added to the step count */
    CHECK_INT(recorder_numbers(r, 0), 3);              /* w and two moments */
    /* A run reads state as it is then. */
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, D), ARIL_F32, aril_cpu());
    aril_optim_set_lr(o, 0);
    recorder_play(r, ARIL_LIST(x), loss);
    CHECK_NEAR(aril_item(aril_amin(w, ARIL_ALL)), 1, 0);
    CHECK_STR(aril_error(), "");
    recorder_free(r);
    aril_optim_free(o);
    aril_release(w);
}

/* ---- what a trace knows of its values ---- */

/* A device without kernels. */
static aril_device elsewhere(void)
{
    static aril__device *d;
    if (!d) d = test_device_add("elsewhere", 3, &test_heap_ops);
    return d->id;
}

TEST(symbolic_tensors_have_a_device)
{
    ARIL_SCOPE;
    recorder *r = recorder_new();
    aril_tensor *like = aril_empty(ARIL_SHAPE(2, 3), ARIL_F32, elsewhere());
    aril_tensor *x = recorder_input_like(r, ARIL_SHAPE(-1, 3), like);
    aril_tensor *y = recorder_input(r, ARIL_SHAPE(-1, 3), ARIL_F32);
    recorder_begin(r);
    CHECK(aril_device_equal(aril_device_of(x), elsewhere()));
    CHECK(aril_device_equal(aril_device_of(y), aril_cpu()));
    aril_tensor *z =
        aril_add_scalar_(aril_mul_scalar(aril_t(x), 2), 1); /* a write counts versions */
    CHECK(aril_device_equal(aril_device_of(z), elsewhere()));
    CHECK(aril_device_equal(aril_device_of(aril_rand_like(z)), elsewhere()));
    CHECK(aril_device_equal(aril_device_of(aril_detach(z)), elsewhere()));
    CHECK(aril_device_equal(aril_device_of(aril_to(z, aril_cpu())), aril_cpu()));
    CHECK(aril_to(z, elsewhere()) == z);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK_INT(aril_tensor_status(aril_add(x, y)), ARIL_ERR_DEVICE);
    CHECK(strstr(aril_error(), "elsewhere:3") && strstr(aril_error(), "cpu"));
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_add(x, like)), ARIL_OK);
    CHECK_INT(aril_tensor_status(aril_add(y, like)), ARIL_ERR_DEVICE);
    aril_clear_error();
    recorder_end(r);
    recorder_free(r);
}

TEST(symbolic_tensors_have_a_memory_order)
{
    ARIL_SCOPE;
    recorder *r = recorder_new();
    aril_tensor *image =
        aril_channels_last(aril_zeros(ARIL_SHAPE(2, 3, 4, 5), ARIL_F32, aril_cpu()));
    aril_tensor *x = recorder_input_like(r, ARIL_SHAPE(-1, 3, -1, -1), image);
    aril_tensor *y = recorder_input(r, ARIL_SHAPE(-1, -1, 4), ARIL_F32);
    recorder_begin(r);
    CHECK(aril_is_channels_last(x) && !aril_is_contiguous(x));
    CHECK(aril_is_channels_last(aril_relu(x)));
    CHECK(aril_is_contiguous(aril_permute(x, ARIL_AXES(0, 2, 3, 1))));
    CHECK(aril_is_contiguous(y) && !aril_is_channels_last(y));
    aril_tensor *t = aril_transpose(y, 0, 1);
    CHECK(!aril_is_contiguous(t) && aril_is_contiguous(aril_transpose(t, 0, 1)));
    CHECK(!aril_is_contiguous(aril_exp(t)));
    /* Views where they are possible, copies where they are not. */
    int n = recorder_count(r);
    aril_tensor *flat = aril_flatten(y, 0, 1);
    CHECK_INT(recorder_count(r), n + 1);
    CHECK(aril_is_contiguous(flat));
    aril_tensor *split = aril_reshape(t, ARIL_SHAPE(aril_size(t, 0), aril_size(t, 1), 2, 2));
    CHECK_INT(recorder_count(r), n + 2);
    CHECK(!aril_is_contiguous(split) && aril_is_contiguous(aril_transpose(split, 0, 1)));
    n = recorder_count(r);
    CHECK(aril_is_contiguous(aril_flatten(t, 0, 1)));
    CHECK_STR(recorder_name(r, n), "contiguous");
    CHECK_MSG(aril_ok(), "%s", aril_error());
    recorder_end(r);
    recorder_free(r);
}

/* A recorded conversion is one in each run. */
TEST(channels_last_is_recorded)
{
    ARIL_SCOPE;
    recorder *r = recorder_new();
    aril_tensor *in[3], *out[3];
    recorder_begin(r);
    for (int k = 0; k < 3; k++) {
        aril_shape shape = { .ndim = 3 + k, .dim = { -1, 3, -1, -1, 2 } };
        in[k] = recorder_input(r, shape, ARIL_F32);
        out[k] = aril_channels_last(in[k]);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        CHECK(out[k] != in[k] && aril_is_channels_last(out[k]) && !aril_is_contiguous(out[k]));
        CHECK(aril_channels_last(out[k]) == out[k]);
        for (int d = 0; d < 3 + k; d++) CHECK_INT(aril_size(out[k], d), aril_size(in[k], d));
    }
    recorder_end(r);
    for (int64_t n = 2; n < 4; n++) {
        aril_tensor *x[3], *got[3];
        for (int k = 0; k < 3; k++) {
            aril_shape shape = { .ndim = 3 + k, .dim = { n, 3, n + 2, n + 1, 2 } };
            x[k] = aril_randn(shape, ARIL_F32, aril_cpu());
        }
        CHECK_INT(recorder_values(r, (aril_list){ 3, x }, (aril_list){ 3, out }, got), ARIL_OK);
        for (int k = 0; k < 3; k++) {
            CHECK(aril_is_channels_last(got[k]) && !aril_is_contiguous(got[k]));
            check_same(got[k], x[k]);
        }
    }
    recorder_free(r);
}

#define SAME_SHAPE(t, ...)                                                              \
    do {                                                                                \
        aril_shape want_ = ARIL_SHAPE(__VA_ARGS__), got_ = aril_shape_of(t);            \
        CHECK_MSG(aril_ok(), "%s", aril_error());                                       \
        CHECK_INT(got_.ndim, want_.ndim);                                               \
        for (int d_ = 0; d_ < want_.ndim; d_++) CHECK_INT(got_.dim[d_], want_.dim[d_]); \
    } while (0)

TEST(unknown_sizes_have_an_identity)
{
    ARIL_SCOPE;
    recorder *r = recorder_new();
    int64_t n = recorder_size(r, "N"), t = recorder_size(r, "T");
    aril_tensor *x = recorder_input(r, ARIL_SHAPE(n, t, D), ARIL_F32);
    aril_tensor *y = recorder_input(r, ARIL_SHAPE(-1, t, D), ARIL_F32);
    recorder_begin(r);
    int64_t other = aril_size(y, 0);
    CHECK(other < -1 && other != n);
    CHECK_INT(aril_numel(x), -1);
    SAME_SHAPE(aril_mul(x, aril_zeros(ARIL_SHAPE(t, 1), ARIL_F32, aril_cpu())), n, t, D);
    /* merged and split again */
    aril_tensor *flat = aril_flatten(x, 0, 1);
    SAME_SHAPE(aril_reshape(x, ARIL_SHAPE(-1, D)), aril_size(flat, 0), D);
    SAME_SHAPE(aril_reshape(flat, ARIL_SHAPE(n, -1, D)), n, t, D);
    SAME_SHAPE(aril_reshape(flat, aril_shape_of(x)), n, t, D);
    SAME_SHAPE(aril_reshape(x, ARIL_SHAPE(n, t, 2, -1)), n, t, 2, D / 2);
    SAME_SHAPE(aril_transpose(aril_matmul(x, aril_transpose(x, 1, 2)), 0, 1), t, n, t);
    SAME_SHAPE(aril_arange(0, t, 1, ARIL_I64, aril_cpu()), t);
    /* sizes that are the same function of the same sizes */
    aril_tensor *half = aril_slice(x, 1, 0, ARIL_END, 2);
    CHECK(aril_size(half, 1) < -1 && aril_size(half, 1) != t);
    CHECK_INT(aril_size(aril_slice(y, 1, 0, ARIL_END, 2), 0), other);
    CHECK_INT(aril_size(aril_slice(aril_exp(x), 1, 0, ARIL_END, 2), 1), aril_size(half, 1));
    aril_tensor *joined = aril_cat(ARIL_LIST(x, x), 1);
    CHECK_INT(aril_size(aril_cat(ARIL_LIST(x, x), 1), 1), aril_size(joined, 1));
    CHECK(aril_size(joined, 1) != t);
    /* value-dependent sizes are new each time */
    aril_tensor *at = aril_nonzero(aril_flatten(x, 0, -1));
    CHECK(aril_size(at, 0) != aril_size(aril_nonzero(aril_flatten(x, 0, -1)), 0));
    CHECK_MSG(aril_ok(), "%s", aril_error());
    /* messages name them */
    CHECK_INT(aril_tensor_status(aril_reshape(x, ARIL_SHAPE(n, t, 7))), ARIL_ERR_SHAPE);
    CHECK_MSG(strstr(aril_error(), "[N,T,6]") && strstr(aril_error(), "[N,T,7]"), "%s",
              aril_error());
    aril_clear_error();
    CHECK_INT(aril_tensor_status(
                  aril_matmul(y, aril_zeros(ARIL_SHAPE(5, 2), ARIL_F32, aril_cpu()))),
              ARIL_ERR_SHAPE);
    CHECK_MSG(strstr(aril_error(), "[?,T,6]"), "%s", aril_error());
    aril_clear_error();
    recorder_end(r);
    /* outside a trace they are not sizes */
    CHECK_INT(aril_tensor_status(aril_zeros(ARIL_SHAPE(n), ARIL_F32, aril_cpu())), ARIL_ERR_SHAPE);
    aril_clear_error();
    recorder_free(r);
}

/* Sizes that the program passed on, in attributes, are those of each run. */
TEST(sizes_in_attributes_are_those_of_the_run)
{
    ARIL_SCOPE;
    recorder *r = recorder_new();
    aril_tensor *table = aril_randn(ARIL_SHAPE(10, D), ARIL_F32, aril_cpu()), *y;
    {
        ARIL_SCOPE;
        aril_tensor *x = recorder_input(r, ARIL_SHAPE(-1, -1, D), ARIL_F32);
        recorder_begin(r);
        int64_t n = aril_size(x, 0), t = aril_size(x, 1);
        aril_tensor *positions = aril_arange(0, t, 1, ARIL_I64, aril_cpu());
        y = aril_add(x, aril_index_select(table, positions, 0));
        y = aril_mul(y, aril_expand(aril_ones(ARIL_SHAPE(t, 1), ARIL_F32, aril_cpu()),
                                    ARIL_SHAPE(n, t, D)));
        y = aril_escape(aril_reshape(aril_transpose(y, 0, 1), ARIL_SHAPE(t, n, 2, D / 2)));
        recorder_end(r);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
    for (int k = 0; k < 3; k++) {
        int64_t n = (int64_t[]){ 2, 3, 1 }[k], t = (int64_t[]){ 4, 7, 1 }[k];
        aril_tensor *x = aril_randn(ARIL_SHAPE(n, t, D), ARIL_F32, aril_cpu());
        aril_tensor *got = recorder_play(r, ARIL_LIST(x), y);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        aril_tensor *want = aril_add(x, aril_slice(table, 0, 0, t, 1));
        want = aril_reshape(aril_transpose(want, 0, 1), ARIL_SHAPE(t, n, 2, D / 2));
        check_same(got, want);
    }
    recorder_free(r);
}

/* Sizes 2 H and 2 W occur in an attribute before any tensor has them. */
TEST(products_in_attributes_are_those_of_the_run)
{
    ARIL_SCOPE;
    recorder *r = recorder_new();
    aril_tensor *y;
    {
        ARIL_SCOPE;
        aril_tensor *x = recorder_input(r, ARIL_SHAPE(-1, 4, -1, -1), ARIL_F32);
        recorder_begin(r);
        y = aril_escape(aril_pixel_shuffle(x, 2));
        recorder_end(r);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
    for (int k = 1; k < 4; k++) {
        aril_tensor *x = aril_randn(ARIL_SHAPE(k, 4, 2 * k, 5 - k), ARIL_F32, aril_cpu());
        check_same(recorder_play(r, ARIL_LIST(x), y), aril_pixel_shuffle(x, 2));
        CHECK_MSG(aril_ok(), "%s", aril_error());
    }
    recorder_free(r);
}

TEST(unknown_sizes_are_no_numbers)
{
    ARIL_SCOPE;
    recorder *r = recorder_new();
    aril_tensor *x = recorder_input(r, ARIL_SHAPE(-1, 3), ARIL_F32);
    recorder_begin(r);
    aril_tensor *bad[] = { aril_div_scalar(x, aril_size(x, 0)),
                           aril_mul_scalar(x, (double)aril_size(x, 0)),
                           aril_add_scalar_(aril_relu(x), aril_size(x, 0)) };
    recorder_end(r);
    for (int i = 0; i < 3; i++) CHECK_INT(aril_tensor_status(bad[i]), ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), "a size that is unknown"), "%s", aril_error());
    aril_clear_error();
    recorder_free(r);
}

TEST(symbolic_tensors_have_no_value)
{
    ARIL_SCOPE;
    recorder *r = recorder_new();
    aril_tensor *x = recorder_input(r, ARIL_SHAPE(-1, 3), ARIL_F32);
    CHECK(aril_size(x, 0) < 0);
    CHECK_INT(aril_numel(x), -1);
    aril_item(x);
    CHECK_INT(aril_error_code(), ARIL_ERR_STATE);
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_tanh(x)), ARIL_ERR_STATE); /* outside its graph */
    aril_clear_error();
    recorder_free(r);
}
