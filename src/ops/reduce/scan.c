#include "ops/reduce/scan.h"

#include "aril/ops.h"
#include "core/loops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/reduce/reduce.h"
#include "ops/table/sample.h"

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
    int64_t step = scanned->ndim ? scanned->stride[k][scanned->ndim - 1] : 0;
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
    int64_t most = j->cols == 1 ? ROW : LEN;
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
            n = n < most ? n : most;
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
    int64_t grain = GRAIN / j.length, least = j.cols > 1 && how->across ? 4 * COLS : COLS;
    aril__parallel_for(x->numel / j.length, grain > least ? grain : least, scan_range, &j);
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

#define T         float
#define A         double
#define NAME(x)   x##_dense_f32
#define IS_NAN(x) ((x) != (x))
#include "ops/reduce/scan_dense.inc"

#define T         double
#define A         double
#define NAME(x)   x##_dense_f64
#define IS_NAN(x) ((x) != (x))
#include "ops/reduce/scan_dense.inc"

#define T         int64_t
#define A         int64_t
#define NAME(x)   x##_dense_i64
#define IS_NAN(x) false
#include "ops/reduce/scan_dense.inc"

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
    int64_t lines = x->numel / j.length, least = GRAIN / j.length;
    if (kind == SUM && lines < LINES) return false; /* split long sums in four instead */
    bool across = j.inner > 1;
    if (least < (across ? COLS : 1)) least = across ? COLS : 1;
    int64_t grain = (lines - 1) / aril__parallel_pieces(lines, least) + 1;
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
#define LEAST     (-INFINITY)
#define MOST      INFINITY
#define NAME(x)   x##_f64
#define IS_NAN(x) ((x) != (x))
#include "ops/reduce/scan.inc"

#define T         int64_t
#define CT        ARIL__C_I64
#define LEAST     INT64_MIN
#define MOST      INT64_MAX
#define NAME(x)   x##_i64
#define IS_NAN(x) false
#include "ops/reduce/scan.inc"

#define T         uint64_t
#define CT        ARIL__C_U64
#define LEAST     0
#define MOST      UINT64_MAX
#define NAME(x)   x##_u64
#define IS_NAN(x) false
#include "ops/reduce/scan.inc"

/* Named ahead of their rows. */
extern const aril__op aril__op_cumsum, aril__op_linear_scan;

static const scanner *for_dtype(const aril__run *r, const scanner *f64, const scanner *i64,
                                const scanner *u64)
{
    uint8_t t = r->in[0]->dtype;
    return aril__is_float((aril_dtype)t) ? f64 : t == ARIL_U64 ? u64 : i64;
}

/* ---- linear_scan ---- */

ATTR_LIST(scan, SCAN_ATTRS)

static aril_status same_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    const aril_tensor *x = c->in[0];
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    return ARIL_OK;
}

