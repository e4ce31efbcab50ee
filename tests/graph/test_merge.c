/* The pass `merge`: golden texts before and after, and results within rounding of single ops. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

enum { INPUTS = 4, OUTPUTS = 3, TEXT = 1 << 15 };

typedef struct loop {
    aril_fn *fn;
    int n_in, n_out;
    aril_shape in[INPUTS];
    const char *before, *after; /* NULL: not compared */
    int products;               /* nodes of the last text that are matmul, linear or outer_sum */
} loop;

#define FN(name) static void name(void *ctx, aril_tensor *const *in, aril_tensor **out)

/* The nodes of a program, without source locations. */
static void print_nodes(const aril_program *p, char *text)
{
    char line[4096];
    FILE *f = tmpfile();
    aril_program_print(p, f);
    rewind(f);
    text[0] = '\0';
    while (fgets(line, sizeof line, f)) {
        char *comment = strstr(line, "  #");
        if (comment) memcpy(comment, "\n", 2);
        if (line[0] == ' ') strncat(text, line + 2, TEXT - strlen(text) - 1);
    }
    fclose(f);
}

static int count(const char *text, const char *op)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, op)) != NULL; at++) n++;
    return n;
}

static void run(const loop *l, const char *passes, aril_tensor *const *in, aril_tensor **out,
                char *text)
{
    setenv("ARIL_PASSES", passes, 1);
    aril_program *program = aril_jit(l->fn, NULL, (aril_jit_opts){ 0 });
    aril_program_run(program, (aril_list){ l->n_in, in }, out);
    unsetenv("ARIL_PASSES");
    print_nodes(program, text);
    aril_program_free(program);
}

static void check_in(const loop *l, aril_dtype dtype)
{
    ARIL_SCOPE;
    static char before[TEXT], after[TEXT];
    aril_tensor *in[INPUTS], *want[OUTPUTS], *got[OUTPUTS], *all[OUTPUTS];
    for (int i = 0; i < l->n_in; i++)
        in[i] = aril_cast(aril_add_scalar(aril_rand(l->in[i], ARIL_F32, aril_cpu()), -0.5), dtype);
    run(l, "-merge", in, all, after);
    run(l, "none", in, want, before);
    run(l, "merge", in, got, after);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    if (l->before && dtype == ARIL_F32) CHECK_STR(before, l->before);
    if (l->after && dtype == ARIL_F32) CHECK_STR(after, l->after);
    int products =
        count(after, "= matmul(") + count(after, "= linear(") + count(after, "= outer_sum(");
    CHECK_MSG(products == l->products, "%d products:\n%s", products, after);
    double tolerance = dtype == ARIL_F64 ? 1e-12 : 1e-5;
    for (int i = 0; i < l->n_out; i++) {
        char *why = test_difference(got[i], want[i], tolerance, tolerance);
        CHECK_MSG(!why, "result %d: %s", i, why);
        why = test_difference(all[i], want[i], tolerance, tolerance);
        CHECK_MSG(!why, "result %d without the pass: %s", i, why);
    }
}

static void check(const loop *l)
{
    aril_seed(11);
    check_in(l, ARIL_F32);
    if (!test_failed()) check_in(l, ARIL_F64);
}

static aril_tensor *parameter(aril_tensor *x)
{
    aril_tensor *w = aril_detach(x);
    aril_set_requires_grad(w, true);
    return w;
}

/* ---- weight gradients ---- */

/* x [4,2,4], w [4,4]: h = tanh(x[t] + h w). */
FN(recurrent)
{
    (void)ctx;
    aril_tensor *w = parameter(in[1]), *h = aril_select(in[0], 0, 0);
    for (int t = 1; t < 4; t++) h = aril_tanh(aril_add(aril_select(in[0], 0, t), aril_mm(h, w)));
    aril_gradients(aril_sum(h, ARIL_ALL), ARIL_LIST(w), out, (aril_grad_opts){ 0 });
}

