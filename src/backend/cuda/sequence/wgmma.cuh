/* Hopper's tensor cores: products of 64 x N tiles with a depth of 16 by a warpgroup, four warps,
 * with factors in shared memory. Products are asynchronous: aril_cuda_group_begin orders them after
 * what was done to registers before, aril_cuda_group_end closes a group of them, and registers are
 * valid after aril_cuda_group_wait.
 *
 * Of a sum [64,N], warp w holds rows 16 w ..; within it a lane holds what aril_cuda_mma has in
 * mma.cuh: elements 4 n .. 4 n + 3 of the array are those of columns 8 n .. 8 n + 7.
 *
 * A tile of R rows is stored in panels of 64 columns, [R,64] each; pieces of 16 bytes are permuted
 * within each row of 128 bytes as aril_cuda_piece<64> does, which is the hardware's 128-byte
 * swizzle. Tiles start at multiples of 1,024 bytes. */
#ifndef ARIL_CUDA_WGMMA_CUH
#define ARIL_CUDA_WGMMA_CUH

#include "backend/cuda/sequence/mma.cuh"

/* Machine code for sm_90a only: other builds have empty kernels, which are never launched. */
#if defined __CUDA_ARCH_FEAT_SM90_ALL
#define ARIL_CUDA_WGMMA 1
#endif

enum { ARIL_CUDA_PANEL = 64, ARIL_CUDA_PANEL_ROW = 128 }; /* columns; bytes of a row */

/* A matrix in shared memory from `address` on. along: bytes from one panel to the next where the
 * product runs along rows; unused otherwise. */
static __device__ __forceinline__ uint64_t aril_cuda_descriptor(uint32_t address,
                                                                uint32_t along = 16)
{
    const uint64_t group = 8 * ARIL_CUDA_PANEL_ROW; /* eight rows */
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(along >> 4) << 16 |
           (group >> 4) << 32 | (uint64_t)1 << 62;
}

#ifdef ARIL_CUDA_WGMMA
static __device__ __forceinline__ void aril_cuda_group_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void aril_cuda_group_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most N groups are under way. */
template <int N> static __device__ __forceinline__ void aril_cuda_group_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* Writes to shared memory by threads become visible to the tensor cores. */
static __device__ __forceinline__ void aril_cuda_show_tiles()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Keeps the compiler from moving reads of sums before the wait. */
template <int N> static __device__ __forceinline__ void aril_cuda_settle(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(x[i])::"memory");
}
template <int N> static __device__ __forceinline__ void aril_cuda_settle(uint32_t (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(x[i])::"memory");
}

#define ARIL_CUDA_R4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ARIL_CUDA_R16(d, i) \
    ARIL_CUDA_R4(d, i), ARIL_CUDA_R4(d, i + 4), ARIL_CUDA_R4(d, i + 8), ARIL_CUDA_R4(d, i + 12)

#define ARIL_CUDA_SUM16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define ARIL_CUDA_SUM32 \
    ARIL_CUDA_SUM16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define ARIL_CUDA_SUM64                                                                        \
    ARIL_CUDA_SUM32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49" \
                    ",%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/* d = a b + (more ? d : 0). a [64,16] and b [16,N], whose columns are the rows of a tile, are in
 * shared memory; or a is in registers, as aril_cuda_mma's, and b's columns are the tile's. */
template <typename S, int N> struct aril_cuda_wgmma;

#define ARIL_CUDA_WGMMA_OF(S, type, N, sums, registers, a0, a1, a2, a3, b, p)                      \
    template <> struct aril_cuda_wgmma<S, N> {                                                     \
        static __device__ __forceinline__ void shared(float (&d)[N / 2], uint64_t a, uint64_t b_,  \
                                                      int more)                                    \
        {                                                                                          \
            asm volatile("{.reg .pred p; setp.ne.b32 p, " a2 ", 0;\n"                              \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" sums \
                         "}, " a0 ", " a1 ", p, 1, 1, 0, 0;}"                                      \
                         : registers                                                               \
                         : "l"(a), "l"(b_), "r"(more)                                              \
                         : "memory");                                                              \
        }                                                                                          \
        static __device__ __forceinline__ void held(float (&d)[N / 2], const uint32_t *a,          \
                                                    uint64_t b_, int more)                         \
        {                                                                                          \
            asm volatile("{.reg .pred p; setp.ne.b32 p, " p ", 0;\n"                               \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" sums \
                         "}, {" a0 "," a1 "," a2 "," a3 "}, " b ", p, 1, 1, 1;}"                   \
                         : registers                                                               \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_), "r"(more)          \
                         : "memory");                                                              \
        }                                                                                          \
    };

