/* Programs as graphs: the same functions as in eager mode, recorded and run later.
 *
 * Compiled functions: aril_jit traces an ordinary C function once for each signature of its inputs
 * and then repeats what it did, a whole training step if it is one.
 *
 * Define and run: a tensor made by aril_placeholder or aril_variable has a shape but no value.
 * Operations on it add nodes to its graph, and aril_session_run computes what is asked for. */
#ifndef ARIL_GRAPH_H
#define ARIL_GRAPH_H

#include "aril/autograd.h"
#include "aril/scope.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- compiled functions ---- */

/* A program: a function that was traced, or will be at its first call. Opaque. */
typedef struct aril_program aril_program;

typedef struct aril_jit_opts {
    const char *name; /* for printed graphs and the log; default "program" */
    /* Sizes that may differ between calls without a new trace: one shape for each input, n_sizes of
     * them, with its number of dimensions, in which such a size is negative. -1 is a size of its
     * own; every other number stands for one size wherever it occurs: { ARIL_SHAPE(-2, 784),
     * ARIL_SHAPE(-2) } are two inputs with the same batch size. Other numbers are not read. fn must
     * not compute with such a size, nor decide by it: that is an error. */
    const aril_shape *sizes;
    int n_sizes;
    int max_results; /* room in out[] that fn may use; more results are an error; default 4096 */
    int max_traces;  /* the oldest trace is dropped beyond that; default 64 */
    /* Bytes that a run may allocate on each device (aril_program_memory); 0: any number. Where that
     * is not enough, values that are cheap to compute are computed again instead of kept. A run
     * that does not fit even so fails before it begins, and the error tells how much is missing. */
    int64_t max_memory;
    /* What fn reads besides its inputs (parameters, buffers) is copied when it is traced: runs do
     * not see later changes of it. For inference: an fn that changes such tensors is an error. */
    bool freeze;
} aril_jit_opts;

/* A program that runs fn(ctx, in, out) from a recording of its operations. Tracing happens at the
 * first run with each signature: dtypes, devices, sizes and memory formats of the inputs, which of
 * them share memory, the thread's mode, and which parameters hold a gradient.
 *
 *   - What fn reads besides its inputs (parameters, buffers, an optimizer's state) is looked up
 *     anew in each run, by the tensor: it must exist as long as the program. Writes to such tensors
 *     and to inputs, gradients left in leaves, generator calls and the counters of optimizers and
 *     schedules change in each run as they do when fn is called.
 *   - C code in fn runs only while tracing: an `if`, a loop and a printf have the effect that they
 *     had then. Reading a value (aril_item, aril_read ...) is an error; use aril_cond.
 *   - fn sets out[0], out[1], ..., without gaps; the others are NULL when it is called. Results are
 *     new tensors in each run, and not connected to a gradient graph.
 *
 * `fn` and `ctx` must outlive the program. NULL, with an error, when fn is NULL or memory runs
 * out. */
ARIL_API aril_program *aril_jit(aril_fn *fn, void *ctx, aril_jit_opts opts);

/* Runs the program: out[] receives its results, owned by the innermost scope; poisoned on failure.
 * A trace that fails changes nothing, and is tried again at the next run. Several threads may run a
 * program at once, as far as they may call fn at once. */
ARIL_API aril_status aril_program_run(aril_program *p, aril_list inputs, aril_tensor **out);

/* The number of results of the latest trace; 0 before the first run. */
ARIL_API int aril_program_results(const aril_program *p);

/* How often the function was traced. */
ARIL_API int aril_program_traces(const aril_program *p);

/* Writes the graph of the latest trace as text:
 *
 *     graph step(%x: f32[64,1000], %y: f32[64,1000]) {
 *       %5: f32[64,100] = matmul(%x, %w1)  # mlp.c:42
 *       return %9
 *     }
 */
ARIL_API void aril_program_print(const aril_program *p, FILE *to);

/* Draws the graph of the latest trace. The path ends in .dot (Graphviz's language), or in .svg,
 * .png or .pdf, for which the program `dot` must be installed. Graphs of up to 60 operations are
 * drawn one by one, in frames of their modules; larger ones by modules. With inputs, as in a run,
 * the operations are those of the function, before they are fused, and edges of few elements show
 * their values in green and, where the first result has one element, its gradient with respect to
 * them in red. Nothing outside changes. */
