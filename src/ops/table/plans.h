/* Which row runs a call, and the plan it prepared: found by the call's description.
 *
 * A thread finds its own recent choices without a lock. Behind that stands one table for all
 * threads, of a bounded size. Rows prepare without any lock held; choices are counted, so that one
 * in use outlives its place in the table. */
#ifndef ARIL_OPS_PLANS_H
#define ARIL_OPS_PLANS_H

#include "ops/table/rows.h"

typedef struct aril__choice {
    const aril__row *row; /* NULL: none takes the call */
    aril__plan plan;
    int n_asked;           /* rows that were asked, the one taken too */
    const char **declined; /* of each: why it declined; NULL: it was taken, or passed over */
} aril__choice;

/* The rows of one op on one kind of device, fastest first. */
typedef struct aril__row_list {
    const aril__row **at;
    int n;     /* before the reference */
    int n_all; /* with those behind it, which are asked only where a row is forced */
    int cap;
    bool prepares; /* one of the first n looks at the call */
} aril__row_list;

/* The choice for this call, valid until it is given back. NULL (no error) when memory is out, and
 * then there is nothing to give back. */
typedef struct aril__taken {
    const aril__choice *choice;
    bool held; /* a reference of its own, beside those of the caches */
} aril__taken;
aril__taken aril__choice_take(aril__thread *th, const aril__run *r, const aril__row_list *rows);
void aril__choice_give_back(aril__thread *th, aril__taken taken);

/* Makes every choice so far look old: rows were registered. */
void aril__plans_outdate(void);

/* Lets go of what a thread keeps, at its end. */
void aril__plans_thread_end(aril__thread *th);

/* For tests: choices in the table, the most it holds, and how many were made so far. */
typedef struct aril__plan_stats {
    int64_t kept, most, made;
} aril__plan_stats;
aril__plan_stats aril__plans_stats(void);

#endif
