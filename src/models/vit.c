/* Vision Transformer (Dosovitskiy et al.: An Image is Worth 16x16 Words: Transformers for Image
 * Recognition at Scale, 2020). */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/init.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/nn_sequence.h"
#include "aril/view.h"
#include "core/error.h"
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

#include <math.h>
#include <string.h>

typedef struct config {
    int64_t patch, width, inside; /* channels; those inside a multilayer perceptron */
    int layers, heads;
} config;

static aril_module *layer_norm(int64_t width)
{
    return aril_nn_layer_norm_with(ARIL_SHAPE(width), (aril_nn_norm_opts){ .eps = 1e-6 });
}

/* ---- encoder layers ---- */

/* x + attention(norm(x)), then the same with the multilayer perceptron. */
static aril_tensor *layer_forward(aril_module *self, aril_tensor *x)
{
    aril_tensor *y = aril_forward(aril_module_child(self, 0), x);
    y = aril_forward_n(aril_module_child(self, 1), ARIL_LIST(y, y, y));
    x = aril_add(aril_forward(aril_module_child(self, 2), y), x);
    y = aril_forward(aril_module_child(self, 3), x);
    return aril_add(x, aril_forward(aril_module_child(self, 4), y));
}

static aril_module *encoder_layer(const config *c)
{
    aril_module *m = aril_module_new("EncoderBlock", 0, layer_forward);
    m = aril__with(m, "ln_1", layer_norm(c->width));
    m = aril__with(m, "self_attention",
                   aril_nn_multihead_attention_with(
                       c->width, c->heads, (aril_nn_attention_opts){ .batch_first = true }));
    m = aril__with(m, "dropout", aril_nn_dropout(0));
    m = aril__with(m, "ln_2", layer_norm(c->width));
    return aril__with(m, "mlp",
                      aril_nn_sequential(aril_nn_linear(c->width, c->inside), aril_nn_gelu(),
                                         aril_nn_dropout(0), aril_nn_linear(c->inside, c->width),
                                         aril_nn_dropout(0)));
}

/* ---- the encoder ---- */

/* [N,L,E] -> [N,L,E] */
static aril_tensor *encoder_forward(aril_module *self, aril_tensor *x)
{
    x = aril_add(x, aril_module_own(self, 0));
    return aril__run_children(self, 0, aril_module_children(self) - 1, x);
}

static aril_module *encoder(const config *c, int64_t length)
{
    aril_module *layers = aril_nn_sequential_of(0, NULL);
    for (int i = 0; i < c->layers; i++)
        layers = aril__with_number(layers, "encoder_layer_", i, encoder_layer(c));
    aril_module *m = aril_module_new("Encoder", 0, encoder_forward);
    m = aril__with_parameter(m, "pos_embedding", ARIL_SHAPE(1, length, c->width), aril__set_normal,
                             0.02);
    m = aril__with(m, "dropout", aril_nn_dropout(0));
    m = aril__with(m, "layers", layers);
    return aril__with(m, "ln", layer_norm(c->width));
}

/* ---- the network ---- */

static aril_tensor *vit_forward(aril_module *self, aril_tensor *x)
{
    aril_tensor *y = aril_forward(aril_module_child(self, 0), x); /* [N,E,H,W] */
    y = aril_transpose(aril_flatten(y, 2, 3), 1, 2);              /* [N,HW,E] */
    aril_tensor *token = aril_module_own(self, 0);
    token = aril_expand(token, ARIL_SHAPE(aril_size(x, 0), -1, -1));
    y = aril_cat(ARIL_LIST(token, y), 1);
    y = aril_forward(aril_module_child(self, 1), y);
    return aril_forward(aril_module_child(self, 2), aril_select(y, 1, 0));
}

/* Xavier's uniform distribution in the multilayer perceptrons. */
static void init_layer(aril_module *m, const char *path, void *ctx)
{
    (void)ctx;
    const char *type = aril_module_type(m);
    aril_tensor *w = aril_module_own(m, 0), *bias = aril_module_own(m, 1);
    if (strcmp(type, "Conv2d") == 0) {
        double fan = (double)(aril_size(w, 1) * aril_size(w, 2) * aril_size(w, 3));
        aril_init_truncated_normal(w, 0, sqrt(1 / fan), -2, 2);
        aril_init_zeros(bias);
    } else if (strcmp(type, "Linear") == 0 && strstr(path, "mlp")) {
        aril_init_xavier_uniform(w, 1);
        aril_init_normal(bias, 0, 1e-6);
    } else if (strcmp(path, "heads.head") == 0) {
        aril_init_zeros(w);
        aril_init_zeros(bias);
    }
}

static aril_module *vit(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    const config *c = e->config;
    int64_t height = o->input.dim[1], width = o->input.dim[2];
    if (height % c->patch || width % c->patch) {
        aril__fail(ARIL_ERR_SHAPE,
                   "%s divides images into patches of %lld x %lld pixels; %lld x %lld is not a "
                   "multiple of that",
                   e->name, (long long)c->patch, (long long)c->patch, (long long)height,
                   (long long)width);
        return NULL;
    }
    int64_t patches = (height / c->patch) * (width / c->patch);
    aril_module *m = aril_module_new("VisionTransformer", 0, vit_forward);
    m = aril__with_parameter(m, "class_token", ARIL_SHAPE(1, 1, c->width), NULL, 0);
    m = aril__with(m, "conv_proj",
                   aril__conv_bias(o->input.dim[0], c->width, c->patch, c->patch, 0));
    m = aril__with(m, "encoder", encoder(c, patches + 1));
    m = aril__with(m, "heads",
                   aril__with(aril_nn_sequential_of(0, NULL), "head",
                              aril_nn_linear(c->width, o->classes)));
    return aril__init_layers(m, init_layer, NULL);
}

const aril_zoo_entry aril__zoo_vit[] = {
    { .name = "vit_b_16",
      .family = "vit",
      .paper = "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
      .year = 2020,
      ARIL__IMAGENET_224,
      ARIL__TORCHVISION("vit_b_16", "c867db91"),
      .make = vit,
      .config = &(const config){ 16, 768, 3072, 12, 12 },
      .about = "Vision Transformer, the base form, on patches of 16 x 16 pixels" },
    { 0 },
};
