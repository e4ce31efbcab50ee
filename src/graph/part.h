/* A part of a defined graph as a program: a copy of it with passes, an executor and recordings, as
 * those of a compiled function. */
#ifndef ARIL_GRAPH_PART_H
#define ARIL_GRAPH_PART_H

#include "graph/exec.h"

/* What a run wants: values, and numbers of effects. */
typedef struct aril__request {
    uint32_t n_out, n_effects;
    aril__value_id *out;
    uint32_t *effects;
} aril__request;

typedef struct aril__part aril__part;

/* For a run on a device: inputs are there, except those that placed[input] marks, which are where
 * the graph says. Nothing of the graph is kept. NULL with an error. */
aril__part *aril__part_new(const aril__graph *of, const aril__request *q, aril__device *device,
                           const bool *placed);
void aril__part_free(aril__part *p);

/* A copy of what a run needs of the graph, before any pass; NULL with an error. */
aril__graph *aril__part_plain(const aril__graph *of, const aril__request *q);

const aril__graph *aril__part_graph(const aril__part *p);

/* Whether it is the part for such a run of the graph as it is now. */
bool aril__part_is_for(const aril__part *p, const aril__graph *of, const aril__request *q,
                       const aril__device *device);

/* Whether a run needs input i of the graph. */
bool aril__part_needs(const aril__part *p, uint32_t i);

/* Runs it: in[] has the inputs of the graph, NULL where they are not needed. out[] gets
 * references. */
aril_status aril__part_run(const aril__part *p, aril_tensor *const *in, aril_tensor **out);

aril_memory_plan aril__part_memory(const aril__part *p, const aril__device *device);

#endif
