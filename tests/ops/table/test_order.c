/* Channels-last: tensors stay channels-last through every op that can preserve it, forward and
 * backward, with the same values as contiguous ones. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>

static aril_tensor *normal(aril_shape shape, uint64_t seed)
{
    aril_seed(seed);
    return aril_randn(shape, ARIL_F32, aril_cpu());
}

static double worst(aril_tensor *a, aril_tensor *b)
{
    return aril_item(aril_amax(aril_abs(aril_sub(a, b)), ARIL_ALL));
}

/* ---- one op at a time ---- */

static aril_tensor *weight, *vector, *other;

#define OPTS(type, ...) ((type){ __VA_ARGS__ })

static aril_tensor *relu(aril_tensor *x)
{
    return aril_relu(x);
}
static aril_tensor *scaled(aril_tensor *x)
{
    return aril_add_scalar(aril_mul_scalar(x, 3), 1);
}
static aril_tensor *added(aril_tensor *x)
{
    return aril_add(x, other);
}
static aril_tensor *turned_about(aril_tensor *x)
{
    return aril_mul(aril_contiguous(other), x);
}
static aril_tensor *by_channel(aril_tensor *x)
{
    return aril_mul(x, vector);
}
static aril_tensor *clamped(aril_tensor *x)
{
    return aril_clamp(x, -1, 1);
}
static aril_tensor *where(aril_tensor *x)
{
    return aril_where(aril_gt_scalar(x, 0), x, other);
}
static aril_tensor *cast(aril_tensor *x)
{
    return aril_cast(x, ARIL_F64);
}
static aril_tensor *dropped(aril_tensor *x)
{
    aril_seed(5);
    return aril_dropout(x, 0.25, OPTS(aril_dropout_opts, 0));
}
static aril_tensor *conv(aril_tensor *x)
{
    return aril_conv2d(x, weight, NULL, OPTS(aril_conv_opts, .padding = { 1, 1 }));
}
static aril_tensor *norm(aril_tensor *x)
{
    return aril_batch_norm(x, NULL, NULL, NULL, NULL, OPTS(aril_batch_norm_opts, 0));
}
static aril_tensor *norm_add_relu(aril_tensor *x)
{
    return aril_batch_norm(x, NULL, NULL, NULL, NULL,
                           OPTS(aril_batch_norm_opts, .residual = other, .activation = ARIL_RELU));
}
static aril_tensor *group_norm(aril_tensor *x)
{
    return aril_group_norm(x, NULL, NULL, 2, OPTS(aril_norm_opts, 0));
}
static aril_tensor *max_pool(aril_tensor *x)
{
    return aril_max_pool2d(
        x, OPTS(aril_pool_opts, .kernel = { 3 }, .stride = { 2 }, .padding = { 1, 1 }), NULL);
}
static aril_tensor *max_pool_2x3(aril_tensor *x)
{
    return aril_max_pool2d(x, OPTS(aril_pool_opts, .kernel = { 2, 3 }), NULL);
}
static aril_tensor *max_pool_2(aril_tensor *x)
{
    return aril_max_pool2d(x, OPTS(aril_pool_opts, .kernel = { 2 }), NULL);
}
static aril_tensor *avg_pool(aril_tensor *x)
{
    return aril_avg_pool2d(x, OPTS(aril_pool_opts, .kernel = { 2 }));
}
static aril_tensor *adaptive_avg(aril_tensor *x)
{
    return aril_adaptive_avg_pool2d(x, ARIL_SHAPE(3, 3));
}
static aril_tensor *adaptive_max(aril_tensor *x)
{
    return aril_adaptive_max_pool2d(x, ARIL_SHAPE(3, 3), NULL);
}
static aril_tensor *global_avg(aril_tensor *x)
{
    return aril_global_avg_pool(x);
}
static aril_tensor *mean(aril_tensor *x)
{
    return aril_mean(x, ARIL_AXES(2, 3));
}
static aril_tensor *cat(aril_tensor *x)
{
    return aril_cat(ARIL_LIST(x, other), 1);
}
static aril_tensor *pad(aril_tensor *x)
{
    return aril_pad(x, ARIL_PADS(1, 2, 0, 1), OPTS(aril_pad_opts, 0));
}
static aril_tensor *reflect(aril_tensor *x)
{
    return aril_pad(x, ARIL_PADS(1, 2, 0, 1), OPTS(aril_pad_opts, .mode = ARIL_PAD_REFLECT));
}
static aril_tensor *nearest(aril_tensor *x)
{
    return aril_interpolate(x, OPTS(aril_interpolate_opts, .scale = { 2 }));
}
static aril_tensor *bilinear(aril_tensor *x)
{
    return aril_interpolate(x, OPTS(aril_interpolate_opts, .scale = { 1.5 }, .mode = ARIL_LINEAR));
}
static aril_tensor *bicubic(aril_tensor *x)
{
    return aril_interpolate(x, OPTS(aril_interpolate_opts, .size = { 5, 11 }, .mode = ARIL_CUBIC));
}

