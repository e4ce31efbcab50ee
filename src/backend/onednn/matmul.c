#include "backend/onednn/matmul.h"

#include "backend/onednn/cut.h"
#include "core/cpu.h"
#include "core/derived.h"
#include "core/parallel.h"
#include "ops/elementwise/activation.h"
#include "ops/linalg/matmul.h"

#include <stdlib.h>
#include <string.h>

enum { MIN_WORK = 1 << 18 }; /* minimum multiplications per piece */

enum axis { BY_BATCH, BY_ROWS, BY_COLUMNS };

/* The weight of a linear layer in the format that its primitives prefer. */
typedef struct packing {
    aril__dnn_cut cut;
    aril__dnn_order order; /* of the weight's parts, one after the other */
    int64_t parts;         /* 1 when every piece reads the whole weight */
    size_t part;           /* bytes per part */
} packing;

typedef struct matmul_plan {
    aril__product p;       /* without addresses, and without the innermost batch dimension: */
    int64_t inner;         /* its size, */
    int64_t inner_step[3]; /* and its strides in a, b, c */
    int64_t outer;         /* number of such batches */
    dnnl_data_type_t type;
    int64_t size; /* bytes per element */
    bool bias;
    int64_t activation; /* applied by oneDNN, */
    int64_t after;      /* or by Aril, when oneDNN's turns NaN into 0 */
    size_t scratch;     /* bytes for each thread */
    int slots;
    enum axis axis;
    aril__dnn_cut cut;
    packing *packed; /* linear: NULL when packing does not help */
} matmul_plan;

/* ---- primitives ---- */

/* A strided matrix; a single row or column gets a valid stride. */
static dnnl_memory_desc_t matrix(const matmul_plan *p, int64_t batch, int64_t batch_step, int64_t m,
                                 int64_t n, int64_t row, int64_t col)
{
    if (m == 1) row = col == 1 ? n : 1;
    if (n == 1) col = row == 1 ? m : 1;
    if (p->inner == 1)
        return aril__dnn_strided(p->type, 2, (int64_t[]){ m, n }, (int64_t[]){ row, col });
    int64_t dim[3] = { batch_step ? batch : 1, m, n };
    int64_t stride[3] = { batch_step ? batch_step : row == 1 ? col * n : row * m, row, col };
    return aril__dnn_strided(p->type, 3, dim, stride);
}

typedef struct maker {
    const matmul_plan *p;
    bool any;                         /* weights in any format, */
    const_dnnl_memory_desc_t weights; /* or in this one */
} maker;

static const char *make_product(void *ctx, int64_t units, aril__dnn *made)
{
    const maker *k = ctx;
    const matmul_plan *p = k->p;
    const aril__product *g = &p->p;
    int64_t batch = p->axis == BY_BATCH ? units : p->inner;
    int64_t m = p->axis == BY_ROWS ? units : g->m, n = p->axis == BY_COLUMNS ? units : g->n;
    int64_t ones[3] = { 1, 1, 1 };
    ones[p->inner == 1 ? 1 : 2] = n;
    dnnl_memory_desc_t a = matrix(p, batch, p->inner_step[0], m, g->k, g->a_row, g->a_col);
    dnnl_memory_desc_t c = matrix(p, batch, p->inner_step[2], m, n, g->c_row, g->c_col);
    dnnl_memory_desc_t b = NULL, bias = NULL;
    if (k->any && !k->weights)
        b = aril__dnn_any(p->type, 2, (int64_t[]){ g->k, n });
    else if (!k->any)
        b = matrix(p, batch, p->inner_step[1], g->k, n, g->b_row, g->b_col);
    if (p->bias) bias = aril__dnn_dense(p->type, p->inner == 1 ? 2 : 3, ones);
    dnnl_primitive_attr_t attr = aril__dnn_attr(p->activation);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = dnnl_out_of_memory;
    if (a && (b || k->weights) && c && attr && (bias || !p->bias))
        st = aril__dnn_serially(dnnl_matmul_primitive_desc_create(
            &pd, aril__dnn_engine(), a, b ? b : k->weights, bias, c, attr));
    const char *why =
        aril__dnn_make(made, st, pd, 3 + p->bias,
                       (int[]){ DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS });
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (bias) dnnl_memory_desc_destroy(bias);
    if (b) dnnl_memory_desc_destroy(b);
    if (c) dnnl_memory_desc_destroy(c);
    if (a) dnnl_memory_desc_destroy(a);
    return why;
}

/* ---- packed weights ---- */

