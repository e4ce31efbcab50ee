/* The rows of optimizer updates. */
#ifndef ARIL_CPU_UPDATE_H
#define ARIL_CPU_UPDATE_H

#include "ops/table/op.h"

aril_status aril__cpu_update(aril__run *r);
aril_status aril__cpu_update_norms(aril__run *r);

#endif
