/* Operands with one element for each row give the same bits as copies of full shape, in every dtype
 * and at every CPU level: rows of any length, of results that are contiguous or not. */
#include "aril/aril.h"
#include "core/cpu.h"
#include "support/test.h"

static aril_tensor *numbers(aril_shape shape, aril_dtype dtype)
{
    aril_tensor *x = aril_rand(shape, ARIL_F32, aril_cpu());
    if (dtype == ARIL_BOOL) return aril_gt_scalar(x, 0.5);
    return aril_cast(aril_mul_scalar(x, 100), dtype);
}

static void check(aril_dtype dtype, int64_t rows, int64_t columns)
{
    ARIL_SCOPE;
    aril_tensor *x = numbers(ARIL_SHAPE(rows, columns), dtype);
    aril_tensor *one = numbers(ARIL_SHAPE(rows, 1), dtype);
    aril_tensor *line = aril_slice(x, 0, 0, 1, 1); /* [1,columns] */
    aril_tensor *full = aril_contiguous(aril_expand(one, aril_shape_of(x)));
    aril_tensor *lines = aril_contiguous(aril_expand(line, aril_shape_of(x)));
    CHECK_MSG(aril_equal(aril_maximum(x, one), aril_maximum(x, full)), "%s, [%d,%d], %s",
              aril_dtype_name(dtype), (int)rows, (int)columns, aril__cpu_name(aril__cpu()));
    CHECK(aril_equal(aril_lt(one, x), aril_lt(full, x)));
    CHECK(aril_equal(aril_where(aril_gt(one, x), one, x), aril_where(aril_gt(full, x), full, x)));
    CHECK(aril_equal(aril_minimum(one, line), aril_minimum(full, lines)));
    aril_tensor *wide = aril_zeros(ARIL_SHAPE(rows, columns + 3), dtype, aril_cpu());
    aril_tensor *part = aril_slice(wide, 1, 3, ARIL_END, 1);
    aril_tensor *odd = aril_maximum(part, one); /* rows that are not adjacent */
    CHECK(aril_equal(odd, aril_maximum(aril_contiguous(part), full)));
}

/* a and b broadcast to each other, as they are and expanded first. */
static void check_broadcast(aril_dtype dtype, aril_shape a, aril_shape b)
{
    ARIL_SCOPE;
    aril_tensor *x = numbers(a, dtype), *y = numbers(b, dtype), *sum = aril_maximum(x, y);
    aril_tensor *wide = aril_contiguous(aril_expand(x, aril_shape_of(sum)));
    aril_tensor *other = aril_contiguous(aril_expand(y, aril_shape_of(sum)));
    CHECK_MSG(aril_equal(sum, aril_maximum(wide, other)), "%s, %d columns, %s",
              aril_dtype_name(dtype), (int)b.dim[b.ndim - 1], aril__cpu_name(aril__cpu()));
}

TEST(rows_broadcast_in_the_middle)
{
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top; level++)
        for (aril_dtype t = ARIL_BOOL; t <= ARIL_F64 && !test_failed(); t++) {
            aril__cpu_set(level);
            for (int64_t n = 2; n < 100; n += n < 20 ? 7 : 29) { /* staged and direct rows */
                check_broadcast(t, ARIL_SHAPE(5, 1, 7, 1), ARIL_SHAPE(1, 9, 1, n)); /* kron */
                check_broadcast(t, ARIL_SHAPE(6, 40, n), ARIL_SHAPE(6, 1, n));
                check_broadcast(t, ARIL_SHAPE(4, 1, 30, n), ARIL_SHAPE(4, 20, 1, n));
                check_broadcast(t, ARIL_SHAPE(3, 8, n), ARIL_SHAPE(8, 1));
            }
        }
    aril__cpu_set(top);
    CHECK(aril_ok());
}

TEST(one_element_for_each_row)
{
    static const int64_t sizes[][2] = { { 3, 64 }, { 40, 97 }, { 2, 1000 }, { 3, 20000 } };
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top; level++)
        for (aril_dtype t = ARIL_BOOL; t <= ARIL_F64; t++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes && !test_failed(); s++) {
                aril__cpu_set(level);
                check(t, sizes[s][0], sizes[s][1]);
            }
    aril__cpu_set(top);
    CHECK(aril_ok());
}
