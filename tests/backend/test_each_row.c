/* Every op by every row that accepts it, in f32 and bf16, forward and backward, without a look at
 * the values: the program that scripts/sanitize-cuda runs under compute-sanitizer. Values are
 * checked by test_ops and test_ops_grad. */
#include "aril/aril.h"
#include "ops/table/rows.h"
#include "support/device.h"
#include "support/run_op.h"
#include "support/slopes.h"
#include "support/test.h"

#include <stdlib.h>

static struct {
    int runs, rows, gradients;
} count;

static void fail(const test_sample *s, const char *what, aril_dtype dtype, const char *why)
{
    test_fail(__FILE__, __LINE__, "%s, %s: %s: %s", s->name, aril_dtype_name(dtype), what, why);
}

/* Rows behind the first; a number beyond those that accept the call runs what is behind them. */
static void run_other_rows(const test_sample *s, aril_tensor *const *in, aril_dtype dtype)
{
    int n = aril__rows_of(test_device().kind, s->op, 0, NULL, NULL);
    for (int row = 1; row < n && !ARIL__IS_VIEW(s->op->out[0]); row++) {
        ARIL_SCOPE;
        aril_tensor *out[TEST_RESULTS];
        aril_status status = test_run_row(s, in, row, out);
        count.rows++;
        if (status < 0 && !test_refused(status)) fail(s, "a row", dtype, test_op_error());
    }
}

static void run_gradient(const test_sample *s, aril_tensor *const *in, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *grads[TEST_INPUTS];
    if (s->op->flags & NONDIFF || s->flags & SAMPLE_NO_GRAD || !aril_dtype_is_float(dtype)) return;
    count.gradients++;
    char *why = test_gradients(s, in, grads);
    if (!why && aril_synchronize(test_device()) < 0) why = (char *)aril_error();
    if (why) fail(s, "gradient", dtype, why);
    aril_clear_error();
}

/* False when the op does not support the dtype. */
static bool run_in(const test_sample *s, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *in[TEST_INPUTS], *out[TEST_RESULTS];
    test_working_on(aril_dtype_name(dtype), s);
    if (!test_sample_inputs(s, dtype, 0, in)) return false;
    aril_status status = test_run(s, in, out);
    if (test_refused(status)) return false;
    count.runs++;
    if (status < 0) fail(s, "apply", dtype, test_op_error());
    if (status < 0) return true;
    run_other_rows(s, in, dtype);
    run_gradient(s, in, dtype);
    return true;
}

static void run_sample(const test_sample *s)
{
    static const aril_dtype otherwise[] = { ARIL_F64, ARIL_I64, ARIL_BOOL };
    bool low = s->flags & SAMPLE_NO_LOW, ran = run_in(s, ARIL_F32);
    if (getenv("ARIL_TEST_NAMES")) printf("ran %s\n", s->name);
    if (test_untyped(s)) return;
    if (!low) ran = run_in(s, ARIL_BF16) || ran;
    for (int i = 0; i < 3 && !ran; i++) ran = run_in(s, otherwise[i]);
}

TEST(every_op_by_every_row)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_each_sample(run_sample);
    printf("      %d runs, %d by other rows, %d gradients\n", count.runs, count.rows,
           count.gradients);
}
