/* FLOPs and memory traffic of one run of an op, for the profiler. */
#ifndef ARIL_OPS_FLOPS_H
#define ARIL_OPS_FLOPS_H

#include "ops/table/op.h"

/* Floating-point operations: 2 per multiply-add of products, else 1 per element of the larger side;
 * 0 if elements are only moved. */
double aril__flops(const aril__run *r);

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
