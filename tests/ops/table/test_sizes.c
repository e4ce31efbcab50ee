/* Kernels at the sizes where they switch algorithms: around vectors, blocks, batches and
 * non-temporal stores; each axis, strided and narrow inputs; against plain loops in double. */
#include "aril/aril.h"
#include "core/cpu.h"
#include "core/tensor.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int lengths[] = { 1,   2,   3,   4,    5,    7,    8,    9,    15,   16,  17,
                               31,  32,  33,  63,   64,   65,   100,  127,  128,  129, 255,
                               257, 511, 513, 1023, 1025, 2047, 2049, 4095, 4097, 5000 };
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static aril_tensor *normal(aril_shape shape)
{
    return aril_randn(shape, ARIL_F32, aril_cpu());
}

/* All elements as doubles, in logical order; the caller frees them. */
static double *values(aril_tensor *t)
{
    ARIL_SCOPE;
    double *v = malloc((size_t)(t->numel ? t->numel : 1) * sizeof *v);
    aril_read(aril_contiguous(aril_cast(t, ARIL_F64)), v);
    return v;
}

static bool near_by(double a, double b, double tolerance)
{
    return a == b || (a != a && b != b) || fabs(a - b) <= tolerance * (1 + fabs(b));
}

/* True when got[i] is near want[i] for all i; reports the first difference. */
static bool all_near(aril_tensor *got, const double *want, double tolerance, const char *what)
{
    double *v = values(got);
    for (int64_t i = 0; i < got->numel; i++)
        if (!near_by(v[i], want[i], tolerance)) {
            test_fail(__FILE__, __LINE__, "%s: element %lld of %lld is %.9g, not %.9g", what,
                      (long long)i, (long long)got->numel, v[i], want[i]);
            free(v);
            return false;
        }
    free(v);
    return true;
}

/* Runs a check with each instruction set that the machine has. */
static void at_each_level(void (*check)(void))
{
    int max = aril__cpu();
    for (int level = 0; level <= max; level++) {
        aril__cpu_set(level);
        check();
    }
    aril__cpu_set(max);
}

/* ---- reductions of [a, n, b] over the middle ---- */

static void reduce_lines(aril_tensor *x, int64_t a, int64_t n, int64_t b, const char *what)
{
    ARIL_SCOPE;
    int64_t m = a * b;
    double *v = values(x), *w = malloc((size_t)(7 * m) * sizeof *w);
    double *sum = w, *top = w + m, *low = w + 2 * m, *at = w + 3 * m, *var = w + 4 * m,
           *norm = w + 5 * m, *lse = w + 6 * m;
    for (int64_t i = 0; i < m; i++) {
        const double *line = v + i / b * n * b + i % b;
        sum[i] = norm[i] = var[i] = lse[i] = 0;
        top[i] = low[i] = line[0];
        at[i] = 0;
        for (int64_t k = 0; k < n; k++) {
            double e = line[k * b];
            sum[i] += e;
            norm[i] += e * e;
            if (e > top[i]) {
                top[i] = e;
                at[i] = (double)k;
            }
            low[i] = e < low[i] ? e : low[i];
        }
        for (int64_t k = 0; k < n; k++) {
            double d = line[k * b] - sum[i] / (double)n;
            var[i] += d * d;
            lse[i] += exp(line[k * b] - top[i]);
        }
        var[i] /= (double)n;
        norm[i] = sqrt(norm[i]);
        lse[i] = top[i] + log(lse[i]);
    }
    double eps = x->dtype == ARIL_F32 ? 1e-6 : 1e-2;
    aril_tensor *where;
    all_near(aril_sum(x, ARIL_AXES(1)), sum, eps * sqrt((double)n), what);
    all_near(aril_amax(x, ARIL_AXES(1)), top, 0, what);
    all_near(aril_amin(x, ARIL_AXES(1)), low, 0, what);
    all_near(aril_argmax(x, ARIL_AXES(1)), at, 0, what);
    all_near(aril_max(x, ARIL_AXES(1), &where), top, 0, what);
    all_near(where, at, 0, what);
    all_near(aril_var(x, ARIL_AXES(1), 0), var, eps, what);
    all_near(aril_norm(x, ARIL_AXES(1), 2), norm, eps, what);
    all_near(aril_logsumexp(x, ARIL_AXES(1)), lse, eps, what);
    free(v);
    free(w);
}

