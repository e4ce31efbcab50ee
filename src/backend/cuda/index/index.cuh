/* What the indexing kernels share: index tensors, broadcast positions, pieces of the workspace, and
 * the order of equal destinations. */
#ifndef ARIL_CUDA_INDEX_CUH
#define ARIL_CUDA_INDEX_CUH

#include "backend/cuda/device/errors.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/loops.cuh"
#include "backend/cuda/number.cuh"

/* Dtypes whose elements are whole bytes: what ops that only move elements take. */
#define ARIL_CUDA_DT_BYTES ((1u << ARIL_F4E2M1) - 1)

/* ---- an index tensor ---- */

/* Contiguous i64 indices, or one number. */
struct aril_cuda_indices {
    const int64_t *at; /* NULL: `value` */
    int64_t value;

    __device__ __forceinline__ int64_t operator[](int64_t i) const
    {
        return at ? at[i] : value;
    }
};

static inline aril_cuda_indices aril_cuda_indices_of(const aril_run *r, int i)
{
    aril_host_number n;
    if (aril_cuda_host->number(r, i, &n)) return { nullptr, n.i64 };
    return { static_cast<const int64_t *>(aril_cuda_data(aril_cuda_in(r, i))), 0 };
}

/* ---- positions by 64-bit arithmetic, for what is not worth more ---- */

/* Offsets of a tensor that is broadcast to some sizes: outermost dimension first. */
struct aril_cuda_spread {
    int ndim;
    bool linear; /* not broadcast: the offset of element i is i */
    int64_t dim[ARIL_MAX_DIMS], stride[ARIL_MAX_DIMS];

    __device__ __forceinline__ int64_t offset(int64_t i) const
    {
        if (linear) return i;
        int64_t at = 0;
#pragma unroll 1
        for (int d = ndim - 1; d >= 0; d--) {
            bool wide = (i | dim[d]) >> 31;
            int64_t q = wide ? i / dim[d] : (int64_t)((uint32_t)i / (uint32_t)dim[d]);
            at += (i - q * dim[d]) * stride[d];
            i = q;
        }
        return at;
    }
};

/* Contiguous t broadcast to ndim sizes. */
static inline aril_cuda_spread aril_cuda_spread_of(const aril_tensor *t, int ndim,
                                                   const int64_t *dim)
{
    aril_cuda_spread s = {};
    int lead = ndim - aril_cuda_host->ndim(t);
    const int64_t *own = aril_cuda_host->dims(t);
    int64_t step = 1;
    s.ndim = ndim;
    s.linear = true;
    for (int d = ndim - 1; d >= 0; d--) {
        bool there = d >= lead && own[d - lead] == dim[d];
        s.dim[d] = dim[d];
        s.stride[d] = there ? step : 0;
        if (!there && dim[d] != 1) s.linear = false;
        if (d >= lead) step *= own[d - lead];
    }
    return s;
}

/* ---- the workspace ---- */

/* Hands out pieces of the workspace, aligned to 256 bytes. With a null base it only counts. */
struct aril_cuda_carver {
    char *base;
    size_t used;

    template <typename T> T *take(int64_t n)
    {
        size_t at = used;
        used += ((size_t)n * sizeof(T) + 255) / 256 * 256;
        return base ? reinterpret_cast<T *>(base + at) : nullptr;
    }
};

static inline aril_cuda_carver aril_cuda_carver_of(const aril_run *r)
{
    return { static_cast<char *>(aril_cuda_host->workspace(r)), 0 };
}

/* Writes the bits of a number of the host to device memory, in the order of the queue. */
aril_status aril_cuda_poke(const aril_run *r, void *to, const void *from, int bytes);

/* The elements of input i on the device: a number is written to `spare`, of 8 bytes. */
static inline aril_status aril_cuda_values(const aril_run *r, int i, void *spare,
                                           const void **values)
{
    const aril_tensor *t = aril_cuda_in(r, i);
    aril_host_number n;
    *values = aril_cuda_data(t);
    if (!aril_cuda_host->number(r, i, &n)) return ARIL_OK;
    int bytes = aril_cuda_size(aril_cuda_host->dtype(t));
    aril_status s = aril_cuda_poke(r, spare, *values, bytes);
    *values = spare;
    return s;
}

