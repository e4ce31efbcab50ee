/* Gradients of every op of the table on every sample: against finite differences, first and second
 * order; in narrower dtypes; and with everything removed that the `saves` masks do not name. Set
 * ARIL_TEST_OP=name in the environment to run a single op. */
#include "aril/aril.h"
#include "ops/table/apply.h"
#include "support/compare.h"
#include "support/run_op.h"
#include "support/slopes.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static struct {
    int first, second, low, rules;
    test_slopes slopes, slopes2;
} count;

#define FAIL(s, what, why) test_fail(__FILE__, __LINE__, "%s: %s: %s", (s)->name, (what), (why))

/* Inputs in f64 for checking a gradient. */
static bool inputs(const test_sample *s, aril_tensor **in)
{
    aril_tensor *out[TEST_RESULTS];
    if (s->op->flags & NONDIFF || s->flags & SAMPLE_NO_GRAD || test_untyped(s)) return false;
    return test_sample_inputs(s, ARIL_F64, 0, in) && test_run(s, in, out) == ARIL_OK;
}

/* ---- finite differences ---- */

static void check_first(const test_sample *s)
{
    aril_tensor *in[TEST_INPUTS];
    test_working_on("the gradient", s);
    if (!inputs(s, in)) return;
    count.first++;
    char *why = test_slope_difference(s, in, false, &count.slopes);
    if (why) FAIL(s, "gradient", why);
}

TEST(gradients_against_finite_differences)
{
    test_each_sample(check_first);
}

static void check_second(const test_sample *s)
{
    aril_tensor *in[TEST_INPUTS];
    test_working_on("the second gradient", s);
    if (s->flags & SAMPLE_NO_SECOND || !inputs(s, in)) return;
    count.second++;
    char *why = test_slope_difference(s, in, true, &count.slopes2);
    if (why) FAIL(s, "second gradient", why);
}

TEST(second_gradients_against_finite_differences)
{
    test_each_sample(check_second);
}

/* ---- narrower dtypes ---- */

static void check_narrow(const test_sample *s)
{
    static const aril_dtype narrow[] = { ARIL_F32, ARIL_F16, ARIL_BF16 };
    aril_tensor *in[TEST_INPUTS], *wide[TEST_INPUTS], *got[TEST_INPUTS], *want[TEST_INPUTS];
    if (!inputs(s, in) || s->op->flags & RANDOM) return;
    for (size_t k = 0; k < sizeof narrow / sizeof *narrow; k++) {
        ARIL_SCOPE;
        aril_tensor *low[TEST_INPUTS], *out[TEST_RESULTS];
        test_working_on("a gradient in a narrow dtype", s);
        if (k > 0 && s->flags & SAMPLE_NO_LOW) break;
        test_cast_inputs(s, in, narrow[k], low);
        test_cast_inputs(s, low, ARIL_F64, wide);
        if (test_refused(test_run(s, low, out))) continue;
        count.low++;
        char *why = test_gradients(s, low, got);
        if (!why) why = test_gradients(s, wide, want);
        for (int i = 0; i < s->n_in && !why; i++) {
            if (!got[i] || !want[i]) continue;
            double tol = 2 * test_tolerance(narrow[k]), max = 1;
            const double *v = aril_data(want[i]);
            for (int64_t j = 0; v && j < aril_numel(want[i]); j++) max = fmax(max, fabs(v[j]));
            if (aril_dtype_of(got[i]) != aril_dtype_of(low[i]))
                why = "the gradient has another dtype than its input";
            else
                why = test_difference_in_value(got[i], want[i], tol, tol * max);
        }
        if (why) FAIL(s, aril_dtype_name(narrow[k]), why);
        aril_clear_error();
    }
}

TEST(gradients_in_narrow_dtypes)
{
    test_each_sample(check_narrow);
}

/* ---- what a rule may read ---- */

static aril_tensor *shape_of(aril_tensor *t)
{
    return aril__give(aril__self(), aril__tensor_shape_only(aril__self(), t));
}

static bool differs(const aril_tensor *a, const aril_tensor *b)
{
    return a->dtype != b->dtype || !aril__same_dims(a->ndim, a->dim, b->ndim, b->dim);
}

