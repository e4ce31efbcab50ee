/* Reductions of integers and bools in their own dtype against plain loops in 64 bits, at every CPU
 * level: extreme values, more rows than narrow accumulators hold, every order in memory. */
#include "aril/aril.h"
#include "core/cpu.h"
#include "support/test.h"

#include <string.h>

static const aril_dtype dtypes[] = { ARIL_BOOL, ARIL_U8,  ARIL_I8,  ARIL_I16, ARIL_I32,
                                     ARIL_I64,  ARIL_U16, ARIL_U32, ARIL_U64 };
enum { DTYPES = sizeof dtypes / sizeof *dtypes, WIDEST = 70000 };

static uint64_t state = 1;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* What an element is: random bits, an extreme of the dtype, mostly zero, or mostly not. */
enum { ANY, LOWEST, HIGHEST, FEW, MOST, FILLS };

static uint64_t bits_of(int fill, int size, bool is_signed)
{
    uint64_t top = is_signed ? UINT64_C(1) << (8 * size - 1) : 0;
    switch (fill) {
    case LOWEST: return top;
    case HIGHEST: return top - 1;
    case FEW: return draw() % 100 == 0 ? draw() : 0;
    case MOST: return draw() % 100 == 0 ? 0 : draw() | 16;
    default: return draw();
    }
}

/* A tensor [rows,columns] and its elements as 64-bit integers. Bytes of a bool are not only 0 and
 * 1. */
static aril_tensor *integers(int64_t rows, int64_t columns, aril_dtype dtype, int fill, int64_t *x)
{
    aril_tensor *t = aril_empty(ARIL_SHAPE(rows, columns), dtype, aril_cpu());
    int size = (int)aril_dtype_size(dtype);
    bool is_signed = dtype >= ARIL_I8;
    char *at = aril_data_strided(t);
    for (int64_t i = 0; i < rows * columns; i++) {
        uint64_t u = bits_of(fill, size, is_signed);
        memcpy(at + i * size, &u, (size_t)size);
        int unused = 64 - 8 * size;
        x[i] = is_signed ? (int64_t)(u << unused) >> unused : (int64_t)(u << unused >> unused);
        if (dtype == ARIL_BOOL) x[i] = x[i] != 0;
    }
    return t;
}

typedef int64_t fold(int64_t s, int64_t x);
static int64_t add(int64_t s, int64_t x)
{
    return (int64_t)((uint64_t)s + (uint64_t)x);
}
static int64_t multiply(int64_t s, int64_t x)
{
    return (int64_t)((uint64_t)s * (uint64_t)x);
}
static int64_t larger(int64_t s, int64_t x)
{
    return x > s ? x : s;
}
static int64_t smaller(int64_t s, int64_t x)
{
    return x < s ? x : s;
}
static int64_t larger_unsigned(int64_t s, int64_t x)
{
    return (uint64_t)x > (uint64_t)s ? x : s;
}
static int64_t smaller_unsigned(int64_t s, int64_t x)
{
    return (uint64_t)x < (uint64_t)s ? x : s;
}
static int64_t count(int64_t s, int64_t x)
{
    return s + (x != 0);
}
static int64_t either(int64_t s, int64_t x)
{
    return s || x;
}
static int64_t both(int64_t s, int64_t x)
{
    return s && x;
}

static const struct reduction {
    const char *name;
    aril_tensor *(*op)(aril_tensor *, aril_axes);
    fold *fold, *fold_u64;
    bool from_zero, from_one; /* the fold starts there, and not at the first element */
} reductions[] = {
    { "sum", aril_sum, add, add, true, false },
    { "prod", aril_prod, multiply, multiply, false, true },
    { "amax", aril_amax, larger, larger_unsigned, false, false },
    { "amin", aril_amin, smaller, smaller_unsigned, false, false },
    { "count_nonzero", aril_count_nonzero, count, count, true, false },
    { "any", aril_any, either, either, true, false },
    { "all", aril_all, both, both, false, true },
};
enum { REDUCTIONS = sizeof reductions / sizeof *reductions };

/* Output i folds `n` elements that are `step` apart, from x[i * next]. */
static void check(const struct reduction *r, aril_tensor *y, const int64_t *x, int64_t outputs,
                  int64_t next, int64_t n, int64_t step, const char *what)
{
    aril_dtype of = aril_dtype_of(y);
    int size = (int)aril_dtype_size(of), unused = 64 - 8 * size;
    fold *f = of == ARIL_U64 ? r->fold_u64 : r->fold;
    const int64_t *got = aril_data(aril_cast(y, of == ARIL_U64 ? ARIL_U64 : ARIL_I64));
    for (int64_t i = 0; i < outputs; i++) {
        const int64_t *line = x + i * next;
        int64_t s = r->from_zero ? 0 : r->from_one ? 1 : line[0];
        for (int64_t k = 0; k < n; k++) s = f(s, line[k * step]);
        CHECK_MSG((uint64_t)got[i] << unused == (uint64_t)s << unused,
                  "%s of %s, %s, at %d: %lld, "
                  "wants %lld",
                  r->name, what, aril__cpu_name(aril__cpu()), (int)i, (long long)got[i],
                  (long long)s);
        if (test_failed()) return;
    }
}

static void check_all(int64_t rows, int64_t columns, aril_dtype dtype, int fill, int64_t *x)
{
    aril_tensor *t = integers(rows, columns, dtype, fill, x), *turned = aril_transpose(t, 0, 1);
    const char *what = aril_dtype_name(dtype);
    for (int r = 0; r < REDUCTIONS && !test_failed(); r++) {
        const struct reduction *how = &reductions[r];
        check(how, how->op(t, ARIL_ALL), x, 1, 0, rows * columns, 1, what);
        check(how, how->op(t, ARIL_AXES(0)), x, columns, 1, rows, columns, what);
        check(how, how->op(t, ARIL_AXES(1)), x, rows, columns, columns, 1, what);
        check(how, how->op(turned, ARIL_AXES(0)), x, rows, columns, columns, 1, what);
        /* Every other column. */
        aril_tensor *half = aril_slice(t, 1, 0, columns, 2);
        check(how, how->op(half, ARIL_AXES(0)), x, (columns + 1) / 2, 2, rows, columns, what);
        check(how, how->op(half, ARIL_AXES(1)), x, rows, columns, (columns + 1) / 2, 2, what);
    }
}

TEST(integers_are_folded_exactly)
{
    static const int64_t shapes[][2] = { { 1, 1 },      { 1, 1023 }, { 3, 5 },
                                         { 1, WIDEST }, { 600, 3 },  { 5, 4099 },
                                         { 700, 100 },  { 9, 1500 }, { 70000, 1 } };
    static int64_t x[WIDEST];
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top; level++)
        for (int d = 0; d < DTYPES; d++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                ARIL_SCOPE;
                aril__cpu_set(level);
                int fill = (int)(s + (size_t)d) % FILLS;
                check_all(shapes[s][0], shapes[s][1], dtypes[d], fill, x);
                check_all(shapes[s][0], shapes[s][1], dtypes[d], HIGHEST, x);
                check_all(shapes[s][0], shapes[s][1], dtypes[d], LOWEST, x);
            }
    aril__cpu_set(top);
    CHECK(aril_ok());
}
