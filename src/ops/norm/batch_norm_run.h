/* Kernels of batch normalization, with an optional residual and activation: y = act(bn(x) +
 * residual). */
#ifndef ARIL_OPS_BATCH_NORM_RUN_H
#define ARIL_OPS_BATCH_NORM_RUN_H

#include "ops/table/op.h"

/* One run. Large tensors share one dtype and are packed as [outer, channels, inner]; channels-last
 * means inner = 1. Per-channel tensors are contiguous, of any dtype; NULL if absent. */
typedef struct aril__bn {
    aril__device *device;
    aril_dtype type; /* of the large tensors */
    int64_t outer, channels, inner;
    int64_t act;
    double eps;
    double factor;        /* weight of the batch statistics in the running values */
    const void *x;        /* [outer, channels, inner] */
    const void *residual; /* same layout, or NULL */
    void *out;            /* y, or dx; y may be x */
    const void *g;        /* backward: the gradient of y */
    const void *y;        /* backward, with an activation: y, or NULL for relu: recomputed from x */
    void *dresidual;      /* backward: the gradient before the activation, or NULL */
    const aril_tensor *weight, *bias;
    aril_tensor *mean;   /* forward: result; eval and backward: input */
    aril_tensor *invstd; /* 1 / sqrt(var + eps), like the mean; eval: the variance */
    aril_tensor *running_mean, *running_var, *dweight, *dbias;
} aril__bn;

/* Normalizes with the statistics of x, which are results. */
aril_status aril__bn_forward(const aril__bn *j);

/* Normalizes with given statistics. */
aril_status aril__bn_eval(const aril__bn *j);

/* The gradient of aril__bn_forward. */
aril_status aril__bn_backward(const aril__bn *j);

#endif
