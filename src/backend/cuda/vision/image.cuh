/* Tensors [N,C,spatial...] as images of three spatial dimensions, and walking over their
 * elements. */
#ifndef ARIL_CUDA_IMAGE_CUH
#define ARIL_CUDA_IMAGE_CUH

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/loops.cuh"

/* Sizes and strides padded to three spatial dimensions: missing ones come first, with size 1. */
struct aril_cuda_image {
    int64_t dim[5], stride[5];
    void *data;
};

static inline aril_cuda_image aril_cuda_image_of(const aril_tensor *t)
{
    aril_cuda_image m;
    const int64_t *dim = aril_cuda_host->dims(t), *stride = aril_cuda_host->strides(t);
    int lead = 5 - aril_cuda_host->ndim(t);
    for (int i = 0; i < 5; i++) {
        bool there = i < 2 || i >= 2 + lead;
        int from = i < 2 ? i : i - lead;
        m.dim[i] = there ? dim[from] : 1;
        m.stride[i] = there ? stride[from] : 0;
    }
    m.data = nullptr;
    return m;
}

/* The same with the address of its elements: in `run` only, as a result has no memory before. */
static inline aril_cuda_image aril_cuda_image_at(const aril_tensor *t)
{
    aril_cuda_image m = aril_cuda_image_of(t);
    m.data = aril_cuda_data(t);
    return m;
}

static inline int64_t aril_cuda_area(const aril_cuda_image &m)
{
    return m.dim[2] * m.dim[3] * m.dim[4];
}

/* Whether channels are adjacent in memory, so that threads should follow them. */
static inline bool aril_cuda_channels_inner(const aril_cuda_image &m)
{
    return m.dim[1] > 1 && m.stride[1] == 1 && aril_cuda_area(m) > 1;
}

/* Whether V adjacent elements along dimension `by` are an aligned vector wherever they begin at a
 * multiple of V. */
static inline bool aril_cuda_in_vectors(const aril_cuda_image &m, int by, int V, int bytes)
{
    if (m.stride[by] != 1 || m.dim[by] % V || (uintptr_t)m.data % ((size_t)V * bytes)) return false;
    for (int d = 0; d < 5; d++)
        if (d != by && m.dim[d] > 1 && m.stride[d] % V) return false;
    return true;
}

/* From a position to its indices, in the memory order of an image. */
struct aril_cuda_walk {
    aril_cuda_divisor c, d0, d1, d2;
    bool inner; /* channels are innermost */

    __device__ __forceinline__ void split(uint32_t i, uint32_t *n, uint32_t *channel,
                                          uint32_t o[3]) const
    {
        if (inner) i = c.split(i, channel);
        i = d2.split(i, &o[2]);
        i = d1.split(i, &o[1]);
        i = d0.split(i, &o[0]);
        if (!inner) i = c.split(i, channel);
        *n = i;
    }
};

/* Of some channels of an image. */
static inline aril_cuda_walk aril_cuda_walk_of(const aril_cuda_image &m, int64_t channels)
{
    return { aril_cuda_divisor_of(channels), aril_cuda_divisor_of(m.dim[2]),
             aril_cuda_divisor_of(m.dim[3]), aril_cuda_divisor_of(m.dim[4]),
             aril_cuda_channels_inner(m) };
}

/* A part of the samples and channels of an op that works on each image alone. */
struct aril_cuda_part {
    int64_t n0, n, c0, c;
};

/* Calls f(part) for parts in which at most `most` elements are in images of `area` elements: almost
 * always there is one. Stops at the first negative status. */
template <typename F>
static inline aril_status aril_cuda_each_part(int64_t n, int64_t c, int64_t area, int64_t most,
                                              F &&f)
{
    int64_t c_step = c, n_step = n;
    if (n == 0 || c == 0 || area == 0) return ARIL_OK;
    if (c * area > most) {
        n_step = 1;
        c_step = most / area < 1 ? 1 : most / area;
    } else if (n * c * area > most) {
        n_step = most / (c * area);
    }
    for (int64_t n0 = 0; n0 < n; n0 += n_step)
        for (int64_t c0 = 0; c0 < c; c0 += c_step) {
            aril_cuda_part p = { n0, n - n0 < n_step ? n - n0 : n_step, c0,
                                 c - c0 < c_step ? c - c0 : c_step };
            aril_status s = f(p);
            if (s < 0) return s;
        }
    return ARIL_OK;
}

/* The most positions of an image that kernels count, in 32 bits. */
enum { ARIL_CUDA_MAX_POSITIONS = INT32_MAX };

/* The address of a part, for kernels that count from its first sample and channel. */
static inline void *aril_cuda_part_of(const aril_cuda_image &m, const aril_cuda_part &p, int bytes)
{
    return static_cast<char *>(m.data) + (p.n0 * m.stride[0] + p.c0 * m.stride[1]) * bytes;
}

/* For prepare: NULL, or why images are too large for 32-bit positions. */
static inline const char *aril_cuda_image_fits(const aril_tensor *t)
{
    return aril_cuda_area(aril_cuda_image_of(t)) <= ARIL_CUDA_MAX_POSITIONS
               ? nullptr
               : "an image of 2^31 elements";
}

#endif
