/* Convolutions and their gradients at sizes where kernels cut the work into tiles, pack images or
 * multiply matrices, on the device of ARIL_TEST_DEVICE: compared with f64 on the CPU, with tuning
 * and without, and with kernels that add in any order. */
#include <aril/aril.h>

#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>

typedef struct conv_case {
    int64_t n, c, h, w, k, kernel, stride, pad, groups;
    bool bias, last; /* last: x is channels-last */
} conv_case;

static aril_tensor *random_of(aril_shape shape, aril_dtype type)
{
    return aril_cast(aril_mul_scalar(aril_randn(shape, ARIL_F64, aril_cpu()), 0.5), type);
}

typedef struct outcome {
    aril_tensor *y, *dx[3];
} outcome;

static outcome evaluate(const conv_case *c, aril_tensor **in, aril_tensor *g)
{
    outcome o = { .y = NULL };
    int n = c->bias ? 3 : 2;
    for (int i = 0; i < n; i++) aril_set_requires_grad(in[i], true);
    o.y = aril_conv2d(in[0], in[1], c->bias ? in[2] : NULL,
                      (aril_conv_opts){ .stride = { c->stride, c->stride },
                                        .padding = { c->pad, c->pad },
                                        .groups = c->groups });
    aril_gradients_n((aril_list){ 1, (aril_tensor *[]){ o.y } }, (aril_list){ n, in }, o.dx,
                     (aril_grad_opts){ .grad_outputs = { 1, (aril_tensor *[]){ g } } });
    return o;
}

static void check_outcome(const conv_case *c, aril_dtype type, const outcome *got,
                          const outcome *want, double tolerance)
{
    CHECK_MSG(aril_tensor_status(got->y) == ARIL_OK, "%s", aril_error());
    static const char *const names[] = { "result", "gradient of x", "gradient of w",
                                         "gradient of the bias" };
    for (int i = -1; i < (c->bias ? 3 : 2); i++) {
        aril_tensor *a = aril_to(i < 0 ? got->y : got->dx[i], aril_cpu());
        aril_tensor *b = i < 0 ? want->y : want->dx[i];
        double most = aril_item(aril_amax(aril_abs(b), ARIL_ALL));
        char *why = test_difference_in_value(a, b, 0, tolerance * most);
        CHECK_MSG(!why, "[%d,%d,%d,%d] k %d kernel %d stride %d groups %d %s: %s: %s", (int)c->n,
                  (int)c->c, (int)c->h, (int)c->w, (int)c->k, (int)c->kernel, (int)c->stride,
                  (int)c->groups, aril_dtype_name(type), names[i + 1], why);
    }
}

static void compare(const conv_case *c, aril_dtype type, double tolerance)
{
    ARIL_SCOPE;
    aril_seed(7);
    aril_tensor *in[3] = { random_of(ARIL_SHAPE(c->n, c->c, c->h, c->w), type),
                           random_of(ARIL_SHAPE(c->k, c->c / c->groups, c->kernel, c->kernel),
                                     type),
                           random_of(ARIL_SHAPE(c->k), type) };
    aril_tensor *wide[3], *there[3];
    for (int i = 0; i < 3; i++) {
        wide[i] = aril_detach(aril_cast(in[i], ARIL_F64));
        there[i] = aril_detach(aril_to(in[i], test_device()));
    }
    if (c->last) there[0] = aril_detach(aril_channels_last(there[0]));
    int64_t oh = (c->h + 2 * c->pad - c->kernel) / c->stride + 1;
    int64_t ow = (c->w + 2 * c->pad - c->kernel) / c->stride + 1;
    aril_tensor *g = random_of(ARIL_SHAPE(c->n, c->k, oh, ow), type);
    outcome got = evaluate(c, there, aril_to(g, test_device()));
    outcome want = evaluate(c, wide, aril_cast(g, ARIL_F64));
    check_outcome(c, type, &got, &want, tolerance);
}