TEST(weight_gradients_of_steps_are_one_product)
{
    static const loop l = { recurrent,
                            2,
                            1,
                            { { 3, { 4, 2, 4 } }, { 2, { 4, 4 } } },
                            "%3: f32[2,4] = select(%1)\n"
                            "%4: f32[2,4] = matmul(%3, %2)\n"
                            "%5: f32[2,4] = select(%1, index=1)\n"
                            "%6: f32[2,4] = add(%5, %4)\n"
                            "%7: f32[2,4] = tanh(%6)\n"
                            "%8: f32[2,4] = matmul(%7, %2)\n"
                            "%9: f32[2,4] = select(%1, index=2)\n"
                            "%10: f32[2,4] = add(%9, %8)\n"
                            "%11: f32[2,4] = tanh(%10)\n"
                            "%12: f32[2,4] = matmul(%11, %2)\n"
                            "%13: f32[2,4] = select(%1, index=3)\n"
                            "%14: f32[2,4] = add(%13, %12)\n"
                            "%15: f32[2,4] = tanh(%14)\n"
                            "%16: f32[] = sum(%15, axes=[0,1])\n"
                            "%17: f32[] = full_like(%16, value=1, integer=[1,1])\n"
                            "%18: f32[1,1] = unsqueeze(%17, axes=[0,1])\n"
                            "%19: f32[2,4] = expand_like(%18, %15)\n"
                            "%20: f32[2,4] = tanh_grad(%19, -, %15)\n"
                            "%21: f32[4,4] = permute(%2, axes=[1,0])\n"
                            "%22: f32[2,4] = matmul(%20, %21)\n"
                            "%23: f32[4,2] = permute(%11, axes=[1,0])\n"
                            "%24: f32[4,4] = matmul(%23, %20)\n"
                            "%25: f32[2,4] = tanh_grad(%22, -, %11)\n"
                            "%26: f32[4,4] = permute(%2, axes=[1,0])\n"
                            "%27: f32[2,4] = matmul(%25, %26)\n"
                            "%28: f32[4,2] = permute(%7, axes=[1,0])\n"
                            "%29: f32[4,4] = matmul(%28, %25)\n"
                            "%30: f32[4,4] = add(%24, %29)\n"
                            "%31: f32[2,4] = tanh_grad(%27, -, %7)\n"
                            "%32: f32[4,2] = permute(%3, axes=[1,0])\n"
                            "%33: f32[4,4] = matmul(%32, %31)\n"
                            "%34: f32[4,4] = add(%30, %33)\n"
                            "return %34\n",
                            "%3: f32[2,4] = select(%1)\n"
                            "%4: f32[2,4] = matmul(%3, %2)\n"
                            "%5: f32[2,4] = select(%1, index=1)\n"
                            "%6: f32[2,4] = add(%5, %4)\n"
                            "%7: f32[2,4] = tanh(%6)\n"
                            "%8: f32[2,4] = matmul(%7, %2)\n"
                            "%9: f32[2,4] = select(%1, index=2)\n"
                            "%10: f32[2,4] = add(%9, %8)\n"
                            "%11: f32[2,4] = tanh(%10)\n"
                            "%12: f32[2,4] = matmul(%11, %2)\n"
                            "%13: f32[2,4] = select(%1, index=3)\n"
                            "%14: f32[2,4] = add(%13, %12)\n"
                            "%15: f32[2,4] = tanh(%14)\n"
                            "%16: f32[] = sum(%15, axes=[0,1])\n"
                            "%17: f32[] = full_like(%16, value=1, integer=[1,1])\n"
                            "%18: f32[1,1] = unsqueeze(%17, axes=[0,1])\n"
                            "%19: f32[2,4] = expand_like(%18, %15)\n"
                            "%20: f32[2,4] = tanh_grad(%19, -, %15)\n"
                            "%21: f32[4,4] = permute(%2, axes=[1,0])\n"
                            "%22: f32[2,4] = matmul(%20, %21)\n"
                            "%25: f32[2,4] = tanh_grad(%22, -, %11)\n"
                            "%26: f32[4,4] = permute(%2, axes=[1,0])\n"
                            "%27: f32[2,4] = matmul(%25, %26)\n"
                            "%31: f32[2,4] = tanh_grad(%27, -, %7)\n"
                            "%35: f32[1,2,4] = unsqueeze(%11, axes=[0])\n"
                            "%36: f32[1,2,4] = unsqueeze(%7, axes=[0])\n"
                            "%37: f32[1,2,4] = unsqueeze(%3, axes=[0])\n"
                            "%38: f32[3,2,4] = cat(%35, %36, %37)\n"
                            "%39: f32[1,2,4] = unsqueeze(%20, axes=[0])\n"
                            "%40: f32[1,2,4] = unsqueeze(%25, axes=[0])\n"
                            "%41: f32[1,2,4] = unsqueeze(%31, axes=[0])\n"
                            "%42: f32[3,2,4] = cat(%39, %40, %41)\n"
                            "%43: f32[4,4] = outer_sum(%38, %42)\n"
                            "return %43\n",
                            6 };
    check(&l);
}

