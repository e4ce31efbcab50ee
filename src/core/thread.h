/* Per-thread state: its mode, the stack of guards, the tensors its scopes own, its error, its
 * default generator and its slab cache. */
#ifndef ARIL_CORE_THREAD_H
#define ARIL_CORE_THREAD_H

#include "aril/base.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/rng.h"

/* How operations behave on a thread. Saved and restored by mode guards. */
typedef struct aril__mode {
    bool no_grad;   /* operations are not recorded for autograd */
    bool inference; /* views are not tracked either: results can never join a graph */
    bool anomaly;   /* every result is checked for NaN */
    bool region;    /* inside an autocast region, even where it is disabled */
    bool placed;    /* graphs that are defined place what they create on `device` */
    aril_device device;
    /* The dtype that autocast casts to, ARIL__CAST_BITS for each kind of device; 0: off. */
    uint16_t autocast;
    struct aril_stream *stream; /* that operations on its device go to; NULL: none */
} aril__mode;

/* Values of a kind's bits in `autocast`. */
enum { ARIL__CAST_BITS = 2, ARIL__CAST_OFF = 0, ARIL__CAST_BF16 = 1, ARIL__CAST_F16 = 2 };

typedef struct aril__guard {
    uint32_t scope_base; /* index of the enclosing scope's first tensor */
    bool is_scope;
    aril__mode mode;
} aril__guard;

/* What a thread is running above single operations (a module's forward); lives on the stack of that
 * call. Errors name it: aril__hook.where. */
typedef struct aril__frame {
    struct aril__frame *up;
    const void *what; /* aril_module */
    const char *text; /* instead of a module: what errors begin with; NULL: none */
} aril__frame;

typedef struct aril__tracer aril__tracer;
typedef struct aril__thread_plans aril__thread_plans;

typedef struct aril__thread {
    bool ready;
    bool ended; /* the thread's destructor has run: no more caching */
    aril__mode mode;
    aril__tracer *tracer; /* records operations instead of running them; see ops/table/apply.h */
    struct aril__sizes *sizes; /* unknown sizes of the trace; NULL: none */

    aril_tensor **owned; /* tensors of all open scopes, innermost last */
    uint32_t n_owned, cap_owned;
    uint32_t scope_base; /* where the innermost scope begins */
    uint32_t n_scopes;   /* number of open scopes */
    aril__guard *guards;
    uint32_t n_guards, cap_guards;

    aril__frame *frame; /* innermost; NULL: single operations */
    const char *path;   /* what is traced within the frame: a node of a loaded model; NULL */
    const char *call;   /* the op that runs, for errors of memory; NULL: none */
    aril__error *error, *last_error;
    bool quiet; /* errors do not reach the error handler: what fails is only tried */
    aril_generator generator;
    uint64_t sequence;             /* number of this thread's latest graph node */
    struct aril__node *dead_nodes; /* to be freed by the outermost release: autograd/node.c */
    struct aril__view *dead_views;
    bool in_release;
    aril__thread_plans *plans; /* recently chosen kernels: ops/table/plans.c */
    struct aril__casts *casts; /* cast weights of the open autocast region: casts.h */
    aril__slab_cache slab;
} aril__thread;

extern _Thread_local aril__thread aril__tls __attribute__((tls_model("initial-exec")));

aril__cold void aril__thread_start(aril__thread *th);

/* True when no other thread uses Aril, and none can begin to before aril__alone_end, which only
 * then has to be called. Workers of parallel loops do not count. */
bool aril__alone_begin(void);
void aril__alone_end(void);

static inline aril__thread *aril__self(void)
{
    aril__thread *th = &aril__tls;
    if (aril__unlikely(!th->ready)) aril__thread_start(th);
    return th;
}

/* Reserves room so that the next aril__own cannot fail. */
aril__cold bool aril__own_grow(aril__thread *th);

static inline bool aril__own_reserve(aril__thread *th, uint32_t n)
{
    while (aril__unlikely(th->cap_owned - th->n_owned < n))
        if (!aril__own_grow(th)) return false;
    return true;
}

/* Hands a reference to the innermost scope; room must have been reserved. */
void aril__own(aril__thread *th, aril_tensor *t);

/* The dtype that autocast casts to on a kind of device; ARIL_F32: off. */
static inline aril_dtype aril__autocast_dtype(const aril__mode *mode, int kind)
{
    switch (mode->autocast >> kind * ARIL__CAST_BITS & 3) {
    case ARIL__CAST_BF16: return ARIL_BF16;
    case ARIL__CAST_F16: return ARIL_F16;
    default: return ARIL_F32;
    }
}

extern bool aril__anomaly_default; /* ARIL_ANOMALY=1 */

/* Defined in src/init.c: registers devices, ops and rows. Runs once, at the first use of Aril. */
void aril__library_start(void);
void aril__library_end(void);

/* The calling thread's default generator. */
static inline aril_generator *aril__default_generator(void)
{
    return &aril__self()->generator;
}

#endif
