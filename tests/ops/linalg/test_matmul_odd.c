/* Large products of matrices whose rows do not start at multiples of 16 bytes, in all forms:
 * devices may copy them to aligned rows first, and cut them into pieces. */
#include "support/device.h"
#include "support/test.h"

#include "aril/aril.h"

#include <math.h>
#include <stdlib.h>

/* Multiples of 1/64 between -2 and 2, which every dtype holds. */
static aril_tensor *filled(aril_shape shape, uint64_t seed)
{
    ARIL_SCOPE;
    aril_seed(seed);
    aril_tensor *t = aril_randint(-128, 129, shape, ARIL_I64, aril_cpu());
    return aril_escape(aril_div_scalar(aril_cast(t, ARIL_F64), 64));
}

/* t with its last two dimensions stored in the other order. */
static aril_tensor *turned(aril_tensor *t)
{
    return aril_transpose(aril_contiguous(aril_transpose(t, -2, -1)), -2, -1);
}

static aril_tensor *there(aril_tensor *t, aril_dtype dtype)
{
    return aril_to(aril_cast(t, dtype), test_device());
}

/* How far a result may be from the exact one: a rounding of it, or, where a bias is added later, of
 * `scale`; and sums in f32. */
static void check_scaled(const char *what, aril_tensor *got, aril_tensor *want, aril_tensor *scale)
{
    ARIL_SCOPE;
    aril_dtype dtype = aril_dtype_of(got);
    double step = dtype == ARIL_BF16 ? 0x1p-8 : dtype == ARIL_F16 ? 0x1p-11 : 0x1p-23;
    aril_tensor *e = aril_abs(aril_sub(aril_cast(aril_to(got, aril_cpu()), ARIL_F64), want));
    aril_tensor *most = aril_add_scalar(aril_mul_scalar(scale, step), 2e-3);
    double worst = aril_item(aril_amax(aril_div(e, most), ARIL_ALL));
    CHECK_MSG(worst <= 1, "%s in %s: %g times the error allowed", what, aril_dtype_name(dtype),
              worst);
}

static void check_close(const char *what, aril_tensor *got, aril_tensor *want)
{
    check_scaled(what, got, want, aril_abs(want));
}

/* a [m,k] times b [k,n] with each stored both ways; as a weight, its gradients too. */
static void check_forms(aril_tensor *a, aril_tensor *b, aril_tensor *bias, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *want = aril_matmul(a, b), *with_bias = aril_add(want, bias);
    aril_tensor *scale = aril_add(aril_abs(want), aril_abs(with_bias));
    aril_tensor *da = there(a, dtype), *db = there(b, dtype), *dbias = there(bias, dtype);
    for (int form = 0; form < 4; form++) {
        ARIL_SCOPE;
        aril_tensor *x = form & 1 ? turned(da) : da, *y = form & 2 ? turned(db) : db;
        check_close("matmul", aril_matmul(x, y), want);
        check_scaled("linear", aril_linear(x, aril_t(y), dbias), with_bias, scale);
        aril_linear_opts opts = { .activation = ARIL_RELU };
        check_scaled("linear with relu", aril_linear_with(x, aril_t(y), dbias, opts),
                     aril_relu(with_bias), scale);
    }
}

/* Sizes that are not multiples of 8, large enough on devices to be worth a copy. */
TEST(odd_rows_in_all_forms)
{
    const aril_dtype dtypes[] = { ARIL_F32, ARIL_BF16, ARIL_F16 };
    const int64_t large[3] = { 1501, 1003, 2049 }, small[3] = { 51, 33, 129 };
    const int64_t *of = test_on_cpu() ? small : large;
    for (int mask = 0; mask < 8; mask++) { /* which sizes are odd */
        ARIL_SCOPE;
        int64_t size[3];
        for (int i = 0; i < 3; i++) size[i] = mask >> i & 1 ? of[i] : (of[i] + 7) / 8 * 8;
        aril_tensor *a = filled(ARIL_SHAPE(size[0], size[2]), 1);
        aril_tensor *b = filled(ARIL_SHAPE(size[2], size[1]), 2);
        aril_tensor *bias = filled(ARIL_SHAPE(size[1]), 3);
        for (int d = 0; d < 3; d++) check_forms(a, b, bias, dtypes[d]);
        aril_allow_tf32(true);
        check_forms(a, b, bias, ARIL_F32);
        aril_allow_tf32(false);
        CHECK(aril_ok());
    }
}

