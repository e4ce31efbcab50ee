/* Pooling and interpolation: kernels against references, with sizes around those of their blocks.
 */
#include "aril/aril.h"
#include "ops/table/apply.h"
#include "ops/vision/pool.h"
#include "ops/vision/resample.h"
#include "support/agree.h"
#include "support/device.h"
#include "support/ops.h"
#include "support/test.h"

#include <string.h>

static aril_tensor *normal(aril_shape shape)
{
    return aril_randn(shape, ARIL_F64, test_device());
}

/* ---- pooling ---- */

static const struct pool_attrs halved = { .kernel = { 2, 2, 2 },
                                          .stride = { 2, 2, 2 },
                                          .dilation = { 1, 1, 1 } };
static const struct pool_attrs dilated = { .kernel = { 3, 3, 3 },
                                           .stride = { 2, 1, 1 },
                                           .pad = { 1, 1, 2, 1, 0, 0 },
                                           .dilation = { 1, 2, 1 },
                                           .ceil = { 1 },
                                           .include_pad = { 1 } };
static const struct pool_attrs large = { .kernel = { 13, 11, 3 },
                                         .stride = { 4, 3, 2 },
                                         .pad = { 1, 2, 0, 3, 0, 0 },
                                         .dilation = { 1, 1, 1 } };
static const struct pool_attrs to_size = { .size = { 5, 7, 3 } };

static aril_tensor *ordered(aril_tensor *x, bool last)
{
    return last ? aril_channels_last(x) : x;
}

/* Max and average pooling of x, the gradients of both, and what belongs to the indices. */
static void check_pools(aril_shape shape, bool last, const struct pool_attrs *a)
{
    ARIL_SCOPE;
    bool adaptive = a->kernel[0] == 0;
    const aril__op *max = adaptive ? &aril__op_adaptive_max_pool : &aril__op_max_pool;
    const aril__op *avg = adaptive ? &aril__op_adaptive_avg_pool : &aril__op_avg_pool;
    const aril__op *back = adaptive ? &aril__op_adaptive_avg_pool_grad : &aril__op_avg_pool_grad;
    aril_tensor *x = ordered(normal(shape), last), *out[2];
    test_rows_agree(max, 1, &x, a);
    test_rows_agree(avg, 1, &x, a);
    CHECK_INT(aril__apply(max, 1, &x, a, out), ARIL_OK);
    aril_tensor *g = ordered(normal(aril_shape_of(out[0])), last);
    test_rows_agree(back, 2, (aril_tensor *[]){ g, x }, a);
    struct max_pool_grad_attrs windows = { .stride = { 1, 1, 1 }, .dilation = { 1, 1, 1 } };
    for (int i = 0; i < shape.ndim - 2 && !adaptive; i++) {
        aril__slide w = aril__pool_window(a, i, shape.dim[2 + i]);
        windows.kernel[i] = w.kernel;
        windows.stride[i] = w.stride;
        windows.dilation[i] = w.dilation;
        windows.begin[i] = w.begin;
    }
    test_rows_agree(&aril__op_max_pool_grad, 3, (aril_tensor *[]){ g, out[1], x }, &windows);
    test_rows_agree(&aril__op_max_pool_pick, 2, (aril_tensor *[]){ x, out[1] }, NULL);
    struct pool_attrs unpool = { .size = { 1, 1, 1 } };
    memcpy(unpool.size, shape.dim + 2, (size_t)(shape.ndim - 2) * sizeof *shape.dim);
    test_rows_agree(&aril__op_max_unpool, 2, (aril_tensor *[]){ out[0], out[1] }, &unpool);
}

TEST(pool_rows_agree_with_the_reference)
{
    const struct pool_attrs *all[] = { &halved, &dilated, &large, &to_size };
    for (int i = 0; i < 4; i++) {
        check_pools(ARIL_SHAPE(2, 3, 18, 22), false, all[i]);
        check_pools(ARIL_SHAPE(2, 37, 18, 22), true, all[i]);
    }
    check_pools(ARIL_SHAPE(1, 2, 1101), false, &halved); /* rows of several blocks */
    check_pools(ARIL_SHAPE(2, 3, 57), false, &large);    /* rows of several vectors, and padding */
    check_pools(ARIL_SHAPE(3, 5, 18, 7), false, &dilated); /* rows of few positions */
    check_pools(ARIL_SHAPE(1, 2, 9001), false, &(struct pool_attrs){ .size = { 1 } });
    check_pools(ARIL_SHAPE(1, 515, 4, 6), true, &halved); /* channels of several blocks */
    check_pools(ARIL_SHAPE(1, 2, 6, 7, 8), false, &dilated);
    check_pools(ARIL_SHAPE(1, 33, 6, 7, 8), true, &to_size);
}

TEST(max_pool_of_u64)
{
    ARIL_SCOPE;
    static const uint64_t values[4] = { 1, UINT64_MAX - 1, 7, UINT64_MAX };
    aril_tensor *x = aril_from(values, ARIL_SHAPE(1, 1, 4), ARIL_U64, test_device()), *indices;
    aril_tensor *y = aril_max_pool1d(x, (aril_pool_opts){ .kernel = { 2 } }, &indices);
    CHECK(aril_ok());
    const uint64_t *v = aril_data(y);
    const int64_t *at = aril_data(indices);
    CHECK(v[0] == UINT64_MAX - 1 && v[1] == UINT64_MAX);
    CHECK(at[0] == 1 && at[1] == 3);
}

/* ---- interpolation ---- */

static void check_interpolate(aril_shape shape, bool last, const struct interpolate_attrs *a)
{
    ARIL_SCOPE;
    aril_tensor *x = ordered(normal(shape), last), *y;
    test_rows_agree(&aril__op_interpolate, 1, &x, a);
    CHECK_INT(aril__apply(&aril__op_interpolate, 1, &x, a, &y), ARIL_OK);
    aril_tensor *g = ordered(normal(aril_shape_of(y)), last);
    test_rows_agree(&aril__op_interpolate_grad, 2, (aril_tensor *[]){ g, x }, a);
}

TEST(interpolate_rows_agree_with_the_reference)
{
    static const struct interpolate_attrs all[] = {
        { { ARIL_NEAREST }, { 0 }, { 0 }, { 13, 7, 3 }, { 0 } },
        { { ARIL_LINEAR }, { 0 }, { 0 }, { 19, 23, 5 }, { 0 } },
        { { ARIL_LINEAR }, { 0 }, { 1 }, { 4, 5, 2 }, { 0 } },
        { { ARIL_CUBIC }, { 1 }, { 0 }, { 9, 17, 4 }, { 0 } },
        { { ARIL_CUBIC }, { 0 }, { 1 }, { 3, 20, 4 }, { 0 } },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check_interpolate(ARIL_SHAPE(2, 3, 11, 13), false, &all[i]);
        check_interpolate(ARIL_SHAPE(2, 67, 11, 13), true, &all[i]);
        check_interpolate(ARIL_SHAPE(2, 3, 31), false, &all[i]);
        check_interpolate(ARIL_SHAPE(1, 2, 5, 6, 7), false, &all[i]);
    }
    check_interpolate(ARIL_SHAPE(1, 515, 3, 4), true, &all[1]); /* channels of several blocks */
}
