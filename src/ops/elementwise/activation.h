/* Fused activations of other ops (aril/activation.h): their rules in public ops, and one number at
 * a time for references. `act` is the aril_activation stored in an attribute. */
#ifndef ARIL_OPS_ACTIVATION_H
#define ARIL_OPS_ACTIVATION_H

#include "aril/activation.h"
#include "ops/table/op.h"

#include <math.h>

/* The negative slope of ARIL_LEAKY_RELU. */
#define ARIL__LEAKY_SLOPE 0.01

/* Fails, naming the op, if `act` is not a valid activation. */
aril_status aril__activation_check(const char *op, int64_t act);

/* act(x) in public ops; x itself for no activation. */
aril_tensor *aril__activation(aril_tensor *x, int64_t act);

/* The gradient of x from that of y = act(x), and from y: in public ops, so that it can be
 * differentiated again. g itself for no activation. */
aril_tensor *aril__activation_grad(aril_tensor *g, aril_tensor *y, int64_t act);

/* For references: act(x), and the gradient of x from that of y = act(x). */
double aril__activate(int64_t act, double x);
double aril__activate_grad(int64_t act, double g, double y);

#endif
