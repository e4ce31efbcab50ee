/* What one run of an op does, for the profiler. */
#ifndef ARIL_OPS_FLOPS_H
#define ARIL_OPS_FLOPS_H

#include "ops/table/op.h"

/* Floating-point operations: of products 2 for each multiply-add, of others 1 for each element of
 * the larger side; none where elements are only moved. */
double aril__flops(const aril__run *r);

/* Bytes of its inputs and results, each tensor once; of an expanded one, its memory. */
double aril__bytes_moved(const aril__run *r);

/* Says of the profile's innermost span what runs. */
void aril__profile_note(const aril__run *r, const char *kernel);

/* Sees every op that runs on this thread, before it does, while it is set. */
typedef struct aril__meter {
    void (*note)(struct aril__meter *self, const aril__run *r);
} aril__meter;

/* Sets this thread's meter (NULL: none) and returns the one before. */
aril__meter *aril__meter_set(aril__meter *m);
void aril__meter_note(const aril__run *r);

#endif
