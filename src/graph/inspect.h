/* Running a graph one node at a time, to look at it: on copies, so that nothing outside changes. */
#ifndef ARIL_GRAPH_INSPECT_H
#define ARIL_GRAPH_INSPECT_H

#include "graph/graph.h"

typedef struct aril__inspection {
    aril_tensor **value; /* [n_values]: of each value that was computed, or NULL; of the scope */
    double *seconds;     /* [n_nodes]: how long each node ran; NULL: not measured */
    int64_t *size;       /* what unknown sizes of the graph turned out to be; -1: not known */
} aril__inspection;

/* Runs the graph on these inputs, NULL for those that it does not need. With `gradients`,
 * operations are recorded, and float values keep their gradients. Results belong to the innermost
 * scope. */
aril_status aril__graph_inspect(const aril__graph *g, aril_list in, bool gradients,
                                aril__inspection *r);
/* The attributes of a node in that run: unknown sizes are replaced in `room`, of n->op->attr_size
 * bytes. NULL if it has none. */
const void *aril__inspection_attrs(const aril__graph *g, const aril__inspection *r,
                                   const aril__graph_node *n, void *room);
void aril__inspection_free(aril__inspection *r);

/* The name of an aril_activation: "relu"; NULL: none. */
const char *aril__activation_name(int64_t act);

#endif
