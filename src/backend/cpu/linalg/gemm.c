#include "backend/cpu/linalg/gemm.h"

#include "core/parallel.h"
#include "backend/activation.h"
#include "ops/linalg/matmul.h"

#if ARIL_HAVE_BLAS
#include <cblas.h>
#include <limits.h>
#endif

enum {
    MIN_WORK = 160 * 1024, /* multiplications that make a second thread worthwhile */
    LARGE = 8 << 20,       /* for each thread: from here on, small pieces balance the load */
    PER_THREAD = 4,        /* pieces per thread of a large product */
    UNIT_M = 4,            /* tile sizes are multiples: full registers on any machine */
    UNIT_N = 32,
    UNIT_DOT = 4,
};

/* ---- OpenBLAS ---- */

#if ARIL_HAVE_BLAS

/* Aril cuts the work itself; OpenBLAS's own threads would only interfere. */
static void blas_on_one_thread(void)
{
    if (aril__unlikely(openblas_get_num_threads() != 1)) openblas_set_num_threads(1);
}

/* How BLAS sees a matrix: transposed or not, and its leading dimension. False if it cannot. */
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
           g->m * g->n * g->k > 1000 && /* below that, BLAS's overhead dominates */
           blas_order(g->m, g->k, g->a_row, g->a_col, ta, la) &&
           blas_order(g->k, g->n, g->b_row, g->b_col, tb, lb);
}

static void own_f32(const aril__gemm *g)
{
    aril__gemm t = *g;
    aril__gemm_choose(&t, sizeof(float));
    aril__gemm_f32(&t);
}

static void own_f64(const aril__gemm *g)
{
    aril__gemm t = *g;
    aril__gemm_choose(&t, sizeof(double));
    aril__gemm_f64(&t);
}

