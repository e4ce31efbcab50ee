/* Convolution, pooling and related ops: an exercise worked out by hand, rows against the reference,
 * wrong calls. */
#include "aril/aril.h"
#include "core/error.h"
#include "ops/table/apply.h"
#include "ops/vision/conv.h"
#include "ops/table/rows.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *of(const float *data, aril_shape shape)
{
    return aril_from(data, shape, ARIL_F32, test_device());
}

/* An exercise of the CS231n notes. The kernel [[0,-1,0],[1,1,1],[0,-1,0]] adds the middle row and
 * subtracts the elements above and below its middle:
 *     rows 0-2, columns 0-2:  -2 + (2 + 2 + 1) - 2 =  1
 *     rows 0-2, columns 2-4:  -4 + (1 + 1 + 1) - 1 = -2
 *     rows 2-4, columns 0-2:  -2 + (4 + 1 + 1) - 1 =  3
 *     rows 2-4, columns 2-4:  -1 + (1 + 1 + 1) - 1 =  1
 * ReLU: [[1,0],[3,1]]; the maximum is 3. Backward from 1, only the third window gets a gradient:
 * there the image's gradient is the kernel, and the kernel's gradient is rows 2-4, columns 0-2. */
TEST(cs231n_conv_relu_pool)
{
    ARIL_SCOPE;
    static const float image[25] = { 1, 2, 3, 4, 5, 2, 2, 1, 1, 1, 3, 2, 1,
                                     1, 1, 4, 1, 1, 1, 1, 5, 1, 1, 1, 1 };
    static const float kernel[9] = { 0, -1, 0, 1, 1, 1, 0, -1, 0 };
    aril_tensor *x = aril_parameter(of(image, ARIL_SHAPE(1, 1, 5, 5)));
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
    for (int i = 0; i < 9; i++) CHECK_NEAR(got[i], image[(2 + i / 3) * 5 + i % 3], 0);
    aril_release(x);
    aril_release(w);
    CHECK(aril_ok());
}

/* A wrong call returns poison with the code, and a message with these words. */
static void refused(aril_tensor *t, aril_status code, const char *word, const char *other)
{
    CHECK_INT(aril_tensor_status(t), code);
    CHECK_MSG(strstr(aril_error(), word), "no '%s' in: %s", word, aril_error());
    CHECK_MSG(strstr(aril_error(), other), "no '%s' in: %s", other, aril_error());
    aril_clear_error();
    CHECK(aril_ok());
}

TEST(invalid_arguments_are_rejected)
{
    ARIL_SCOPE;
    aril_device cpu = test_device();
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
    aril_tensor *beyond = aril_max_unpool2d(one, i, ARIL_SHAPE(3, 3), (aril_pool_opts){ 0 });
    if (test_on_cpu()) {
        refused(beyond, ARIL_ERR_INDEX, "index 9", "9 elements");
    } else { /* found when the device is waited for */
        CHECK_INT(aril_synchronize(test_device()), ARIL_ERR_INDEX);
        aril_clear_error();
    }
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
    if (!last) return aril_randn(shape, dtype, test_device());
    aril_axes back = { .n = ndim, .axis = { 0, ndim - 1 } };
    for (int i = 2; i < ndim; i++) {
        shape.dim[i - 1] = dim[i];
        back.axis[i] = i - 1;
    }
    shape.dim[ndim - 1] = dim[1];
    return aril_permute(aril_randn(shape, dtype, test_device()), back);
}

/* The largest value of a tensor, at least 1. */
static double size_of(aril_tensor *t)
{
    const double *v = aril_data(aril_cast(t, ARIL_F64));
    double max = 1;
    for (int64_t i = 0; i < aril_numel(t); i++) max = fabs(v[i]) > max ? fabs(v[i]) : max;
    return max;
}

/* The results of all rows agree with the reference within `tol` of their magnitude before the
 * activation, for which `plain` has the attributes without it; NULL: there is none. */
