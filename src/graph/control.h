/* Control flow in graphs: nodes whose bodies are graphs.
 *
 * A body is traced from a C function. Its inputs are the arguments of the function, then what it
 * captures: tensors from outside that it uses, which become inputs of the node too. So bodies have
 * no state and no effects, and gradients of captured tensors flow like those of other inputs. */
#ifndef ARIL_GRAPH_CONTROL_H
#define ARIL_GRAPH_CONTROL_H

#include "graph/exec.h"
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
     * began, so that gradients see the numbers again; how many a trip draws, or both branches,
     * and of these the condition of a loop. */
    int64_t seed[1], calls[2], draws[1], condition_draws[1];
    int64_t keys[1];       /* of a defined graph, before those that it draws */
    int64_t repeats[1];    /* the draws are those of an earlier loop, whose gradient it is */
    int64_t loop_draws[1]; /* a loop in the body draws numbers */
    int64_t kept[1];       /* runs draw as many numbers as the function did: never dead code */
};

static inline bool aril__control_is_kept(const aril__graph *g, const aril__graph_node *n)
{
    return n->n_bodies && ((const struct control_attrs *)aril__graph_attrs(g, n))->kept[0];
}

/* Runs such a node on inputs with values: out[] gets references. size[n_sizes]: unknown sizes of
 * the run, as far as they are known. d->more is increased by the random numbers that it drew more
 * than the trace did. */
aril_status aril__control_run(const aril__graph *g, const aril__graph_node *n,
                              aril_tensor *const *in, const int64_t *size, aril_tensor **out,
                              aril__drawing *d);

#endif
