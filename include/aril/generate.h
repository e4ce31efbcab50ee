/* Generating sequences of tokens: greedy search, sampling, beam search.
 *
 *     aril_module *net = aril_gpt2_load("gpt2");               config.json and model.safetensors
 *     aril_tokenizer *t = aril_tokenizer_load("gpt2");
 *     aril_decoder *d = aril_gpt2_decoder(net);
 *     aril_tensor *prompt = aril_tokenizer_encode(t, "Once upon", (aril_encode_opts){ 0 }), *out;
 *     aril_generate(d, ARIL_LIST(prompt), (aril_generate_opts){ .max_tokens = 40 }, &out);
 *     char *text = aril_tokenizer_decode(t, out, (aril_decode_opts){ 0 });
 *
 * A decoder is a network together with what it remembers of the sequences that it has read, so that
 * it reads each token once: the keys and values of attention, the states of a recurrent network. */
#ifndef ARIL_GENERATE_H
#define ARIL_GENERATE_H

#include "aril/module.h"
#include "aril/rng.h"

ARIL_C_BEGIN

/* ---- decoders ---- */

typedef struct aril_decoder aril_decoder;

/* The functions of a kind of decoder. It must outlive its decoders. Functions run without recording
 * gradients. */
typedef struct aril_decoder_class {
    const char *type; /* "GPT2": for messages */
    size_t size;      /* bytes of data, zero-initialized: aril_decoder_data */
    /* Forgets all sequences. Up to `rows` new ones, of up to `length` tokens, will follow. */
    aril_status (*start)(aril_decoder *self, int64_t rows, int64_t length);
    /* Appends tokens [N,T], i64 on the CPU, to the sequences row .. row + N - 1. Returns the scores
     * of what follows each: [N,vocabulary]. */
    aril_tensor *(*read)(aril_decoder *self, int64_t row, aril_tensor *tokens);
    /* From now on there are n sequences, and sequence i continues what sequence rows[i] was. */
    aril_status (*select)(aril_decoder *self, int64_t n, const int64_t *rows);
    /* Called before the decoder is freed; NULL: nothing. */
    void (*destroy)(aril_decoder *self);
} aril_decoder_class;

/* Creates a decoder for sequences of at most max_length tokens (0: any number). The caller frees
 * it. NULL, with an error, when out of memory. */
ARIL_API aril_decoder *aril_decoder_make(const aril_decoder_class *type, int64_t max_length);
ARIL_API void *aril_decoder_data(const aril_decoder *d);
ARIL_API void aril_decoder_free(aril_decoder *d); /* NULL is allowed */

/* A decoder for a GPT-2 (aril_gpt2_load, aril_gpt2, aril_zoo_make("gpt2")), which it keeps. The
 * keys and values of all positions stay in memory: 2 * layers * width numbers for each token. NULL,
 * with an error, for another kind of module. */
ARIL_API aril_decoder *aril_gpt2_decoder(aril_module *net);

/* A decoder for a recurrent network, which it keeps: a module with the inputs tokens [N,T] and
 * `states` states [layers,N,...], NULL before the first token, and the results scores
 * [N,T,vocabulary] and as many states. */
ARIL_API aril_decoder *aril_rnn_decoder(aril_module *net, int states);
/* The same with the states before the first token, [layers,N,...] for N prompts. */
ARIL_API aril_decoder *aril_rnn_decoder_from(aril_module *net, aril_list initial);

/* A decoder that describes images [N,C,H,W] by a captioner (aril_zoo_make("captioner")), which it
 * keeps: for N prompts, which may hold just the token that begins a caption. */
ARIL_API aril_decoder *aril_captioner_decoder(aril_module *net, aril_tensor *images);

/* ---- generating ---- */

/* Called for each new token of a sequence (prompts in order, each with opts.results sequences).
 * Returns false to end the sequence. In beam search, calls follow the search. */
typedef bool aril_token_fn(void *ctx, int64_t sequence, int64_t token);

typedef struct aril_generate_opts {
    int64_t max_tokens; /* new tokens of each sequence; default 50. The end of the decoder's
                           positions ends a sequence too */
    double temperature; /* 0: always the most likely token. Otherwise tokens are drawn with the
                           probabilities softmax(scores / temperature), */
    int64_t top_k;      /* among the k most likely ones; 0: all */
    double top_p;       /* and among the fewest of those whose probabilities sum to p; 0: all */
    double repetition_penalty; /* positive scores of tokens that occurred are divided by this,
                                  negative ones multiplied; default 1 */
    int64_t beams;             /* width of beam search, which keeps the best sequences; 0: none */
    double length_penalty; /* finished beams are ranked by the sum of log probabilities, divided by
                              length^penalty; default 1, ARIL_ZERO: by the sum */
    bool early_stopping;   /* beam search ends with as many finished sequences as beams; default:
                              when none that is left promises to be better */
    int64_t results;     /* sequences for each prompt; default 1, in beam search at most `beams` */
    const int64_t *stop; /* tokens that end a sequence, as its last token */
    int n_stop;
    aril_generator *generator; /* for drawing; default: the thread's. One call for each step */
    aril_token_fn *on_token;   /* NULL, or called for each token, with ctx */
    void *ctx;
    double *scores; /* NULL, or room for the score of each sequence: the sum of the log
                       probabilities of its tokens, in beam search with the length penalty */
} aril_generate_opts;

/* Continues each prompt, i64 [T] with T >= 1: out[] receives the new tokens, i64 [n], of
 * opts.results sequences for each, owned by the innermost scope; poisoned on failure. Results of a
 * prompt do not depend on the others, but for rounding. */
ARIL_API aril_status aril_generate(aril_decoder *d, aril_list prompts, aril_generate_opts opts,
                                   aril_tensor **out);

/* ---- networks ---- */

typedef struct aril_gpt2_opts {
    int64_t vocabulary; /* default 50257 */
    int64_t context;    /* maximum tokens of a sequence; default 1024 */
    int64_t width;      /* default 768 */
    int64_t heads;      /* default 12; divides the width */
    int layers;         /* default 12 */
    int64_t inner;      /* width inside the multilayer perceptrons; default 4 * width */
    double eps;         /* of the norms; default 1e-5 */
} aril_gpt2_opts;

/* A GPT-2 of any size, with new weights: tokens [N,T] -> scores [N,T,vocabulary]. The caller owns
 * it; NULL, with an error, for sizes that do not fit. */
ARIL_API aril_module *aril_gpt2(aril_gpt2_opts opts);

/* A GPT-2 from a folder as Hugging Face has it: config.json, and weights as model.safetensors or
 * pytorch_model.bin, in one file or in parts with an index, with or without the prefix
 * "transformer." in their names. In evaluation mode. The caller owns it; NULL, with an error that
 * says what does not fit, on failure. */
ARIL_API aril_module *aril_gpt2_load(const char *folder);

ARIL_C_END

#endif
