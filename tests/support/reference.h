/* Results of the default kernels against those of the references. */
#ifndef ARIL_TESTS_SUPPORT_REFERENCE_H
#define ARIL_TESTS_SUPPORT_REFERENCE_H

#include "aril/aril.h"

enum { TEST_COMPARED = 3 };

/* What is compared: stores up to TEST_COMPARED results of x, and returns their number. */
typedef int test_results_fn(aril_tensor *x, aril_tensor **out);

/* Calls fn twice, with the rows that are chosen by default and with references alone. Fails the
 * test unless both agree: within `tolerance` times the largest value (0: that of the results'
 * dtypes), integers exactly. */
void test_against_reference(const char *what, test_results_fn *fn, aril_tensor *x,
                            double tolerance);

/* The same for calls of which some should fail, with the same status. */
void test_both_refuse(const char *what, test_results_fn *fn, aril_tensor *x);

#endif
