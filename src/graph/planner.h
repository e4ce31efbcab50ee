/* The inside of plan.c, for concat.c too. */
#ifndef ARIL_GRAPH_PLANNER_H
#define ARIL_GRAPH_PLANNER_H

#include "graph/executor.h"

/* While an instance is made. */
typedef struct aril__planner {
    aril__exec_state *r;
    const aril__exec *x;
    aril__instance *n;
    const aril__step *step; /* that is planned */
    uint32_t cap_headers, cap_places, cap_actions, cap_sources, cap_results;
    bool *ended;    /* by slot: its value is not used any more */
    uint32_t *next; /* by slot: 1 + the step that appends to the value; 0: none. NULL: no such */
    uint32_t *full; /* by slot: the header of the whole that the value is the beginning of */
    aril_status status; /* not ARIL_OK: there is an error */
} aril__planner;

/* One call while it is planned. */
typedef struct aril__planned_call {
    const aril__op *op;
    const void *attrs;
    int n_in;
    uint32_t *in; /* headers */
    uint32_t out[ARIL__MAX_OUT];
    uint32_t dest;                 /* that result 0 is written to; 0: none */
    bool to_caller[ARIL__MAX_OUT]; /* results that the caller of the run gets */
    bool unused[ARIL__MAX_OUT];    /* results that nobody reads */
    aril_tensor **tensor;          /* of `in` */
    aril__call c;                  /* last: large, and filled by the shape rule */
} aril__planned_call;

static inline aril_tensor *aril__header_of(const aril__planner *p, uint32_t h)
{
    return h ? p->n->headers[h].t : NULL;
}

static inline aril__place *aril__place_of(const aril__planner *p, uint32_t h)
{
    return &p->n->places[p->n->headers[h].place];
}

static inline size_t aril__bytes_of(const aril_tensor *t)
{
    return aril__dtype_bytes((aril_dtype)t->dtype, t->numel);
}

/* A new place; puts a header, of which it takes the reference, into a place; both. 0, with an error
 * in p->status, on failure. */
uint32_t aril__plan_place(aril__planner *p, int kind, aril__device *device, size_t bytes);
uint32_t aril__plan_header(aril__planner *p, aril_tensor *t, uint32_t place, int64_t offset);
uint32_t aril__plan_value(aril__planner *p, aril_tensor *t, int kind, aril__device *device);
/* Copies one header to another when the step runs. */
bool aril__plan_copy(aril__planner *p, uint32_t from, uint32_t to);

/* concat.c: finds concatenations that append to the result of another; false, with an error in
 * p->status, when out of memory. */
bool aril__concat_find(aril__planner *p);
/* The same file: plans a concatenation whose result some of its inputs are in already. False if it
 * has to be planned like any other call, or on failure. */
bool aril__concat_plan(aril__planner *p, aril__planned_call *q);

#endif
