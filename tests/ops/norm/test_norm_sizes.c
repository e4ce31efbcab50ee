/* Normalization, pooling, sums and elementwise ops at sizes where kernels cut the work into blocks
 * and vectors, on the device of ARIL_TEST_DEVICE: compared with f64 on the CPU. */
#include <aril/aril.h>

#include <math.h>

#include "support/against.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

/* What f16 and bf16 allow, relative to the largest element, when they round once. */
static double tolerance_of(aril_dtype type)
{
    return type == ARIL_F32 ? 2e-5 : type == ARIL_F16 ? 2e-3 : 1.5e-2;
}

static const aril_dtype types[] = { ARIL_F32, ARIL_F16, ARIL_BF16 };
enum { TYPES = sizeof types / sizeof *types };

/* x in the memory order of a test: contiguous, channels-last, or a view that begins at the second
 * sample, and so at an odd address if samples have an odd size. */
typedef enum order { CONTIGUOUS, CHANNELS_LAST, VIEW } order;

static aril_tensor *ordered(aril_tensor *x, order o)
{
    if (o == CHANNELS_LAST) return aril_channels_last(x);
    return o == VIEW ? aril_narrow(x, 0, 1, aril_size(x, 0) - 1) : x;
}

/* ---- batch_norm ---- */

typedef struct norm_how {
    order order;
    bool residual, eval;
    aril_activation activation;
} norm_how;

/* in: x, weight, bias, then the residual or, for evaluation, the statistics */
static aril_tensor *normalize(aril_tensor *const *in, const void *how)
{
    const norm_how *h = how;
    aril_batch_norm_opts opts = { .activation = h->activation, .eval = h->eval };
    if (h->residual) opts.residual = ordered(in[3], h->order);
    aril_tensor *mean = h->eval ? in[3] : NULL, *var = NULL;
    if (h->eval) var = aril_add_scalar(aril_square(in[4]), 0.5);
    return aril_batch_norm(ordered(in[0], h->order), in[1], in[2], mean, var, opts);
}

static void norm_case(norm_how h, int64_t n, int64_t c, int64_t height, int64_t width)
{
    aril_shape x = ARIL_SHAPE(n + (h.order == VIEW), c, height, width);
    aril_shape shapes[] = { x, ARIL_SHAPE(c), ARIL_SHAPE(c), x, ARIL_SHAPE(c) };
    if (h.eval) shapes[3] = ARIL_SHAPE(c);
    for (int t = 0; t < TYPES; t++)
        test_against_f64(normalize,
                         h.eval       ? 5
                         : h.residual ? 4
                                      : 3,
                         shapes, &h, types[t], ARIL_SHAPE(n, c, height, width),
                         2 * tolerance_of(types[t]));
}

static const int64_t images[][4] = {
    { 3, 1, 5, 5 },    { 2, 3, 7, 9 },   { 5, 5, 1, 1 },    { 1, 33, 8, 8 },    { 2, 1000, 3, 3 },
    { 9, 24, 14, 14 }, { 3, 144, 9, 9 }, { 2, 2056, 2, 2 }, { 64, 16, 20, 20 }, { 4, 40, 1, 3 },
};
enum { IMAGES = sizeof images / sizeof *images };

TEST(batch_norm)
{
    for (int i = 0; i < IMAGES; i++)
        for (order o = CONTIGUOUS; o <= VIEW; o++) {
            const int64_t *d = images[i];
            norm_case((norm_how){ .order = o }, d[0], d[1], d[2], d[3]);
            norm_case((norm_how){ .order = o, .activation = ARIL_RELU }, d[0], d[1], d[2], d[3]);
            norm_case((norm_how){ .order = o, .activation = ARIL_RELU6 }, d[0], d[1], d[2], d[3]);
        }
}

TEST(batch_norm_with_residual)
{
    for (int i = 0; i < IMAGES; i++)
        for (order o = CONTIGUOUS; o <= VIEW; o++) {
            const int64_t *d = images[i];
            norm_how h = { .order = o, .residual = true, .activation = ARIL_RELU };
            norm_case(h, d[0], d[1], d[2], d[3]);
            h.activation = ARIL_RELU6;
            norm_case(h, d[0], d[1], d[2], d[3]);
        }
}

TEST(batch_norm_of_given_statistics)
{
    for (int i = 0; i < IMAGES; i++)
        for (order o = CONTIGUOUS; o <= VIEW; o++) {
            const int64_t *d = images[i];
            norm_case((norm_how){ .order = o, .eval = true }, 1, d[1], d[2], d[3]);
        }
}

/* A channel whose mean is far from 0: its variance must not cancel. */
static aril_tensor *normalize_far(aril_tensor *const *in, const void *how)
{
    const norm_how *h = how;
    aril_tensor *x = aril_add_scalar(aril_mul_scalar(in[0], 0.125), 64);
    return aril_batch_norm(ordered(x, h->order), in[1], in[2], NULL, NULL,
                           (aril_batch_norm_opts){ 0 });
}

