/* Updates of one parameter, in place. */
#ifndef ARIL_OPS_OPTIM_H
#define ARIL_OPS_OPTIM_H

#include "ops/op.h"

/* in: p, grad, lr, buffer?, step?; changes p and buffer */
#define SGD_UPDATE_ATTRS(A)                      \
    A(sgd_update, F64, 1, momentum, 0, NULL)     \
    A(sgd_update, F64, 1, dampening, 0, NULL)    \
    A(sgd_update, F64, 1, weight_decay, 0, NULL) \
    A(sgd_update, I64, 1, nesterov, 0, NULL)     \
    A(sgd_update, I64, 1, maximize, 0, NULL)
ATTRS(sgd_update, SGD_UPDATE_ATTRS)

/* in: p, grad, m, v, largest?, lr, step; changes p, m, v and largest */
#define ADAM_UPDATE_ATTRS(A)                      \
    A(adam_update, F64, 1, beta1, 0.9, NULL)      \
    A(adam_update, F64, 1, beta2, 0.999, NULL)    \
    A(adam_update, F64, 1, eps, 1e-8, NULL)       \
    A(adam_update, F64, 1, weight_decay, 0, NULL) \
    A(adam_update, I64, 1, decoupled, 0, NULL)    \
    A(adam_update, I64, 1, maximize, 0, NULL)
ATTRS(adam_update, ADAM_UPDATE_ATTRS)

#endif
