/* Operands as a kernel asks for them: the one place that decides the memory order of results,
 * converts inputs and copies staged results back. */
#ifndef ARIL_OPS_STAGE_H
#define ARIL_OPS_STAGE_H

#include "core/memory.h"
#include "ops/table/rows.h"

/* A kernel, and what it asks for. */
typedef struct aril__kernel {
    const char *name;
    aril_status (*run)(aril__run *);
    size_t (*workspace)(const aril__run *); /* NULL: none, or the plan's */
    const aril__plan *plan;                 /* NULL: the row has none */
    uint32_t native;                        /* dtypes that it computes in */
    bool strided;                           /* takes operands of any order */
} aril__kernel;

/* Runs a kernel while a test watches the allocator. */
aril__cold aril_status aril__run_watched(const aril__kernel *k, aril__run *r);

static inline aril_status aril__run_ready(const aril__kernel *k, aril__run *r)
{
    return aril__unlikely(aril__fault_armed) ? aril__run_watched(k, r) : k->run(r);
}

/* A workspace that the caller of an op allocated before it, while nothing was changed yet, and
 * frees after it: the next kernel that asks for one like it takes it. NULL: none. */
typedef struct aril__workspace {
    const aril__device *device;
    void *data;
    size_t bytes;
} aril__workspace;
extern _Thread_local const aril__workspace *aril__workspace_ahead;

static inline void *aril__workspace_take(const aril__run *r, size_t bytes)
{
    const aril__workspace *w = aril__workspace_ahead;
    if (aril__likely(!w) || w->device != r->device || w->bytes != bytes) return NULL;
    aril__workspace_ahead = NULL;
    return w->data;
}

/* Runs a kernel whose operands are ready: with the workspace it asks for. */
static inline aril_status aril__launch(const aril__kernel *k, aril__run *r)
{
    size_t bytes = k->plan ? k->plan->workspace : k->workspace ? k->workspace(r) : 0;
    if (aril__likely(!bytes)) return aril__run_ready(k, r);
    void *ahead = aril__workspace_take(r, bytes);
    r->workspace = ahead ? ahead : aril__device_alloc(r->device, bytes);
    if (!r->workspace) return ARIL_ERR_MEMORY;
    r->workspace_bytes = bytes;
    aril_status s = aril__run_ready(k, r);
    if (!ahead) aril__device_free(r->device, r->workspace, bytes);
    return s;
}

/* Runs a kernel: allocates results that have no memory yet, in the order that its plan gives (else
 * the op's default), converts the other operands to the dtype and order it asks for, and copies
 * back. Temporaries belong to a separate scope. */
aril_status aril__run_staged(const aril__kernel *k, aril__run *r);

/* Indices in u64, of which those that i64 cannot hold become its largest value: out of range, and
 * not counted from the end. */
aril_tensor *aril__clamp_index(aril_tensor *index);

/* The dtype through which a kernel that computes in the dtypes `native` (0: all) gets operands of
 * dtype t. */
aril_dtype aril__staged_dtype(uint32_t native, aril_dtype t);

/* Gives memory to results that have none, in the order that their headers say. */
aril_status aril__run_allocate(aril__run *r);

#endif
