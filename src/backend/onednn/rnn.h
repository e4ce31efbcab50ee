/* Recurrent sequences by oneDNN: one layer, one direction, forward. */
#ifndef ARIL_BACKEND_ONEDNN_RNN_H
#define ARIL_BACKEND_ONEDNN_RNN_H

#include "ops/table/rows.h"

/* For rnn_seq, lstm_seq and gru_seq. Their gradients have no row: oneDNN's go back from what its own
 * forward pass left in a form of its own, and those of Aril from results that may be anyone's. */
const char *aril__dnn_rnn_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_rnn(aril__run *r);
void aril__dnn_rnn_destroy(void *prepared);

#endif
