/* Compiled functions: what is a view in a trace, and what a write reaches, is as in eager mode. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <string.h>

static aril_program *jit(aril_fn *fn, void *ctx)
{
    return aril_jit(fn, ctx, (aril_jit_opts){ .name = "test" });
}

/* ---- layouts ---- */

enum { DENSE, TRANSPOSED, COLUMN_GAPS, ROW_GAPS, TRANSPOSED_GAPS, LAYOUTS };
static const char *const layout_name[LAYOUTS] = { "dense", "transposed", "gaps between columns",
                                                  "gaps between rows", "transposed with gaps" };

static aril_tensor *numbers(int64_t rows, int64_t columns)
{
    aril_tensor *t = aril_arange(0, (double)(rows * columns), 1, ARIL_F32, test_device());
    return aril_copy(aril_reshape(t, ARIL_SHAPE(rows, columns)));
}

static aril_tensor *laid_out(int layout) /* [4,3] */
{
    switch (layout) {
    case TRANSPOSED: return aril_transpose(numbers(3, 4), 0, 1);
    case COLUMN_GAPS: return aril_slice(numbers(4, 6), 1, 0, ARIL_END, 2);
    case ROW_GAPS: return aril_slice(numbers(8, 3), 0, 0, ARIL_END, 2);
    case TRANSPOSED_GAPS: return aril_slice(aril_transpose(numbers(3, 8), 0, 1), 0, 0, ARIL_END, 2);
    default: return numbers(4, 3);
    }
}

/* ---- functions that write to what may be a view of their input ---- */

static void write_contiguous(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add_scalar_(aril_contiguous(in[0]), 100);
}

static void write_base(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_contiguous(in[0]);
    aril_add_scalar_(in[0], 100);
}

static void write_reshaped(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add_scalar_(aril_reshape(in[0], ARIL_SHAPE(-1)), 100);
}

static void write_flattened(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add_scalar_(aril_flatten(in[0], 0, -1), 100);
}

static void write_part(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tensor *whole = aril_mul_scalar(in[0], 2);
    out[0] = whole;
    aril_add_scalar_(aril_contiguous(aril_slice(whole, 1, 0, 2, 1)), 7);
    aril_mul_scalar_(aril_contiguous(aril_slice(whole, 0, 1, 3, 1)), 3);
}

/* The order of a sum of inputs in two orders decides whether its reshape is a view. */
static void write_sum(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tensor *sum = aril_add(aril_neg(in[0]), in[1]);
    aril_add_scalar_(aril_reshape(sum, ARIL_SHAPE(-1)), 100);
    out[0] = sum;
}

typedef struct aliasing {
    const char *name;
    aril_fn *fn;
} aliasing;
static const aliasing functions[] = {
    { "contiguous", write_contiguous }, { "a base of contiguous", write_base },
    { "reshape", write_reshaped },      { "flatten", write_flattened },
    { "contiguous parts", write_part }, { "reshape of a sum", write_sum },
};

static void check_call(const aliasing *a, aril_program *p, int first, int second)
{
    ARIL_SCOPE;
    aril_tensor *in[2] = { laid_out(first), laid_out(second) };
    aril_tensor *with[2] = { laid_out(first), laid_out(second) }, *want, *got;
    a->fn(NULL, in, &want);
    CHECK_MSG(aril_program_run(p, ARIL_LIST(with[0], with[1]), &got) == ARIL_OK, "%s: %s", a->name,
              aril_error());
    char *why = test_difference_in_value(got, want, 0, 0);
    CHECK_MSG(!why, "%s, %s and %s: %s", a->name, layout_name[first], layout_name[second], why);
    why = test_difference_in_value(with[0], in[0], 0, 0);
    CHECK_MSG(!why, "%s, the input, %s: %s", a->name, layout_name[first], why);
}

TEST(a_write_reaches_an_input_exactly_as_in_eager_mode)
{
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        aril_program *p = jit(functions[k].fn, NULL);
        for (int first = 0; first < LAYOUTS; first++)
            for (int second = 0; second < LAYOUTS; second++)
                check_call(&functions[k], p, first, second);
        aril_program_free(p);
    }
}