static void reductions(void)
{
    for (int i = 0; i < LENGTHS; i++) {
        ARIL_SCOPE;
        int64_t n = lengths[i];
        reduce_lines(normal(ARIL_SHAPE(3, n, 1)), 3, n, 1, "lines");
        reduce_lines(normal(ARIL_SHAPE(1, 40, n)), 1, 40, n, "rows");
        reduce_lines(normal(ARIL_SHAPE(2, n, 5)), 2, n, 5, "short rows");
        reduce_lines(normal(ARIL_SHAPE(2, n, 19)), 2, n, 19, "odd rows");
        reduce_lines(aril_slice(normal(ARIL_SHAPE(2, 2 * n, 3)), 1, 0, ARIL_END, 2), 2, n, 3,
                     "every other");
        reduce_lines(aril_transpose(normal(ARIL_SHAPE(2, 3, n)), 1, 2), 2, n, 3, "transposed");
        reduce_lines(aril_cast(normal(ARIL_SHAPE(2, n, 1)), ARIL_BF16), 2, n, 1, "bf16");
        reduce_lines(aril_cast(normal(ARIL_SHAPE(2, n, 9)), ARIL_F16), 2, n, 9, "f16");
    }
    ARIL_SCOPE;
    reduce_lines(normal(ARIL_SHAPE(1, 300001, 1)), 1, 300001, 1, "one long line");
    reduce_lines(normal(ARIL_SHAPE(1, 30011, 7)), 1, 30011, 7, "many short rows");
    reduce_lines(normal(ARIL_SHAPE(1, 257, 2500)), 1, 257, 2500, "wide rows");
}

TEST(reductions_of_any_length)
{
    at_each_level(reductions);
    CHECK(aril_ok());
}

TEST(sums_that_overflow_f32_temporarily)
{
    ARIL_SCOPE;
    float v[640];
    for (int i = 0; i < 640; i++) v[i] = i < 320 ? 3e38f : -3e38f;
    aril_tensor *x = aril_from(v, ARIL_SHAPE(640), ARIL_F32, aril_cpu());
    CHECK(aril_item(aril_sum(x, ARIL_ALL)) == 0);
    aril_tensor *rows =
        aril_contiguous(aril_expand(aril_reshape(x, ARIL_SHAPE(640, 1)), ARIL_SHAPE(640, 33)));
    CHECK(aril_item(aril_amax(aril_abs(aril_sum(rows, ARIL_AXES(0))), ARIL_ALL)) == 0);
    v[5] = INFINITY;
    x = aril_from(v, ARIL_SHAPE(640), ARIL_F32, aril_cpu());
    CHECK(aril_item(aril_sum(x, ARIL_ALL)) == INFINITY);
    v[600] = NAN;
    x = aril_from(v, ARIL_SHAPE(640), ARIL_F32, aril_cpu());
    CHECK(isnan(aril_item(aril_sum(x, ARIL_ALL))));
    CHECK(isnan(aril_item(aril_amax(x, ARIL_ALL))));
    CHECK(aril_item(aril_argmax(x, ARIL_ALL)) == 600);
}

/* ---- softmax ---- */

static void softmax_of(aril_tensor *x, int64_t a, int64_t n, int64_t b, const char *what)
{
    ARIL_SCOPE;
    double *v = values(x), *y = malloc((size_t)x->numel * sizeof *y);
    double *z = malloc((size_t)x->numel * sizeof *z), eps = x->dtype == ARIL_F32 ? 2e-6 : 1e-2;
    for (int64_t i = 0; i < a * b; i++) {
        int64_t at = i / b * n * b + i % b;
        double top = -INFINITY, sum = 0;
        for (int64_t k = 0; k < n; k++) top = fmax(top, v[at + k * b]);
        for (int64_t k = 0; k < n; k++) sum += exp(v[at + k * b] - top);
        for (int64_t k = 0; k < n; k++) {
            y[at + k * b] = exp(v[at + k * b] - top) / sum;
            z[at + k * b] = v[at + k * b] - top - log(sum);
        }
    }
    all_near(aril_softmax(x, 1), y, eps, what);
    all_near(aril_log_softmax(x, 1), z, eps, what);
    aril_tensor *g = aril_randn(aril_shape_of(x), ARIL_F32, aril_cpu());
    aril_tensor *p = aril_detach(aril_cast(x, ARIL_F32));
    double *gv = values(g), *want = malloc((size_t)x->numel * sizeof *want);
    for (int is_log = 0; is_log < 2; is_log++) {
        for (int64_t i = 0; i < a * b; i++) {
            int64_t at = i / b * n * b + i % b;
            double sum = 0;
            for (int64_t k = 0; k < n; k++) sum += gv[at + k * b] * (is_log ? 1 : y[at + k * b]);
            for (int64_t k = 0; k < n; k++) {
                int64_t e = at + k * b;
                want[e] = is_log ? gv[e] - y[e] * sum : y[e] * (gv[e] - sum);
            }
        }
        aril_zero_grad(p);
        aril_set_requires_grad(p, true);
        aril_backward_with(is_log ? aril_log_softmax(p, 1) : aril_softmax(p, 1), g,
                           (aril_grad_opts){ 0 });
        all_near(aril_grad(p), want, x->dtype == ARIL_F32 ? 1e-4 : 1e-2, what);
    }
    free(v), free(y), free(z), free(gv), free(want);
}

