/* Functions that run compiled where they can be, for modules and models.
 *
 * A program is traced for the sizes of its inputs. When sizes keep changing, those that do become
 * unknown ones of a second program, so that a new size needs no new trace. A function that cannot
 * be traced runs as it is from then on, and one line in the log says why. */
#ifndef ARIL_GRAPH_COMPILED_H
#define ARIL_GRAPH_COMPILED_H

#include "aril/graph.h"

typedef struct aril__compiled aril__compiled;

/* For fn(ctx, in, out), both borrowed. `name` is for the log and printed graphs. With `later`, the
 * first call with new sizes is the caller's, so that what happens once is not traced. NULL with an
 * error. */
aril__compiled *aril__compiled_new(const char *name, aril_fn *fn, void *ctx, bool later);
void aril__compiled_free(aril__compiled *c);

/* Runs the function from its trace and returns true; *status is the result. Returns false when the
 * caller is to call the function itself, and then aril__compiled_ran with the status of that: where
 * that succeeds but tracing did not, the function is not traced again. With `recorded`, results are
 * connected with autograd. */
bool aril__compiled_run(aril__compiled *c, aril_list in, bool recorded, aril_tensor **out,
                        aril_status *status);
void aril__compiled_ran(aril__compiled *c, aril_status status);

/* From now on the caller calls the function itself, for this reason. */
void aril__compiled_refuse(aril__compiled *c, const char *why);
/* Why it does; NULL: it runs compiled. */
const char *aril__compiled_reason(const aril__compiled *c);
/* Tries to trace again. */
void aril__compiled_reset(aril__compiled *c);

/* The program that ran last; NULL: none. */
aril_program *aril__compiled_program(const aril__compiled *c);
/* The number of traces. */
int aril__compiled_traces(const aril__compiled *c);

/* Whether steps are compiled: they are, unless ARIL_JIT=0. */
bool aril__compiling(void);

#endif
