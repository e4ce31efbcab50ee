/* Kernels of reductions, scans, sorting and counting against their references, on lines around the
 * sizes at which the kernels change their way, and on values that need care. */
#include "aril/aril.h"
#include "ops/shape/concat.h"
#include "ops/shape/like.h"
#include "ops/table/apply.h"
#include "support/ops.h"
#include "support/reference.h"
#include "support/test.h"

#include <math.h>

static const aril_dtype dtypes[] = { ARIL_F32, ARIL_F64, ARIL_F16, ARIL_BF16, ARIL_I64,
                                     ARIL_U64, ARIL_I32, ARIL_U8,  ARIL_BOOL };
enum { DTYPES = sizeof dtypes / sizeof *dtypes, REALS = 4 };

/* Random values with ties; u64 on both sides of 2^63. */
static aril_tensor *values(aril_shape shape, aril_dtype dtype)
{
    aril_tensor *x = aril_randn(shape, ARIL_F32, aril_cpu());
    if (aril_dtype_is_float(dtype)) return aril_cast(aril_round(aril_mul_scalar(x, 50)), dtype);
    aril_tensor *integer = aril_randint(dtype == ARIL_U8 || dtype == ARIL_BOOL ? 0 : -40, 40, shape,
                                        ARIL_I64, aril_cpu());
    return aril_cast(integer, dtype);
}

/* The same with NaN and infinities in the second half. */
static aril_tensor *with_odd_ones(aril_tensor *x)
{
    int64_t n = aril_numel(x), m = n / 2;
    aril_tensor *flat = aril_reshape(aril_copy(x), ARIL_SHAPE(n));
    const double odd[] = { INFINITY, -INFINITY, NAN, 0 };
    for (int i = 0; i < 4; i++)
        aril_copy_(aril_narrow(flat, 0, m + i * (n - m) / 4, 1),
                   aril_full(ARIL_SHAPE(1), odd[i], aril_dtype_of(x), aril_cpu()));
    return aril_reshape(flat, aril_shape_of(x));
}

/* Calls `check` on lines of each length: alone, as rows, as columns, over two axes, strided. */
static void each_shape(aril_dtype dtype, void (*check)(aril_tensor *x))
{
    static const int64_t lengths[] = { 1, 7, 16, 63, 64, 65, 257, 1023, 1025, 2049, 5000 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && !test_failed(); i++) {
        ARIL_SCOPE;
        int64_t n = lengths[i];
        check(values(ARIL_SHAPE(1, n, 1), dtype));
        check(values(ARIL_SHAPE(5, n, 1), dtype));
        check(values(ARIL_SHAPE(1, n, 3), dtype));
        check(values(ARIL_SHAPE(2, n, 17), dtype));
        check(aril_transpose(values(ARIL_SHAPE(1, 3, n), dtype), 1, 2));
        check(aril_slice(values(ARIL_SHAPE(2, n, 6), dtype), 2, 0, ARIL_END, 2));
        if (aril_dtype_is_float(dtype) && n > 7)
            check(with_odd_ones(values(ARIL_SHAPE(2, n, 2), dtype)));
    }
}

/* ---- reductions ---- */

#define RESULTS(name, ...)                             \
    static int name(aril_tensor *x, aril_tensor **out) \
    {                                                  \
        aril_tensor *y[] = { __VA_ARGS__ };            \
        int n = (int)(sizeof y / sizeof *y);           \
        for (int i = 0; i < n; i++) out[i] = y[i];     \
        return n;                                      \
    }
RESULTS(sums, aril_sum(x, ARIL_AXES(1)), aril_sum(x, ARIL_ALL), aril_sum(x, ARIL_AXES(0, 2)))
RESULTS(products, aril_prod(x, ARIL_AXES(1)), aril_prod(x, ARIL_ALL))
RESULTS(extremes, aril_amax(x, ARIL_AXES(1)), aril_amin(x, ARIL_AXES(1)), aril_amin(x, ARIL_ALL))
RESULTS(positions, aril_argmax(x, ARIL_AXES(1)), aril_argmin(x, ARIL_AXES(1)),
        aril_argmax(x, ARIL_ALL))
RESULTS(counts, aril_any(x, ARIL_AXES(1)), aril_all(x, ARIL_AXES(1)),
        aril_count_nonzero(x, ARIL_AXES(1)))
RESULTS(means, aril_mean(x, ARIL_AXES(1)), aril_mean(x, ARIL_ALL))
RESULTS(spreads, aril_var(x, ARIL_AXES(1), 1), aril_std(x, ARIL_AXES(1), 0))
RESULTS(logs, aril_logsumexp(x, ARIL_AXES(1)), aril_logsumexp(x, ARIL_ALL))
RESULTS(norms, aril_norm(x, ARIL_AXES(1), 2), aril_norm(x, ARIL_AXES(1), 1),
        aril_norm(x, ARIL_AXES(1), INFINITY))
