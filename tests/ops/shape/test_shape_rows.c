/* Kernels that pad, roll and cut elements against their references, on sizes that several threads
 * share. */
#include "aril/aril.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"
#include "ops/table/apply.h"
#include "support/ops.h"
#include "support/reference.h"
#include "support/test.h"

static const aril_dtype dtypes[] = { ARIL_F32, ARIL_F64, ARIL_F16, ARIL_BF16,
                                     ARIL_I64, ARIL_U64, ARIL_U8,  ARIL_BOOL };
enum { DTYPES = sizeof dtypes / sizeof *dtypes, REALS = 4 };

static aril_tensor *values(aril_shape shape, aril_dtype dtype)
{
    return aril_cast(aril_randint(0, 200, shape, ARIL_I64, aril_cpu()), dtype);
}

/* ---- padding ---- */

static struct pad_attrs padding;

static int padded(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril__op_with(&padding, &aril__op_pad, x);
    return 1;
}

/* x is the gradient of a padded tensor. */
static int unpadded(aril_tensor *x, aril_tensor **out)
{
    aril_shape shape = aril_shape_of(x);
    for (int d = 0; d < shape.ndim; d++) shape.dim[d] -= padding.before[d] + padding.after[d];
    aril_tensor *like = aril_empty(shape, aril_dtype_of(x), aril_cpu());
    out[0] = aril__op_with(&padding, &aril__op_pad_grad, x, like);
    return 1;
}

static void check_pads(aril_tensor *x)
{
    for (int mode = ARIL_PAD_CONSTANT; mode <= ARIL_PAD_CIRCULAR; mode++) {
        padding = (struct pad_attrs){
            .before = { 0, 0, 2, 1 }, .after = { 0, 0, 1, 3 }, .mode = { mode }, .value = { 3 }
        };
        test_against_reference("pad", padded, x, 0);
        if (!aril_dtype_is_float(aril_dtype_of(x))) continue;
        aril_tensor *g;
        padded(x, &g);
        test_against_reference("pad_grad", unpadded, g, 0);
    }
}

static int reversed(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_contiguous(aril_flip(x, ARIL_AXES(3)));
    out[1] = aril_contiguous(aril_flip(x, ARIL_AXES(2, 3)));
    return 2;
}

TEST(pads)
{
    for (int i = 0; i < DTYPES; i++) {
        ARIL_SCOPE;
        check_pads(values(ARIL_SHAPE(1, 1, 4, 5), dtypes[i]));
        check_pads(values(ARIL_SHAPE(3, 5, 40, 67), dtypes[i]));
        check_pads(aril_channels_last(values(ARIL_SHAPE(2, 5, 31, 67), dtypes[i])));
        padding = (struct pad_attrs){ .before = { 3, -2, 0, -1 }, .after = { 0, 1, -1, 9 } };
        test_against_reference("crop", padded, values(ARIL_SHAPE(3, 5, 4, 6), dtypes[i]), 0);
        for (int d = 0; d < 3; d++) { /* outer axes, with units of many elements */
            padding = (struct pad_attrs){ .value = { d ? 3 : 0 } };
            padding.before[d] = 2, padding.after[d] = 1;
            aril_tensor *x = values(ARIL_SHAPE(3, 5, 70, 90), dtypes[i]);
            test_against_reference("outer axes", padded, x, 0);
            test_against_reference("outer axes", padded, aril_channels_last(x), 0);
            test_against_reference("contiguous", reversed, x, 0);
        }
    }
}

/* ---- rolls, triangles, windows ---- */

static int rolled(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_roll(x, ARIL_SHAPE(-1, 5), ARIL_AXES(0, 1));
    out[1] = aril_roll(x, ARIL_SHAPE(1000000007), ARIL_AXES(1));
    return 2;
}

static int triangles(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_tril(x, -3);
    out[1] = aril_triu(x, 40);
    out[2] = aril_triu(x, INT64_MIN);
    return 3;
}

/* x [rows, windows, size] is the gradient of windows that overlap, or leave gaps. */
static int window_sums(aril_tensor *x, aril_tensor **out)
{
    int64_t windows = aril_size(x, 1), size = aril_size(x, 2);
    for (int i = 0; i < 2; i++) {
        struct unfold_view_attrs a = { { 1 }, { size }, { i ? size + 2 : 1 } };
        int64_t n = (windows - 1) * a.step[0] + size + 1;
        aril_tensor *like = aril_empty(ARIL_SHAPE(aril_size(x, 0), n), ARIL_F32, aril_cpu());
        out[i] = aril__op_with(&a, &aril__op_unfold_view_grad, x, like);
    }
    return 2;
}

TEST(rolls_triangles_and_windows)
{
    for (int i = 0; i < DTYPES; i++) {
        ARIL_SCOPE;
        for (int64_t n = 1; n < 400; n = 4 * n + 3) {
            aril_tensor *x = values(ARIL_SHAPE(97, n), dtypes[i]);
            test_against_reference("roll", rolled, x, 0);
            test_against_reference("tril, triu", triangles, x, 0);
            test_against_reference("tril, triu", triangles, aril_transpose(x, 0, 1), 0);
        }
        if (i < REALS)
            test_against_reference("unfold_view_grad", window_sums,
                                   values(ARIL_SHAPE(3, 60, 7), dtypes[i]), 0);
    }
}

/* ---- ranges ---- */

static int ranges(aril_tensor *x, aril_tensor **out)
{
    aril_dtype dtype = aril_dtype_of(x);
    out[0] = aril_arange(-3, 40000, 1, dtype, aril_cpu());
    out[1] = aril_arange(0, 100, 0.125, dtype, aril_cpu());
    out[2] = aril_linspace(-1, 3, 40001, dtype, aril_cpu());
    return 3;
}

TEST(arange_and_linspace)
{
    for (int i = 0; i < DTYPES - 1; i++) {
        ARIL_SCOPE;
        test_against_reference("arange, linspace", ranges, values(ARIL_SHAPE(1), dtypes[i]), 0);
    }
}
