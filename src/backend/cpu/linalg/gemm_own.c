/* Aril's own matrix product. Compiled with fused multiply-add: see CMakeLists.txt. */
#include "backend/cpu/linalg/gemm.h"
#include "core/cpu.h"
#include "core/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    KC = 320,            /* a panel of B, two vectors wide, stays in L1 */
    MC = 192,            /* a block of A in L2 */
    NC = 1024,           /* a block of B in L3 */
    DOT_K = 2048,        /* a block of dot products */
    SKINNY = 128,        /* maximum rows for which B is read in place */
    DOT_LINES = 16,      /* maximum rows or columns for which dot products pay */
    SMALL = 1 << 16,     /* bytes of B that stay in cache anyway */
    TINY = 512,          /* multiplications below which packing does not pay */
    TURNED = 1 << 12,    /* maximum elements of B that are transposed as a whole, */
    TURNED_ROWS = 4,     /* from which number of rows of A */
    TURNED_BYTES = 64,   /* and bytes of a row of B on that pays */
    STREAM_ROWS = 4,     /* maximum rows for which B is streamed, */
    STREAM_COLUMNS = 64, /* minimum columns: fewer are not worth whole rows of B, */
    STREAM = 1 << 20,    /* and from how many bytes on: what comes from memory, not from a cache */
    KEPT = 32,           /* scratch blocks cached for later calls */
    SCRATCH = (KC * NC + (KC + 16) * MC) * 8 + 128,
};

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
/* Hides from the compiler how a pointer was computed, so that it does not recompute it each
 * time. */
#define HIDE(p) __asm__("" : "+r"(p))
#define INLINE  static inline __attribute__((always_inline))

/* ---- scratch memory for packing ----
 *
 * Blocks of one size are cached for all later products: there are never more than threads that
 * multiply at the same time. */

static _Atomic(void *) kept[KEPT];

static void *take_scratch(void)
{
    for (int i = 0; i < KEPT; i++)
        if (atomic_load_explicit(&kept[i], memory_order_relaxed)) {
            void *p = atomic_exchange(&kept[i], NULL);
            if (p) return p;
        }
    aril__allocations_allow(); /* a cache */
    void *p = aril__malloc(SCRATCH);
    aril__allocations_allow_end();
    return p;
}

static void give_scratch(void *p)
{
    for (int i = 0; i < KEPT; i++) {
        void *none = NULL;
        if (!atomic_load_explicit(&kept[i], memory_order_relaxed) &&
            atomic_compare_exchange_strong(&kept[i], &none, p))
            return;
    }
    free(p);
}

void aril__gemm_shutdown(void)
{
    for (int i = 0; i < KEPT; i++) free(atomic_exchange(&kept[i], NULL));
}

/* ---- kernels ---- */

/* Result tiles that fit into 32 vector registers, and into 16. */
/* clang-format off */
#define TILES_24(X)                                                                                \
    X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1) X(8, 1)                                \
    X(9, 1) X(10, 1) X(11, 1) X(12, 1)                                                             \
    X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2) X(7, 2) X(8, 2)                                \
    X(9, 2) X(10, 2) X(11, 2) X(12, 2)                                                             \
    X(1, 3) X(2, 3) X(3, 3) X(4, 3) X(5, 3) X(6, 3) X(7, 3) X(8, 3)                                \
    X(1, 4) X(2, 4) X(3, 4) X(4, 4) X(5, 4) X(6, 4)
#define TILES_12(X)                                                                                \
    X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1)                                                \
    X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2)                                                \
    X(1, 3) X(2, 3) X(3, 3) X(4, 3)                                                                \
    X(1, 4) X(2, 4) X(3, 4)
/* clang-format on */

#if defined(__aarch64__)
#define MR        12
#define DOT_ROWS  4
#define EACH_TILE TILES_24
#else
#define MR        6
#define DOT_ROWS  3
#define EACH_TILE TILES_12
#endif
#define TARGET
#define BYTES      16
#define T          float
#define QUAD_LANES 4
#define NAME(x)    x##_f32
#include "backend/cpu/linalg/gemm_own.inc"
#define T          double
#define QUAD_LANES 2
#define NAME(x)    x##_f64
#include "backend/cpu/linalg/gemm_own.inc"
#undef TARGET
#undef BYTES
#undef MR
#undef DOT_ROWS
#undef EACH_TILE

#if defined(__x86_64__)
#define TARGET     __attribute__((target("avx2,fma")))
#define BYTES      32
#define MR         6
#define DOT_ROWS   3
#define EACH_TILE  TILES_12
#define T          float
#define QUAD_LANES 4
#define NAME(x)    x##_f32_avx2
#include "backend/cpu/linalg/gemm_own.inc"
#define T          double
#define QUAD_LANES 2
#define NAME(x)    x##_f64_avx2
#include "backend/cpu/linalg/gemm_own.inc"
#undef TARGET
#undef BYTES
#undef MR
#undef DOT_ROWS
#undef EACH_TILE

#define TARGET     __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))
#define BYTES      64
#define MR         12
#define DOT_ROWS   4
#define EACH_TILE  TILES_24
#define T          float
#define QUAD_LANES 4
#define NAME(x)    x##_f32_avx512
#include "backend/cpu/linalg/gemm_own.inc"
#define T          double
#define QUAD_LANES 2
#define NAME(x)    x##_f64_avx512
#include "backend/cpu/linalg/gemm_own.inc"
#undef TARGET
#undef BYTES
#undef MR
#undef DOT_ROWS
#undef EACH_TILE

