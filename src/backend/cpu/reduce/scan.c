#include "backend/cpu/reduce/scan.h"

#include "core/loops.h"
#include "core/parallel.h"
#include "ops/reduce/scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the loop ---- */

enum {
    GRAIN = 16 * 1024,
    COLS = 16,
    LEN = 64,
    ROW = COLS * LEN,
    WIDE = 256,    /* maximum columns processed a row at a time */
    FOURFOLD = 64, /* minimum line length for splitting in four */
};

typedef union word {
    double f;
    int64_t i;
    uint64_t u;
} word;

typedef struct job job;

/* Scans n elements of a line, starting at element `at`: x0 and x1 to y0 and y1, with two state
 * numbers carried along the line. */
typedef struct scanner {
    aril__ctype type;
    void (*line)(const job *j, word *s, const void *x0, const void *x1, void *y0, int64_t *y1,
                 int64_t n, int64_t at);
    /* The same for element `at` of each of m lines, at most WIDE: state number k is at s[k * WIDE].
     * NULL: lines are scanned one by one. */
    void (*across)(const job *j, word *s, const void *x0, void *y0, int64_t *y1, int64_t m,
                   int64_t at);
} scanner;

struct job {
    const scanner *how;
    double init;
    bool larger;
    int n_in, n_out;
    const aril_tensor *t[4]; /* two inputs (the second may be NULL), two outputs */
    int64_t base[4];
    aril__loops kept, scanned;
    int64_t length;
    int64_t cols; /* lines scanned side by side: 1 or COLS */
};

/* Moves m columns of n elements between the tensor and tiles [COLS][LEN]. */
static void load_tile(const job *j, int k, const aril__loops_at *p, const aril__loops_at *q,
                      int64_t m, int64_t n, word *tile)
{
    const aril_tensor *t = j->t[k];
    const aril__loops *kept = &j->kept, *scanned = &j->scanned;
    if (!t) {
        memset(tile, 0, (size_t)(m == 1 ? n : ROW) * sizeof *tile);
        return;
    }
    aril__load_fn *load = aril__dtypes[t->dtype].load[j->how->type];
    int64_t step = aril__loops_step(scanned, k);
    int64_t offset = p->offset[k] + q->offset[k];
    if (j->cols == 1) {
        load(tile, aril__base(t), offset, step, n);
        return;
    }
    word row[COLS];
    for (int64_t i = 0; i < n; i++) {
        load(row, aril__base(t), offset + i * step, kept->stride[k][kept->ndim - 1], m);
        for (int64_t c = 0; c < m; c++) tile[c * LEN + i] = row[c];
    }
}

static void store_tile(const job *j, int k, const aril__loops_at *p, const aril__loops_at *q,
                       int64_t m, int64_t n, const word *tile)
{
    const aril_tensor *t = j->t[k];
    const aril__loops *kept = &j->kept, *scanned = &j->scanned;
    aril__store_fn *store = aril__dtypes[t->dtype].store[k == 3 ? ARIL__C_I64 : j->how->type];
    int64_t step = scanned->ndim ? scanned->stride[k][scanned->ndim - 1] : 1;
    int64_t offset = p->offset[k] + q->offset[k];
    if (j->cols == 1) {
        store(aril__base(t), offset, step, tile, n);
        return;
    }
    word row[COLS];
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < m; c++) row[c] = tile[c * LEN + i];
        store(aril__base(t), offset + i * step, kept->stride[k][kept->ndim - 1], row, m);
    }
}

/* m adjacent lines, row by row. */
static void scan_rows(const job *j, const aril__loops_at *p, int64_t m)
{
    word s[2 * WIDE], x[WIDE], y[2][WIDE];
    const aril__loops *kept = &j->kept;
    aril__load_fn *load = aril__dtypes[j->t[0]->dtype].load[j->how->type];
    int last = kept->ndim - 1;
    aril__loops_at q;
    aril__loops_seek(&j->scanned, &q, 0, (int64_t[4]){ 0 });
    for (int64_t at = 0; at < j->length; at++) {
        load(x, aril__base(j->t[0]), p->offset[0] + q.offset[0], kept->stride[0][last], m);
        j->how->across(j, s, x, y[0], &y[1][0].i, m, at);
        for (int k = 0; k < j->n_out; k++) {
            const aril_tensor *t = j->t[2 + k];
            aril__dtypes[t->dtype].store[k ? ARIL__C_I64 : j->how->type](
                aril__base(t), p->offset[2 + k] + q.offset[2 + k], kept->stride[2 + k][last], y[k],
                m);
        }
        aril__loops_move(&j->scanned, &q, 1);
    }
}

