/* Softmax and its gradient along any axis. */
#ifndef ARIL_CPU_SOFTMAX_H
#define ARIL_CPU_SOFTMAX_H

#include "ops/table/op.h"

aril_status aril__cpu_softmax(aril__run *r);
aril_status aril__cpu_log_softmax(aril__run *r);
aril_status aril__cpu_softmax_grad(aril__run *r);
aril_status aril__cpu_log_softmax_grad(aril__run *r);

/* Bytes of memory that softmax and log_softmax need. */
size_t aril__cpu_softmax_scratch(const aril__run *r);

#endif
