/* Compiled functions that write to tensors in any layout: nothing around these changes. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/layouts.h"
#include "support/test.h"

#include <string.h>

/* ---- writes ---- */

static aril_tensor *integers(aril_shape shape, const int64_t *index)
{
    return aril_from(index, shape, ARIL_I64, test_device());
}

/* What writes to x, [4,3], with values of v, [4,3]; false: there is no such number. */
static bool change(int kind, aril_tensor *x, aril_tensor *v)
{
    aril_tensor *row = integers(ARIL_SHAPE(2), (const int64_t[]){ 2, 0 });
    aril_tensor *at = integers(ARIL_SHAPE(2, 3), (const int64_t[]){ 1, 0, 2, 0, 1, 1 });
    aril_tensor *top = aril_slice(v, 0, 0, 2, 1), *turned = aril_transpose(v, 0, 1);
    aril_tensor *total = aril_sum(v, ARIL_KEEPDIM(0)), *mask = aril_gt_scalar(v, 0);
    switch (kind) {
    case 0: aril_mul_scalar_(x, 1.5); break;
    case 1: aril_tanh_(x); break;
    case 2: aril_add_(x, v); break;
    case 3: aril_sub_(x, total); break;
    case 4: aril_copy_(x, v); break;
    case 5: aril_copy_(x, total); break;
    case 6: aril_clamp_(aril_copy_(x, total), -0.6, 0.8); break;
    case 7: aril_relu_(aril_copy_(x, aril_reshape(turned, ARIL_SHAPE(4, 3)))); break;
    case 8: aril_copy_(x, aril_softmax(x, 0)); break;
    case 9: aril_copy_(x, aril_matmul(x, aril_matmul(turned, v))); break;
    case 10: aril_add_(x, aril_cumsum(v, 1)); break;
    case 11: aril_fill_(x, 3); break;
    case 12: aril_zero_(x); break;
    case 13: aril_tril_(x, 0); break;
    case 14: aril_masked_fill_scalar_(x, mask, 5); break;
    case 15: aril_masked_scatter_(x, mask, v); break;
    case 16: aril_scatter_(x, at, top, 0); break;
    case 17: aril_relu_(aril_scatter_add_(x, at, top, 0)); break;
    case 18: aril_index_add_(x, row, top, 0); break;
    case 19: aril_neg_(aril_index_copy_(x, row, top, 0)); break;
    case 20: aril_index_fill_scalar_(x, row, 4, 0); break;
    case 21: aril_uniform_(x, -1, 1); break;
    case 22: aril_exp_(aril_slice(x, 0, 1, 3, 1)); break;
    case 23: aril_copy_(aril_select(x, 1, 1), aril_select(v, 1, 0)); break;
    case 24: aril_mul_(aril_transpose(x, 0, 1), turned); break;
    case 25: aril_tanh_(aril_flip(x, ARIL_AXES(0))); break;
    case 26: aril_add_(aril_unsqueeze(x, 1), aril_unsqueeze(v, 1)); break;
    case 27: aril_pow_(aril_abs_(x), v); break;
    case 28: aril_add_scalar_(aril_diagonal(x, 0, 0, 1), 2); break;
    case 29: aril_addcmul_(x, v, v, 0.5); break;
    case 30: aril_lerp_(x, v, aril_sigmoid(v)); break;
    default: return false;
    }
    return true;
}

/* ---- what is read before and after ---- */

typedef struct write {
    int kind, way;
    aril_tensor *state; /* written; NULL: input 0 */
} write;

enum { AT_ONCE, AFTER_A_COPY, TWICE, VIEWED, WAYS };

static void run_write(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const write *w = ctx;
    aril_tensor *x = w->state ? w->state : in[0], *v = in[1];
    if (w->way == AFTER_A_COPY) aril_copy_(x, aril_sum(x, ARIL_KEEPDIM(0)));
    if (w->way == TWICE) change(w->kind, x, aril_neg(v));
    aril_tensor *view = w->way == VIEWED ? aril_flip(x, ARIL_AXES(0)) : x;
    out[0] = aril_exp(view);
    change(w->kind, x, v);
    out[1] = aril_gt_scalar(view, 0.3);
    out[2] = aril_sum(x, ARIL_AXES(1));
}

static aril_tensor *numbers(int layout, aril_dtype dtype, bool other)
{
    static const double at[2][12] = {
        { 0.3, -1.2, 0.7, 2.1, -0.4, 0.9, 1.6, -2.2, 0.1, -0.8, 1.1, 0.5 },
        { -0.7, 0.4, 1.9, -1.1, 0.2, 0.6, 0.8, 1.3, -0.9, 2.4, -0.2, 1.7 },
    };
    aril_tensor *t = aril_from(at[other], ARIL_SHAPE(4, 3), ARIL_F64, aril_cpu());
    return test_laid_out(aril_to(aril_cast(t, dtype), test_device()), layout);
}

static void compare(const write *w, int layout, const char *what, aril_tensor *got,
                    aril_tensor *want)
{
    char *why = test_difference(got, want, 1e-5, 1e-6);
    CHECK_MSG(!why, "write %d, way %d, %s, %s: %s", w->kind, w->way, test_layout_names[layout],
              what, why);
}

