/* GPT-2 (Radford, Wu, Child, Luan, Amodei, Sutskever: Language Models are Unsupervised Multitask
 * Learners, 2019), with the parameter names of its published files: tokens [N,T] -> logits
 * [N,T,vocabulary]. */
#include "aril/create.h"
#include "aril/init.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/tensor.h"
#include "models/build.h"
#include "models/gpt2.h"
#include "models/models.h"
#include "nn/module.h"

#include <math.h>

/* ---- Conv1D: a linear layer whose weight is [in,out] ---- */

static aril_tensor *conv1d_forward(aril_module *self, aril_tensor *x)
{
    return aril_linear(x, aril_t(aril_module_own(self, 0)), aril_module_own(self, 1));
}

/* For weights that a file will give. */
static void leave(aril_tensor *t, double value)
{
    (void)t, (void)value;
}

static aril_module *conv1d(int64_t in, int64_t out, double std)
{
    aril_module *m = aril_module_new("Conv1D", 0, conv1d_forward);
    m = aril__with_parameter(m, "weight", ARIL_SHAPE(in, out), std > 0 ? aril__set_normal : leave,
                             std);
    return aril__with_parameter(m, "bias", ARIL_SHAPE(out), NULL, 0);
}

/* ---- attention ---- */

typedef struct attention {
    int64_t heads;
} attention;

/* [N,T,E] -> [N,heads,T,E/heads] */
static aril_tensor *split_heads(aril_tensor *x, int64_t heads)
{
    return aril_transpose(aril_unflatten(x, 2, ARIL_SHAPE(heads, -1)), 1, 2);
}

/* With a cache, keys and values of earlier tokens come from there, and the new ones go there. */
static aril_tensor *attend(aril_module *self, aril_tensor *x, const aril__gpt2_cache *cache)
{
    const attention *a = aril_module_data(self);
    aril_tensor *part[3];
    if (aril_chunk(aril_forward(aril_module_child(self, 0), x), 3, 2, part) < 0)
        return aril__poison();
    for (int i = 0; i < 3; i++) part[i] = split_heads(part[i], a->heads);
    aril_attention_opts opts = { .causal = true };
    if (cache) {
        opts = (aril_attention_opts){ .causal = cache->causal, .mask = cache->mask };
        for (int i = 1; i < 3; i++) part[i] = cache->extend(cache->ctx, i - 1, part[i]);
    }
    aril_tensor *y = aril_scaled_dot_product_attention(part[0], part[1], part[2], opts);
    y = aril_flatten(aril_transpose(y, 1, 2), 2, 3);
    return aril_forward(aril_module_child(self, 1), y);
}

static aril_tensor *attention_forward(aril_module *self, aril_tensor *x)
{
    return attend(self, x, NULL);
}

/* ---- blocks ---- */

/* x + attention(norm(x)), then the same with the multilayer perceptron. */
static aril_tensor *block_forward(aril_module *self, aril_tensor *x)
{
    for (int i = 0; i < 4; i += 2) {
        aril_tensor *y = aril_forward(aril_module_child(self, i), x);
        x = aril_add(x, aril_forward(aril_module_child(self, i + 1), y));
    }
    return x;
}

aril_tensor *aril__gpt2_block(aril_module *block, aril_tensor *x, const aril__gpt2_cache *cache)
{
    ARIL_SCOPE;
    aril_tensor *y = aril_forward(aril_module_child(block, 0), x);
    x = aril_add(x, attend(aril_module_child(block, 1), y, cache));
    y = aril_forward(aril_module_child(block, 2), x);
    return aril_escape(aril_add(x, aril_forward(aril_module_child(block, 3), y)));
}

/* The projections that add to the residual start smaller, by the number of such additions. */
static aril_module *block(const aril_gpt2_opts *o, double std)
{
    const double residual_std = std / sqrt(2.0 * o->layers);
    const aril_nn_norm_opts norm = { .eps = o->eps };
    int64_t width = o->width;
    aril_module *attn = aril_module_new("Attention", sizeof(attention), attention_forward);
    if (attn) ((attention *)aril_module_data(attn))->heads = o->heads;
    attn = aril__with(attn, "c_attn", conv1d(width, 3 * width, std));
    attn = aril__with(attn, "c_proj", conv1d(width, width, residual_std));
    aril_module *mlp =
        aril__with(aril_nn_sequential_of(0, NULL), "c_fc", conv1d(width, o->inner, std));
    mlp = aril__with(mlp, "act", aril_nn_gelu_tanh());
    mlp = aril__with(mlp, "c_proj", conv1d(o->inner, width, residual_std));
    aril_module *m = aril_module_new("Block", 0, block_forward);
    m = aril__with(m, "ln_1", aril_nn_layer_norm_with(ARIL_SHAPE(width), norm));
    m = aril__with(m, "attn", attn);
    m = aril__with(m, "ln_2", aril_nn_layer_norm_with(ARIL_SHAPE(width), norm));
    return aril__with(m, "mlp", mlp);
}

/* ---- the network ---- */

/* The embedding of tokens is also the last layer. */
static aril_tensor *gpt2_forward(aril_module *self, aril_tensor *tokens)
{
    aril_module *wte = aril_module_child(self, 0), *wpe = aril_module_child(self, 1);
    int64_t length = aril_size(tokens, 1);
    aril_tensor *positions = aril_arange(0, (double)length, 1, ARIL_I64, aril_device_of(tokens));
    aril_tensor *x = aril_add(aril_forward(wte, tokens), aril_forward(wpe, positions));
    x = aril_forward(aril_module_child(self, 2), x);
    x = aril_forward(aril_module_child(self, 3), x);
    return aril_linear(x, aril_module_own(wte, 0), NULL);
}

