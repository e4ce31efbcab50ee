/* Convolution, pooling, and other ops on images: [N,C,spatial...] with one to three spatial
 * dimensions. A tensor without the batch dimension, [C,spatial...], is taken as a batch of one, and
 * the result has none either. */
#ifndef ARIL_CONV_H
#define ARIL_CONV_H

#include "aril/activation.h"
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

/* Numbers stand for the spatial dimensions in order. A 0 behind the first repeats it, so {1} is 1
 * for all; ARIL_ZERO is a 0 that does not. A first stride or dilation of 0 means 1. */
typedef struct aril_conv_opts {
    int64_t stride[3];
    int64_t padding[3];     /* before and after */
    int64_t padding_end[3]; /* after, where it differs from before (ARIL_ZERO: none) */
    int64_t dilation[3];
    int64_t groups; /* 0: 1 */
    aril_padding mode;
    int64_t output_padding[3];  /* transposed convolution: more elements at the end */
    aril_activation activation; /* of the result, made where the result is; 0: none */
} aril_conv_opts;

/* The convolution of x with the weights w:
 *     y[n,k,o] = activation(b[k] + sum over c and kernel positions q of
 *                           x[n, c, o * stride - padding + q * dilation] * w[k,c,q])
 * x [N,C,in...], w [K,C/groups,kernel...], b [K] or NULL -> [N,K,out...] with
 * out = floor((in + padding - dilation * (kernel - 1) - 1) / stride) + 1 (padding: both ends). The
 * result is channels-last where x is, and on the CPU wherever that is faster (aril_contiguous gives
 * the plain order). Fails where the channels do not fit, groups do not divide, or the kernel is
 * larger than the padded input. */
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

/* Numbers as in aril_conv_opts. `kernel` has to be given; a first stride of 0 means the kernel. */
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
 * stood, counted through the spatial dimensions of its image. x [N,C,in...] -> [N,C,out...]. */
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

/* ---- windows as columns ---- */

/* The windows of a image, each as a column: [N,C,H,W] -> [N, C * kernel, positions]. Of the
 * options kernel, stride (0: 1), padding and dilation count. */
ARIL_API aril_tensor *aril_unfold(aril_tensor *x, aril_pool_opts opts);

/* The reverse: columns added up where their windows lay, in a image of height and width
 * `size`. */
ARIL_API aril_tensor *aril_fold(aril_tensor *columns, aril_shape size, aril_pool_opts opts);

/* ---- other sizes ---- */

typedef enum aril_interpolation {
    ARIL_NEAREST = 0,
    ARIL_NEAREST_EXACT, /* of the pixels' middles */
    ARIL_LINEAR,        /* bilinear and trilinear with more dimensions */
    ARIL_CUBIC,         /* with -0.75, as PyTorch's bicubic */
    ARIL_AREA,          /* the mean of what a pixel covers: adaptive average pooling */
} aril_interpolation;

/* A size or a scale for each spatial dimension; a scale of 0 repeats the first. */
typedef struct aril_interpolate_opts {
    int64_t size[3];
    double scale[3];
    aril_interpolation mode;
    bool align_corners; /* the middles of the corner pixels stay where they are */
    bool antialias;     /* linear and cubic: smoothed when made smaller */
} aril_interpolate_opts;

/* x [N,C,spatial...] at another size: floor(size * scale) where a scale is given. */
ARIL_API aril_tensor *aril_interpolate(aril_tensor *x, aril_interpolate_opts opts);

/* [..., C * r * r, H, W] -> [..., C, H * r, W * r], and back. */
ARIL_API aril_tensor *aril_pixel_shuffle(aril_tensor *x, int64_t factor);
ARIL_API aril_tensor *aril_pixel_unshuffle(aril_tensor *x, int64_t factor);

/* Channels of `groups` groups dealt out in turn. [N,C,...] -> the same */
ARIL_API aril_tensor *aril_channel_shuffle(aril_tensor *x, int64_t groups);

/* A grid of places (x, y), or (x, y, z), from -1 to 1 for the pixels of a result of the given size
 * [N,C,H,W] (or [N,C,D,H,W]), each moved by the matrix theta [N,2,3] (or [N,3,4])
 * -> [N,H,W,2] (or [N,D,H,W,3]). */
ARIL_API aril_tensor *aril_affine_grid(aril_tensor *theta, aril_shape size, bool align_corners);

typedef enum aril_grid_mode {
    ARIL_GRID_BILINEAR = 0,
    ARIL_GRID_NEAREST,
    ARIL_GRID_BICUBIC,
} aril_grid_mode;

/* What is read outside the image. */
typedef enum aril_grid_padding {
    ARIL_GRID_ZEROS = 0,
    ARIL_GRID_BORDER,     /* the nearest pixel of the edge */
    ARIL_GRID_REFLECTION, /* the image mirrored at its edges */
} aril_grid_padding;

typedef struct aril_grid_opts {
    aril_grid_mode mode;
    aril_grid_padding padding;
    bool align_corners; /* -1 and 1 are the middles of the corner pixels, not their outer edges */
} aril_grid_opts;

/* x [N,C,H,W] read at places (x, y) of the grid [N,h,w,2], from -1 to 1 -> [N,C,h,w]. */
ARIL_API aril_tensor *aril_grid_sample(aril_tensor *x, aril_tensor *grid, aril_grid_opts opts);

/* ---- across channels ---- */

typedef struct aril_lrn_opts {
    double alpha; /* 0: 1e-4 */
    double beta;  /* 0: 0.75 */
    double k;     /* 0: 1; ARIL_ZERO: none */
} aril_lrn_opts;

/* x / (k + alpha * mean of the squares of `size` neighbouring channels)^beta. [N,C,...] */
ARIL_API aril_tensor *aril_local_response_norm(aril_tensor *x, int64_t size, aril_lrn_opts opts);

ARIL_C_END

#endif
