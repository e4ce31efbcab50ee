/* Convolution, pooling, and other ops on images: [N,C,spatial...] with one to three spatial
 * dimensions. An unbatched tensor, [C,spatial...], is treated as a batch of one, and the result is
 * unbatched too. */
#ifndef ARIL_CONV_H
#define ARIL_CONV_H

#include "aril/activation.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- convolution ---- */

/* How the padding of a convolution or pooling is chosen. */
typedef enum aril_padding {
    ARIL_NUMBERS = 0, /* `padding` and `padding_end` */
    ARIL_VALID,       /* none */
    ARIL_SAME,        /* output size ceil(size / stride); odd padding has its extra element at the
                         end */
    ARIL_SAME_LOWER,  /* the same with the extra element at the beginning */
} aril_padding;

/* Arrays have one entry for each spatial dimension, in order. A 0 after the first entry repeats the
 * first, so {1} is 1 for all; ARIL_ZERO is an actual 0. Stride and dilation default to 1. */
typedef struct aril_conv_opts {
    int64_t stride[3];
    int64_t padding[3];     /* before and after */
    int64_t padding_end[3]; /* after, where it differs from before (ARIL_ZERO: none) */
    int64_t dilation[3];
    int64_t groups; /* default 1 */
    aril_padding mode;
    int64_t output_padding[3];  /* transposed convolution: extra elements at the end */
    aril_activation activation; /* fused into the result; 0: none */
} aril_conv_opts;

/* The convolution of x with the weights w:
 *     y[n,k,o] = activation(b[k] + sum over c and kernel positions q of
 *                           x[n, c, o * stride - padding + q * dilation] * w[k,c,q])
 * x [N,C,in...], w [K,C/groups,kernel...], b [K] or NULL -> [N,K,out...] with out = floor((in +
 * padding - dilation * (kernel - 1) - 1) / stride) + 1 (padding: both ends). The result is
 * channels-last if x is, and on the CPU also when that is faster (aril_contiguous makes it
 * contiguous). Fails if the channels do not match, groups do not divide them, or the kernel is
 * larger than the padded input. */
ARIL_API aril_tensor *aril_conv1d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                  aril_conv_opts opts);
ARIL_API aril_tensor *aril_conv2d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                  aril_conv_opts opts);
ARIL_API aril_tensor *aril_conv3d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                  aril_conv_opts opts);

/* Transposed convolution, the gradient of convolution with respect to its input: each element of x
 * is spread over a window. x [N,C,in...], w [C,K/groups,kernel...], b [K] or NULL -> [N,K,out...]
 * with out = (in - 1) * stride - padding + dilation * (kernel - 1) + 1 + output_padding. */
ARIL_API aril_tensor *aril_conv_transpose1d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                            aril_conv_opts opts);
ARIL_API aril_tensor *aril_conv_transpose2d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                            aril_conv_opts opts);
ARIL_API aril_tensor *aril_conv_transpose3d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                            aril_conv_opts opts);

/* ---- pooling ---- */

/* Arrays as in aril_conv_opts. `kernel` is required; the stride defaults to the kernel size. */
typedef struct aril_pool_opts {
    int64_t kernel[3];
    int64_t stride[3];
    int64_t padding[3];     /* before and after */
    int64_t padding_end[3]; /* after, where it differs from before (ARIL_ZERO: none) */
    int64_t dilation[3];
    aril_padding mode;
    bool ceil_mode;         /* also use windows that extend past the end, if they begin inside */
    bool count_exclude_pad; /* avg: exclude padding from the divisor */
    int64_t divisor;        /* avg: divisor of the sum; 0: the number of elements */
} aril_pool_opts;

/* Max pooling: the largest element of each window; NaN propagates. `indices` (i64, may be NULL)
 * receives its index in the flattened spatial dimensions of the input. x [N,C,in...] ->
 * [N,C,out...]. */
ARIL_API aril_tensor *aril_max_pool1d(aril_tensor *x, aril_pool_opts opts, aril_tensor **indices);
ARIL_API aril_tensor *aril_max_pool2d(aril_tensor *x, aril_pool_opts opts, aril_tensor **indices);
ARIL_API aril_tensor *aril_max_pool3d(aril_tensor *x, aril_pool_opts opts, aril_tensor **indices);

/* Average pooling: the mean of each window. */
ARIL_API aril_tensor *aril_avg_pool1d(aril_tensor *x, aril_pool_opts opts);
ARIL_API aril_tensor *aril_avg_pool2d(aril_tensor *x, aril_pool_opts opts);
ARIL_API aril_tensor *aril_avg_pool3d(aril_tensor *x, aril_pool_opts opts);

/* (sum over each window of x^p)^(1/p) */
ARIL_API aril_tensor *aril_lp_pool1d(aril_tensor *x, double p, aril_pool_opts opts);
ARIL_API aril_tensor *aril_lp_pool2d(aril_tensor *x, double p, aril_pool_opts opts);
ARIL_API aril_tensor *aril_lp_pool3d(aril_tensor *x, double p, aril_pool_opts opts);

/* Adaptive pooling to a given output size for each spatial dimension (-1: the input size): window i
 * covers floor(i * in / out) to ceil((i + 1) * in / out). */
ARIL_API aril_tensor *aril_adaptive_avg_pool1d(aril_tensor *x, aril_shape size);
ARIL_API aril_tensor *aril_adaptive_avg_pool2d(aril_tensor *x, aril_shape size);
ARIL_API aril_tensor *aril_adaptive_avg_pool3d(aril_tensor *x, aril_shape size);
ARIL_API aril_tensor *aril_adaptive_max_pool1d(aril_tensor *x, aril_shape size,
                                               aril_tensor **indices);
