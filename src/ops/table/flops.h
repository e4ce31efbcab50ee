/* FLOPs and memory traffic of one run of an op, for the profiler. */
#ifndef ARIL_OPS_FLOPS_H
#define ARIL_OPS_FLOPS_H

#include "ops/table/op.h"

/* Floating-point operations, by the row's own rule or the general one: see `flops` in op.h. */
double aril__flops(const aril__run *r);

/* For the rules of rows: the elements of a tensor (0 if there is none), and its first and last
 * size. */
static inline double aril__numel_of(const aril_tensor *t)
{
    return t && t->numel > 0 ? (double)t->numel : 0;
}

static inline double aril__first_size(const aril_tensor *t)
{
    return t->ndim && t->dim[0] > 0 ? (double)t->dim[0] : 1;
}

static inline double aril__last_size(const aril_tensor *t)
{
    return t->ndim ? (double)t->dim[t->ndim - 1] : 1;
}

/* Bytes of its inputs and results, each tensor once; an expanded one counts its actual memory. */
double aril__bytes_moved(const aril__run *r);

/* Records what runs in the profile's innermost span. */
void aril__profile_note(const aril__run *r, const char *kernel);

/* While set, is called before every op that runs on this thread. */
typedef struct aril__meter {
    void (*note)(struct aril__meter *self, const aril__run *r);
} aril__meter;

/* Sets this thread's meter (NULL: none) and returns the previous one. */
aril__meter *aril__meter_set(aril__meter *m);
void aril__meter_note(const aril__run *r);

#endif
