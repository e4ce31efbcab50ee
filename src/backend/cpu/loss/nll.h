/* nll_loss, cross_entropy and their gradients. */
#ifndef ARIL_CPU_NLL_H
#define ARIL_CPU_NLL_H

#include "ops/table/op.h"

aril_status aril__cpu_nll_loss(aril__run *r);
aril_status aril__cpu_nll_loss_grad(aril__run *r);
aril_status aril__cpu_cross_entropy(aril__run *r);
aril_status aril__cpu_cross_entropy_grad(aril__run *r);

/* Bytes of memory that nll_loss and cross_entropy need. */
size_t aril__cpu_nll_scratch(const aril__run *r);

#endif
