/* Gradients of an op against finite differences. */
#ifndef ARIL_TESTS_SUPPORT_SLOPES_H
#define ARIL_TESTS_SUPPORT_SLOPES_H

#include "support/samples.h"

typedef struct test_slopes {
    int64_t compared, kinks; /* elements compared, and passed over where the slopes differ */
} test_slopes;

/* Compares the gradient (or, when `second`, the gradient of the gradient, by the inputs and by the
 * gradient that came in) of the op at f64 inputs `in` with finite differences. NULL, or what
 * differs. */
char *test_slope_difference(const test_sample *s, aril_tensor *const *in, bool second,
                            test_slopes *count);

/* The gradients of sum_k of y_k times fixed weights, by each input that wants one (others NULL).
 * Results that no gradient flows to are left out. NULL, or what went wrong. */
char *test_gradients(const test_sample *s, aril_tensor *const *in, aril_tensor **grads);

#endif