ARIL_API aril_tensor *aril_adaptive_max_pool2d(aril_tensor *x, aril_shape size,
                                               aril_tensor **indices);
ARIL_API aril_tensor *aril_adaptive_max_pool3d(aril_tensor *x, aril_shape size,
                                               aril_tensor **indices);

/* Global pooling over all spatial dimensions: [N,C,spatial...] -> [N,C,1...]. */
ARIL_API aril_tensor *aril_global_avg_pool(aril_tensor *x);
ARIL_API aril_tensor *aril_global_max_pool(aril_tensor *x);

/* Inverse of max pooling: elements go back to the indices they came from, with 0 elsewhere. `size`
 * holds the spatial sizes of the result (no dimensions: (in - 1) * stride - padding + kernel). An
 * index outside the result is an error. */
ARIL_API aril_tensor *aril_max_unpool1d(aril_tensor *x, aril_tensor *indices, aril_shape size,
                                        aril_pool_opts opts);
ARIL_API aril_tensor *aril_max_unpool2d(aril_tensor *x, aril_tensor *indices, aril_shape size,
                                        aril_pool_opts opts);
ARIL_API aril_tensor *aril_max_unpool3d(aril_tensor *x, aril_tensor *indices, aril_shape size,
                                        aril_pool_opts opts);

/* ---- unfold and fold (im2col, col2im) ---- */

/* im2col: the sliding windows of an image, each as a column: [N,C,H,W] -> [N, C * kernel,
 * positions]. Uses the options kernel, stride (default 1), padding and dilation. */
ARIL_API aril_tensor *aril_unfold(aril_tensor *x, aril_pool_opts opts);

/* col2im: sums the columns into the windows they came from, in an image of height and width
 * `size`. */
ARIL_API aril_tensor *aril_fold(aril_tensor *columns, aril_shape size, aril_pool_opts opts);

/* ---- resizing ---- */

typedef enum aril_interpolation {
    ARIL_NEAREST = 0,
    ARIL_NEAREST_EXACT, /* nearest to the pixel centers */
    ARIL_LINEAR,        /* bilinear and trilinear with more dimensions */
    ARIL_CUBIC,         /* bicubic with a = -0.75, as in PyTorch */
    ARIL_AREA,          /* the mean of the area a pixel covers: adaptive average pooling */
} aril_interpolation;

/* An output size or a scale factor for each spatial dimension; a scale of 0 repeats the first. */
typedef struct aril_interpolate_opts {
    int64_t size[3];
    double scale[3];
    aril_interpolation mode;
    bool align_corners; /* align the centers of the corner pixels */
    bool antialias;     /* linear and cubic: antialias when downsampling */
} aril_interpolate_opts;

/* Resizes x [N,C,spatial...] to the given size, or to floor(size * scale) where a scale is
 * given. */
ARIL_API aril_tensor *aril_interpolate(aril_tensor *x, aril_interpolate_opts opts);

/* [..., C * r * r, H, W] -> [..., C, H * r, W * r], and back. */
ARIL_API aril_tensor *aril_pixel_shuffle(aril_tensor *x, int64_t factor);
ARIL_API aril_tensor *aril_pixel_unshuffle(aril_tensor *x, int64_t factor);

/* Interleaves the channels of `groups` groups. [N,C,...] -> same shape */
ARIL_API aril_tensor *aril_channel_shuffle(aril_tensor *x, int64_t groups);

/* A sampling grid for aril_grid_sample: coordinates (x, y), or (x, y, z), from -1 to 1 for the
 * pixels of a result of the given size [N,C,H,W] (or [N,C,D,H,W]), transformed by the affine matrix
 * theta [N,2,3] (or [N,3,4]) -> [N,H,W,2] (or [N,D,H,W,3]). */
ARIL_API aril_tensor *aril_affine_grid(aril_tensor *theta, aril_shape size, bool align_corners);

typedef enum aril_grid_mode {
    ARIL_GRID_BILINEAR = 0,
    ARIL_GRID_NEAREST,
    ARIL_GRID_BICUBIC,
} aril_grid_mode;

/* The values sampled outside the image. */
typedef enum aril_grid_padding {
    ARIL_GRID_ZEROS = 0,
    ARIL_GRID_BORDER,     /* the nearest edge pixel */
    ARIL_GRID_REFLECTION, /* the image mirrored at its edges */
} aril_grid_padding;

typedef struct aril_grid_opts {
    aril_grid_mode mode;
    aril_grid_padding padding;
    bool align_corners; /* -1 and 1 are the centers of the corner pixels, not their outer edges */
} aril_grid_opts;

/* Samples x [N,C,H,W] at the coordinates (x, y) of the grid [N,h,w,2], from -1 to 1 ->
 * [N,C,h,w]. */
ARIL_API aril_tensor *aril_grid_sample(aril_tensor *x, aril_tensor *grid, aril_grid_opts opts);

/* ---- across channels ---- */

typedef struct aril_lrn_opts {
    double alpha; /* default 1e-4 */
    double beta;  /* default 0.75 */
    double k;     /* default 1; ARIL_ZERO: none */
} aril_lrn_opts;

/* x / (k + alpha * mean of the squares of `size` adjacent channels)^beta. [N,C,...] */
ARIL_API aril_tensor *aril_local_response_norm(aril_tensor *x, int64_t size, aril_lrn_opts opts);

ARIL_C_END

#endif
