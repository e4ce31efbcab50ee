/* Initialization: layer defaults, and the initializers. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

typedef struct moments {
    double mean, std, low, high;
} moments;

static moments moments_of(aril_tensor *t)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *x = aril_cast(t, ARIL_F64);
    double mean = aril_item(aril_mean(x, ARIL_ALL));
    double square = aril_item(aril_mean(aril_square(x), ARIL_ALL));
    return (moments){ mean, sqrt(square - mean * mean), aril_item(aril_amin(x, ARIL_ALL)),
                      aril_item(aril_amax(x, ARIL_ALL)) };
}

/* Checks n draws of a uniform distribution of half width `bound`: the mean is within five standard
 * errors. */
static void check_uniform(const char *what, aril_tensor *t, double bound)
{
    moments m = moments_of(t);
    double n = (double)aril_numel(t), std = bound / sqrt(3);
    CHECK_MSG(m.low >= -bound && m.high <= bound, "%s: from %g to %g, not %g", what, m.low, m.high,
              bound);
    CHECK_MSG(fabs(m.mean) < 5 * std / sqrt(n), "%s: mean %g of %g numbers", what, m.mean, n);
    CHECK_MSG(fabs(m.std / std - 1) < 5 / sqrt(n), "%s: deviation %g, not %g", what, m.std, std);
    CHECK_MSG(n < 1000 || (m.high > 0.95 * bound && m.low < -0.95 * bound), "%s: %g to %g of %g",
              what, m.low, m.high, bound);
}

static void check_normal(const char *what, aril_tensor *t, double mean, double std)
{
    moments m = moments_of(t);
    double n = (double)aril_numel(t);
    CHECK_MSG(fabs(m.mean - mean) < 5 * std / sqrt(n), "%s: mean %g", what, m.mean);
    CHECK_MSG(fabs(m.std / std - 1) < 5 / sqrt(n), "%s: deviation %g, not %g", what, m.std, std);
    CHECK_MSG(n < 1000 || m.high > mean + 2 * std, "%s: not normal", what);
}

static bool all_are(aril_tensor *t, double value)
{
    moments m = moments_of(t);
    return m.low == value && m.high == value;
}

