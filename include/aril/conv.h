/* Convolution, pooling, and other ops on pictures: [N,C,spatial...] with one to three spatial
 * dimensions. A tensor without the batch dimension, [C,spatial...], is taken as a batch of one, and
 * the result has none either. */
#ifndef ARIL_CONV_H
#define ARIL_CONV_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- convolution ---- */

/* Where the padding of a convolution or pooling comes from. */
typedef enum aril_padding {
    ARIL_NUMBERS = 0, /* `padding` and `padding_end` */
    ARIL_VALID,       /* none */
    ARIL_SAME,        /* as much as gives ceil(size / stride) results; an odd one goes to the end */
    ARIL_SAME_LOWER,  /* the same with an odd one at the beginning */
} aril_padding;

/* Numbers stand for the spatial dimensions in order. In `stride` and `dilation` a 0 repeats the
 * first number, and a first 0 means 1. Padding is taken as it stands. */
typedef struct aril_conv_opts {
    int64_t stride[3];
    int64_t padding[3];     /* before and after */
    int64_t padding_end[3]; /* after, where it differs from before (ARIL_ZERO: none) */
    int64_t dilation[3];
    int64_t groups; /* 0: 1 */
    aril_padding mode;
    int64_t output_padding[3]; /* transposed convolution: more elements at the end */
} aril_conv_opts;

/* y[n,k,o] = b[k] + sum over c and kernel positions q of x[n, c, o * stride - padding + q * dilation]
 * * w[k,c,q]. x [N,C,in...], w [K,C/groups,kernel...], b [K] or NULL -> [N,K,out...] with
 * out = floor((in + padding - dilation * (kernel - 1) - 1) / stride) + 1 (padding: both ends). The
 * result is channels-last where x is. Fails where the channels do not fit, groups do not divide, or
 * the kernel is larger than the padded input. */
ARIL_API aril_tensor *aril_conv1d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                  aril_conv_opts opts);
ARIL_API aril_tensor *aril_conv2d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                  aril_conv_opts opts);
ARIL_API aril_tensor *aril_conv3d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                  aril_conv_opts opts);

/* The transpose of that map: each element of x is spread over a window. x [N,C,in...],
 * w [C,K/groups,kernel...], b [K] or NULL -> [N,K,out...] with
 * out = (in - 1) * stride - padding + dilation * (kernel - 1) + 1 + output_padding. */
ARIL_API aril_tensor *aril_conv_transpose1d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                            aril_conv_opts opts);
ARIL_API aril_tensor *aril_conv_transpose2d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                            aril_conv_opts opts);
ARIL_API aril_tensor *aril_conv_transpose3d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                            aril_conv_opts opts);

/* ---- pooling ---- */

/* `kernel` has to be given; a 0 behind its first number repeats it. `stride` 0 means the kernel. */
typedef struct aril_pool_opts {
    int64_t kernel[3];
    int64_t stride[3];
    int64_t padding[3];     /* before and after */
    int64_t padding_end[3]; /* after, where it differs from before (ARIL_ZERO: none) */
    int64_t dilation[3];
    aril_padding mode;
    bool ceil_mode;         /* windows that hang over the end count, if they begin inside */
    bool count_exclude_pad; /* avg: padding does not count in the divisor */
    int64_t divisor;        /* avg: divides the sum; 0: the number of elements */
} aril_pool_opts;

/* The largest element of each window; NaN wins. `indices` (i64, NULL: not wanted) gets where it
 * stood, counted through the spatial dimensions of its picture. x [N,C,in...] -> [N,C,out...]. */
ARIL_API aril_tensor *aril_max_pool1d(aril_tensor *x, aril_pool_opts opts, aril_tensor **indices);
ARIL_API aril_tensor *aril_max_pool2d(aril_tensor *x, aril_pool_opts opts, aril_tensor **indices);
ARIL_API aril_tensor *aril_max_pool3d(aril_tensor *x, aril_pool_opts opts, aril_tensor **indices);

/* The mean of each window. */
ARIL_API aril_tensor *aril_avg_pool1d(aril_tensor *x, aril_pool_opts opts);
ARIL_API aril_tensor *aril_avg_pool2d(aril_tensor *x, aril_pool_opts opts);
ARIL_API aril_tensor *aril_avg_pool3d(aril_tensor *x, aril_pool_opts opts);

/* (sum over each window of x^p)^(1/p) */
ARIL_API aril_tensor *aril_lp_pool1d(aril_tensor *x, double p, aril_pool_opts opts);
ARIL_API aril_tensor *aril_lp_pool2d(aril_tensor *x, double p, aril_pool_opts opts);
ARIL_API aril_tensor *aril_lp_pool3d(aril_tensor *x, double p, aril_pool_opts opts);

/* Pooling to a given number of results for each spatial dimension (-1: as many as there are
 * elements): window i covers floor(i * in / out) to ceil((i + 1) * in / out). */
ARIL_API aril_tensor *aril_adaptive_avg_pool1d(aril_tensor *x, aril_shape size);
ARIL_API aril_tensor *aril_adaptive_avg_pool2d(aril_tensor *x, aril_shape size);
ARIL_API aril_tensor *aril_adaptive_avg_pool3d(aril_tensor *x, aril_shape size);
ARIL_API aril_tensor *aril_adaptive_max_pool1d(aril_tensor *x, aril_shape size,
                                               aril_tensor **indices);
ARIL_API aril_tensor *aril_adaptive_max_pool2d(aril_tensor *x, aril_shape size,
                                               aril_tensor **indices);
ARIL_API aril_tensor *aril_adaptive_max_pool3d(aril_tensor *x, aril_shape size,
                                               aril_tensor **indices);

/* Over everything but batch and channels: [N,C,spatial...] -> [N,C,1...]. */
ARIL_API aril_tensor *aril_global_avg_pool(aril_tensor *x);
ARIL_API aril_tensor *aril_global_max_pool(aril_tensor *x);

/* Elements put back where max pooling found them, and 0 elsewhere. `size` are the spatial sizes of
 * the result (no dimensions: (in - 1) * stride - padding + kernel). An index outside the result is
 * an error. */
ARIL_API aril_tensor *aril_max_unpool1d(aril_tensor *x, aril_tensor *indices, aril_shape size,
                                        aril_pool_opts opts);
ARIL_API aril_tensor *aril_max_unpool2d(aril_tensor *x, aril_tensor *indices, aril_shape size,
                                        aril_pool_opts opts);
ARIL_API aril_tensor *aril_max_unpool3d(aril_tensor *x, aril_tensor *indices, aril_shape size,
                                        aril_pool_opts opts);

ARIL_C_END

#endif
