/* Attention in blocks that stay in cache. A query's result depends on how the keys are cut, which
 * is by size, and not on other queries: no bit depends on the number of threads. */
#include "backend/cpu/sequence/attention.h"

#include "backend/cpu/linalg/gemm.h"
#include "core/parallel.h"
#include "ops/sequence/attention.h"
#include "core/vector/vecmath.h"

#include <math.h>
#include <string.h>

enum {
    QUERIES = 48,
    KEYS = 256,
    GROUP = 192, /* queries that make packing the keys worthwhile */
    PER_THREAD = 4,
    FEW = 8, /* queries for which packing the keys does not pay */
};

/* What a kernel works on: contiguous q [batch,l,e], k [batch,s,e], v [batch,s,ev]. */
typedef struct attention {
    int64_t batch, l, s, e, ev;
    double scale;
    bool causal;
    const void *q, *k, *v, *g, *g_lse;
    void *y, *lse, *delta, *dq, *dk, *dv;
    const unsigned char *allowed; /* a boolean mask, or */
    const void *added;            /* an additive mask; or neither */
    int batch_ndim;
    int64_t batch_dim[ARIL_MAX_DIMS], mask_step[ARIL_MAX_DIMS], mask_row, mask_col;
} attention;

/* The offset of the mask of batch b, in elements. */
static int64_t mask_at(const attention *j, int64_t b)
{
    int64_t at = 0;
    for (int d = j->batch_ndim - 1; d >= 0; d--) {
        at += b % j->batch_dim[d] * j->mask_step[d];
        b /= j->batch_dim[d];
    }
    return at;
}

#define TEMPLATE "backend/cpu/sequence/attention.inc"
#include "core/vector/each_target.inc"

static void set_mask(attention *j, const aril_tensor *mask)
{
    if (!mask) return;
    if (mask->dtype == ARIL_BOOL)
        j->allowed = aril__ptr(mask);
    else
        j->added = aril__ptr(mask);
    int lead = j->batch_ndim + 2 - mask->ndim;
    for (int d = 0; d < j->batch_ndim + 2; d++) {
        int64_t step = d < lead || mask->dim[d - lead] == 1 ? 0 : mask->stride[d - lead];
        *(d < j->batch_ndim    ? &j->mask_step[d]
          : d == j->batch_ndim ? &j->mask_row
                               : &j->mask_col) = step;
    }
}

/* Its sizes; in a row's prepare there is no memory. */
static attention sizes_of(const aril__run *r)
{
    const struct attention_attrs *a = r->attrs;
    const aril_tensor *q = r->in[ATTENTION_Q], *k = r->in[ATTENTION_K], *v = r->in[ATTENTION_V];
    int n = q->ndim;
    attention j = { .batch = 1,
                    .l = q->dim[n - 2],
                    .s = k->dim[n - 2],
                    .e = q->dim[n - 1],
                    .ev = v->dim[n - 1],
                    .causal = a->causal[0],
                    .scale = a->scale[0],
                    .batch_ndim = n - 2 };
    for (int d = 0; d < n - 2; d++) {
        j.batch_dim[d] = q->dim[d];
        j.batch *= q->dim[d];
    }
    if (j.scale == 0) j.scale = j.e ? 1 / sqrt((double)j.e) : 1;
    return j;
}

static attention attention_of(const aril__run *r)
{
    attention j = sizes_of(r);
    j.q = aril__ptr(r->in[ATTENTION_Q]);
    j.k = aril__ptr(r->in[ATTENTION_K]);
    j.v = aril__ptr(r->in[ATTENTION_V]);
    set_mask(&j, r->in[ATTENTION_MASK]);
    if (r->op == &aril__op_attention_grad) {
        j.y = aril__ptr(r->in[ATTENTION_Y]);
        j.lse = aril__ptr(r->in[ATTENTION_LSE]);
        j.g = r->in[ATTENTION_G] ? aril__ptr(r->in[ATTENTION_G]) : NULL;
        j.g_lse = r->in[ATTENTION_G_LSE] ? aril__ptr(r->in[ATTENTION_G_LSE]) : NULL;
        for (int i = 0; i < 3; i++)
            *(i == 0 ? &j.dq : i == 1 ? &j.dk : &j.dv) = aril__ptr(r->out[i]);
    } else {
        j.y = aril__ptr(r->out[0]);
        j.lse = aril__ptr(r->out[1]);
    }
    return j;
}

typedef struct attention_job {
    attention a;
    bool wide;
    int64_t groups, rows; /* number of query groups, and queries per group */
    char *scratch;
    size_t bytes; /* per slot */
    int64_t tasks, grain;
} attention_job;

static void forward_tasks(void *ctx, int64_t begin, int64_t end, int slot)
{
    attention_job *j = ctx;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i % j->groups * j->rows, last = first + j->rows;
        ARIL__PICK(forward, j->wide)
        (&j->a, i / j->groups, first, last < j->a.l ? last : j->a.l,
         j->scratch + (size_t)slot * j->bytes);
    }
}

static void backward_tasks(void *ctx, int64_t begin, int64_t end, int slot)
{
    attention_job *j = ctx;
    for (int64_t i = begin; i < end; i++)
        ARIL__PICK(backward, j->wide)(&j->a, i, j->scratch + (size_t)slot * j->bytes);
}

/* Cuts tasks that need `elements` of scratch memory each. */
static void cut_tasks(attention_job *j, int64_t tasks, int64_t elements)
{
    enum { CHUNKS = 256 };
    j->tasks = tasks;
    j->grain = (tasks + CHUNKS - 1) / CHUNKS;
    j->bytes = ((size_t)elements * (j->wide ? 8 : 4) + 63) & ~(size_t)63;
}

