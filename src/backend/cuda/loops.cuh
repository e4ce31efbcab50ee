/* Strided operands of one iteration space: collapsed on the host, and read on the device by
 * 32-bit index arithmetic.
 *
 * Host:   aril_cuda_loops l = aril_cuda_loops_of(out);        the sizes to iterate over
 *         aril_cuda_loops_add(&l, out); aril_cuda_loops_add(&l, in) ...   broadcast where needed
 *         aril_cuda_loops_merge(&l, 0);                       sorted by operand 0, merged
 *         return aril_cuda_each_piece(&l, [&](const aril_cuda_loops &piece) { launch ... });
 * Device: aril_cuda_nest<N> nest (by value; aril_cuda_nest_of<N>(piece)), then for element i
 *         int32_t at[N]; nest.offsets(i, at);   offsets in elements from each operand's base. */
#ifndef ARIL_CUDA_LOOPS_CUH
#define ARIL_CUDA_LOOPS_CUH

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/host.cuh"

enum { ARIL_CUDA_OPERANDS = 20 };

/* The iteration space: sizes from outermost to innermost, and the strides of each operand in
 * elements. `offset` is where a piece begins, in elements from each operand's first element. */
struct aril_cuda_loops {
    int ndim, n;
    int64_t dim[ARIL_MAX_DIMS];
    int64_t stride[ARIL_CUDA_OPERANDS][ARIL_MAX_DIMS];
    int64_t offset[ARIL_CUDA_OPERANDS];
};

static inline aril_cuda_loops aril_cuda_loops_of(const aril_tensor *t)
{
    aril_cuda_loops l = {};
    const int64_t *dim = aril_cuda_host->dims(t);
    l.ndim = aril_cuda_host->ndim(t);
    for (int d = 0; d < l.ndim; d++) l.dim[d] = dim[d];
    return l;
}

/* Adds an operand: `t` broadcast to the sizes of the loops (stride 0 where it has size 1 or no such
 * dimension), or an absent one or a number (NULL: all strides 0). */
static inline void aril_cuda_loops_add(aril_cuda_loops *l, const aril_tensor *t)
{
    int64_t *stride = l->stride[l->n++];
    int lead = t ? l->ndim - aril_cuda_host->ndim(t) : 0;
    const int64_t *dim = t ? aril_cuda_host->dims(t) : nullptr;
    const int64_t *from = t ? aril_cuda_host->strides(t) : nullptr;
    for (int d = 0; d < l->ndim; d++) {
        bool there = t && d >= lead && dim[d - lead] == l->dim[d] && l->dim[d] > 1;
        stride[d] = there ? from[d - lead] : 0;
    }
}

/* Drops dimensions of size 1, sorts the rest by the strides of operand `by`, largest first, and
 * merges adjacent dimensions. Operand `by` should be the output. */
void aril_cuda_loops_merge(aril_cuda_loops *l, int by);

static inline int64_t aril_cuda_loops_numel(const aril_cuda_loops *l)
{
    int64_t n = 1;
    for (int d = 0; d < l->ndim; d++) n *= l->dim[d];
    return n;
}

/* True when operand k is contiguous in loop order. */
static inline bool aril_cuda_loops_linear(const aril_cuda_loops *l, int k)
{
    int64_t step = 1;
    for (int d = l->ndim - 1; d >= 0; d--) {
        if (l->stride[k][d] != step) return false;
        step *= l->dim[d];
    }
    return true;
}

/* The stride of operand k in the innermost dimension; 0 without dimensions. */
static inline int64_t aril_cuda_loops_step(const aril_cuda_loops *l, int k)
{
    return l->ndim ? l->stride[k][l->ndim - 1] : 0;
}

/* The dimension to halve so that 32-bit offsets suffice; -1 when they do. */
int aril_cuda_loops_too_large(const aril_cuda_loops *l);

/* Calls f(piece) for pieces of the loops whose element count and offsets fit in 31 bits; almost
 * always that is one. Stops at the first negative status. Nothing is called for empty loops. */
template <typename F>
static inline aril_status aril_cuda_each_piece(const aril_cuda_loops *l, F &&f)
{
    for (int d = 0; d < l->ndim; d++)
        if (l->dim[d] == 0) return ARIL_OK;
    int at = aril_cuda_loops_too_large(l);
    if (at < 0) return f(*l);
    aril_cuda_loops half = *l;
    half.dim[at] = l->dim[at] / 2;
    aril_status s = aril_cuda_each_piece(&half, f);
    for (int k = 0; k < l->n; k++) half.offset[k] += half.dim[at] * l->stride[k][at];
    half.dim[at] = l->dim[at] - half.dim[at];
    return s < 0 ? s : aril_cuda_each_piece(&half, f);
}

/* ---- on the device ---- */

/* Division of n < 2^31 by a constant: a multiplication and a shift. */
struct aril_cuda_divisor {
    uint32_t by, multiplier, shift;

    __device__ __forceinline__ uint32_t divide(uint32_t n) const
    {
        return (__umulhi(n, multiplier) + n) >> shift;
    }
    /* Returns the quotient; *rest gets the remainder. */
    __device__ __forceinline__ uint32_t split(uint32_t n, uint32_t *rest) const
    {
        uint32_t q = divide(n);
        *rest = n - q * by;
        return q;
    }
};
aril_cuda_divisor aril_cuda_divisor_of(int64_t by); /* 1 <= by < 2^31 */

/* Sizes and strides of N operands, innermost dimension first. */
template <int N> struct aril_cuda_nest {
    int ndim;
    aril_cuda_divisor dim[ARIL_MAX_DIMS];
    int32_t stride[N][ARIL_MAX_DIMS];

    /* The offset of each operand at linear position i. */
    __device__ __forceinline__ void offsets(uint32_t i, int32_t at[N]) const
    {
#pragma unroll
        for (int k = 0; k < N; k++) at[k] = 0;
#pragma unroll 1
        for (int d = 0; d < ndim - 1; d++) {
            uint32_t rest;
            i = dim[d].split(i, &rest);
#pragma unroll
            for (int k = 0; k < N; k++) at[k] += (int32_t)rest * stride[k][d];
        }
        if (ndim > 0) {
#pragma unroll
            for (int k = 0; k < N; k++) at[k] += (int32_t)i * stride[k][ndim - 1];
        }
    }
};

/* From a piece of aril_cuda_each_piece, with operands `first` .. `first` + N - 1. */
template <int N>
static inline aril_cuda_nest<N> aril_cuda_nest_of(const aril_cuda_loops &l, int first = 0)
{
    aril_cuda_nest<N> nest;
    nest.ndim = l.ndim;
    for (int d = 0; d < l.ndim; d++) {
        int from = l.ndim - 1 - d;
        nest.dim[d] = aril_cuda_divisor_of(l.dim[from]);
        for (int k = 0; k < N; k++) nest.stride[k][d] = (int32_t)l.stride[first + k][from];
    }
    return nest;
}

#endif
