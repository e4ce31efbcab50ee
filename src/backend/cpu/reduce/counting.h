/* Ops that count values and look them up. */
#ifndef ARIL_CPU_COUNTING_H
#define ARIL_CPU_COUNTING_H

#include "ops/table/op.h"

aril_status aril__cpu_bincount(aril__run *r);
aril_status aril__cpu_histc(aril__run *r);
aril_status aril__cpu_searchsorted(aril__run *r);

/* Bytes of memory that they need. */
size_t aril__cpu_histc_scratch(const aril__run *r);
size_t aril__cpu_searchsorted_scratch(const aril__run *r);

#endif
