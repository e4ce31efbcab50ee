/* Layers as functions: normalization, dropout, attention, recurrent networks. Weights and biases
 * may be NULL where noted. All are differentiable any number of times. */
#ifndef ARIL_NEURAL_H
#define ARIL_NEURAL_H

#include "aril/activation.h"
#include "aril/rng.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- normalization ---- */

/* f16 and bf16 inputs are computed in f32, and may have f32 parameters and running statistics. */

typedef struct aril_batch_norm_opts {
    bool eval;             /* evaluation mode: normalize with the running statistics and do not
                              update them */
    double momentum;       /* weight of the new batch in the running statistics; default 0.1 */
    double eps;            /* added to the variance; default 1e-5 */
    bool cumulative;       /* running statistics are cumulative means over all batches: needs
                              .batches */
    aril_tensor *batches;  /* [] i64, or NULL: the number of batches so far, incremented by each
                              call */
    aril_tensor *residual; /* same shape as x, or NULL: added to the result, */
    aril_activation activation; /* then this is applied, fused in one pass over memory */
} aril_batch_norm_opts;

/* Batch normalization: each channel of x [N,C,...] to mean 0 and variance 1, over the batch and all
 * positions:
 *     y = activation((x - mean) / sqrt(var + eps) * weight + bias + residual)
 *     var = mean of (x - mean)^2
 *     running_mean = (1 - momentum) * running_mean + momentum * mean
 *     running_var  = (1 - momentum) * running_var  + momentum * var * n / (n - 1)
 * weight, bias, running_mean, running_var: [C], each may be NULL. With .eval the running statistics
 * replace mean and var, and are required. Result: [N,C,...]. */
ARIL_API aril_tensor *aril_batch_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                                      aril_tensor *running_mean, aril_tensor *running_var,
                                      aril_batch_norm_opts opts);

/* The same in place: for inference, when x is no longer needed. */
ARIL_API aril_tensor *aril_batch_norm_(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                                       aril_tensor *running_mean, aril_tensor *running_var,
                                       aril_batch_norm_opts opts);

typedef struct aril_norm_opts {
    double eps; /* added to the variance; default 1e-5 (rms_norm: the dtype's epsilon) */
} aril_norm_opts;

/* Layer normalization: mean 0 and variance 1 over the last dimensions, whose sizes are `shape` (-1:
 * any):
 *     y = (x - mean) / sqrt(var + eps) * weight + bias
 * weight, bias: [shape] or NULL. */
ARIL_API aril_tensor *aril_layer_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                                      aril_shape shape, aril_norm_opts opts);

/* RMS normalization: y = x / sqrt(mean(x^2) + eps) * weight, over the last dimensions. weight:
 * [shape] or NULL. */
ARIL_API aril_tensor *aril_rms_norm(aril_tensor *x, aril_tensor *weight, aril_shape shape,
                                    aril_norm_opts opts);

/* Group normalization: mean 0 and variance 1 over groups of adjacent channels of each sample: x
 * [N,C,...], C a multiple of `groups`. weight, bias: [C] or NULL. */
ARIL_API aril_tensor *aril_group_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                                      int64_t groups, aril_norm_opts opts);

typedef struct aril_instance_norm_opts {
    bool eval;       /* evaluation mode: normalize with the running statistics and do not update
                        them */
    double momentum; /* weight of the new batch in the running statistics; default 0.1 */
    double eps;      /* default 1e-5 */
} aril_instance_norm_opts;

/* Instance normalization: mean 0 and variance 1 for each channel of each sample. The other
 * arguments are as in batch_norm; the running statistics use the mean of the per-sample
 * statistics. */
ARIL_API aril_tensor *aril_instance_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                                         aril_tensor *running_mean, aril_tensor *running_var,
                                         aril_instance_norm_opts opts);

/* ---- dropout ---- */

/* Masks depend on the generator's seed, its call count and the element's index only: they are the
 * same for any number of threads and any memory order. The backward pass recomputes the mask. p is
 * from 0 to 1. `_from` draws from a generator (NULL: the thread's default). */

typedef struct aril_dropout_opts {
    bool eval; /* evaluation mode: return x unchanged */
} aril_dropout_opts;

