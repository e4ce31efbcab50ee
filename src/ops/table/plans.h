/* Which row runs a call, and the plan it prepared: cached by the call's description.
 *
 * A thread finds its own recent choices without a lock. Behind that is one table of bounded size,
 * shared by all threads. Rows prepare without any lock held; choices are reference-counted, so that
 * one in use survives its eviction. */
#ifndef ARIL_OPS_PLANS_H
#define ARIL_OPS_PLANS_H

#include "ops/table/rows.h"

typedef struct aril__choice {
    const aril__row *row; /* NULL: none accepts the call */
    aril__plan plan;
    int n_asked;           /* rows that were tried, including the chosen one */
    const char **declined; /* per row: why it declined; NULL: it was chosen, or skipped */
} aril__choice;

/* The rows of one op on one kind of device, fastest first. */
typedef struct aril__row_list {
    const aril__row **at;
    int n;     /* before the reference */
    int n_all; /* including those behind it, which are tried only if a row is forced */
    int cap;
    bool prepares; /* one of the first n depends on more than the dtype */
} aril__row_list;

/* The choice for this call, valid until it is returned. NULL (not an error) when out of memory;
 * then there is nothing to return. */
typedef struct aril__taken {
    const aril__choice *choice;
    bool held; /* owns a reference, besides those of the caches */
} aril__taken;
aril__taken aril__choice_take(aril__thread *th, const aril__run *r, const aril__row_list *rows);
void aril__choice_give_back(aril__thread *th, aril__taken taken);

/* Invalidates all cached choices, after rows were registered. */
void aril__plans_outdate(void);

/* Releases a thread's cache when it exits. */
void aril__plans_thread_end(aril__thread *th);

/* For tests: choices in the table, its capacity, and the number created so far. */
typedef struct aril__plan_stats {
    int64_t kept, max, made;
} aril__plan_stats;
aril__plan_stats aril__plans_stats(void);

#endif
