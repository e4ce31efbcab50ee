/* Attention in blocks that stay in cache. A query's result depends on how the keys are cut, which
 * is by size, and not on other queries: no bit depends on the number of threads. */
#include "backend/cpu/sequence/attention.h"

#include "backend/cpu/linalg/gemm.h"
#include "backend/cpu/staged.h"
#include "core/parallel.h"
#include "ops/sequence/attention.h"
#include "ops/vector/vecmath.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    QUERIES = 48,
    KEYS = 256,
    GROUP = 192, /* queries that make packing the keys worthwhile */
    PER_THREAD = 4,
    MOST_SLOTS = 64,
};

#define TEMPLATE "backend/cpu/sequence/attention.inc"
#include "ops/vector/each_target.inc"

/* There are as many scratch slots as threads; each thread takes a free one. */
typedef struct attention_job {
    aril__attention a;
    bool wide;
    int64_t groups, rows; /* number of query groups, and queries per group */
    char *scratch;
    size_t bytes; /* per slot */
    int slots;
    atomic_bool used[MOST_SLOTS];
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
    int64_t grain = (tasks + MOST_SLOTS * PER_THREAD - 1) / (MOST_SLOTS * PER_THREAD);
    if (threads > MOST_SLOTS) { /* as many chunks of tasks as slots */
        threads = MOST_SLOTS;
        grain = (tasks + MOST_SLOTS - 1) / MOST_SLOTS;
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
    return (n + ARIL__GEMM_MOST_PANEL - 1) / ARIL__GEMM_MOST_PANEL * ARIL__GEMM_MOST_PANEL;
}

static aril_status run_forward(aril__run *r)
{
    attention_job j = { .a = aril__attention_of(r), .wide = r->type == ARIL_F64 };
    const aril__attention *a = &j.a;
    if (a->batch == 0 || a->l == 0) return ARIL_OK;
    int64_t wanted = PER_THREAD * aril_threads(), most = (a->l + GROUP - 1) / GROUP;
    j.groups = (wanted + a->batch - 1) / a->batch;
    if (j.groups > most) j.groups = most;
    j.rows = ((a->l + j.groups - 1) / j.groups + QUERIES - 1) / QUERIES * QUERIES;
    j.groups = (a->l + j.rows - 1) / j.rows;
    return run_tasks(r, &j, a->batch * j.groups, QUERIES * KEYS + rounded(a->s) * a->e,
                     forward_tasks);
}

static aril_status run_backward(aril__run *r)
{
    attention_job j = { .a = aril__attention_of(r), .wide = r->type == ARIL_F64 };
    const aril__attention *a = &j.a;
    if (a->batch == 0) return ARIL_OK;
    int64_t elements = 2 * QUERIES * KEYS + a->l + rounded(a->s) * (a->e + a->ev);
    return run_tasks(r, &j, a->batch, elements, backward_tasks);
}

aril_status aril__cpu_attention(aril__run *r)
{
    return aril__cpu_staged(r, run_forward);
}

aril_status aril__cpu_attention_grad(aril__run *r)
{
    return aril__cpu_staged(r, run_backward);
}
