/* BERT (Devlin, Chang, Lee, Toutanova: BERT: Pre-training of Deep Bidirectional Transformers for
 * Language Understanding, 2018), with the parameter names of Hugging Face's BertModel. */
#include "models/bert.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/init.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/tensor.h"
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

#include <math.h>

enum { INPUTS = 3 }; /* tokens, types, mask */

/* What the parts of a network share while it is built. */
typedef struct plan {
    const aril_bert_opts *o;
    double std; /* of new matrices; 0: a file will give them */
} plan;

/* ---- parts ---- */

static void draw(aril_module *m, double std)
{
    if (!m || aril__sketching()) return;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_init_normal(aril_module_own(m, 0), 0, std);
}

static aril_module *linear(const plan *p, int64_t in, int64_t out)
{
    aril_module *m = aril_nn_linear(in, out);
    if (p->std > 0) draw(m, p->std);
    if (m && !aril__sketching()) aril_init_zeros(aril_module_own(m, 1));
    return m;
}

static aril_module *embedding(const plan *p, int64_t rows, int64_t padding)
{
    aril_module *m = aril_nn_embedding_with(rows, p->o->width,
                                            (aril_nn_embedding_opts){ .padding_idx = padding });
    if (p->std > 0) draw(m, p->std);
    if (m && padding && !aril__sketching()) {
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        aril_zero_(aril_select(aril_module_own(m, 0), 0, 0));
    }
    return m;
}

static aril_module *layer_norm(const plan *p)
{
    return aril_nn_layer_norm_with(ARIL_SHAPE(p->o->width),
                                   (aril_nn_norm_opts){ .eps = p->o->eps });
}

static aril_module *dropout(const plan *p)
{
    return aril_nn_dropout(p->o->dropout == ARIL_ZERO ? 0 : p->o->dropout);
}

/* norm(x + dropout(dense(y))) of a module with the inputs y, x. */
static aril_tensor *residual_forward(aril_module *self, aril_list in)
{
    aril_tensor *y = aril_forward(aril_module_child(self, 0), in.at[0]);
    y = aril_forward(aril_module_child(self, 2), y);
    return aril_forward(aril_module_child(self, 1), aril_add(y, in.at[1]));
}

static aril_module *residual(const plan *p, int64_t in)
{
    aril_module *m = aril_module_new_n("BertOutput", 0, residual_forward);
    m = aril__with(m, "dense", linear(p, in, p->o->width));
    m = aril__with(m, "LayerNorm", layer_norm(p));
    return aril__with(m, "dropout", dropout(p));
}

/* ---- embeddings ---- */

/* Tokens [N,T] and perhaps their types -> [N,T,E]. Without types, all are of type 0. */
static aril_tensor *embeddings_forward(aril_module *self, aril_list in)
{
    aril_tensor *tokens = in.at[0];
    aril_tensor *positions =
        aril_arange(0, (double)aril_size(tokens, 1), 1, ARIL_I64, aril_device_of(tokens));
    aril_tensor *types = in.n > 1 && in.at[1]
                             ? aril_forward(aril_module_child(self, 2), in.at[1])
                             : aril_select(aril_module_own(aril_module_child(self, 2), 0), 0, 0);
    aril_tensor *x = aril_add(aril_forward(aril_module_child(self, 0), tokens), types);
    x = aril_add(x, aril_forward(aril_module_child(self, 1), positions));
    return aril_forward(aril_module_child(self, 4), aril_forward(aril_module_child(self, 3), x));
}

static aril_module *embeddings(const plan *p)
{
    aril_module *m = aril_module_new_n("BertEmbeddings", 0, embeddings_forward);
    m = aril__with(m, "word_embeddings", embedding(p, p->o->vocabulary, ARIL_ZERO));
    m = aril__with(m, "position_embeddings", embedding(p, p->o->context, 0));
    m = aril__with(m, "token_type_embeddings", embedding(p, p->o->types, 0));
    m = aril__with(m, "LayerNorm", layer_norm(p));
    return aril__with(m, "dropout", dropout(p));
}