/* Each element becomes 0 with probability p, and is otherwise divided by 1 - p. */
ARIL_API aril_tensor *aril_dropout(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_dropout_from(aril_generator *generator, aril_tensor *x, double p,
                                        aril_dropout_opts opts);

/* Feature dropout: the same for whole channels of x [N,C,...]. */
ARIL_API aril_tensor *aril_feature_dropout(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_feature_dropout_from(aril_generator *generator, aril_tensor *x, double p,
                                                aril_dropout_opts opts);

/* The same for [N,C,L] or [C,L]; for [N,C,H,W] or [N,C,L]; for [N,C,D,H,W] or [C,D,H,W]. */
ARIL_API aril_tensor *aril_dropout1d(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_dropout2d(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_dropout3d(aril_tensor *x, double p, aril_dropout_opts opts);

/* Dropout for selu networks: dropped elements become selu's negative saturation value, and the
 * result is scaled and shifted to keep mean 0 and variance 1. With p = 1 everything is 0. */
ARIL_API aril_tensor *aril_alpha_dropout(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_alpha_dropout_from(aril_generator *generator, aril_tensor *x, double p,
                                              aril_dropout_opts opts);
ARIL_API aril_tensor *aril_feature_alpha_dropout(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_feature_alpha_dropout_from(aril_generator *generator, aril_tensor *x,
                                                      double p, aril_dropout_opts opts);

/* ---- Gumbel softmax ---- */

typedef struct aril_gumbel_opts {
    double tau; /* temperature: small values come close to one-hot; default 1 */
    bool hard;  /* return one-hot samples, with the gradient of the soft ones */
} aril_gumbel_opts;

/* A differentiable sample of the categories along an axis, given their unnormalized
 * log-probabilities: softmax((x + noise) / tau), with noise from a Gumbel distribution. */
ARIL_API aril_tensor *aril_gumbel_softmax(aril_tensor *x, int axis, aril_gumbel_opts opts);
ARIL_API aril_tensor *aril_gumbel_softmax_from(aril_generator *generator, aril_tensor *x, int axis,
                                               aril_gumbel_opts opts);

/* ---- attention ---- */

typedef struct aril_attention_opts {
    /* NULL, or broadcastable to [...,L,S]: bool, true where a query may attend to a key, or floats
     * that are added to the scores. */
    aril_tensor *mask;
    bool causal;      /* query i attends to keys 0 .. i; cannot be combined with a mask */
    double scale;     /* default 1 / sqrt(E) */
    double dropout_p; /* dropout of the attention weights; 0: none */
    bool enable_gqa;  /* grouped-query attention: q has a multiple of the heads (axis -3) of k and
                         v */
} aril_attention_opts;

/* softmax(q k^T * scale + mask) v: q [...,L,E], k [...,S,E], v [...,S,Ev] -> [...,L,Ev]. Leading
 * dimensions broadcast. A query that attends to no key gives 0. Without dropout, and with equal
 * leading dimensions, the full L x S scores are never stored, forward or backward. */
ARIL_API aril_tensor *aril_scaled_dot_product_attention(aril_tensor *q, aril_tensor *k,
                                                        aril_tensor *v, aril_attention_opts opts);

/* ---- recurrent layers ---- */

/* Weights have PyTorch's layout: w_ih [G*H,I], w_hh [G*H,H], b_ih and b_hh [G*H] or NULL, where
 * each of the G blocks of rows is a gate: one in a plain RNN, i f g o in an LSTM, r z n in a
 * GRU. */

typedef struct aril_rnn_cell_opts {
    bool relu; /* instead of tanh */
} aril_rnn_cell_opts;

/* One step of a plain RNN. x [N,I] or [I], h [N,H] or [H]; returns the next h:
 *     h' = tanh(W_ih x + b_ih + W_hh h + b_hh) */
ARIL_API aril_tensor *aril_rnn_cell(aril_tensor *x, aril_tensor *h, aril_tensor *w_ih,
                                    aril_tensor *w_hh, aril_tensor *b_ih, aril_tensor *b_hh,
                                    aril_rnn_cell_opts opts);

/* One step of an LSTM with cell state c, [N,H] or [H]; returns the next h, and the next c in
 * *c_next:
 *     i, f, o = sigmoid(W_ih x + b_ih + W_hh h + b_hh),  g = tanh(the same)
 *     c' = f * c + i * g,  h' = o * tanh(c') */
ARIL_API aril_tensor *aril_lstm_cell(aril_tensor *x, aril_tensor *h, aril_tensor *c,
                                     aril_tensor *w_ih, aril_tensor *w_hh, aril_tensor *b_ih,
                                     aril_tensor *b_hh, aril_tensor **c_next);

/* One step of a GRU; returns the next h:
 *     r, z = sigmoid(W_ih x + b_ih + W_hh h + b_hh),  n = tanh(W_in x + b_in + r * (W_hn h + b_hn))
 *     h' = (1 - z) * n + z * h */
ARIL_API aril_tensor *aril_gru_cell(aril_tensor *x, aril_tensor *h, aril_tensor *w_ih,
                                    aril_tensor *w_hh, aril_tensor *b_ih, aril_tensor *b_hh);

typedef struct aril_rnn_opts {
    int layers;           /* default 1 */
    bool bidirectional;   /* each layer runs in both directions, with their outputs concatenated */
    bool batch_first;     /* x and y are [N,T,...] */
    bool relu;            /* plain RNN: relu instead of tanh */
    double dropout;       /* of the outputs of each layer except the last */
    bool eval;            /* no dropout */
    aril_tensor *lengths; /* [N] integers from 1 to T, or NULL: sequence lengths; y is 0 after the
                             end of a sequence, and the last state is the one at its end */
} aril_rnn_opts;

/* A recurrent network over whole sequences: x [T,N,I] (or [T,I]), initial states h0 and c0 [layers
 * * directions, N, H] (or without N) or NULL for 0; returns y [T,N,directions * H], and the last
 * states in *hn and *cn (unless NULL), with the shape of h0. `weights` holds w_ih, w_hh, b_ih, b_hh
 * for each layer and, within it, each direction; biases may be NULL. */
ARIL_API aril_tensor *aril_rnn(aril_tensor *x, aril_tensor *h0, aril_list weights,
                               aril_rnn_opts opts, aril_tensor **hn);
ARIL_API aril_tensor *aril_lstm(aril_tensor *x, aril_tensor *h0, aril_tensor *c0, aril_list weights,
                                aril_rnn_opts opts, aril_tensor **hn, aril_tensor **cn);
ARIL_API aril_tensor *aril_gru(aril_tensor *x, aril_tensor *h0, aril_list weights,
                               aril_rnn_opts opts, aril_tensor **hn);

ARIL_C_END

#endif