static void rows_agree(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs,
                       const void *plain, double tol)
{
    ARIL_SCOPE;
    aril__force_row = ARIL__FORCE_REFERENCE;
    aril_tensor *want = aril__apply1(op, n_in, in, attrs);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    int64_t n = aril_numel(want);
    const double *a = aril_data(aril_cast(want, ARIL_F64));
    double size = size_of(plain ? aril__apply1(op, n_in, in, plain) : want);
    int rows = aril__rows_of(test_device().kind, op, 0, NULL, NULL);
    CHECK_MSG(rows > 0, "%s has no rows", op->name);
    for (int row = 0; row < rows; row++) {
        aril__force_row = row;
        aril_tensor *got = aril__apply1(op, n_in, in, attrs);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        const double *b = aril_data(aril_cast(got, ARIL_F64));
        for (int64_t i = 0; i < n; i++)
            CHECK_MSG(fabs(a[i] - b[i]) <= tol * size,
                      "%s, row %d: element %d: %.9g, the reference has %.9g", op->name, row, (int)i,
                      b[i], a[i]);
    }
    aril__force_row = -1;
}

/* A convolution and a transposed one with the same weight. */
typedef struct problem {
    int n; /* spatial dimensions */
    int threads, deterministic;
    aril_dtype dtype;
    bool last, weight_last, bias, bias_back;
    int64_t x[5], w[5], z[5]; /* z: the input of the transposed one */
    struct conv_attrs a;
    struct conv_transpose_attrs t;
    int64_t act;
} problem;

/* Draws number `turn` of the problems. */
static problem draw(int turn)
{
    problem p = { .threads = (int)pick(1, 5) }; /* cuts the work differently */
    p.deterministic = pick(0, 3) ? ARIL_SAME_THREADS : ARIL_ANY_THREADS;
    int n = p.n = (int)pick(1, 3);
    bool depthwise = pick(0, 3) == 0;
    p.last = pick(0, 2) == 0;
    bool large = turn % 8 == 0 && n == 2;
    p.dtype = pick(0, 5) == 0 ? ARIL_BF16 : pick(0, 3) == 0 ? ARIL_F64 : ARIL_F32;
    bool batches = turn % 5 == 0 && !large && !depthwise; /* that fill vectors */
    int64_t groups = depthwise ? pick(2, 5) : batches ? 1 : pick(1, 3);
    int64_t c = depthwise ? 1 : pick(1, large ? 20 : batches ? 9 : 4);
    int64_t k = pick(1, large ? 20 : batches ? 9 : 3);
    p.a.same[0] = pick(0, 4) == 0 ? pick(1, 2) : 0;
    p.t.activation[0] = pick(0, 1) * pick(0, ARIL_TANH);
    if (depthwise && pick(0, 1)) groups = 70;
    p.a.groups[0] = p.t.groups[0] = groups;
    p.x[0] = p.z[0] = batches ? 16 * pick(1, 6) : pick(1, 3);
    p.x[1] = groups * c;
    p.w[0] = p.z[1] = groups * k;
    p.w[1] = c;
    for (int i = 0; i < n; i++) {
        p.w[2 + i] = pick(1, pick(0, 1) ? 1 : 4);
        p.a.stride[i] = p.t.stride[i] = pick(1, 3);
        p.a.dilation[i] = p.t.dilation[i] = pick(1, 3);
        for (int e = 0; e < 2; e++) p.a.pad[2 * i + e] = p.a.same[0] ? 0 : pick(0, 1) * pick(0, 3);
        p.x[2 + i] = (p.w[2 + i] - 1) * p.a.dilation[i] + 1 + pick(0, large ? 30 : 6);
        p.t.output_padding[i] = pick(0, p.a.stride[i] - 1);
        p.z[2 + i] = pick(1, 5);
    }
    p.weight_last = pick(0, 4) == 0;
    p.bias = pick(0, 1);
    p.act = pick(0, 1) * pick(0, ARIL_TANH);
    p.bias_back = pick(0, 1);
    return p;
}

