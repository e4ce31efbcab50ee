/* Connectionist temporal classification: samples in parallel. */
#ifndef ARIL_CPU_CTC_H
#define ARIL_CPU_CTC_H

#include "ops/table/op.h"

aril_status aril__cpu_ctc_loss(aril__run *r);
aril_status aril__cpu_ctc_loss_grad(aril__run *r);

/* Bytes of memory that they need. */
size_t aril__cpu_ctc_loss_scratch(const aril__run *r);
size_t aril__cpu_ctc_loss_grad_scratch(const aril__run *r);

#endif
