#include "support/agree.h"

#include "aril/aril.h"
#include "core/cpu.h"
#include "ops/table/apply.h"
#include "ops/table/rows.h"
#include "support/run_op.h"
#include "support/test.h"

/* Copies the inputs, since some ops write to them. */
static aril_status run_row(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs,
                           int row, aril_tensor **out)
{
    aril_tensor *copy[AGREE_INPUTS];
    for (int i = 0; i < n_in; i++) copy[i] = in[i] ? aril_copy(in[i]) : NULL;
    aril__force_row = row;
    aril_status s = aril__apply(op, n_in, copy, attrs, out);
    aril__force_row = -1;
    return s;
}

static void agree_in(aril_dtype dtype, const aril__op *op, int n_in, aril_tensor *const *given,
                     const void *attrs)
{
    ARIL_SCOPE;
    aril_tensor *in[AGREE_INPUTS], *want[ARIL__MAX_OUT], *got[ARIL__MAX_OUT];
    for (int i = 0; i < n_in; i++)
        in[i] = given[i] && aril_dtype_is_float(aril_dtype_of(given[i]))
                    ? aril_cast(given[i], dtype)
                    : given[i];
    CHECK_MSG(run_row(op, n_in, in, attrs, ARIL__FORCE_REFERENCE, want) == ARIL_OK, "%s",
              aril_error());
    int rows = aril__rows_of(ARIL__CPU, op, 0, NULL, NULL), top = aril__cpu_set(ARIL__CPU_LEVELS);
    CHECK_MSG(rows > 0, "%s has no rows", op->name);
    for (int level = 0; level <= top; level++)
        for (int row = 0; row < rows; row++) {
            aril__cpu_set(level);
            aril_status s = run_row(op, n_in, in, attrs, row, got);
            aril__cpu_set(top);
            char *why = s < 0 ? (char *)aril_error()
                              : test_op_difference(op, got, want, test_tolerance(dtype), false);
            CHECK_MSG(!why, "%s in %s, row %d, %s: %s", op->name, aril_dtype_name(dtype), row,
                      aril__cpu_name(level), why);
        }
}

void test_rows_agree(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs)
{
    static const aril_dtype dtypes[] = { ARIL_F64, ARIL_F32, ARIL_F16, ARIL_BF16 };
    ARIL_NO_GRAD;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        agree_in(dtypes[i], op, n_in, in, attrs);
}
