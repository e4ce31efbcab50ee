/* Autocast, inside apply: casts the inputs of an op as the class in its row says, then runs it with
 * autocast suspended. The casts are ops like others, so a tracer records them. */
#ifndef ARIL_OPS_AUTOCAST_H
#define ARIL_OPS_AUTOCAST_H

#include "ops/table/op.h"

enum { ARIL__CAST_INPUTS = 16 }; /* more are allocated */

/* The inputs of one call, cast. */
typedef struct aril__cast_call {
    aril_tensor **in;
    aril_tensor *few[ARIL__CAST_INPUTS];
    uint16_t autocast; /* the mode to return to */
} aril__cast_call;

/* Does autocast act on this call? In-place forms are left alone. */
bool aril__cast_applies(const aril__thread *th, const aril__call *c);

/* Casts the inputs of `c` and suspends autocast. The second function, which is called after a
 * failure too, resumes it and drops the casts that nothing else refers to. */
aril_status aril__cast_begin(aril__thread *th, const aril__call *c, aril__cast_call *k);
void aril__cast_end(aril__thread *th, const aril__call *c, aril__cast_call *k);

/* For composite functions that autocast treats as one op: casts the tensors *arg[0 .. n - 1], of
 * which any may be NULL, and suspends autocast until the guard ends. The casts belong to the
 * innermost scope. */
aril_guard aril__cast_as(unsigned class_, int n, aril_tensor **const *arg);

/* AUTOCAST_AS(CAST_F32, &x, &target); after ARIL_SCOPE */
#define AUTOCAST_AS(class_, ...)                                                           \
    ARIL__GUARD_OF(aril__cast_as(                                                          \
        class_, (int)(sizeof((aril_tensor **[]){ __VA_ARGS__ }) / sizeof(aril_tensor **)), \
        (aril_tensor * *[]){ __VA_ARGS__ }))

#endif
