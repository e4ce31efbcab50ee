/* Dropout layers: one definition, one row per layer. */
#include "nn/module.h"

#include "aril/neural.h"

typedef aril_tensor *dropout_fn(aril_tensor *x, double p, aril_dropout_opts opts);

typedef struct dropout {
    dropout_fn *fn;
    double p;
} dropout;

ARIL__FORWARD(dropout_forward)
{
    const dropout *d = aril_module_data(self);
    out[0] = d->fn(in[0], d->p, (aril_dropout_opts){ .eval = !aril__is_training(self) });
}

static void dropout_describe(const aril_module *self, char *text, size_t size)
{
    const dropout *d = aril_module_data(self);
    snprintf(text, size, "p=%g, inplace=False", d->p);
}

static aril_module *make(const aril__layer *layer, dropout_fn *fn, double p)
{
    if (!(p >= 0 && p <= 1)) {
        aril__fail(ARIL_ERR_ARG, "%s: expected a probability from 0 to 1, got %g", layer->base.type,
                   p);
        return NULL;
    }
    aril_module *m = aril__layer_make(layer);
    if (m) *(dropout *)aril_module_data(m) = (dropout){ fn, p };
    return m;
}

#define DROPOUT(name, shown)                        \
    aril_module *aril_nn_##name(double p)           \
    {                                               \
        static const aril__layer layer = {          \
            .base = { .type = shown,                \
                      .size = sizeof(dropout),      \
                      .forward = dropout_forward,   \
                      .describe = dropout_describe, \
                      .only_in_training = true },   \
        };                                          \
        return make(&layer, aril_##name, p);        \
    }

DROPOUT(dropout, "Dropout")
DROPOUT(dropout1d, "Dropout1d")
DROPOUT(dropout2d, "Dropout2d")
DROPOUT(dropout3d, "Dropout3d")
DROPOUT(alpha_dropout, "AlphaDropout")
DROPOUT(feature_alpha_dropout, "FeatureAlphaDropout")