/* ---- attention ---- */

typedef struct attention {
    int64_t heads;
    double dropout;
} attention;

/* [N,T,E] -> [N,heads,T,E/heads] */
static aril_tensor *split_heads(aril_tensor *x, int64_t heads)
{
    return aril_transpose(aril_unflatten(x, 2, ARIL_SHAPE(heads, -1)), 1, 2);
}

/* x [N,T,E] and perhaps a mask [N,1,1,T] -> [N,T,E] */
static aril_tensor *self_forward(aril_module *self, aril_list in)
{
    const attention *a = aril_module_data(self);
    aril_tensor *part[3];
    for (int i = 0; i < 3; i++)
        part[i] = split_heads(aril_forward(aril_module_child(self, i), in.at[0]), a->heads);
    aril_attention_opts opts = { .mask = in.n > 1 ? in.at[1] : NULL,
                                 .dropout_p = aril_module_training(self) ? a->dropout : 0 };
    aril_tensor *y = aril_scaled_dot_product_attention(part[0], part[1], part[2], opts);
    return aril_flatten(aril_transpose(y, 1, 2), 2, 3);
}

static aril_tensor *attention_forward(aril_module *self, aril_list in)
{
    aril_tensor *y = aril_forward_n(aril_module_child(self, 0), in);
    return aril_forward_n(aril_module_child(self, 1), ARIL_LIST(y, in.at[0]));
}

static aril_module *attention_of(const plan *p)
{
    static const char *const names[] = { "query", "key", "value" };
    double rate = p->o->attention_dropout;
    aril_module *self = aril_module_new_n("BertSelfAttention", sizeof(attention), self_forward);
    if (self)
        *(attention *)aril_module_data(self) =
            (attention){ p->o->heads, rate == ARIL_ZERO ? 0 : rate };
    for (int i = 0; i < 3; i++)
        self = aril__with(self, names[i], linear(p, p->o->width, p->o->width));
    aril_module *m = aril_module_new_n("BertAttention", 0, attention_forward);
    m = aril__with(m, "self", self);
    return aril__with(m, "output", residual(p, p->o->width));
}

/* ---- layers ---- */

static aril_tensor *layer_forward(aril_module *self, aril_list in)
{
    aril_tensor *x = aril_forward_n(aril_module_child(self, 0), in);
    aril_tensor *y = aril_forward(aril_module_child(self, 1), x);
    return aril_forward_n(aril_module_child(self, 2), ARIL_LIST(y, x));
}

static aril_module *layer(const plan *p)
{
    aril_module *inside =
        aril__with(aril_nn_sequential_of(0, NULL), "dense", linear(p, p->o->width, p->o->inner));
    inside = aril__with(inside, "intermediate_act_fn", aril_nn_gelu());
    aril_module *m = aril_module_new_n("BertLayer", 0, layer_forward);
    m = aril__with(m, "attention", attention_of(p));
    m = aril__with(m, "intermediate", inside);
    return aril__with(m, "output", residual(p, p->o->inner));
}

static aril_tensor *encoder_forward(aril_module *self, aril_list in)
{
    aril_module *layers = aril_module_child(self, 0);
    aril_tensor *x = in.at[0], *mask = in.n > 1 ? in.at[1] : NULL;
    for (int i = 0; i < aril_module_children(layers); i++) {
        aril_tensor *y = aril_forward_n(aril_module_child(layers, i), ARIL_LIST(x, mask));
        if (x != in.at[0]) aril_drop(x);
        x = y;
    }
    return x;
}

static aril_module *encoder(const plan *p)
{
    aril_module *layers = aril_nn_sequential_of(0, NULL);
    for (int i = 0; i < p->o->layers; i++) layers = aril__append(layers, layer(p));
    return aril__with(aril_module_new_n("BertEncoder", 0, encoder_forward), "layer", layers);
}

