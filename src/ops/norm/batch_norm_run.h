/* The kernels of batch normalisation, with what may follow it: y = act(bn(x) + residual). */
#ifndef ARIL_OPS_BATCH_NORM_RUN_H
#define ARIL_OPS_BATCH_NORM_RUN_H

#include "ops/table/op.h"

/* One run. Large tensors are of one dtype and lie as [outer, channels, inner] without gaps:
 * channels last with inner = 1. Those with one value a channel are dense, of any dtype; NULL where
 * absent. */
typedef struct aril__bn {
    aril__device *device;
    aril_dtype type; /* of the large ones */
    int64_t outer, channels, inner;
    int64_t act;
    double eps;
    double factor;        /* of the new values in the running ones */
    const void *x;        /* [outer, channels, inner] */
    const void *residual; /* the same, or NULL */
    void *out;            /* y, or dx; y may be x */
    const void *g;        /* backward: the gradient of y */
    const void *y;        /* backward, with an activation: y, or, for relu, NULL: told by x */
    void *dresidual;      /* backward: the gradient before the activation, or NULL */
    const aril_tensor *weight, *bias;
    aril_tensor *mean;   /* forward: result; eval and backward: input */
    aril_tensor *invstd; /* 1 / sqrt(var + eps), as the mean; eval: the variance */
    aril_tensor *running_mean, *running_var, *dweight, *dbias;
} aril__bn;

/* By the statistics of x, which are results. */
aril_status aril__bn_forward(const aril__bn *j);

/* By given ones. */
aril_status aril__bn_eval(const aril__bn *j);

/* The gradient of the first. */
aril_status aril__bn_backward(const aril__bn *j);

#endif