static void check_problem(const problem *p)
{
    ARIL_SCOPE;
    aril_dtype dtype = p->dtype;
    double tol = dtype == ARIL_BF16 ? 8e-3 : dtype == ARIL_F64 ? 1e-12 : 2e-6;
    int ndim = p->n + 2;
    aril_set_threads(p->threads);
    aril_set_deterministic(p->deterministic);
    aril_tensor *xt = some(ndim, p->x, p->last, dtype);
    aril_tensor *wt = some(ndim, p->w, p->weight_last, dtype);
    aril_tensor *in[3] = { xt, wt, p->bias ? some(1, p->w, false, dtype) : NULL };
    struct conv_attrs with_act = p->a;
    with_act.activation[0] = p->act;
    rows_agree(&aril__op_conv, 3, in, &with_act, p->act ? &p->a : NULL, tol);
    aril_shape out = aril_shape_of(aril__apply1(&aril__op_conv, 2, in, &p->a));
    CHECK_INT(out.ndim, ndim);
    aril_tensor *g = some(ndim, out.dim, p->last, dtype);
    rows_agree(&aril__op_conv_dgrad, 3, (aril_tensor *[]){ g, wt, xt }, &p->a, NULL, tol);
    rows_agree(&aril__op_conv_wgrad, 3, (aril_tensor *[]){ g, xt, wt }, &p->a, NULL, tol);
    struct conv_transpose_attrs plain = p->t;
    plain.activation[0] = ARIL_NO_ACTIVATION;
    aril_tensor *zt = some(ndim, p->z, p->last, dtype);
    aril_tensor *bias = p->bias_back ? some(1, p->x + 1, false, dtype) : NULL;
    rows_agree(&aril__op_conv_transpose, 3, (aril_tensor *[]){ zt, wt, bias }, &p->t,
               p->t.activation[0] ? &plain : NULL, tol);
}

TEST(rows_agree_with_the_reference)
{
    aril_seed(3);
    for (int turn = 0; turn < 400 && !test_failed(); turn++) {
        problem p = draw(turn);
        if (test_part(turn)) check_problem(&p);
    }
    aril_set_threads(0);
    aril_set_deterministic(ARIL_SAME_THREADS);
}