/* ---- networks ---- */

/* Whether tokens, types and mask have two dimensions; that they agree in them is seen later. */
static bool check_inputs(int n, aril_tensor *const *in)
{
    for (int i = 0; i < n; i++) {
        if (i > 0 ? !in[i] || aril_ndim(in[i]) == 2 : in[i] && aril_ndim(in[i]) == 2) continue;
        aril__fail(ARIL_ERR_SHAPE,
                   "BERT expects tokens, and perhaps their types and a mask, [N,T]");
        return false;
    }
    return true;
}

/* Tokens, types and mask -> vectors [N,T,E] */
static aril_tensor *encode(aril_module *self, int n, aril_tensor *const *in)
{
    if (!check_inputs(n, in)) return aril__poison();
    aril_tensor *types = n > 1 ? in[1] : NULL, *mask = n > 2 ? in[2] : NULL;
    aril_tensor *x = aril_forward_n(aril_module_child(self, 0), ARIL_LIST(in[0], types));
    if (mask) /* [N,1,1,T] */
        mask = aril_unsqueeze(aril_unsqueeze(aril_cast(mask, ARIL_BOOL), 1), 1);
    return aril_forward_n(aril_module_child(self, 1), ARIL_LIST(x, mask));
}

static void bert_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                         aril_tensor **out)
{
    out[0] = encode(self, n_in, in);
    if (n_out > 1 && aril_module_children(self) > 2)
        out[1] = aril_forward(aril_module_child(self, 2), aril_select(out[0], 1, 0));
}

static aril_module *bert(const plan *p, bool pooler)
{
    static const aril_module_class type = {
        .type = "BertModel", .forward = bert_forward, .inputs = INPUTS, .outputs = 2
    };
    aril_module *m = aril_module_make(&type);
    m = aril__with(m, "embeddings", embeddings(p));
    m = aril__with(m, "encoder", encoder(p));
    if (!pooler) return m;
    aril_module *last =
        aril__with(aril_nn_sequential_of(0, NULL), "dense", linear(p, p->o->width, p->o->width));
    return aril__with(m, "pooler", aril__with(last, "activation", aril_nn_tanh()));
}

/* Vectors [N,T,E] and the embedding of tokens -> scores [N,T,vocabulary] */
static aril_tensor *predictions_forward(aril_module *self, aril_list in)
{
    aril_tensor *x = aril_forward(aril_module_child(self, 0), in.at[0]);
    return aril_linear(x, in.at[1], aril_module_own(self, 0));
}

static aril_tensor *head_forward(aril_module *self, aril_list in)
{
    return aril_forward_n(aril_module_child(self, 0), in);
}

static void masked_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                           aril_tensor **out)
{
    (void)n_out;
    aril_module *net = aril_module_child(self, 0);
    aril_tensor *x = aril_forward_n(net, (aril_list){ n_in, (aril_tensor **)(uintptr_t)in });
    aril_module *words = aril_module_child(aril_module_child(net, 0), 0);
    out[0] = aril_forward_n(aril_module_child(self, 1), ARIL_LIST(x, aril_module_own(words, 0)));
}

static aril_module *masked(const plan *p)
{
    static const aril_module_class type = { .type = "BertForMaskedLM",
                                            .forward = masked_forward,
                                            .inputs = INPUTS };
    aril_module *transform =
        aril__with(aril_nn_sequential_of(0, NULL), "dense", linear(p, p->o->width, p->o->width));
    transform = aril__with(transform, "transform_act_fn", aril_nn_gelu());
    transform = aril__with(transform, "LayerNorm", layer_norm(p));
    aril_module *predictions = aril_module_new_n("BertLMPredictionHead", 0, predictions_forward);
    predictions = aril__with_parameter(predictions, "bias", ARIL_SHAPE(p->o->vocabulary), NULL, 0);
    predictions = aril__with(predictions, "transform", transform);
    aril_module *head = aril_module_new_n("BertOnlyMLMHead", 0, head_forward);
    aril_module *m = aril__with(aril_module_make(&type), "bert", bert(p, false));
    return aril__with(m, "cls", aril__with(head, "predictions", predictions));
}

