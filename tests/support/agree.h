/* Comparing the kernel rows of an op with its reference. Both functions run the reference and every
 * row that accepts the inputs, on each instruction set, and fail the test where a row differs. NULL
 * is an absent input. */
#ifndef ARIL_TESTS_SUPPORT_AGREE_H
#define ARIL_TESTS_SUPPORT_AGREE_H

#include "ops/table/op.h"

enum { AGREE_INPUTS = 8 };

/* In f64, f32, f16 and bf16, to which floating-point inputs are converted: results differ by no
 * more than the dtype allows. */
void test_rows_agree(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs);

/* With the inputs as they are: results have the same bits. */
void test_rows_equal(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs);

#endif
