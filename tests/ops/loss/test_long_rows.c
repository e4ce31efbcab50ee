/* Cross entropy and softmax over rows of many lengths, from one element to a vocabulary, in every
 * floating-point dtype: values and gradients against f64 on the CPU. Rows of odd lengths start at
 * addresses of every alignment. */
#include "support/device.h"
#include "support/test.h"

#include "aril/aril.h"

#include <math.h>

static const int64_t lengths[] = { 1, 2, 3, 7, 1023, 1024, 1025, 4099, 8200, 16387, 50257, 130003 };
enum { LENGTHS = sizeof lengths / sizeof *lengths };
static const aril_dtype dtypes[] = { ARIL_F64, ARIL_F32, ARIL_BF16, ARIL_F16 };

static aril_tensor *there(aril_tensor *t, aril_dtype dtype)
{
    return t ? aril_to(aril_cast(t, dtype), test_device()) : NULL;
}

/* Scores of `rows` rows, rounded to a dtype, in f64. Row 1 is masked by -inf but for two classes;
 * row 2 is large. */
static aril_tensor *scores(int64_t rows, int64_t n, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_seed(7);
    aril_tensor *x = aril_mul_scalar(aril_randn(ARIL_SHAPE(rows, n), ARIL_F64, aril_cpu()), 2);
    if (n > 2) aril_fill_(aril_slice(aril_select(x, 0, 1), 0, 1, n - 1, 1), -INFINITY);
    aril_add_(aril_select(x, 0, 2), aril_scalar(60));
    return aril_escape(aril_cast(aril_cast(x, dtype), ARIL_F64));
}

static double largest(aril_tensor *t)
{
    ARIL_SCOPE;
    aril_tensor *finite = aril_where(aril_isfinite(t), aril_abs(t), aril_zeros_like(t));
    return aril_item(aril_amax(finite, ARIL_ALL));
}

/* Relative to `scale`: rounding at the end, and sums in f32. */
static void check_close(const char *what, int64_t n, aril_tensor *got, aril_tensor *want,
                        double scale)
{
    ARIL_SCOPE;
    aril_dtype dtype = aril_dtype_of(got);
    double step = dtype == ARIL_BF16  ? 0x1p-8
                  : dtype == ARIL_F16 ? 0x1p-10
                  : dtype == ARIL_F32 ? 1e-5
                                      : 1e-11; /* smoothing: a difference of large sums */
    double tiny = dtype == ARIL_F16 ? 0x1p-24 : 1e-15;
    got = aril_cast(aril_to(got, aril_cpu()), ARIL_F64);
    aril_tensor *same = aril_eq(got, want);
    aril_tensor *e = aril_where(same, aril_zeros_like(want), aril_abs(aril_sub(got, want)));
    double most = step * scale + tiny;
    CHECK_MSG(aril_item(aril_amax(e, ARIL_ALL)) <= most, "%s of %lld in %s: off by %g, not %g",
              what, (long long)n, aril_dtype_name(dtype), aril_item(aril_amax(e, ARIL_ALL)), most);
}

/* The loss and the gradient of the scores. */
static void run_loss(aril_tensor *x, aril_tensor *y, aril_cross_entropy_opts opts,
                     aril_tensor **loss, aril_tensor **grad)
{
    aril_tensor *p = aril_parameter(aril_copy(x));
    *loss = aril_cross_entropy_with(p, y, opts);
    aril_backward(aril_sum(*loss, ARIL_ALL));
    *grad = aril_copy(aril_grad(p));
    aril_release(p);
}

TEST(cross_entropy_of_rows_of_any_length)
{
    for (int i = 0; i < LENGTHS; i++)
        for (int form = 0; form < 4; form++)
            for (int d = 0; d < 4; d++) {
                ARIL_SCOPE;
                int64_t n = lengths[i], classes[6];
                for (int r = 0; r < 6; r++) classes[r] = r % 2 ? n - 1 : 0;
                classes[3] = -100; /* ignored */
                classes[5] = n / 2;
                aril_tensor *x = scores(6, n, dtypes[d]), *loss[2], *grad[2];
                aril_tensor *y = aril_from(classes, ARIL_SHAPE(6), ARIL_I64, aril_cpu());
                aril_tensor *w = form & 1 ? aril_rand(ARIL_SHAPE(n), ARIL_F64, aril_cpu()) : NULL;
                if (w) w = aril_cast(aril_cast(w, dtypes[d]), ARIL_F64);
                aril_cross_entropy_opts opts = { .reduction = form & 2 ? ARIL_NONE : ARIL_MEAN };
                if (form & 2) x = aril_clamp_min(x, -100); /* else smoothing gives infinities */
                opts.label_smoothing = form & 2 ? 0.1 : 0;
                opts.weight = w;
                run_loss(x, y, opts, &loss[0], &grad[0]);
                opts.weight = there(w, dtypes[d]);
                run_loss(there(x, dtypes[d]), aril_to(y, test_device()), opts, &loss[1], &grad[1]);
                check_close("loss", n, loss[1], loss[0], largest(loss[0]));
                check_close("gradient", n, grad[1], grad[0], largest(grad[0]));
            }
    CHECK(aril_ok());
}

TEST(softmax_of_rows_of_any_length)
{
    for (int i = 0; i < LENGTHS; i++)
        for (int logarithm = 0; logarithm < 2; logarithm++)
            for (int d = 0; d < 4; d++) {
                ARIL_SCOPE;
                int64_t n = lengths[i];
                aril_tensor *x = scores(6, n, dtypes[d]), *y[2], *dx[2];
                if (logarithm) x = aril_clamp_min(x, -100);
                aril_tensor *g = aril_randn(ARIL_SHAPE(6, n), ARIL_F64, aril_cpu());
                g = aril_cast(aril_cast(g, dtypes[d]), ARIL_F64);
                for (int k = 0; k < 2; k++) {
                    aril_tensor *p = aril_parameter(k ? there(x, dtypes[d]) : aril_copy(x));
                    y[k] = logarithm ? aril_log_softmax(p, -1) : aril_softmax(p, -1);
                    aril_backward_with(y[k], k ? there(g, dtypes[d]) : g, (aril_grad_opts){ 0 });
                    dx[k] = aril_copy(aril_grad(p));
                    aril_release(p);
                }
                check_close(logarithm ? "log_softmax" : "softmax", n, y[1], y[0], largest(y[0]));
                /* From a rounded y: in 16 bits, exp(y) is not exact enough to compare. */
                double scale = logarithm ? largest(dx[0]) : 2 * largest(y[0]) * largest(g);
                if (!logarithm || d < 2) check_close("gradient", n, dx[1], dx[0], scale);
            }
    CHECK(aril_ok());
}