static const struct {
    const char *name;
    aril_tensor *(*run)(aril_tensor *x);
    bool flat; /* the result has no memory format to preserve */
} ops[] = {
    { "relu", relu, false },
    { "scalars", scaled, false },
    { "add", added, false },
    { "mul of the other order", turned_about, false },
    { "a value for each channel", by_channel, false },
    { "clamp", clamped, false },
    { "where", where, false },
    { "cast", cast, false },
    { "dropout", dropped, false },
    { "conv2d", conv, false },
    { "batch_norm", norm, false },
    { "batch_norm with residual and relu", norm_add_relu, false },
    { "group_norm", group_norm, false },
    { "max_pool2d", max_pool, false },
    { "max_pool2d of 2 by 3", max_pool_2x3, false },
    { "max_pool2d of 2 by 2", max_pool_2, false },
    { "avg_pool2d", avg_pool, false },
    { "adaptive_avg_pool2d", adaptive_avg, false },
    { "adaptive_max_pool2d", adaptive_max, false },
    { "global_avg_pool", global_avg, true },
    { "mean over places", mean, true },
    { "cat of channels", cat, false },
    { "pad", pad, false },
    { "pad by reflection", reflect, false },
    { "nearest neighbours", nearest, false },
    { "bilinear", bilinear, false },
    { "bicubic", bicubic, false },
};

/* Gradients of sums of views (a part of a cat, an expanded mean) are views; the check is on what
 * they lead to, not on them. */
static void check_op(size_t k, int channels)
{
    ARIL_SCOPE;
    aril_tensor *x[2], *y[2], *g[2];
    weight = normal(ARIL_SHAPE(channels, channels, 3, 3), 1);
    vector = normal(ARIL_SHAPE(channels, 1, 1), 2);
    other = aril_channels_last(normal(ARIL_SHAPE(2, channels, 7, 6), 3));
    for (int i = 0; i < 2; i++) {
        aril_tensor *of = normal(ARIL_SHAPE(2, channels, 7, 6), 4);
        x[i] = aril_parameter(i ? of : aril_channels_last(of));
        y[i] = ops[k].run(aril_tanh(x[i]));
        aril_tensor *loss = aril_sum(aril_mul(aril_square(y[i]), y[i]), ARIL_ALL);
        CHECK_MSG(aril_gradients(loss, ARIL_LIST(x[i]), &g[i], OPTS(aril_grad_opts, 0)) == ARIL_OK,
                  "%s: %s", ops[k].name, aril_error());
    }
    double scale = 1 + aril_item(aril_amax(aril_abs(g[1]), ARIL_ALL));
    CHECK_MSG(worst(y[0], y[1]) < 1e-4, "%s of %d channels: values by %g", ops[k].name, channels,
              worst(y[0], y[1]));
    CHECK_MSG(worst(g[0], g[1]) < 1e-4 * scale, "%s of %d channels: gradients by %g", ops[k].name,
              channels, worst(g[0], g[1]));
    CHECK_MSG(ops[k].flat || aril__is_only_channels_last(y[0]), "%s loses the order", ops[k].name);
    CHECK_MSG(aril__is_only_channels_last(g[0]), "the gradient of %s loses the order", ops[k].name);
    aril_release(x[0]);
    aril_release(x[1]);
}

TEST(every_op_keeps_channels_last)
{
    static const int channels[] = { 2, 6, 64, 70 };
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        for (size_t c = 0; c < sizeof channels / sizeof *channels; c++) check_op(k, channels[c]);
}

/* ---- samples-last ---- */

/* The memory format in which convolutions with few channels leave full batches. */
static aril_tensor *by_samples(aril_tensor *x)
{
    return aril_permute(aril_contiguous(aril_permute(x, ARIL_AXES(2, 3, 1, 0))),
                        ARIL_AXES(3, 2, 0, 1));
}

static bool is_samples_last(aril_tensor *t)
{
    return aril_stride(t, 0) == 1 && aril_is_contiguous(aril_permute(t, ARIL_AXES(2, 3, 1, 0)));
}