static aril_status linear_scan_infer(aril__call *c)
{
    const aril_tensor *a = c->in[0], *b = c->in[1];
    bool fits = !b || (a->ndim == b->ndim && a->dtype == b->dtype);
    for (int d = 0; b && d < a->ndim && fits; d++)
        fits = a->dim[d] == b->dim[d] || a->dim[d] < 0 || b->dim[d] < 0;
    if (!fits) {
        char x[ARIL__SHAPE_TEXT], y[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "linear_scan: factors %s and terms %s must be alike",
                          aril__text(x, a), aril__text(y, b));
    }
    return same_infer(c);
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

static aril_status linear_scan_ref(aril__run *r)
{
    return run(r, &linear, false);
}

static aril_tensor *linear_scan(aril_tensor *a, aril_tensor *b, int64_t mask, bool reverse,
                                double init)
{
    struct scan_attrs at = { { mask }, { reverse }, { init } };
    return aril__op_with(&at, &aril__op_linear_scan, a, b);
}

/* With t the scan of the gradient by the same factors in the other direction: the gradient of the
 * terms is t, that of the factors t * z. */
VJP(linear_scan)
{
    const struct scan_attrs *a = c->attrs;
    if (!c->g[0]) return;
    aril_tensor *t = linear_scan(c->x[0], c->g[0], a->mask[0], !a->reverse[0], 0);
    GRAD(0, aril_mul(t, c->y[0]));
    if (c->n_in > 1) GRAD(1, t);
}

static const aril__sample linear_scan_samples[] = {
    { .in = { "[2,5]", "[2,5]" },
      .attrs = &(const struct scan_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "[2,3,4]" },
      .attrs = &(const struct scan_attrs){ .mask = { 5 }, .reverse = { 1 }, .init = { 0.5 } } },
    { .in = { "[3,4]", "-" }, .attrs = &(const struct scan_attrs){ .mask = { 1 }, .init = { 1 } } },
    { .in = { "[]", "[]" }, .attrs = &(const struct scan_attrs){ .init = { 2 } } },
    { .in = { "[0,3]", "[0,3]" }, .attrs = &(const struct scan_attrs){ .mask = { 2 } } },
    SAMPLE_END
};
OP(linear_scan, .doc = "z with z[k+1] = b[k] + a[k] * z[k] along axes", .min_in = 2, .max_in = 2,
   .n_out = 1, .flags = STRIDED, .optional = IN(1), .types = DT_FLOAT, .infer = linear_scan_infer,
   .ref = linear_scan_ref, .vjp = linear_scan_vjp, .saves = { IN(0) | OUT(0), IN(0) },
   .samples = linear_scan_samples, WITH_ATTRS(scan));

aril_tensor *aril__prod_before(aril_tensor *x, int64_t mask, bool reverse)
{
    return linear_scan(x, NULL, mask, reverse, 1);
}

/* ---- cumsum, cumprod ---- */

/* i64 for integers and bools. */
static aril_status cumsum_infer(aril__call *c)
{
    same_infer(c);
    if (!aril__is_float(c->out[0].dtype) && c->out[0].dtype != ARIL_U64) c->out[0].dtype = ARIL_I64;
    return ARIL_OK;
}

static aril_status cumsum_ref(aril__run *r)
{
    if (run_dense(r, SUM)) return ARIL_OK;
    return run(r, for_dtype(r, &cumsum_f64, &cumsum_i64, &cumsum_u64), false);
}

static aril_status cumprod_ref(aril__run *r)
{
    if (run_dense(r, PRODUCT)) return ARIL_OK;
    return run(r, for_dtype(r, &cumprod_f64, &cumprod_i64, &cumprod_u64), false);
}

VJP(cumsum)
{
    struct scan_attrs a = *(const struct scan_attrs *)c->attrs;
    a.reverse[0] = !a.reverse[0];
    if (c->g[0]) GRAD(0, aril__op_with(&a, &aril__op_cumsum, c->g[0]));
}

/* With L the product of all preceding elements, y = x * L, and L is a linear scan. */
VJP(cumprod)
{
    const struct scan_attrs *a = c->attrs;
    aril_tensor *x = c->x[0], *g = c->g[0];
    if (!g) return;
    aril_tensor *before = aril__prod_before(x, a->mask[0], a->reverse[0]);
    aril_tensor *behind = linear_scan(x, aril_mul(g, x), a->mask[0], !a->reverse[0], 0);
    GRAD(0, aril_mul(before, aril_add(g, behind)));
}

static const aril__sample scan_samples[] = {
    { .in = { "[2,5]" },
      .attrs = &(const struct scan_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]" }, .attrs = &(const struct scan_attrs){ .mask = { 2 }, .reverse = { 1 } } },
    { .in = { "[3,20]" }, .attrs = &(const struct scan_attrs){ .mask = { 1 } } },
    { .in = { "[6,7]" }, .attrs = &(const struct scan_attrs){ .mask = { 2 }, .reverse = { 1 } } },
    { .in = { "[]" }, .attrs = &(const struct scan_attrs){ .mask = { 0 } } },
    { .in = { "[0,3]" }, .attrs = &(const struct scan_attrs){ .mask = { 1 } } },
    SAMPLE_END
};
OP(cumsum, .doc = "sums of all elements so far along an axis", .onnx = "CumSum", .min_in = 1,
   .max_in = 1, .n_out = 1, .flags = STRIDED, .types = DT_COMPUTE, .infer = cumsum_infer,
   .ref = cumsum_ref, .vjp = cumsum_vjp, .samples = scan_samples, WITH_ATTRS(scan));
OP(cumprod, .doc = "products of all elements so far along an axis", .min_in = 1, .max_in = 1,
   .n_out = 1, .flags = STRIDED, .types = DT_COMPUTE, .infer = cumsum_infer, .ref = cumprod_ref,
   .vjp = cumprod_vjp, .saves = { IN(0) }, .samples = scan_samples, WITH_ATTRS(scan));

/* ---- cummax, cummin ---- */

static aril_status cummax_infer(aril__call *c)
{
    same_infer(c);
    c->out[1] = c->out[0];
    c->out[1].dtype = ARIL_I64;
    return ARIL_OK;
}

static aril_status cummax_ref(aril__run *r)
{
    if (run_dense(r, LARGEST)) return ARIL_OK;
    return run(r, for_dtype(r, &cummax_f64, &cummax_i64, &cummax_u64), true);
}

static aril_status cummin_ref(aril__run *r)
{
    if (run_dense(r, SMALLEST)) return ARIL_OK;
    return run(r, for_dtype(r, &cummax_f64, &cummax_i64, &cummax_u64), false);
}

VJP(cummax)
{
    const struct scan_attrs *a = c->attrs;
    int axis = a->mask[0] ? __builtin_ctzll((unsigned long long)a->mask[0]) : 0;
    if (c->g[0]) GRAD(0, aril__put_back(c->g[0], axis, c->y[1], c->x[0]));
}

static const aril__sample cummax_samples[] = {
    { .in = { "d[2,5]" },
      .attrs = &(const struct scan_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[4,2,3]" }, .attrs = &(const struct scan_attrs){ .mask = { 1 } } },
    { .in = { "d[6,5]" }, .attrs = &(const struct scan_attrs){ .mask = { 2 } } },
    { .in = { "d[]" }, .attrs = &(const struct scan_attrs){ .mask = { 0 } } },
    { .in = { "d[0,3]" }, .attrs = &(const struct scan_attrs){ .mask = { 1 } } },
    SAMPLE_END
};
OP(cummax, .doc = "largest so far along an axis, and where", .min_in = 1, .max_in = 1, .n_out = 2,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = cummax_infer, .ref = cummax_ref,
   .vjp = cummax_vjp, .saves = { OUT(1) | LIKE(0) }, .samples = cummax_samples, WITH_ATTRS(scan));
OP(cummin, .doc = "smallest so far along an axis, and where", .min_in = 1, .max_in = 1, .n_out = 2,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = cummax_infer, .ref = cummin_ref,
   .vjp = cummax_vjp, .saves = { OUT(1) | LIKE(0) }, .samples = cummax_samples, WITH_ATTRS(scan));

/* ---- logcumsumexp ---- */

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

static aril_status logcumsumexp_ref(aril__run *r)
{
    return run(r, &logcumsumexp_f64, false);
}

/* dx[k] = sum of g[i] exp(x[k] - y[i]) for i >= k. With q = 1 - exp(x - y) = exp(y[k-1] - y[k])
 * that is exp(x - y) * (g + v), v[k] = q[k+1] * (g[k+1] + v[k+1]): no exponent is ever above 0. */
VJP(logcumsumexp)
{
    const struct scan_attrs *a = c->attrs;
    aril_tensor *x = c->x[0], *g = c->g[0];
    if (!g) return;
    aril_tensor *low = aril_eq_scalar(x, -INFINITY); /* contributes nothing; y may be -inf */
    aril_tensor *high = /* only +inf from here on: x - y is 0, not inf - inf */
        aril_logical_and(aril_eq_scalar(x, INFINITY), aril_eq(x, c->y[0]));
    aril_tensor *y = aril_where(aril_logical_or(low, high), aril_scalar(0.0), c->y[0]);
    aril_tensor *d = aril_sub(aril_where(high, aril_scalar(0.0), x), y),
                *q = aril_neg(aril_expm1(d));
    aril_tensor *v = linear_scan(q, aril_mul(q, g), a->mask[0], !a->reverse[0], 0);
    GRAD(0, aril_mul(aril_exp(d), aril_add(g, v)));
}

OP(logcumsumexp, .doc = "log of the sums of exp(x) so far along an axis", .min_in = 1, .max_in = 1,
   .n_out = 1, .flags = STRIDED, .types = DT_FLOAT, .infer = same_infer, .ref = logcumsumexp_ref,
   .vjp = logcumsumexp_vjp, .saves = { IN(0) | OUT(0) }, .samples = scan_samples, WITH_ATTRS(scan));

/* ---- public ---- */

static aril_tensor *along(const aril__op *op, aril_tensor *x, int axis, aril_tensor **second)
{
    struct scan_attrs a = { { 0 }, { 0 }, { 0 } };
    aril_tensor *out[ARIL__MAX_OUT];
    if (x && !aril__is_poison(x)) {
        int d = aril__axis(op->name, axis, x->ndim);
        if (d < 0) {
            if (second) *second = aril__poison();
            return aril__poison();
        }
        a.mask[0] = x->ndim ? 1 << d : 0;
    }
    aril__apply(op, 1, &x, &a, out);
    if (second) *second = out[1];
    return out[0];
}

aril_tensor *aril_cumsum(aril_tensor *x, int axis)
{
    return along(&aril__op_cumsum, x, axis, NULL);
}

aril_tensor *aril_cumprod(aril_tensor *x, int axis)
{
    return along(&aril__op_cumprod, x, axis, NULL);
}

aril_tensor *aril_cummax(aril_tensor *x, int axis, aril_tensor **indices)
{
    return along(&aril__op_cummax, x, axis, indices);
}

aril_tensor *aril_cummin(aril_tensor *x, int axis, aril_tensor **indices)
{
    return along(&aril__op_cummin, x, axis, indices);
}

aril_tensor *aril_logcumsumexp(aril_tensor *x, int axis)
{
    return along(&aril__op_logcumsumexp, x, axis, NULL);
}

aril_tensor *aril_diff(aril_tensor *x, int n, int axis)
{
    if (!x) return aril__null_tensor("diff");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (n < 0 || x->ndim == 0) {
        aril__fail(ARIL_ERR_ARG, "diff: order %d of %d dimensions; takes 0 or more of at least 1",
                   n, x->ndim);
        return aril__poison();
    }
    axis = aril__axis("diff", axis, x->ndim);
    if (axis < 0) return aril__poison();
    ARIL_SCOPE;
    aril_tensor *before = NULL;
    while (n-- > 0 && !(x->flags & ARIL__POISON) && x->dim[axis] != 0) { /* empty stays empty */
        ARIL_SCOPE;
        aril_tensor *a = aril_slice(x, axis, 1, ARIL_END, 1), *b = aril_slice(x, axis, 0, -1, 1);
        x = aril_escape(x->dtype == ARIL_BOOL ? aril_logical_xor(a, b) : aril_sub(a, b));
        aril_drop(before);
        before = x;
    }
    return aril_escape(x);
}