static void softmaxes(void)
{
    for (int i = 0; i < LENGTHS; i++) {
        ARIL_SCOPE;
        int64_t n = lengths[i];
        softmax_of(normal(ARIL_SHAPE(5, n, 1)), 5, n, 1, "softmax of lines");
        softmax_of(normal(ARIL_SHAPE(2, n, 3)), 2, n, 3, "softmax of short columns");
        softmax_of(normal(ARIL_SHAPE(1, 9, n)), 1, 9, n, "softmax of columns");
        softmax_of(aril_cast(normal(ARIL_SHAPE(2, n, 1)), ARIL_BF16), 2, n, 1, "bf16");
        softmax_of(aril_cast(normal(ARIL_SHAPE(1, n, 5)), ARIL_F16), 1, n, 5, "f16");
    }
    ARIL_SCOPE;
    softmax_of(normal(ARIL_SHAPE(1030, 4100, 1)), 1030, 4100, 1, "softmax past the cache");
}

TEST(softmax_of_any_length)
{
    at_each_level(softmaxes);
    CHECK(aril_ok());
}

TEST(softmax_of_infinities)
{
    ARIL_SCOPE;
    float v[40];
    for (int i = 0; i < 40; i++) v[i] = i == 7 || i == 30 ? 0.0f : -INFINITY;
    aril_tensor *y = aril_softmax(aril_from(v, ARIL_SHAPE(40), ARIL_F32, aril_cpu()), 0);
    CHECK(aril_item(aril_sum(y, ARIL_ALL)) == 1);
    CHECK(aril_item(aril_amax(y, ARIL_ALL)) == 0.5);
    v[3] = NAN;
    y = aril_softmax(aril_from(v, ARIL_SHAPE(1, 40), ARIL_F32, aril_cpu()), 1);
    CHECK(isnan(aril_item(aril_amin(y, ARIL_ALL))));
}

/* ---- layer norm: enough rows for gradients in one pass ---- */

TEST(layer_norm_of_any_length)
{
    for (int i = 0; i < LENGTHS; i++) {
        ARIL_SCOPE;
        int64_t n = lengths[i], rows = 41;
        if (n < 7) continue; /* the gradient of fewer is mostly cancellation error */
        aril_tensor *x = aril_add_scalar(normal(ARIL_SHAPE(rows, n)), 10);
        aril_tensor *w = normal(ARIL_SHAPE(n)), *b = normal(ARIL_SHAPE(n));
        aril_tensor *g = normal(ARIL_SHAPE(rows, n));
        x = aril_detach(x);
        aril_set_requires_grad(x, true);
        aril_set_requires_grad(w, true);
        aril_set_requires_grad(b, true);
        aril_tensor *y = aril_layer_norm(x, w, b, ARIL_SHAPE(n), (aril_norm_opts){ 0 });
        double *xv = values(x), *wv = values(w), *bv = values(b), *gv = values(g);
        double *want = calloc((size_t)(2 * rows * n + 2 * n), sizeof *want);
        double *dx = want + rows * n, *dw = dx + rows * n, *db = dw + n;
        for (int64_t r = 0; r < rows; r++) {
            double mean = 0, var = 0, p = 0, q = 0;
            for (int64_t k = 0; k < n; k++) mean += xv[r * n + k] / (double)n;
            for (int64_t k = 0; k < n; k++) var += pow(xv[r * n + k] - mean, 2) / (double)n;
            double s = 1 / sqrt(var + 1e-5);
            for (int64_t k = 0; k < n; k++) {
                double hat = (xv[r * n + k] - mean) * s, h = gv[r * n + k] * wv[k];
                want[r * n + k] = hat * wv[k] + bv[k];
                dw[k] += gv[r * n + k] * hat;
                db[k] += gv[r * n + k];
                p += h / (double)n;
                q += h * hat / (double)n;
            }
            for (int64_t k = 0; k < n; k++)
                dx[r * n + k] = s * (gv[r * n + k] * wv[k] - p - (xv[r * n + k] - mean) * s * q);
        }
        all_near(y, want, 1e-4, "layer norm");
        aril_backward_with(y, g, (aril_grad_opts){ 0 });
        all_near(aril_grad(x), dx, 3e-3, "its gradient of x");
        all_near(aril_grad(w), dw, 3e-3, "its gradient of weights");
        all_near(aril_grad(b), db, 1e-5, "its gradient of biases");
        free(xv), free(wv), free(bv), free(gv), free(want);
    }
    CHECK(aril_ok());
}