RESULTS(other_norms, aril_norm(x, ARIL_AXES(1), 0), aril_norm(x, ARIL_AXES(1), 3),
        aril_norm(x, ARIL_AXES(1), -INFINITY))

static int largest_and_where(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_max(x, ARIL_AXES(1), &out[1]);
    return 2;
}

static int smallest_and_where(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_min(x, ARIL_AXES(1), &out[1]);
    return 2;
}

static int variance_and_mean(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_var_mean(x, ARIL_AXES(1), 1, &out[1]);
    return 2;
}

/* Factors near 1, so that no product of many leaves the range. */
static aril_tensor *factors(aril_tensor *x)
{
    if (!aril_dtype_is_float(aril_dtype_of(x))) return x;
    return aril_add_scalar(aril_mul_scalar(x, 2e-4), 1);
}

static void check_reductions(aril_tensor *x)
{
    test_against_reference("sum", sums, x, 0);
    test_against_reference("prod", products, factors(x), 0);
    test_against_reference("amax, amin", extremes, x, 0);
    test_against_reference("argmax, argmin", positions, x, 0);
    test_against_reference("max", largest_and_where, x, 0);
    test_against_reference("min", smallest_and_where, x, 0);
    test_against_reference("any, all, count_nonzero", counts, x, 0);
}

TEST(reductions)
{
    for (int i = 0; i < DTYPES; i++) each_shape(dtypes[i], check_reductions);
}

static void check_statistics(aril_tensor *x)
{
    test_against_reference("mean", means, x, 0);
    test_against_reference("var, std", spreads, x, 0);
    if (aril_item_int(aril_all(aril_isfinite(x), ARIL_ALL))) /* else the mean may be inf or NaN */
        test_against_reference("var_mean", variance_and_mean, x, 0);
    test_against_reference("logsumexp", logs, x, 0);
    test_against_reference("norm", norms, x, 0);
    test_against_reference("norm", other_norms, x, 0);
}

TEST(statistics)
{
    for (int i = 0; i < REALS; i++) each_shape(dtypes[i], check_statistics);
}

/* ---- scans ---- */

RESULTS(running_sums, aril_cumsum(x, 1), aril_cumsum(x, 0))
RESULTS(running_products, aril_cumprod(x, 1))
RESULTS(running_logs, aril_logcumsumexp(x, 1))

static int running_maxima(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_cummax(x, 1, &out[1]);
    return 2;
}

static int running_minima(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_cummin(x, 1, &out[1]);
    return 2;
}

static void check_scans(aril_tensor *x)
{
    test_against_reference("cumsum", running_sums, x, 0);
    test_against_reference("cumprod", running_products, factors(x), 0);
    test_against_reference("cummax", running_maxima, x, 0);
    test_against_reference("cummin", running_minima, x, 0);
    if (aril_dtype_is_float(aril_dtype_of(x)))
        test_against_reference("logcumsumexp", running_logs, x, 0);
}

TEST(scans)
{
    for (int i = 0; i < DTYPES; i++) each_shape(dtypes[i], check_scans);
}

/* ---- sorting ---- */

static int sorted_up(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_sort(x, 1, (aril_sort_opts){ 0 }, &out[1]);
    return 2;
}

static int sorted_down(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_sort(x, 1, (aril_sort_opts){ .descending = true }, &out[1]);
    return 2;
}

static int few_largest(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_topk(x, aril_size(x, 1) / 10, 1, (aril_topk_opts){ 0 }, &out[1]);
    return 2;
}

static int many_smallest(aril_tensor *x, aril_tensor **out)
{
    int64_t n = aril_size(x, 1);
    out[0] = aril_topk(x, n - n / 3, 1, (aril_topk_opts){ .smallest = true }, &out[1]);
    return 2;
}

static int third_way(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_kthvalue(x, aril_size(x, 1) / 3 + 1, ARIL_AXES(1), &out[1]);
    return 2;
}

static int middle(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_median(x, ARIL_AXES(1), &out[1]);
    return 2;
}

static int middle_number(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_nanmedian(x, ARIL_AXES(1), &out[1]);
    return 2;
}

static int most_frequent(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_mode(x, ARIL_AXES(1), &out[1]);
    return 2;
}

static void check_sorts(aril_tensor *x)
{
    test_against_reference("sort", sorted_up, x, 0);
    test_against_reference("sort, descending", sorted_down, x, 0);
    test_against_reference("topk", few_largest, x, 0);
    test_against_reference("topk, smallest", many_smallest, x, 0);
    test_against_reference("kthvalue", third_way, x, 0);
    test_against_reference("median", middle, x, 0);
    test_against_reference("nanmedian", middle_number, x, 0);
    test_against_reference("mode", most_frequent, x, 0);
}

