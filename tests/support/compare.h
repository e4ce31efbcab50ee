/* Comparing tensors in tests. */
#ifndef ARIL_TESTS_SUPPORT_COMPARE_H
#define ARIL_TESTS_SUPPORT_COMPARE_H

#include "aril/base.h"

/* NULL when both have the same dtype and shape and each element of `got` is within atol + rtol *
 * |want| of `want` (exactly, for integers and bool; NaN equals NaN). Else describes the first
 * difference, in a static buffer. */
char *test_difference(aril_tensor *got, aril_tensor *want, double rtol, double atol);

/* The same, but dtypes may differ. */
char *test_difference_in_value(aril_tensor *got, aril_tensor *want, double rtol, double atol);

/* NULL when both have the same dtype, shape and bits. */
char *test_difference_in_bits(aril_tensor *got, aril_tensor *want);

#endif
