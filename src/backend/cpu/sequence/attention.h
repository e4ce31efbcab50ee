/* The rows of attention and its gradient. */
#ifndef ARIL_CPU_ATTENTION_H
#define ARIL_CPU_ATTENTION_H

#include "ops/table/rows.h"

aril_status aril__cpu_attention(aril__run *r);
aril_status aril__cpu_attention_few(aril__run *r);
aril_status aril__cpu_attention_grad(aril__run *r);

const char *aril__cpu_attention_few_prepare(const aril__run *r, aril__plan *plan);

/* Bytes of memory that they need. */
size_t aril__cpu_attention_scratch(const aril__run *r);
size_t aril__cpu_attention_grad_scratch(const aril__run *r);

#endif
