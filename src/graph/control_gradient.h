/* Gradients of the bodies of control flow. */
#ifndef ARIL_GRAPH_CONTROL_GRADIENT_H
#define ARIL_GRAPH_CONTROL_GRADIENT_H

#include "graph/control.h"
#include "graph/trace.h"

/* Calls a function again and differentiates it: arguments are its own, then gradients of those
 * results that have one; results are gradients of wanted arguments and captured tensors. */
typedef struct aril__body_gradient {
    aril_fn *fn[2];
    void *ctx;
    int n_args, n_out;
    int n_captured, n_stops;
    int64_t draws;                  /* of a trip, */
    aril_rng_state rng[2];          /* and where the trace of each function began with them */
    bool has[ARIL__MAX_OUT];        /* results with a gradient */
    bool wants[ARIL__CONTROL_ARGS]; /* arguments whose gradient is wanted */
    aril_tensor **captured;         /* borrowed: of which a gradient is wanted, */
    aril_tensor **stops;            /* and others, where the way back ends too */
} aril__body_gradient;

/* What to differentiate: `args` are the inputs of the node that are arguments, `rest` those that it
 * captured. Belongs to the trace. NULL with an error. */
aril__body_gradient *aril__body_gradient_new(aril__tracing *t, const struct control_attrs *a,
                                             int n_out, aril_tensor *const *captured,
                                             const bool *wants_captured, int n);

/* Calls fn, one of its functions, on its arguments; given[] are the gradients of its results, and
 * out[] gets those of what is wanted. */
aril_status aril__body_differentiate(const aril__body_gradient *q, aril_fn *fn,
                                     aril_tensor *const *arg, aril_tensor *const *given,
                                     aril_tensor **out);

#endif
