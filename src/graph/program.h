/* Compiled functions: the graphs of a program, one for each signature. */
#ifndef ARIL_GRAPH_PROGRAM_H
#define ARIL_GRAPH_PROGRAM_H

#include "aril/graph.h"
#include "aril/value.h"
#include "graph/exec.h"
#include "graph/graph.h"
#include "graph/part.h"
#include "graph/trace.h"

/* A program of a defined graph (aril_graph_function), which takes these inputs of it in order; the
 * others are not needed. placed[input]: as for aril__part_new. NULL with an error. */
aril_program *aril__program_of(const aril__graph *g, const aril__request *q, const bool *placed,
                               int n_in, const uint32_t *inputs);

/* Calls release(owner) when the program is freed. */
void aril__program_hold(aril_program *p, void *owner, void (*release)(void *owner));

/* The part that it is until it runs. */
const aril__part *aril__program_part(const aril_program *p);

/* Makes a list of the inputs of the program's graph of those that its runs take, NULL for others:
 * to be freed. NULL with an error. */
aril_tensor **aril__program_place(const aril_program *p, aril_list *in);

/* Calls fn with the graph of the latest trace; false: there is none. */
bool aril__program_look(const aril_program *p, void (*fn)(const aril__graph *g, void *ctx),
                        void *ctx);

/* Traces the function for these inputs and calls fn with the graph as it was written, before any
 * pass. */
aril_status aril__program_look_plain(const aril_program *p, aril_list in,
                                     void (*fn)(const aril__graph *g, void *ctx), void *ctx);

/* The same with other sizes left open than those of the program, as aril_jit takes them; NULL: with
 * its own. Fails if the function depends on values. */
aril_status aril__program_look_sized(const aril_program *p, aril_list in, const aril_shape *sizes,
                                     int n_sizes, void (*fn)(const aril__graph *g, void *ctx),
                                     void *ctx);

/* The name of a program. */
const char *aril__program_name(const aril_program *p);

/* Calls fn with a defined graph as if it had only these results and updates; inputs[i] is the
 * number of the input that placeholder i is. */
aril_status aril__graph_look_part(aril_list inputs, aril_list outputs, aril_list updates,
                                  void (*fn)(const aril__graph *g, const uint32_t *inputs,
                                             void *ctx),
                                  void *ctx);

/* aril_program_run, except that a function that cannot be traced is no error of this thread: then
 * *untraced gets a reference to the reason, otherwise NULL, and out[] is left alone. With
 * `recorded`, results are connected with autograd: inputs and parameters get their gradients. */
aril_status aril__program_try(aril_program *p, aril_list in, bool recorded, aril_tensor **out,
                              aril__error **untraced);
/* Whether a run that failed on these inputs has changed nothing, so that the function can be called
 * on them in another way. */
bool aril__program_unchanged(const aril_program *p, aril_list in);
/* A program whose function belongs to it, such as a loaded model. */
typedef struct aril__program_kind {
    void (*free)(void *ctx);
    /* Whether the function has to be called at each run: it found that it depends on values. A
     * trace during which this becomes true is discarded. */
    bool (*untraced)(void *ctx);
    /* Runs it on values. Returns false, and does nothing, if inputs and results are tensors: then
     * it is run on those. NULL: they always are. */
    bool (*values)(void *ctx, aril_values in, aril_value **out, aril_status *status);
    /* Whether traces are for values of small inputs (aril__is_small_input). NULL: they are not. */
    bool (*by_value)(void *ctx);
    /* Checks after a run what it read besides its inputs: on an error its results are poisoned.
     * NULL: there is nothing to check. */
    aril_status (*check)(void *ctx);
    bool fixed; /* nobody changes the tensors that it reads besides its inputs */
    /* The function as its graph is looked at: that graph holds for all values of the inputs, or
     * there is an error. NULL: the function itself. */
    aril_fn *whole;
    /* Draws it in Graphviz's language, without a trace. NULL: the trace is drawn. */
    aril_status (*draw)(void *ctx, FILE *to);
    /* Prints what a run costs that calls the function, as aril_program_costs does. */
    aril_status (*costs)(void *ctx, aril_list in, FILE *to);
} aril__program_kind;

const aril__program_kind *aril__program_kind_of(const aril_program *p, void **ctx);

/* That of a program's kind. */
bool aril__program_takes_values(const aril_program *p, aril_values in, aril_value **out,
                                aril_status *status);
/* The number of results that a run has room for. */
int aril__program_max_results(const aril_program *p);

/* Whether an input is one integer on the CPU, such as a sample rate that decides what a model does.
 * Its value can be part of a signature: then the function gets the tensor itself while it is
 * traced. */
static inline bool aril__is_small_input(const aril_tensor *t)
{
    return t->numel == 1 && t->ndim < ARIL_MAX_DIMS && t->storage && !t->node &&
           t->storage->device == aril__cpu_device && (DT_INT | DT_BOOL) >> t->dtype & 1;
}

/* aril_jit of such a function, which takes n_in inputs and has n_out results. Owns ctx, also on
 * failure. */
aril_program *aril__program_own(aril_fn *fn, void *ctx, const aril__program_kind *kind,
                                const char *name, int n_in, int n_out);
/* The ctx of a program of that kind; NULL: it is of another. */
void *aril__program_owned(const aril_program *p, const aril__program_kind *kind);

#endif