ARIL_API aril_status aril_program_draw(const aril_program *p, const char *path, aril_list inputs);

/* Writes a table of what the nodes of the latest trace cost: floating-point operations, bytes read
 * and written, and the median time of each one alone, the most expensive first. Runs them on copies
 * of the inputs and states. */
ARIL_API aril_status aril_program_costs(const aril_program *p, aril_list inputs, FILE *to);

/* Memory that a run of a program allocates on a device, in bytes as aril_memory counts them.
 * Inputs, parameters and other tensors outside the program are not part of it. */
typedef struct aril_memory_plan {
    int64_t arena;   /* values inside the program, and scratch memory of kernels */
    int64_t results; /* results, which belong to the caller and may be copies, and gradients */
    int64_t peak;    /* the most that is allocated at once: the sum of both */
    int unplanned;   /* operations whose memory only the run knows; 0: `peak` is exact */
    int64_t
        constants; /* what was computed once, and stays allocated with the program, beside runs */
} aril_memory_plan;

/* The plan of the latest run of the latest trace, which is made before that run begins; all zeros
 * before the first run. An arena of up to 16 MiB stays allocated between runs. */
ARIL_API aril_memory_plan aril_program_memory(const aril_program *p, aril_device device);

/* Frees a program; NULL is allowed. */
ARIL_API void aril_program_free(aril_program *p);

/* ---- control flow ----
 *
 * In eager mode these are plain C: one branch is called, a loop runs. In a trace, and in a graph
 * that is defined, they become nodes whose branches and bodies are graphs of their own, so that the
 * run decides. Functions may use tensors from outside, and differentiate with respect to them, but
 * must not change them, nor their gradients. In a trace there are 1 to 32 results, and at most as
 * many gradients of what a function uses; branches and bodies are nested at most 64 deep. Each trip
 * of a loop draws other random numbers, those that plain C would draw (of an aril_generator other
 * than the thread's, and in a graph that is defined where the gradient of a loop is computed: the
 * same in all trips).
 * `ctx` must outlive a graph that is defined. */

/* out[n_out] = pred != 0 ? then_fn(inputs) : else_fn(inputs). `pred` has one element. Both branches
 * return results of the same dtypes and numbers of dimensions; in a trace, sizes that differ
 * between the branches are known when it runs. */
ARIL_API aril_status aril_cond(aril_tensor *pred, aril_fn *then_fn, aril_fn *else_fn, void *ctx,
                               aril_list inputs, int n_out, aril_tensor **out);

typedef struct aril_while_opts {
    int64_t max_trips; /* the loop ends after so many trips, of any number; 0: no limit. A loop in a
                          trace can be differentiated only with a limit */
} aril_while_opts;

/* while (cond(state) != 0) state = body(state). `state` has at least one tensor; the body sets as
 * many results, of the same dtypes and shapes. out[] receives the final state. */
ARIL_API aril_status aril_while(aril_fn *cond, aril_fn *body, void *ctx, aril_list state,
                                aril_while_opts opts, aril_tensor **out);

/* For t = 0, 1, ... along the first axis of the sequences xs:
 *     state, y_t = body(state, x_t)
 * The body gets the state, then the t-th element of each sequence, and sets the new state, then
 * n_ys results. final[] receives the last state, ys[] the results stacked: [T, shape of y_t...].
 * Sequences may be empty: then the body is only traced, for the shapes of the results. */
ARIL_API aril_status aril_scan(aril_fn *body, void *ctx, aril_list state, aril_list xs, int n_ys,
                               aril_tensor **final, aril_tensor **ys);

/* A scan without state: out[k][t] = fn(xs[0][t], xs[1][t], ...)[k]. */
ARIL_API aril_status aril_map(aril_fn *fn, void *ctx, aril_list xs, int n_out, aril_tensor **out);

/* ---- define and run ----
 *
 * Variables, placeholders and sessions are made, and sessions run, outside traced functions. */

