/* Transformers: encoder and decoder layers, and stacks of them. */
#include "aril/init.h"
#include "aril/nn_sequence.h"
#include "aril/math.h"
#include "core/error.h"
#include "nn/module.h"
#include "nn/sequence.h"

#include <string.h>

/* ---- one layer ---- */

typedef struct layer {
    int64_t embed;
    int heads;
    bool decodes;
    aril_nn_transformer_opts opts;
    aril_module *self_attn, *cross_attn, *linear1, *linear2, *dropout, *norm[3], *drop[3];
} layer;

static aril_module *norm_new(int64_t embed, const aril_nn_transformer_opts *o)
{
    return aril_nn_layer_norm_with(ARIL_SHAPE(embed),
                                   (aril_nn_norm_opts){ .eps = o->eps, .no_bias = o->no_bias });
}

static aril_status add_layer(aril_module *self)
{
    layer *l = aril_module_data(self);
    const aril_nn_transformer_opts *o = &l->opts;
    int64_t e = l->embed;
    int n = l->decodes ? 3 : 2;
    aril_nn_linear_opts linear = { .no_bias = o->no_bias };
    aril_nn_attention_opts attention = { .dropout = o->dropout,
                                         .batch_first = o->batch_first,
                                         .no_bias = o->no_bias,
                                         .causal = o->causal };
    aril_module *m = aril_nn_multihead_attention_with(e, l->heads, attention);
    l->self_attn = aril__add_late(self, "self_attn", m);
    if (l->decodes) {
        attention.causal = false;
        m = aril_nn_multihead_attention_with(e, l->heads, attention);
        l->cross_attn = aril__add_late(self, "multihead_attn", m);
    }
    l->linear1 = aril__add_late(self, "linear1", aril_nn_linear_with(e, o->feedforward, linear));
    l->dropout = aril__add_late(self, "dropout", aril_nn_dropout(o->dropout));
    l->linear2 = aril__add_late(self, "linear2", aril_nn_linear_with(o->feedforward, e, linear));
    bool made =
        l->self_attn && (l->cross_attn || !l->decodes) && l->linear1 && l->dropout && l->linear2;
    for (int i = 0; i < 2 * n && made; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s%d", i < n ? "norm" : "dropout", i % n + 1);
        m = i < n ? norm_new(e, o) : aril_nn_dropout(o->dropout);
        m = aril__add_late(self, name, m);
        *(i < n ? &l->norm[i] : &l->drop[i - n]) = m;
        made = m != NULL;
    }
    if (!made) return aril_error_code() < 0 ? aril_error_code() : ARIL_ERR_MEMORY;
    self->ready = true;
    return ARIL_OK;
}

static aril_status build_layer(aril_module *self, int n_in, aril_tensor *const *in)
{
    layer *l = aril_module_data(self);
    (void)n_in;
    if (self->n_children)
        return aril__fail(ARIL_ERR_STATE, "an earlier run could not create all submodules");
    aril_status s = aril__input_size(in[0], -1, &l->embed);
    return s < 0 ? s : add_layer(self);
}

/* A sublayer: returns the residual that is added to x. */
typedef aril_tensor *part(const layer *l, aril_tensor *x, aril_tensor *const *in);

/* inputs of encoders: x, mask, key padding mask; of decoders: x, memory, mask, memory mask, key
 * padding mask, memory key padding mask */
enum { ENCODER_INPUTS = 3, DECODER_INPUTS = 6 };

static aril_tensor *attend(const layer *l, aril_tensor *x, aril_tensor *const *in)
{
    aril_tensor *pairs = in[l->decodes ? 2 : 1], *keys = in[l->decodes ? 4 : 2];
    return aril_forward_n(l->self_attn, ARIL_LIST(x, x, x, keys, pairs));
}

static aril_tensor *attend_to_memory(const layer *l, aril_tensor *x, aril_tensor *const *in)
{
    return aril_forward_n(l->cross_attn, ARIL_LIST(x, in[1], in[1], in[5], in[3]));
}

static aril_tensor *feed_forward(const layer *l, aril_tensor *x, aril_tensor *const *in)
{
    (void)in;
    if (l->opts.gelu)
        x = aril_gelu(aril_forward(l->linear1, x));
    else if (!l->linear1->hooks && l->linear1->layer && l->linear1->layer->fused)
        x = aril__forward_fused(l->linear1, x, ARIL_RELU);
    else
        x = aril_relu(aril_forward(l->linear1, x));
    return aril_forward(l->linear2, aril_forward(l->dropout, x));
}

