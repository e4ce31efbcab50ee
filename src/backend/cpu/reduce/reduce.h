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

/* Bytes of memory that they need. */
size_t aril__cpu_sum_scratch(const aril__run *r);
size_t aril__cpu_mean_scratch(const aril__run *r);
size_t aril__cpu_prod_scratch(const aril__run *r);
size_t aril__cpu_amax_scratch(const aril__run *r);
size_t aril__cpu_amin_scratch(const aril__run *r);
size_t aril__cpu_max_scratch(const aril__run *r);
size_t aril__cpu_min_scratch(const aril__run *r);
size_t aril__cpu_argmax_scratch(const aril__run *r);
size_t aril__cpu_argmin_scratch(const aril__run *r);
size_t aril__cpu_any_scratch(const aril__run *r);
size_t aril__cpu_all_scratch(const aril__run *r);
size_t aril__cpu_count_nonzero_scratch(const aril__run *r);
size_t aril__cpu_sum_to_like_scratch(const aril__run *r);
size_t aril__cpu_repeat_grad_scratch(const aril__run *r);

#endif
