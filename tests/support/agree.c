#include "support/agree.h"

#include "aril/aril.h"
#include "core/cpu.h"
#include "core/shape.h"
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

/* tolerance 0: the same bits. */
static void compare_rows(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs,
                         double tolerance)
{
    char text[ARIL__SHAPE_TEXT];
    aril_shape shape = aril_shape_of(in[0]);
    aril__shape_text(text, shape.ndim, shape.dim);
    aril_tensor *want[ARIL__MAX_OUT], *got[ARIL__MAX_OUT];
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
                              : test_op_difference(op, got, want, tolerance, tolerance == 0);
            CHECK_MSG(!why, "%s of %s %s, row %d, %s: %s", op->name,
                      aril_dtype_name(aril_dtype_of(in[0])), text, row, aril__cpu_name(level), why);
        }
}

void test_rows_agree(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs)
{
    static const aril_dtype dtypes[] = { ARIL_F64, ARIL_F32, ARIL_F16, ARIL_BF16 };
    ARIL_NO_GRAD;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        ARIL_SCOPE;
        aril_tensor *cast[AGREE_INPUTS];
        for (int k = 0; k < n_in; k++)
            cast[k] = in[k] && aril_dtype_is_float(aril_dtype_of(in[k]))
                          ? aril_cast(in[k], dtypes[i])
                          : in[k];
        compare_rows(op, n_in, cast, attrs, test_tolerance(dtypes[i]));
    }
}

void test_rows_equal(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs)
{
    ARIL_NO_GRAD;
    ARIL_SCOPE;
    compare_rows(op, n_in, in, attrs, 0);
}
