/* Activations that another op can apply to its own result: convolution, linear and batch_norm take
 * one in their options, and save the pass over memory that a call of its own would be. */
#ifndef ARIL_ACTIVATION_H
#define ARIL_ACTIVATION_H

#include "aril/base.h"

ARIL_C_BEGIN

/* Those whose gradient follows from the result y alone, so that the value before it is not kept. */
typedef enum aril_activation {
    ARIL_NO_ACTIVATION = 0,
    ARIL_RELU,       /* max(a, 0); NaN stays NaN */
    ARIL_RELU6,      /* a held between 0 and 6 */
    ARIL_LEAKY_RELU, /* a where positive, else 0.01 * a */
    ARIL_SIGMOID,    /* 1 / (1 + exp(-a)) */
    ARIL_TANH,
} aril_activation;

ARIL_C_END

#endif
