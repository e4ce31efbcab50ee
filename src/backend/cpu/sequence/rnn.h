/* The rows of rnn_seq, lstm_seq, gru_seq and their gradients. */
#ifndef ARIL_CPU_RNN_H
#define ARIL_CPU_RNN_H

#include "ops/table/op.h"

aril_status aril__cpu_rnn(aril__run *r);
aril_status aril__cpu_rnn_grad(aril__run *r);

/* Gate gradients need the values that the forward op saved. */
const char *aril__cpu_rnn_grad_prepare(const aril__run *r, aril_plan *plan);

#endif