static aril_module *embedding(int64_t rows, int64_t width, double std)
{
    aril_module *m = aril_nn_embedding(rows, width);
    if (m && std > 0) aril_init_normal(aril_module_own(m, 0), 0, std);
    return m;
}

static bool check(const aril_gpt2_opts *o)
{
    enum { MOST = 1 << 24, LAYERS = 500 };
    const int64_t sizes[] = { o->vocabulary, o->context, o->width, o->heads, o->layers, o->inner };
    static const char *const names[] = { "vocabulary", "context", "width",
                                         "heads",      "layers",  "inner" };
    for (int i = 0; i < 6; i++) {
        int64_t most = i == 4 ? LAYERS : MOST;
        if (sizes[i] >= 1 && sizes[i] <= most) continue;
        aril__fail(ARIL_ERR_ARG, "gpt2: %s must be from 1 to %lld, got %lld", names[i],
                   (long long)most, (long long)sizes[i]);
        return false;
    }
    if (o->eps != ARIL_ZERO && !(o->eps >= 0 && isfinite(o->eps))) {
        aril__fail(ARIL_ERR_ARG, "gpt2: eps must be finite and not negative, got %g", o->eps);
        return false;
    }
    if (o->width % o->heads == 0) return true;
    aril__fail(ARIL_ERR_ARG, "gpt2: a width of %lld cannot be divided among %lld heads",
               (long long)o->width, (long long)o->heads);
    return false;
}

static aril_module *make(aril_gpt2_opts o, double std)
{
    if (!o.vocabulary) o.vocabulary = 50257;
    if (!o.context) o.context = 1024;
    if (!o.width) o.width = 768;
    if (!o.heads) o.heads = 12;
    if (!o.layers) o.layers = 12;
    if (!o.inner) o.inner = 4 * o.width;
    if (!check(&o)) return NULL;
    aril_module *h = aril_nn_sequential_of(0, NULL);
    for (int i = 0; i < o.layers; i++) h = aril__append(h, block(&o, std));
    aril_module *m = aril_module_new("GPT2", sizeof(aril_gpt2_opts), gpt2_forward);
    if (m) *(aril_gpt2_opts *)aril_module_data(m) = o;
    m = aril__with(m, "wte", embedding(o.vocabulary, o.width, std));
    m = aril__with(m, "wpe", embedding(o.context, o.width, std / 2));
    m = aril__with(m, "h", h);
    const aril_nn_norm_opts norm = { .eps = o.eps };
    return aril__with(m, "ln_f", aril_nn_layer_norm_with(ARIL_SHAPE(o.width), norm));
}

aril_module *aril_gpt2(aril_gpt2_opts o)
{
    return make(o, 0.02);
}

aril_module *aril__gpt2_empty(aril_gpt2_opts o)
{
    return make(o, 0);
}

const aril_gpt2_opts *aril__gpt2_opts_of(const aril_module *m)
{
    return m && m->fn.one == gpt2_forward ? aril_module_data(m) : NULL;
}

/* ---- the published sizes ---- */

typedef struct config {
    int layers;
    int64_t heads, width;
} config;

static aril_module *gpt2(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    const config *c = e->config;
    if (o->input.ndim != 1) {
        aril__fail(ARIL_ERR_SHAPE, "%s expects sequences of tokens, [T]", e->name);
        return NULL;
    }
    return aril_gpt2((aril_gpt2_opts){ .vocabulary = o->classes,
                                       .context = o->input.dim[0],
                                       .width = c->width,
                                       .heads = c->heads,
                                       .layers = c->layers });
}

/* All sizes have the same vocabulary. */
static const aril_zoo_file vocabulary[] = {
    { "vocab.json", "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783" },
    { "merges.txt", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5" },
    { 0 },
};

#define GPT2(net, millions, revision, hash, ...)                                                \
    {                                                                                           \
        .name = net, .family = "gpt2",                                                          \
        .paper = "Language Models are Unsupervised Multitask Learners", .year = 2019,           \
        ARIL__TOKENS(1024), .classes = 50257, .generates = true, .make = gpt2,                  \
        .config = &(const config){ __VA_ARGS__ },                                               \
        .weights = { .url = "https://huggingface.co/openai-community/" net "/resolve/" revision \
                            "/model.safetensors",                                               \
                     .sha256 = hash,                                                            \
                     .files = vocabulary },                                                     \
        .about = "GPT-2 of " millions " million parameters"                                     \
    }

const aril_zoo_entry aril__zoo_gpt2[] = {
    GPT2("gpt2", "124", "607a30d783dfa663caf39e06633721c8d4cfcd7e",
         "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707", 12, 12, 768),
    GPT2("gpt2-medium", "355", "6dcaa7a952f72f9298047fd5137cd6e4f05f41da", NULL, 24, 16, 1024),
    GPT2("gpt2-large", "774", "32b71b12589c2f8d625668d2335a01cac3249519", NULL, 36, 20, 1280),
    GPT2("gpt2-xl", "1558", "15ea56dee5df4983c59b2538573817e1667135e2",
         "0f8b28eb05a8075f48b61b6f35332978c74fc7763fa9fb4051a1c30511736a6a", 48, 25, 1600),
    { 0 },
};
