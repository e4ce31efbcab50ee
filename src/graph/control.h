/* Control flow in graphs: nodes whose bodies are graphs.
 *
 * A body is traced from a C function. Its inputs are the arguments of the function, then what it
 * captures: tensors from outside that it uses, which become inputs of the node too. So bodies have
 * no state and no effects, and gradients of captured tensors flow like those of other inputs. */
#ifndef ARIL_GRAPH_CONTROL_H
#define ARIL_GRAPH_CONTROL_H

#include "graph/graph.h"

enum aril__control_kind { ARIL__COND, ARIL__WHILE, ARIL__SCAN };

/* Attributes of the nodes; the functions are called again to differentiate them. */
struct control_attrs {
    int64_t kind[1];
    int64_t n_args[1];  /* arguments of the function, before captured tensors */
    int64_t n_state[1]; /* of a loop: the first of them */
    int64_t n_ys[1];    /* results for each trip of a scan */
    int64_t reverse[1]; /* the scan begins at the end */
    int64_t fn[2], ctx[1];
    /* Random numbers of the thread's generator: its seed, and calls when the trace of each body
     * began, so that gradients see the numbers again; how many a trip draws, and of these the
     * condition of a loop. */
    int64_t seed[1], calls[2], draws[1], condition_draws[1];
    int64_t repeats[1]; /* the draws are those of an earlier loop, whose gradient it is */
};

/* Runs such a node on inputs with values: out[] gets references. size[n_sizes]: unknown sizes of
 * the run, as far as they are known. *more gets how many random numbers it drew more than the trace
 * did, which went through each body once. */
aril_status aril__control_run(const aril__graph *g, const aril__graph_node *n,
                              aril_tensor *const *in, const int64_t *size, aril_tensor **out,
                              int64_t *more);

#endif
