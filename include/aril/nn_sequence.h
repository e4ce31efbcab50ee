/* Sequence layers: recurrent networks and their cells, attention, transformers.
 *
 *     aril_module *lstm = aril_nn_lstm_with(64, 128, (aril_nn_rnn_opts){ .layers = 2 });
 *     aril_tensor *out[3]; // y, the last states and the last cells
 *     aril_forward_all(lstm, ARIL_LIST(x, h0, c0), 3, out);
 *
 * Parameters have PyTorch's names, shapes, order and default initialization. A size of 0 is
 * inferred from the first input. Optional inputs may be omitted at the end of the list, or be NULL
 * within it. The caller owns each new module: call aril_module_release, or add it to a parent;
 * NULL, with an error, if the arguments are invalid. */
#ifndef ARIL_NN_SEQUENCE_H
#define ARIL_NN_SEQUENCE_H

#include "aril/module.h"

ARIL_C_BEGIN

/* ---- recurrent networks ---- */

typedef struct aril_nn_rnn_opts {
    int layers;         /* stacked layers; default 1 */
    bool bidirectional; /* each layer runs in both directions, with their outputs concatenated */
    bool batch_first;   /* x and y are [N,T,...] instead of [T,N,...] */
    bool no_bias;
    bool relu;      /* aril_nn_rnn: relu instead of tanh */
    double dropout; /* of the outputs of each layer except the last, in training: 0 to 1 */
} aril_nn_rnn_opts;

/* Recurrent networks with hidden size `hidden` for each layer and direction (formulas:
 * aril/neural.h):
 *     inputs   x [T,N,in] or [T,in]; first states h0 and, of an LSTM, c0
 *              [layers * directions, N, hidden] (without N where x has none; default 0); then the
 *              lengths of the sequences, [N] integers from 1 to T (default: T each)
 *     results  y [T,N,directions * hidden], 0 after the end of a sequence; the last states, and of
 *              an LSTM the last cells, shaped as the first ones
 * Parameters: weight_ih_l0 [G * hidden, in], weight_hh_l0 [G * hidden, hidden], bias_ih_l0,
 * bias_hh_l0, then those that end in _l0_reverse, in _l1 and so on; G is 1, 4 (LSTM) or 3 (GRU).
 * Initialization: uniform in [-k, k) with k = 1 / sqrt(hidden). */
ARIL_API aril_module *aril_nn_rnn(int64_t in, int64_t hidden);
ARIL_API aril_module *aril_nn_lstm(int64_t in, int64_t hidden);
ARIL_API aril_module *aril_nn_gru(int64_t in, int64_t hidden);
ARIL_API aril_module *aril_nn_rnn_with(int64_t in, int64_t hidden, aril_nn_rnn_opts opts);
ARIL_API aril_module *aril_nn_lstm_with(int64_t in, int64_t hidden, aril_nn_rnn_opts opts);
ARIL_API aril_module *aril_nn_gru_with(int64_t in, int64_t hidden, aril_nn_rnn_opts opts);

typedef struct aril_nn_cell_opts {
    bool no_bias;
    bool relu; /* aril_nn_rnn_cell: relu instead of tanh */
} aril_nn_cell_opts;

/* One step: x [N,in] or [in], h [N,hidden] or [hidden], and for an LSTM c like h (default 0), to
 * the next h (and c). Parameters: weight_ih, weight_hh, bias_ih, bias_hh. */
ARIL_API aril_module *aril_nn_rnn_cell(int64_t in, int64_t hidden);
ARIL_API aril_module *aril_nn_lstm_cell(int64_t in, int64_t hidden);
ARIL_API aril_module *aril_nn_gru_cell(int64_t in, int64_t hidden);
ARIL_API aril_module *aril_nn_rnn_cell_with(int64_t in, int64_t hidden, aril_nn_cell_opts opts);
ARIL_API aril_module *aril_nn_lstm_cell_with(int64_t in, int64_t hidden, aril_nn_cell_opts opts);
ARIL_API aril_module *aril_nn_gru_cell_with(int64_t in, int64_t hidden, aril_nn_cell_opts opts);

/* ---- attention ---- */

typedef struct aril_nn_attention_opts {
    int64_t kdim, vdim; /* sizes of keys and values; 0: as the queries */
    double dropout;     /* of the attention weights, in training: 0 to 1 */
    bool batch_first;   /* [N,L,...] instead of [L,N,...] */
    bool no_bias;
    bool causal;   /* query i attends to keys 0 .. i */
    bool per_head; /* return the weights of each head, not their mean */
} aril_nn_attention_opts;