TEST(a_program_for_unknown_sizes_sees_the_gaps_of_an_input)
{
    ARIL_SCOPE;
    aril_shape any = ARIL_SHAPE(-2, -3);
    aril_program *p =
        aril_jit(write_contiguous, NULL, (aril_jit_opts){ .sizes = &any, .n_sizes = 1 });
    for (int64_t n = 4; n < 7; n++)
        for (int gaps = 0; gaps < 2; gaps++) {
            aril_tensor *x = numbers(n, 6), *y = numbers(n, 6), *got, *want;
            aril_tensor *in = gaps ? aril_slice(x, 1, 0, ARIL_END, 2) : x;
            write_contiguous(NULL, &in, &want);
            CHECK_INT(aril_program_run(p, ARIL_LIST(gaps ? aril_slice(y, 1, 0, ARIL_END, 2) : y),
                                       &got),
                      ARIL_OK);
            CHECK_MSG(aril_ok(), "%s", aril_error());
            CHECK(aril_equal(got, want));
            CHECK(aril_equal(x, y));
        }
    CHECK_INT(aril_program_traces(p), 2);
    aril_program_free(p);
}

/* ---- saved results ---- */

static aril_tensor *same(aril_tensor *x)
{
    return x;
}
static aril_tensor *selected(aril_tensor *x)
{
    return aril_select(x, 0, 0);
}
static aril_tensor *transposed(aril_tensor *x)
{
    return aril_transpose(x, 0, 1);
}
static aril_tensor *part_of_row(aril_tensor *x)
{
    return aril_slice(aril_select(x, 0, 1), 0, 0, 2, 1);
}
static aril_tensor *flat(aril_tensor *x)
{
    return aril_reshape(x, ARIL_SHAPE(-1));
}
typedef aril_tensor *unary(aril_tensor *x);
static unary *const views[] = { same, selected, transposed, part_of_row, flat };
static unary *const saving[] = { aril_tanh_, aril_sigmoid_, aril_exp_,   aril_relu_,
                                 aril_sqrt_, aril_rsqrt_,   aril_expm1_, aril_reciprocal_ };

typedef struct saved_call {
    unary *view, *op;
    aril_tensor *w;
} saved_call;

static void change_view(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const saved_call *q = ctx;
    aril_tensor *y = aril_mul(in[0], q->w);
    q->op(q->view(y));
    out[0] = aril_copy(y);
    aril_gradients(aril_sum(aril_mul(y, y), ARIL_ALL), ARIL_LIST(q->w), out + 1,
                   (aril_grad_opts){ 0 });
}

TEST(in_place_operations_that_save_their_result_have_gradients_on_views)
{
    ARIL_SCOPE;
    saved_call q = { .w = aril_parameter(aril_full(ARIL_SHAPE(), 2, ARIL_F32, test_device())) };
    aril_tensor *x = aril_full(ARIL_SHAPE(2, 3), 0.3, ARIL_F32, test_device());
    for (size_t v = 0; v < sizeof views / sizeof *views; v++)
        for (size_t k = 0; k < sizeof saving / sizeof *saving; k++) {
            ARIL_SCOPE;
            aril_tensor *got[2], *want[2];
            q.view = views[v];
            q.op = saving[k];
            aril_program *p = jit(change_view, &q);
            change_view(&q, &x, want);
            CHECK_MSG(aril_program_run(p, ARIL_LIST(x), got) == ARIL_OK, "view %zu, op %zu: %s", v,
                      k, aril_error());
            char *why = test_difference_in_value(got[0], want[0], 0, 0);
            CHECK_MSG(!why, "view %zu, op %zu: %s", v, k, why);
            why = test_difference_in_value(got[1], want[1], 1e-6, 1e-6);
            CHECK_MSG(!why, "the gradient, view %zu, op %zu: %s", v, k, why);
            aril_program_free(p);
        }
    aril_release(q.w);
}

/* A result that backward needs, changed by another of its views. */
static void change_saved(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *y = aril_tanh(aril_mul(in[0], (aril_tensor *)ctx)), *d = aril_detach(y);
    aril_add_scalar_(aril_select(d, 0, 0), 1);
    aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(ctx), out, (aril_grad_opts){ 0 });
}

