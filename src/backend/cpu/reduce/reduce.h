/* Reductions over axes. */
#ifndef ARIL_CPU_REDUCE_H
#define ARIL_CPU_REDUCE_H

#include "ops/table/op.h"

aril_status aril__cpu_sum(aril__run *r);
aril_status aril__cpu_mean(aril__run *r);
aril_status aril__cpu_prod(aril__run *r);
aril_status aril__cpu_amax(aril__run *r);
aril_status aril__cpu_amin(aril__run *r);
aril_status aril__cpu_max(aril__run *r);
aril_status aril__cpu_min(aril__run *r);
aril_status aril__cpu_argmax(aril__run *r);
aril_status aril__cpu_argmin(aril__run *r);
aril_status aril__cpu_any(aril__run *r);
aril_status aril__cpu_all(aril__run *r);
aril_status aril__cpu_count_nonzero(aril__run *r);

/* The gradients of broadcasting and of repeating. */
aril_status aril__cpu_sum_to_like(aril__run *r);
aril_status aril__cpu_repeat_grad(aril__run *r);

#endif
