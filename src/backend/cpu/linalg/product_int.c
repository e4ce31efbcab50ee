#include "backend/cpu/linalg/product_int.h"

#include "core/parallel.h"
#include "core/vector/targets.h"
#include "ops/linalg/matmul.h"
#include "ops/shape/copy.h"

#include <string.h>

enum {
    GRAIN = 64 * 1024,       /* minimum multiplications per thread */
    BLOCK_ROWS = 64,         /* rows that share a packed panel of b */
    PANEL_BYTES = 32 * 1024, /* of which the cache keeps most */
    PANEL_VECTORS = 2,       /* the columns of a panel */
    TILE_ROWS = 4,           /* rows whose sums are in registers */
};

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* Signed and unsigned integers wrap around alike. */
#define T    uint8_t
#define A    uint32_t
#define KIND 8
#include "backend/cpu/linalg/product_int_targets.inc"
#define T    uint16_t
#define A    uint32_t
#define KIND 16
#include "backend/cpu/linalg/product_int_targets.inc"
#define T    uint32_t
#define A    uint32_t
#define KIND 32
#include "backend/cpu/linalg/product_int_targets.inc"
#define T    uint64_t
#define A    uint64_t
#define KIND 64
#include "backend/cpu/linalg/product_int_targets.inc"

typedef struct kernel {
    void (*block)(const aril__product *p, const int64_t at[3], bool add, int64_t row, int64_t m,
                  int64_t col, int64_t n);
    int64_t width; /* maximum n */
} kernel;

/* By the logarithm of the bytes of an element. */
#define BY_SIZE(level)                                                            \
    {                                                                             \
        { block_8##level, WIDTH_8##level }, { block_16##level, WIDTH_16##level }, \
            { block_32##level, WIDTH_32##level },                                 \
        {                                                                         \
            block_64##level, WIDTH_64##level                                      \
        }                                                                         \
    }
static const kernel kernels[ARIL__CPU_LEVELS][4] = {
    [ARIL__CPU_BASELINE] = BY_SIZE(),
#if ARIL__TARGETS
    [ARIL__CPU_AVX2] = BY_SIZE(_avx2),
    [ARIL__CPU_AVX512] = BY_SIZE(_avx512),
#endif
};

static const kernel *kernel_of(aril_dtype t)
{
    int size = 0;
    while (8 << size < aril__dtypes[t].bits) size++;
    return &kernels[aril__cpu()][size];
}

typedef struct job {
    aril__product p;
    const kernel *kernel;
    int64_t down, across; /* blocks of the result */
    bool add;             /* accumulate into c */
} job;

static void run_blocks(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    const aril__product *p = &j->p;
    for (; begin < end; begin++) {
        int64_t at[3], row = begin / j->across % j->down * BLOCK_ROWS;
        int64_t col = begin % j->across * j->kernel->width;
        int64_t m = p->m - row < BLOCK_ROWS ? p->m - row : BLOCK_ROWS;
        int64_t n = p->n - col < j->kernel->width ? p->n - col : j->kernel->width;
        aril__product_at(p, begin / (j->down * j->across), at);
        j->kernel->block(p, at, j->add, row, m, col, n);
    }
}

aril_status aril__cpu_product_int(aril__run *r)
{
    job j = { .p = aril__product_of(r), .kernel = kernel_of(r->type) };
    if (r->op == &aril__op_linear && r->n_in > 2 && r->in[2]) {
        aril__copy_elements(r->out[0], r->in[2]);
        j.add = true;
    }
    if (r->out[0]->numel == 0) return ARIL_OK;
    j.down = aril__parallel_chunks(j.p.m, BLOCK_ROWS);
    j.across = aril__parallel_chunks(j.p.n, j.kernel->width);
    int64_t rows = j.p.m < BLOCK_ROWS ? j.p.m : BLOCK_ROWS;
    int64_t work = rows * j.kernel->width * (j.p.k > 0 ? j.p.k : 1);
    aril__parallel_for(j.p.batch * j.down * j.across, work < GRAIN ? GRAIN / work : 1, run_blocks,
                       &j);
    return ARIL_OK;
}