static const conv_case cases[] = {
    /* products, with windows next to each other and apart */
    { 3, 24, 9, 7, 40, 1, 1, 0, 1, true, false },
    { 3, 24, 9, 7, 40, 1, 1, 0, 1, false, true },
    { 3, 24, 9, 8, 40, 1, 2, 0, 1, true, false },
    { 3, 24, 9, 8, 40, 1, 2, 0, 1, false, true },
    { 1, 16, 10, 10, 8, 1, 3, 0, 1, false, true },
    { 5, 5, 6, 7, 3, 1, 1, 0, 1, true, false },
    /* depthwise */
    { 2, 32, 13, 11, 32, 3, 1, 1, 32, false, true },
    { 2, 32, 13, 11, 32, 3, 2, 1, 32, true, true },
    { 2, 144, 12, 10, 144, 3, 2, 1, 144, false, true },
    { 3, 72, 7, 9, 72, 3, 1, 0, 72, false, true },
    { 3, 40, 8, 9, 40, 3, 2, 0, 40, false, true },
    { 2, 24, 6, 5, 24, 3, 1, 2, 24, false, true },
    { 2, 1032, 5, 5, 1032, 3, 1, 1, 1032, false, true },
    /* few channels */
    { 4, 3, 33, 30, 64, 7, 2, 3, 1, true, false },
    { 4, 3, 33, 30, 64, 7, 2, 3, 1, false, true },
    { 3, 3, 45, 46, 64, 11, 4, 2, 1, true, false },
    { 3, 3, 20, 21, 32, 3, 2, 1, 1, false, false },
    { 3, 3, 20, 21, 40, 3, 1, 1, 1, true, false },
    { 2, 1, 28, 28, 8, 5, 1, 2, 1, false, false },
    { 7, 6, 14, 14, 16, 5, 1, 0, 1, true, false },
    { 7, 1, 28, 28, 6, 5, 1, 2, 1, true, false },
    /* many positions, strided windows */
    { 9, 17, 23, 21, 70, 3, 2, 1, 1, false, false },
    { 9, 17, 23, 21, 70, 3, 1, 1, 1, true, false },
    { 2, 64, 14, 14, 130, 3, 2, 1, 1, false, false },
};

static void compare_all(aril_dtype type, double tolerance)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) compare(&cases[i], type, tolerance);
}

TEST(f32)
{
    compare_all(ARIL_F32, 1e-5);
}

TEST(bf16)
{
    compare_all(ARIL_BF16, 1.0 / 128);
}

TEST(f16)
{
    compare_all(ARIL_F16, 1.0 / 1024);
}

TEST(f64)
{
    compare_all(ARIL_F64, 1e-13);
}

/* Runs fn with tuning on, whose choices go to a file of the test. */
static void tuned(aril_dtype type, double tolerance)
{
    char file[] = "/tmp/aril-tuned-XXXXXX";
    int fd = mkstemp(file);
    CHECK(fd >= 0);
    setenv("ARIL_TUNING_FILE", file, 1);
    aril_set_tuning(true);
    compare_all(type, tolerance); /* timed */
    aril_set_tuning(false);
    compare_all(type, tolerance); /* by the recorded choices */
    unsetenv("ARIL_TUNING_FILE");
    remove(file);
}

TEST(tuned_f32)
{
    tuned(ARIL_F32, 1e-5);
}

TEST(tuned_bf16)
{
    tuned(ARIL_BF16, 1.0 / 128);
}

TEST(sums_in_any_order)
{
    CHECK_INT(aril_set_deterministic(ARIL_NOT_DETERMINISTIC), ARIL_OK);
    compare_all(ARIL_F32, 1e-5);
    compare_all(ARIL_BF16, 1.0 / 128);
    CHECK_INT(aril_set_deterministic(ARIL_SAME_THREADS), ARIL_OK);
}

/* A bias and an activation, which libraries may compute too: NaN stays NaN. */
TEST(bias_and_relu)
{
    static const aril_dtype types[] = { ARIL_F32, ARIL_BF16, ARIL_F16 };
    for (int i = 0; i < 3 * 4; i++) {
        ARIL_SCOPE;
        aril_dtype type = types[i / 4];
        int64_t channels = i & 1 ? 3 : 16, kernel = i & 2 ? 1 : 3;
        aril_conv_opts how = { .stride = { 1 + (i & 1) }, .activation = ARIL_RELU };
        aril_tensor *x = random_of(ARIL_SHAPE(2, channels, 12, 9), type);
        aril_tensor *w = random_of(ARIL_SHAPE(32, channels, kernel, kernel), type);
        aril_tensor *b = random_of(ARIL_SHAPE(32), type);
        aril_fill_(aril_narrow(aril_narrow(aril_select(x, 0, 1), 1, 4, 1), 2, 4, 1), NAN);
        aril_tensor *want = aril_conv2d(aril_cast(x, ARIL_F64), aril_cast(w, ARIL_F64),
                                        aril_cast(b, ARIL_F64), how);
        aril_tensor *got = aril_conv2d(aril_to(x, test_device()), aril_to(w, test_device()),
                                       aril_to(b, test_device()), how);
        got = aril_cast(aril_contiguous(aril_to(got, aril_cpu())), ARIL_F64);
        const double *p = aril_data(got), *q = aril_data(aril_contiguous(want));
        double tolerance = type == ARIL_F32 ? 1e-5 : 1.0 / 64;
        int64_t n = aril_numel(want), nan = 0;
        for (int64_t k = 0; k < n; k++) {
            nan += isnan(q[k]);
            CHECK_MSG(isnan(q[k]) ? isnan(p[k]) : fabs(p[k] - q[k]) <= tolerance * (1 + fabs(q[k])),
                      "%s, %d channels, kernel %d: %g instead of %g", aril_dtype_name(type),
                      (int)channels, (int)kernel, p[k], q[k]);
        }
        CHECK(nan > 0);
    }
}

