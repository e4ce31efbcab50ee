/* Tensor cores for f16 and bf16: products of 16 x 8 tiles with a depth of 16, summed in f32, and
 * tiles in shared memory that feed them.
 *
 * A lane holds of a sum [16,8] the elements of rows g and g + 8, columns 2t and 2t + 1, with
 * g = lane / 4 and t = lane % 4: c[0], c[1] of row g and c[2], c[3] of row g + 8. */
#ifndef ARIL_CUDA_MMA_CUH
#define ARIL_CUDA_MMA_CUH

#include "backend/cuda/dtype.cuh"

#include <cuda_runtime.h>

/* Instructions of GPUs from 8.0 on. Rows decline older ones, for which the kernels must merely
 * compile. */
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 800
#define ARIL_CUDA_ASM_80(...) asm volatile(__VA_ARGS__)
#else
#define ARIL_CUDA_ASM_80(...) __trap()
#endif

/* c += a b: a [16,16] in four registers, b [16,8] in two. */
static __device__ __forceinline__ void aril_cuda_mma(aril_cuda_f16, float (&c)[4],
                                                     const uint32_t *a, uint32_t b0, uint32_t b1)
{
    ARIL_CUDA_ASM_80(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void aril_cuda_mma(aril_cuda_bf16, float (&c)[4],
                                                     const uint32_t *a, uint32_t b0, uint32_t b1)
{
    ARIL_CUDA_ASM_80(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two numbers, rounded, in one register: `low` first in memory. */
static __device__ __forceinline__ uint32_t aril_cuda_pack(aril_cuda_f16, float low, float high)
{
    __half2 x = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&x);
}
static __device__ __forceinline__ uint32_t aril_cuda_pack(aril_cuda_bf16, float low, float high)
{
    __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&x);
}

/* Four 8 x 8 matrices whose rows are at the addresses that lanes 0-7, 8-15, 16-23, 24-31 give. */
static __device__ __forceinline__ void aril_cuda_ldmatrix(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
static __device__ __forceinline__ void aril_cuda_ldmatrix_t(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ uint32_t aril_cuda_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- tiles ---- */

/* The byte offset of a piece of 16 bytes (8 elements) in a tile with rows of D elements: pieces are
 * permuted, so that a column of pieces lies in all banks. D is a multiple of 64. */
template <int D> static __device__ __forceinline__ uint32_t aril_cuda_piece(int row, int piece)
{
    return (uint32_t)(row * (D * 2) + ((piece ^ (row & 7)) << 4));
}

/* a [16,16] of rows `row`.., columns 16 k ..: for aril_cuda_mma's a. */
template <int D>
static __device__ __forceinline__ void aril_cuda_read_a(uint32_t (&a)[4], uint32_t tile, int row,
                                                        int k)
{
    int lane = threadIdx.x & 31;
    aril_cuda_ldmatrix(a, tile + aril_cuda_piece<D>(row + (lane & 15), 2 * k + (lane >> 4)));
}

/* Two b's [16,8], the first in b[0], b[1], where b is the transposed of the tile: rows `row`.. of
 * the tile are the 16 columns, its columns 16 k .. the depth. */
template <int D>
static __device__ __forceinline__ void aril_cuda_read_b_transposed(uint32_t (&b)[4], uint32_t tile,
                                                                   int row, int k)
{
    int lane = threadIdx.x & 31, m = lane >> 3;
    aril_cuda_ldmatrix(b,
                       tile + aril_cuda_piece<D>(row + (lane & 7) + (m >> 1) * 8, 2 * k + (m & 1)));
}

/* The same where b is the tile itself: rows `row`.. are the depth, columns 16 c .. the columns. */
template <int D>
static __device__ __forceinline__ void aril_cuda_read_b(uint32_t (&b)[4], uint32_t tile, int row,
                                                        int c)
{
    int lane = threadIdx.x & 31, m = lane >> 3;
    aril_cuda_ldmatrix_t(b, tile + aril_cuda_piece<D>(row + (lane & 7) + (m & 1) * 8,
                                                      2 * c + (m >> 1)));
}

/* Rows of a matrix in memory. */
struct aril_cuda_matrix {
    const void *at;
    int64_t stride; /* of rows, in elements */
    int64_t rows;   /* beyond which they count as zeros */
    int columns;    /* likewise; a multiple of 8 */
    bool aligned;   /* every row starts at a multiple of 16 bytes */
};

/* Begins to copy ROWS rows from row `first` on into a tile; aril_cuda_commit ends the group. */
template <typename S, int ROWS, int D, int THREADS>
static __device__ __forceinline__ void aril_cuda_fetch(uint32_t tile, const aril_cuda_matrix &m,
                                                       int64_t first)
{
    const S *from = static_cast<const S *>(m.at);
    auto each = [&](auto &&copy) {
#pragma unroll 4
        for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
            int row = i / (D / 8), piece = i % (D / 8);
            bool inside = first + row < m.rows && piece * 8 < m.columns;
            const S *at = from + (inside ? (first + row) * m.stride + piece * 8 : 0);
            copy(tile + aril_cuda_piece<D>(row, piece), at, inside);
        }
    };
    if (m.aligned)
        each([](uint32_t to, const S *at, bool inside) {
            ARIL_CUDA_ASM_80("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(at),
                             "r"(inside ? 16 : 0)
                             : "memory");
        });
    else
        each([](uint32_t to, const S *at, bool inside) {
            uint32_t w[4] = {};
            const uint16_t *e = reinterpret_cast<const uint16_t *>(at);
            if (inside)
                for (int j = 0; j < 4; j++) w[j] = e[2 * j] | (uint32_t)e[2 * j + 1] << 16;
            asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(w[0]), "r"(w[1]),
                         "r"(w[2]), "r"(w[3])
                         : "memory");
        });
}
static __device__ __forceinline__ void aril_cuda_commit()
{
    ARIL_CUDA_ASM_80("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most N groups of copies are under way. */
template <int N> static __device__ __forceinline__ void aril_cuda_arrive()
{
    ARIL_CUDA_ASM_80("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* 2^x, with subnormal results as 0. */
static __device__ __forceinline__ float aril_cuda_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