/* out = input i, contiguous and of one shape and dtype, unless they are in the same memory. */
static inline aril_status aril_cuda_copy_whole(const aril_run *r, aril_tensor *out, int i)
{
    int size = aril_cuda_size(aril_cuda_host->dtype(out));
    size_t bytes = (size_t)aril_cuda_host->numel(out) * (size_t)size;
    void *to = aril_cuda_data(out), *from = aril_cuda_data(aril_cuda_in(r, i));
    aril_host_number n;
    if (to == from || bytes == 0) return ARIL_OK;
    if (aril_cuda_host->number(r, i, &n)) return aril_cuda_poke(r, to, from, size);
    return aril_cuda_check(
        r, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, aril_cuda_stream(r)),
        "cudaMemcpyAsync");
}
static inline aril_status aril_cuda_clear(const aril_run *r, void *to, size_t bytes)
{
    if (bytes == 0) return ARIL_OK;
    return aril_cuda_check(r, cudaMemsetAsync(to, 0, bytes, aril_cuda_stream(r)),
                           "cudaMemsetAsync");
}

/* ---- the order of equal destinations ---- */

/* n keys, of which the lowest `bits` bits count, and the numbers 0 .. n - 1 sorted by them; equal
 * keys keep their order. n < 2^32. */
struct aril_cuda_sorting {
    int64_t n;
    int bits;
    uint64_t *given, *key;    /* unsorted, which the caller writes, and sorted */
    uint32_t *number, *order; /* 0 .. n - 1, and sorted by key */
    void *temporary;
    size_t temporary_bytes;
};

/* Takes its memory from the workspace. */
aril_cuda_sorting aril_cuda_sorting_of(aril_cuda_carver *w, int64_t n, int bits);
/* Sorts; the keys are written by kernels queued before, the numbers by this function. */
aril_status aril_cuda_sort(const aril_run *r, const aril_cuda_sorting &s);
/* Sorts given `number`s as they are. */
aril_status aril_cuda_sort_given(const aril_run *r, const aril_cuda_sorting &s);

/* Bits of the numbers 0 .. most. */
static inline int aril_cuda_bits(uint64_t most)
{
    int bits = 1;
    while (bits < 64 && most >> bits) bits++;
    return bits;
}

/* True if sorted position j begins a run of equal keys. */
static __device__ __forceinline__ bool aril_cuda_is_first(const uint64_t *key, int64_t j)
{
    return j == 0 || key[j - 1] != key[j];
}

/* ---- runs ---- */

aril_status aril_cuda_index_run(aril_run *r);
aril_status aril_cuda_index_select_run(aril_run *r);
aril_status aril_cuda_embedding_run(aril_run *r);
aril_status aril_cuda_gather_run(aril_run *r);
size_t aril_cuda_index_bytes(const aril_run *r);
size_t aril_cuda_gather_bytes(const aril_run *r);

aril_status aril_cuda_index_put_run(aril_run *r);
aril_status aril_cuda_index_put_add_run(aril_run *r);
aril_status aril_cuda_embedding_grad_run(aril_run *r);
size_t aril_cuda_index_put_bytes(const aril_run *r);
size_t aril_cuda_embedding_grad_bytes(const aril_run *r);

aril_status aril_cuda_scatter_run(aril_run *r);
aril_status aril_cuda_scatter_add_run(aril_run *r);
aril_status aril_cuda_scatter_mul_run(aril_run *r);
aril_status aril_cuda_scatter_max_run(aril_run *r);
aril_status aril_cuda_scatter_min_run(aril_run *r);
size_t aril_cuda_scatter_bytes(const aril_run *r);

aril_status aril_cuda_nonzero_run(aril_run *r);
aril_status aril_cuda_masked_select_run(aril_run *r);
aril_status aril_cuda_masked_scatter_run(aril_run *r);
aril_status aril_cuda_masked_scatter_grad_run(aril_run *r);
aril_status aril_cuda_one_hot_run(aril_run *r);
size_t aril_cuda_masked_bytes(const aril_run *r);

aril_status aril_cuda_bag_run(aril_run *r);
aril_status aril_cuda_bag_grad_run(aril_run *r);
aril_status aril_cuda_bag_scale_grad_run(aril_run *r);
aril_status aril_cuda_bag_argmax_run(aril_run *r);
size_t aril_cuda_bag_bytes(const aril_run *r);
size_t aril_cuda_bag_grad_bytes(const aril_run *r);
size_t aril_cuda_bag_scale_grad_bytes(const aril_run *r);

#endif
