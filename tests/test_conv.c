/* Convolution, pooling and their like: an exercise worked out by hand, rows against the reference,
 * wrong calls. */
#include "aril/aril.h"
#include "core/error.h"
#include "ops/apply.h"
#include "ops/conv.h"
#include "ops/rows.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *of(const float *data, aril_shape shape)
{
    return aril_from(data, shape, ARIL_F32, aril_cpu());
}

/* An exercise of the CS231n notes. The kernel [[0,-1,0],[1,1,1],[0,-1,0]] adds the middle row and
 * takes away the elements above and below its middle:
 *     rows 0-2, columns 0-2:  -2 + (2 + 2 + 1) - 2 =  1
 *     rows 0-2, columns 2-4:  -4 + (1 + 1 + 1) - 1 = -2
 *     rows 2-4, columns 0-2:  -2 + (4 + 1 + 1) - 1 =  3
 *     rows 2-4, columns 2-4:  -1 + (1 + 1 + 1) - 1 =  1
 * ReLU: [[1,0],[3,1]]; the largest is 3. Backwards from 1, the gradient reaches the third window
 * alone: the picture gets the kernel there, and the kernel gets rows 2-4, columns 0-2. */
TEST(cs231n_conv_relu_pool)
{
    ARIL_SCOPE;
    static const float picture[25] = { 1, 2, 3, 4, 5, 2, 2, 1, 1, 1, 3, 2, 1,
                                       1, 1, 4, 1, 1, 1, 1, 5, 1, 1, 1, 1 };
    static const float kernel[9] = { 0, -1, 0, 1, 1, 1, 0, -1, 0 };
    aril_tensor *x = aril_parameter(of(picture, ARIL_SHAPE(1, 1, 5, 5)));
    aril_tensor *w = aril_parameter(of(kernel, ARIL_SHAPE(1, 1, 3, 3)));
    aril_tensor *y = aril_conv2d(x, w, NULL, (aril_conv_opts){ .stride = { 2, 2 } });
    static const float conv[4] = { 1, -2, 3, 1 };
    float got[25];
    CHECK_INT(aril_read(y, got), 0);
    for (int i = 0; i < 4; i++) CHECK_NEAR(got[i], conv[i], 0);
    aril_tensor *where;
    aril_tensor *p = aril_max_pool2d(aril_relu(y), (aril_pool_opts){ .kernel = { 2, 2 } }, &where);
    CHECK_NEAR(aril_item(p), 3, 0);
    CHECK_INT(aril_item_int(where), 2);
    CHECK_INT(aril_backward(p), 0);
    CHECK_INT(aril_read(aril_grad(x), got), 0);
    for (int i = 0; i < 25; i++) {
        int r = i / 5 - 2, c = i % 5;
        CHECK_NEAR(got[i], r >= 0 && c < 3 ? kernel[r * 3 + c] : 0, 0);
    }
    CHECK_INT(aril_read(aril_grad(w), got), 0);
    for (int i = 0; i < 9; i++) CHECK_NEAR(got[i], picture[(2 + i / 3) * 5 + i % 3], 0);
    aril_release(x);
    aril_release(w);
    CHECK(aril_ok());
}

/* A wrong call gives poison, the code, and a message with the words. */
static void refused(aril_tensor *t, aril_status code, const char *word, const char *other)
{
    CHECK_INT(aril_tensor_status(t), code);
    CHECK_MSG(strstr(aril_error(), word), "no '%s' in: %s", word, aril_error());
    CHECK_MSG(strstr(aril_error(), other), "no '%s' in: %s", other, aril_error());
    aril_clear_error();
    CHECK(aril_ok());
}

