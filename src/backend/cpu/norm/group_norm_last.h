/* Group norm of channels-last tensors, without a copy in another order. */
#ifndef ARIL_CPU_GROUP_NORM_LAST_H
#define ARIL_CPU_GROUP_NORM_LAST_H

#include "ops/table/rows.h"

const char *aril__cpu_group_norm_last_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__cpu_group_norm_last(aril__run *r);

#endif