/* The gradient of input i by the op's rule, given only the tensors that `mask` names. */
static aril_tensor *by_rule(const test_sample *s, aril_tensor *const *x, aril_tensor *const *y,
                            aril_tensor *const *g, uint32_t mask, int i)
{
    aril_tensor *seen_x[TEST_INPUTS] = { NULL }, *seen_y[TEST_RESULTS] = { NULL };
    aril_tensor *dx[TEST_INPUTS] = { NULL };
    bool wants[TEST_INPUTS] = { false };
    wants[i] = true;
    for (int k = 0; k < s->n_in; k++) {
        int bit = k < 7 ? k : 7;
        if (x[k]) seen_x[k] = mask & IN(bit) ? x[k] : mask & LIKE(bit) ? shape_of(x[k]) : NULL;
    }
    for (int k = 0; k < s->op->n_out; k++)
        seen_y[k] = mask & OUT(k) ? y[k] : mask & LIKE_OUT(k) ? shape_of(y[k]) : NULL;
    aril__grad c = { .op = s->op,
                     .attrs = s->attrs,
                     .n_in = s->n_in,
                     .n_out = s->op->n_out,
                     .x = seen_x,
                     .y = seen_y,
                     .g = g,
                     .dx = dx,
                     .wants = wants };
    s->op->vjp(&c);
    return dx[i];
}

static void check_masks(const test_sample *s)
{
    aril_tensor *in[TEST_INPUTS], *x[TEST_INPUTS], *y[TEST_RESULTS], *g[TEST_RESULTS] = { NULL };
    if (!s->op->vjp || !inputs(s, in)) return;
    ARIL_NO_GRAD;
    test_copies(s, in, x);
    if (aril__apply(s->op, s->n_in, x, s->attrs, y) < 0) return;
    for (int k = 0; k < s->op->n_out; k++)
        if (aril_dtype_is_float(aril_dtype_of(y[k])) && !ARIL__IS_WRITE(s->op->out[k]))
            g[k] = aril_full_like(y[k], 0.75);
    for (int i = 0; i < s->n_in; i++) {
        if (!x[i] || !test_sample_wants(s, i) || !aril_dtype_is_float(aril_dtype_of(x[i])))
            continue;
        uint32_t mask = aril__op_saves(s->op, s->attrs, i);
        if (s->op->formula && differs(x[i], y[0])) mask |= LIKE(i);
        count.rules++;
        uint32_t everything = s->op->formula ? 0xff00ffu | LIKE(i) : 0xff00ffu;
        test_working_on("the gradient rule", s);
        aril_tensor *want = by_rule(s, x, y, g, everything, i);
        test_working_on("the gradient rule, which reads what its saves mask does not name,", s);
        aril_tensor *got = by_rule(s, x, y, g, mask, i);
        char what[80], *why = NULL;
        snprintf(what, sizeof what, "rule of input %d, given only what its mask names", i);
        if (!aril_ok())
            why = (char *)aril_error();
        else if ((got != NULL) != (want != NULL))
            why = "a gradient is missing";
        else if (got)
            why = test_difference(got, want, 1e-12, 1e-12);
        if (why) FAIL(s, what, why);
        aril_clear_error();
        /* A result without an incoming gradient counts as zero. */
        for (int k = 0; k < s->op->n_out && s->op->n_out > 1; k++) {
            aril_tensor *one[TEST_RESULTS] = { NULL }, *zero[TEST_RESULTS] = { NULL };
            if (!g[k]) continue;
            for (int m = 0; m < s->op->n_out; m++)
                zero[m] = g[m] ? m == k ? g[m] : aril_zeros_like(g[m]) : NULL;
            one[k] = g[k];
            test_working_on("the gradient rule, with some gradients absent,", s);
            got = by_rule(s, x, y, one, mask, i);
            want = by_rule(s, x, y, zero, mask, i);
            if (!got && want) got = aril_zeros_like(x[i]);
            if (got && !want) want = aril_zeros_like(x[i]);
            why = !aril_ok() ? (char *)aril_error()
                  : got      ? test_difference(got, want, 1e-9, 1e-9)
                             : NULL;
            if (why) FAIL(s, "rule with a gradient of one result alone", why);
            aril_clear_error();
        }
    }
}

TEST(gradient_rules_use_only_saved_values)
{
    test_each_sample(check_masks);
}

TEST(summary)
{
    printf("      %d first and %d second gradients, %d in narrow dtypes, %d rules by their masks;\n"
           "      %lld and %lld elements compared, %lld and %lld kinks passed over\n",
           count.first, count.second, count.low, count.rules, (long long)count.slopes.compared,
           (long long)count.slopes2.compared, (long long)count.slopes.kinks,
           (long long)count.slopes2.kinks);
}