/* A graph that is defined by calls on its symbolic tensors. Opaque. */
typedef struct aril_graph aril_graph;

/* A new graph; the name may be NULL. NULL, with an error, when out of memory. */
ARIL_API aril_graph *aril_graph_new(const char *name);
/* Frees the graph with its symbolic tensors and variables, as soon as its sessions and functions
 * are freed, too. */
ARIL_API void aril_graph_free(aril_graph *g);
/* Writes the graph as text. */
ARIL_API void aril_graph_print(const aril_graph *g, FILE *to);

/* A symbolic tensor whose value is fed to each run. A size of -1 is unknown until then; other
 * negative numbers are unknown too, and equal numbers are equal sizes. Belongs to the graph, as all
 * symbolic tensors do. */
ARIL_API aril_tensor *aril_placeholder(aril_graph *g, const char *name, aril_shape shape,
                                       aril_dtype dtype);

/* A symbolic tensor for a value that is kept between runs, and initially a copy of `initial`.
 * Requires a gradient if its dtype can. A tensor with a value that is used in the graph without
 * being a variable is read in each run too, but cannot be assigned to. */
ARIL_API aril_tensor *aril_variable(aril_graph *g, const char *name, aril_tensor *initial);

/* The tensor that holds the value of a variable now, shared by all sessions. Borrowed. */
ARIL_API aril_tensor *aril_variable_value(aril_tensor *variable);

/* Sets all variables back to their initial values. */
ARIL_API aril_status aril_graph_initialize(aril_graph *g);

/* Assignments: symbolic tensors with the new value of the variable. A run that fetches one changes
 * the variable when all else is computed: what the run reads of the variable is the value before.
 *     w = value;   w = w + value;   w = w - value */
ARIL_API aril_tensor *aril_assign(aril_tensor *variable, aril_tensor *value);
ARIL_API aril_tensor *aril_assign_add(aril_tensor *variable, aril_tensor *value);
ARIL_API aril_tensor *aril_assign_sub(aril_tensor *variable, aril_tensor *value);

/* A value for a placeholder. */
typedef struct aril_feed {
    aril_tensor *placeholder, *value;
} aril_feed;
typedef struct aril_feeds {
    int n;
    const aril_feed *at;
} aril_feeds;

/* ARIL_FEEDS({ x, xs }, { y, ys }): a list of feeds. */
#define ARIL_FEEDS(...)                                                             \
    ((aril_feeds){ (int)(sizeof((aril_feed[]){ __VA_ARGS__ }) / sizeof(aril_feed)), \
                   (const aril_feed[]){ __VA_ARGS__ } })

/* Runs parts of a graph. Opaque. */
typedef struct aril_session aril_session;

/* A session on a device: variables and fed values are moved there, unless ARIL_DEVICE has placed
 * them elsewhere. */
ARIL_API aril_session *aril_session_new(aril_graph *g, aril_device device);
/* Frees a session; the variables stay with the graph. */
ARIL_API void aril_session_free(aril_session *s);

/* Computes the values of `fetches`, any symbolic tensors of the graph; only what they need runs.
 * out[] receives them, new tensors owned by the innermost scope; poisoned on failure. */
ARIL_API aril_status aril_session_run(aril_session *s, aril_feeds feeds, aril_list fetches,
                                      aril_tensor **out);

/* Theano's function: a program that takes values for the placeholders `inputs`, returns the values
 * of `outputs` and performs `updates`, which aril_assign and its like have returned. Results are
 * not connected to autograd: an input that was computed from tensors which require a gradient is an
 * error. NULL, with an error, if a placeholder is given twice or one that the outputs depend on is
 * missing. */
ARIL_API aril_program *aril_graph_function(aril_list inputs, aril_list outputs, aril_list updates);

/* Placeholders, variables and operations on symbolic tensors until the end of the block are on this
 * device: operands from elsewhere are moved.
 *     { ARIL_DEVICE(aril_cuda(1)); h = aril_matmul(x, w); } */
ARIL_API aril_guard aril_device_begin(aril_device device);
#define ARIL_DEVICE(device) ARIL__GUARD_OF(aril_device_begin(device))

ARIL_C_END

#endif
