/* Fused elementwise ops give the bits of single ones: every formula, on the device of the tests. */
#include "aril/aril.h"
#include "ops/elementwise/formula.h"
#include "ops/table/apply.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

enum { TOGETHER = 4 };

typedef struct group {
    const aril__op *op[TOGETHER];
    int n;
} group;

/* Each op between two others, so that it is a step of a fused op. */
static void apply_group(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const group *g = ctx;
    for (int i = 0; i < g->n; i++) {
        const struct ew_attrs attrs = { { 0.5, 0.75, 1.25 } };
        aril_tensor *x[] = { aril_mul_scalar(in[0], 1.25), in[1], in[2] };
        aril_tensor *y = aril__apply1(g->op[i], g->op[i]->formula->arity, x, &attrs);
        out[i] = aril_sub(aril_mul_scalar(y, 0.7), in[3]);
    }
}

static bool is_wanted(const aril__op *op)
{
    const aril__formula *f = op->formula;
    if (!f || f->is_grad) return false;
    return f->rule == ARIL__EW_REAL || f->rule == ARIL__EW_NUM || f->rule == ARIL__EW_NUMX ||
           f->rule == ARIL__EW_FLT;
}

static void check_group(group *g, aril_list in)
{
    ARIL_SCOPE;
    aril_tensor *out[TOGETHER] = { NULL }, *want[TOGETHER] = { NULL };
    aril_program *p = aril_jit(apply_group, g, (aril_jit_opts){ .name = "formulas" });
    CHECK_INT(aril_program_run(p, in, out), ARIL_OK);
    apply_group(g, in.at, want);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    for (int i = 0; i < g->n; i++) {
        char *why = test_difference_in_value(out[i], want[i], 0, 0);
        CHECK_MSG(!why, "%s: %s", g->op[i]->name, why);
    }
    aril_program_free(p);
}

/* in[1] is broadcast, and the last sizes are odd: vectors and single elements. */
static void check_all(aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *in[4];
    for (int i = 0; i < 4; i++) {
        aril_generator *g = aril_generator_new((uint64_t)i + 1);
        aril_shape shape = i == 1 ? ARIL_SHAPE(1, 64) : ARIL_SHAPE(37, 64);
        aril_tensor *t = aril_randn_from(g, shape, ARIL_F64, test_device());
        in[i] = aril_cast(aril_add_scalar(aril_mul_scalar(aril_sigmoid(t), 0.7), 0.2), dtype);
        aril_generator_free(g);
    }
    group now = { .n = 0 };
    for (int k = 0; k < aril__n_ops && !test_failed(); k++) {
        if (!is_wanted(aril__ops[k])) continue;
        now.op[now.n++] = aril__ops[k];
        if (now.n < TOGETHER) continue;
        check_group(&now, (aril_list){ 4, in });
        now.n = 0;
    }
    if (now.n && !test_failed()) check_group(&now, (aril_list){ 4, in });
}

TEST(formulas_in_f32)
{
    check_all(ARIL_F32);
}

TEST(formulas_in_bf16)
{
    check_all(ARIL_BF16);
}

TEST(formulas_in_f64)
{
    check_all(ARIL_F64);
}
