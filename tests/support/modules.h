/* Helpers shared by module tests. */
#ifndef ARIL_TESTS_SUPPORT_MODULES_H
#define ARIL_TESTS_SUPPORT_MODULES_H

#include "aril/module.h"

/* Runs m (taking ownership) on n_in inputs x[0], ..., with the tensors that follow them as its
 * state, named `names` ("weight,bias") in this order. y receives n_out results and, in training,
 * the buffers after the run. m must print as `shown`. Fails the running test when names or texts
 * differ. */
void test_module(aril_module *m, const char *shown, const char *names, int n_in, bool eval,
                 int n_out, aril_tensor **x, aril_tensor **y);

#endif
