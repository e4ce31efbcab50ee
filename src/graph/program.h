/* Compiled functions: the graphs of a program, one for each signature. */
#ifndef ARIL_GRAPH_PROGRAM_H
#define ARIL_GRAPH_PROGRAM_H

#include "aril/graph.h"
#include "graph/exec.h"
#include "graph/graph.h"
#include "graph/trace.h"

/* A program of a session's graph (aril_graph_function): the executor for placeholders in order. */
aril_program *aril__program_of(const aril__graph *g, aril__exec *x, int n_in,
                               const uint32_t *inputs);

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
 * *untraced gets a reference to the reason, otherwise NULL, and out[] is left alone. */
aril_status aril__program_try(aril_program *p, aril_list in, aril_tensor **out,
                              aril__error **untraced);
/* A program whose function belongs to it, such as a loaded model. */
typedef struct aril__program_kind {
    void (*free)(void *ctx);
    /* Whether the function has to be called at each run: it found that it depends on values. A
     * trace during which this becomes true is discarded. */
    bool (*untraced)(void *ctx);
} aril__program_kind;

/* aril_jit of such a function, which takes n_in inputs and has n_out results. Owns ctx, also on
 * failure. */
aril_program *aril__program_own(aril_fn *fn, void *ctx, const aril__program_kind *kind,
                                const char *name, int n_in, int n_out);
/* The ctx of a program of that kind; NULL: it is of another. */
void *aril__program_owned(const aril_program *p, const aril__program_kind *kind);

#endif
