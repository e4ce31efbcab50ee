#include "support/reference.h"

#include "ops/table/rows.h"
#include "support/ops.h"
#include "support/run_op.h"
#include "support/test.h"

static const char *where(const char *what, aril_tensor *x, char *text, size_t size)
{
    aril_shape s = aril_shape_of(x);
    int n = snprintf(text, size, "%s of %s", what, aril_dtype_name(aril_dtype_of(x)));
    for (int d = 0; d < s.ndim && n < (int)size; d++)
        n += snprintf(text + n, size - (size_t)n, "%s%lld", d ? "," : " [", (long long)s.dim[d]);
    return text;
}

/* Whether the result was refused. */
static bool compare(const char *what, aril_tensor *got, aril_tensor *want, double tolerance)
{
    aril_status a = aril_tensor_status(got), b = aril_tensor_status(want);
    aril_clear_error();
    if (a != b) test_fail(__FILE__, __LINE__, "%s: status %d, the reference's %d", what, a, b);
    if (a < 0 || b < 0) return true;
    bool real = aril_dtype_is_float(aril_dtype_of(got));
    if (tolerance == 0) tolerance = test_tolerance(aril_dtype_of(got));
    char *why = test_op_difference(&aril__op_copy, &got, &want, real ? tolerance : 0, !real);
    if (why) test_fail(__FILE__, __LINE__, "%s: %s", what, why);
    return false;
}

static void run_both(const char *what, test_results_fn *fn, aril_tensor *x, double tolerance,
                     bool refuses)
{
    ARIL_SCOPE;
    aril_tensor *got[TEST_COMPARED], *want[TEST_COMPARED];
    char text[200];
    int n = fn(x, got), refused = 0;
    aril__force_row = ARIL__FORCE_REFERENCE;
    int m = fn(x, want);
    aril__force_row = -1;
    where(what, x, text, sizeof text);
    if (n != m) test_fail(__FILE__, __LINE__, "%s: %d results, the reference %d", text, n, m);
    for (int i = 0; i < n && i < m; i++) refused += compare(text, got[i], want[i], tolerance);
    if (refuses != (refused > 0))
        test_fail(__FILE__, __LINE__, "%s: %d of %d results were refused", text, refused, n);
}

void test_against_reference(const char *what, test_results_fn *fn, aril_tensor *x, double tolerance)
{
    run_both(what, fn, x, tolerance, false);
}

void test_both_refuse(const char *what, test_results_fn *fn, aril_tensor *x)
{
    run_both(what, fn, x, 0, true);
}
