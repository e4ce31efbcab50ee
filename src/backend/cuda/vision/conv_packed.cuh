/* Convolutions of images with few channels, on tensor cores (16 bits, TF32): the image is packed so
 * that places in the kernel become channels. */
#ifndef ARIL_CUDA_CONV_PACKED_CUH
#define ARIL_CUDA_CONV_PACKED_CUH

#include "backend/cuda/vision/conv.cuh"

/* Pixel (i, j) of the packed image has channels (a, b, c), a < high, b < wide, with the elements
 * (i step_h + a, j step_w + b, c) of the padded image: all elements once (blocks as large as the
 * stride), or for each column of y its part of every row (lines). */
struct aril_cuda_conv_packing {
    int32_t high, wide, step_h, step_w;
    int32_t pad_h, pad_w;
    int32_t c, h, w, kernel_h, kernel_w; /* of x and the weights */
    /* Packed: channels in vectors of 16 bytes. */
    int32_t channels, packed_h, packed_w, taps_h, taps_w;
    int32_t element; /* bytes */
    int64_t samples, k;
    int64_t stride[4]; /* of x: sample, channel, row, column */
    size_t x_bytes, w_bytes;
};

enum { ARIL_CUDA_CONV_PACKINGS = 2 }; /* blocks, lines */

/* The convolution of the packed image and weights, channels-last, as `inner`; false if packing does
 * not suit it. x is channels-last, or contiguous if `contiguous`. */
bool aril_cuda_conv_pack(const aril_cuda_conv &d, aril_dtype type, bool contiguous, int which,
                         aril_cuda_conv_packing *p, aril_cuda_conv *inner);

/* Weights are channels-last. */
void aril_cuda_conv_pack_image(const aril_run *r, const aril_cuda_conv_packing *p, const void *x,
                               void *packed);
void aril_cuda_conv_pack_weights(const aril_run *r, const aril_cuda_conv_packing *p, const void *w,
                                 void *packed);
void aril_cuda_conv_unpack_weights(const aril_run *r, const aril_cuda_conv_packing *p,
                                   const void *packed, void *w);

#endif
