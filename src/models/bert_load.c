/* A BERT from a folder as Hugging Face has it. */
#include "aril/scope.h"
#include "core/error.h"
#include "models/bert.h"
#include "models/hugging_face.h"
#include "nn/module.h"

static const aril__config_key keys[] = {
    { "vocab_size", ARIL__CONFIG_SIZE, offsetof(aril_bert_opts, vocabulary) },
    { "max_position_embeddings", ARIL__CONFIG_SIZE, offsetof(aril_bert_opts, context) },
    { "type_vocab_size", ARIL__CONFIG_SIZE, offsetof(aril_bert_opts, types) },
    { "hidden_size", ARIL__CONFIG_SIZE, offsetof(aril_bert_opts, width) },
    { "num_attention_heads", ARIL__CONFIG_SIZE, offsetof(aril_bert_opts, heads) },
    { "num_hidden_layers", ARIL__CONFIG_COUNT, offsetof(aril_bert_opts, layers) },
    { "intermediate_size", ARIL__CONFIG_SIZE, offsetof(aril_bert_opts, inner) },
    { "layer_norm_eps", ARIL__CONFIG_NUMBER, offsetof(aril_bert_opts, eps) },
    { "hidden_dropout_prob", ARIL__CONFIG_RATE, offsetof(aril_bert_opts, dropout) },
    { "attention_probs_dropout_prob", ARIL__CONFIG_RATE,
      offsetof(aril_bert_opts, attention_dropout) },
    { 0 },
};

static const aril__config_fixed fixed[] = {
    { "model_type", "\"bert\"", NULL },
    { "hidden_act", "\"gelu\"", NULL },
    { "position_embedding_type", "\"absolute\"", NULL },
    { "is_decoder", "false", NULL },
    { "add_cross_attention", "false", NULL },
    { "tie_word_embeddings", "true", NULL },
    { 0 },
};

/* Files of the first years call the parameters of norms gamma and beta, and count positions. Heads
 * of fine-tuned networks are left out: "classifier" of texts, tokens and choices, "qa_outputs" of
 * answers. */
const aril_rename aril__bert_names[] = {
    { "*.gamma", "*.weight" }, { "*.beta", "*.bias" }, { "*.position_ids", "" }, { "cls.*", "" },
    { "classifier.*", "" },    { "qa_outputs.*", "" }, { "bert.*", "*" },        { 0 },
};
static const aril_rename without_pooler[] = {
    { "*.gamma", "*.weight" }, { "*.beta", "*.bias" }, { "*.position_ids", "" },
    { "cls.*", "" },           { "classifier.*", "" }, { "qa_outputs.*", "" },
    { "bert.*", "*" },         { "pooler.*", "" },     { 0 },
};
/* The last matrix and its bias have two names each. */
static const aril_rename masked[] = {
    { "*.gamma", "*.weight" },
    { "*.beta", "*.bias" },
    { "*.position_ids", "" },
    { "bert.pooler.*", "" },
    { "cls.seq_relationship.*", "" },
    { "cls.predictions.decoder.*", "" },
    { "classifier.*", "" },
    { "qa_outputs.*", "" },
    { 0 },
};

aril_module *aril_bert_load(const char *folder, aril_bert_opts asked)
{
    if (!folder) {
        aril__fail(ARIL_ERR_ARG, "bert_load: the folder is NULL");
        return NULL;
    }
    ARIL_SCOPE;
    static const aril__config config = { "BERT", keys, fixed };
    aril_bert_opts o = { .no_pooler = asked.no_pooler, .masked_lm = asked.masked_lm };
    if (aril__config_read(folder, &config, &o) < 0) return NULL;
    /* A sketch: sizes of config.json take no memory before those of the weights agree. */
    bool before = aril__sketch(true);
    aril_module *m = aril__bert_empty(o);
    aril__sketch(before);
    const aril_rename *names = o.masked_lm   ? masked
                               : o.no_pooler ? without_pooler
                                             : aril__bert_names;
    if (m && aril__take_weights(m, folder, names) < 0) {
        aril_module_release(m);
        m = NULL;
    }
    if (m) aril_module_eval(m);
    return m;
}
