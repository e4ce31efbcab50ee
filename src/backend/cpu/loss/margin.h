/* Margin losses over classes. */
#ifndef ARIL_CPU_MARGIN_H
#define ARIL_CPU_MARGIN_H

#include "ops/table/op.h"

aril_status aril__cpu_multi_margin_loss(aril__run *r);
aril_status aril__cpu_multi_margin_loss_grad(aril__run *r);
aril_status aril__cpu_multilabel_margin_loss(aril__run *r);
aril_status aril__cpu_multilabel_margin_loss_grad(aril__run *r);

/* Bytes of memory that they need. */
size_t aril__cpu_multilabel_margin_loss_scratch(const aril__run *r);
size_t aril__cpu_multilabel_margin_loss_grad_scratch(const aril__run *r);

#endif
