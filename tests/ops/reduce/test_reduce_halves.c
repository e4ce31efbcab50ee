/* Sums of f16 and bf16, which are added as they are in memory, are those of the numbers in f64. */
#include "aril/aril.h"
#include "core/cpu.h"
#include "support/compare.h"
#include "support/test.h"

#include <math.h>

static void check_sum(aril_tensor *x, int axis, const char *what)
{
    aril_dtype dtype = aril_dtype_of(x);
    aril_axes over = axis < 0 ? ARIL_AXES() : ARIL_AXES(axis);
    aril_tensor *want = aril_cast(aril_sum(aril_cast(x, ARIL_F64), over), dtype);
    /* Rounded once: by a unit in the last place where the sum is between two numbers. */
    double most = dtype == ARIL_F16 ? 0x1p-10 : 0x1p-7;
    char *why = test_difference_in_value(aril_sum(x, over), want, most, 0);
    CHECK_MSG(!why, "%s of %s [%lld,%lld], axis %d, %s: %s", what, aril_dtype_name(dtype),
              (long long)aril_size(x, 0), (long long)aril_size(x, 1), axis,
              aril__cpu_name(aril__cpu()), why);
}

static void check_sizes(aril_dtype dtype, int64_t rows, int64_t columns)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_cast(aril_rand(ARIL_SHAPE(rows, columns), ARIL_F32, aril_cpu()), dtype);
    for (int axis = -1; axis < 2; axis++) {
        check_sum(x, axis, "sum");
        check_sum(aril_t(x), axis, "transposed sum");
        check_sum(aril_slice(x, 1, 0, columns / 2 + 1, 1), axis, "part");
    }
}

static void at_each_level(void (*check)(aril_dtype))
{
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top; level++) {
        aril__cpu_set(level);
        check(ARIL_F16);
        check(ARIL_BF16);
    }
    aril__cpu_set(top);
}

static void check_all_sizes(aril_dtype dtype)
{
    static const int64_t sizes[] = { 1, 2, 3, 4, 7, 8, 9, 16, 31, 127, 128, 131, 260, 1100 };
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < SIZES; i++)
        for (int k = 0; k < SIZES && !test_failed(); k++) check_sizes(dtype, sizes[i], sizes[k]);
}

TEST(sums_of_all_sizes)
{
    at_each_level(check_all_sizes);
}

/* Sums that pass beyond the largest f32 and return, infinities and NaN. */
static void check_extremes(aril_dtype dtype)
{
    ARIL_SCOPE;
    float large = dtype == ARIL_F16 ? 65504 : 0x1.fep127f;
    for (int64_t n = 16; n <= 400; n += 16) {
        aril_tensor *x = aril_full(ARIL_SHAPE(n, n), large, dtype, aril_cpu());
        aril_neg_(aril_slice(x, 0, n / 2, ARIL_END, 1));
        for (int axis = -1; axis < 2; axis++) check_sum(x, axis, "extremes");
        check_sum(aril_contiguous(aril_t(x)), 1, "extremes of rows");
        aril_fill_(aril_select(x, 0, n / 3), n % 32 ? INFINITY : NAN);
        for (int axis = -1; axis < 2; axis++) check_sum(x, axis, "infinities and NaN");
    }
}

TEST(sums_of_extremes)
{
    at_each_level(check_extremes);
}
