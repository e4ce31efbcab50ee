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

/* The same for a defined graph, whose code runs only once: an error if it asked for a size that it
 * passed on to nothing. */
aril_status aril__sizes_all_passed_on(const char *what, const aril__graph *g);

/* Where an unknown size comes from: "axis 0 of 'x'"; false if that is not known. */
bool aril__size_origin(const aril__graph *g, int64_t unknown, char *text, size_t size);

/* Sizes of calls for which a trace was compared, those of all inputs of a call. The set is bounded:
 * it forgets some when it is full. Not for several threads at once. */
typedef struct aril__compared_sizes aril__compared_sizes;

/* An empty set; NULL with an error. */
aril__compared_sizes *aril__compared_new(void);
void aril__compared_free(aril__compared_sizes *c);
/* The inputs have the same numbers of dimensions in all calls. */
bool aril__compared_has(const aril__compared_sizes *c, aril_list in);
/* Adds the sizes of a call, unless memory runs out: then they are compared again. */
void aril__compared_add(aril__compared_sizes *c, aril_list in);

/* Checks inputs against the sizes that are declared for n of them. */
aril_status aril__sizes_fit(const char *name, int n, const aril_shape *sizes, aril_list in);

#endif