/* Channels [8, 8 + n) of a tensor with 16 more, channels-last: pixels are apart. */
static aril_tensor *part_of(aril_tensor *t)
{
    int64_t n = aril_size(t, 1);
    aril_tensor *more = aril_zeros(ARIL_SHAPE(aril_size(t, 0), 8, aril_size(t, 2), aril_size(t, 3)),
                                   aril_dtype_of(t), test_device());
    aril_tensor *all = aril_channels_last(aril_cat(ARIL_LIST(more, t, more), 1));
    return aril_narrow(all, 1, 8, n);
}

TEST(parts_of_a_concatenation)
{
    static const conv_case parts[] = { { 3, 16, 9, 7, 24, 1, 1, 0, 1, false, false },
                                       { 3, 16, 9, 8, 24, 1, 2, 0, 1, false, false },
                                       { 3, 16, 9, 7, 24, 3, 1, 1, 1, false, false },
                                       { 2, 32, 9, 7, 32, 3, 1, 1, 32, false, false } };
    static const aril_dtype types[] = { ARIL_F32, ARIL_BF16 };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (int k = 0; k < 2; k++) {
            ARIL_SCOPE;
            const conv_case *c = &parts[i];
            aril_dtype type = types[k];
            aril_tensor *x = random_of(ARIL_SHAPE(c->n, c->c, c->h, c->w), type);
            aril_tensor *w =
                random_of(ARIL_SHAPE(c->k, c->c / c->groups, c->kernel, c->kernel), type);
            int64_t oh = (c->h + 2 * c->pad - c->kernel) / c->stride + 1;
            int64_t ow = (c->w + 2 * c->pad - c->kernel) / c->stride + 1;
            aril_tensor *g = random_of(ARIL_SHAPE(c->n, c->k, oh, ow), type);
            aril_tensor *wide[3] = { aril_cast(x, ARIL_F64), aril_cast(w, ARIL_F64), NULL };
            aril_tensor *there[3] = { aril_detach(part_of(aril_to(x, test_device()))),
                                      aril_detach(aril_to(w, test_device())), NULL };
            outcome got = evaluate(c, there, part_of(aril_to(g, test_device())));
            outcome want = evaluate(c, wide, aril_cast(g, ARIL_F64));
            check_outcome(c, type, &got, &want, type == ARIL_F32 ? 1e-5 : 1.0 / 128);
        }
}

/* Each way to compute a gradient gives the same bits in every run. */
TEST(the_same_bits_in_every_run)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ARIL_SCOPE;
        const conv_case *c = &cases[i];
        aril_seed(3);
        aril_tensor *x =
            aril_to(random_of(ARIL_SHAPE(c->n, c->c, c->h, c->w), ARIL_F32), test_device());
        aril_tensor *w =
            aril_to(random_of(ARIL_SHAPE(c->k, c->c / c->groups, c->kernel, c->kernel), ARIL_F32),
                    test_device());
        if (c->last) x = aril_channels_last(x);
        aril_tensor *in[3] = { aril_detach(x), aril_detach(w), NULL };
        conv_case plain = *c;
        plain.bias = false;
        int64_t oh = (c->h + 2 * c->pad - c->kernel) / c->stride + 1;
        int64_t ow = (c->w + 2 * c->pad - c->kernel) / c->stride + 1;
        aril_tensor *g =
            aril_to(random_of(ARIL_SHAPE(c->n, c->k, oh, ow), ARIL_F32), test_device());
        outcome first = evaluate(&plain, in, g);
        for (int k = 0; k < 3; k++) {
            outcome next = evaluate(&plain, in, g);
            CHECK(aril_item(aril_all(aril_eq(first.y, next.y), ARIL_ALL)) == 1);
            for (int j = 0; j < 2; j++)
                CHECK(aril_item(aril_all(aril_eq(first.dx[j], next.dx[j]), ARIL_ALL)) == 1);
        }
    }
}
