/* Checks an op's gradients against finite differences. */
#ifndef ARIL_TESTS_SUPPORT_SLOPES_H
#define ARIL_TESTS_SUPPORT_SLOPES_H

#include "support/samples.h"

typedef struct test_slopes {
    int64_t compared, kinks; /* elements compared, and skipped where one-sided slopes differ */
} test_slopes;

/* Compares the gradient of the op at f64 inputs `in` with finite differences; when `second`, the
 * gradient of that gradient for the inputs and for the incoming gradient. NULL, or the
 * difference. */
char *test_slope_difference(const test_sample *s, aril_tensor *const *in, bool second,
                            test_slopes *count);

/* The gradients of sum_k of y_k times fixed weights, for each input that needs one (others NULL).
 * Skips results without a gradient. NULL, or the error. */
char *test_gradients(const test_sample *s, aril_tensor *const *in, aril_tensor **grads);

#endif
