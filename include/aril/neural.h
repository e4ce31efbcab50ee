/* Layers as functions: normalisation, dropout, attention, recurrent networks. Weights and biases
 * may be NULL where that is said. All are differentiable any number of times. */
#ifndef ARIL_NEURAL_H
#define ARIL_NEURAL_H

#include "aril/activation.h"
#include "aril/rng.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- normalisation ---- */

/* f16 and bf16 inputs are computed in f32, and may have parameters and running values in f32. */

typedef struct aril_batch_norm_opts {
    bool eval;             /* normalise by the running values and leave them alone */
    double momentum;       /* weight of the new batch in the running values; 0: 0.1 */
    double eps;            /* added to the variance; 0: 1e-5 */
    bool cumulative;       /* running values are plain means over all batches: needs .batches */
    aril_tensor *batches;  /* [] i64, or NULL: the number of batches seen, one more after each */
    aril_tensor *residual; /* as x, or NULL: added to the result, */
    aril_activation activation; /* and this applied to that, in the same pass over memory */
} aril_batch_norm_opts;

/* Each channel of x [N,C,...] brought to mean 0 and variance 1, over the batch and all positions:
 *     y = activation((x - mean) / sqrt(var + eps) * weight + bias + residual)
 *     var = mean of (x - mean)^2
 *     running_mean = (1 - momentum) * running_mean + momentum * mean
 *     running_var  = (1 - momentum) * running_var  + momentum * var * n / (n - 1)
 * weight, bias, running_mean, running_var: [C], each may be NULL. With .eval the running values
 * stand in for mean and var, and must be there. Result: [N,C,...]. */
ARIL_API aril_tensor *aril_batch_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                                      aril_tensor *running_mean, aril_tensor *running_var,
                                      aril_batch_norm_opts opts);

/* The same, written into x: for inference, where nobody needs x any more. */
ARIL_API aril_tensor *aril_batch_norm_(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                                       aril_tensor *running_mean, aril_tensor *running_var,
                                       aril_batch_norm_opts opts);

typedef struct aril_norm_opts {
    double eps; /* added to the variance; 0: 1e-5 (rms_norm: the dtype's epsilon) */
} aril_norm_opts;

/* Mean 0 and variance 1 over the last dimensions, whose sizes `shape` names (-1: any):
 *     y = (x - mean) / sqrt(var + eps) * weight + bias
 * weight, bias: [shape] or NULL. */
ARIL_API aril_tensor *aril_layer_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                                      aril_shape shape, aril_norm_opts opts);

/* y = x / sqrt(mean(x^2) + eps) * weight, over the last dimensions. weight: [shape] or NULL. */
ARIL_API aril_tensor *aril_rms_norm(aril_tensor *x, aril_tensor *weight, aril_shape shape,
                                    aril_norm_opts opts);

/* Mean 0 and variance 1 of each sample's groups of neighbouring channels: x [N,C,...], C a multiple
 * of `groups`. weight, bias: [C] or NULL. */
ARIL_API aril_tensor *aril_group_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                                      int64_t groups, aril_norm_opts opts);

typedef struct aril_instance_norm_opts {
    bool eval;       /* normalise by the running values and leave them alone */
    double momentum; /* weight of the new batch in the running values; 0: 0.1 */
    double eps;      /* 0: 1e-5 */
} aril_instance_norm_opts;

/* Mean 0 and variance 1 of each channel of each sample. The other arguments are as in batch_norm;
 * the running values take the mean of the samples' statistics. */
ARIL_API aril_tensor *aril_instance_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                                         aril_tensor *running_mean, aril_tensor *running_var,
                                         aril_instance_norm_opts opts);

/* ---- dropout ---- */

/* Masks are functions of the generator's seed, the number of its calls and the element's place, the
 * same for any number of threads and any order in memory. The gradient makes the mask again. p is
 * from 0 to 1. `_from` draws from a generator (NULL: the thread's own). */

typedef struct aril_dropout_opts {
    bool eval; /* give x as it is */
} aril_dropout_opts;

