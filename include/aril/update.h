/* In-place updates of lists of parameters: the building blocks of the optimizers in aril/optim.h,
 * for loops that keep the state themselves.
 *
 * The learning rate and step count are one-element tensors, on the host or on the device of the
 * parameters: a schedule writes to them, and nothing has to be rebuilt. Updates are not recorded
 * for gradients.
 *
 * Lists have one tensor for each parameter, of its shape and dtype; the state of parameters in f16
 * or bf16 may be in f32. An empty list of grads means the gradients that aril_backward accumulated:
 * parameters without one are skipped. Everything is checked before the first write. */
#ifndef ARIL_UPDATE_H
#define ARIL_UPDATE_H

#include "aril/tensor.h"

ARIL_C_BEGIN

typedef struct aril_sgd_update_opts {
    double momentum;     /* momentum factor; 0: none, and no buffers */
    double dampening;    /* the gradient enters the momentum with weight 1 - dampening */
    double weight_decay; /* adds weight_decay times the parameter to its gradient */
    bool nesterov;       /* Nesterov momentum */
    bool maximize;       /* maximize instead of minimize */
} aril_sgd_update_opts;

/* Stochastic gradient descent:
 *     g = grad + weight_decay * p
 *     b = momentum * b + (1 - dampening) * g        (at step 1: b = g)
 *     p = p - lr * (nesterov ? g + momentum * b : b)
 * Without momentum, p = p - lr * g. buffers: b of each parameter, initially zeros; an empty list
 * without momentum. lr: one float. step: [] i64, the number of updates, incremented by the call;
 * may be NULL without dampening. Modifies params, buffers and step. */
ARIL_API aril_status aril_sgd_update(aril_list params, aril_list grads, aril_list buffers,
                                     aril_tensor *lr, aril_tensor *step, aril_sgd_update_opts opts);

typedef struct aril_adam_update_opts {
    double beta1;        /* default 0.9; ARIL_ZERO: none */
    double beta2;        /* default 0.999; ARIL_ZERO: none */
    double eps;          /* default 1e-8; ARIL_ZERO: none */
    double weight_decay; /* adds weight_decay times the parameter to its gradient */
    bool decoupled;      /* AdamW: decoupled weight decay, p -= lr * weight_decay * p */
    bool maximize;       /* maximize instead of minimize */
} aril_adam_update_opts;

/* Adam and AdamW, at step t = 1, 2, ...:
 *     g = grad + weight_decay * p                   (decoupled: p = p - lr * weight_decay * p)
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g^2
 *     p = p - lr / (1 - beta1^t) * m / (sqrt(u / (1 - beta2^t)) + eps)
 * u is v; with `largest` (AMSGrad) it is the largest v so far, stored in that list. m, v and
 * largest are initially zeros; largest may be an empty list. step: [] i64, the number of updates,
 * incremented by the call. Modifies params, m, v, largest and step. */
ARIL_API aril_status aril_adam_update(aril_list params, aril_list grads, aril_list m, aril_list v,
                                      aril_list largest, aril_tensor *lr, aril_tensor *step,
                                      aril_adam_update_opts opts);

ARIL_C_END

#endif