/* NaN and infinities before a fused activation. */
TEST(activations_of_nan_and_infinity)
{
    /* two channels, since oneDNN processes 16-bit values in pairs: it may multiply what follows the
     * last of an odd number by 0 */
    static const float odd[12] = { NAN, INFINITY, -INFINITY, 7, -3, 0 };
    static const int64_t w[4] = { 16, 2, 1, 1 };
    aril_dtype types[3] = { ARIL_F32, ARIL_BF16, ARIL_F16 };
    for (int t = 0; t < 3; t++)
        for (int act = 0; act <= ARIL_TANH; act++) {
            if (!test_part(act)) continue;
            ARIL_SCOPE;
            aril_tensor *x = aril_from(odd, ARIL_SHAPE(1, 2, 2, 3), ARIL_F32, test_device());
            aril_tensor *in[2] = { aril_cast(x, types[t]), some(4, w, false, types[t]) };
            struct conv_attrs a = {
                .stride = { 1, 1 }, .dilation = { 1, 1 }, .groups = { 1 }, .activation = { act }
            };
            in[1] = aril_abs(in[1]);
            aril__force_row = ARIL__FORCE_REFERENCE;
            aril_tensor *want = aril_contiguous(aril__apply1(&aril__op_conv, 2, in, &a));
            for (aril__force_row = 0; aril__force_row < 3; aril__force_row++) {
                aril_tensor *got = aril_contiguous(aril__apply1(&aril__op_conv, 2, in, &a));
                const double *p = aril_data(aril_cast(got, ARIL_F64));
                const double *q = aril_data(aril_cast(want, ARIL_F64));
                for (int i = 0; i < 16 * 6; i++)
                    CHECK_MSG(p[i] == q[i] || (isnan(p[i]) && isnan(q[i])) ||
                                  fabs(p[i] - q[i]) <= 1e-2 * fabs(q[i]),
                              "row %d, activation %d, type %d: %g, the reference has %g",
                              aril__force_row, act, t, p[i], q[i]);
            }
            aril__force_row = -1;
        }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* ---- reordered weights ---- */

static bool close_to(aril_tensor *a, aril_tensor *b, double max)
{
    return aril_item(aril_amax(aril_abs(aril_sub(a, b)), ARIL_ALL)) <= max;
}

/* A weight used for inference may be cached in another format. A write to it, through any view,
 * must be visible to the next call. */
TEST(changed_weight_is_repacked)
{
    ARIL_SCOPE;
    static const int64_t x[4] = { 2, 32, 9, 9 }, w[4] = { 32, 32, 3, 3 };
    aril_conv_opts same = { .padding = { 1, 1 } };
    aril_tensor *xt = some(4, x, false, ARIL_F32), *wt = some(4, w, false, ARIL_F32);
    for (int turn = 0; turn < 6; turn++) {
        ARIL_SCOPE;
        aril_tensor *first = aril_conv2d(xt, wt, NULL, same);
        CHECK(close_to(aril_conv2d(xt, wt, NULL, same), first, 0));
        /* a new copy has no cached form */
        CHECK(close_to(aril_conv2d(xt, aril_copy(wt), NULL, same), first, 0));
        if (turn % 3 == 0)
            aril_mul_(wt, aril_scalar(0.5));
        else if (turn % 3 == 1)
            aril_fill_(aril_select(wt, 0, 3), 0.25);
        else
            aril_copy_(wt, some(4, w, false, ARIL_F32));
        CHECK(!close_to(aril_conv2d(xt, wt, NULL, same), first, 1e-5));
        CHECK(close_to(aril_conv2d(xt, wt, NULL, same), aril_conv2d(xt, aril_copy(wt), NULL, same),
                       0));
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* Training packs a weight at each step and caches nothing. */
TEST(training_keeps_no_packed_weight)
{
    ARIL_SCOPE;
    static const int64_t x[4] = { 1, 64, 6, 6 }, w[4] = { 64, 64, 3, 3 };
    aril_tensor *xt = some(4, x, true, ARIL_F32), *wt = some(4, w, false, ARIL_F32);
    CHECK_INT(aril_set_requires_grad(wt, true), ARIL_OK);
    for (int turn = 0; turn < 2; turn++) {
        int64_t before = aril_memory(test_device()).live;
        {
            ARIL_SCOPE;
            aril_backward(aril_sum(aril_conv2d(xt, wt, NULL, (aril_conv_opts){ 0 }), ARIL_ALL));
        }
        int64_t gradient = (int64_t)sizeof(float) * aril_numel(wt);
        CHECK_MSG(aril_memory(test_device()).live - before <= (turn ? 0 : gradient * 9 / 8),
                  "%lld bytes are kept", (long long)(aril_memory(test_device()).live - before));
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* On the CPU any image gives channels-last results and gradients, elsewhere a channels-last one; a
 * weight's gradient has the weight's format. */
TEST(channels_last_is_kept)
{
    ARIL_SCOPE;
    static const int64_t x[4] = { 2, 3, 6, 5 }, w[4] = { 4, 3, 3, 3 };
    aril_tensor *xt = some(4, x, true, ARIL_F32), *wt = some(4, w, false, ARIL_F32);
    aril_tensor *y = aril_conv2d(xt, wt, NULL, (aril_conv_opts){ .padding = { 1, 1 } });
    CHECK(aril_is_channels_last(xt));
    CHECK(aril_is_channels_last(y));
    CHECK(!aril_is_contiguous(y));
    CHECK(aril_is_channels_last(aril_max_pool2d(y, (aril_pool_opts){ .kernel = { 2 } }, NULL)));
    aril_tensor *z = aril_conv2d(aril_contiguous(xt), wt, NULL, (aril_conv_opts){ 0 });
    CHECK(aril_is_channels_last(z) || !test_on_cpu());
    xt = aril_copy(xt);
    aril_set_requires_grad(wt, true);
    aril_set_requires_grad(xt, true);
    aril_tensor *g[2];
    y = aril_conv2d(aril_contiguous(xt), wt, NULL, (aril_conv_opts){ 0 });
    CHECK_INT(aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(xt, wt), g, (aril_grad_opts){ 0 }),
              ARIL_OK);
    CHECK(aril_is_channels_last(g[0]) || !test_on_cpu());
    CHECK(aril_is_contiguous(g[1])); /* like the weight */
}

/* ---- kernel positions that only read padding ---- */

/* Fills freed memory with NaN, so that reused blocks are not zero. */
static void spoil(int64_t elements)
{
    ARIL_SCOPE;
    for (int64_t n = 1; n <= 64 * elements; n *= 2)
        for (int i = 0; i < 4; i++) aril_full(ARIL_SHAPE(n), NAN, ARIL_F32, test_device());
}

/* One dimension of a problem: sizes, and options. */
typedef struct line {
    int64_t in, kernel, stride, padding, dilation;
} line;

static aril_tensor *weight_gradient(aril_tensor *x, aril_tensor *w, int spatial,
                                    aril_conv_opts opts, bool data)
{
    aril_tensor *g;
    aril_tensor *y = spatial == 1   ? aril_conv1d(x, w, NULL, opts)
                     : spatial == 2 ? aril_conv2d(x, w, NULL, opts)
                                    : aril_conv3d(x, w, NULL, opts);
    aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(data ? x : w), &g, (aril_grad_opts){ 0 });
    return g;
}

/* All ones, so that every dtype is exact: compared with plain loops in f64. */
static void check_gradients(int spatial, const line *l, aril_dtype dtype, int64_t batch,
                            int64_t channels)
{
    ARIL_SCOPE;
    aril_shape xs = { .ndim = spatial + 2, .dim = { batch, channels } };
    aril_shape ws = { .ndim = spatial + 2, .dim = { channels, channels } };
    aril_conv_opts opts = { 0 };
    for (int i = 0; i < spatial; i++) {
        xs.dim[2 + i] = l[i].in;
        ws.dim[2 + i] = l[i].kernel;
        opts.stride[i] = l[i].stride;
        opts.padding[i] = l[i].padding ? l[i].padding : ARIL_ZERO;
        opts.dilation[i] = l[i].dilation;
    }
    aril_tensor *in[2][2];
    for (int wide = 0; wide < 2; wide++) {
        aril_dtype type = wide ? ARIL_F64 : dtype;
        in[wide][0] = aril_ones(xs, type, test_device());
        in[wide][1] = aril_ones(ws, type, test_device());
        for (int i = 0; i < 2; i++) aril_set_requires_grad(in[wide][i], true);
    }
    spoil(channels * channels * 27);
    for (int data = 0; data < 2; data++) {
        aril_tensor *got = weight_gradient(in[0][0], in[0][1], spatial, opts, data);
        aril_tensor *want = weight_gradient(in[1][0], in[1][1], spatial, opts, data);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        double off =
            aril_item(aril_amax(aril_abs(aril_sub(aril_cast(got, ARIL_F64), want)), ARIL_ALL));
        CHECK_MSG(
            off == 0,
            "%s, %d dimensions, %lld samples of %lld channels, in %lld kernel %lld stride %lld "
            "padding %lld dilation %lld: the gradient of %s is off by %g",
            aril_dtype_name(dtype), spatial, (long long)batch, (long long)channels,
            (long long)l->in, (long long)l->kernel, (long long)l->stride, (long long)l->padding,
            (long long)l->dilation, data ? "x" : "w", off);
    }
}

TEST(kernel_positions_in_padding_have_gradient_zero)
{
    static const line lines[] = {
        { 2, 3, 3, 2, 1 }, /* the middle of the kernel reads no element */
        { 1, 3, 1, 1, 1 }, { 1, 5, 2, 2, 1 }, { 4, 3, 1, 5, 5 }, { 3, 3, 4, 3, 3 },
        { 2, 2, 5, 3, 2 }, { 5, 3, 7, 4, 1 }, { 1, 2, 4, 4, 3 }, { 6, 3, 2, 1, 1 },
    };
    static const line plain = { 1, 1, 1, 0, 1 };
    const aril_dtype dtypes[] = { ARIL_BF16, ARIL_F16, ARIL_F32 };
    const int64_t sizes[][2] = { { 1, 2 }, { 3, 16 } }; /* samples, channels */
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        if (!test_part((int)k)) continue;
        line other = lines[(k + 3) % (sizeof lines / sizeof *lines)];
        const line one[1] = { lines[k] }, row[2] = { plain, lines[k] },
                   two[2] = { lines[k], other };
        const line three[3] = { lines[k], other, lines[k] };
        for (int d = 0; d < 3; d++)
            for (int s = 0; s < 2 && !test_failed(); s++) {
                check_gradients(1, one, dtypes[d], sizes[s][0], sizes[s][1]);
                check_gradients(2, row, dtypes[d], sizes[s][0], sizes[s][1]);
                check_gradients(2, two, dtypes[d], sizes[s][0], sizes[s][1]);
                if (s == 0) check_gradients(3, three, dtypes[d], sizes[s][0], sizes[s][1]);
            }
    }
}

/* The same with rows split among threads: a piece may read only padding. */
TEST(kernel_positions_in_the_padding_of_one_partition)
{
    const int threads = aril_threads();
    const line tall[2] = { { 15, 3, 4, 6, 6 }, { 40, 3, 1, 1, 1 } };
    aril_set_threads(4);
    check_gradients(2, tall, ARIL_BF16, 1, 64);
    check_gradients(2, tall, ARIL_F32, 1, 64);
    aril_set_threads(threads);
}
