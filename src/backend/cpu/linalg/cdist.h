/* Distances between rows, by vectors: norms of order 1, 2 and infinity, and the gradient for 2. */
#ifndef ARIL_CPU_CDIST_H
#define ARIL_CPU_CDIST_H

#include "ops/table/rows.h"

const char *aril__cpu_cdist_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__cpu_cdist(aril__run *r);

const char *aril__cpu_cdist_grad_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__cpu_cdist_grad(aril__run *r);

#endif
