/* Integer ops in a dtype of their own give what the same op in i64 gives, converted: for every
 * formula, with operands of every form. Powers have the same bits one by one and all at once. */
#include "aril/aril.h"
#include "backend/cpu/elementwise/elementwise.h"
#include "core/dtype.h"
#include "ops/elementwise/formula.h"
#include "ops/elementwise/numbers.h"
#include "ops/table/apply.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static const aril_dtype types[] = { ARIL_BOOL, ARIL_U8, ARIL_I8, ARIL_I16, ARIL_I32 };
enum { TYPES = sizeof types / sizeof *types };

static bool applies(const aril__formula *f, aril_dtype type)
{
    switch (f->rule) {
    case ARIL__EW_INT:
    case ARIL__EW_NUM:
    case ARIL__EW_CMP: return true;
    case ARIL__EW_INTX:
    case ARIL__EW_NUMX: return type != ARIL_BOOL;
    default: return false;
    }
}

/* Any values of the dtype; for what fails on some, small positive ones. */
static aril_tensor *some(aril_shape shape, aril_dtype type, bool tame)
{
    int64_t low = tame ? 1 : INT32_MIN, high = tame ? 7 : (int64_t)INT32_MAX + 1;
    return aril_cast(aril_randint(low, high, shape, ARIL_I64, aril_cpu()), type);
}

static void check_same(const char *op, aril_tensor *got, aril_tensor *wide, aril_dtype type)
{
    aril_tensor *want = aril_cast(wide, aril_dtype_of(got));
    CHECK_MSG(aril_ok(), "%s %s: %s", op, aril_dtype_name(type), aril_error());
    CHECK_MSG(aril_equal(got, want), "%s in %s", op, aril_dtype_name(type));
}

static void check_op(const aril__op *op, aril_dtype type, aril_tensor **in)
{
    ARIL_SCOPE;
    aril_tensor *wide[3], *got, *want;
    int n = op->formula->arity;
    for (int i = 0; i < n; i++) wide[i] = aril_cast(in[i], ARIL_I64);
    if (aril__apply(op, n, in, NULL, &got) < 0 || aril__apply(op, n, wide, NULL, &want) < 0) {
        CHECK_MSG(false, "%s: %s", op->name, aril_error());
        return;
    }
    check_same(op->name, got, want, type);
}

TEST(every_formula_gives_what_i64_gives)
{
    int n = 0;
    aril_seed(1);
    for (int k = 0; k < aril__n_ops && !test_failed(); k++) {
        const aril__op *op = aril__ops[k];
        if (!op->formula || op->formula->is_grad || strstr(op->formula->text, "p0"))
            continue; /* with parameters, which need not fit the dtype */
        bool tame = aril__formula_may_fail(op);
        for (int t = 0; t < TYPES; t++) {
            ARIL_SCOPE;
            if (!applies(op->formula, types[t])) continue;
            aril_tensor *x[3];
            for (int i = 0; i < 3; i++) x[i] = some(ARIL_SHAPE(3, 1500), types[t], tame);
            check_op(op, types[t], x); /* contiguous */
            aril_tensor *turned[3] = { aril_t(x[0]), aril_t(x[1]), aril_t(x[2]) };
            check_op(op, types[t], turned);
            aril_tensor *mixed[3] = { x[0], aril_narrow(x[1], 0, 0, 1),
                                      aril_narrow(x[2], 1, 4, 1) };
            check_op(op, types[t], mixed); /* a row, a column */
            aril_tensor *flipped[3] = {
                x[0], aril_flip(x[1], ARIL_AXES(1)),
                aril_expand(aril_narrow(aril_narrow(x[2], 0, 1, 1), 1, 9, 1), ARIL_SHAPE(3, 1500))
            };
            check_op(op, types[t], flipped);
            n++;
        }
    }
    CHECK_MSG(test_failed() || n > 100, "%d combinations", n);
}

TEST(numbers_that_do_not_fit_the_dtype_count_in_full)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_cast(aril_arange(-128, 128, 1, ARIL_I64, aril_cpu()), ARIL_I8);
    CHECK(aril_item(aril_sum(aril_cast(aril_lt_scalar(x, 1000), ARIL_I64), ARIL_ALL)) == 256);
}

