/* Statistics over axes. */
#ifndef ARIL_CPU_STATS_H
#define ARIL_CPU_STATS_H

#include "ops/table/op.h"

aril_status aril__cpu_logsumexp(aril__run *r);
aril_status aril__cpu_var(aril__run *r); /* also var_mean */
aril_status aril__cpu_std(aril__run *r); /* also std_mean */
aril_status aril__cpu_norm(aril__run *r);

/* Bytes of memory that they need. */
size_t aril__cpu_logsumexp_scratch(const aril__run *r);
size_t aril__cpu_var_scratch(const aril__run *r);
size_t aril__cpu_std_scratch(const aril__run *r);
size_t aril__cpu_norm_scratch(const aril__run *r);

#endif
