/* Batch normalization with an optional residual and activation, and its gradient; of contiguous and
 * of channels-last tensors. */
#ifndef ARIL_CPU_BATCH_NORM_H
#define ARIL_CPU_BATCH_NORM_H

#include "ops/table/rows.h"

aril_status aril__cpu_batch_norm(aril__run *r);
aril_status aril__cpu_batch_norm_eval(aril__run *r);
aril_status aril__cpu_batch_norm_grad(aril__run *r);

aril_status aril__cpu_batch_norm_last(aril__run *r);
aril_status aril__cpu_batch_norm_eval_last(aril__run *r);
aril_status aril__cpu_batch_norm_grad_last(aril__run *r);

/* Bytes of memory that the first three need, and the plan of the others. */
size_t aril__cpu_batch_norm_scratch(const aril__run *r);
const char *aril__cpu_batch_norm_last_prepare(const aril__run *r, aril__plan *plan);
const char *aril__cpu_batch_norm_eval_last_prepare(const aril__run *r, aril__plan *plan);

#endif
