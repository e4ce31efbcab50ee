/* A strided tensor and a set of its axes as two nested loops: over the results (the axes kept) and
 * over the elements of each result (the axes reduced). How the work is cut depends on sizes alone,
 * so results are the same on every device. */
#ifndef ARIL_CUDA_REDUCE_LAYOUT_CUH
#define ARIL_CUDA_REDUCE_LAYOUT_CUH

#include "backend/cuda/launch.cuh"
#include "backend/cuda/loops.cuh"

enum { ARIL_CUDA_AXES_OPERANDS = 3 };

/* Nested loops on the device, innermost dimension first, with the strides of each operand in
 * elements. */
struct aril_cuda_axes {
    int ndim;
    bool wide; /* positions of 31 bits do not suffice */
    int64_t count;
    aril_cuda_divisor by[ARIL_MAX_DIMS];
    int64_t dim[ARIL_MAX_DIMS];
    int64_t stride[ARIL_CUDA_AXES_OPERANDS][ARIL_MAX_DIMS];

    /* The offsets of the first N operands at position i. */
    template <int N> __device__ __forceinline__ void offsets(int64_t i, int64_t (&at)[N]) const
    {
#pragma unroll
        for (int k = 0; k < N; k++) at[k] = 0;
        uint32_t narrow = (uint32_t)i;
#pragma unroll 1
        for (int d = 0; d < ndim - 1; d++) {
            int64_t rest;
            if (wide) {
                rest = i % dim[d];
                i /= dim[d];
            } else {
                uint32_t r;
                narrow = by[d].split(narrow, &r);
                rest = r;
            }
#pragma unroll
            for (int k = 0; k < N; k++) at[k] += rest * stride[k][d];
        }
        int64_t last = wide ? i : (int64_t)narrow;
        if (ndim > 0) {
#pragma unroll
            for (int k = 0; k < N; k++) at[k] += last * stride[k][ndim - 1];
        }
    }
    __device__ __forceinline__ int64_t offset(int64_t i) const
    {
        int64_t at[1];
        if (ndim <= 1) return i * stride[0][0];
        offsets<1>(i, at);
        return at[0];
    }
};

/* The same on the host, outermost dimension first, while it is put together. */
struct aril_cuda_dims {
    int ndim;
    int64_t dim[ARIL_MAX_DIMS];
    int64_t stride[ARIL_CUDA_AXES_OPERANDS][ARIL_MAX_DIMS];
};

/* Drops dimensions of size 1 and merges adjacent ones; `sorted`: by the strides of operand 0 first,
 * largest first, where the order of positions does not matter. */
void aril_cuda_dims_merge(aril_cuda_dims *d, bool sorted);
aril_cuda_axes aril_cuda_axes_of(const aril_cuda_dims *d);

/* A reduction. Either the threads of a row of a block share a result (`by_row`: its elements are
 * adjacent in memory), or those of a column do (results are adjacent). A unit is `lanes` elements
 * along the innermost dimension, read at once: elements of a result in one case, results in the
 * other. */
struct aril_cuda_reduction {
    aril_cuda_axes kept;                   /* operands: x, out 0, out 1; in units */
    aril_cuda_axes red;                    /* operand: x; in units */
    int64_t lane[ARIL_CUDA_AXES_OPERANDS]; /* strides between the results of a unit */
    int64_t results;                       /* in elements, not units */
    int64_t each;                          /* elements of a result */
    int lanes, splits;
    int width; /* threads of a block along x; those of its last, incomplete row are idle */
    bool by_row;
};

enum { ARIL_CUDA_REDUCE_THREADS = 256, ARIL_CUDA_REDUCE_UNROLL = 4 };

/* x reduced over the axes of the mask, whose results are in `out` (up to two, which may be NULL:
 * then results are only counted). `in_order`: elements and results are visited in row-major order,
 * for ops that give positions. */
aril_cuda_reduction aril_cuda_reduction_of(const aril_tensor *x, int64_t mask, bool in_order,
                                           const aril_tensor *out0, const aril_tensor *out1);
/* The same for loops that do not come from a tensor: `kept` with operands x, out 0, out 1, and
 * `red` with x, merged. */
aril_cuda_reduction aril_cuda_reduction_from(const aril_cuda_dims *kept, const aril_cuda_dims *red);

/* Whether `lanes` elements of x, at `base` and of `size` bytes, can be read at once; if so the
 * reduction is in units of that many. */
bool aril_cuda_reduction_vectors(aril_cuda_reduction *r, const void *base, int size, int lanes);

/* Decides the shape of blocks and the number of splits; call it last. `resident`: blocks of the
 * kernel that a multiprocessor runs at a time. */
void aril_cuda_reduction_cut(aril_cuda_reduction *r, int resident = 4);

static inline int64_t aril_cuda_pow2(int64_t n) /* the smallest power of two that is >= n */
{
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

#endif