#define PICK(fn) \
    (aril__cpu() == ARIL__CPU_AVX512 ? fn##_avx512 : aril__cpu() == ARIL__CPU_AVX2 ? fn##_avx2 : fn)
#else
#define PICK(fn) fn
#endif

/* ---- choice of algorithm ---- */

static void turn_over(aril__gemm *g)
{
    aril__gemm t = *g;
    g->m = t.n, g->n = t.m, g->a = t.b, g->b = t.a;
    g->a_row = t.b_col, g->a_col = t.b_row, g->b_row = t.a_col, g->b_col = t.a_row;
    g->c_row = t.c_col, g->c_col = t.c_row;
    g->turned = !t.turned;
}

void aril__gemm_choose(aril__gemm *g, size_t size)
{
    /* The stride of a dimension of size 1 is irrelevant: choose a convenient one. */
    if (g->m == 1) g->a_row = g->c_row = 1;
    if (g->n == 1) g->b_col = g->c_col = 1;
    if (g->k == 1) {
        g->a_col = g->a_row == 1 && g->m > 1 ? g->m : 1;
        g->b_row = g->b_col == 1 && g->n > 1 ? g->n : 1;
    }
    if ((g->c_col != 1 && g->c_row == 1) || (g->n == 1 && g->m > 1)) turn_over(g);
    bool along_k = g->a_col == 1 && g->b_row == 1 && g->k >= 16;
    bool by_row = g->m == 1 && g->n > 1 && g->b_col == 1; /* a row times contiguous rows */
    bool large = g->k >= 8 && g->k * g->n * (int64_t)size >= STREAM;
    if (large && g->m <= STREAM_ROWS && g->n >= STREAM_COLUMNS && g->b_col == 1 && g->c_col == 1)
        g->path = ARIL__GEMM_STREAM;
    else if (along_k && g->k * g->n <= TURNED && g->m >= TURNED_ROWS &&
             g->n * (int64_t)size >= TURNED_BYTES)
        g->path = ARIL__GEMM_TURNED;
    else if (along_k && (g->m <= DOT_LINES || g->n <= DOT_LINES) && !by_row)
        g->path = ARIL__GEMM_DOTS;
    else if (g->b_col == 1 && (g->m <= SKINNY || g->k * g->n * (int64_t)size <= SMALL))
        g->path = ARIL__GEMM_DIRECT;
    else if (g->a_row == 1 && g->n <= SKINNY) {
        turn_over(g);
        g->path = ARIL__GEMM_DIRECT;
    } else if (g->m * g->n * g->k <= TINY)
        g->path = ARIL__GEMM_PLAIN;
    else
        g->path = ARIL__GEMM_PACKED;
    if (g->k == 0) g->path = ARIL__GEMM_PLAIN;
}

void aril__gemm_f32(const aril__gemm *g)
{
    PICK(gemm_f32)(g);
}

void aril__gemm_f64(const aril__gemm *g)
{
    PICK(gemm_f64)(g);
}

bool aril__gemm_dots(aril_dtype type, const aril__gemm *g, int64_t count, const int64_t step[3])
{
    if (g->m != 1 || g->n != 1 || g->k > DOT_K || g->path != ARIL__GEMM_DOTS) return false;
    if (type == ARIL_F32)
        PICK(dot_each_f32)(g, count, step);
    else
        PICK(dot_each_f64)(g, count, step);
    return true;
}

bool aril__gemm_few_rows(aril_dtype type, const aril__gemm *g)
{
    return type == ARIL_F32 ? PICK(few_rows_f32)(g) : PICK(few_rows_f64)(g);
}

void aril__gemm_bias(aril_dtype type, int64_t m, int64_t n, void *c, int64_t c_row, int64_t c_col,
                     const void *bias, int64_t bias_step)
{
    if (type == ARIL_F32)
        PICK(bias_f32)(m, n, c, c_row, c_col, bias, bias_step);
    else
        PICK(bias_f64)(m, n, c, c_row, c_col, bias, bias_step);
}

int64_t aril__gemm_panel(aril_dtype type)
{
    int64_t bytes = 16;
#if defined(__x86_64__)
    bytes = aril__cpu() == ARIL__CPU_AVX512 ? 64 : aril__cpu() == ARIL__CPU_AVX2 ? 32 : 16;
#endif
    return 2 * bytes / (type == ARIL_F32 ? 4 : 8);
}

void aril__gemm_pack(aril_dtype type, int64_t k, int64_t n, const void *b, int64_t b_row,
                     int64_t b_col, void *to)
{
    if (type == ARIL_F32)
        PICK(pack_all_f32)(k, n, b, b_row, b_col, to);
    else
        PICK(pack_all_f64)(k, n, b, b_row, b_col, to);
}

void aril__gemm_by_panels(aril_dtype type, int64_t m, int64_t n, int64_t k, const void *a,
                          int64_t a_row, const void *panels, void *c, int64_t c_row, bool add)
{
    if (type == ARIL_F32)
        PICK(by_panels_f32)(m, n, k, a, a_row, panels, c, c_row, add);
    else
        PICK(by_panels_f64)(m, n, k, a, a_row, panels, c, c_row, add);
}
