/* Padding and its gradient. */
#ifndef ARIL_CPU_PAD_H
#define ARIL_CPU_PAD_H

#include "ops/table/rows.h"

aril_status aril__cpu_pad(aril__run *r);
aril_status aril__cpu_pad_grad(aril__run *r);

/* Of channels-last tensors, without copies. */
const char *aril__cpu_pad_last_prepare(const aril__run *r, aril__plan *plan);
const char *aril__cpu_pad_grad_last_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__cpu_pad_last(aril__run *r);
aril_status aril__cpu_pad_grad_last(aril__run *r);

/* Bytes of memory that pad and pad_grad need. */
size_t aril__cpu_pad_scratch(const aril__run *r);
size_t aril__cpu_pad_grad_scratch(const aril__run *r);

#endif
