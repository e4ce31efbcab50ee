/* Whether a function only passes unknown sizes on.
 *
 * aril_size of a symbolic tensor may be a number that stands for an unknown size. Ops take it as a
 * size; C code that calculates with it, or decides by it, computes nonsense that the trace cannot
 * see. So the function is traced twice: with the unknown sizes, and with known ones. Where it only
 * passes sizes on, both graphs have the same nodes, whose sizes and attributes are equal once the
 * unknown sizes have the known values. Sizes that only a run knows are unknown in both traces, and
 * stand for other numbers in each of them. */
#ifndef ARIL_GRAPH_PASSED_ON_H
#define ARIL_GRAPH_PASSED_ON_H

#include "graph/graph.h"

/* Compares the traces of a function, with unknown sizes and with known ones. If they differ, the
 * error names the op and its line, and which unknown size C code asked for. */
aril_status aril__sizes_passed_on(const char *name, const aril__graph *open,
                                  const aril__graph *known);

/* The sizes of all inputs, to be freed; NULL if memory runs out. And whether inputs of the same
 * numbers of dimensions have these. */
int64_t *aril__sizes_of(aril_list in);
bool aril__sizes_are(const int64_t *dim, aril_list in);

/* Checks inputs against the sizes that are declared for n of them. */
aril_status aril__sizes_fit(const char *name, int n, const aril_shape *sizes, aril_list in);

#endif
