/* Window parameters: a single number applies to all spatial dimensions, ARIL_ZERO is a 0 after a
 * first number, in functions and modules alike. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

static aril_tensor *cube(int spatial, int64_t size)
{
    aril_shape s = { .ndim = spatial + 2, .dim = { 1, 1, size, size, size } };
    return aril_ones(s, ARIL_F32, test_device());
}

/* Checks the spatial sizes of a result, and drops it. */
static void check_sizes(const char *what, aril_tensor *y, int spatial, const int64_t *want)
{
    CHECK_MSG(aril_tensor_status(y) == ARIL_OK, "%s: %s", what, aril_error());
    for (int i = 0; i < spatial; i++)
        CHECK_MSG(aril_size(y, 2 + i) == want[i], "%s: size %d is %lld, expected %lld", what, i,
                  (long long)aril_size(y, 2 + i), (long long)want[i]);
}

static void check_module(const char *what, aril_module *m, aril_tensor *x, int spatial,
                         const int64_t *want)
{
    CHECK_MSG(m, "%s: %s", what, aril_error());
    check_sizes(what, aril_forward(m, x), spatial, want);
    aril_module_release(m);
}

/* For 6 elements: windows of 3 with and without padding 1. */
enum { SIZE = 6, PADDED = 6, PLAIN = 4 };

static const int64_t all_padded[3] = { PADDED, PADDED, PADDED };
static const int64_t first_padded[3] = { PADDED, PLAIN, PLAIN };

TEST(padding_of_convolutions)
{
    ARIL_SCOPE;
    aril_conv_opts one = { .padding = { 1 } }, first = { .padding = { 1, ARIL_ZERO, ARIL_ZERO } };
    aril_nn_conv_opts m_one = { .padding = { 1 } },
                      m_first = { .padding = { 1, ARIL_ZERO, ARIL_ZERO } };
#define CONV(n)                                                                                 \
    check_sizes("conv" #n "d", aril_conv##n##d(cube(n, SIZE), cube(n, 3), NULL, one), n,        \
                all_padded);                                                                    \
    check_sizes("conv" #n "d", aril_conv##n##d(cube(n, SIZE), cube(n, 3), NULL, first), n,      \
                first_padded);                                                                  \
    check_module("nn_conv" #n "d", aril_nn_conv##n##d_with(1, 1, 3, m_one), cube(n, SIZE), n,   \
                 all_padded);                                                                   \
    check_module("nn_conv" #n "d", aril_nn_conv##n##d_with(1, 1, 3, m_first), cube(n, SIZE), n, \
                 first_padded);
    CONV(1)
    CONV(2)
    CONV(3)
    /* {0, 1} pads only the second, and the end may differ in all or some */
    check_sizes("second",
                aril_conv2d(cube(2, SIZE), cube(2, 3), NULL,
                            (aril_conv_opts){ .padding = { 0, 1 } }),
                2, (int64_t[]){ PLAIN, PADDED });
    check_sizes("none at the end",
                aril_conv2d(cube(2, SIZE), cube(2, 3), NULL,
                            (aril_conv_opts){ .padding = { 1 }, .padding_end = { ARIL_ZERO } }),
                2, (int64_t[]){ 5, 5 });
    check_sizes("more at the end",
                aril_conv2d(cube(2, SIZE), cube(2, 3), NULL,
                            (aril_conv_opts){ .padding = { 1 }, .padding_end = { 2 } }),
                2, (int64_t[]){ 7, 7 });
    check_sizes("more at one end",
                aril_conv2d(cube(2, SIZE), cube(2, 3), NULL,
                            (aril_conv_opts){ .padding = { 1 }, .padding_end = { 0, 2 } }),
                2, (int64_t[]){ 6, 7 });
    CHECK(aril_ok());
}

