/* Normalization ops: attributes, and helpers shared by their rules. */
#ifndef ARIL_OPS_NORM_H
#define ARIL_OPS_NORM_H

#include "ops/table/element.h"
#include "ops/table/op.h"

#include <float.h>

/* Ops that other files name. */
extern const aril__op aril__op_batch_norm, aril__op_batch_norm_eval, aril__op_batch_norm_grad,
    aril__op_layer_norm, aril__op_layer_norm_grad, aril__op_local_response_norm;

/* cumulative: the running values are averages over all batches so far, and momentum is unused.
 * activation: an aril_activation applied to the sum of the result and the residual. */
#define BATCH_NORM_ATTRS(A)                          \
    A(batch_norm, F64, 1, momentum, 0.1, "momentum") \
    A(batch_norm, F64, 1, eps, 1e-5, "epsilon")      \
    A(batch_norm, I64, 1, cumulative, 0, NULL)       \
    A(batch_norm, I64, 1, activation, 0, NULL)
ATTRS(batch_norm, BATCH_NORM_ATTRS)

#define BATCH_NORM_EVAL_ATTRS(A)                     \
    A(batch_norm_eval, F64, 1, eps, 1e-5, "epsilon") \
    A(batch_norm_eval, I64, 1, activation, 0, NULL)
ATTRS(batch_norm_eval, BATCH_NORM_EVAL_ATTRS)

/* residual: whether its gradient is wanted, too. */
#define BATCH_NORM_GRAD_ATTRS(A)                    \
    A(batch_norm_grad, I64, 1, activation, 0, NULL) \
    A(batch_norm_grad, I64, 1, residual, 0, NULL)
ATTRS(batch_norm_grad, BATCH_NORM_GRAD_ATTRS)

/* Statistics over the last `axes` dimensions. */
#define LAYER_NORM_ATTRS(A) \
    A(layer_norm, I64, 1, axes, 1, NULL) A(layer_norm, F64, 1, eps, 1e-5, "epsilon")
ATTRS(layer_norm, LAYER_NORM_ATTRS)

/* groups 0: one per channel. */
#define GROUP_NORM_ATTRS(A) \
    A(group_norm, I64, 1, groups, 1, "num_groups") A(group_norm, F64, 1, eps, 1e-5, "epsilon")
ATTRS(group_norm, GROUP_NORM_ATTRS)

/* eps below 0: the machine epsilon of the type computed in. */
#define RMS_NORM_ATTRS(A) A(rms_norm, I64, 1, axes, 1, NULL) A(rms_norm, F64, 1, eps, -1, "epsilon")
ATTRS(rms_norm, RMS_NORM_ATTRS)

static inline int64_t aril__groups_of(const struct group_norm_attrs *a, const aril_tensor *x)
{
    return a->groups[0] ? a->groups[0] : x->dim[1];
}

static inline double aril__rms_norm_eps(const struct rms_norm_attrs *a, aril_dtype type)
{
    return a->eps[0] >= 0 ? a->eps[0] : type == ARIL_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
}

/* Over `size` adjacent channels. */
#define LOCAL_RESPONSE_NORM_ATTRS(A)                     \
    A(local_response_norm, I64, 1, size, 5, "size")      \
    A(local_response_norm, F64, 1, alpha, 1e-4, "alpha") \
    A(local_response_norm, F64, 1, beta, 0.75, "beta")   \
    A(local_response_norm, F64, 1, k, 1, "bias")
ATTRS(local_response_norm, LOCAL_RESPONSE_NORM_ATTRS)

/* Statistics of f16 and bf16 are f32. */
static inline aril_dtype aril__stat_dtype(const aril_tensor *x)
{
    return x->dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
}

/* For references: element i of a parameter that may be absent. */
static inline double aril__param_at(const aril_tensor *p, int64_t i, double absent)
{
    return p ? aril__get(p, i) : absent;
}

/* Checks an optional per-channel parameter: [size], of x's dtype, or f32 for f16 and bf16. `name`
 * is the parameter's name in the message. */
aril_status aril__norm_param(const aril__call *c, int i, const char *name, int64_t size);

/* Reshapes v, [C], to [C,1,...], which broadcasts over the channels of a tensor of ndim
 * dimensions. */
aril_tensor *aril__norm_channels(aril_tensor *v, int ndim);

/* x summed over all axes except the channels: [C]. */
aril_tensor *aril__norm_sum_channels(aril_tensor *x);

/* An option whose value 0 means its default; ARIL_ZERO sets it to 0. */
static inline double aril__or_default(double value, double initial)
{
    return value == 0 ? initial : value == ARIL_ZERO ? 0 : value;
}

#endif