TEST(bytes_of_bool_other_than_one_are_true)
{
    ARIL_SCOPE;
    uint8_t bytes[] = { 0, 1, 2, 255 };
    aril_tensor *x = aril_from(bytes, ARIL_SHAPE(4), ARIL_BOOL, aril_cpu());
    CHECK(aril_item(aril_sum(aril_cast(aril_eq(x, aril_ones_like(x)), ARIL_I64), ARIL_ALL)) == 3);
    CHECK(aril_item(aril_sum(aril_cast(aril_logical_xor(x, aril_ones_like(x)), ARIL_I64),
                             ARIL_ALL)) == 1);
}

static bool same_bits(aril_tensor *a, aril_tensor *b)
{
    const void *x = aril_data(a), *y = aril_data(b);
    return x && y && memcmp(x, y, (size_t)aril_numel(a) * aril_dtype_size(aril_dtype_of(a))) == 0;
}

TEST(powers_do_not_depend_on_their_neighbours)
{
    static const double exponents[] = { 2, 3, 0.5, -0.5, -1, -2, 1.7 };
    for (int type = ARIL_F32; type <= ARIL_F64; type++)
        for (size_t k = 0; k < sizeof exponents / sizeof *exponents; k++) {
            ARIL_SCOPE;
            aril_tensor *x = aril_randn(ARIL_SHAPE(1000), (aril_dtype)type, aril_cpu());
            float edges[] = { 0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-30f, -1, 3e38f };
            aril_copy_(aril_narrow(x, 0, 0, 8),
                       aril_cast(aril_from(edges, ARIL_SHAPE(8), ARIL_F32, aril_cpu()),
                                 (aril_dtype)type));
            aril_tensor *all = aril_pow_scalar(x, exponents[k]);
            aril_tensor *y =
                aril_full(ARIL_SHAPE(1000), exponents[k], (aril_dtype)type, aril_cpu());
            CHECK(same_bits(all, aril_pow(x, y)));
            aril_fill_(aril_narrow(y, 0, 500, 500), 1.234);
            CHECK(same_bits(aril_narrow(all, 0, 0, 500), aril_narrow(aril_pow(x, y), 0, 0, 500)));
            for (int i = 0; i < 8; i++) {
                double base = (double)edges[i], want = pow(base, exponents[k]);
                double got = aril_item(aril_select(all, 0, i));
                if (type == ARIL_F64)
                    CHECK_MSG((want != want && got != got) || got == want ||
                                  fabs(got - want) <= 4e-16 * fabs(want),
                              "%g ^ %g: %g, not %g", base, exponents[k], got, want);
            }
        }
}

/* ---- f16 and bf16: bits of signs ---- */

/* What a conversion to f32 and back gives, for every code. */
static void check_half(aril_dtype dtype, const char *name, aril_tensor *(*op)(aril_tensor *),
                       int formula)
{
    ARIL_SCOPE;
    enum { CODES = 1 << 16 };
    static float wide[CODES];
    static uint16_t codes[CODES], want[CODES];
    for (int i = 0; i < CODES; i++) codes[i] = (uint16_t)i;
    const double no_params[ARIL__EW_PARAMS] = { 0 };
    int bad = 0;
    aril__dtypes[dtype].load[ARIL__C_F32](wide, codes, 0, 1, CODES);
    aril__ew_kernel(formula, ARIL__C_F32)(CODES, wide, (const void *[5]){ wide }, no_params, &bad);
    aril__dtypes[dtype].store[ARIL__C_F32](want, 0, 1, wide, CODES);
    aril_tensor *x = aril_from(codes, ARIL_SHAPE(CODES), dtype, aril_cpu());
    aril_tensor *odd = aril_slice(x, 0, 1, ARIL_END, 2), *one = aril_select(x, 0, 0x7c01);
    const uint16_t *y = aril_data(op(x)), *z = aril_data(aril_contiguous(op(odd)));
    for (int i = 0; i < CODES && !test_failed(); i++)
        CHECK_MSG(y[i] == want[i] && z[i / 2] == want[i / 2 * 2 + 1], "%s %s of %04x: %04x", name,
                  aril_dtype_name(dtype), (unsigned)i, (unsigned)y[i]);
    CHECK_INT(*(const uint16_t *)aril_data(op(one)), want[0x7c01]);
}

TEST(signs_of_halves)
{
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top; level++) {
        aril__cpu_set(level);
        check_half(ARIL_F16, "neg", aril_neg, ARIL__FORMULA_neg);
        check_half(ARIL_F16, "abs", aril_abs, ARIL__FORMULA_abs);
        check_half(ARIL_BF16, "neg", aril_neg, ARIL__FORMULA_neg);
        check_half(ARIL_BF16, "abs", aril_abs, ARIL__FORMULA_abs);
    }
    aril__cpu_set(top);
}
