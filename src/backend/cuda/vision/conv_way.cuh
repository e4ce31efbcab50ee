/* The ways in which libraries compute a convolution or a gradient of one, and choosing among
 * them. */
#ifndef ARIL_CUDA_CONV_WAY_CUH
#define ARIL_CUDA_CONV_WAY_CUH

#include "backend/cuda/vision/conv.cuh"
#include "backend/cuda/vision/conv_packed.cuh"
#include "backend/cuda/vision/conv_product.cuh"
#include "backend/cuda/vision/dnn_graph.cuh"

/* What is computed, with operands in one memory order. All are packed, but pixels of channels-last
 * inputs may be further apart than their channels, as in parts of a concatenation. */
struct aril_cuda_conv_task {
    aril_cuda_device *device;
    aril_cuda_conv d; /* without addresses */
    aril_dtype type;
    bool last;                /* channels-last, else contiguous */
    int spatial;              /* of cuDNN's graphs: 2 or 3 */
    int64_t end[3];           /* padding after the input, as cuDNN counts */
    int64_t x_pitch, y_pitch; /* channels-last: elements from one pixel to the next */
    bool library;             /* there is cuDNN, and it takes the padding */
    bool x_first; /* x is contiguous although `last` says otherwise: ways that can may read it */
};

enum aril_cuda_conv_kind {
    ARIL_CUDA_CONV_NONE,
    ARIL_CUDA_CONV_ENGINE,    /* of cuDNN */
    ARIL_CUDA_CONV_PACKED,    /* the same over a packed image */
    ARIL_CUDA_CONV_PRODUCT,   /* by cuBLASLt */
    ARIL_CUDA_CONV_DEPTHWISE, /* our own */
    ARIL_CUDA_CONV_WEIGHTS,
    ARIL_CUDA_CONV_IMPLICIT
};

/* Whether a fused engine computes that activation too. Not ReLU: cuDNN's makes 0 of NaN. */
bool aril_cuda_conv_activates(int activation);

struct aril_cuda_conv_way {
    aril_cuda_conv_kind kind;
    char name[224]; /* "cudnn e4,2=1", "cudnn fused e4", "packed 0 cudnn e4", "product 0", "own" */
    size_t workspace;
    bool fused; /* with bias, and an activation of aril_cuda_conv_activates; a pass over the result
                   does what is missing */
#ifdef ARIL_CUDA_CUDNN
    aril_cuda_dnn_plan plan;
#endif
    aril_cuda_conv_product product;
    aril_cuda_conv_packing packing;
    aril_cuda_conv_task packed; /* ENGINE's, of the packed image */
};

/* The way for addresses that are multiples of 16 bytes: the one that was recorded for this task;
 * else the fastest, which is then recorded, if tuning is on; else one that is likely to be fast.
 * False if there is none. */
bool aril_cuda_conv_choose(const aril_run *r, const aril_cuda_conv_task *t,
                           aril_cuda_conv_way *way);

/* A way for other addresses, with at most that much workspace. */
bool aril_cuda_conv_choose_unaligned(const aril_cuda_conv_task *t, size_t workspace,
                                     aril_cuda_conv_way *way);

/* Computes the result, with bias and activation. NULL, or why it failed. One thread at a time may
 * use a way. */
const char *aril_cuda_conv_way_run(const aril_run *r, const aril_cuda_conv_task *t,
                                   const aril_cuda_conv_way *way, const aril_cuda_conv &d,
                                   void *workspace);
void aril_cuda_conv_way_end(aril_cuda_conv_way *way);

#endif
