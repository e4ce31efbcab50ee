/* Recurrent sequences: one layer, one direction, as one op. */
#ifndef ARIL_OPS_RNN_SEQ_H
#define ARIL_OPS_RNN_SEQ_H

#include "ops/table/op.h"

#include <string.h>

/* reverse: from the last step to the first. relu: of plain networks, instead of tanh. keep: what
 * the gates were at each step is a result too, for the gradient. */
#define RNN_SEQ_ATTRS(A)                 \
    A(rnn_seq, I64, 1, reverse, 0, NULL) \
    A(rnn_seq, I64, 1, relu, 0, NULL)    \
    A(rnn_seq, I64, 1, keep, 0, NULL)
ATTRS(rnn_seq, RNN_SEQ_ATTRS)

enum aril__rnn_kind { ARIL__RNN, ARIL__LSTM, ARIL__GRU };

/* Inputs of a sequence op. xw holds the inputs of all steps times W_ih, with b_ih: [T,N,G*H], with
 * G = 1, 4 (i, f, g, o) or 3 (r, z, n). Results: y [T,N,H], h_n [N,H], c_n [N,H] of an LSTM, and
 * where there are gates, what was kept of them: [T,N,S*H] with S = 5 (i, f, g, o, the cell) or 4
 * (r, z, n, and what n had of the state: W_hn h + b_hn); [0] where nothing is kept. No gradient
 * flows through it: it can be made again from the inputs. */
enum { RNN_XW, RNN_H0, RNN_W, RNN_B, RNN_LEN, RNN_C0, RNN_INPUTS };
enum { LSTM_KEPT = 5, GRU_KEPT = 4 };

/* Inputs of its gradient; b, xw from GRAD_XW on only where there are gates, c from GRAD_C0 on only
 * of an LSTM. Results: of xw, h0, W_hh, b_hh, and c0 of an LSTM. Kernels may read GRAD_KEPT, where
 * it is given, instead of making it again. */
enum {
    GRAD_Y,
    GRAD_H0,
    GRAD_W,
    GRAD_LEN,
    GRAD_GY,
    GRAD_GH,
    GRAD_XW,
    GRAD_B,
    GRAD_KEPT,
    GRAD_C0,
    GRAD_GC,
    GRAD_INPUTS
};

/* What a sequence begins with: the state given, dense and of the same type, or zeros. */
static inline void aril__rnn_start(aril_tensor *to, const aril_tensor *from)
{
    size_t bytes = aril__dtype_bytes((aril_dtype)to->dtype, to->numel);
    if (from)
        memcpy(aril__ptr(to), aril__ptr(from), bytes);
    else
        memset(aril__ptr(to), 0, bytes);
}

/* The gradients of sequences in public ops, for second derivatives. */
void aril__rnn_grad_decompose(enum aril__rnn_kind kind, aril__call *c, aril_tensor **out);

#endif