static void check_samples(size_t k, int batch, int channels)
{
    ARIL_SCOPE;
    aril_tensor *x[2], *y[2], *g[2];
    weight = normal(ARIL_SHAPE(channels, channels, 3, 3), 1);
    vector = normal(ARIL_SHAPE(channels, 1, 1), 2);
    other = normal(ARIL_SHAPE(batch, channels, 8, 6), 3);
    for (int i = 0; i < 2; i++) {
        x[i] = aril_parameter(normal(ARIL_SHAPE(batch, channels, 8, 6), 4));
        aril_tensor *from = i ? x[i] : by_samples(x[i]);
        CHECK(i || is_samples_last(from));
        y[i] = ops[k].run(aril_tanh(from));
        aril_tensor *loss = aril_sum(aril_mul(aril_square(y[i]), y[i]), ARIL_ALL);
        CHECK_MSG(aril_gradients(loss, ARIL_LIST(x[i]), &g[i], OPTS(aril_grad_opts, 0)) == ARIL_OK,
                  "%s: %s", ops[k].name, aril_error());
    }
    double scale = 1 + aril_item(aril_amax(aril_abs(g[1]), ARIL_ALL));
    CHECK_MSG(worst(y[0], y[1]) < 1e-4, "%s of %d x %d: values by %g", ops[k].name, batch, channels,
              worst(y[0], y[1]));
    CHECK_MSG(worst(g[0], g[1]) < 1e-4 * scale, "%s of %d x %d: gradients by %g", ops[k].name,
              batch, channels, worst(g[0], g[1]));
    aril_release(x[0]);
    aril_release(x[1]);
}

TEST(every_op_accepts_samples_last)
{
    static const int sizes[][2] = { { 2, 4 }, { 16, 2 }, { 16, 6 }, { 32, 12 }, { 5, 20 } };
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++)
            check_samples(k, sizes[c][0], sizes[c][1]);
}

/* Over all dimensions but channels, as in the gradient of a bias. */
TEST(reductions_of_samples_last)
{
    static aril_tensor *(*const reduce[])(aril_tensor *, aril_axes) = {
        aril_sum,  aril_mean, aril_prod, aril_nansum, aril_nanmean,      aril_logsumexp,
        aril_amax, aril_amin, aril_any,  aril_all,    aril_count_nonzero
    };
    for (size_t k = 0; k < sizeof reduce / sizeof *reduce; k++) {
        ARIL_SCOPE;
        aril_tensor *x =
            aril_add_scalar(aril_mul_scalar(normal(ARIL_SHAPE(32, 3, 9, 17), 1), 0.001), 1);
        aril_tensor *y = reduce[k](by_samples(x), ARIL_AXES(0, 2, 3));
        aril_tensor *want = reduce[k](aril_cast(x, ARIL_F64), ARIL_AXES(0, 2, 3));
        y = aril_div(aril_cast(y, ARIL_F64), aril_cast(want, ARIL_F64));
        CHECK_MSG(worst(y, aril_ones_like(y)) < 1e-6, "reduction %zu by %g", k,
                  worst(y, aril_ones_like(y)));
    }
}

/* A small network's layers preserve it, and its gradients have it, too. */
TEST(layers_with_few_channels_keep_samples_last)
{
    ARIL_SCOPE;
    aril_tensor *w1 = aril_parameter(normal(ARIL_SHAPE(6, 1, 5, 5), 1));
    aril_tensor *w2 = aril_parameter(normal(ARIL_SHAPE(12, 6, 3, 3), 2));
    aril_tensor *b = aril_parameter(normal(ARIL_SHAPE(6), 4));
    aril_tensor *x = normal(ARIL_SHAPE(32, 1, 12, 12), 3), *loss[2], *grad[2][3];
    for (int i = 0; i < 2; i++) { /* all samples in one batch, and in batches without such rows */
        loss[i] = aril_scalar(0);
        for (int64_t from = 0, n = i ? 8 : 32; from < 32; from += n) {
            aril_tensor *h = aril_conv2d(aril_narrow(x, 0, from, n), w1, b,
                                         OPTS(aril_conv_opts, .activation = ARIL_RELU));
            CHECK(is_samples_last(h) == (n == 32));
            h = aril_max_pool2d(h, OPTS(aril_pool_opts, .kernel = { 2 }), NULL);
            CHECK(is_samples_last(h) == (n == 32));
            h = aril_conv2d(h, w2, NULL, OPTS(aril_conv_opts, .padding = { 1, 1 }));
            CHECK(is_samples_last(h) == (n == 32));
            loss[i] = aril_add(loss[i], aril_sum(aril_square(aril_flatten(h, 1, -1)), ARIL_ALL));
        }
        CHECK_INT(aril_gradients(loss[i], ARIL_LIST(w1, w2, b), grad[i], OPTS(aril_grad_opts, 0)),
                  ARIL_OK);
    }
    CHECK_NEAR(aril_item(loss[0]) / aril_item(loss[1]), 1, 1e-5);
    for (int k = 0; k < 3; k++) {
        double scale = 1 + aril_item(aril_amax(aril_abs(grad[1][k]), ARIL_ALL));
        CHECK_MSG(worst(grad[0][k], grad[1][k]) < 1e-5 * scale, "gradient %d by %g of %g", k,
                  worst(grad[0][k], grad[1][k]), scale);
    }
    aril_release(w1);
    aril_release(w2);
    aril_release(b);
}