/* Multi-head attention; `embed` must be divisible by `heads`:
 *     inputs   queries [L,N,embed] or [L,embed], keys [S,N,kdim], values [S,N,vdim] (both default
 *              to the queries: self-attention, and values to the keys); a mask of keys [N,S] (or
 *              [S]); a mask of pairs [L,S], [N * heads, L, S] or (without N) [heads, L, S]
 *     results  [L,N,embed]; and if two results are requested, the weights: [N,L,S], or
 *              [N,heads,L,S]
 * Masks are PyTorch's: bool, true where a key is NOT attended to, or floats that are added to the
 * scores. A query that attends to no key has weights of 0. Parameters: in_proj_weight [3 * embed,
 * embed] (with kdim or vdim: q_proj_weight, k_proj_weight, v_proj_weight), in_proj_bias,
 * out_proj.weight, out_proj.bias. */
ARIL_API aril_module *aril_nn_multihead_attention(int64_t embed, int heads);
ARIL_API aril_module *aril_nn_multihead_attention_with(int64_t embed, int heads,
                                                       aril_nn_attention_opts opts);

/* ---- transformers ---- */

typedef struct aril_nn_transformer_opts {
    int64_t feedforward; /* hidden size of the feedforward network; default 2048 */
    double dropout;      /* default 0.1, ARIL_ZERO: none */
    double eps;          /* of the norms; default 1e-5 */
    bool gelu;           /* instead of relu */
    bool norm_first;     /* pre-norm: normalize before attention and feedforward, not after */
    bool batch_first;    /* [N,L,...] instead of [L,N,...] */
    bool no_bias;
    bool causal;     /* causal self-attention */
    bool final_norm; /* encoders and decoders: a final norm */
} aril_nn_transformer_opts;

/* An encoder layer: takes x [L,N,embed] or [L,embed], then a mask of pairs and a mask of keys (as
 * above); returns the shape of x:
 *     x = norm1(x + dropout(self_attn(x)))
 *     x = norm2(x + dropout(linear2(dropout(relu(linear1(x))))))
 * or with norm_first x + dropout(self_attn(norm1(x))) and so on. Children: self_attn, linear1,
 * dropout, linear2, norm1, norm2, dropout1, dropout2. */
ARIL_API aril_module *aril_nn_transformer_encoder_layer(int64_t embed, int heads);
ARIL_API aril_module *aril_nn_transformer_encoder_layer_with(int64_t embed, int heads,
                                                             aril_nn_transformer_opts opts);

/* A decoder layer: takes x [L,N,embed] and memory [S,N,embed], the encoder's result; then the
 * masks: pairs of x and x, pairs of x and memory, keys of x, keys of memory. Children: self_attn,
 * multihead_attn, linear1, dropout, linear2, norm1 .. norm3, dropout1 .. dropout3. */
ARIL_API aril_module *aril_nn_transformer_decoder_layer(int64_t embed, int heads);
ARIL_API aril_module *aril_nn_transformer_decoder_layer_with(int64_t embed, int heads,
                                                             aril_nn_transformer_opts opts);

/* A stack of `layers` layers, each with the same inputs besides x:
 * layers.0.self_attn.in_proj_weight ..., and with final_norm norm.weight, norm.bias. */
ARIL_API aril_module *aril_nn_transformer_encoder(int64_t embed, int heads, int layers,
                                                  aril_nn_transformer_opts opts);
ARIL_API aril_module *aril_nn_transformer_decoder(int64_t embed, int heads, int layers,
                                                  aril_nn_transformer_opts opts);

/* The encoder-decoder network of "Attention Is All You Need", as torch.nn.Transformer: takes the
 * source [S,N,embed] and the target [L,N,embed], then masks of pairs (source, target, target and
 * source) and of keys (source, target, source as the decoder sees it); returns [L,N,embed]. With
 * opts.causal, the decoder's self-attention is causal; both stacks end with a norm. Weights of two
 * dimensions are initialized by Xavier's uniform rule. Children: encoder, decoder. */
ARIL_API aril_module *aril_nn_transformer(int64_t embed, int heads, int encoder_layers,
                                          int decoder_layers, aril_nn_transformer_opts opts);

ARIL_C_END

#endif
