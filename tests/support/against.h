/* Comparing a function of tensors on the device of a test with f64 on the CPU. */
#ifndef ARIL_TESTS_SUPPORT_AGAINST_H
#define ARIL_TESTS_SUPPORT_AGAINST_H

#include "aril/tensor.h"

enum { TEST_AGAINST_INPUTS = 8 };

typedef aril_tensor *test_function(aril_tensor *const *in, const void *how);

/* Evaluates f and its gradients on n random inputs of the given shapes: in `type` on test_device(),
 * and in f64 on the CPU, from the same values. `result` is the shape of f's result. Fails the test
 * where they differ by more than `tolerance`, relative to the largest element. */
void test_against_f64(test_function *f, int n, const aril_shape *shapes, const void *how,
                      aril_dtype type, aril_shape result, double tolerance);

#endif
