#include "support/run_op.h"

#include "aril/aril.h"
#include "ops/table/apply.h"
#include "ops/table/rows.h"
#include "support/compare.h"
#include "support/device.h"

#include <math.h>
#include <string.h>

static char last_error[512];

const char *test_op_error(void)
{
    return last_error;
}

/* Errors that a device reports late belong to the op that was just run. */
static aril_status note(aril_status status)
{
    if (status == ARIL_OK && !test_on_cpu()) status = aril_synchronize(test_device());
    snprintf(last_error, sizeof last_error, "%s", aril_ok() ? "" : aril_error());
    aril_clear_error();
    return status;
}

void test_copies(const test_sample *s, aril_tensor *const *in, aril_tensor **copy)
{
    ARIL_NO_GRAD;
    for (int i = 0; i < s->n_in; i++)
        copy[i] = in[i] && !aril__is_number(in[i]) ? aril_copy(in[i]) : in[i];
}

void test_results(const test_sample *s, aril_tensor *const *in, aril_tensor **out)
{
    int n = s->op->n_out;
    for (int i = 0; i < s->n_in; i++)
        if (in[i] && aril__changes(s->op, i)) out[n++] = in[i];
    out[n] = NULL;
}

aril_status test_run(const test_sample *s, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *copy[TEST_INPUTS];
    test_copies(s, in, copy);
    aril_status status = aril__apply(s->op, s->n_in, copy, s->attrs, out);
    test_results(s, copy, out);
    return note(status);
}

aril_status test_run_row(const test_sample *s, aril_tensor *const *in, int row, aril_tensor **out)
{
    aril_tensor *copy[TEST_INPUTS];
    test_copies(s, in, copy);
    aril__force_row = row;
    aril_status status = aril__apply(s->op, s->n_in, copy, s->attrs, out);
    aril__force_row = -1;
    test_results(s, copy, out);
    return note(status);
}

bool test_refused(aril_status status)
{
    return status == ARIL_ERR_DTYPE || status == ARIL_ERR_UNSUPPORTED;
}

void test_cast_inputs(const test_sample *s, aril_tensor *const *in, aril_dtype dtype,
                      aril_tensor **cast)
{
    for (int i = 0; i < s->n_in; i++)
        cast[i] = in[i] && test_sample_typed(s, i) ? aril_cast(in[i], dtype) : in[i];
}

bool test_best_inputs(const test_sample *s, aril_tensor **in, aril_dtype *dtype)
{
    static const aril_dtype best[] = { ARIL_F64, ARIL_F32, ARIL_I64, ARIL_BOOL };
    for (size_t i = 0; i < sizeof best / sizeof *best; i++) {
        aril_tensor *out[TEST_RESULTS];
        *dtype = best[i];
        if (test_sample_inputs(s, best[i], 0, in) && !test_refused(test_run(s, in, out)))
            return true;
    }
    return false;
}

bool test_untyped(const test_sample *s)
{
    for (int i = 0; i < s->n_in; i++)
        if (test_sample_typed(s, i)) return false;
    return true;
}

double test_tolerance(aril_dtype dtype)
{
    switch (dtype) {
    case ARIL_F16: return 4e-3;
    case ARIL_BF16: return 3e-2;
    case ARIL_F32: return 2e-5;
    default: return 1e-11;
    }
}

static double largest(aril_tensor *t)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    const double *v = aril_data(aril_cast(t, ARIL_F64));
    double max = 1;
    for (int64_t i = 0; v && i < aril_numel(t); i++)
        if (isfinite(v[i]) && fabs(v[i]) > max) max = fabs(v[i]);
    return max;
}

char *test_op_difference(const aril__op *op, aril_tensor *const *got, aril_tensor *const *want,
                         double tol, bool bits)
{
    static char text[600];
    for (int k = 0; k < op->n_out || (op->writes && got[k]); k++) {
        if (k + 1 == op->reserve_out) continue; /* each row's own */
        char *why = bits ? test_difference_in_bits(got[k], want[k])
                         : test_difference_in_value(got[k], want[k], tol, tol * largest(want[k]));
        if (!why) continue;
        snprintf(text, sizeof text, "result %d: %s", k, why);
        return text;
    }
    return NULL;
}