static void run_layer(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                      aril_tensor **out)
{
    const layer *l = aril_module_data(self);
    part *const encoder[] = { attend, feed_forward };
    part *const decoder[] = { attend, attend_to_memory, feed_forward };
    part *const *parts = l->decodes ? decoder : encoder;
    aril_tensor *all[DECODER_INPUTS] = { NULL }, *x = in[0];
    (void)n_out;
    memcpy(all, in, (size_t)n_in * sizeof *in);
    if (l->decodes && !all[1]) {
        aril__fail(ARIL_ERR_ARG, "the second input, the encoder's output, is missing");
        out[0] = aril__poison();
        return;
    }
    for (int i = 0; i < (l->decodes ? 3 : 2); i++) {
        aril_tensor *y = l->opts.norm_first ? aril_forward(l->norm[i], x) : x;
        x = aril_add(x, aril_forward(l->drop[i], parts[i](l, y, all)));
        if (!l->opts.norm_first) x = aril_forward(l->norm[i], x);
    }
    out[0] = x;
}

static const aril__layer encoder_layer = { .base = { .type = "TransformerEncoderLayer",
                                                     .size = sizeof(layer),
                                                     .forward = run_layer,
                                                     .build = build_layer,
                                                     .inputs = ENCODER_INPUTS } };
static const aril__layer decoder_layer = { .base = { .type = "TransformerDecoderLayer",
                                                     .size = sizeof(layer),
                                                     .forward = run_layer,
                                                     .build = build_layer,
                                                     .inputs = DECODER_INPUTS } };

/* Fills in the defaults; false, with an error, when an option is invalid. */
static bool complete_opts(const char *what, int64_t embed, int heads, aril_nn_transformer_opts *o)
{
    if (o->feedforward == 0) o->feedforward = 2048;
    o->dropout = o->dropout == 0 ? 0.1 : o->dropout == ARIL_ZERO ? 0 : o->dropout;
    if (embed < 0 || heads < 1 || o->feedforward < 0)
        aril__fail(
            ARIL_ERR_ARG,
            "%s: %lld values, %d heads, feedforward %lld; expected 0 (inferred) or more, 1 or "
            "more, 0 (2048) or more",
            what, (long long)embed, heads, (long long)o->feedforward);
    else if (embed % heads != 0)
        aril__fail(ARIL_ERR_ARG, "%s: %d heads do not divide %lld values", what, heads,
                   (long long)embed);
    else if (!(o->dropout >= 0 && o->dropout <= 1))
        aril__fail(ARIL_ERR_ARG, "%s: dropout %g, expected 0 to 1", what, o->dropout);
    else
        return true;
    return false;
}

static aril_module *layer_new(const aril__layer *class, int64_t embed, int heads,
                              aril_nn_transformer_opts opts)
{
    if (!complete_opts(class->base.type, embed, heads, &opts)) return NULL;
    aril_module *m = aril__layer_make(class);
    if (!m) return NULL;
    *(layer *)aril_module_data(m) =
        (layer){ .embed = embed, .heads = heads, .decodes = class == &decoder_layer, .opts = opts };
    return embed ? aril__layer_made(m, add_layer(m)) : m;
}

aril_module *aril_nn_transformer_encoder_layer_with(int64_t embed, int heads,
                                                    aril_nn_transformer_opts opts)
{
    return layer_new(&encoder_layer, embed, heads, opts);
}

aril_module *aril_nn_transformer_encoder_layer(int64_t embed, int heads)
{
    return layer_new(&encoder_layer, embed, heads, (aril_nn_transformer_opts){ 0 });
}

aril_module *aril_nn_transformer_decoder_layer_with(int64_t embed, int heads,
                                                    aril_nn_transformer_opts opts)
{
    return layer_new(&decoder_layer, embed, heads, opts);
}

aril_module *aril_nn_transformer_decoder_layer(int64_t embed, int heads)
{
    return layer_new(&decoder_layer, embed, heads, (aril_nn_transformer_opts){ 0 });
}

/* ---- stacks of layers ---- */

typedef struct stack {
    aril_module *layers, *norm;
} stack;

static void run_stack(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                      aril_tensor **out)
{
    const stack *s = aril_module_data(self);
    aril_tensor *all[DECODER_INPUTS];
    (void)n_out;
    memcpy(all, in, (size_t)n_in * sizeof *in);
    for (int i = 0; i < s->layers->n_children; i++) {
        aril_tensor *y = aril_forward_n(s->layers->child[i].module, (aril_list){ n_in, all });
        if (aril__is_poison(y)) {
            out[0] = y;
            return;
        }
        if (i) aril_drop(all[0]);
        all[0] = y;
    }
    out[0] = s->norm ? aril_forward(s->norm, all[0]) : all[0];
}

static const aril__layer encoder = { .base = { .type = "TransformerEncoder",
                                               .size = sizeof(stack),
                                               .forward = run_stack,
                                               .inputs = ENCODER_INPUTS } };
