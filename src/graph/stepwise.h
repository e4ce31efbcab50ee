/* Running a graph one node at a time, to look at it: on copies, so that nothing outside changes. */
#ifndef ARIL_GRAPH_STEPWISE_H
#define ARIL_GRAPH_STEPWISE_H

#include "graph/graph.h"

typedef struct aril__stepwise {
    aril_tensor **value; /* [n_values]: of each value that was computed, or NULL; of the scope */
    double *seconds;     /* [n_nodes]: how long each node ran; NULL: not measured */
} aril__stepwise;

/* Runs the graph on these inputs, whose sizes it must know. With `gradients`, operations are
 * recorded, and float values keep their gradients. Results belong to the innermost scope. */
aril_status aril__graph_stepwise(const aril__graph *g, aril_list in, bool gradients,
                                 aril__stepwise *r);
void aril__stepwise_free(aril__stepwise *r);

#endif