static void scan_range(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    if (j->cols > 1 && j->how->across) {
        aril__loops_at at;
        aril__loops_seek(&j->kept, &at, begin, j->base);
        while (begin < end) {
            int64_t m = aril__loops_run(&j->kept, &at);
            m = m < end - begin ? m : end - begin;
            m = m < WIDE ? m : WIDE;
            scan_rows(j, &at, m);
            begin += m;
            aril__loops_move(&j->kept, &at, m);
        }
        return;
    }
    int64_t max = j->cols == 1 ? ROW : LEN;
    word tile[4][ROW];
    aril__loops_at p, q;
    aril__loops_seek(&j->kept, &p, begin, j->base);
    while (begin < end) {
        int64_t m = j->cols == 1 ? 1 : aril__loops_run(&j->kept, &p);
        m = m < end - begin ? m : end - begin;
        m = m < j->cols ? m : j->cols;
        word state[COLS][2];
        aril__loops_seek(&j->scanned, &q, 0, (int64_t[4]){ 0 });
        for (int64_t at = 0; at < j->length;) {
            int64_t n = aril__loops_run(&j->scanned, &q);
            n = n < max ? n : max;
            for (int k = 0; k < j->n_in; k++) load_tile(j, k, &p, &q, m, n, tile[k]);
            for (int64_t c = 0; c < m; c++)
                j->how->line(j, state[c], tile[0] + c * LEN, tile[1] + c * LEN, tile[2] + c * LEN,
                             &tile[3][c * LEN].i, n, at);
            for (int k = 2; k < 2 + j->n_out; k++) store_tile(j, k, &p, &q, m, n, tile[k]);
            at += n;
            aril__loops_move(&j->scanned, &q, n);
        }
        begin += m;
        aril__loops_move(&j->kept, &p, m);
    }
}

static void add_axis(job *j, aril__loops *n, int d, bool reverse)
{
    n->dim[n->ndim] = j->t[0]->dim[d];
    for (int k = 0; k < 4; k++) {
        int64_t stride = j->t[k] ? j->t[k]->stride[d] : 0;
        if (reverse) j->base[k] += (j->t[0]->dim[d] - 1) * stride;
        n->stride[k][n->ndim] = reverse ? -stride : stride;
    }
    n->ndim++;
}

static aril_status run(aril__run *r, const scanner *how, bool larger)
{
    const struct scan_attrs *a = r->attrs;
    job j = { .how = how,
              .init = a->init[0],
              .larger = larger,
              .n_in = r->n_in,
              .n_out = r->n_out,
              .t = { r->in[0], r->n_in > 1 ? r->in[1] : NULL, r->out[0],
                     r->n_out > 1 ? r->out[1] : NULL },
              .kept = { .n = 4 },
              .scanned = { .n = 4 },
              .length = 1,
              .cols = 1 };
    const aril_tensor *x = r->in[0];
    if (x->numel == 0) return ARIL_OK;
    for (int k = 0; k < 4; k++) j.base[k] = j.t[k] ? j.t[k]->offset : 0;
    for (int d = 0; d < x->ndim; d++) {
        bool scans = a->mask[0] >> d & 1;
        add_axis(&j, scans ? &j.scanned : &j.kept, d, scans && a->reverse[0]);
        if (scans) j.length *= x->dim[d];
    }
    aril__loops_merge(&j.kept, 0);
    int kept = j.kept.ndim - 1, last = j.scanned.ndim - 1;
    /* Adjacent lines are scanned together. */
    if (kept >= 0 && last >= 0 && j.kept.dim[kept] >= 4 &&
        llabs(j.kept.stride[0][kept]) < llabs(j.scanned.stride[0][last]))
        j.cols = COLS;
    int64_t grain = GRAIN / j.length, min = j.cols > 1 && how->across ? 4 * COLS : COLS;
    aril__parallel_for(x->numel / j.length, grain > min ? grain : min, scan_range, &j);
    return ARIL_OK;
}

/* ---- contiguous tensors ---- */

enum { SUM, PRODUCT, LARGEST, SMALLEST };

enum {
    LINES = 4,     /* scanned in lockstep */
    COLUMNS = 256, /* scanned row by row */
};

/* Memory as [outer, length, inner]. */
typedef struct dense_job {
    int64_t length, inner;
    bool reverse;
    const void *x;
    void *y;
    int64_t *where;
} dense_job;

/* Requests the cache lines of the lines that come next, if they are few: short lines in lockstep
 * are an order in which the processor does not foresee them. */
static inline void request_lines(const void *at, int64_t bytes)
{
    for (int64_t i = 0; i < bytes && bytes <= 32 * 1024; i += 64)
        __builtin_prefetch((const char *)at + i);
}

#define T         float
#define A         double
#define NAME(x)   x##_dense_f32
#define IS_NAN(x) ((x) != (x))
#include "backend/cpu/reduce/scan_dense.inc"

#define T         double
#define A         double
#define NAME(x)   x##_dense_f64
#define IS_NAN(x) ((x) != (x))
#include "backend/cpu/reduce/scan_dense.inc"

#define T         int64_t
#define A         int64_t
#define NAME(x)   x##_dense_i64
#define IS_NAN(x) false
#include "backend/cpu/reduce/scan_dense.inc"

