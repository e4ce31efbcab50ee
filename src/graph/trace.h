/* Tracing: calls of ordinary functions become nodes of a graph.
 *
 * Everything that a traced program can refer to is a cell: a symbolic tensor, or a tensor that
 * exists outside the graph. A cell has a current value. A write gives it a new one; a write through
 * a view also gives its base a new value, in which the part that the view covers is replaced, and
 * the other views of that base are computed anew when they are next used. So the graph has values
 * only, and what was written to tensors from outside becomes an effect at the end of the trace. */
#ifndef ARIL_GRAPH_TRACE_H
#define ARIL_GRAPH_TRACE_H

#include "graph/graph.h"
#include "ops/table/apply.h"

typedef struct aril__tracing aril__tracing;

/* Bytes of the host that the traced code depends on, and their contents at the beginning. */
typedef struct aril__watched {
    void *at;
    size_t bytes;
    size_t copy; /* where in `copies` */
    bool fixed;  /* the traced code must not change them */
} aril__watched;

struct aril__node;
typedef struct aril__watches {
    struct aril__node **unhooked; /* leaves whose hooks a backward pass would have called: none */
    uint32_t n_unhooked, cap_unhooked;
    aril__lifetime **lives; /* of objects that are read or changed: references */
    uint32_t n_lives, cap_lives;
    aril__watched *at;
    uint32_t n, cap;
    char *copies;
    size_t bytes, cap_bytes;
} aril__watches;

/* Whether all have the contents that they had when the trace began. */
bool aril__watches_hold(const aril__watches *w);
/* What one of the objects was called that do not exist any more; NULL: all exist. */
const char *aril__watches_ended(const aril__watches *w);
/* Whether the leaves have no hooks, as when they were traced. */
bool aril__watches_unhooked(const aril__watches *w);
void aril__watches_free(aril__watches *w);

/* A trace into a new graph. `defines`: of a graph that the program defines by calls on its symbolic
 * tensors, which belong to the graph, while other calls run at once. NULL with an error. */
aril__tracing *aril__tracing_new(const char *name, bool defines);

/* Discards the trace. Symbolic tensors that still exist become unusable, with an error. */
void aril__tracing_free(aril__tracing *t);

aril__tracer *aril__tracing_tracer(aril__tracing *t);

/* Errors of runs of the nodes from now on begin with this label, which is borrowed until the next
 * call; NULL: with none. Returns the one before. */
const char *aril__trace_label(const char *label);

/* The trace of a symbolic tensor of a defined graph; NULL: none, or it has ended. And the object
 * that a trace belongs to. */
aril__tracing *aril__tracing_of(const aril_tensor *x);
void aril__tracing_set_owner(aril__tracing *t, void *owner);
void *aril__tracing_owner(const aril__tracing *t);
aril__graph *aril__tracing_graph(aril__tracing *t);
/* Whether the outermost trace is that of a defined graph. */
bool aril__tracing_defines(const aril__tracing *t);

/* A symbolic tensor for a new input like `like`; where dim[d] is negative, the size is unknown:
 * -1 a new unknown, and each other number below that the same unknown wherever it occurs. One
 * reference, owned by the caller. NULL with an error. */
aril_tensor *aril__tracing_input(aril__tracing *t, const aril_tensor *like, const int64_t *dim,
                                 const char *name);
/* The same for an input that shares its memory with others, of known sizes. The first of them is
 * given to a run as `all`, its whole memory; the others are not used. */
aril_tensor *aril__tracing_shared(aril__tracing *t, const aril_tensor *like, aril_tensor *all);
/* The whole memory of a tensor as one row of elements: a reference, or NULL with an error. */
aril_tensor *aril__whole_storage(const aril_tensor *of);

/* A symbolic tensor for the tensor `state`: a variable. */
aril_tensor *aril__tracing_variable(aril__tracing *t, aril_tensor *state, const char *name);

/* The current value of a tensor; 0 with an error. */
aril__value_id aril__tracing_value(aril__tracing *t, aril_tensor *of);

/* Runs fn between these with the tracer on. */
typedef struct aril__traced_call {
    aril__tracer *before;
    aril_guard scope;
} aril__traced_call;
aril__traced_call aril__tracing_begin(aril__tracing *t);
/* Ends it: lists outputs and effects, and undoes what the trace did on the host, to gradients and
 * to generators. out[n_out] are the symbolic results. */
aril_status aril__tracing_end(aril__tracing *t, aril__traced_call *c, aril_status so_far, int n_out,
                              aril_tensor *const *out);

/* After a trace that failed: gives tensors that the traced code created and still keeps the values
 * with which it created them for these inputs, so that it can go on with them. */
void aril__tracing_settle(aril__tracing *t, aril_tensor *const *in);

/* ---- bodies of control flow ---- */

/* A trace of a function inside another trace, whose unknown sizes it shares. Tensors from outside
 * that the function uses are captured: they become inputs after its arguments. */
aril__tracing *aril__tracing_body(aril__tracing *outer, const char *name);
/* The captured tensors. */
int aril__tracing_captures(const aril__tracing *t, aril_tensor *const **of);
/* Captures a tensor, if it is not already; false with an error. */
bool aril__tracing_capture(aril__tracing *t, aril_tensor *x);
/* Notes that aril_set put a symbolic tensor in the place of another: aril__replaced_hook. */
void aril__trace_replaced(aril_tensor *before, aril_tensor *now);
/* Frees `memory` with the trace. */
bool aril__tracing_own(aril__tracing *t, void *memory);
/* A tensor with the value that x has now, whatever is written to x later, and the same place in the
 * gradient graph; owned by the scope. Poison with an error. */
aril_tensor *aril__tracing_snapshot(aril__tracing *t, aril_tensor *x);
/* The trace that is recording: that of the thread, or that of a symbolic tensor of a defined graph
 * among these; NULL: none. */
aril__tracing *aril__tracing_now(int n, aril_tensor *const *of);

/* Takes the finished graph, and the watches, out of the trace. */
aril__graph *aril__tracing_take(aril__tracing *t, aril__watches *watches);

#endif
