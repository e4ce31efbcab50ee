/* Attention in blocks that stay in cache. A query's result depends on how the keys are cut, which
 * is by size, and not on other queries: no bit depends on the number of threads. */
#include "backend/cpu/sequence/attention.h"

#include "backend/cpu/linalg/gemm.h"
#include "core/parallel.h"
#include "ops/sequence/attention.h"
#include "core/vector/vecmath.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    QUERIES = 48,
    KEYS = 256,
    GROUP = 192, /* queries that make packing the keys worthwhile */
    PER_THREAD = 4,
    MAX_SLOTS = 64,
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

static attention attention_of(const aril__run *r)
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
                    .q = aril__ptr(q),
                    .k = aril__ptr(k),
                    .v = aril__ptr(v),
                    .batch_ndim = n - 2 };
    for (int d = 0; d < n - 2; d++) {
        j.batch_dim[d] = q->dim[d];
        j.batch *= q->dim[d];
    }
    if (j.scale == 0) j.scale = j.e ? 1 / sqrt((double)j.e) : 1;
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

/* There are as many scratch slots as threads; each thread takes a free one. */
typedef struct attention_job {
    attention a;
    bool wide;
    int64_t groups, rows; /* number of query groups, and queries per group */
    char *scratch;
    size_t bytes; /* per slot */
    int slots;
    atomic_bool used[MAX_SLOTS];
} attention_job;

static int take_slot(attention_job *j)
{
    for (int i = 0;; i = (i + 1) % j->slots)
        if (!atomic_exchange_explicit(&j->used[i], true, memory_order_acquire)) return i;
}

static void forward_tasks(void *ctx, int64_t begin, int64_t end)
{
    attention_job *j = ctx;
    int slot = take_slot(j);
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i % j->groups * j->rows, last = first + j->rows;
        ARIL__PICK(forward, j->wide)
        (&j->a, i / j->groups, first, last < j->a.l ? last : j->a.l,
         j->scratch + (size_t)slot * j->bytes);
    }
    atomic_store_explicit(&j->used[slot], false, memory_order_release);
}

static void backward_tasks(void *ctx, int64_t begin, int64_t end)
{
    attention_job *j = ctx;
    int slot = take_slot(j);
    for (int64_t i = begin; i < end; i++)
        ARIL__PICK(backward, j->wide)(&j->a, i, j->scratch + (size_t)slot * j->bytes);
    atomic_store_explicit(&j->used[slot], false, memory_order_release);
}

/* Runs tasks that need `elements` of scratch memory each. */
static aril_status run_tasks(aril__run *r, attention_job *j, int64_t tasks, int64_t elements,
                             aril__range_fn *fn)
{
    int64_t threads = aril__parallel_is_serial() ? 1 : aril_threads();
    int64_t grain = (tasks + MAX_SLOTS * PER_THREAD - 1) / (MAX_SLOTS * PER_THREAD);
    if (threads > MAX_SLOTS) { /* as many chunks of tasks as slots */
        threads = MAX_SLOTS;
        grain = (tasks + MAX_SLOTS - 1) / MAX_SLOTS;
    }
    j->slots = (int)(threads < tasks ? threads : tasks);
    j->bytes = ((size_t)elements * (j->wide ? 8 : 4) + 63) & ~(size_t)63;
    j->scratch = aril__device_alloc(r->device, j->bytes * (size_t)j->slots);
    if (!j->scratch) return ARIL_ERR_MEMORY;
    aril__parallel_for(tasks, grain, fn, j);
    aril__device_free(r->device, j->scratch, j->bytes * (size_t)j->slots);
    return ARIL_OK;
}

static int64_t rounded(int64_t n)
{
    return (n + ARIL__GEMM_MAX_PANEL - 1) / ARIL__GEMM_MAX_PANEL * ARIL__GEMM_MAX_PANEL;
}

aril_status aril__cpu_attention(aril__run *r)
{
    attention_job j = { .a = attention_of(r), .wide = r->type == ARIL_F64 };
    const attention *a = &j.a;
    if (a->batch == 0 || a->l == 0) return ARIL_OK;
    int64_t wanted = PER_THREAD * aril_threads(), max = (a->l + GROUP - 1) / GROUP;
    j.groups = (wanted + a->batch - 1) / a->batch;
    if (j.groups > max) j.groups = max;
    j.rows = ((a->l + j.groups - 1) / j.groups + QUERIES - 1) / QUERIES * QUERIES;
    j.groups = (a->l + j.rows - 1) / j.rows;
    return run_tasks(r, &j, a->batch * j.groups, QUERIES * KEYS + rounded(a->s) * a->e,
                     forward_tasks);
}

aril_status aril__cpu_attention_grad(aril__run *r)
{
    attention_job j = { .a = attention_of(r), .wide = r->type == ARIL_F64 };
    const attention *a = &j.a;
    if (a->batch == 0) return ARIL_OK;
    int64_t elements = 2 * QUERIES * KEYS + a->l + rounded(a->s) * (a->e + a->ev);
    return run_tasks(r, &j, a->batch, elements, backward_tasks);
}
