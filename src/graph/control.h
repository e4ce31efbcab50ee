/* Control flow in graphs: nodes whose bodies are graphs.
 *
 * A body is traced from a C function. Its inputs are the arguments of the function, then what it
 * captures: tensors from outside that it uses, which become inputs of the node too. So bodies have
 * no state and no effects, and gradients of captured tensors flow like those of other inputs. */
#ifndef ARIL_GRAPH_CONTROL_H
#define ARIL_GRAPH_CONTROL_H

#include "aril/autograd.h"
#include "graph/exec.h"
#include "graph/graph.h"

enum aril__control_kind { ARIL__COND, ARIL__WHILE, ARIL__SCAN };

/* Attributes of the nodes; the functions are called again to differentiate them. */
struct control_attrs {
    int64_t kind[1];
    int64_t n_args[1];  /* arguments of the function, before captured tensors */
    int64_t n_state[1]; /* of a loop: the first of them */
    int64_t n_ys[1];    /* results for each trip of a loop */
    int64_t reverse[1]; /* the scan begins at the end */
    int64_t fn[2], ctx[1];
    /* Random numbers of the thread's generator: its seed, and calls when the trace of each body
     * began, so that gradients see the numbers again; how many a trip draws, or both branches,
     * and of these the condition of a loop. */
    int64_t seed[1], calls[2], draws[1], condition_draws[1];
    int64_t keys[1];       /* of a defined graph, before those that it draws */
    int64_t repeats[1];    /* the draws are those of an earlier loop, whose gradient it is */
    int64_t loop_draws[1]; /* a loop in the body draws numbers */
    int64_t max_trips[1];  /* of a while, at most; 0: no limit */
    int64_t kept[1];       /* runs draw as many numbers as the function did: never dead code */
};

static inline bool aril__control_is_kept(const aril__graph *g, const aril__graph_node *n)
{
    return n->n_bodies && ((const struct control_attrs *)aril__graph_attrs(g, n))->kept[0];
}

enum { ARIL__CONTROL_ARGS = 64 }; /* arguments of a function, and results, at most */

/* Calls a function that has to set n results. */
aril_status aril__control_call(const char *what, aril_fn *fn, void *ctx, aril_tensor *const *in,
                               int n_out, aril_tensor **out);

/* Whether the states of a loop keep their dtypes and shapes in a trip. */
aril_status aril__control_same(const char *what, int n, aril_tensor *const *before,
                               aril_tensor *const *after);

/* Dtypes and shapes of the results of a function, from a trace of it: nothing runs, nothing
 * changes. From argument `parts` on, it gets one element along the first axis of in.at[i]. */
aril_status aril__control_shapes(const char *what, aril_fn *fn, void *ctx, aril_list in, int parts,
                                 int n_out, aril__meta *to);

/* In eager mode. The arguments are those of aril_cond, aril_scan (`in`: state, then sequences;
 * `out`: final state, then results), and aril_while, and have been checked. */
aril_status aril__eager_cond(aril_tensor *pred, aril_fn *then_fn, aril_fn *else_fn, void *ctx,
                             aril_list in, int n_out, aril_tensor **out);
aril_status aril__eager_scan(const char *what, aril_fn *fn, void *ctx, aril_list in, int n_state,
                             int n_ys, int64_t trips, aril_tensor **out);
aril_status aril__eager_while(aril_fn *const fn[2], void *ctx, aril_list in, int64_t max,
                              aril_tensor **out);

/* aril_while in a trace, whose body also sets n_ys results in each trip: after the final state,
 * out[] receives them stacked, as those of aril_scan; only a run knows how many. */
aril_status aril__while_stacked(aril_fn *cond, aril_fn *fn, void *ctx, aril_list state, int n_ys,
                                aril_tensor **out);

/* Reads a condition: an error unless it has one element. */
aril_status aril__control_flag(const char *what, aril_tensor *t, bool *to);

/* Runs such a node on inputs with values: out[] gets references. size[n_sizes]: unknown sizes of
 * the run, as far as they are known. d->more is increased by the random numbers that it drew more
 * than the trace did. */
aril_status aril__control_run(const aril__graph *g, const aril__graph_node *n,
                              aril_tensor *const *in, const int64_t *size, aril_tensor **out,
                              aril__drawing *d);

#endif