/* ---- input projections ---- */

/* x [2,5,3] with the time in the middle, as many data sets have it; w [4,3], b [4], u [4,4]. */
FN(cell)
{
    (void)ctx;
    aril_tensor *w = parameter(in[1]), *b = parameter(in[2]), *u = parameter(in[3]), *h = NULL;
    for (int t = 0; t < 5; t++) {
        aril_tensor *step = aril_linear(aril_select(in[0], 1, t), w, b);
        h = aril_tanh(h ? aril_add(step, aril_linear(h, u, NULL)) : step);
    }
    aril_gradients(aril_sum(h, ARIL_ALL), ARIL_LIST(w, b, u), out, (aril_grad_opts){ 0 });
}

/* All inputs by one product, 4 steps, 4 steps back, and one product for each weight's gradient. */
TEST(products_of_all_inputs_are_one)
{
    static const loop l = { cell,
                            4,
                            3,
                            { { 3, { 2, 5, 3 } }, { 2, { 4, 3 } }, { 1, { 4 } }, { 2, { 4, 4 } } },
                            NULL,
                            NULL,
                            1 + 4 + 4 + 2 };
    check(&l);
}

/* Parts of the sequence, also from its end; another weight is another group. */
FN(parts)
{
    (void)ctx;
    aril_tensor *y = aril_linear(aril_select(in[0], 0, 2), in[1], NULL);
    y = aril_mul(y, aril_linear(aril_select(in[0], 0, 1), in[1], NULL));
    y = aril_mul(y, aril_linear(aril_select(in[0], 0, -1), in[1], NULL));
    out[0] = aril_mul(y, aril_linear(aril_select(in[0], 0, 0), in[2], NULL));
}

TEST(a_product_of_some_parts_is_one_of_a_slice)
{
    static const loop l = { parts,
                            3,
                            1,
                            { { 3, { 4, 2, 3 } }, { 2, { 4, 3 } }, { 2, { 4, 3 } } },
                            "%4: f32[2,3] = select(%1, index=2)\n"
                            "%5: f32[2,4] = linear(%4, %2, -)\n"
                            "%6: f32[2,3] = select(%1, index=1)\n"
                            "%7: f32[2,4] = linear(%6, %2, -)\n"
                            "%8: f32[2,4] = mul(%5, %7)\n"
                            "%9: f32[2,3] = select(%1, index=-1)\n"
                            "%10: f32[2,4] = linear(%9, %2, -)\n"
                            "%11: f32[2,4] = mul(%8, %10)\n"
                            "%12: f32[2,3] = select(%1)\n"
                            "%13: f32[2,4] = linear(%12, %3, -)\n"
                            "%14: f32[2,4] = mul(%11, %13)\n"
                            "return %14\n",
                            "%15: f32[3,2,3] = slice(%1, start=1, stop=4)\n"
                            "%16: f32[3,2,4] = linear(%15, %2, -)\n"
                            "%17: f32[2,4] = select(%16, index=1)\n"
                            "%18: f32[2,4] = select(%16)\n"
                            "%8: f32[2,4] = mul(%17, %18)\n"
                            "%19: f32[2,4] = select(%16, index=2)\n"
                            "%11: f32[2,4] = mul(%8, %19)\n"
                            "%12: f32[2,3] = select(%1)\n"
                            "%13: f32[2,4] = linear(%12, %3, -)\n"
                            "%14: f32[2,4] = mul(%11, %13)\n"
                            "return %14\n",
                            2 };
    check(&l);
}