static size_t scratch_of(const attention_job *j)
{
    return (size_t)aril__parallel_slots(j->tasks, j->grain) * j->bytes;
}

static aril_status run_tasks(aril__run *r, attention_job *j, aril__slot_fn *fn)
{
    if (j->tasks == 0) return ARIL_OK;
    j->scratch = r->workspace;
    aril__parallel_for_slots(j->tasks, j->grain, (int)(r->workspace_bytes / j->bytes), fn, j);
    return ARIL_OK;
}

static int64_t rounded(int64_t n)
{
    return (n + ARIL__GEMM_MAX_PANEL - 1) / ARIL__GEMM_MAX_PANEL * ARIL__GEMM_MAX_PANEL;
}

static attention_job forward_job(const aril__run *r)
{
    attention_job j = { .a = attention_of(r), .wide = r->type == ARIL_F64 };
    const attention *a = &j.a;
    if (a->batch == 0 || a->l == 0) return j;
    int64_t wanted = PER_THREAD * aril_threads(), max = (a->l + GROUP - 1) / GROUP;
    j.groups = (wanted + a->batch - 1) / a->batch;
    if (j.groups > max) j.groups = max;
    j.rows = ((a->l + j.groups - 1) / j.groups + QUERIES - 1) / QUERIES * QUERIES;
    j.groups = (a->l + j.rows - 1) / j.rows;
    cut_tasks(&j, a->batch * j.groups, QUERIES * KEYS + rounded(a->s) * a->e);
    return j;
}

static attention_job backward_job(const aril__run *r)
{
    attention_job j = { .a = attention_of(r), .wide = r->type == ARIL_F64 };
    const attention *a = &j.a;
    if (a->batch > 0)
        cut_tasks(&j, a->batch, 2 * QUERIES * KEYS + a->l + rounded(a->s) * (a->e + a->ev));
    return j;
}

/* ---- few queries ----
 *
 * A network that generates a sequence has one query at a time, and keys and values in parts of
 * larger buffers. They are read where they are. */

static int64_t offset_of(const aril_tensor *t, int64_t b)
{
    int64_t at = 0;
    for (int d = t->ndim - 3; d >= 0; d--) {
        at += b % t->dim[d] * t->stride[d];
        b /= t->dim[d];
    }
    return at;
}

typedef struct few_job {
    attention a;
    const aril__run *r;
    int64_t stride[3]; /* between rows of q, k and v */
    char *scratch;
    size_t bytes; /* per slot */
} few_job;

static void few_tasks(void *ctx, int64_t begin, int64_t end, int slot)
{
    few_job *f = ctx;
    const attention *j = &f->a;
    bool wide = f->r->type == ARIL_F64;
    int64_t size = wide ? 8 : 4;
    for (int64_t b = begin; b < end; b++) {
        const char *at[3];
        for (int i = 0; i < 3; i++)
            at[i] = (const char *)aril__ptr(f->r->in[i]) + offset_of(f->r->in[i], b) * size;
        ARIL__PICK(forward_few, wide)
        (j, mask_at(j, b), at[0], f->stride[0], at[1], f->stride[1], at[2], f->stride[2],
         (char *)j->y + b * j->l * j->ev * size, (char *)j->lse + b * j->l * size,
         f->scratch + (size_t)slot * f->bytes);
    }
}

/* Batch indices for each of which a thread pays. */
static int64_t few_grain(const attention *j)
{
    enum { WORK = 128 * 1024 };
    return 1 + WORK / (j->l * j->s * (j->e + j->ev) + 1);
}

static size_t few_bytes(const attention *j, bool wide)
{
    return ((size_t)(j->l * j->s) * (wide ? 8 : 4) + 63) & ~(size_t)63;
}

const char *aril__cpu_attention_few_prepare(const aril__run *r, aril__plan *plan)
{
    attention j = sizes_of(r);
    if (j.l > FEW || j.l == 0 || j.s == 0 || j.e == 0 || j.ev == 0) return "many queries, or none";
    if (j.causal) return "a causal mask";
    for (int i = 0; i < 3; i++)
        if (r->in[i]->stride[r->in[i]->ndim - 1] != 1) return "rows that are not contiguous";
    plan->out[0].order = plan->out[1].order = ARIL_ORDER_CONTIGUOUS;
    plan->workspace =
        (size_t)aril__parallel_slots(j.batch, few_grain(&j)) * few_bytes(&j, r->type == ARIL_F64);
    return NULL;
}

aril_status aril__cpu_attention_few(aril__run *r)
{
    few_job f = { .a = attention_of(r), .r = r, .scratch = r->workspace };
    for (int i = 0; i < 3; i++) f.stride[i] = r->in[i]->stride[r->in[i]->ndim - 2];
    f.bytes = few_bytes(&f.a, r->type == ARIL_F64);
    aril__parallel_for_slots(f.a.batch, few_grain(&f.a), (int)(r->workspace_bytes / f.bytes),
                             few_tasks, &f);
    return ARIL_OK;
}

size_t aril__cpu_attention_scratch(const aril__run *r)
{
    attention_job j = forward_job(r);
    return scratch_of(&j);
}

size_t aril__cpu_attention_grad_scratch(const aril__run *r)
{
    attention_job j = backward_job(r);
    return scratch_of(&j);
}

aril_status aril__cpu_attention(aril__run *r)
{
    attention_job j = forward_job(r);
    return run_tasks(r, &j, forward_tasks);
}

aril_status aril__cpu_attention_grad(aril__run *r)
{
    attention_job j = backward_job(r);
    return run_tasks(r, &j, backward_tasks);
}
