/* Products, convolutions and pooling on a device, against f64 on the CPU: f32 stays within 1e-5 of
 * it, which TF32 does not, whatever the strides and addresses of the operands. */
#include <aril/aril.h>

#include "support/device.h"
#include "support/test.h"

/* The largest difference, relative to the largest element of `want`. */
static double error_of(aril_tensor *got, aril_tensor *want)
{
    aril_tensor *d = aril_sub(aril_cast(aril_to(got, aril_cpu()), ARIL_F64), want);
    double size = aril_item(aril_amax(aril_abs(want), ARIL_ALL));
    return aril_item(aril_amax(aril_abs(d), ARIL_ALL)) / (size > 0 ? size : 1);
}

static aril_tensor *on_device(aril_tensor *x)
{
    return aril_to(aril_cast(x, ARIL_F32), test_device());
}

/* Numbers that f32 holds exactly. */
static aril_tensor *numbers(aril_shape shape)
{
    return aril_cast(aril_randn(shape, ARIL_F32, aril_cpu()), ARIL_F64);
}

TEST(products)
{
    ARIL_SCOPE;
    aril_tensor *a = numbers(ARIL_SHAPE(3, 65, 300)), *b = numbers(ARIL_SHAPE(3, 300, 40));
    aril_tensor *w = numbers(ARIL_SHAPE(72, 300)), *bias = numbers(ARIL_SHAPE(72));
    aril_tensor *da = on_device(a), *db = on_device(b);
    CHECK(error_of(aril_matmul(da, db), aril_matmul(a, b)) < 1e-5);
    aril_tensor *bt = aril_transpose(b, 1, 2);
    CHECK(error_of(aril_matmul(da, aril_transpose(on_device(bt), 1, 2)), aril_matmul(a, b)) < 1e-5);
    CHECK(error_of(aril_linear(da, on_device(w), on_device(bias)), aril_linear(a, w, bias)) < 1e-5);
}

/* Slices: rows further apart than they are long, and addresses that are multiples of 4 bytes
 * only. */
TEST(products_of_slices)
{
    ARIL_SCOPE;
    aril_tensor *a = numbers(ARIL_SHAPE(33, 101)), *b = numbers(ARIL_SHAPE(101, 37));
    aril_tensor *da = on_device(a), *db = on_device(b);
    for (int64_t from = 0; from < 4; from++) {
        aril_tensor *x = aril_slice(a, 1, from, 90 + from, 1);
        aril_tensor *dx = aril_slice(da, 1, from, 90 + from, 1);
        aril_tensor *y = aril_slice(b, 0, from, 90 + from, 1);
        aril_tensor *dy = aril_slice(db, 0, from, 90 + from, 1);
        CHECK(error_of(aril_matmul(dx, dy), aril_matmul(x, y)) < 1e-5);
    }
}

static void check_convolution(aril_tensor *x, aril_tensor *w, aril_tensor *dx, aril_tensor *dw,
                              aril_conv_opts opts)
{
    for (int i = 0; i < 2; i++) {
        aril_set_requires_grad(i ? dx : x, true);
        aril_set_requires_grad(i ? dw : w, true);
    }
    aril_tensor *y = aril_conv2d(x, w, NULL, opts), *dy = aril_conv2d(dx, dw, NULL, opts);
    CHECK(error_of(dy, y) < 1e-5);
    CHECK_INT(aril_backward(aril_sum(aril_square(y), ARIL_ALL)), ARIL_OK);
    CHECK_INT(aril_backward(aril_sum(aril_square(dy), ARIL_ALL)), ARIL_OK);
    CHECK(error_of(aril_grad(dx), aril_grad(x)) < 1e-5);
    CHECK(error_of(aril_grad(dw), aril_grad(w)) < 1e-5);
}

TEST(convolutions)
{
    static const aril_conv_opts opts[] = {
        { .padding = { 1 } },
        { .stride = { 2 }, .padding = { 1 } },
        { .stride = { 2 }, .mode = ARIL_SAME },
        { .groups = 4, .dilation = { 2 }, .padding = { 2 } },
    };
    for (size_t i = 0; i < sizeof opts / sizeof *opts; i++)
        for (int last = 0; last < 2; last++) {
            ARIL_SCOPE;
            int64_t groups = opts[i].groups ? opts[i].groups : 1;
            aril_tensor *x = numbers(ARIL_SHAPE(2, 16, 14, 12));
            aril_tensor *w = numbers(ARIL_SHAPE(24, 16 / groups, 3, 3));
            aril_tensor *dx = on_device(x);
            check_convolution(x, w, last ? aril_channels_last(dx) : dx, on_device(w), opts[i]);
        }
}

/* Images of a size whose addresses in a batch are multiples of 4 bytes only. */
TEST(convolutions_of_slices)
{
    ARIL_SCOPE;
    aril_tensor *x = numbers(ARIL_SHAPE(3, 3, 7, 5)), *w = numbers(ARIL_SHAPE(4, 3, 3, 3));
    aril_tensor *dx = on_device(x), *dw = on_device(w);
    for (int64_t n = 0; n < 3; n++) {
        aril_tensor *y = aril_conv2d(aril_slice(x, 0, n, n + 1, 1), w, NULL, (aril_conv_opts){ 0 });
        aril_tensor *dy =
            aril_conv2d(aril_slice(dx, 0, n, n + 1, 1), dw, NULL, (aril_conv_opts){ 0 });
        CHECK(error_of(dy, y) < 1e-5);
    }
}

/* Overlapping windows: an element is the maximum of several. */
TEST(gradient_of_max_pooling)
{
    static const aril_pool_opts opts = { .kernel = { 3 }, .stride = { 2 }, .padding = { 1 } };
    for (int last = 0; last < 2; last++) {
        ARIL_SCOPE;
        aril_tensor *x = numbers(ARIL_SHAPE(2, 5, 61, 47)), *dx = on_device(x);
        if (last) dx = aril_channels_last(dx);
        aril_set_requires_grad(x, true);
        aril_set_requires_grad(dx, true);
        aril_tensor *y = aril_max_pool2d(x, opts, NULL), *dy = aril_max_pool2d(dx, opts, NULL);
        CHECK(error_of(dy, y) == 0);
        CHECK_INT(aril_backward(aril_sum(aril_square(y), ARIL_ALL)), ARIL_OK);
        CHECK_INT(aril_backward(aril_sum(aril_square(dy), ARIL_ALL)), ARIL_OK);
        CHECK(error_of(aril_grad(dx), aril_grad(x)) < 1e-6);
    }
}