/* ---- copies ---- */

static void permuted(aril_dtype dtype, aril_shape shape)
{
    static const int orders[][3] = {
        { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 }
    };
    ARIL_SCOPE;
    aril_tensor *x = aril_cast(aril_mul_scalar(aril_rand(shape, ARIL_F32, aril_cpu()), 250), dtype);
    double *v = values(x);
    const int64_t *n = x->dim;
    for (int o = 0; o < 5; o++) {
        const int *p = orders[o];
        aril_tensor *y = aril_contiguous(aril_permute(x, ARIL_AXES(p[0], p[1], p[2])));
        double *w = values(y);
        int64_t step[3] = { n[1] * n[2], n[2], 1 }, bad = 0, at = 0;
        for (int64_t i = 0; i < n[p[0]]; i++)
            for (int64_t j = 0; j < n[p[1]]; j++)
                for (int64_t k = 0; k < n[p[2]]; k++)
                    bad += w[at++] != v[i * step[p[0]] + j * step[p[1]] + k * step[p[2]]];
        CHECK(bad == 0);
        free(w);
    }
    free(v);
}

static void copies(void)
{
    static const aril_dtype dtypes[] = { ARIL_U8, ARIL_BF16, ARIL_F32, ARIL_F64 };
    static const int sides[] = { 1, 3, 4, 7, 8, 9, 16, 33, 65 };
    for (int d = 0; d < 4; d++)
        for (int i = 0; i < 9; i++) {
            permuted(dtypes[d], ARIL_SHAPE(2, sides[i], 37));
            permuted(dtypes[d], ARIL_SHAPE(5, 70, sides[i]));
        }
}

TEST(permuted_copies)
{
    at_each_level(copies);
    permuted(ARIL_F32, ARIL_SHAPE(3, 1411, 1003)); /* non-temporal stores, with unaligned rows */
    permuted(ARIL_F32, ARIL_SHAPE(4, 1024, 1032));
    CHECK(aril_ok());
}

/* ---- sorting ---- */

static void sorted_lines(aril_tensor *x, bool down)
{
    ARIL_SCOPE;
    int64_t n = x->dim[1];
    aril_tensor *at, *y = aril_sort(x, 1, (aril_sort_opts){ .descending = down }, &at);
    double *v = values(x), *w = values(y), *p = values(at);
    for (int64_t r = 0; r < x->dim[0]; r++) {
        double *line = v + r * n;
        char *seen = calloc((size_t)n, 1);
        for (int64_t k = 0; k < n; k++) {
            int64_t i = (int64_t)p[r * n + k];
            double e = w[r * n + k];
            bool same =
                i >= 0 && i < n && !seen[i] && (line[i] == e || (e != e && line[i] != line[i]));
            if (same) seen[i] = 1;
            if (k > 0) {
                double last = w[r * n + k - 1];
                bool tie = last == e || (last != last && e != e);
                bool before = down ? last > e || last != last : last < e || e != e;
                same &= tie ? p[r * n + k - 1] < p[r * n + k] : before;
            }
            if (!same) {
                test_fail(__FILE__, __LINE__, "place %lld of %lld (%s): %g from %lld", (long long)k,
                          (long long)n, down ? "down" : "up", e, (long long)i);
                k = n;
            }
        }
        free(seen);
    }
    int64_t k = n / 3, m = n < 10 ? n : 10;
    aril_tensor *kth = aril_kthvalue(x, k + 1, ARIL_AXES(1), NULL);
    aril_tensor *top = aril_topk(x, m, 1, (aril_topk_opts){ .smallest = !down }, NULL);
    double *one = values(kth), *first = values(top);
    for (int64_t r = 0; r < x->dim[0]; r++) {
        CHECK(near_by(one[r], w[r * n + (down ? n - 1 - k : k)], 0));
        for (int64_t i = 0; i < m; i++) CHECK(near_by(first[r * m + i], w[r * n + i], 0));
    }
    free(v), free(w), free(p), free(one), free(first);
}

