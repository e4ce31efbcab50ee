/* Activations that another op can fuse into its result: convolution, linear and batch_norm take one
 * in their options, which saves the extra pass over memory of a separate call. */
#ifndef ARIL_ACTIVATION_H
#define ARIL_ACTIVATION_H

#include "aril/base.h"

ARIL_C_BEGIN

/* Only activations whose gradient can be computed from the result y alone, so that the input need
 * not be saved. */
typedef enum aril_activation {
    ARIL_NO_ACTIVATION = 0,
    ARIL_RELU,       /* max(a, 0); NaN stays NaN */
    ARIL_RELU6,      /* a clamped to 0..6 */
    ARIL_LEAKY_RELU, /* a where positive, else 0.01 * a */
    ARIL_SIGMOID,    /* 1 / (1 + exp(-a)) */
    ARIL_TANH,
} aril_activation;

ARIL_C_END

#endif
