/* Comparing the kernel rows of an op with its reference. */
#ifndef ARIL_TESTS_SUPPORT_AGREE_H
#define ARIL_TESTS_SUPPORT_AGREE_H

#include "ops/table/op.h"

enum { AGREE_INPUTS = 8 };

/* Runs the op's reference and every row that accepts the inputs, on each instruction set, in f64,
 * f32, f16 and bf16, and fails the test where a result differs by more than the dtype allows.
 * Floating-point inputs are converted to the dtype; NULL is an absent one. */
void test_rows_agree(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs);

#endif