TEST(wrong_calls)
{
    ARIL_SCOPE;
    aril_device cpu = aril_cpu();
    aril_tensor *x = aril_zeros(ARIL_SHAPE(1, 4, 5, 5), ARIL_F32, cpu);
    aril_tensor *w = aril_zeros(ARIL_SHAPE(6, 4, 3, 3), ARIL_F32, cpu);
    aril_tensor *w3 = aril_zeros(ARIL_SHAPE(6, 3, 3, 3), ARIL_F32, cpu);
    aril_tensor *big = aril_zeros(ARIL_SHAPE(6, 4, 7, 3), ARIL_F32, cpu);
    aril_tensor *b = aril_zeros(ARIL_SHAPE(5), ARIL_F32, cpu);
    aril_tensor *w64 = aril_zeros(ARIL_SHAPE(6, 4, 3, 3), ARIL_F64, cpu);
    aril_tensor *ints = aril_zeros(ARIL_SHAPE(1, 4, 5, 5), ARIL_I32, cpu);
    aril_tensor *flat = aril_zeros(ARIL_SHAPE(4, 5), ARIL_F32, cpu);
    aril_conv_opts none = { 0 };
    refused(aril_conv2d(NULL, w, NULL, none), ARIL_ERR_ARG, "conv2d", "NULL");
    refused(aril_conv2d(x, NULL, NULL, none), ARIL_ERR_ARG, "conv2d", "NULL");
    refused(aril_conv2d(x, w3, NULL, none), ARIL_ERR_SHAPE, "[1,4,5,5]", "[6,3,3,3]");
    refused(aril_conv2d(x, big, NULL, none), ARIL_ERR_SHAPE, "[1,4,5,5]", "[6,4,7,3]");
    refused(aril_conv2d(x, w, b, none), ARIL_ERR_SHAPE, "[6]", "[5]");
    refused(aril_conv2d(x, w64, NULL, none), ARIL_ERR_DTYPE, "f32", "f64");
    refused(aril_conv2d(ints, w, NULL, none), ARIL_ERR_DTYPE, "conv", "i32");
    refused(aril_conv2d(flat, w, NULL, none), ARIL_ERR_SHAPE, "conv2d", "[4,5]");
    refused(aril_conv1d(x, w, NULL, none), ARIL_ERR_SHAPE, "conv1d", "[1,4,5,5]");
    refused(aril_conv2d(x, w, NULL, (aril_conv_opts){ .groups = 4 }), ARIL_ERR_SHAPE, "4 groups",
            "[6,4,3,3]");
    refused(aril_conv2d(x, w, NULL, (aril_conv_opts){ .stride = { -1 } }), ARIL_ERR_ARG, "stride",
            "-1");
    refused(aril_conv2d(x, w, NULL, (aril_conv_opts){ .padding = { 0, -2 } }), ARIL_ERR_ARG,
            "padding", "-2");
    refused(aril_conv_transpose2d(x, w, NULL, none), ARIL_ERR_SHAPE, "[1,4,5,5]", "[6,4,3,3]");
    aril_tensor *wt = aril_zeros(ARIL_SHAPE(4, 2, 3, 3), ARIL_F32, cpu);
    refused(aril_conv_transpose2d(x, wt, NULL, (aril_conv_opts){ .output_padding = { 1 } }),
            ARIL_ERR_ARG, "output padding 1", "stride 1");
    refused(aril_conv_transpose2d(x, wt, NULL, (aril_conv_opts){ .padding = { 9, 9 } }),
            ARIL_ERR_SHAPE, "[1,4,5,5]", "[4,2,3,3]");
    aril_tensor *where = NULL;
    refused(aril_max_pool2d(x, (aril_pool_opts){ 0 }, &where), ARIL_ERR_ARG, "max_pool2d",
            "kernel");
    CHECK(aril_tensor_status(where) < 0);
    refused(aril_max_pool2d(x, (aril_pool_opts){ .kernel = { 6 } }, NULL), ARIL_ERR_SHAPE,
            "window of 6", "[1,4,5,5]");
    refused(aril_max_pool2d(x, (aril_pool_opts){ .kernel = { 2 }, .padding = { 2 } }, NULL),
            ARIL_ERR_ARG, "padding 2", "window of 2");
    refused(aril_avg_pool2d(flat, (aril_pool_opts){ .kernel = { 2 } }), ARIL_ERR_SHAPE,
            "avg_pool2d", "[4,5]");
    refused(aril_adaptive_avg_pool2d(x, ARIL_SHAPE(2)), ARIL_ERR_ARG, "adaptive_avg_pool2d", "1");
    static const int64_t far[1] = { 9 };
    aril_tensor *i = aril_from(far, ARIL_SHAPE(1, 1, 1, 1), ARIL_I64, cpu);
    aril_tensor *one = aril_ones(ARIL_SHAPE(1, 1, 1, 1), ARIL_F32, cpu);
    refused(aril_max_unpool2d(one, i, ARIL_SHAPE(3, 3), (aril_pool_opts){ 0 }), ARIL_ERR_INDEX,
            "index 9", "9 elements");
}

/* ---- rows against the reference ---- */

static int64_t pick(int64_t low, int64_t high) /* both included */
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + (int64_t)((state >> 33) % (uint64_t)(high - low + 1));
}

static aril_tensor *some(int ndim, const int64_t *dim, bool last, aril_dtype dtype)
{
    aril_shape shape = { .ndim = ndim };
    memcpy(shape.dim, dim, (size_t)ndim * sizeof *dim);
    if (!last) return aril_randn(shape, dtype, aril_cpu());
    aril_axes back = { .n = ndim, .axis = { 0, ndim - 1 } };
    for (int i = 2; i < ndim; i++) {
        shape.dim[i - 1] = dim[i];
        back.axis[i] = i - 1;
    }
    shape.dim[ndim - 1] = dim[1];
    return aril_permute(aril_randn(shape, dtype, aril_cpu()), back);
}

