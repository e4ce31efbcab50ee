/* Scans along axes. */
#ifndef ARIL_CPU_SCAN_H
#define ARIL_CPU_SCAN_H

#include "ops/table/op.h"

aril_status aril__cpu_linear_scan(aril__run *r);
aril_status aril__cpu_cumsum(aril__run *r);
aril_status aril__cpu_cumprod(aril__run *r);
aril_status aril__cpu_cummax(aril__run *r);
aril_status aril__cpu_cummin(aril__run *r);
aril_status aril__cpu_logcumsumexp(aril__run *r);

#endif
