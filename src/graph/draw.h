#ifndef ARIL_GRAPH_DRAW_H
#define ARIL_GRAPH_DRAW_H

#include "graph/stepwise.h"

/* Writes a graph in Graphviz's language: small ones by operations in frames of their modules, with
 * `values` also the values and gradients on edges; large ones by modules. */
aril_status aril__graph_dot(const aril__graph *g, const aril__stepwise *values, FILE *to);

#endif
