/* Networks without memory: parameters that are one zero seen in any shape, and a tracer that only
 * counts what operations would cost. */
#include "nn/module.h"

#include "aril/create.h"
#include "aril/view.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "ops/table/apply.h"
#include "ops/table/flops.h"
#include "ops/table/symbolic.h"

#include <stdlib.h>
#include <string.h>

extern _Thread_local bool aril__sketches __attribute__((tls_model("initial-exec")));
_Thread_local bool aril__sketches __attribute__((tls_model("initial-exec")));

bool aril__sketch(bool on)
{
    bool before = aril__sketches;
    aril__sketches = on;
    return before;
}

aril_tensor *aril__sketched(aril_shape shape, aril_dtype dtype, aril_device device)
{
    aril_shape one = { .ndim = shape.ndim };
    for (int i = 0; i < shape.ndim; i++) one.dim[i] = shape.dim[i] ? 1 : 0;
    return aril_expand(aril_zeros(one, dtype, device), shape);
}

/* ---- values that are never computed ---- */

/* What stands for the memory of a value: views of it have the same. */
typedef struct memory {
    aril__symbol head; /* must be first: symbols are known by it */
    struct memory *next;
    unsigned writes;
    double bytes;
} memory;

/* The memories of a run, which exist as long as any header refers to one. */
typedef struct memories {
    aril__symbols base; /* must be first: free_all() casts its pointer to memories */
    memory *last;
} memories;

static void free_all(aril__symbols *base)
{
    memories *all = (memories *)base;
    for (memory *m = all->last, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    free(all);
}

static memory *new_memory(memories *all, double bytes)
{
    memory *m = aril__calloc(sizeof *m);
    if (!m) return NULL;
    m->head = (aril__symbol){ .owner = &all->base, .writes = &m->writes };
    m->bytes = bytes;
    m->next = all->last;
    all->last = m;
    return m;
}

const void *aril__memory_of(const aril_tensor *t, double *bytes)
{
    if (t->storage) {
        *bytes = (double)t->storage->bytes;
        return t->storage;
    }
    const memory *m = t->flags & ARIL__SYMBOLIC ? t->u.symbol : NULL;
    *bytes = m ? m->bytes : 0;
    return m;
}

static double bytes_of(const aril__meta *o)
{
    int64_t n = 1;
    for (int i = 0; i < o->ndim; i++) n *= o->dim[i];
    return n > 0 ? (double)aril__dtype_bytes(o->dtype, n) : 0;
}

/* ---- the run ---- */

typedef struct sketcher {
    aril__tracer tracer; /* must be first: record() casts its pointer to sketcher */
    memories *all;
    double flop;
} sketcher;

/* Results have shapes only; FLOPs follow from them. The thread's meter sees the ops as if they
 * ran. */
static aril_status record(aril__tracer *self, const aril__call *c, aril_tensor *dest,
                          aril_tensor **out)
{
    sketcher *sketch = (sketcher *)self;
    aril__thread *th = aril__self();
    for (int i = 0; i < c->op->n_out; i++) {
        int kind = c->op->out[i];
        aril_tensor *written = i == 0 && dest         ? dest
                               : ARIL__IS_WRITE(kind) ? c->in[kind - 32]
                                                      : NULL;
        out[i] = written ? aril__tensor_keep(written) : NULL;
        if (out[i] || ARIL__IS_WRITE(kind)) continue;
        /* A view of a parameter, which has a value, is of other memory here: it is not counted. */
        const aril_tensor *of = ARIL__IS_VIEW(kind) ? c->in[kind - 1] : NULL;
        memory *m = of ? (of->flags & ARIL__SYMBOLIC ? of->u.symbol : new_memory(sketch->all, 0))
                       : new_memory(sketch->all, bytes_of(&c->out[i]));
        out[i] = m ? aril__symbolic_out(th, c, i, m) : NULL;
        if (out[i]) continue;
        while (i-- > 0) aril__tensor_release(th, out[i]);
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", c->op->name);
    }
    aril__run run = { .op = c->op,
                      .attrs = c->attrs,
                      .n_in = c->n_in,
                      .n_out = c->op->n_out,
                      .in = c->in,
                      .out = out,
                      .type = c->type,
                      .device = c->device };
    bool moves = !(c->op->n_out && ARIL__IS_VIEW(c->op->out[0]));
    if (!moves) return ARIL_OK;
    sketch->flop += aril__flops(&run);
    aril__meter_note(&run);
    return ARIL_OK;
}

aril_status aril__sketch_run(aril_shape input, aril_dtype dtype, aril__sketch_fn *fn, void *ctx,
                             double *flop)
{
    sketcher sketch = { .tracer = { .apply = record }, .all = aril__calloc(sizeof *sketch.all) };
    if (!sketch.all) return aril__fail(ARIL_ERR_MEMORY, "sketch: out of memory");
    sketch.all->base = (aril__symbols){ .tracer = &sketch.tracer, .free = free_all };
    atomic_init(&sketch.all->base.refs, 1);
    aril_status s = ARIL_OK;
    {
        ARIL_SCOPE;
        aril__thread *th = aril__self();
        int64_t n = 1;
        aril_shape batch = { .ndim = input.ndim + 1, .dim = { 1 } };
        memcpy(batch.dim + 1, input.dim, (size_t)input.ndim * sizeof *input.dim);
        for (int i = 0; i < batch.ndim; i++) n *= batch.dim[i];
        memory *m = new_memory(sketch.all, (double)aril__dtype_bytes(dtype, n));
        aril_tensor *x = m ? aril__symbolic_new(th, dtype, batch.ndim, batch.dim, m) : NULL;
        if (!x) s = aril__fail(ARIL_ERR_MEMORY, "sketch: out of memory");
        if (x) {
            aril__own(th, x);
            aril__tracer *before = aril__trace(&sketch.tracer);
            s = fn(ctx, x);
            aril__trace(before);
        }
    }
    sketch.all->base.tracer = NULL;
    aril__sizes_free(&sketch.tracer.sizes);
    if (atomic_fetch_sub_explicit(&sketch.all->base.refs, 1, memory_order_acq_rel) == 1)
        free_all(&sketch.all->base);
    if (flop) *flop = sketch.flop;
    return s;
}

static aril_status forward(void *ctx, aril_tensor *x)
{
    aril_module *m = ctx;
    ARIL_NO_GRAD;
    bool training = aril_module_training(m);
    aril_module_eval(m);
    /* All results, as aril_module_cost requests them. */
    enum { MAX_OUT = 16 };
    aril_tensor *out[MAX_OUT];
    int n_out = !m->layer && m->type->outputs > 1 ? m->type->outputs : 1;
    aril_status s = aril_forward_all(m, ARIL_LIST(x), n_out < MAX_OUT ? n_out : MAX_OUT, out);
    if (training) aril_module_train(m);
    return s;
}

aril_status aril__sketch_flops(aril_module *m, aril_shape input, aril_dtype dtype, double *flop)
{
    return aril__sketch_run(input, dtype, forward, m, flop);
}