/* Two runs, since the second may replay what the first prepared. */
static void check_write(write *w, int layout, aril_dtype dtype, bool state)
{
    ARIL_SCOPE;
    aril_tensor *mine = numbers(layout, dtype, false), *theirs = numbers(layout, dtype, false);
    aril_tensor *v = numbers(TEST_LAYOUTS - 1 - layout, dtype, true), *got[3], *want[3];
    write eager = { w->kind, w->way, state ? theirs : NULL };
    w->state = state ? mine : NULL;
    aril_program *p = aril_jit(run_write, w, (aril_jit_opts){ 0 });
    for (int run = 0; run < 2; run++) {
        aril_seed(3);
        run_write(&eager, (aril_tensor *[]){ theirs, v }, want);
        aril_seed(3);
        CHECK_MSG(aril_program_run(p, ARIL_LIST(mine, v), got) == ARIL_OK, "write %d: %s", w->kind,
                  aril_error());
        for (int i = 0; i < 3; i++) compare(w, layout, "a result", got[i], want[i]);
        compare(w, layout, "the memory", test_memory_of(mine), test_memory_of(theirs));
    }
    aril_program_free(p);
}

static void check_writes(bool state)
{
    for (write w = { 0 }; change(w.kind, numbers(0, ARIL_F32, false), numbers(0, ARIL_F32, true));
         w.kind++)
        for (w.way = 0; w.way < WAYS; w.way++)
            for (int layout = 0; layout < TEST_LAYOUTS; layout++) {
                check_write(&w, layout, ARIL_F32, state);
                check_write(&w, layout, ARIL_F64, state);
            }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(writes_to_inputs_in_any_layout_stay_within_them)
{
    check_writes(false);
}

TEST(writes_to_states_in_any_layout_stay_within_them)
{
    check_writes(true);
}

/* ---- gradients ---- */

static void add_gradient(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *w = ctx;
    aril_backward(aril_sum(aril_mul(aril_tanh(w), in[0]), ARIL_ALL));
    out[0] = aril_copy(aril_grad(w));
    aril_tanh_(aril_grad(w));
}

TEST(gradients_in_any_layout_are_added_to)
{
    for (int layout = 0; layout < TEST_LAYOUTS; layout++) {
        ARIL_SCOPE;
        aril_tensor *x = numbers(layout, ARIL_F32, true), *got, *want, *w[2];
        for (int k = 0; k < 2; k++) {
            w[k] = numbers(layout, ARIL_F32, false);
            aril_set_requires_grad(w[k], true);
            aril_set_grad(w[k], numbers((layout + 2) % TEST_LAYOUTS, ARIL_F32, true));
        }
        aril_program *p = aril_jit(add_gradient, w[0], (aril_jit_opts){ 0 });
        for (int run = 0; run < 3; run++) {
            add_gradient(w[1], &x, &want);
            CHECK_MSG(aril_program_run(p, ARIL_LIST(x), &got) == ARIL_OK, "%s", aril_error());
            compare(&(write){ 0 }, layout, "the gradient", aril_grad(w[0]), aril_grad(w[1]));
            compare(&(write){ 0 }, layout, "the result", got, want);
        }
        aril_program_free(p);
    }
}

/* ---- expanded tensors ---- */

static void write_expanded(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tanh_(aril_copy_(in[0], aril_sum(in[0], ARIL_KEEPDIM(1))));
    out[0] = aril_exp(in[0]);
}

TEST(an_expanded_input_is_not_written_to_compiled_as_in_eager_mode)
{
    ARIL_SCOPE;
    aril_tensor *row = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()), *y;
    aril_tensor *x = aril_expand(row, ARIL_SHAPE(4, 3));
    write_expanded(NULL, &x, &y);
    char message[256];
    snprintf(message, sizeof message, "%.100s", aril_error());
    CHECK(!aril_ok());
    aril_clear_error();
    aril_program *p = aril_jit(write_expanded, NULL, (aril_jit_opts){ 0 });
    CHECK(aril_program_run(p, ARIL_LIST(x), &y) < 0);
    CHECK_MSG(strncmp(aril_error(), message, 40) == 0, "%s and %s", aril_error(), message);
    aril_clear_error();
    CHECK(aril_equal(row, aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device())));
    aril_program_free(p);
}

/* ---- values known before a run ---- */

/* In the trace, the transposed state is contiguous; the value that is folded is not. */
static void reshape_filled(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)in;
    aril_tensor *x = aril_transpose(aril_fill_(ctx, 2), 0, 1);
    out[0] = aril_reshape(x, ARIL_SHAPE(-1));
    out[1] = aril_flatten(x, 0, 1);
    out[2] = aril_sum(aril_reshape(x, ARIL_SHAPE(2, 6)), ARIL_AXES(0));
}

TEST(a_reshape_of_a_value_that_is_folded_may_copy)
{
    ARIL_SCOPE;
    aril_tensor *x = numbers(TEST_TRANSPOSED, ARIL_F32, false), *got[3], *want[3];
    aril_program *p = aril_jit(reshape_filled, x, (aril_jit_opts){ 0 });
    CHECK_MSG(aril_program_run(p, (aril_list){ 0 }, got) == ARIL_OK, "%s", aril_error());
    reshape_filled(x, NULL, want);
    for (int i = 0; i < 3; i++) CHECK(aril_equal(got[i], want[i]));
    aril_program_free(p);
}
