/* The rows of optimizer updates. */
#ifndef ARIL_CPU_UPDATE_H
#define ARIL_CPU_UPDATE_H

#include "ops/table/op.h"

aril_status aril__cpu_update(aril__run *r);
aril_status aril__cpu_update_norms(aril__run *r);

/* Bytes of memory that they need. */
size_t aril__cpu_update_scratch(const aril__run *r);
size_t aril__cpu_update_norms_scratch(const aril__run *r);

#endif