/* A weight's gradient sums over all leading dimensions; batches are multiplied one by one. */
TEST(odd_rows_in_gradients_and_batches)
{
    ARIL_SCOPE;
    int64_t t = test_on_cpu() ? 33 : 1025, k = test_on_cpu() ? 19 : 1027,
            n = test_on_cpu() ? 51 : 2003;
    aril_tensor *x = filled(ARIL_SHAPE(2, t, k), 4), *w = filled(ARIL_SHAPE(n, k), 5);
    aril_tensor *g = filled(ARIL_SHAPE(2, t, n), 6);
    aril_tensor *dx = aril_matmul(g, w);
    aril_tensor *dw = aril_matmul(aril_t(aril_reshape(g, ARIL_SHAPE(2 * t, n))),
                                  aril_reshape(x, ARIL_SHAPE(2 * t, k)));
    aril_tensor *both = aril_matmul(aril_transpose(x, 1, 2), g); /* [2,k,n] */
    for (int d = 0; d < 2; d++) {
        ARIL_SCOPE;
        aril_dtype dtype = d ? ARIL_F16 : ARIL_BF16;
        aril_tensor *px = aril_parameter(there(x, dtype)), *pw = aril_parameter(there(w, dtype));
        aril_tensor *dg = there(g, dtype);
        CHECK_INT(aril_backward(aril_sum(aril_mul(aril_cast(aril_linear(px, pw, NULL), ARIL_F32),
                                                  aril_cast(dg, ARIL_F32)),
                                         ARIL_ALL)),
                  0);
        check_close("gradient of x", aril_grad(px), dx);
        check_close("gradient of w", aril_grad(pw), dw);
        check_close("batches", aril_matmul(aril_transpose(there(x, dtype), 1, 2), dg), both);
        aril_release(px);
        aril_release(pw);
    }
    CHECK(aril_ok());
}

/* Products that are cut into pieces, along either size, against products of a few of their rows. */
TEST(odd_rows_in_pieces)
{
    ARIL_SCOPE;
    if (test_on_cpu()) {
        test_skip("the CPU multiplies in place");
        return;
    }
    const int64_t m = 4100, k = 257, n = 40001, some = 24;
    aril_tensor *a = there(filled(ARIL_SHAPE(m, k), 7), ARIL_BF16);
    aril_tensor *b = there(filled(ARIL_SHAPE(k, n), 8), ARIL_BF16);
    for (int form = 0; form < 8; form++) {
        ARIL_SCOPE;
        aril_tensor *x = form & 1 ? turned(a) : a, *y = form & 2 ? turned(b) : b;
        bool other = form & 4; /* y' x', which cuts the other size */
        aril_tensor *c = other ? aril_t(aril_matmul(aril_t(y), aril_t(x))) : aril_matmul(x, y);
        const int64_t rows[] = { 0, 1000, 2040, 3320, m - some };
        const int64_t columns[] = { 0, 3000, 29990, 30200, n - some };
        for (int i = 0; i < 5; i++) {
            aril_tensor *part = aril_slice(c, 0, rows[i], rows[i] + some, 1);
            aril_tensor *want = aril_matmul(aril_slice(a, 0, rows[i], rows[i] + some, 1), b);
            check_close("rows", part, aril_cast(aril_to(want, aril_cpu()), ARIL_F64));
            part = aril_slice(c, 1, columns[i], columns[i] + some, 1);
            want = aril_matmul(a, aril_slice(b, 1, columns[i], columns[i] + some, 1));
            check_close("columns", part, aril_cast(aril_to(want, aril_cpu()), ARIL_F64));
        }
    }
    CHECK(aril_ok());
}

/* The gradient of a weight that is stored as [in,out] is in that order, as an optimizer reads it.
 */
TEST(gradient_of_a_transposed_weight_is_contiguous)
{
    ARIL_SCOPE;
    aril_tensor *x = there(filled(ARIL_SHAPE(2, 3, 5), 1), ARIL_F32);
    aril_tensor *w = aril_parameter(there(filled(ARIL_SHAPE(5, 4), 2), ARIL_F32));
    aril_tensor *v = aril_parameter(there(filled(ARIL_SHAPE(4, 5), 3), ARIL_F32));
    CHECK_INT(aril_backward(aril_sum(aril_linear(x, aril_t(w), NULL), ARIL_ALL)), 0);
    CHECK_INT(aril_backward(aril_sum(aril_linear(x, v, NULL), ARIL_ALL)), 0);
    CHECK(aril_is_contiguous(aril_grad(w)));
    CHECK(aril_is_contiguous(aril_grad(v)));
    aril_tensor *e = aril_sub(aril_grad(w), aril_t(aril_grad(v)));
    CHECK_NEAR(aril_item(aril_amax(aril_abs(e), ARIL_ALL)), 0, 1e-6);
    aril_release(w);
    aril_release(v);
    CHECK(aril_ok());
}
