/* What tests of modules share. */
#ifndef ARIL_TESTS_SUPPORT_MODULES_H
#define ARIL_TESTS_SUPPORT_MODULES_H

#include "aril/module.h"

/* Runs m (taken over) on n_in inputs x[0], ... with its state being the tensors that follow them, called
 * `names` ("weight,bias") in this order. y gets n_out results and, in training, the buffers after the run. m must be
 * printed as `shown`. Fails the running test where names or texts differ. */
void test_module(aril_module *m, const char *shown, const char *names, int n_in, bool eval,
                 int n_out, aril_tensor **x, aril_tensor **y);

#endif
