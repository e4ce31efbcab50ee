/* The rows of attention and its gradient. */
#ifndef ARIL_CPU_ATTENTION_H
#define ARIL_CPU_ATTENTION_H

#include "ops/table/op.h"

aril_status aril__cpu_attention(aril__run *r);
aril_status aril__cpu_attention_grad(aril__run *r);

#endif
