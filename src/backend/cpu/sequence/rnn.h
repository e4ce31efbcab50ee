/* The rows of rnn_seq, lstm_seq, gru_seq and their gradients. */
#ifndef ARIL_CPU_RNN_H
#define ARIL_CPU_RNN_H

#include "ops/table/op.h"
#include "ops/table/rows.h"

/* The format of the reserve. */
#define ARIL__CPU_RNN "cpu_rnn"

aril_status aril__cpu_rnn(aril__run *r);
aril_status aril__cpu_rnn_grad(aril__run *r);
const char *aril__cpu_rnn_prepare(const aril__run *r, aril_plan *plan);
const char *aril__cpu_rnn_grad_prepare(const aril__run *r, aril_plan *plan);

/* The gradient without a reserve: recomputes the gates. */
aril_status aril__cpu_rnn_grad_anew(aril__run *r);
const char *aril__cpu_rnn_grad_anew_prepare(const aril__run *r, aril_plan *plan);

#endif