TEST(batch_norm_far_from_zero)
{
    aril_shape shapes[] = { ARIL_SHAPE(9, 24, 14, 14), ARIL_SHAPE(24), ARIL_SHAPE(24) };
    for (order o = CONTIGUOUS; o <= CHANNELS_LAST; o++)
        test_against_f64(normalize_far, 3, shapes, &(norm_how){ .order = o }, ARIL_F32, shapes[0],
                         1e-3);
}

TEST(batch_norm_of_nothing)
{
    static const int64_t shapes[][4] = { { 0, 8, 2, 2 }, { 2, 8, 0, 2 }, { 2, 0, 2, 2 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ARIL_SCOPE;
        const int64_t *d = shapes[i];
        aril_tensor *x = aril_zeros(ARIL_SHAPE(d[0], d[1], d[2], d[3]), ARIL_BF16, test_device());
        aril_tensor *w = aril_ones(ARIL_SHAPE(d[1]), ARIL_F32, test_device());
        aril_set_requires_grad(w, true);
        aril_tensor *y = aril_batch_norm(x, w, NULL, NULL, NULL, (aril_batch_norm_opts){ 0 });
        CHECK_MSG(aril_tensor_status(y) == ARIL_OK, "%s", aril_error());
        aril_backward(aril_sum(y, ARIL_ALL));
        aril_tensor *dw = aril_grad(w);
        CHECK(dw && (d[1] == 0 || aril_item(aril_amax(aril_abs(dw), ARIL_ALL)) == 0));
    }
}

/* ---- group_norm ---- */

typedef struct group_how {
    order order;
    int64_t groups;
} group_how;

/* in: x, weight, bias; f64, to which the others are compared, is always contiguous. */
static aril_tensor *normalize_groups(aril_tensor *const *in, const void *how)
{
    const group_how *h = how;
    aril_tensor *x = ordered(in[0], h->order);
    if (aril_dtype_of(x) == ARIL_F64) x = aril_contiguous(x);
    return aril_group_norm(x, in[1], in[2], h->groups, (aril_norm_opts){ 0 });
}

TEST(group_norm)
{
    static const int64_t sizes[][5] = { { 3, 1, 5, 5, 1 },     { 2, 6, 7, 9, 3 },
                                        { 5, 5, 1, 1, 1 },     { 1, 33, 8, 8, 11 },
                                        { 2, 1000, 3, 3, 10 }, { 2, 4112, 2, 3, 4 },
                                        { 65, 16, 9, 20, 8 },  { 2, 40, 70, 60, 8 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (order o = CONTIGUOUS; o <= VIEW; o++)
            for (int t = 0; t < TYPES; t++) {
                const int64_t *d = sizes[i];
                aril_shape x = ARIL_SHAPE(d[0] + (o == VIEW), d[1], d[2], d[3]);
                aril_shape shapes[] = { x, ARIL_SHAPE(d[1]), ARIL_SHAPE(d[1]) };
                test_against_f64(normalize_groups, 3, shapes, &(group_how){ o, d[4] }, types[t],
                                 ARIL_SHAPE(d[0], d[1], d[2], d[3]), 3 * tolerance_of(types[t]));
            }
}

/* Channels-last sums start from the values of the first pixel, which may be unlike the others. */
TEST(group_norm_of_unusual_first_pixels)
{
    static const double first[] = { 0, 3e4, 1e30, -INFINITY, NAN }, offset[] = { 0, 500, 1e30 };
    static const aril_dtype all[] = { ARIL_BF16, ARIL_F32, ARIL_F64 };
    for (size_t t = 0; t < sizeof all / sizeof *all; t++)
        for (size_t i = 0; i < sizeof first / sizeof *first; i++)
            for (size_t k = 0; k < sizeof offset / sizeof *offset; k++) {
                ARIL_SCOPE;
                aril_tensor *x = aril_randn(ARIL_SHAPE(2, 8, 9, 9), ARIL_F64, aril_cpu());
                x = aril_add_scalar(x, offset[k]);
                aril_fill_(aril_narrow(aril_narrow(x, 2, 0, 1), 3, 0, 1), first[i]);
                x = aril_cast(x, all[t]);
                aril_norm_opts o = { 0 };
                aril_tensor *y = aril_group_norm(aril_channels_last(aril_to(x, test_device())),
                                                 NULL, NULL, 4, o);
                aril_tensor *want = aril_group_norm(aril_cast(x, ARIL_F64), NULL, NULL, 4, o);
                char *why = test_difference_in_value(aril_to(y, aril_cpu()), want, 0,
                                                     all[t] == ARIL_BF16 ? 0.1 : 1e-4);
                CHECK_MSG(!why, "first %g, offset %g: %s", first[i], offset[k], why);
            }
}

/* ---- layer_norm and sums over rows ---- */

static aril_tensor *normalize_rows(aril_tensor *const *in, const void *how)
{
    (void)how;
    return aril_layer_norm(in[0], in[1], in[2], ARIL_SHAPE(aril_size(in[1], 0)),
                           (aril_norm_opts){ 0 });
}

/* The gradient of a bias sums over rows. */
static aril_tensor *add_bias(aril_tensor *const *in, const void *how)
{
    (void)how;
    return aril_add(in[0], in[1]);
}

static const int64_t matrices[][2] = { { 1, 8 },     { 3, 5 },     { 700, 33 }, { 257, 1000 },
                                       { 1030, 72 }, { 33, 2304 }, { 5000, 8 }, { 9, 4099 } };

TEST(rows)
{
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        for (int t = 0; t < TYPES; t++) {
            aril_shape x = ARIL_SHAPE(matrices[i][0], matrices[i][1]), n = ARIL_SHAPE(x.dim[1]);
            aril_shape shapes[] = { x, n, n };
            test_against_f64(normalize_rows, 3, shapes, NULL, types[t], x,
                             2 * tolerance_of(types[t]));
            test_against_f64(add_bias, 2, shapes, NULL, types[t], x, tolerance_of(types[t]));
        }
}

/* ---- pooling ---- */

typedef struct pool_how {
    order order;
    bool max;
    int64_t kernel, stride, padding, size; /* size: of the adaptive result; 0: not adaptive */
} pool_how;

static aril_tensor *pool(aril_tensor *const *in, const void *how)
{
    const pool_how *h = how;
    aril_tensor *x = ordered(in[0], h->order);
    aril_pool_opts opts = { .kernel = { h->kernel, h->kernel },
                            .stride = { h->stride, h->stride },
                            .padding = { h->padding, h->padding } };
    if (h->size) return aril_adaptive_avg_pool2d(x, ARIL_SHAPE(h->size, h->size));
    return h->max ? aril_max_pool2d(x, opts, NULL) : aril_avg_pool2d(x, opts);
}

static void pool_case(pool_how h, int64_t channels, int64_t side)
{
    int64_t out = h.size ? h.size : (side + 2 * h.padding - h.kernel) / h.stride + 1;
    aril_shape x = ARIL_SHAPE(2 + (h.order == VIEW), channels, side, side);
    for (int t = 0; t < TYPES; t++)
        test_against_f64(pool, 1, &x, &h, types[t], ARIL_SHAPE(2, channels, out, out),
                         tolerance_of(types[t]));
}

TEST(pooling)
{
    static const int64_t channels[] = { 1, 3, 8, 33, 72 };
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        for (order o = CONTIGUOUS; o <= VIEW; o++) {
            int64_t c = channels[i];
            pool_case((pool_how){ .order = o, .kernel = 2, .stride = 2 }, c, 10);
            pool_case((pool_how){ .order = o, .kernel = 3, .stride = 2, .padding = 1 }, c, 9);
            pool_case((pool_how){ .order = o, .max = true, .kernel = 3, .stride = 2, .padding = 1 },
                      c, 12);
            pool_case((pool_how){ .order = o, .max = true, .kernel = 4, .stride = 3 }, c, 13);
            pool_case((pool_how){ .order = o, .size = 1 }, c, 7);
            pool_case((pool_how){ .order = o, .size = 3 }, c, 7);
        }
}

/* ---- elementwise ---- */

/* Two inputs in one memory order, and one that is broadcast along rows. */
static aril_tensor *combine(aril_tensor *const *in, const void *how)
{
    order o = *(const order *)how;
    aril_tensor *x = aril_relu(aril_add(ordered(in[0], o), ordered(in[1], o)));
    return aril_mul(aril_gelu(x), in[2]);
}

TEST(elementwise)
{
    static const int64_t rows[][2] = { { 1, 1 },    { 5, 3 },     { 3, 8 },    { 17, 33 },
                                       { 2, 1000 }, { 65, 4096 }, { 400, 41 }, { 31, 264 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (order o = CONTIGUOUS; o <= VIEW; o++)
            for (int t = 0; t < TYPES; t++) {
                if (o == CHANNELS_LAST) continue;
                aril_shape x = ARIL_SHAPE(rows[i][0] + (o == VIEW), rows[i][1]);
                aril_shape shapes[] = { x, x, ARIL_SHAPE(rows[i][1]) };
                test_against_f64(combine, 3, shapes, &o, types[t],
                                 ARIL_SHAPE(rows[i][0], rows[i][1]), 3 * tolerance_of(types[t]));
            }
}