#define ARIL_CUDA_WGMMA_SIZES(S, type)                                                             \
    ARIL_CUDA_WGMMA_OF(S, type, 32, ARIL_CUDA_SUM16, ARIL_CUDA_R16(d, 0), "%16", "%17", "%18",     \
                       "%19", "%20", "%21")                                                        \
    ARIL_CUDA_WGMMA_OF(S, type, 64, ARIL_CUDA_SUM32,                                               \
                       ARIL_CUDA_R16(d, 0) COMMA ARIL_CUDA_R16(d, 16), "%32", "%33", "%34", "%35", \
                       "%36", "%37")                                                               \
    ARIL_CUDA_WGMMA_OF(S, type, 128, ARIL_CUDA_SUM64,                                              \
                       ARIL_CUDA_R16(d, 0) COMMA ARIL_CUDA_R16(d, 16) COMMA ARIL_CUDA_R16(d, 32)   \
                           COMMA ARIL_CUDA_R16(d, 48),                                             \
                       "%64", "%65", "%66", "%67", "%68", "%69")
#define COMMA ,
ARIL_CUDA_WGMMA_SIZES(aril_cuda_f16, "f16")
ARIL_CUDA_WGMMA_SIZES(aril_cuda_bf16, "bf16")
#undef COMMA
#undef ARIL_CUDA_WGMMA_SIZES
#undef ARIL_CUDA_WGMMA_OF

/* d = rows of tile a times rows of tile b: 64 rows of a from its row `row` on, N rows of b, both of
 * D columns. Rows of a are read from shared memory for each tile: held in registers over a loop,
 * ptxas 13.0 lets other factors overwrite them. */
template <typename S, int N, int D>
static __device__ __forceinline__ void aril_cuda_dots(float (&d)[N / 2], uint32_t a, int a_rows,
                                                      int row, uint32_t b, int b_rows)
{
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t panel = k / 4, column = k % 4 * 32; /* 16 columns are 32 bytes */
        uint64_t x =
            aril_cuda_descriptor(a + (panel * a_rows + row) * ARIL_CUDA_PANEL_ROW + column);
        uint64_t y = aril_cuda_descriptor(b + panel * b_rows * ARIL_CUDA_PANEL_ROW + column);
        aril_cuda_wgmma<S, N>::shared(d, x, y, k > 0);
    }
}

/* d += weights times the rows of a tile: w [64,ROWS] in registers, the tile's D columns. */
template <typename S, int D, int ROWS>
static __device__ __forceinline__ void aril_cuda_add_rows(float (&d)[D / 2],
                                                          const uint32_t (&w)[ROWS / 4],
                                                          uint32_t tile)
{
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) {
        uint64_t x =
            aril_cuda_descriptor(tile + k * 16 * ARIL_CUDA_PANEL_ROW, ROWS * ARIL_CUDA_PANEL_ROW);
        aril_cuda_wgmma<S, D>::held(d, w + 4 * k, x, 1);
    }
}
#endif

/* Sums [64,N] rounded, as the weights of aril_cuda_add_rows. */
template <typename S, int N>
static __device__ __forceinline__ void aril_cuda_round(uint32_t (&w)[N / 4],
                                                       const float (&x)[N / 2])
{
#pragma unroll
    for (int i = 0; i < N / 4; i++) w[i] = aril_cuda_pack(S(), x[2 * i], x[2 * i + 1]);
}

/* How a thread copies rows of a matrix to tiles of ROWS rows in panels: its first row, and columns
 * that never change. */
template <typename S, int D, int THREADS> struct aril_cuda_copier {
    enum { PIECES = D / 8, STEP = THREADS / PIECES };
    static_assert(STEP % 8 == 0, "rows of a thread have the same permutation");
    const S *from;  /* of row 0 of the matrix, at this thread's columns */
    int64_t stride; /* of rows, in elements */
    int rows, row;  /* of the matrix; the thread's first in a tile */
    uint32_t to;    /* offset of that row in a tile's panel */
    uint32_t panel; /* which one */
    bool inside;    /* the columns exist */

    __device__ __forceinline__ void init(const aril_cuda_matrix &m)
    {
        int piece = (int)threadIdx.x % PIECES;
        row = (int)threadIdx.x / PIECES;
        inside = piece * 8 < m.columns;
        from = static_cast<const S *>(m.at) + (inside ? piece * 8 : 0);
        stride = m.stride;
        rows = (int)m.rows;
        panel = piece / 8;
        to = (uint32_t)(row * ARIL_CUDA_PANEL_ROW + (((piece & 7) ^ (row & 7)) << 4));
    }

    /* Begins to copy ROWS rows from `first` on; those that do not exist are zeros. */
    template <int ROWS> __device__ __forceinline__ void fetch(uint32_t tile, int first) const
    {
        const S *at = from + (int64_t)(first + row) * stride;
        tile += to + panel * (ROWS * ARIL_CUDA_PANEL_ROW);
#pragma unroll
        for (int i = 0; i < ROWS; i += STEP) {
            if (ROWS % STEP == 0 || row + i < ROWS) {
                bool there = inside && first + row + i < rows;
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                                 tile + i * ARIL_CUDA_PANEL_ROW),
                             "l"(there ? at : from), "r"(there ? 16 : 0)
                             : "memory");
            }
            at += STEP * stride;
        }
    }
};

#endif