static void free_packing(packing *k)
{
    aril__dnn_order_destroy(&k->order);
    aril__dnn_cut_destroy(&k->cut);
    free(k);
}

/* Creates the reorders from the weight to the format of each part. */
static const char *order_parts(const matmul_plan *p, packing *k)
{
    size_t n = (size_t)k->parts;
    aril__dnn_span *span = aril__calloc(n * sizeof *span);
    dnnl_memory_desc_t *own = aril__calloc(n * sizeof *own);
    const char *why = span && own ? NULL : "out of memory";
    bool columns = p->axis == BY_COLUMNS;
    for (int64_t i = 0; i < k->parts && !why; i++) {
        const_dnnl_memory_desc_t to =
            aril__dnn_md(columns ? aril__dnn_cut_kind(&k->cut, i) : &k->cut.kind[0],
                         DNNL_ARG_WEIGHTS);
        int64_t begin = columns ? aril__dnn_cut_begin(&k->cut, i) : 0;
        int64_t end = columns ? aril__dnn_cut_begin(&k->cut, i + 1) : p->p.n;
        own[i] = matrix(p, 1, 0, p->p.k, end - begin, p->p.b_row, p->p.b_col);
        if (!own[i]) why = "out of memory";
        span[i] = (aril__dnn_span){ own[i], to, (size_t)(begin * p->p.b_col * p->size), 0 };
        size_t bytes = (dnnl_memory_desc_get_size(to) + 63) / 64 * 64;
        if (bytes > k->part) k->part = bytes;
    }
    for (int64_t i = 0; i < k->parts && !why; i++) span[i].to_at = (size_t)i * k->part;
    if (!why) why = aril__dnn_order_make(&k->order, (int)n, span, n * k->part);
    if (!why && (k->order.as_is || !k->order.key_size)) why = "already in this layout";
    for (size_t i = 0; own && i < n; i++)
        if (own[i]) dnnl_memory_desc_destroy(own[i]);
    free(own);
    free(span);
    return why;
}

static packing *make_packing(const matmul_plan *p)
{
    packing *k = aril__calloc(sizeof *k);
    if (!k) return NULL;
    maker how = { p, true, NULL };
    const char *why = NULL;
    if (p->axis == BY_ROWS) { /* one format for all pieces: that of the larger ones */
        aril__dnn one = { 0 };
        why = make_product(&how, (p->p.m + p->cut.pieces - 1) / p->cut.pieces, &one);
        if (!why) how.weights = aril__dnn_md(&one, DNNL_ARG_WEIGHTS);
        if (!why)
            why = aril__dnn_cut_make(&k->cut, p->cut.units, p->cut.pieces, make_product, &how);
        aril__dnn_destroy(&one);
    } else {
        why = aril__dnn_cut_make(&k->cut, p->cut.units, p->cut.pieces, make_product, &how);
    }
    if (why) {
        free(k);
        return NULL;
    }
    k->parts = p->axis == BY_COLUMNS ? k->cut.pieces : 1;
    if (!order_parts(p, k)) return k;
    free_packing(k);
    return NULL;
}

/* A weight in training changes before its next use. */
static bool is_steady(const aril_tensor *w)
{
    const aril__mode *mode = &aril__self()->mode;
    return (mode->no_grad || mode->inference || !w->node) && !(w->flags & ARIL__TRAINED) &&
           !w->storage->deleter && !atomic_load_explicit(&w->storage->lent, memory_order_relaxed);
}

/* ---- the plan ---- */

void aril__dnn_matmul_destroy(void *prepared)
{
    matmul_plan *p = prepared;
    if (p->packed) free_packing(p->packed);
    aril__dnn_cut_destroy(&p->cut);
    free(p);
}

/* Merges dimensions that are adjacent in all three operands; then takes out the innermost. */
static void take_inner(matmul_plan *p)
{
    aril__product *g = &p->p;
    int n = 0;
    for (int d = 0; d < g->ndim; d++) {
        if (g->dim[d] == 1) continue;
        bool follows = n > 0 && g->a_step[n - 1] == g->dim[d] * g->a_step[d] &&
                       g->b_step[n - 1] == g->dim[d] * g->b_step[d] &&
                       g->c_step[n - 1] == g->dim[d] * g->c_step[d];
        int to = follows ? n - 1 : n++;
        g->dim[to] = follows ? g->dim[to] * g->dim[d] : g->dim[d];
        g->a_step[to] = g->a_step[d];
        g->b_step[to] = g->b_step[d];
        g->c_step[to] = g->c_step[d];
    }
    p->inner = 1;
    if (n > 0) {
        n--;
        p->inner = g->dim[n];
        p->inner_step[0] = g->a_step[n];
        p->inner_step[1] = g->b_step[n];
        p->inner_step[2] = g->c_step[n];
    }
    g->ndim = n;
    p->outer = g->batch = aril__count(n, g->dim);
}