/* Short lines are merged, longer ones sorted by digits of 8 or 11 bits; integers far apart need
 * wide keys. */
TEST(sorts)
{
    static const int64_t lengths[] = { 1, 15, 17, 79, 80, 81, 700, 8193 };
    for (int i = 0; i < DTYPES; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths && !test_failed(); k++) {
            ARIL_SCOPE;
            int64_t n = lengths[k];
            if (n > 1000 && i >= 2) continue;
            check_sorts(values(ARIL_SHAPE(1, n, 1), dtypes[i]));
            check_sorts(values(ARIL_SHAPE(2, n, 2), dtypes[i]));
            if (i < REALS && n > 8)
                check_sorts(with_odd_ones(values(ARIL_SHAPE(2, n, 1), dtypes[i])));
        }
    ARIL_SCOPE;
    aril_tensor *far = aril_mul_scalar(values(ARIL_SHAPE(2, 500, 1), ARIL_I64), INT64_C(1) << 40);
    check_sorts(far);
    check_sorts(aril_cast(far, ARIL_U64));
}

/* ---- counting ---- */

RESULTS(found,
        aril_searchsorted(aril_arange(0, 100, 1, aril_dtype_of(x), aril_cpu()), x,
                          (aril_search_opts){ 0 }),
        aril_searchsorted(aril_arange(0, 100, 1, aril_dtype_of(x), aril_cpu()), x,
                          (aril_search_opts){ .right = true }))
RESULTS(found_in_rows,
        aril_searchsorted(aril_sort(x, 1, (aril_sort_opts){ 0 }, NULL), x, (aril_search_opts){ 0 }))
RESULTS(binned, aril_histc(x, 10, -20, 30), aril_histc(x, 7, 0, 0))
RESULTS(counted, aril_bincount(x, NULL, 0), aril_bincount(x, aril_cast(x, ARIL_F32), 100),
        aril_bincount(x, aril_cast(x, ARIL_F16), 0))

TEST(counting)
{
    static const int64_t lengths[] = { 1, 255, 256, 257, 1025, 3000 };
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths && !test_failed(); k++) {
        ARIL_SCOPE;
        int64_t n = lengths[k];
        for (int i = 0; i < DTYPES - 2; i++) {
            aril_tensor *x = values(ARIL_SHAPE(2, n), dtypes[i]);
            test_against_reference("searchsorted", found, x, 0);
            if (i < 2 || dtypes[i] == ARIL_I64)
                test_against_reference("searchsorted in rows", found_in_rows, x, 0);
            if (i < 2) test_against_reference("histc", binned, x, 0);
            if (i < REALS && n > 8) {
                test_against_reference("searchsorted", found, with_odd_ones(x), 0);
                test_both_refuse("histc", binned, with_odd_ones(x));
            }
        }
        aril_tensor *integer = aril_randint(0, 50, ARIL_SHAPE(n), ARIL_I32, aril_cpu());
        test_against_reference("bincount", counted, integer, 0);
        test_both_refuse("bincount", counted, aril_sub_scalar(integer, 50));
    }
}

/* ---- sums that undo a broadcast or a repetition ---- */

static int summed_back(aril_tensor *x, aril_tensor **out)
{
    int64_t n = aril_size(x, 1) / 7;
    aril_dtype dtype = aril_dtype_of(x);
    struct repeat_attrs blocks = { .axis = { 1 }, .times = { 7 } };
    struct repeat_attrs each = { .axis = { 1 }, .times = { 7 }, .each = { 1 } };
    aril_tensor *like = aril_empty(ARIL_SHAPE(aril_size(x, 1), 1), dtype, aril_cpu());
    aril_tensor *part = aril_empty(ARIL_SHAPE(5, n, 33), dtype, aril_cpu());
    out[0] = aril__sum_to_like(x, like);
    out[1] = aril__op_with(&blocks, &aril__op_repeat_grad, x, part);
    out[2] = aril__op_with(&each, &aril__op_repeat_grad, x, part);
    return 3;
}

TEST(sums_that_undo_a_broadcast_or_a_repetition)
{
    for (int i = 0; i < REALS; i++)
        for (int64_t n = 1; n < 200 && !test_failed(); n = 3 * n + 1) {
            ARIL_SCOPE;
            test_against_reference("sum_to_like, repeat_grad", summed_back,
                                   values(ARIL_SHAPE(5, 7 * n, 33), dtypes[i]), 0);
        }
}
