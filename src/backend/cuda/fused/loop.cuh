/* The loop of a generated kernel: offsets, and elements read and written by up to 16 bytes. */

/* The offset of operand j at element i, which is set to its place in the innermost dimension. */
static __device__ __forceinline__ int32_t offset_of(const aril_cuda_fused_arguments &a, int j,
                                                    uint32_t i)
{
    int32_t at = 0;
#pragma unroll 1
    for (int d = 0; d < a.ndim - 1; d++) {
        uint32_t q = (__umulhi(i, a.dim[d][1]) + i) >> a.dim[d][2];
        at += (int32_t)(i - q * a.dim[d][0]) * a.stride[j][d];
        i = q;
    }
    return a.ndim ? at + (int32_t)i * a.stride[j][a.ndim - 1] : at;
}

template <typename S, int N> struct alignas(sizeof(S) * N < 16 ? sizeof(S) * N : 16) vector {
    S at[N];
};

/* N elements from element i on: neighbours, or the same one. */
template <typename S, int N>
static __device__ __forceinline__ vector<S, N> read(const aril_cuda_fused_arguments &a, int j,
                                                    uint32_t i)
{
    const S *p = static_cast<const S *>(a.base[j]) + offset_of(a, j, i);
    vector<S, N> v;
    if (a.ndim && a.stride[j][0]) return *reinterpret_cast<const vector<S, N> *>(p);
    S x = *p;
    for (int k = 0; k < N; k++) v.at[k] = x;
    return v;
}

template <typename S, int N>
static __device__ __forceinline__ void write(const aril_cuda_fused_arguments &a, int j, uint32_t i,
                                             const vector<S, N> &v)
{
    *reinterpret_cast<vector<S, N> *>(static_cast<S *>(a.base[j]) + offset_of(a, j, i)) = v;
}

/* The bytes of a number as an element. */
template <typename S> static __device__ __forceinline__ S number(uint64_t bits)
{
    union {
        uint64_t word;
        S element;
    } u;
    u.word = bits;
    return u.element;
}
