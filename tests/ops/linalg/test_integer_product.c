/* Products of integers in their own dtype against plain sums, at every CPU level: they wrap around,
 * for any sizes, strides and batches. */
#include "aril/aril.h"
#include "core/cpu.h"
#include "support/test.h"

#include <string.h>

static const aril_dtype dtypes[] = { ARIL_U8,  ARIL_I8,  ARIL_U16, ARIL_I16,
                                     ARIL_U32, ARIL_I32, ARIL_U64, ARIL_I64 };
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static uint64_t state = 1;

/* All bits are random, so that sums leave the range of every dtype. */
static aril_tensor *integers(aril_shape shape, aril_dtype dtype)
{
    aril_tensor *t = aril_empty(shape, dtype, aril_cpu());
    char *at = aril_data_strided(t);
    for (size_t i = 0, n = (size_t)aril_numel(t) * aril_dtype_size(dtype); i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        at[i] = (char)(state >> 56);
    }
    return t;
}

static const int64_t *wide(aril_tensor *t)
{
    return aril_data(aril_cast(t, aril_dtype_of(t) == ARIL_U64 ? ARIL_U64 : ARIL_I64));
}

/* y [batch,m,n] is a [batch,m,k] times b [batch or 1,k,n], plus bias [n] unless that is NULL. */
static void check(aril_tensor *y, aril_tensor *a, aril_tensor *b, aril_tensor *bias)
{
    int64_t m = aril_size(a, 1), k = aril_size(a, 2), n = aril_size(b, 2);
    int unused = 64 - 8 * (int)aril_dtype_size(aril_dtype_of(y));
    const int64_t *pa = wide(a), *pb = wide(b), *py = wide(y), *add = bias ? wide(bias) : NULL;
    CHECK(aril_dtype_of(y) == aril_dtype_of(a));
    for (int64_t i = 0; i < aril_size(a, 0) * m && !test_failed(); i++)
        for (int64_t j = 0; j < n; j++) {
            const int64_t *row = pa + i * k,
                          *col = pb + (aril_size(b, 0) > 1 ? i / m * k * n : 0) + j;
            uint64_t sum = add ? (uint64_t)add[j] : 0;
            for (int64_t p = 0; p < k; p++) sum += (uint64_t)row[p] * (uint64_t)col[p * n];
            CHECK_MSG(sum << unused == (uint64_t)py[i * n + j] << unused,
                      "%s at %s: %d x %d x %d at %d, %d", aril_dtype_name(aril_dtype_of(y)),
                      aril__cpu_name(aril__cpu()), (int)m, (int)k, (int)n, (int)i, (int)j);
        }
}

/* The same elements, with the last two dimensions the other way round in memory. */
static aril_tensor *turned(aril_tensor *t)
{
    return aril_transpose(aril_contiguous(aril_transpose(t, 1, 2)), 1, 2);
}

static void check_size(const int64_t of[4], aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *a = integers(ARIL_SHAPE(of[0], of[1], of[2]), dtype);
    aril_tensor *b = integers(ARIL_SHAPE(of[0], of[2], of[3]), dtype);
    aril_tensor *shared = integers(ARIL_SHAPE(1, of[2], of[3]), dtype);
    aril_tensor *bias = integers(ARIL_SHAPE(of[3]), dtype);
    check(aril_matmul(a, b), a, b, NULL);
    check(aril_matmul(turned(a), turned(b)), a, b, NULL);
    check(aril_matmul(aril_flip(aril_flip(a, ARIL_AXES(2)), ARIL_AXES(2)), shared), a, shared,
          NULL);
    aril_tensor *weight = aril_transpose(aril_squeeze(shared, ARIL_AXES(0)), 0, 1); /* [n,k] */
    check(aril_linear(a, weight, bias), a, shared, bias);
    check(aril_linear(a, aril_contiguous(weight), NULL), a, shared, NULL);
}

TEST(products_of_integers_wrap_around)
{
    static const int64_t sizes[][4] = { { 1, 1, 1, 1 },    { 2, 3, 0, 5 },     { 3, 1, 70, 9 },
                                        { 1, 5, 3, 131 },  { 2, 67, 300, 33 }, { 1, 4, 1100, 4 },
                                        { 1, 129, 17, 65 } };
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top; level++)
        for (int d = 0; d < DTYPES; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes && !test_failed(); s++) {
                aril__cpu_set(level);
                check_size(sizes[s], dtypes[d]);
            }
    aril__cpu_set(top);
    CHECK(aril_ok());
}
