/* The gradient of a program as a second program.
 *
 * A function that is called where autograd records is traced together with its gradient: after its
 * own inputs, the graph has a gradient for each result as an input, and after its results the
 * gradients of parameters and inputs. Then it is divided. The forward part has as results those of
 * the function and values that the backward part needs; autograd gets one node for each call, which
 * keeps those values and runs the backward part. */
#ifndef ARIL_GRAPH_GRADIENT_H
#define ARIL_GRAPH_GRADIENT_H

#include "graph/trace.h"

typedef struct aril__gradient aril__gradient;

/* While a function is traced, which has set out[n_out] from the symbolic in[n_in]: records its
 * gradient. *list gets those results and the gradients that follow, *n_list of them, to be freed.
 * NULL with an error; with *n_list == n_out if no result needs a gradient. */
aril__gradient *aril__gradient_trace(aril__tracing *t, const char *name, int n_in,
                                     aril_tensor *const *in, int n_out, aril_tensor *const *out,
                                     aril_tensor ***list, int *n_list);

/* Takes over the graph of that trace, and returns the forward part; NULL with an error. */
aril__graph *aril__gradient_divide(aril__gradient *q, aril__graph *g);

void aril__gradient_release(aril__gradient *q);

/* How many results the forward part has after those of the function. */
uint32_t aril__gradient_kept(const aril__gradient *q);

/* After a run of the forward part on `given`, whose generators were in these states before it:
 * connects out[0], ... with autograd, as results of in[]. out[n_out ...] are the kept values. */
aril_status aril__gradient_record(aril__gradient *q, const aril__graph *forward,
                                  aril_tensor *const *in, aril_tensor *const *given,
                                  const aril_rng_state *before, aril_tensor **out);

#endif
