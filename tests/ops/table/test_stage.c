/* Operands as a row's plan asks for them: dtype and memory order of inputs and results, results
 * that already have memory, the workspace. */
#include "support/ops.h"
#include "support/test.h"

#include <aril/aril.h>

#include "core/tensor.h"
#include "ops/shape/concat.h"
#include "ops/table/apply.h"
#include "ops/table/rows.h"

#include <string.h>

/* A row for cat, which has none. The plan is set by each test; the reference computes, and notes
 * what it got. */
static aril_plan planned;
static struct seen {
    int runs;
    aril_dtype in, out;
    bool in_last, out_last, out_samples, second_heads, out_heads, overlaid;
    void *workspace;
} seen;

static const char *prepare(const aril_run *r, aril_plan *plan)
{
    (void)r;
    *plan = planned;
    return NULL;
}

/* [N,C,H,W] stored as N, H, C, W. */
static bool has_heads_inner(const aril_tensor *t)
{
    return t->stride[3] == 1 && t->stride[1] == t->dim[3] && t->stride[2] == t->dim[1] * t->dim[3];
}

static aril_status run(aril_run *r)
{
    seen = (struct seen){ .runs = seen.runs + 1,
                          .in = (aril_dtype)r->in[0]->dtype,
                          .out = (aril_dtype)r->out[0]->dtype,
                          .in_last = aril_is_channels_last(r->in[0]),
                          .out_last = aril_is_channels_last(r->out[0]),
                          .out_samples = aril__is_samples_last(r->out[0]),
                          .second_heads = r->n_in > 1 && has_heads_inner(r->in[1]),
                          .out_heads = has_heads_inner(r->out[0]),
                          .overlaid = r->in[0]->storage == r->out[0]->storage,
                          .workspace = r->workspace };
    if (r->workspace) memset(r->workspace, 0xee, planned.workspace);
    return aril__op_cat.ref(r);
}

static void set_up(aril_plan plan)
{
    static bool registered;
    static const aril_row row = { .op = "cat",
                                  .name = "test_cat",
                                  .dtypes = DT_ALL,
                                  .strided = true,
                                  .prepare = prepare,
                                  .run = run };
    if (!registered) aril__rows_register(ARIL__CPU, &row, 1);
    registered = true;
    planned = plan;
    seen = (struct seen){ 0 };
}

/* Sizes differ from test to test, so that no cached plan is used. */
static aril_tensor *image(int64_t width)
{
    return aril_reshape(aril_arange(0, (double)(2 * 3 * 4 * width), 1, ARIL_F32, aril_cpu()),
                        ARIL_SHAPE(2, 3, 4, width));
}

static aril_tensor *twice(aril_tensor *x)
{
    return aril_cat(ARIL_LIST(x, x), 0);
}

static bool is_twice(aril_tensor *y, aril_tensor *x)
{
    return aril_equal(aril_narrow(y, 0, 0, 2), x) && aril_equal(aril_narrow(y, 0, 2, 2), x);
}

TEST(rows_get_the_orders_they_ask_for_and_give)
{
    aril_plan plan = { .workspace = 100 };
    plan.in[0].order = ARIL_ORDER_CHANNELS_LAST;
    plan.out[0].order = ARIL_ORDER_SAMPLES_LAST;
    set_up(plan);
    aril_tensor *x = image(5), *y = twice(x);
    CHECK_INT(seen.runs, 1);
    CHECK(seen.in_last && seen.out_samples && seen.workspace);
    CHECK_MSG(aril__is_samples_last(y), "the result has another order");
    CHECK(aril__is_dense(x) && is_twice(y, x));
}

TEST(results_have_their_heads_inside_where_the_plan_says_so)
{
    aril_plan plan = { 0 };
    plan.in[1].order = plan.out[0].order = ARIL_ORDER_HEADS_INNER;
    set_up(plan);
    aril_tensor *x = image(9), *y = twice(x);
    CHECK_INT(seen.runs, 1);
    CHECK(seen.second_heads && seen.out_heads);
    CHECK(aril__is_dense(aril_transpose(y, 1, 2)) && aril__is_dense(x) && is_twice(y, x));
}

TEST(results_in_memory_keep_their_order)
{
    aril_plan plan = { 0 };
    plan.out[0].order = ARIL_ORDER_CHANNELS_LAST;
    set_up(plan);
    aril_tensor *x = image(6);
    aril_tensor *dest = aril_zeros(ARIL_SHAPE(4, 3, 4, 6), ARIL_F32, aril_cpu());
    aril_tensor *in[] = { x, x };
    struct cat_attrs attrs = { 0 };
    CHECK(aril__apply_to(dest, &aril__op_cat, 2, in, &attrs) == dest);
    CHECK_INT(seen.runs, 1);
    CHECK(seen.out_last);
    CHECK(aril__is_dense(dest) && is_twice(dest, x));
}

TEST(dtypes_are_converted_and_back)
{
    aril_plan plan = { 0 };
    plan.in[0].dtype = plan.in[1].dtype = plan.out[0].dtype = 1 + ARIL_F64;
    set_up(plan);
    aril_tensor *x = image(7), *y = twice(x);
    CHECK_INT(seen.in, ARIL_F64);
    CHECK_INT(seen.out, ARIL_F64);
    CHECK_INT(aril_dtype_of(y), ARIL_F32);
    CHECK(is_twice(y, x));
}

TEST(no_result_in_the_memory_of_an_input_unless_the_plan_allows_it)
{
    for (int allowed = 0; allowed < 2; allowed++) {
        set_up((aril_plan){ .overlay = (uint32_t)allowed });
        aril_tensor *x = image(8 + allowed), *was = aril_copy(x);
        struct cat_attrs attrs = { 0 };
        CHECK(aril__apply_to(x, &aril__op_cat, 1, &x, &attrs) == x);
        CHECK_INT(seen.overlaid, allowed);
        if (!allowed) CHECK(aril_equal(x, was));
    }
}
