/* Grid sampling, with images and grids of several blocks. */
#include "aril/aril.h"
#include "ops/vision/grid_sample.h"
#include "support/agree.h"
#include "support/device.h"
#include "support/ops.h"
#include "support/test.h"

#include <math.h>

static aril_tensor *uniform(aril_shape shape, double size)
{
    aril_tensor *u = aril_rand(shape, ARIL_F64, test_device());
    return aril_mul_scalar(aril_sub_scalar(u, 0.5), 2 * size);
}

static bool same(aril_tensor *a, aril_tensor *b)
{
    return aril_item(aril_all(aril_eq(a, b), ARIL_ALL));
}

static double dot(aril_tensor *a, aril_tensor *b)
{
    return aril_item(aril_sum(aril_mul(a, b), ARIL_ALL));
}

/* A result depends neither on adjacent positions nor on other channels. */
static void points_are_independent(aril_dtype dtype, aril_grid_opts how)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_cast(uniform(ARIL_SHAPE(2, 7, 9, 11), 1), dtype);
    aril_tensor *grid = aril_cast(uniform(ARIL_SHAPE(2, 25, 41, 2), 1.4), dtype);
    aril_tensor *y = aril_grid_sample(x, grid, how); /* [2,7,25,41] */
    for (int64_t k = 0; k < 25; k += 6) {
        aril_tensor *row = aril_grid_sample(x, aril_slice(grid, 1, k, k + 1, 1), how);
        CHECK(same(row, aril_slice(y, 2, k, k + 1, 1)));
    }
    for (int64_t c = 0; c < 7; c++) {
        aril_tensor *one = aril_grid_sample(aril_slice(x, 1, c, c + 1, 1), grid, how);
        CHECK(same(one, aril_slice(y, 1, c, c + 1, 1)));
    }
}

/* <g, sample(x)> = <gradient for x of g, x>, as sampling is linear in x; and the gradient for the
 * whole grid equals that of its parts. */
static void gradients_fit(aril_grid_opts how)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_adopt(aril_parameter(uniform(ARIL_SHAPE(2, 7, 9, 11), 1)));
    aril_tensor *grid = aril_adopt(aril_parameter(uniform(ARIL_SHAPE(2, 25, 41, 2), 1.4)));
    aril_tensor *g = uniform(ARIL_SHAPE(2, 7, 25, 41), 1);
    aril_tensor *y = aril_grid_sample(x, grid, how);
    CHECK_INT(aril_backward_with(y, g, (aril_grad_opts){ 0 }), ARIL_OK);
    aril_tensor *by_x = aril_grad(x), *by_grid = aril_grad(grid);
    double want = dot(g, y);
    CHECK_MSG(fabs(dot(by_x, x) - want) < 1e-10 * (1 + fabs(want)), "%.17g for %.17g", dot(by_x, x),
              want);
    for (int64_t k = 1; k < 25; k += 11) {
        aril_tensor *part = aril_adopt(aril_parameter(aril_copy(aril_slice(grid, 1, k, k + 1, 1))));
        aril_tensor *z = aril_grid_sample(aril_detach(x), part, how);
        CHECK_INT(aril_backward_with(z, aril_slice(g, 2, k, k + 1, 1), (aril_grad_opts){ 0 }),
                  ARIL_OK);
        CHECK(same(aril_grad(part), aril_slice(by_grid, 1, k, k + 1, 1)));
    }
}

TEST(large_grid)
{
    ARIL_SCOPE;
    aril_seed(4);
    for (int mode = 0; mode < 3; mode++)
        for (int padding = 0; padding < 3; padding++)
            for (int align = 0; align < 2; align++) {
                aril_grid_opts how = { (aril_grid_mode)mode, (aril_grid_padding)padding, align };
                points_are_independent(ARIL_F32, how);
                points_are_independent(ARIL_F64, how);
                gradients_fit(how);
            }
}

/* Outside the image the result is 0, whatever the image holds; the same for a NaN position. */
TEST(no_reads_outside_the_image)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_full(ARIL_SHAPE(1, 5, 3, 3), INFINITY, ARIL_F32, test_device());
    float to[] = { 3, 0, 0, -4, NAN, 0, INFINITY, 0, 1e30f, -1e30f };
    aril_tensor *grid = aril_from(to, ARIL_SHAPE(1, 1, 5, 2), ARIL_F32, test_device());
    for (int mode = 0; mode < 2; mode++) {
        aril_grid_opts how = { .mode = (aril_grid_mode)mode };
        aril_tensor *y = aril_grid_sample(x, grid, how);
        CHECK(same(y, aril_zeros_like(y)));
    }
}

TEST(grid_sample_rows_agree_with_the_reference)
{
    for (int i = 0; i < 18; i++) {
        ARIL_SCOPE;
        struct grid_sample_attrs a = { { i % 3 }, { i / 3 % 3 }, { i / 9 } };
        aril_tensor *x = uniform(ARIL_SHAPE(2, 7, 9, 11), 1);
        aril_tensor *grid = uniform(ARIL_SHAPE(2, 25, 41, 2), 1.4);
        aril_tensor *g = uniform(ARIL_SHAPE(2, 7, 25, 41), 1);
        test_rows_agree(&aril__op_grid_sample, 2, (aril_tensor *[]){ x, grid }, &a);
        test_rows_agree(&aril__op_grid_sample_grad_x, 3, (aril_tensor *[]){ g, grid, x }, &a);
        test_rows_agree(&aril__op_grid_sample_grad_grid, 3, (aril_tensor *[]){ g, x, grid }, &a);
    }
}
