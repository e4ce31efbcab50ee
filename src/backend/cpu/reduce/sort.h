/* Sorting, and ops based on it, along one axis. */
#ifndef ARIL_CPU_SORT_H
#define ARIL_CPU_SORT_H

#include "ops/table/op.h"

aril_status aril__cpu_sort(aril__run *r);
aril_status aril__cpu_topk(aril__run *r);
aril_status aril__cpu_kthvalue(aril__run *r);
aril_status aril__cpu_median(aril__run *r);
aril_status aril__cpu_nanmedian(aril__run *r);
aril_status aril__cpu_mode(aril__run *r);

size_t aril__cpu_sort_scratch(const aril__run *r); /* bytes of memory that each of them needs */

#endif
