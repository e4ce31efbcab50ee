/* An element of an elementwise result has the same bits whatever its neighbours are. */
#include "aril/aril.h"
#include "ops/elementwise/formula.h"
#include "ops/table/apply.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>

enum { ROWS = 40, COLUMNS = 17 };

static bool is_wanted(const aril__op *op)
{
    const aril__formula *f = op->formula;
    if (!f || f->is_grad) return false;
    return f->rule == ARIL__EW_REAL || f->rule == ARIL__EW_NUM || f->rule == ARIL__EW_NUMX ||
           f->rule == ARIL__EW_FLT;
}

/* Positive and negative numbers of several magnitudes, some of them integers. */
static aril_tensor *usual(uint64_t seed, aril_dtype dtype) /* [ROWS,COLUMNS] */
{
    aril_generator *g = aril_generator_new(seed);
    aril_tensor *t = aril_randn_from(g, ARIL_SHAPE(ROWS, COLUMNS), ARIL_F64, test_device());
    aril_generator_free(g);
    aril_tensor *scale = aril_arange(0, ROWS, 1, ARIL_F64, test_device());
    t = aril_mul(t, aril_reshape(aril_exp2(aril_sub_scalar(aril_mul_scalar(scale, 0.4), 6)),
                                 ARIL_SHAPE(ROWS, 1)));
    aril_tensor *upper = aril_slice(t, 0, ROWS / 2, ARIL_END, 2);
    aril_copy_(upper, aril_round(upper));
    return aril_cast(t, dtype);
}

/* The op and its gradients with respect to each input. */
static int compute(const aril__op *op, aril_tensor *const *in, aril_tensor **out)
{
    const struct ew_attrs attrs = { { 0.5, 0.75, 1.25 } };
    aril_tensor *x[3];
    int arity = op->formula->arity, n = 1;
    bool differentiable = !(op->flags & NONDIFF);
    for (int i = 0; i < arity; i++) {
        x[i] = aril_detach(in[i]);
        if (differentiable) aril_set_requires_grad(x[i], true);
    }
    aril_tensor *y = aril__apply1(op, arity, x, &attrs);
    out[0] = aril_detach(y);
    if (!differentiable || !aril_requires_grad(y)) return 1;
    aril_gradients_n(ARIL_LIST(y), (aril_list){ arity, x }, out + 1,
                     (aril_grad_opts){ .grad_outputs = ARIL_LIST(aril_ones_like(y)),
                                       .allow_unused = true });
    for (int i = 0; i < arity; i++)
        if (out[1 + i]) out[n++] = out[1 + i];
    return n;
}

/* Columns but the last: those whose inputs are the same. */
static aril_tensor *kept(aril_tensor *t)
{
    return aril_copy(aril_slice(t, 1, 0, COLUMNS - 1, 1));
}

static void check_op(const aril__op *op, aril_dtype dtype, double far)
{
    ARIL_SCOPE;
    aril_tensor *in[3], *with[3], *out[4] = { NULL }, *want[4] = { NULL };
    for (int i = 0; i < 3; i++) {
        in[i] = usual((uint64_t)i + 1, dtype);
        with[i] = aril_copy(in[i]);
        aril_fill_(aril_select(with[i], 1, COLUMNS - 1), far);
    }
    int n = compute(op, in, want);
    CHECK_INT(compute(op, with, out), n);
    CHECK_MSG(aril_ok(), "%s: %s", op->name, aril_error());
    for (int i = 0; i < n; i++) {
        char *why = test_difference_in_value(kept(out[i]), kept(want[i]), 0, 0);
        CHECK_MSG(!why, "%s %s, result %d, near %g: %s", op->name, aril_dtype_name(dtype), i, far,
                  why);
    }
}

static void check_all(aril_dtype dtype)
{
    static const double far[] = { 1e7, -1e30, -0.5, 2, 0, INFINITY, NAN };
    for (int k = 0; k < aril__n_ops; k++)
        for (size_t i = 0; i < sizeof far / sizeof *far && is_wanted(aril__ops[k]); i++)
            check_op(aril__ops[k], dtype, far[i]);
}

TEST(formulas_in_f32)
{
    check_all(ARIL_F32);
}

TEST(formulas_in_f64)
{
    check_all(ARIL_F64);
}

TEST(formulas_in_bf16)
{
    check_all(ARIL_BF16);
}
