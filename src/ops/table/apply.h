/* The one chokepoint: every tensor operation is an application of an op from the table. */
#ifndef ARIL_OPS_APPLY_H
#define ARIL_OPS_APPLY_H

#include "core/lifetime.h"
#include "core/sizes.h"
#include "ops/table/op.h"
#include "ops/table/require.h"
#include "ops/table/symbolic.h"

/* Applies an op: infers shapes, runs (or passes the call to the tracer), records for autograd.
 * `out` gets n_out tensors owned by the innermost scope, poisoned on failure; never NULL. */
aril_status aril__apply(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs,
                        aril_tensor **out);

/* The same, returning only the first result. */
aril_tensor *aril__apply1(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs);

/* Writes result 0 into `dest` (broadcast and cast as in the op's in-place form). Returns `dest`; on
 * failure a poisoned tensor, and dest is unchanged. */
aril_tensor *aril__apply_to(aril_tensor *dest, const aril__op *op, int n_in, aril_tensor *const *in,
                            const void *attrs);

/* aril__op(&aril__op_add, a, b): no attributes. aril__op_with(&attrs, &aril__op_sum, x). */
#define aril__op(op, ...) aril__op_with(NULL, op, __VA_ARGS__)
#define aril__op_with(attrs, op, ...)                                                           \
    aril__apply1((op), (int)(sizeof((aril_tensor *[]){ __VA_ARGS__ }) / sizeof(aril_tensor *)), \
                 (aril_tensor *[]){ __VA_ARGS__ }, (attrs))

/* Whether t contains a NaN. For anomaly mode: on any device, by ops that are not recorded. */
bool aril__has_nan(aril_tensor *t);

/* Gives a new result of a call with these sizes the order in memory that the op's flags say: that
 * of inputs. A row that runs may give another. */
void aril__default_order(const aril__call *c, const aril__meta *o, aril_tensor *t);

/* Records operations instead of running them.
 *
 * A tensor with a value among the inputs is state, which is looked up at each run, unless it is a
 * host number (core/tensor.h): then its flags tell what a run does with it.
 *   - ARIL__CONSTANT: the same in every run. May be stored with the trace.
 *   - ARIL__STATE: is read at each run, as an optimizer changes it between them.
 *   - ARIL__KEY: in[0] of a RANDOM op. The trace has the key of one call: a run either repeats that
 *     call, or draws another key from the generator for each key of the trace, and uses it wherever
 *     that key occurs.
 * ARIL__WEAK is about promotion only; the shape rules have seen it. */
struct aril__tracer {
    /* Called with shapes inferred. Fills `out` (new references, usually from
     * aril__symbolic_out); for WRITES(i) outputs and for dest, `out` is the written tensor. Inputs
     * that the row's `writes` mask names are changed in place too, and have no output. */
    aril_status (*apply)(aril__tracer *self, const aril__call *c, aril_tensor *dest,
                         aril_tensor **out);
    aril__sizes sizes; /* the unknown ones; freed by the tracer's owner */

    /* What else a trace has to know of; each may be NULL. */

