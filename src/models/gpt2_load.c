/* A GPT-2 from a folder as Hugging Face has it. */
#include "aril/generate.h"
#include "aril/scope.h"
#include "core/error.h"
#include "models/gpt2.h"
#include "models/hugging_face.h"
#include "nn/module.h"

static const aril__config_key keys[] = {
    { "vocab_size", ARIL__CONFIG_SIZE, offsetof(aril_gpt2_opts, vocabulary) },
    { "n_positions", ARIL__CONFIG_SIZE, offsetof(aril_gpt2_opts, context) },
    { "n_ctx", ARIL__CONFIG_FALLBACK, offsetof(aril_gpt2_opts, context) },
    { "n_embd", ARIL__CONFIG_SIZE, offsetof(aril_gpt2_opts, width) },
    { "n_head", ARIL__CONFIG_SIZE, offsetof(aril_gpt2_opts, heads) },
    { "n_layer", ARIL__CONFIG_COUNT, offsetof(aril_gpt2_opts, layers) },
    { "n_inner", ARIL__CONFIG_SIZE, offsetof(aril_gpt2_opts, inner) },
    { "layer_norm_epsilon", ARIL__CONFIG_NUMBER, offsetof(aril_gpt2_opts, eps) },
    { 0 },
};

static const aril__config_fixed fixed[] = {
    { "model_type", "\"gpt2\"", NULL },
    { "activation_function", "\"gelu_new\"", "\"gelu_pytorch_tanh\"" },
    { "scale_attn_weights", "true", NULL },
    { "scale_attn_by_inverse_layer_idx", "false", NULL },
    { "add_cross_attention", "false", NULL },
    { "tie_word_embeddings", "true", NULL },
    { 0 },
};

const aril_rename aril__gpt2_names[] = {
    { "transformer.*", "*" },       { "h.*.attn.bias", "" }, /* masks are no weights */
    { "h.*.attn.masked_bias", "" }, { "lm_head.weight", "" }, { 0 },
};

aril_module *aril_gpt2_load(const char *folder)
{
    if (!folder) {
        aril__fail(ARIL_ERR_ARG, "gpt2_load: the folder is NULL");
        return NULL;
    }
    ARIL_SCOPE;
    static const aril__config config = { "GPT-2", keys, fixed };
    aril_gpt2_opts o = { 0 };
    if (aril__config_read(folder, &config, &o) < 0) return NULL;
    /* A sketch: sizes of config.json take no memory before those of the weights agree. */
    bool before = aril__sketch(true);
    aril_module *m = aril__gpt2_empty(o);
    aril__sketch(before);
    if (m && aril__take_weights(m, folder, aril__gpt2_names) < 0) {
        aril_module_release(m);
        m = NULL;
    }
    if (m) aril_module_eval(m);
    return m;
}
