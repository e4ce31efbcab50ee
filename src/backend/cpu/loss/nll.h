/* nll_loss, cross_entropy and their gradients. */
#ifndef ARIL_CPU_NLL_H
#define ARIL_CPU_NLL_H

#include "ops/table/op.h"

aril_status aril__cpu_nll_loss(aril__run *r);
aril_status aril__cpu_nll_loss_grad(aril__run *r);
aril_status aril__cpu_cross_entropy(aril__run *r);
aril_status aril__cpu_cross_entropy_grad(aril__run *r);

#endif
