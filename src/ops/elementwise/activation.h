/* Activations that are part of another op (aril/activation.h): their rules, in public ops, and what
 * kernels apply. `act` is an aril_activation, as it stands in an attribute. */
#ifndef ARIL_OPS_ACTIVATION_H
#define ARIL_OPS_ACTIVATION_H

#include "aril/activation.h"
#include "ops/table/op.h"

#include <math.h>

/* What ARIL_LEAKY_RELU multiplies by below 0. */
#define ARIL__LEAKY_SLOPE 0.01

/* Fails, naming the op, where `act` is none of them. */
aril_status aril__activation_check(const char *op, int64_t act);

/* act(x) in public ops; x itself for none. */
aril_tensor *aril__activation(aril_tensor *x, int64_t act);

/* The gradient of x from that of y = act(x), and from y: in public ops, to be differentiated again.
 * g itself for none. */
aril_tensor *aril__activation_grad(aril_tensor *g, aril_tensor *y, int64_t act);

/* For kernels: act over n neighbours in place, and gradients g of y = act(x) made those of x in
 * place. `type` is ARIL_F32 or ARIL_F64. Meant for runs that lie in a cache. */
void aril__activation_run(aril_dtype type, int64_t act, int64_t n, void *y);
void aril__activation_grad_run(aril_dtype type, int64_t act, int64_t n, void *g, const void *y);

/* The cheap ones, which kernels have within their own loops; the rest take aril__activation_run
 * after them. */
static inline bool aril__activation_is_cheap(int64_t act)
{
    return act <= ARIL_LEAKY_RELU;
}

#endif