/* ---- sizes ---- */

static bool check(const aril_bert_opts *o)
{
    enum { MOST = 1 << 24, LAYERS = 200 };
    const struct {
        const char *name;
        int64_t size, most;
    } sizes[] = {
        { "vocabulary", o->vocabulary, MOST }, { "context", o->context, MOST },
        { "types", o->types, MOST },           { "width", o->width, MOST },
        { "heads", o->heads, MOST },           { "layers", o->layers, LAYERS },
        { "inner", o->inner, MOST },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].size >= 1 && sizes[i].size <= sizes[i].most) continue;
        aril__fail(ARIL_ERR_ARG, "bert: %s must be from 1 to %lld, got %lld", sizes[i].name,
                   (long long)sizes[i].most, (long long)sizes[i].size);
        return false;
    }
    if (o->eps != ARIL_ZERO && !(o->eps >= 0 && isfinite(o->eps))) {
        aril__fail(ARIL_ERR_ARG, "bert: eps must be finite and not negative, got %g", o->eps);
        return false;
    }
    if (o->width % o->heads == 0) return true;
    aril__fail(ARIL_ERR_ARG, "bert: a width of %lld cannot be divided among %lld heads",
               (long long)o->width, (long long)o->heads);
    return false;
}

static aril_module *make(aril_bert_opts o, double std)
{
    if (!o.vocabulary) o.vocabulary = 30522;
    if (!o.context) o.context = 512;
    if (!o.types) o.types = 2;
    if (!o.width) o.width = 768;
    if (!o.heads) o.heads = 12;
    if (!o.layers) o.layers = 12;
    if (!o.inner) o.inner = 4 * o.width;
    if (o.eps == 0) o.eps = 1e-12;
    if (o.dropout == 0) o.dropout = 0.1;
    if (o.attention_dropout == 0) o.attention_dropout = 0.1;
    if (!check(&o)) return NULL;
    const plan p = { &o, std };
    return o.masked_lm ? masked(&p) : bert(&p, !o.no_pooler);
}

aril_module *aril_bert(aril_bert_opts o)
{
    return make(o, 0.02);
}

aril_module *aril__bert_empty(aril_bert_opts o)
{
    return make(o, 0);
}

/* ---- the published size ---- */

static aril_module *base(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (o->input.ndim != 1) {
        aril__fail(ARIL_ERR_SHAPE, "%s expects sequences of tokens, [T]", e->name);
        return NULL;
    }
    double rate = o->no_dropout ? ARIL_ZERO : 0;
    return aril_bert((aril_bert_opts){ .vocabulary = o->classes,
                                       .context = o->input.dim[0],
                                       .dropout = rate,
                                       .attention_dropout = rate });
}

/* config.json and the vocabulary of its tokenizer. */
static const aril_zoo_file files[] = {
    { "config.json", "7160e1553ad2ca51d8c1cb066be533db31826e12d173824c1bb0cb1a4f187d20" },
    { "vocab.txt", "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3" },
    { 0 },
};

const aril_zoo_entry aril__zoo_bert[] = {
    { .name = "bert-base-uncased",
      .family = "bert",
      .paper = "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
      .year = 2018,
      ARIL__TOKENS(512),
      .classes = 30522,
      .make = base,
      .weights = { .url = "https://huggingface.co/google-bert/bert-base-uncased/resolve/"
                          "86b5e0934494bd15c9632b12f734a8a67f723594/model.safetensors",
                   .sha256 = "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3",
                   .files = files },
      .about = "BERT of 110 million parameters, for text in lower case" },
    { 0 },
};
