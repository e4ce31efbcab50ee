/* Connectionist temporal classification: samples in parallel. */
#ifndef ARIL_CPU_CTC_H
#define ARIL_CPU_CTC_H

#include "ops/table/op.h"

aril_status aril__cpu_ctc_loss(aril__run *r);
aril_status aril__cpu_ctc_loss_grad(aril__run *r);

#endif