/* Scans contiguous tensors directly if it can; returns whether it did. */
static bool run_dense(const aril__run *r, int kind)
{
    const struct scan_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0];
    uint64_t mask = (uint64_t)a->mask[0];
    bool f32 = x->dtype == ARIL_F32, f64 = x->dtype == ARIL_F64;
    if (!mask || mask & (mask - 1) || !(f32 || f64 || x->dtype == ARIL_I64) || x->numel == 0)
        return false;
    if (!aril__is_dense(x) || r->out[0]->dtype != x->dtype || (kind >= LARGEST && a->reverse[0]))
        return false;
    for (int k = 0; k < r->n_out; k++)
        if (!aril__is_dense(r->out[k])) return false;
    int axis = __builtin_ctzll(mask);
    if (axis >= x->ndim) return false; /* axis of a larger tensor: nothing to scan */
    dense_job j = { .length = x->dim[axis],
                    .inner = aril__count(x->ndim - axis - 1, x->dim + axis + 1),
                    .reverse = a->reverse[0],
                    .x = aril__ptr(x),
                    .y = aril__ptr(r->out[0]),
                    .where = r->n_out > 1 ? aril__ptr(r->out[1]) : NULL };
    int64_t lines = x->numel / j.length, min = GRAIN / j.length;
    if (kind == SUM && lines < LINES) return false; /* split long sums in four instead */
    bool across = j.inner > 1;
    if (min < (across ? COLS : 1)) min = across ? COLS : 1;
    int64_t grain = (lines - 1) / aril__parallel_pieces(lines, min) + 1;
    aril__parallel_for(lines, grain,
                       (f32   ? scans_dense_f32
                        : f64 ? scans_dense_f64
                              : scans_dense_i64)[across][kind],
                       &j);
    return true;
}

/* ---- scanners ---- */

#define T         double
#define CT        ARIL__C_F64
#define LOWEST    (-INFINITY)
#define HIGHEST   INFINITY
#define NAME(x)   x##_f64
#define IS_NAN(x) ((x) != (x))
#include "backend/cpu/reduce/scan.inc"

#define T         int64_t
#define CT        ARIL__C_I64
#define LOWEST    INT64_MIN
#define HIGHEST   INT64_MAX
#define NAME(x)   x##_i64
#define IS_NAN(x) false
#include "backend/cpu/reduce/scan.inc"

#define T         uint64_t
#define CT        ARIL__C_U64
#define LOWEST    0
#define HIGHEST   UINT64_MAX
#define NAME(x)   x##_u64
#define IS_NAN(x) false
#include "backend/cpu/reduce/scan.inc"

static const scanner *for_dtype(const aril__run *r, const scanner *f64, const scanner *i64,
                                const scanner *u64)
{
    uint8_t t = r->in[0]->dtype;
    return aril__is_float((aril_dtype)t) ? f64 : t == ARIL_U64 ? u64 : i64;
}

static void linear_line(const job *j, word *s, const void *x0, const void *x1, void *y0,
                        int64_t *y1, int64_t n, int64_t at)
{
    (void)y1;
    double z = at == 0 ? j->init : s->f;
    const double *a = x0, *b = x1;
    double *y = y0;
    for (int64_t i = 0; i < n; i++) {
        y[i] = z;
        z = b[i] + a[i] * z;
    }
    s->f = z;
}

static const scanner linear = { ARIL__C_F64, linear_line, NULL };

static void logcumsumexp_line(const job *j, word *s, const void *x0, const void *x1, void *y0,
                              int64_t *y1, int64_t n, int64_t at)
{
    (void)j, (void)x1, (void)y1;
    double sum = at == 0 ? -INFINITY : s->f;
    for (int64_t i = 0; i < n; i++) {
        double x = ((const double *)x0)[i];
        double high = x > sum ? x : sum, low = x > sum ? sum : x;
        if (x != x || sum != sum)
            sum = NAN;
        else if (high != low || isfinite(high))
            sum = high + log1p(exp(low - high));
        ((double *)y0)[i] = sum;
    }
    s->f = sum;
}

static const scanner logcumsumexp_f64 = { ARIL__C_F64, logcumsumexp_line, NULL };

/* ---- the kernels ---- */

aril_status aril__cpu_linear_scan(aril__run *r)
{
    return run(r, &linear, false);
}

aril_status aril__cpu_cumsum(aril__run *r)
{
    if (run_dense(r, SUM)) return ARIL_OK;
    return run(r, for_dtype(r, &cumsum_f64, &cumsum_i64, &cumsum_u64), false);
}

aril_status aril__cpu_cumprod(aril__run *r)
{
    if (run_dense(r, PRODUCT)) return ARIL_OK;
    return run(r, for_dtype(r, &cumprod_f64, &cumprod_i64, &cumprod_u64), false);
}

aril_status aril__cpu_cummax(aril__run *r)
{
    if (run_dense(r, LARGEST)) return ARIL_OK;
    return run(r, for_dtype(r, &cummax_f64, &cummax_i64, &cummax_u64), true);
}

aril_status aril__cpu_cummin(aril__run *r)
{
    if (run_dense(r, SMALLEST)) return ARIL_OK;
    return run(r, for_dtype(r, &cummax_f64, &cummax_i64, &cummax_u64), false);
}

aril_status aril__cpu_logcumsumexp(aril__run *r)
{
    return run(r, &logcumsumexp_f64, false);
}
