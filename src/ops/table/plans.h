/* Which row runs a call, and the plan it prepared: cached by the call's description.
 *
 * A thread finds its own recent choices without a lock. Behind that is one table of bounded size,
 * shared by all threads. Rows prepare without any lock held; choices are reference-counted, so that
 * one in use survives its eviction. */
#ifndef ARIL_OPS_PLANS_H
#define ARIL_OPS_PLANS_H

#include "ops/table/rows.h"

/* The rows of one op on one kind of device, fastest first. A list never changes once other threads
 * can see it: adding a row publishes a new one. */
typedef struct aril__row_list {
    int n;             /* before the reference */
    int n_all;         /* including those behind it, which are tried only if a row is forced */
    uint32_t prepares; /* dtypes for which one of the first n depends on more than the dtype */
    uint32_t direct;   /* dtypes for which at[0] runs as it is: without plan, staging, workspace */
    const aril__row *at[];
} aril__row_list;

typedef struct aril__choice {
    const aril__row_list *rows; /* those that were there */
    const aril__row *row;       /* NULL: none accepts the call */
    aril__plan plan;
    int n_asked;           /* rows that were tried, including the chosen one */
    const char **declined; /* per row: why it declined; NULL: it was chosen, or skipped */
    const char *wrong;     /* what the plan asks for that cannot be; NULL: nothing */
} aril__choice;

/* The choice for this call, valid until it is returned. NULL (not an error) when out of memory;
 * then there is nothing to return. */
typedef struct aril__taken {
    const aril__choice *choice;
    bool held; /* owns a reference, besides those of the caches */
} aril__taken;
aril__taken aril__choice_take(aril__thread *th, const aril__run *r);
void aril__choice_give_back(aril__thread *th, aril__taken taken);

/* The rows that serve a run, as of now. */
const aril__row_list *aril__rows_for(const aril__run *r);

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