static const aril__layer decoder = { .base = { .type = "TransformerDecoder",
                                               .size = sizeof(stack),
                                               .forward = run_stack,
                                               .inputs = DECODER_INPUTS } };

static aril_module *stack_new(const aril__layer *class, const aril__layer *each, int64_t embed,
                              int heads, int layers, aril_nn_transformer_opts opts)
{
    enum { MAX_LAYERS = 10000 };
    if (layers < 1 || layers > MAX_LAYERS) {
        aril__fail(ARIL_ERR_ARG, "%s: %d layers, expected 1 to %d", class->base.type, layers,
                   MAX_LAYERS);
        return NULL;
    }
    aril_module *m = aril__layer_make(class);
    stack *s = m ? aril_module_data(m) : NULL;
    if (!m) return NULL;
    bool made = (s->layers = aril_module_add(m, "layers", aril_nn_list())) != NULL;
    for (int i = 0; i < layers && made; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        made = aril_module_add(s->layers, name, layer_new(each, embed, heads, opts)) != NULL;
    }
    if (made && opts.final_norm)
        made = (s->norm = aril_module_add(m, "norm", norm_new(embed, &opts))) != NULL;
    if (made) return m;
    aril_module_release(m);
    return NULL;
}

aril_module *aril_nn_transformer_encoder(int64_t embed, int heads, int layers,
                                         aril_nn_transformer_opts opts)
{
    return stack_new(&encoder, &encoder_layer, embed, heads, layers, opts);
}

aril_module *aril_nn_transformer_decoder(int64_t embed, int heads, int layers,
                                         aril_nn_transformer_opts opts)
{
    return stack_new(&decoder, &decoder_layer, embed, heads, layers, opts);
}

/* ---- encoder and decoder ---- */

typedef struct pair {
    aril_module *encoder, *decoder;
} pair;

/* inputs: source, target; masks of pairs: source, target, target and source; masks of keys: source,
 * target, source in the decoder */
enum { SOURCE, TARGET, S_PAIRS, T_PAIRS, CROSS_PAIRS, S_KEYS, T_KEYS, CROSS_KEYS, PAIR_INPUTS };

static void run_pair(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                     aril_tensor **out)
{
    const pair *p = aril_module_data(self);
    aril_tensor *x[PAIR_INPUTS] = { NULL };
    (void)n_out;
    memcpy(x, in, (size_t)n_in * sizeof *in);
    if (!x[TARGET]) {
        aril__fail(ARIL_ERR_ARG, "the second input, the target, is missing");
        out[0] = aril__poison();
        return;
    }
    aril_tensor *memory = aril_forward_n(p->encoder, ARIL_LIST(x[SOURCE], x[S_PAIRS], x[S_KEYS]));
    if (aril__is_poison(memory)) {
        out[0] = memory;
        return;
    }
    out[0] = aril_forward_n(p->decoder, ARIL_LIST(x[TARGET], memory, x[T_PAIRS], x[CROSS_PAIRS],
                                                  x[T_KEYS], x[CROSS_KEYS]));
}

static const aril__layer transformer = { .base = { .type = "Transformer",
                                                   .size = sizeof(pair),
                                                   .forward = run_pair,
                                                   .inputs = PAIR_INPUTS } };

static bool init_weights(aril_module *m)
{
    const aril_named *all = aril_parameters(m);
    if (!all) return false;
    bool good = true;
    for (int i = 0; i < all->n && good; i++)
        if (aril_ndim(all->at[i]) > 1)
            good = aril_tensor_status(aril_init_xavier_uniform(all->at[i], 1)) == ARIL_OK;
    return good;
}

aril_module *aril_nn_transformer(int64_t embed, int heads, int encoder_layers, int decoder_layers,
                                 aril_nn_transformer_opts opts)
{
    if (embed < 1) {
        aril__fail(ARIL_ERR_ARG, "Transformer: %lld values, expected at least 1", (long long)embed);
        return NULL;
    }
    aril_module *m = aril__layer_make(&transformer);
    pair *p = m ? aril_module_data(m) : NULL;
    if (!m) return NULL;
    opts.final_norm = true;
    aril_nn_transformer_opts of_encoder = opts;
    of_encoder.causal = false;
    p->encoder =
        aril_module_add(m, "encoder",
                        aril_nn_transformer_encoder(embed, heads, encoder_layers, of_encoder));
    if (p->encoder)
        p->decoder =
            aril_module_add(m, "decoder",
                            aril_nn_transformer_decoder(embed, heads, decoder_layers, opts));
    if (p->encoder && p->decoder && init_weights(m)) return m;
    aril_module_release(m);
    return NULL;
}
