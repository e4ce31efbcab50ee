/* Unique elements. */
#ifndef ARIL_CPU_UNIQUE_H
#define ARIL_CPU_UNIQUE_H

#include "ops/table/op.h"

aril_status aril__cpu_unique(aril__run *r);
size_t aril__cpu_unique_scratch(const aril__run *r); /* bytes of memory that it needs */

#endif
