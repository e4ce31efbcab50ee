#include "backend/cpu/gemm.h"

#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/apply.h"
#include "ops/copy.h"
#include "ops/matmul.h"

#if ARIL_HAVE_BLAS
#include <cblas.h>
#include <limits.h>
#endif

/* Results are cut into tiles by size alone; each is made by one thread, with all of k, so that no
 * bit depends on how many threads there are. */
enum {
    TILE_M = 384,
    TILE_N = 512,
    LEAST_TILE = 96,
    SMALL = 1 << 20,   /* products not worth cutting, in multiplications */
    GRAIN = 1 << 17,   /* at least that much for a thread */
    WANTED_TILES = 32, /* of a large product */
};

/* ---- OpenBLAS ---- */

#if ARIL_HAVE_BLAS

/* Aril cuts the work itself; OpenBLAS's own threads would only get in the way. */
static void blas_on_one_thread(void)
{
    if (aril__unlikely(openblas_get_num_threads() != 1)) openblas_set_num_threads(1);
}

/* How BLAS sees a matrix: transposed or not, and the step between its lines. False if it can't. */
static bool blas_order(int64_t rows, int64_t cols, int64_t row, int64_t col, CBLAS_TRANSPOSE *trans,
                       blasint *lead)
{
    int64_t step;
    if ((col == 1 || cols == 1) && (row >= cols || rows == 1)) {
        *trans = CblasNoTrans;
        step = rows == 1 ? cols : row;
    } else if ((row == 1 || rows == 1) && (col >= rows || cols == 1)) {
        *trans = CblasTrans;
        step = cols == 1 ? rows : col;
    } else {
        return false;
    }
    *lead = (blasint)(step > 0 ? step : 1);
    return step <= INT_MAX;
}

static bool blas_takes(const aril__gemm *g, CBLAS_TRANSPOSE *ta, CBLAS_TRANSPOSE *tb, blasint *la,
                       blasint *lb)
{
    return g->c_col == 1 && g->c_row >= g->n && g->c_row <= INT_MAX && g->m <= INT_MAX &&
           g->n <= INT_MAX && g->k <= INT_MAX && g->k > 0 &&
           g->m * g->n * g->k > 1000 && /* below, its own overhead is larger */
           blas_order(g->m, g->k, g->a_row, g->a_col, ta, la) &&
           blas_order(g->k, g->n, g->b_row, g->b_col, tb, lb);
}

static void blas_f32(const aril__gemm *g)
{
    CBLAS_TRANSPOSE ta, tb;
    blasint la, lb, m = (blasint)g->m, n = (blasint)g->n, k = (blasint)g->k;
    float beta = g->add ? 1 : 0;
    if (!blas_takes(g, &ta, &tb, &la, &lb))
        aril__gemm_f32(g);
    else if (n == 1 && g->b_row > 0 && g->b_row <= INT_MAX && g->c_row <= INT_MAX)
        cblas_sgemv(CblasRowMajor, ta, ta == CblasNoTrans ? m : k, ta == CblasNoTrans ? k : m, 1,
                    g->a, la, g->b, (blasint)g->b_row, beta, g->c, (blasint)g->c_row);
    else if (m == 1 && g->a_col > 0 && g->a_col <= INT_MAX)
        cblas_sgemv(CblasRowMajor, tb == CblasNoTrans ? CblasTrans : CblasNoTrans,
                    tb == CblasNoTrans ? k : n, tb == CblasNoTrans ? n : k, 1, g->b, lb, g->a,
                    (blasint)g->a_col, beta, g->c, 1);
    else
        cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, g->a, la, g->b, lb, beta, g->c,
                    (blasint)g->c_row);
}

static void blas_f64(const aril__gemm *g)
{
    CBLAS_TRANSPOSE ta, tb;
    blasint la, lb, m = (blasint)g->m, n = (blasint)g->n, k = (blasint)g->k;
    double beta = g->add ? 1 : 0;
    if (!blas_takes(g, &ta, &tb, &la, &lb))
        aril__gemm_f64(g);
    else if (n == 1 && g->b_row > 0 && g->b_row <= INT_MAX && g->c_row <= INT_MAX)
        cblas_dgemv(CblasRowMajor, ta, ta == CblasNoTrans ? m : k, ta == CblasNoTrans ? k : m, 1,
                    g->a, la, g->b, (blasint)g->b_row, beta, g->c, (blasint)g->c_row);
    else if (m == 1 && g->a_col > 0 && g->a_col <= INT_MAX)
        cblas_dgemv(CblasRowMajor, tb == CblasNoTrans ? CblasTrans : CblasNoTrans,
                    tb == CblasNoTrans ? k : n, tb == CblasNoTrans ? n : k, 1, g->b, lb, g->a,
                    (blasint)g->a_col, beta, g->c, 1);
    else
        cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, g->a, la, g->b, lb, beta, g->c,
                    (blasint)g->c_row);
}

#else
#define blas_f32 aril__gemm_f32
#define blas_f64 aril__gemm_f64

static void blas_on_one_thread(void)
{
}
#endif

/* ---- tiles ---- */

typedef struct tiles {
    const aril__product *p;
    aril__gemm_fn *fn;
    size_t size;                /* of an element */
    int64_t tm, tn, rows, cols; /* of a tile; how many */
    bool add;
} tiles;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t pieces(int64_t n, int64_t size)
{
    return size > 0 ? (n + size - 1) / size : 1;
}

