/* Unique elements: by a table of counts or by sorting, both have to give ascending values, where
 * each element is among them, and how often each occurs. */
#include "aril/aril.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { MOST = 5000 };

static uint64_t state = 1;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Checks the results for elements that, as f64, are x[0..n). */
static void check(aril_tensor *t, const double *x, const char *what)
{
    aril_tensor *inverse, *counts, *y = aril_unique(t, &inverse, &counts);
    int64_t n = aril_numel(t), groups = aril_numel(y), total = 0;
    CHECK(aril_ok() && aril_dtype_of(y) == aril_dtype_of(t) && aril_numel(counts) == groups);
    CHECK(aril_ndim(inverse) == aril_ndim(t));
    const double *v = aril_data(aril_cast(y, ARIL_F64));
    const int64_t *at = aril_data(inverse), *count = aril_data(counts);
    int64_t seen[MOST] = { 0 };
    for (int64_t g = 1; g < groups; g++)
        CHECK_MSG(v[g - 1] < v[g] || isnan(v[g]), "%s: value %d", what, (int)g);
    for (int64_t i = 0; i < n; i++) {
        CHECK_MSG(at[i] >= 0 && at[i] < groups, "%s: inverse %d", what, (int)i);
        if (test_failed()) return;
        seen[at[i]]++;
        CHECK_MSG(v[at[i]] == x[i] || (isnan(v[at[i]]) && isnan(x[i])), "%s: element %d is %g",
                  what, (int)i, x[i]);
    }
    for (int64_t g = 0; g < groups; g++) {
        CHECK_MSG(count[g] == seen[g] && count[g] > 0, "%s: count %d", what, (int)g);
        CHECK(!isnan(v[g]) || count[g] == 1); /* NaN equals nothing */
        total += count[g];
    }
    CHECK(total == n);
}

static void check_dtype(aril_dtype dtype, int64_t n, double width, double least)
{
    ARIL_SCOPE;
    static double x[MOST];
    for (int64_t i = 0; i < n; i++) x[i] = least + floor((double)(draw() >> 11) * 0x1p-53 * width);
    aril_tensor *t = aril_cast(aril_from(x, ARIL_SHAPE(n), ARIL_F64, aril_cpu()), dtype);
    aril_tensor *kept = aril_cast(t, ARIL_F64); /* bool and narrow dtypes change values */
    memcpy(x, aril_data(kept), (size_t)n * sizeof *x);
    check(t, x, aril_dtype_name(dtype));
    if (n % 2) return;
    /* A transposed matrix: positions are those of its elements in logical order. */
    aril_tensor *turned = aril_t(aril_reshape(t, ARIL_SHAPE(2, n / 2)));
    memcpy(x, aril_data(aril_cast(turned, ARIL_F64)), (size_t)n * sizeof *x);
    check(turned, x, aril_dtype_name(dtype));
}

TEST(unique_elements_of_every_dtype)
{
    static const int64_t sizes[] = { 0, 1, 2, 100, 1001, MOST };
    for (aril_dtype t = ARIL_BOOL; t <= ARIL_F64; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes && !test_failed(); s++) {
            check_dtype(t, sizes[s], 100, t >= ARIL_I8 ? -50 : 0);
            check_dtype(t, sizes[s], 0x1p50, 0);
        }
}

TEST(unique_of_extreme_integers)
{
    ARIL_SCOPE;
    int64_t x[] = { INT64_MAX, INT64_MIN, 0, INT64_MAX, -1, INT64_MIN, 0, 0 };
    aril_tensor *t = aril_from(x, ARIL_SHAPE(8), ARIL_I64, aril_cpu()), *counts;
    const int64_t *y = aril_data(aril_unique(t, NULL, &counts)), *n = aril_data(counts);
    CHECK(y[0] == INT64_MIN && y[1] == -1 && y[2] == 0 && y[3] == INT64_MAX);
    CHECK(n[0] == 2 && n[1] == 1 && n[2] == 3 && n[3] == 2);
    aril_tensor *u = aril_from(x, ARIL_SHAPE(8), ARIL_U64, aril_cpu());
    const uint64_t *v = aril_data(aril_unique(u, NULL, NULL));
    CHECK(v[0] == 0 && v[1] == INT64_MAX && v[2] == UINT64_C(1) << 63 && v[3] == UINT64_MAX);
    /* A small range at the end of the dtype. */
    int64_t high[] = { INT64_MAX, INT64_MAX - 1, INT64_MAX };
    aril_tensor *h = aril_from(high, ARIL_SHAPE(3), ARIL_I64, aril_cpu());
    y = aril_data(aril_unique(h, NULL, NULL));
    CHECK(y[0] == INT64_MAX - 1 && y[1] == INT64_MAX);
    CHECK(aril_ok());
}

TEST(unique_zeros_and_nan)
{
    ARIL_SCOPE;
    double x[] = { NAN, -0.0, 1, 0, NAN, -INFINITY, 1 };
    for (aril_dtype t = ARIL_F16; t <= ARIL_F64; t++)
        check(aril_cast(aril_from(x, ARIL_SHAPE(7), ARIL_F64, aril_cpu()), t), x,
              aril_dtype_name(t));
    aril_tensor *y = aril_unique(aril_from(x, ARIL_SHAPE(7), ARIL_F64, aril_cpu()), NULL, NULL);
    CHECK(aril_numel(y) == 5 && signbit(((const double *)aril_data(y))[1])); /* the first zero */
}
