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

/* aril_program_run, except that a function that cannot be traced is no error of this thread: then
 * *untraced gets a reference to the reason, otherwise NULL, and out[] is left alone. */
aril_status aril__program_try(aril_program *p, aril_list in, aril_tensor **out,
                              aril__error **untraced);

#endif
