/* Runs an op of the table on the inputs of a sample. */
#ifndef ARIL_TESTS_SUPPORT_RUN_OP_H
#define ARIL_TESTS_SUPPORT_RUN_OP_H

#include "support/samples.h"

/* Applies the op to copies of the inputs (some ops write to them). Returns the status of apply;
 * clears any error, whose text stays in test_op_error(). */
aril_status test_run(const test_sample *s, aril_tensor *const *in, aril_tensor **out);
const char *test_op_error(void);

/* The same with a forced kernel row: see aril__force_row. */
aril_status test_run_row(const test_sample *s, aril_tensor *const *in, int row, aril_tensor **out);

/* Puts the inputs that the op changed in place, and a NULL, after its outputs. */
void test_results(const test_sample *s, aril_tensor *const *in, aril_tensor **out);

/* True when the status means that the op does not support such inputs, or not on this machine. */
bool test_refused(aril_status status);

/* Copies of the inputs (NULL where absent), in the same memory format; keys stay as they are. */
void test_copies(const test_sample *s, aril_tensor *const *in, aril_tensor **copy);

/* The inputs, with those that have the dtype under test cast to `dtype`. */
void test_cast_inputs(const test_sample *s, aril_tensor *const *in, aril_dtype dtype,
                      aril_tensor **cast);

/* The inputs in the widest dtype that the op supports: f64, f32, i64 or bool. False when none. */
bool test_best_inputs(const test_sample *s, aril_tensor **in, aril_dtype *dtype);

/* True when no input has the dtype under test: testing one dtype is enough. */
bool test_untyped(const test_sample *s);

/* NULL when results, other than a reserve, are within tol * max(1, largest value) of those
 * expected, else the difference. */
char *test_op_difference(const aril__op *op, aril_tensor *const *got, aril_tensor *const *want,
                         double tol, bool bits);

/* The relative error allowed for results computed in a dtype. */
double test_tolerance(aril_dtype dtype);

#endif