TEST(padding_of_transposed_convolutions)
{
    ARIL_SCOPE;
    const int64_t all[3] = { 12, 12, 12 }, some[3] = { 12, 13, 13 };
    aril_conv_opts one = { .stride = { 2 }, .padding = { 1 }, .output_padding = { 1 } };
    aril_conv_opts first = { .stride = { 2 },
                             .padding = { 1, ARIL_ZERO, ARIL_ZERO },
                             .output_padding = { 1, ARIL_ZERO, ARIL_ZERO } };
    aril_nn_conv_opts m_one = { .stride = { 2 }, .padding = { 1 }, .output_padding = { 1 } };
    aril_nn_conv_opts m_first = { .stride = { 2 },
                                  .padding = { 1, ARIL_ZERO, ARIL_ZERO },
                                  .output_padding = { 1, ARIL_ZERO, ARIL_ZERO } };
#define TRANSPOSE(n)                                                                              \
    check_sizes("conv_transpose" #n "d",                                                          \
                aril_conv_transpose##n##d(cube(n, SIZE), cube(n, 3), NULL, one), n, all);         \
    check_sizes("conv_transpose" #n "d",                                                          \
                aril_conv_transpose##n##d(cube(n, SIZE), cube(n, 3), NULL, first), n, some);      \
    check_module("nn_conv_transpose" #n "d", aril_nn_conv_transpose##n##d_with(1, 1, 3, m_one),   \
                 cube(n, SIZE), n, all);                                                          \
    check_module("nn_conv_transpose" #n "d", aril_nn_conv_transpose##n##d_with(1, 1, 3, m_first), \
                 cube(n, SIZE), n, some);
    TRANSPOSE(1)
    TRANSPOSE(2)
    TRANSPOSE(3)
    CHECK(aril_ok());
}

TEST(padding_of_pools)
{
    ARIL_SCOPE;
    aril_pool_opts one = { .kernel = { 3 }, .stride = { 1 }, .padding = { 1 } };
    aril_pool_opts first = { .kernel = { 3 },
                             .stride = { 1 },
                             .padding = { 1, ARIL_ZERO, ARIL_ZERO } };
#define POOL(n)                                                                                  \
    for (int k = 0; k < 2; k++) {                                                                \
        aril_pool_opts o = k ? first : one;                                                      \
        const int64_t *want = k ? first_padded : all_padded;                                     \
        check_sizes("max_pool" #n "d", aril_max_pool##n##d(cube(n, SIZE), o, NULL), n, want);    \
        check_sizes("avg_pool" #n "d", aril_avg_pool##n##d(cube(n, SIZE), o), n, want);          \
        check_sizes("lp_pool" #n "d", aril_lp_pool##n##d(cube(n, SIZE), 2, o), n, want);         \
        check_module("nn_max_pool" #n "d", aril_nn_max_pool##n##d_with(3, o), cube(n, SIZE), n,  \
                     want);                                                                      \
        check_module("nn_avg_pool" #n "d", aril_nn_avg_pool##n##d_with(3, o), cube(n, SIZE), n,  \
                     want);                                                                      \
        check_module("nn_lp_pool" #n "d", aril_nn_lp_pool##n##d_with(2, 3, o), cube(n, SIZE), n, \
                     want);                                                                      \
    }
    POOL(1)
    POOL(2)
    POOL(3)
    CHECK(aril_ok());
}

/* With ceil_mode a window may extend past the end by less than a stride, even the first one. */
TEST(the_only_window_may_extend_beyond_the_end)
{
    ARIL_SCOPE;
    const float at[4] = { 1, 2, 3, 6 };
    aril_tensor *x = aril_from(at, ARIL_SHAPE(1, 1, 2, 2), ARIL_F32, test_device()), *g;
    aril_set_requires_grad(x, true);
    aril_pool_opts opts = { .kernel = { 3 }, .stride = { 2 }, .ceil_mode = true };
    CHECK(aril_item(aril_max_pool2d(x, opts, NULL)) == 6);
    CHECK_NEAR(aril_item(aril_lp_pool2d(x, 1, opts)), 12, 1e-5);
    aril_tensor *mean = aril_avg_pool2d(x, opts);
    CHECK(aril_item(mean) == 3);
    CHECK_INT(aril_gradients(aril_sum(mean, ARIL_ALL), ARIL_LIST(x), &g, (aril_grad_opts){ 0 }),
              ARIL_OK);
    for (int i = 0; i < 4; i++) CHECK(((const float *)aril_data(g))[i] == 0.25f);
    opts.stride[0] = 1;
    CHECK_INT(aril_tensor_status(aril_avg_pool2d(x, opts)), ARIL_ERR_SHAPE);
    aril_clear_error();
}

TEST(padding_of_unpooling)
{
    ARIL_SCOPE;
    aril_tensor *x = cube(2, 3), *where = aril_cast(aril_zeros_like(x), ARIL_I64);
    aril_pool_opts opts = { .kernel = { 2 }, .padding = { 1 } };
    check_sizes("max_unpool2d", aril_max_unpool2d(x, where, (aril_shape){ 0 }, opts), 2,
                (int64_t[]){ 4, 4 });
    opts.padding[1] = ARIL_ZERO;
    check_sizes("max_unpool2d", aril_max_unpool2d(x, where, (aril_shape){ 0 }, opts), 2,
                (int64_t[]){ 4, 6 });
    CHECK(aril_ok());
}

TEST(padding_of_unfold_and_fold)
{
    ARIL_SCOPE;
    aril_pool_opts one = { .kernel = { 3 }, .padding = { 1 } };
    aril_pool_opts first = { .kernel = { 3 }, .padding = { 1, ARIL_ZERO } };
    for (int k = 0; k < 2; k++) {
        int64_t positions = k ? PADDED * PLAIN : PADDED * PADDED;
        aril_tensor *u = aril_unfold(cube(2, SIZE), k ? first : one);
        CHECK_INT(aril_size(u, 2), positions);
        aril_tensor *y = aril_fold(u, ARIL_SHAPE(SIZE, SIZE), k ? first : one);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        aril_module *unfold = aril_nn_unfold(3, k ? first : one);
        aril_module *fold = aril_nn_fold(ARIL_SHAPE(SIZE, SIZE), 3, k ? first : one);
        aril_tensor *v = aril_forward(unfold, cube(2, SIZE)), *z = aril_forward(fold, u);
        CHECK_INT(aril_size(v, 2), positions);
        CHECK_NEAR(aril_item(aril_sum(aril_abs(aril_sub(y, z)), ARIL_ALL)), 0, 0);
        aril_module_release(unfold);
        aril_module_release(fold);
    }
    CHECK(aril_ok());
}

/* A literal 0 is rejected where a window needs at least 1. */
TEST(zero_where_a_positive_value_is_required)
{
    ARIL_SCOPE;
    const int64_t zero[2] = { 2, ARIL_ZERO };
    aril_tensor *x = cube(2, SIZE), *w = cube(2, 3);
    aril_conv_opts opts[2] = { { .stride = { zero[0], zero[1] } },
                               { .dilation = { zero[0], zero[1] } } };
    for (int i = 0; i < 2; i++) {
        CHECK_INT(aril_tensor_status(aril_conv2d(x, w, NULL, opts[i])), ARIL_ERR_ARG);
        aril_clear_error();
    }
    aril_pool_opts pool = { .kernel = { 2, ARIL_ZERO } };
    CHECK_INT(aril_tensor_status(aril_max_pool2d(x, pool, NULL)), ARIL_ERR_ARG);
    aril_clear_error();
}
