/* Prepared values: what a program computes from its weights alone (folded normalization, casts,
 * sums of biases) is computed once and kept, until a weight changes.
 *
 * The pass `prepare` moves such nodes into a graph of their own, which writes its results to
 * tensors that the program owns. In the graph of the program these are states like any other, so
 * that kernels keep packed forms of them, too. */
#ifndef ARIL_GRAPH_PREPARE_H
#define ARIL_GRAPH_PREPARE_H

#include "graph/graph.h"

typedef struct aril__prepared aril__prepared;

/* Before a run, and after it: others wait while values are computed or packed.
 *
 * Computes the values if a weight has changed since the last time, or if this is the first. `epoch`
 * is that of the values that the kernels of the run have packed: if it is not the latest, *packs
 * tells that the run packs them, and that values which only such kernels read can be dropped.
 * Returns the epoch that the kernels have after the run. NULL is allowed. */
aril_status aril__prepared_begin(aril__prepared *p, unsigned epoch, bool *packs);
unsigned aril__prepared_end(aril__prepared *p, bool packed, unsigned epoch);

/* Frees the memory of a value, whose forms stay. It is computed again when a run needs it. */
void aril__prepared_drop(aril__prepared *p, aril_tensor *t);

/* Without a run: all values are in memory and up to date. */
aril_status aril__prepared_update(aril__prepared *p);

/* From now on, changes of weights are not looked for. Before the first run. */
void aril__prepared_freeze(aril__prepared *p);

/* The graph that computes the values. */
const aril__graph *aril__prepared_graph(const aril__prepared *p);

void aril__prepared_free(aril__prepared *p);

/* Whether a value is the same in each run, unless somebody changes a weight in between. */
bool aril__is_fixed(const aril__graph *g, aril__value_id v);

#endif