/* ---- blocks of networks ---- */

enum { MAX_KEPT = 32 };

/* Results, and gradients of intermediate leaves, that are not channels-last. */
static int lost;
static aril_tensor *kept[MAX_KEPT];
static int n_kept;

static aril_tensor *see(aril_tensor *t)
{
    lost += !aril__is_only_channels_last(t);
    aril_retain_grad(t);
    if (n_kept < MAX_KEPT) kept[n_kept++] = t;
    return t;
}

static aril_tensor *layer(aril_tensor *x, int to, int size, aril_tensor *residual, uint64_t seed)
{
    int64_t from = aril_size(x, 1);
    aril_tensor *w = normal(ARIL_SHAPE(to, from, size, size), seed);
    int64_t p = size / 2;
    x = see(aril_conv2d(x, w, NULL, OPTS(aril_conv_opts, .padding = { p, p })));
    return see(
        aril_batch_norm(x, NULL, NULL, NULL, NULL,
                        OPTS(aril_batch_norm_opts, .activation = ARIL_RELU, .residual = residual)));
}

static aril_tensor *residual_block(aril_tensor *x)
{
    return layer(layer(x, 8, 1, NULL, 1), 16, 3, x, 2);
}

static aril_tensor *inception_block(aril_tensor *x)
{
    aril_pool_opts pool = { .kernel = { 3 }, .stride = { 1 }, .padding = { 1, 1 } };
    aril_tensor *a = layer(x, 4, 1, NULL, 1), *b = layer(layer(x, 6, 1, NULL, 2), 8, 3, NULL, 3);
    aril_tensor *c = layer(see(aril_max_pool2d(x, pool, NULL)), 5, 1, NULL, 4);
    return see(aril_cat(ARIL_LIST(a, b, c), 1));
}

static aril_tensor *dense_block(aril_tensor *x)
{
    for (uint64_t i = 0; i < 3; i++) x = see(aril_cat(ARIL_LIST(x, layer(x, 4, 3, NULL, i)), 1));
    return see(aril_avg_pool2d(x, OPTS(aril_pool_opts, .kernel = { 2 })));
}

static void check_block(const char *name, aril_tensor *(*block)(aril_tensor *x))
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(aril_channels_last(normal(ARIL_SHAPE(2, 16, 8, 8), 9)));
    lost = n_kept = 0;
    aril_tensor *y = aril_global_avg_pool(aril_dropout(block(x), 0.5, OPTS(aril_dropout_opts, 0)));
    CHECK_MSG(lost == 0, "%s: %d results have lost the order", name, lost);
    CHECK_INT(aril_backward(aril_sum(aril_square(y), ARIL_ALL)), ARIL_OK);
    CHECK_MSG(aril__is_only_channels_last(aril_grad(x)), "%s: the gradient of x has lost the order",
              name);
    for (int i = 0; i < n_kept;
         i++) /* views of a cat's gradient have gaps, but channels are contiguous */
        CHECK_MSG(aril_stride(aril_grad(kept[i]), 1) == 1, "%s: gradient %d has lost the order",
                  name, i);
    CHECK(aril_ok());
    aril_release(x);
}

TEST(residual_block_keeps_channels_last)
{
    check_block("residual", residual_block);
}

TEST(inception_block_keeps_channels_last)
{
    check_block("inception", inception_block);
}

TEST(dense_block_keeps_channels_last)
{
    check_block("dense", dense_block);
}

/* The gradient of a reshape is contiguous: it is converted once, where it meets a channels-last
 * tensor. */
TEST(gradient_through_flatten_keeps_channels_last)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(aril_channels_last(normal(ARIL_SHAPE(2, 8, 6, 6), 1)));
    aril_tensor *y = aril_flatten(aril_adaptive_avg_pool2d(aril_relu(x), ARIL_SHAPE(3, 3)), 1, -1);
    CHECK_INT(aril_backward(aril_sum(aril_square(y), ARIL_ALL)), ARIL_OK);
    CHECK(aril__is_only_channels_last(aril_grad(x)));
    aril_release(x);
}
