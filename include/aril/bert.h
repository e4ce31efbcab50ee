/* BERT: texts as vectors, and scores for masked tokens.
 *
 *     aril_module *net = aril_bert_load("bert-base-uncased", (aril_bert_opts){ 0 });
 *     aril_tokenizer *t = aril_tokenizer_load("bert-base-uncased");
 *     aril_tensor *ids = aril_tokenizer_encode(t, "Hello!", (aril_encode_opts){ .framed = true });
 *     aril_tensor *out[2];
 *     aril_forward_all(net, ARIL_LIST(aril_unsqueeze(ids, 0)), 2, out);
 *
 * A text is read from both sides at once. [CLS] stands before it and [SEP] behind it; `.framed`
 * adds them. */
#ifndef ARIL_BERT_H
#define ARIL_BERT_H

#include "aril/module.h"

ARIL_C_BEGIN

typedef struct aril_bert_opts {
    int64_t vocabulary; /* default 30522 */
    int64_t context;    /* maximum tokens of a sequence; default 512 */
    int64_t types;      /* of tokens, such as those of a first and of a second text; default 2 */
    int64_t width;      /* default 768 */
    int64_t heads;      /* default 12; divides the width */
    int layers;         /* default 12 */
    int64_t inner;      /* width inside the multilayer perceptrons; default 4 * width */
    double eps;         /* of the norms; default 1e-12 */
    double dropout;     /* of embeddings and residuals; default 0.1, ARIL_ZERO: none */
    double attention_dropout; /* of attention weights; default 0.1, ARIL_ZERO: none */
    bool no_pooler;           /* without the layer that makes one vector of a text */
    bool masked_lm; /* with the head that scores tokens, whose matrix is the embedding's; without a
                       pooler */
} aril_bert_opts;

/* A BERT with new weights, under the names of Hugging Face's BertModel, and of BertForMaskedLM with
 * `masked_lm`:
 *     inputs   tokens [N,T]; then their types [N,T] (default 0); then a mask [N,T], 0 or false
 *              where a token is not attended to, such as padding (default: all are)
 *     results  a vector for each token [N,T,width], and one for each text [N,width], made of that
 *              of its first token; with `masked_lm` the scores of all tokens [N,T,vocabulary]
 * The caller owns it; NULL, with an error, for sizes that do not fit. */
ARIL_API aril_module *aril_bert(aril_bert_opts opts);

/* A BERT from a folder as Hugging Face has it: config.json, and weights as model.safetensors or
 * pytorch_model.bin, in one file or in parts with an index. Of `opts`, only `no_pooler` and
 * `masked_lm` are read: config.json tells the others. Heads that are not asked for are left out. In
 * evaluation mode. The caller owns it; NULL, with an error that says what does not fit, on
 * failure. */
ARIL_API aril_module *aril_bert_load(const char *folder, aril_bert_opts opts);

ARIL_C_END

#endif
