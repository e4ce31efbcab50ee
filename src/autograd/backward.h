/* The backward pass over a graph. */
#ifndef ARIL_AUTOGRAD_BACKWARD_H
#define ARIL_AUTOGRAD_BACKWARD_H

#include "aril/autograd.h"
#include "autograd/node.h"

/* A node output whose gradient is wanted, instead of those of the leaves. */
typedef struct aril__target {
    aril__node *node;
    uint32_t out;
} aril__target;

/* Walks back from `roots`, starting with grads[i] (of the roots' shapes). Without targets gradients
 * accumulate in the leaves; with targets they accumulate in captured[i] (a reference each, NULL if
 * none arrived) and leaves are not touched. */
/* `captured` with `leaves`: the walk ends at the targets, and all other leaves accumulate their
 * gradients. */
aril_status aril__backward_to(int n_roots, aril_tensor *const *roots, aril_tensor *const *grads,
                              int n_targets, const aril__target *targets, aril_tensor **captured,
                              bool leaves, aril_grad_opts opts);
/* From one root without targets; takes over the reference to `grad`, so that a leaf can keep it
 * without a copy if it is the only one. */
aril_status aril__backward_from(aril_tensor *root, aril_tensor *grad, aril_grad_opts opts);
aril_status aril__backward(int n_roots, aril_tensor *const *roots, aril_tensor *const *grads,
                           int n_targets, const aril__target *targets, aril_tensor **captured,
                           aril_grad_opts opts);

/* With targets, which are leaves whose hooks are not called: what arrives there is part of a
 * gradient. */
aril_status aril__backward_capture(int n_roots, aril_tensor *const *roots,
                                   aril_tensor *const *grads, int n_targets,
                                   const aril__target *targets, aril_tensor **captured);

/* True within a rule that runs for aril_gradients, which does not touch the gradients of leaves. */
bool aril__backward_has_targets(void);

#endif