static void choose_tiles(tiles *t)
{
    const aril__product *p = t->p;
    t->tm = p->m;
    t->tn = p->n;
    if (p->m * p->n > SMALL / (p->k > 0 ? p->k : 1)) {
        t->tm = least(p->m, TILE_M);
        t->tn = least(p->n, TILE_N);
        for (;;) {
            int64_t count = p->batch * pieces(p->m, t->tm) * pieces(p->n, t->tn);
            if (count >= WANTED_TILES || t->tm * t->tn <= SMALL / (p->k > 0 ? p->k : 1)) break;
            if (t->tn >= t->tm && t->tn >= 2 * LEAST_TILE)
                t->tn /= 2;
            else if (t->tm >= 2 * LEAST_TILE)
                t->tm /= 2;
            else
                break;
        }
        /* As even as can be, in whole registers of any machine. */
        t->tm = (pieces(p->m, pieces(p->m, t->tm)) + 23) / 24 * 24;
        t->tn = (pieces(p->n, pieces(p->n, t->tn)) + 31) / 32 * 32;
    }
    t->rows = pieces(p->m, t->tm);
    t->cols = pieces(p->n, t->tn);
}

static void run_tiles(void *ctx, int64_t begin, int64_t end)
{
    const tiles *t = ctx;
    const aril__product *p = t->p;
    int64_t size = (int64_t)t->size, per = t->rows * t->cols;
    for (int64_t i = begin; i < end; i++) {
        int64_t at[3], row = i % per / t->cols * t->tm, col = i % per % t->cols * t->tn;
        aril__product_at(p, i / per, at);
        aril__gemm g = { .m = least(t->tm, p->m - row),
                         .n = least(t->tn, p->n - col),
                         .k = p->k,
                         .a = p->a + (at[0] + row * p->a_row) * size,
                         .b = p->b + (at[1] + col * p->b_col) * size,
                         .c = p->c + (at[2] + row * p->c_row + col * p->c_col) * size,
                         .a_row = p->a_row,
                         .a_col = p->a_col,
                         .b_row = p->b_row,
                         .b_col = p->b_col,
                         .c_row = p->c_row,
                         .c_col = p->c_col,
                         .add = t->add };
        t->fn(&g);
    }
}

static void run_product(const aril__product *p, aril__gemm_fn *fn, size_t size, bool add)
{
    if (p->batch == 0 || p->m == 0 || p->n == 0) return;
    tiles t = { .p = p, .fn = fn, .size = size, .add = add };
    choose_tiles(&t);
    int64_t work = t.tm * t.tn * (p->k > 0 ? p->k : 1);
    aril__parallel_for(p->batch * t.rows * t.cols, work < GRAIN ? GRAIN / work : 1, run_tiles, &t);
}

void aril__cpu_gemm(aril_dtype type, const aril__gemm *g)
{
    aril__product p = { .batch = 1,
                        .m = g->m,
                        .n = g->n,
                        .k = g->k,
                        .a = g->a,
                        .b = g->b,
                        .c = g->c,
                        .a_row = g->a_row,
                        .a_col = g->a_col,
                        .b_row = g->b_row,
                        .b_col = g->b_col,
                        .c_row = g->c_row,
                        .c_col = g->c_col };
    blas_on_one_thread();
    if (type == ARIL_F32)
        run_product(&p, blas_f32, sizeof(float), g->add);
    else
        run_product(&p, blas_f64, sizeof(double), g->add);
}

/* ---- rows ---- */

static aril_status run_native(aril__run *r, aril__gemm_fn *f32, aril__gemm_fn *f64)
{
    aril__product p = aril__product_of(r);
    bool add = r->op == &aril__op_linear && r->n_in > 2 && r->in[2];
    if (add) aril__copy_elements(r->out[0], r->in[2]);
    run_product(&p, r->type == ARIL_F32 ? f32 : f64, r->type == ARIL_F32 ? 4 : 8, add);
    return ARIL_OK;
}

/* f16 and bf16 by way of f32. */
static aril_status run_staged(aril__run *r, aril__gemm_fn *f32)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril__thread *th = aril__self();
    aril_tensor *in[3], *to = r->out[0];
    aril_tensor *out = aril__give(th, aril__tensor_new(th, ARIL_F32, to->ndim, to->dim, r->device));
    aril_status s = aril_tensor_status(out);
    for (int i = 0; i < r->n_in && s == ARIL_OK; i++) {
        in[i] = r->in[i] ? aril_cast(r->in[i], ARIL_F32) : NULL;
        s = in[i] ? aril_tensor_status(in[i]) : s;
    }
    if (s < 0) return s;
    aril__run staged = *r;
    staged.in = in;
    staged.out = &out;
    staged.type = ARIL_F32;
    s = run_native(&staged, f32, NULL);
    aril__copy_elements(to, out);
    return s;
}

aril_status aril__cpu_product(aril__run *r)
{
    if (r->type == ARIL_F16 || r->type == ARIL_BF16) return run_staged(r, aril__gemm_f32);
    return run_native(r, aril__gemm_f32, aril__gemm_f64);
}

aril_status aril__cpu_product_blas(aril__run *r)
{
    blas_on_one_thread();
    if (r->type == ARIL_F16 || r->type == ARIL_BF16) return run_staged(r, blas_f32);
    return run_native(r, blas_f32, blas_f64);
}