/* Slices of two rows, in any order. */
FN(slices)
{
    (void)ctx;
    aril_tensor *w = parameter(in[1]), *h = NULL;
    for (int t = 2; t >= 0; t--) {
        aril_tensor *y = aril_linear(aril_narrow(in[0], 0, 1 + 2 * t, 2), w, NULL);
        h = aril_tanh(h ? aril_add(h, y) : y);
    }
    out[0] = h;
    aril_gradients(aril_sum(h, ARIL_ALL), ARIL_LIST(w), out + 1, (aril_grad_opts){ 0 });
}

TEST(products_of_slices_are_one)
{
    static const loop l = { slices, 2, 2, { { 2, { 7, 3 } }, { 2, { 4, 3 } } }, NULL, NULL, 2 };
    check(&l);
}

/* Parts with gaps between them stay single products. */
FN(gaps)
{
    (void)ctx;
    out[0] = aril_mul(aril_linear(aril_select(in[0], 0, 0), in[1], NULL),
                      aril_linear(aril_select(in[0], 0, 2), in[1], NULL));
}

TEST(parts_with_gaps_stay_apart)
{
    static const loop l = { gaps, 2, 1, { { 3, { 3, 2, 3 } }, { 2, { 4, 3 } } }, NULL, NULL, 2 };
    check(&l);
}

/* ---- sums of parts ---- */

/* The gradient of slices that cover all of x is a concatenation. */
FN(halves)
{
    (void)ctx;
    aril_tensor *x = parameter(in[0]);
    aril_tensor *y = aril_sum(aril_square(aril_narrow(x, 0, 2, 2)), ARIL_ALL);
    y = aril_add(y, aril_sum(aril_tanh(aril_narrow(x, 0, 0, 2)), ARIL_ALL));
    aril_gradients(y, ARIL_LIST(x), out, (aril_grad_opts){ 0 });
}

TEST(gradients_of_parts_are_concatenated)
{
    static const loop l = { halves,
                            1,
                            1,
                            { { 2, { 4, 3 } } },
                            NULL,
                            "%2: f32[2,3] = slice(%1, start=2, stop=4)\n"
                            "%3: f32[2,3] = square(%2)\n"
                            "%4: f32[] = sum(%3, axes=[0,1])\n"
                            "%5: f32[2,3] = slice(%1, stop=2)\n"
                            "%6: f32[2,3] = tanh(%5)\n"
                            "%7: f32[] = sum(%6, axes=[0,1])\n"
                            "%8: f32[] = add(%4, %7)\n"
                            "%9: f32[] = full_like(%8, value=1, integer=[1,1])\n"
                            "%10: f32[1,1] = unsqueeze(%9, axes=[0,1])\n"
                            "%11: f32[2,3] = expand_like(%10, %6)\n"
                            "%12: f32[2,3] = tanh_grad(%11, -, %6)\n"
                            "%15: f32[1,1] = unsqueeze(%9, axes=[0,1])\n"
                            "%16: f32[2,3] = expand_like(%15, %3)\n"
                            "%17: f32[2,3] = square_grad(%16, %2, -)\n"
                            "%21: f32[4,3] = cat(%12, %17)\n"
                            "return %21\n",
                            0 };
    check(&l);
}

/* Only some parts: nothing is left out. */
FN(some)
{
    (void)ctx;
    aril_tensor *x = parameter(in[0]), *y = aril_square(aril_select(x, 0, 3));
    for (int t = 0; t < 3; t += 2) y = aril_add(y, aril_tanh(aril_select(x, 0, t)));
    aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(x), out, (aril_grad_opts){ 0 });
}

TEST(parts_that_are_missing_stay_zero)
{
    static const loop l = { some, 1, 1, { { 2, { 4, 3 } } }, NULL, NULL, 0 };
    check(&l);
}

/* ---- what does not pay ---- */

/* Stacking costs more than three additions of a small result. */
FN(long_sums)
{
    (void)ctx;
    aril_tensor *w = parameter(in[1]), *y = NULL;
    for (int i = 0; i < 3; i++) {
        aril_tensor *z = aril_tanh(aril_mm(aril_add_scalar(in[0], i), w));
        y = y ? aril_add(y, z) : z;
    }
    aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(w), out, (aril_grad_opts){ 0 });
}

TEST(products_of_many_rows_stay_apart)
{
    static const loop l = { long_sums, 2,    1,    { { 2, { 8192, 4 } }, { 2, { 4, 4 } } },
                            NULL,      NULL, 3 + 3 };
    check(&l);
}