TEST(sorting_of_any_length)
{
    static const aril_dtype dtypes[] = { ARIL_F32, ARIL_F64, ARIL_BF16, ARIL_U8,
                                         ARIL_I32, ARIL_U32, ARIL_I64,  ARIL_U64 };
    for (int i = 0; i < LENGTHS; i++)
        for (int d = 0; d < 8; d++) {
            ARIL_SCOPE;
            aril_tensor *x = aril_mul_scalar(normal(ARIL_SHAPE(2, lengths[i])), 1000);
            if (dtypes[d] == ARIL_U8 || dtypes[d] == ARIL_U32 || dtypes[d] == ARIL_U64)
                x = aril_clamp(aril_abs(x), 0, 255);
            x = aril_cast(x, dtypes[d]);
            sorted_lines(x, false);
            sorted_lines(x, true);
        }
    ARIL_SCOPE;
    sorted_lines(normal(ARIL_SHAPE(1, 300000)), false); /* each digit by several threads */
    sorted_lines(aril_randint(-5000000000, 5000000000, ARIL_SHAPE(1, 200000), ARIL_I64, aril_cpu()),
                 true);
    aril_tensor *x = normal(ARIL_SHAPE(3, 5000));
    x = aril_where(aril_gt_scalar(x, 1.5), aril_scalar(NAN), x);
    x = aril_where(aril_lt_scalar(x, -1.5), aril_scalar(-INFINITY), x);
    x = aril_where(aril_lt_scalar(aril_abs(x), 0.1), aril_mul_scalar(aril_sign(x), 0.0), x);
    sorted_lines(x, false);
    sorted_lines(x, true);
    CHECK(aril_ok());
}

/* ---- the same bits for any number of threads ---- */

TEST(results_do_not_depend_on_threads)
{
    ARIL_SCOPE;
    int before = aril_threads();
    aril_tensor *x = normal(ARIL_SHAPE(700, 1031)), *first[8] = { 0 };
    for (int threads = 1; threads <= 4; threads++) {
        aril_set_threads(threads);
        aril_tensor *got[] = { aril_sum(x, ARIL_ALL),       aril_sum(x, ARIL_AXES(0)),
                               aril_sum(x, ARIL_AXES(1)),   aril_var(x, ARIL_ALL, 1),
                               aril_softmax(x, 0),          aril_softmax(x, 1),
                               aril_logsumexp(x, ARIL_ALL), aril_cumsum(x, 0) };
        for (int i = 0; i < 8; i++) {
            if (!first[i]) first[i] = got[i];
            CHECK(memcmp(aril_data(first[i]), aril_data(got[i]),
                         (size_t)got[i]->numel * sizeof(float)) == 0);
        }
    }
    aril_set_threads(before);
}

/* ---- scans, gather, scatter ---- */

TEST(scans_of_any_length)
{
    for (int i = 0; i < LENGTHS; i++) {
        ARIL_SCOPE;
        int64_t n = lengths[i];
        for (int side = 1; side < 300; side += 148) { /* lines, and adjacent columns */
            aril_tensor *x = normal(ARIL_SHAPE(2, n, side)), *where;
            double *v = values(x), *w = malloc((size_t)(3 * x->numel) * sizeof *w);
            double *sum = w, *top = w + x->numel, *at = top + x->numel;
            for (int64_t c = 0; c < 2 * side; c++) {
                int64_t e = c / side * n * side + c % side;
                double s = 0, best = -INFINITY, position = 0;
                for (int64_t k = 0; k < n; k++, e += side) {
                    s += v[e];
                    if (v[e] >= best) {
                        best = v[e];
                        position = (double)k;
                    }
                    sum[e] = s;
                    top[e] = best;
                    at[e] = position;
                }
            }
            all_near(aril_cumsum(x, 1), sum, 1e-6, "cumsum");
            all_near(aril_cummax(x, 1, &where), top, 0, "cummax");
            all_near(where, at, 0, "places of cummax");
            free(v);
            free(w);
        }
    }
    CHECK(aril_ok());
}

