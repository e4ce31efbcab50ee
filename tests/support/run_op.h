/* Running an op of the table on the inputs of a sample. */
#ifndef ARIL_TESTS_SUPPORT_RUN_OP_H
#define ARIL_TESTS_SUPPORT_RUN_OP_H

#include "support/samples.h"

/* Applies the op to copies of the inputs (some ops write to them). The status of apply; an error
 * that it left is cleared, and its text stays in test_op_error(). */
aril_status test_run(const test_sample *s, aril_tensor *const *in, aril_tensor **out);
const char *test_op_error(void);

/* Runs as an application of an op should when asked for a row: see aril__force_row. */
aril_status test_run_row(const test_sample *s, aril_tensor *const *in, int row, aril_tensor **out);

/* True when the status means that the op does not take such inputs, or not on this machine. */
bool test_refused(aril_status status);

/* Copies of the inputs (NULL where absent), in the same order in memory. */
void test_copies(const test_sample *s, aril_tensor *const *in, aril_tensor **copy);

/* The inputs, with those that take the dtype under test cast to `dtype`. */
void test_cast_inputs(const test_sample *s, aril_tensor *const *in, aril_dtype dtype,
                      aril_tensor **cast);

/* The inputs in the best dtype that the op takes: f64, f32, i64 or bool. False when none. */
bool test_best_inputs(const test_sample *s, aril_tensor **in, aril_dtype *dtype);

/* Inputs that no dtype under test touches: running in one dtype says it all. */
bool test_untyped(const test_sample *s);

/* Results within tol * max(1, largest value) of what was expected, NULL or what differs. */
char *test_op_difference(const aril__op *op, aril_tensor *const *got, aril_tensor *const *want,
                         double tol, bool bits);

/* What is expected of results that passed through a dtype: relative error. */
double test_tolerance(aril_dtype dtype);

#endif
