/* The walk back over a graph. */
#ifndef ARIL_AUTOGRAD_BACKWARD_H
#define ARIL_AUTOGRAD_BACKWARD_H

#include "aril/autograd.h"
#include "autograd/node.h"

/* Where a gradient is wanted instead of in the leaves. */
typedef struct aril__target {
    aril__node *node;
    uint32_t out;
} aril__target;

/* Walks back from `roots`, starting with grads[i] (of the roots' shapes). Without targets the
 * gradients of leaves gather what arrives; with targets captured[i] does (a reference each, NULL
 * where nothing arrived) and leaves are left alone. */
/* `captured` with `leaves`: the walk ends at the targets, and all other leaves gather theirs. */
aril_status aril__backward_to(int n_roots, aril_tensor *const *roots, aril_tensor *const *grads,
                              int n_targets, const aril__target *targets, aril_tensor **captured,
                              bool leaves, aril_grad_opts opts);
/* From one root without targets; the reference to `grad` is handed over, so that a leaf can keep
 * what nobody else holds. */
aril_status aril__backward_from(aril_tensor *root, aril_tensor *grad, aril_grad_opts opts);
aril_status aril__backward(int n_roots, aril_tensor *const *roots, aril_tensor *const *grads,
                           int n_targets, const aril__target *targets, aril_tensor **captured,
                           aril_grad_opts opts);

/* True within a rule that runs for aril_gradients, which leaves the gradients of leaves alone. */
bool aril__backward_has_targets(void);

#endif