TEST(initialization_matches_pytorch)
{
    aril_seed(5);
    struct {
        aril_module *m;
        double fan;
    } fans[] = {
        { aril_nn_linear(50, 80), 50 },
        { aril_nn_conv1d(20, 40, 5), 100 },
        { aril_nn_conv2d(10, 40, 3), 90 },
        { aril_nn_conv3d(4, 40, 3), 108 },
        { aril_nn_conv2d_with(20, 40, 3, (aril_nn_conv_opts){ .groups = 4 }), 45 },
        { aril_nn_conv_transpose2d(20, 30, 3), 270 }, /* PyTorch's fan-in uses the second size */
        { aril_nn_bilinear(20, 10, 30), 20 },
    };
    for (size_t i = 0; i < sizeof fans / sizeof *fans; i++) {
        const char *type = aril_module_type(fans[i].m);
        check_uniform(type, aril_module_tensor(fans[i].m, "weight"), 1 / sqrt(fans[i].fan));
        check_uniform(type, aril_module_tensor(fans[i].m, "bias"), 1 / sqrt(fans[i].fan));
        aril_module_release(fans[i].m);
    }
    aril_module *m = aril_nn_embedding_with(100, 40, (aril_nn_embedding_opts){ .padding_idx = -1 });
    {
        ARIL_SCOPE;
        aril_tensor *w = aril_detach(aril_module_tensor(m, "weight"));
        check_normal("Embedding", aril_narrow(w, 0, 0, 99), 0, 1);
        CHECK(all_are(aril_select(w, 0, 99), 0));
    }
    aril_module_release(m);
    m = aril_nn_batch_norm2d(7);
    CHECK(all_are(aril_module_tensor(m, "weight"), 1) && all_are(aril_module_tensor(m, "bias"), 0));
    CHECK(all_are(aril_module_tensor(m, "running_mean"), 0));
    CHECK(all_are(aril_module_tensor(m, "running_var"), 1));
    CHECK(aril_item_int(aril_module_tensor(m, "num_batches_tracked")) == 0);
    CHECK(aril_dtype_of(aril_module_tensor(m, "num_batches_tracked")) == ARIL_I64);
    aril_module_release(m);
    m = aril_nn_layer_norm(7);
    CHECK(all_are(aril_module_tensor(m, "weight"), 1) && all_are(aril_module_tensor(m, "bias"), 0));
    aril_module_release(m);
    m = aril_nn_prelu();
    CHECK(all_are(aril_module_tensor(m, "weight"), 0.25));
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(initialization_follows_the_seed)
{
    ARIL_SCOPE;
    aril_tensor *w[3];
    for (int i = 0; i < 3; i++) {
        aril_seed(i == 2 ? 8 : 7);
        aril_module *m = aril_nn_sequential(aril_nn_linear(3, 3), aril_nn_linear(3, 3));
        w[i] = aril_copy(aril_module_tensor(m, "1.weight"));
        if (i == 0) { /* drawing again advances, and reseeding repeats */
            aril_module_reset(m);
            CHECK(!aril_item_int(
                aril_all(aril_eq(aril_module_tensor(m, "1.weight"), w[0]), ARIL_ALL)));
            aril_seed(7);
            aril_module_reset(m);
            CHECK(aril_item_int(
                aril_all(aril_eq(aril_module_tensor(m, "1.weight"), w[0]), ARIL_ALL)));
        }
        aril_module_release(m);
    }
    CHECK(aril_item_int(aril_all(aril_eq(w[0], w[1]), ARIL_ALL)));
    CHECK(!aril_item_int(aril_all(aril_eq(w[0], w[2]), ARIL_ALL)));
}

static double position(const int64_t *at, int ndim, void *ctx)
{
    return (double)(at[0] * 10 + at[1]) + *(double *)ctx * ndim;
}

TEST(initializers)
{
    ARIL_SCOPE;
    aril_seed(9);
    aril_tensor *t = aril_parameter(aril_empty(ARIL_SHAPE(60, 20, 3), ARIL_F32, test_device()));
    CHECK(aril_init_uniform(t, -0.5, 0.5) == t);
    check_uniform("uniform", t, 0.5);
    check_normal("normal", aril_init_normal(t, 3, 2), 3, 2);
    check_uniform("xavier", aril_init_xavier_uniform(t, 2), 2 * sqrt(6.0 / (60 + 180)));
    check_normal("xavier", aril_init_xavier_normal(t, 0), 0, sqrt(2.0 / (60 + 180)));
    aril_kaiming_opts relu = { .nonlinearity = "relu" }, out = { .fan_out = true, .a = 2 };
    check_normal("kaiming", aril_init_kaiming_normal(t, relu), 0, sqrt(2.0 / 60));
    check_uniform("kaiming", aril_init_kaiming_uniform(t, out), sqrt(2.0 / 5) * sqrt(3.0 / 180));
    CHECK(all_are(aril_init_constant(t, 2.5), 2.5) && all_are(aril_init_zeros(t), 0));
    CHECK(all_are(aril_init_ones(t), 1) && aril_requires_grad(t) && aril_is_leaf(t));

    aril_init_truncated_normal(t, 1, 2, 0, 2);
    moments m = moments_of(t);
    CHECK_MSG(m.low >= 0 && m.high <= 2 && m.low < 0.01 && m.high > 1.99, "%g %g", m.low, m.high);
    CHECK_NEAR(m.mean, 1, 0.05);
    CHECK_NEAR(m.std, 2 * sqrt(1 - 2 * 0.5 * exp(-0.125) / sqrt(2 * M_PI) / erf(0.5 / sqrt(2))),
               0.02);

    for (int i = 0; i < 3; i++) { /* wide, tall, with a kernel */
        aril_tensor *w = aril_empty(i == 0   ? ARIL_SHAPE(7, 30)
                                    : i == 1 ? ARIL_SHAPE(30, 7)
                                             : ARIL_SHAPE(6, 4, 3),
                                    ARIL_F64, test_device());
        aril_init_orthogonal(w, 2);
        w = aril_flatten(w, 1, -1);
        aril_tensor *product = i == 1 ? aril_matmul(aril_t(w), w) : aril_matmul(w, aril_t(w));
        aril_tensor *eye = aril_eye(aril_size(product, 0), -1, ARIL_F64, test_device());
        aril_tensor *off = aril_abs(aril_sub(product, aril_mul_scalar(eye, 4)));
        CHECK_NEAR(aril_item(aril_amax(off, ARIL_ALL)), 0, 1e-12);
    }
    aril_tensor *square = aril_empty(ARIL_SHAPE(4, 6), ARIL_F32, test_device());
    double shift = 0.25;
    aril_init_from(square, position, &shift);
    CHECK_NEAR(aril_item(aril_select(aril_select(square, 0, 3), 0, 5)), 35.5, 0);
    aril_init_eye(square);
    CHECK_NEAR(aril_item(aril_sum(square, ARIL_ALL)), 4, 0);
    CHECK_NEAR(aril_item(aril_sum(aril_diagonal(square, 0, 0, 1), ARIL_ALL)), 4, 0);

    aril_tensor *many = aril_empty(ARIL_SHAPE(200, 30), ARIL_F32, test_device());
    aril_init_sparse(many, 0.3, 0.5);
    aril_tensor *zeros = aril_sum(aril_cast(aril_eq_scalar(many, 0), ARIL_I64), ARIL_AXES(0));
    CHECK(aril_item_int(aril_all(aril_eq_scalar(zeros, 60), ARIL_ALL)));

    /* Convolution with this weight is the identity. */
    aril_tensor *w =
        aril_init_dirac(aril_empty(ARIL_SHAPE(4, 2, 3, 3), ARIL_F32, test_device()), 2);
    aril_tensor *x = aril_randn(ARIL_SHAPE(1, 4, 5, 5), ARIL_F32, test_device());
    aril_tensor *y = aril_conv2d(x, w, NULL, (aril_conv_opts){ .padding = { 1, 1 }, .groups = 2 });
    CHECK(aril_item_int(aril_all(aril_eq(x, y), ARIL_ALL)));
    aril_release(t);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(gains)
{
    CHECK_NEAR(aril_init_gain("relu", 0), sqrt(2), 1e-15);
    CHECK_NEAR(aril_init_gain("leaky_relu", 0.2), sqrt(2 / 1.04), 1e-15);
    CHECK_NEAR(aril_init_gain("tanh", 0), 5.0 / 3, 1e-15);
    CHECK_NEAR(aril_init_gain("conv2d", 0), 1, 0);
    CHECK(isnan(aril_init_gain("rulu", 0)) && strstr(aril_error(), "\"rulu\""));
    aril_clear_error();
}

static void fill(aril_tensor *t, const char *name, void *ctx)
{
    (void)name;
    aril_init_constant(t, *(double *)ctx);
}

TEST(parameters_by_pattern)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_sequential(aril_nn_linear(2, 2), aril_nn_linear(2, 2));
    double v = 7;
    CHECK_INT(aril_module_init(m, "*.weight", fill, &v), 2);
    CHECK(all_are(aril_module_tensor(m, "0.weight"), 7) &&
          all_are(aril_module_tensor(m, "1.weight"), 7) &&
          !all_are(aril_module_tensor(m, "0.bias"), 7));
    CHECK_INT(aril_module_init(m, "?.b*s", fill, &v), 2);
    CHECK_INT(aril_module_init(m, "1.bias", fill, &v), 1);
    CHECK_INT(aril_module_init(m, "*", fill, &v), 4);
    CHECK_INT(aril_module_init(m, "*.wait", fill, &v), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "0.weight, 0.bias"), "%s", aril_error());
    aril_clear_error();
    aril_module_release(m);
}