/* Rows or columns must be contiguous, and must not overlap. */
static bool is_row_or_column_major(int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    return ((col == 1 || cols == 1) && (row >= cols || rows == 1)) ||
           ((row == 1 || rows == 1) && (col >= rows || cols == 1));
}

static const char *misfit(const aril__run *r, const matmul_plan *p)
{
    const aril__product *g = &p->p;
    if (r->out[0]->numel == 0 || g->k == 0) return "an empty tensor";
    if (r->out[0] == r->in[0] || r->out[0] == r->in[1]) return "the result overwrites an input";
    if (!is_row_or_column_major(g->m, g->k, g->a_row, g->a_col) ||
        !is_row_or_column_major(g->k, g->n, g->b_row, g->b_col))
        return "neither rows nor columns of an operand are contiguous";
    if ((g->c_col != 1 && g->n > 1) || (g->c_row < g->n && g->m > 1))
        return "the rows of the result have gaps";
    if (p->bias && r->in[2]->dim[0] > 1 && r->in[2]->stride[0] != 1) return "a bias with gaps";
    if (p->inner_step[2] == 0 && p->inner > 1) return "an overlapping result";
    return NULL;
}

static void choose_axis(matmul_plan *p)
{
    const aril__product *g = &p->p;
    double work = (double)g->m * (double)g->n * (double)g->k * (double)p->inner;
    double total = work * (double)p->outer / MIN_WORK;
    int64_t wanted = aril__parallel_pieces(total < 1         ? 1
                                           : total > 1 << 20 ? 1 << 20
                                                             : (int64_t)total,
                                           1);
    int64_t pieces = (wanted + p->outer - 1) / p->outer;
    p->axis = p->inner >= pieces && p->inner > 1 ? BY_BATCH : g->m >= g->n ? BY_ROWS : BY_COLUMNS;
    p->cut.units = p->axis == BY_BATCH ? p->inner : p->axis == BY_ROWS ? g->m : g->n;
    p->cut.pieces = p->outer >= wanted ? 1 : pieces;
}

/* When other rows are faster. */
static const char *slower(const matmul_plan *p)
{
    return p->p.m == 1 && p->p.n == 1 ? "a product of two vectors" : NULL;
}

/* In f32, Aril's own product is as fast, unless the weight is there in the format of oneDNN's. */
static const char *slower_in_f32(const aril__run *r, const matmul_plan *p)
{
    enum { ROWS = 16, SIDE = 64 };
    if (p->type != dnnl_f32) return NULL;
    bool large = p->p.m >= ROWS && p->p.n >= SIDE && p->p.k >= SIDE;
    if (aril__cpu() < ARIL__CPU_AVX512 || !large) return "Aril's own product is faster";
    return p->packed && is_steady(r->in[1]) ? NULL : "Aril's own product is as fast";
}

/* A slot for each thread, large enough for every primitive. */
static void ask_for_scratch(matmul_plan *p, aril__plan *plan)
{
    const packing *k = p->packed;
    p->scratch = aril__dnn_cut_scratch(&p->cut);
    if (k && aril__dnn_cut_scratch(&k->cut) > p->scratch)
        p->scratch = aril__dnn_cut_scratch(&k->cut);
    p->slots = aril__parallel_slots(INT64_MAX, 1);
    plan->workspace = (size_t)p->slots * p->scratch;
}

