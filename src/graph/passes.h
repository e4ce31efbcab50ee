/* Passes: changes of a graph that keep what it computes.
 *
 * ARIL_PASSES switches them: "-fold" leaves that one out, "none" leaves all out, "cse,dead" runs
 * only those. ARIL_LOG=passes prints what each of them did, and the graph before and after. */
#ifndef ARIL_GRAPH_PASSES_H
#define ARIL_GRAPH_PASSES_H

#include "graph/graph.h"

typedef struct aril__pass {
    const char *name, *doc;
    aril_status (*run)(aril__graph *g);
    bool whole; /* not for the bodies of control flow */
} aril__pass;

/* All passes, in the order in which they run. */
extern const aril__pass aril__pass_list[];
extern const int aril__n_passes;

/* Whether ARIL_PASSES leaves a pass on. */
bool aril__pass_is_on(const char *name);

/* Runs those that are on. */
aril_status aril__passes(aril__graph *g);

/* Before them, where nobody changes the states: scalar weights become numbers (numbers.c). */
aril_status aril__graph_fix_numbers(aril__graph *g);

/* Whether a node computes its outputs from its inputs and attributes alone, in new memory. */
bool aril__is_plain(const aril__graph_node *n);

/* The passes themselves. */
aril_status aril__pass_merge(aril__graph *g);     /* unrolled steps share products */
aril_status aril__pass_fold(aril__graph *g);      /* nodes of constants are computed once */
aril_status aril__pass_algebra(aril__graph *g);   /* what changes nothing is left out */
aril_status aril__pass_cse(aril__graph *g);       /* equal nodes are computed once */
aril_status aril__pass_dead(aril__graph *g);      /* nodes that nothing needs are removed */
aril_status aril__pass_batchnorm(aril__graph *g); /* folded into convolutions in inference */
aril_status aril__pass_epilogue(aril__graph *g);  /* bias and activation join their producer */
aril_status aril__pass_attention(aril__graph *g); /* softmax(q k^T) v becomes attention */
aril_status aril__pass_prepare(aril__graph *g);   /* what depends on weights alone is kept */
aril_status aril__pass_fuse(aril__graph *g);      /* elementwise neighbours become one node */

#endif