static void blas_f32(const aril__gemm *g)
{
    CBLAS_TRANSPOSE ta, tb;
    blasint la, lb, m = (blasint)g->m, n = (blasint)g->n, k = (blasint)g->k;
    float beta = g->add ? 1 : 0;
    if (!blas_takes(g, &ta, &tb, &la, &lb))
        own_f32(g);
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
        own_f64(g);
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

#endif

/* ---- tiles ---- */

/* Applied after the product in linear. */
typedef struct finish {
    aril_dtype type;
    const void *bias; /* NULL: none */
    int64_t bias_step;
    int64_t activation;
} finish;

typedef struct tiles {
    const aril__product *p;
    aril__gemm full; /* for the first batch index */
    aril__gemm_fn *fn;
    const finish *finish;
    int64_t size;               /* bytes per element */
    int64_t tm, tn, rows, cols; /* tile sizes, and number of tiles */
} tiles;

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t pieces_of(int64_t n, int64_t size)
{
    return size > 0 ? (n + size - 1) / size : 1;
}

/* The size of each of `pieces` pieces of n, rounded up to a multiple of `unit`. */
static int64_t piece_size(int64_t n, int64_t pieces, int64_t unit)
{
    return pieces == 1 ? n : pieces_of(pieces_of(n, pieces), unit) * unit;
}

/* Cuts the result for `threads` into about `wanted` tiles so that the last thread finishes as early
 * as possible. One thread computes a tile over all of k: the cut changes no bit of the result. */
static void choose_tiles(tiles *t, int64_t threads, int64_t wanted)
{
    const aril__gemm *g = &t->full;
    bool dots = g->path == ARIL__GEMM_DOTS;
    int64_t unit_m = dots ? UNIT_DOT : UNIT_M, unit_n = dots ? UNIT_DOT : UNIT_N, best = INT64_MAX;
    int64_t read = dots ? 0 : g->path == ARIL__GEMM_DIRECT ? 1 : 4; /* per element read or packed */
    t->tm = g->m;
    t->tn = g->n;
    for (int64_t across = 1; across <= wanted; across++) {
        int64_t down = wanted / across;
        if (across * down != wanted || (dots && across > 1 && down > 1)) continue;
        if (dots && (g->m < g->n ? down > 1 : across > 1)) continue;
        int64_t tm = piece_size(g->m, down, unit_m), tn = piece_size(g->n, across, unit_n);
        int64_t count = pieces_of(g->m, tm) * pieces_of(g->n, tn);
        int64_t rounds = pieces_of(count, threads);
        int64_t cost = rounds * (tm * tn + read * (tm + 2 * tn));
        if (cost >= best) continue;
        best = cost;
        t->tm = tm;
        t->tn = tn;
    }
    t->rows = pieces_of(g->m, t->tm);
    t->cols = pieces_of(g->n, t->tn);
}

static void finish_tile(const finish *f, const aril__gemm *g, int64_t row, int64_t col)
{
    int64_t m = g->m, n = g->n, c_row = g->c_row, c_col = g->c_col, first = col;
    if (g->turned) {
        m = g->n, n = g->m, first = row;
        c_row = g->c_col, c_col = g->c_row;
    }
    int64_t size = f->type == ARIL_F32 ? 4 : 8;
    if (f->bias)
        aril__gemm_bias(f->type, m, n, g->c, c_row, c_col,
                        (const char *)f->bias + first * f->bias_step * size, f->bias_step);
    if (!f->activation) return;
    if (c_col != 1 && c_row == 1) { /* iterate along the contiguous dimension */
        int64_t swap = m;
        m = n, n = swap;
        c_row = c_col, c_col = 1;
    }
    for (int64_t i = 0; i < m; i++)
        if (c_col == 1)
            aril__activation_run(f->type, f->activation, n, (char *)g->c + i * c_row * size);
        else
            for (int64_t j = 0; j < n; j++)
                aril__activation_run(f->type, f->activation, 1,
                                     (char *)g->c + (i * c_row + j * c_col) * size);
}

/* Computes the products from batch index i on, up to `end`, whose operands follow each other, if
 * they are single numbers; returns how many. */
static int64_t dots_from(const tiles *t, const aril__gemm *g, int64_t i, int64_t end)
{
    const aril__product *p = t->p;
    int last = p->ndim - 1;
    if (g->m != 1 || g->n != 1 || last < 0 || (t->fn != aril__gemm_f32 && t->fn != aril__gemm_f64))
        return 0;
    int64_t run = min(p->dim[last] - i % p->dim[last], end - i);
    int64_t step[3] = { p->a_step[last], p->b_step[last], p->c_step[last] };
    if (g->turned) {
        step[0] = p->b_step[last];
        step[1] = p->a_step[last];
    }
    return aril__gemm_dots(t->size == 4 ? ARIL_F32 : ARIL_F64, g, run, step) ? run : 0;
}

static void run_tiles(void *ctx, int64_t begin, int64_t end)
{
    const tiles *t = ctx;
    int64_t size = t->size, per = t->rows * t->cols;
    for (int64_t i = begin; i < end; i++) {
        int64_t at[3], row = i % per / t->cols * t->tm, col = i % per % t->cols * t->tn;
        aril__product_at(t->p, i / per, at);
        aril__gemm g = t->full;
        bool turned = g.turned;
        g.m = min(t->tm, g.m - row);
        g.n = min(t->tn, g.n - col);
        g.a = (const char *)g.a + (at[turned] + row * g.a_row) * size;
        g.b = (const char *)g.b + (at[!turned] + col * g.b_col) * size;
        g.c = (char *)g.c + (at[2] + row * g.c_row + col * g.c_col) * size;
        int64_t run = per == 1 && !t->finish ? dots_from(t, &g, i, end) : 0;
        if (run > 0) {
            i += run - 1;
            continue;
        }
        t->fn(&g);
        if (t->finish) finish_tile(t->finish, &g, row, col);
    }
}

static void run_product(const aril__product *p, aril__gemm_fn *fn, bool own, bool add,
                        const finish *f)
{
    if (p->batch == 0 || p->m == 0 || p->n == 0) return;
    tiles t = { .p = p,
                .full = { .m = p->m,
                          .n = p->n,
                          .k = p->k,
                          .a = p->a,
                          .b = p->b,
                          .c = p->c,
                          .a_row = p->a_row,
                          .a_col = p->a_col,
                          .b_row = p->b_row,
                          .b_col = p->b_col,
                          .c_row = p->c_row,
                          .c_col = p->c_col,
                          .path = ARIL__GEMM_PACKED,
                          .add = add },
                .fn = fn,
                .finish = f->bias || f->activation ? f : NULL,
                .size = f->type == ARIL_F32 ? 4 : 8,
                .tm = p->m,
                .tn = p->n,
                .rows = 1,
                .cols = 1 };
    if (own) aril__gemm_choose(&t.full, (size_t)t.size);
    t.tm = t.full.m;
    t.tn = t.full.n;
    double work = (double)p->m * (double)p->n * (double)(p->k > 0 ? p->k : 1);
    double total = work * (double)p->batch;
    int64_t threads = total < 2 * MIN_WORK || aril__parallel_is_serial() ? 1 : aril_threads();
    int64_t wanted = total >= LARGE * (double)threads ? PER_THREAD * threads : threads,
            max = (int64_t)(total / MIN_WORK);
    if (wanted > max) wanted = max > 1 ? max : 1;
    if (own && threads == 1) {
        run_tiles(&t, 0, p->batch);
        return;
    }
    if (!own) { /* a library's bits may depend on the cut, so that must not depend on threads */
        threads = total < 2 * MIN_WORK ? 1 : PER_THREAD;
        wanted = total >= 2.0 * LARGE ? PER_THREAD * PER_THREAD : threads;
    }
    if (p->batch < wanted) choose_tiles(&t, threads, pieces_of(wanted, p->batch));
    int64_t count = p->batch * t.rows * t.cols;
    aril__parallel_for(count, pieces_of(count, wanted), run_tiles, &t);
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
    finish none = { .type = type };
    run_product(&p, type == ARIL_F32 ? aril__gemm_f32 : aril__gemm_f64, true, g->add, &none);
}

/* ---- rows ---- */

static finish finish_of(const aril__run *r)
{
    finish f = { .type = r->type };
    if (r->op != &aril__op_linear) return f;
    const struct linear_attrs *a = r->attrs;
    const aril_tensor *bias = r->n_in > 2 ? r->in[2] : NULL;
    f.activation = a ? a->activation[0] : 0;
    if (bias) {
        f.bias = aril__ptr(bias);
        f.bias_step = bias->stride[0];
    }
    return f;
}

/* A step of a small recurrent network: it takes less time than to find out how to cut it. */
static bool run_few_rows(const aril__run *r)
{
    enum { ROWS = 2, MOST = 64 };
    const aril_tensor *a = r->in[0], *b = r->in[1], *c = r->out[0];
    bool linear = r->op == &aril__op_linear;
    if (a->ndim != 2 || b->ndim != 2 || (!linear && r->op != &aril__op_matmul)) return false;
    aril__gemm g = { .m = c->dim[0],
                     .n = c->dim[1],
                     .k = a->dim[1],
                     .a_row = a->stride[0],
                     .a_col = a->stride[1],
                     .b_row = b->stride[linear],
                     .b_col = b->stride[!linear],
                     .c_row = c->stride[0],
                     .c_col = c->stride[1] };
    if (g.m < 1 || g.m > ROWS || g.n < 1 || g.n > MOST || g.k > MOST || g.c_col != 1) return false;
    g.a = aril__ptr(a);
    g.b = aril__ptr(b);
    g.c = aril__ptr(c);
    if (!aril__gemm_few_rows(r->type, &g)) return false;
    finish f = finish_of(r);
    if (f.bias || f.activation) finish_tile(&f, &g, 0, 0);
    return true;
}

static aril_status run_floats(aril__run *r, aril__gemm_fn *f32, aril__gemm_fn *f64, bool own)
{
    if (own && run_few_rows(r)) return ARIL_OK;
    aril__product p = aril__product_of(r);
    finish f = finish_of(r);
    run_product(&p, r->type == ARIL_F32 ? f32 : f64, own, false, &f);
    return ARIL_OK;
}

aril_status aril__cpu_product(aril__run *r)
{
    return run_floats(r, aril__gemm_f32, aril__gemm_f64, true);
}

#if ARIL_HAVE_BLAS
aril_status aril__cpu_product_blas(aril__run *r)
{
    blas_on_one_thread();
    return run_floats(r, blas_f32, blas_f64, false);
}
#endif
