/* Updates of lists of parameters, in place: what the optimizers of aril/optim.h are made of, for
 * loops that keep the state themselves.
 *
 * Learning rate and step number are tensors of one element, so that they are values like others: a
 * schedule writes to them, and nothing has to be made anew. Updates are not recorded for gradients.
 *
 * Lists have one tensor for each parameter, of its shape and dtype; the state of parameters in f16
 * or bf16 may be in f32. No grads at all (an empty list) stands for what aril_backward gathered:
 * parameters that have none are passed over. Everything is checked before the first write. */
#ifndef ARIL_UPDATE_H
#define ARIL_UPDATE_H

#include "aril/tensor.h"

ARIL_C_BEGIN

typedef struct aril_sgd_update_opts {
    double momentum;     /* share of the last direction that is kept; 0: none, and no buffers */
    double dampening;    /* the gradient enters the direction with weight 1 - dampening */
    double weight_decay; /* this much of the parameter is added to its gradient */
    bool nesterov;       /* look ahead along the new direction */
    bool maximize;       /* climb */
} aril_sgd_update_opts;

/* Stochastic gradient descent:
 *     g = grad + weight_decay * p
 *     b = momentum * b + (1 - dampening) * g        (at step 1: b = g)
 *     p = p - lr * (nesterov ? g + momentum * b : b)
 * Without momentum, p = p - lr * g. buffers: b of each parameter, zeros at the start; an empty list
 * without momentum. lr: one float. step: [] i64, the updates so far, one more after the call; may
 * be NULL without dampening. Changes params, buffers and step. */
ARIL_API aril_status aril_sgd_update(aril_list params, aril_list grads, aril_list buffers,
                                     aril_tensor *lr, aril_tensor *step, aril_sgd_update_opts opts);

typedef struct aril_adam_update_opts {
    double beta1;        /* 0: 0.9; ARIL_ZERO: none */
    double beta2;        /* 0: 0.999; ARIL_ZERO: none */
    double eps;          /* 0: 1e-8; ARIL_ZERO: none */
    double weight_decay; /* this much of the parameter is added to its gradient */
    bool decoupled;      /* AdamW: decay shrinks the parameter itself, by lr * weight_decay */
    bool maximize;       /* climb */
} aril_adam_update_opts;

/* Adam and AdamW, at step t = 1, 2, ...:
 *     g = grad + weight_decay * p                   (decoupled: p = p - lr * weight_decay * p)
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g^2
 *     p = p - lr / (1 - beta1^t) * m / (sqrt(u / (1 - beta2^t)) + eps)
 * u is v; with `largest` (AMSGrad) it is the greatest v so far, which that list keeps. m, v and
 * largest are zeros at the start; largest may be an empty list. step: [] i64, the updates so far,
 * one more after the call. Changes params, m, v, largest and step. */
ARIL_API aril_status aril_adam_update(aril_list params, aril_list grads, aril_list m, aril_list v,
                                      aril_list largest, aril_tensor *lr, aril_tensor *step,
                                      aril_adam_update_opts opts);

ARIL_C_END

#endif