const char *aril__dnn_matmul_prepare(const aril__run *r, aril__plan *plan)
{
    if (!aril__dnn_engine()) return "oneDNN failed to initialize";
    matmul_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    bool linear = r->op == &aril__op_linear;
    p->type = aril__dnn_type(r->type);
    p->size = (int64_t)aril__dtype_bytes(r->type, 1);
    p->p = aril__product_of(r);
    p->p.a = p->p.b = NULL;
    p->p.c = NULL;
    p->bias = linear && r->n_in > 2 && r->in[2];
    int64_t act = linear && r->attrs ? ((const struct linear_attrs *)r->attrs)->activation[0] : 0;
    *(act == ARIL_RELU || act == ARIL_RELU6 ? &p->after : &p->activation) = act;
    take_inner(p);
    const char *why = misfit(r, p);
    if (!why && aril__force_row < 0) why = slower(p);
    if (!why) {
        choose_axis(p);
        maker how = { p, false, NULL };
        aril__dnn_cut cut;
        why = aril__dnn_cut_make(&cut, p->cut.units, p->cut.pieces, make_product, &how);
        if (!why) p->cut = cut;
    }
    if (why) {
        free(p);
        return why;
    }
    if (linear && p->inner == 1) p->packed = make_packing(p);
    if (aril__force_row < 0 && (why = slower_in_f32(r, p))) {
        aril__dnn_matmul_destroy(p);
        return why;
    }
    ask_for_scratch(p, plan);
    plan->prepared = p;
    return NULL;
}

/* ---- running ---- */

/* Applies the activation to the result of one piece. */
static void clip_piece(const matmul_plan *p, const aril__dnn_cut *cut, int64_t k, char *c)
{
    const aril__product *g = &p->p;
    int64_t begin = aril__dnn_cut_begin(cut, k), end = aril__dnn_cut_begin(cut, k + 1);
    int64_t row = p->axis == BY_ROWS ? begin : 0, rows = p->axis == BY_ROWS ? end : g->m;
    int64_t col = p->axis == BY_COLUMNS ? begin : 0, cols = p->axis == BY_COLUMNS ? end : g->n;
    int64_t first = p->axis == BY_BATCH ? begin : 0, last = p->axis == BY_BATCH ? end : p->inner;
    for (; first < last; first++)
        for (int64_t i = row; i < rows; i++)
            aril__dnn_activate(p->type, p->after, cols - col,
                               c + (first * p->inner_step[2] + i * g->c_row + col) * p->size);
}

typedef struct job {
    const matmul_plan *p;
    aril__dnn_cut *cut;
    char *scratch;
    const aril__dnn_args *args;
    atomic_int status;
} job;

static void *slot_of(const job *j, int slot)
{
    return j->scratch ? j->scratch + (size_t)slot * j->p->scratch : NULL;
}

static void run_tasks(void *ctx, int64_t begin, int64_t end, int slot)
{
    job *j = ctx;
    for (; begin < end; begin++) {
        int64_t at[3];
        aril__dnn_args args = *j->args;
        aril__product_at(&j->p->p, begin / j->cut->pieces, at);
        for (int i = 0; i < 3; i++) args.data[i] = (char *)args.data[i] + at[i] * j->p->size;
        dnnl_status_t st =
            aril__dnn_cut_piece(j->cut, begin % j->cut->pieces, slot_of(j, slot), &args);
        if (st != dnnl_success)
            atomic_store(&j->status, (int)st);
        else if (j->p->after)
            clip_piece(j->p, j->cut, begin % j->cut->pieces, args.data[2]);
    }
}

aril_status aril__dnn_matmul(aril__run *r)
{
    matmul_plan *p = r->prepared;
    const aril__product *g = &p->p;
    aril__dnn_args args = { .data = { [0] = aril__ptr(r->in[0]),
                                      [2] = aril__ptr(r->out[0]),
                                      [3] = p->bias ? aril__ptr(r->in[2]) : NULL } };
    if (p->axis == BY_BATCH)
        for (int i = 0; i < 3; i++) args.step[i] = p->inner_step[i] * p->size;
    else if (p->axis == BY_ROWS)
        args.step[0] = g->a_row * p->size, args.step[2] = g->c_row * p->size;
    else
        args.step[1] = g->b_col * p->size, args.step[2] = args.step[3] = p->size;

    aril__dnn_cut *cut = &p->cut;
    aril__dnn_packed form = { 0 };
    if (p->packed && is_steady(r->in[1])) {
        form = aril__dnn_pack(&p->packed->order, r->op->name, r->in[1], true, NULL);
        if (!form.data) return aril__latest_status();
        cut = &p->packed->cut;
        args.data[1] = form.data;
        args.step[1] = 0;
        args.part[1] = p->axis == BY_COLUMNS ? (int64_t)p->packed->part : 0;
    } else {
        args.data[1] = aril__ptr(r->in[1]);
    }
    job j = { .p = p, .cut = cut, .scratch = r->workspace, .args = &args };
    aril__parallel_for_slots(p->outer * cut->pieces, 1, p->slots, run_tasks, &j);
    aril__dnn_unpack(&form);
    return aril__dnn_status(r->op->name, (dnnl_status_t)atomic_load(&j.status));
}