TEST(initializers_reject_invalid_tensors)
{
    ARIL_SCOPE;
    aril_tensor *row = aril_zeros(ARIL_SHAPE(3), ARIL_F32, test_device());
    aril_tensor *bad[] = {
        aril_init_xavier_uniform(row, 1), aril_init_kaiming_normal(row, (aril_kaiming_opts){ 0 }),
        aril_init_orthogonal(row, 1),     aril_init_eye(row),
        aril_init_dirac(row, 1),          aril_init_sparse(row, 0.5, 1),
        aril_init_from(row, NULL, NULL),  aril_init_truncated_normal(row, 0, 1, 2, 1),
        aril_init_normal(NULL, 0, 1)
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(aril_tensor_status(bad[i]) < 0, "%zu was accepted", i);
    CHECK(all_are(row, 0));
    aril_clear_error();
}

TEST(failed_allocations)
{
    ARIL_SCOPE;
    aril_tensor *t = aril_zeros(ARIL_SHAPE(6, 40), ARIL_F32, test_device());
    for (int64_t n = 1; n < 1000; n++) {
        ARIL_SCOPE;
        int64_t blocks = aril__live_blocks(), bytes = aril_memory(test_device()).live;
        aril_fail_allocation(n);
        {
            ARIL_SCOPE;
            aril_init_orthogonal(t, 1);
            aril_init_sparse(t, 0.5, 1);
            aril_init_truncated_normal(t, 0, 1, -1, 1);
            aril_init_eye(t);
        }
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_MSG(failed || aril_ok(), "%s", aril_error());
        aril_clear_error();
        CHECK(aril__live_blocks() == blocks && aril_memory(test_device()).live == bytes);
        if (!failed) return;
    }
    CHECK(false);
}