TEST(index_select_and_index_add)
{
    static const int widths[] = { 1, 2, 3, 4, 8, 16, 17, 100 };
    for (int i = 0; i < 8; i++) {
        ARIL_SCOPE;
        int64_t rows = 700, picks = 3000, d = widths[i];
        aril_tensor *x = normal(ARIL_SHAPE(rows, d)), *g = normal(ARIL_SHAPE(picks, d));
        aril_tensor *at = aril_randint(-rows, rows, ARIL_SHAPE(picks), ARIL_I64, aril_cpu());
        double *v = values(x), *gv = values(g), *p = values(at);
        double *want = malloc((size_t)(picks * d) * sizeof *want);
        for (int64_t k = 0; k < picks * d; k++) {
            int64_t r = (int64_t)p[k / d];
            want[k] = v[(r < 0 ? r + rows : r) * d + k % d];
        }
        all_near(aril_index_select(x, at, 0), want, 0, "index_select");
        for (int64_t k = 0; k < picks * d; k++) {
            int64_t r = (int64_t)p[k / d];
            v[(r < 0 ? r + rows : r) * d + k % d] += gv[k];
        }
        all_near(aril_index_add_(aril_copy(x), at, g, 0), v, 1e-5, "index_add");
        free(v), free(gv), free(p), free(want);
    }
    ARIL_SCOPE;
    aril_tensor *x = normal(ARIL_SHAPE(50, 1500));
    aril_tensor *at = aril_randint(0, 1500, ARIL_SHAPE(50, 1500), ARIL_I64, aril_cpu());
    double *v = values(x), *p = values(at), *want = malloc(75000 * sizeof *want);
    for (int64_t k = 0; k < 75000; k++) want[k] = v[k / 1500 * 1500 + (int64_t)p[k]];
    all_near(aril_gather(x, at, 1), want, 0, "gather");
    free(v), free(p), free(want);
    CHECK(aril_ok());
    int64_t far = 1500;
    aril_tensor *wrong = aril_copy(at);
    aril_copy_(aril_slice(aril_slice(wrong, 0, 49, 50, 1), 1, 1400, 1401, 1),
               aril_from(&far, ARIL_SHAPE(1, 1), ARIL_I64, aril_cpu()));
    CHECK(aril_tensor_status(aril_gather(x, wrong, 1)) == ARIL_ERR_INDEX);
    aril_clear_error();
}

TEST(nonzero_of_any_length)
{
    static const int64_t shapes[][3] = {
        { 1, 1, 70000 }, { 1, 300, 301 }, { 50, 40, 3 }, { 3, 50, 400 }
    };
    for (int i = 0; i < 4; i++)
        for (int flat = 0; flat < 2; flat++) {
            ARIL_SCOPE;
            const int64_t *n = shapes[i];
            aril_tensor *x = aril_relu(normal(ARIL_SHAPE(n[0] * n[1], n[2])));
            if (!flat) x = aril_reshape(x, ARIL_SHAPE(n[0], n[1], n[2]));
            aril_tensor *at = aril_nonzero(x), *some = aril_masked_select(x, aril_gt_scalar(x, 0));
            double *v = values(x), *p = values(at), *s = values(some);
            int64_t k = 0;
            bool same = true;
            for (int64_t e = 0; e < x->numel; e++) {
                if (v[e] == 0) continue;
                double *q = p + k * x->ndim;
                double position = flat ? q[0] * (double)n[2] + q[1]
                                       : (q[0] * (double)n[1] + q[1]) * (double)n[2] + q[2];
                same &= k < at->dim[0] && position == (double)e && s[k] == v[e];
                k++;
            }
            CHECK(same);
            CHECK_INT(at->dim[0], k);
            CHECK_INT(some->numel, k);
            free(v), free(p), free(s);
        }
    CHECK(aril_ok());
}

/* A result written with non-temporal stores, from inputs that begin and end within a cache line. */
TEST(large_elementwise_results)
{
    ARIL_SCOPE;
    const int64_t n = 7000003;
    aril_tensor *i = aril_arange(0, (double)(n + 1), 1, ARIL_F32, aril_cpu());
    aril_tensor *a = aril_narrow(i, 0, 1, n), *b = aril_narrow(i, 0, 0, n);
    const float *sum = aril_data(aril_sub(a, b)), *cut = aril_data(aril_relu(aril_neg(a)));
    CHECK(sum && cut);
    int64_t wrong = 0;
    for (int64_t k = 0; k < n; k++) wrong += sum[k] != 1 || cut[k] != 0;
    CHECK_INT(wrong, 0);
}
