/* Recurrent sequences by oneDNN: one layer, one direction, forward only. */
#ifndef ARIL_BACKEND_ONEDNN_RNN_H
#define ARIL_BACKEND_ONEDNN_RNN_H

#include "ops/table/rows.h"

/* For rnn_seq, lstm_seq and gru_seq. Their gradients have no row: oneDNN's need the workspace of
 * its own forward pass, while Aril's start from results that any row may have computed. */
const char *aril__dnn_rnn_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_rnn(aril__run *r);
void aril__dnn_rnn_destroy(void *prepared);

#endif
