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
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

#include <math.h>

/* ---- Conv1D: a linear layer whose weight is [in,out] ---- */

static aril_tensor *conv1d_forward(aril_module *self, aril_tensor *x)
{
    return aril_linear(x, aril_t(aril_module_own(self, 0)), aril_module_own(self, 1));
}

static aril_module *conv1d(int64_t in, int64_t out, double std)
{
    aril_module *m = aril_module_new("Conv1D", 0, conv1d_forward);
    m = aril__with_parameter(m, "weight", ARIL_SHAPE(in, out), aril__set_normal, std);
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

static aril_tensor *attention_forward(aril_module *self, aril_tensor *x)
{
    const attention *a = aril_module_data(self);
    aril_tensor *part[3];
    if (aril_chunk(aril_forward(aril_module_child(self, 0), x), 3, 2, part) < 0) return part[0];
    aril_tensor *y = aril_scaled_dot_product_attention(split_heads(part[0], a->heads),
                                                       split_heads(part[1], a->heads),
                                                       split_heads(part[2], a->heads),
                                                       (aril_attention_opts){ .causal = true });
    y = aril_flatten(aril_transpose(y, 1, 2), 2, 3);
    return aril_forward(aril_module_child(self, 1), y);
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

/* The projections that add to the residual start smaller, by the number of such additions. */
static aril_module *block(int64_t width, int64_t heads, int layers)
{
    const double std = 0.02, residual_std = std / sqrt(2.0 * layers);
    aril_module *attn = aril_module_new("Attention", sizeof(attention), attention_forward);
    if (attn) ((attention *)aril_module_data(attn))->heads = heads;
    attn = aril__with(attn, "c_attn", conv1d(width, 3 * width, std));
    attn = aril__with(attn, "c_proj", conv1d(width, width, residual_std));
    aril_module *mlp =
        aril__with(aril_nn_sequential_of(0, NULL), "c_fc", conv1d(width, 4 * width, std));
    mlp = aril__with(mlp, "act", aril_nn_gelu_tanh());
    mlp = aril__with(mlp, "c_proj", conv1d(4 * width, width, residual_std));
    aril_module *m = aril_module_new("Block", 0, block_forward);
    m = aril__with(m, "ln_1", aril_nn_layer_norm(width));
    m = aril__with(m, "attn", attn);
    m = aril__with(m, "ln_2", aril_nn_layer_norm(width));
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
    if (m) aril_init_normal(aril_module_own(m, 0), 0, std);
    return m;
}

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
    aril_module *h = aril_nn_sequential_of(0, NULL);
    for (int i = 0; i < c->layers; i++) h = aril__append(h, block(c->width, c->heads, c->layers));
    aril_module *m = aril_module_new("GPT2", 0, gpt2_forward);
    m = aril__with(m, "wte", embedding(o->classes, c->width, 0.02));
    m = aril__with(m, "wpe", embedding(o->input.dim[0], c->width, 0.01));
    m = aril__with(m, "h", h);
    return aril__with(m, "ln_f", aril_nn_layer_norm(c->width));
}

#define GPT2(net, millions, revision, hash, ...)                                                \
    {                                                                                           \
        .name = net, .family = "gpt2",                                                          \
        .paper = "Language Models are Unsupervised Multitask Learners", .year = 2019,           \
        ARIL__TOKENS(1024), .classes = 50257, .make = gpt2,                                     \
        .config = &(const config){ __VA_ARGS__ },                                               \
        .weights = { .url = "https://huggingface.co/openai-community/" net "/resolve/" revision \
                            "/model.safetensors",                                               \
                     .sha256 = hash },                                                          \
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