    /* `key` was drawn from a generator in state `before`. */
    void (*drew)(aril__tracer *self, aril_generator *g, aril_rng_state before, aril_tensor *key);
    /* A generator is about to be freed. */
    void (*freed)(aril__tracer *self, aril_generator *g);
    /* The gradient of a leaf is about to be read or changed. */
    aril_status (*leaf)(aril__tracer *self, struct aril__node *leaf);
    /* A backward pass has a gradient for a leaf, whose hooks it would call. */
    aril_status (*reached)(aril__tracer *self, struct aril__node *leaf);
    /* The traced code depends on these bytes of the host, which a run must find as they are, and
     * may change them: they are as they were when the trace ends. */
    aril_status (*watch)(aril__tracer *self, void *at, size_t bytes);
    /* The same for bytes that the traced code must not change: a trace that does so fails. */
    aril_status (*depend)(aril__tracer *self, const void *at, size_t bytes);
    /* The traced code reads an object, or changes it in each run, as long as that exists. */
    aril_status (*reads)(aril__tracer *self, aril__lifetime *of);
    /* What a tensor from outside is called in printed graphs. */
    void (*name)(aril__tracer *self, const aril_tensor *t, const char *name);
    /* After each run, fn(ctx, data) is called, with a copy of `data`. */
    aril_status (*after)(aril__tracer *self, void (*fn)(void *ctx, const void *data), void *ctx,
                         const void *data, size_t bytes);
    /* What the sizes of a run have to satisfy, besides the shape rules of its ops. */
    aril_status (*require)(aril__tracer *self, const aril__requirement *q);
    bool drawn_outside;  /* random numbers were drawn while the tracer was paused */
    uint32_t keys;       /* of a defined graph: how many random keys it has */
    const char *label;   /* what the nodes of now are about, in errors of runs; or NULL */
    uint32_t label_text; /* of the tracer: where it has stored the label; 0: not yet */
    /* A generator is about to be put into another state; `seed`: not NULL if it is seeded. */
    void (*set)(aril__tracer *self, aril_generator *g, const uint64_t *seed);
};

/* Makes `t` the thread's tracer, NULL for none; returns the one before. */
aril__tracer *aril__trace(aril__tracer *t);

/* Between these, ops run even in a trace: for what a program creates once, such as parameters and
 * the state of an optimizer. */
typedef struct aril__pause {
    aril__tracer *tracer;
    uint64_t calls; /* of the thread's generator */
} aril__pause;
aril__pause aril__trace_pause(void);
void aril__trace_resume(aril__pause p);

/* The same as the functions of the thread's tracer; nothing outside a trace. */
aril_status aril__trace_watch(void *at, size_t bytes);
aril_status aril__trace_depend(const void *at, size_t bytes);
/* `of`: where the object has its lifetime, `what` it is called in errors. Before the above, if they
 * are about memory of the object. */
aril_status aril__trace_reads(aril__lifetime_slot *of, const char *what);
void aril__trace_name(const aril_tensor *t, const char *name);
aril_status aril__trace_after(void (*fn)(void *ctx, const void *data), void *ctx, const void *data,
                              size_t bytes);

/* Runs an op's kernels: rows of the device, fastest first, down to the reference. */
aril_status aril__dispatch(aril__run *r);

/* The same by a row of the device that takes the strides and dtypes of the run as they are; returns
 * false, and runs nothing, if there is none. */
bool aril__dispatch_to_row(aril__run *r, aril_status *status);

/* Allocates an output of a DYNAMIC op; called by its kernel. */
aril_status aril__run_alloc(aril__run *r, int i, aril_dtype dtype, int ndim, const int64_t *dim);

/* A key for one random op from `g` (NULL: the thread's generator), which advances by one. */
aril_tensor *aril__rng_draw(aril_generator *g);
/* Tell the tracer, if there is one, that a generator will be freed, or put into another state. */
void aril__rng_freed(aril_generator *g);
void aril__rng_set(aril_generator *g, const uint64_t *seed);

/* What the gradient of input i of `op` needs: its `saves` mask, plus OUT(0) if an activation is
 * fused. */
uint32_t aril__op_saves(const aril__op *op, const void *attrs, int i);

/* Autograd functions that apply calls; set by src/init.c. */
typedef struct aril__tape {
    /* Attaches a node to the outputs. `saved_in` replaces inputs that were overwritten. */
    aril_status (*record)(aril__thread *th, const aril__op *op, int n_in, aril_tensor *const *in,
                          const void *attrs, int n_out, aril_tensor **out, aril_tensor *dest);
    /* Records that `out` is a view of `in`. */
    aril_status (*view)(aril__thread *th, const aril__op *op, aril_tensor *in, const void *attrs,
                        aril_tensor *out);
    /* Called before `t` is used: refreshes the node of a view whose base was written to. */
    aril_status (*refresh)(aril__thread *th, aril_tensor *t);
    /* May `dest` be written to? */
    aril_status (*check_write)(aril__thread *th, const aril__op *op, aril_tensor *dest);
} aril__tape;
extern aril__tape aril__tape_hook;

#endif