/* Each element becomes 0 with probability p, and is otherwise divided by 1 - p. */
ARIL_API aril_tensor *aril_dropout(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_dropout_from(aril_generator *generator, aril_tensor *x, double p,
                                        aril_dropout_opts opts);

/* The same for whole channels of x [N,C,...]. */
ARIL_API aril_tensor *aril_feature_dropout(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_feature_dropout_from(aril_generator *generator, aril_tensor *x, double p,
                                                aril_dropout_opts opts);

/* The same for [N,C,L] or [C,L]; for [N,C,H,W] or [N,C,L]; for [N,C,D,H,W] or [C,D,H,W]. */
ARIL_API aril_tensor *aril_dropout1d(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_dropout2d(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_dropout3d(aril_tensor *x, double p, aril_dropout_opts opts);

/* Dropout for selu networks: an element becomes selu's lowest value, and the result is scaled and
 * moved so that mean 0 and variance 1 stay. With p = 1 everything is 0. */
ARIL_API aril_tensor *aril_alpha_dropout(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_alpha_dropout_from(aril_generator *generator, aril_tensor *x, double p,
                                              aril_dropout_opts opts);
ARIL_API aril_tensor *aril_feature_alpha_dropout(aril_tensor *x, double p, aril_dropout_opts opts);
ARIL_API aril_tensor *aril_feature_alpha_dropout_from(aril_generator *generator, aril_tensor *x,
                                                      double p, aril_dropout_opts opts);

/* ---- attention ---- */

typedef struct aril_attention_opts {
    /* NULL, or broadcasting to [...,L,S]: bool, true where a query may see a key, or numbers that
     * are added to the scores. */
    aril_tensor *mask;
    bool causal;      /* query i sees keys 0 .. i; not together with a mask */
    double scale;     /* 0: 1 / sqrt(E) */
    double dropout_p; /* of the weights; 0: none */
    bool enable_gqa;  /* q has a multiple of the heads, axis -3, of k and v, which serve in turn */
} aril_attention_opts;

/* softmax(q k^T * scale + mask) v: q [...,L,E], k [...,S,E], v [...,S,Ev] -> [...,L,Ev]. Leading
 * dimensions broadcast. A query that sees no key gives 0. Without dropout, and with equal leading
 * dimensions, the L x S scores are never in memory at once, forward or backward. */
ARIL_API aril_tensor *aril_scaled_dot_product_attention(aril_tensor *q, aril_tensor *k,
                                                        aril_tensor *v, aril_attention_opts opts);

/* ---- recurrent layers ---- */

/* Weights are laid out as PyTorch's: w_ih [G*H,I], w_hh [G*H,H], b_ih and b_hh [G*H] or NULL, where
 * G blocks of rows belong to the gates: one in a plain layer, i f g o in an LSTM, r z n in a
 * GRU. */

typedef struct aril_rnn_cell_opts {
    bool relu; /* instead of tanh */
} aril_rnn_cell_opts;

/* One step. x [N,I] or [I], h [N,H] or [H]; the next h:
 *     h' = tanh(W_ih x + b_ih + W_hh h + b_hh) */
ARIL_API aril_tensor *aril_rnn_cell(aril_tensor *x, aril_tensor *h, aril_tensor *w_ih,
                                    aril_tensor *w_hh, aril_tensor *b_ih, aril_tensor *b_hh,
                                    aril_rnn_cell_opts opts);

/* One step of an LSTM with the cell c, [N,H] or [H]; the next h, and the next c in *c_next:
 *     i, f, o = sigmoid(W_ih x + b_ih + W_hh h + b_hh),  g = tanh(the same)
 *     c' = f * c + i * g,  h' = o * tanh(c') */
ARIL_API aril_tensor *aril_lstm_cell(aril_tensor *x, aril_tensor *h, aril_tensor *c,
                                     aril_tensor *w_ih, aril_tensor *w_hh, aril_tensor *b_ih,
                                     aril_tensor *b_hh, aril_tensor **c_next);

/* One step of a GRU:
 *     r, z = sigmoid(W_ih x + b_ih + W_hh h + b_hh),  n = tanh(W_in x + b_in + r * (W_hn h + b_hn))
 *     h' = (1 - z) * n + z * h */
ARIL_API aril_tensor *aril_gru_cell(aril_tensor *x, aril_tensor *h, aril_tensor *w_ih,
                                    aril_tensor *w_hh, aril_tensor *b_ih, aril_tensor *b_hh);

typedef struct aril_rnn_opts {
    int layers;           /* 0: 1 */
    bool bidirectional;   /* each layer runs both ways: H values of each follow one another */
    bool batch_first;     /* x and y are [N,T,...] */
    bool relu;            /* plain networks: instead of tanh */
    double dropout;       /* of each layer's results but the last's */
    bool eval;            /* no dropout */
    aril_tensor *lengths; /* [N] integers from 1 to T, or NULL: sequences end there; y is 0 after
                             it, and the last state is that of the end */
} aril_rnn_opts;

/* A network over whole sequences: x [T,N,I] (or [T,I]), h0 and c0 [layers * directions, N, H] (or
 * without N) or NULL for 0; y [T,N,directions * H], the last states in *hn and *cn (where not
 * NULL), shaped as the first ones. `weights` holds w_ih, w_hh, b_ih, b_hh for each layer, and in it
 * for each direction; biases may be NULL. */
ARIL_API aril_tensor *aril_rnn(aril_tensor *x, aril_tensor *h0, aril_list weights,
                               aril_rnn_opts opts, aril_tensor **hn);
ARIL_API aril_tensor *aril_lstm(aril_tensor *x, aril_tensor *h0, aril_tensor *c0, aril_list weights,
                                aril_rnn_opts opts, aril_tensor **hn, aril_tensor **cn);
ARIL_API aril_tensor *aril_gru(aril_tensor *x, aril_tensor *h0, aril_list weights,
                               aril_rnn_opts opts, aril_tensor **hn);

ARIL_C_END

#endif