TEST(a_saved_result_that_is_changed_is_an_error_in_a_trace_too)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_full(ARIL_SHAPE(), 2, ARIL_F32, test_device()));
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, test_device()), *out;
    change_saved(w, &x, &out);
    CHECK_MSG(strstr(aril_error(), "was modified in place after it was saved"), "%s", aril_error());
    aril_clear_error();
    aril_program *p = jit(change_saved, w);
    CHECK(aril_program_run(p, ARIL_LIST(x), &out) < 0);
    CHECK_MSG(strstr(aril_error(), "was modified in place after it was saved"), "%s", aril_error());
    aril_clear_error();
    aril_program_free(p);
    aril_release(w);
}

/* ---- parameters as results ---- */

static void give_input(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = in[0];
}

static void checkpoint_parameter(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *same_w;
    aril_checkpoint(give_input, NULL, ARIL_LIST(ctx), 1, &same_w);
    out[0] = aril_mul(aril_mul(same_w, same_w), in[0]);
    aril_gradients(aril_sum(out[0], ARIL_ALL), ARIL_LIST(ctx), out + 1, (aril_grad_opts){ 0 });
}

static void pass_on(aril_ctx *c)
{
    aril_ctx_out(c, 0, aril_ctx_in(c, 0));
}

static void pass_back(aril_ctx *c)
{
    aril_ctx_grad_in(c, 0, aril_mul_scalar(aril_ctx_grad_out(c, 0), 3));
}

static void function_of_parameter(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    static const aril_function triple = {
        .name = "triple", .forward = pass_on, .backward = pass_back, .inputs = 1, .outputs = 1
    };
    out[0] = aril_mul(aril_call(&triple, ARIL_LIST(ctx)), in[0]);
    aril_gradients(aril_sum(out[0], ARIL_ALL), ARIL_LIST(ctx), out + 1, (aril_grad_opts){ 0 });
}

TEST(functions_may_return_a_parameter_that_they_get)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_full(ARIL_SHAPE(2, 3), 2, ARIL_F32, test_device()));
    aril_tensor *x = aril_full(ARIL_SHAPE(2, 3), 5, ARIL_F32, test_device()), *got[2], *want[2];
    aril_fn *const fn[] = { checkpoint_parameter, function_of_parameter };
    for (int k = 0; k < 2; k++) {
        aril_program *p = jit(fn[k], w);
        fn[k](w, &x, want);
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), got), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        CHECK(aril_equal(got[0], want[0]));
        CHECK(aril_equal(got[1], want[1]));
        aril_program_free(p);
    }
    aril_release(w);
}

/* ---- arguments of control flow ---- */

static void squared(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul(in[0], in[0]);
}

static void doubled(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul_scalar(in[0], 2);
}

static void change_argument(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *y = aril_mul(in[0], (aril_tensor *)ctx),
                *go = aril_gt(aril_sum(y, ARIL_ALL), aril_scalar(0));
    aril_tensor *z, *part = aril_select(y, 0, 0);
    aril_cond(go, doubled, doubled, NULL, ARIL_LIST(y), 1, &z);
    aril_add_scalar_(part, 1); /* the condition's argument, by a view of it */
    aril_mul_scalar_(y, 3);
    aril_cond(go, squared, doubled, NULL, ARIL_LIST(y), 1, &out[0]);
    out[0] = aril_add(out[0], z);
    aril_gradients(aril_sum(out[0], ARIL_ALL), ARIL_LIST(ctx), out + 1, (aril_grad_opts){ 0 });
}

TEST(an_argument_of_a_condition_may_be_changed_afterwards)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_full(ARIL_SHAPE(), 2, ARIL_F32, test_device()));
    aril_program *p = jit(change_argument, w);
    for (int i = 0; i < 2; i++) {
        aril_tensor *got[2], *want[2];
        aril_tensor *x = aril_full(ARIL_SHAPE(2, 3), i ? -1.5 : 0.5, ARIL_F32, test_device());
        change_argument(w, &x, want);
        CHECK_MSG(aril_program_run(p, ARIL_LIST(x), got) == ARIL_OK, "%s", aril_error());
        CHECK(aril_equal(got[0], want[0]));
        char *why = test_difference_in_value(got[1], want[1], 1e-6, 1e-6);
        CHECK_MSG(!why, "the gradient: %s", why);
    }
    aril_program_free(p);
    aril_release(w);
}