/* The results of all rows, the reference last, agree within `tol` of their size. */
static void rows_agree(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs,
                       double tol)
{
    ARIL_SCOPE;
    aril__force_row = 1000;
    aril_tensor *want = aril__apply1(op, n_in, in, attrs);
    aril__force_row = -1;
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_tensor *got = aril__apply1(op, n_in, in, attrs);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    int64_t n = aril_numel(want);
    const double *a = aril_data(aril_cast(want, ARIL_F64));
    const double *b = aril_data(aril_cast(got, ARIL_F64));
    double size = 1;
    for (int64_t i = 0; i < n; i++) size = fabs(a[i]) > size ? fabs(a[i]) : size;
    for (int64_t i = 0; i < n; i++)
        CHECK_MSG(fabs(a[i] - b[i]) <= tol * size, "%s: element %d: %.9g, the reference has %.9g",
                  op->name, (int)i, b[i], a[i]);
}

TEST(rows_agree_with_the_reference)
{
    aril_seed(3);
    for (int turn = 0; turn < 400 && !test_failed(); turn++) {
        ARIL_SCOPE;
        int n = (int)pick(1, 3);
        bool depthwise = pick(0, 3) == 0, last = pick(0, 2) == 0, large = turn % 8 == 0 && n == 2;
        aril_dtype dtype = pick(0, 5) == 0 ? ARIL_BF16 : pick(0, 3) == 0 ? ARIL_F64 : ARIL_F32;
        double tol = dtype == ARIL_BF16 ? 8e-3 : dtype == ARIL_F64 ? 1e-12 : 2e-6;
        int64_t groups = depthwise ? pick(2, 5) : pick(1, 3);
        int64_t c = depthwise ? 1 : pick(1, large ? 20 : 4), k = pick(1, large ? 20 : 3);
        struct conv_attrs a = { .groups = { groups },
                                .same = { pick(0, 4) == 0 ? pick(1, 2) : 0 } };
        struct conv_transpose_attrs t = { .groups = { groups } };
        int64_t x[5] = { pick(1, 3), groups * c }, w[5] = { groups * k, c }, y[5] = { x[0], w[0] };
        int64_t z[5] = { x[0], w[0] }; /* what a transposed convolution takes */
        for (int i = 0; i < n; i++) {
            w[2 + i] = pick(1, pick(0, 1) ? 1 : 4);
            a.stride[i] = pick(1, 3);
            a.dilation[i] = pick(1, 3);
            for (int e = 0; e < 2; e++) a.pad[2 * i + e] = a.same[0] ? 0 : pick(0, 1) * pick(0, 3);
            x[2 + i] = (w[2 + i] - 1) * a.dilation[i] + 1 + pick(0, large ? 30 : 6);
            t.stride[i] = a.stride[i];
            t.dilation[i] = a.dilation[i];
            t.output_padding[i] = pick(0, a.stride[i] - 1);
            z[2 + i] = pick(1, 5);
        }
        aril_tensor *xt = some(n + 2, x, last, dtype), *wt = some(n + 2, w, pick(0, 4) == 0, dtype);
        aril_tensor *bias = pick(0, 1) ? some(1, y + 1, false, dtype) : NULL;
        aril_tensor *in[3] = { xt, wt, bias };
        rows_agree(&aril__op_conv, 3, in, &a, tol);
        aril_shape out = aril_shape_of(aril__apply1(&aril__op_conv, 2, in, &a));
        CHECK_INT(out.ndim, n + 2);
        aril_tensor *g = some(n + 2, out.dim, last, dtype);
        rows_agree(&aril__op_conv_dgrad, 3, (aril_tensor *[]){ g, wt, xt }, &a, tol);
        rows_agree(&aril__op_conv_wgrad, 3, (aril_tensor *[]){ g, xt, wt }, &a, tol);
        aril_tensor *zt = some(n + 2, z, last, dtype);
        bias = pick(0, 1) ? some(1, x + 1, false, dtype) : NULL;
        rows_agree(&aril__op_conv_transpose, 3, (aril_tensor *[]){ zt, wt, bias }, &t, tol);
    }
}

/* A channels-last picture gives a channels-last result, and any does where rows want it so. */
TEST(channels_last_stays)
{
    ARIL_SCOPE;
    static const int64_t x[4] = { 2, 3, 6, 5 }, w[4] = { 4, 3, 3, 3 };
    aril_tensor *xt = some(4, x, true, ARIL_F32), *wt = some(4, w, false, ARIL_F32);
    aril_tensor *y = aril_conv2d(xt, wt, NULL, (aril_conv_opts){ .padding = { 1, 1 } });
    CHECK(aril_is_channels_last(xt));
    CHECK(aril_is_channels_last(y));
    CHECK(!aril_is_contiguous(y));
    CHECK(aril_is_channels_last(aril_max_pool2d(y, (aril_pool_opts){ .kernel = { 2 } }, NULL)));
    bool wanted = aril__rows_make_last(aril__cpu_device, &aril__op_conv, ARIL_F32);
    aril_tensor *z = aril_conv2d(aril_contiguous(xt), wt, NULL, (aril_conv_opts){ 0 });
    CHECK(wanted ? aril_is_channels_last(z) : aril_is_contiguous(z));
#if ARIL_HAVE_ONEDNN
    CHECK(wanted);
#endif
}
