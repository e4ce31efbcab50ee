/* Dense layers and embeddings. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/reduce.h"
#include "aril/math.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "models/keras/keras.h"

#include <string.h>

/* ---- dense ---- */

typedef struct dense {
    keras_base base;
    keras_activation activation;
} dense;

static aril_tensor *dense_fused(aril_module *self, aril_tensor *x, aril_activation activation)
{
    return aril_linear_with(x, aril__own_at(self, 0), aril__own_at(self, 1),
                            (aril_linear_opts){ .activation = activation });
}

ARIL__FORWARD(dense_forward)
{
    const dense *d = aril_module_data(self);
    out[0] = dense_fused(self, in[0], d->activation.fused);
    if (!d->activation.fused) out[0] = aril__keras_activate(&d->activation, out[0]);
}

static const aril__layer plain_layer = {
    .base = { .size = sizeof(dense), .type = "Dense", .forward = dense_forward },
    .fused = dense_fused
};
static const aril__layer activated_layer = {
    .base = { .size = sizeof(dense), .type = "Dense", .forward = dense_forward }
};

/* [in,out] as [out,in]. Inputs that are flattened images come in channels-first order, which the
 * columns follow. One copy in all: kernels after a Flatten are the largest of a network. */
static aril_tensor *turned(const keras_make *k, aril_tensor *kernel)
{
    if (k->order != KERAS_FLATTEN) return aril_t(kernel);
    aril_shape split = k->in[0].flat;
    int n = split.ndim;
    aril_axes axes = { .n = n + 1, .axis = { n, n - 1 } };
    for (int i = 2; i <= n; i++) axes.axis[i] = i - 2;
    split.dim[split.ndim++] = kernel->dim[1];
    aril_tensor *t = aril_permute(aril_reshape(kernel, split), axes);
    return aril_reshape(t, ARIL_SHAPE(kernel->dim[1], kernel->dim[0]));
}

aril_module *aril__keras_dense(keras_make *k)
{
    ARIL_SCOPE;
    keras_activation activation;
    int64_t units, features = k->in[0].tensor->dim[k->rank - 1];
    aril_status s = aril__keras_activation(k, aril__json_get(k->config, "activation"), &activation);
    if (s == ARIL_OK) s = aril__keras_integer(k, "units", 1, 1, &units);
    aril_tensor *kernel = s == ARIL_OK ? aril__keras_variable(k, "kernel") : NULL;
    if (!kernel ||
        aril__keras_check(k, "kernel", kernel, ARIL_SHAPE(features < 0 ? -1 : features, units)) < 0)
        return NULL;
    aril_module *m = aril__keras_module(k, activation.fn ? &activated_layer : &plain_layer);
    if (!m) return NULL;
    ((dense *)aril_module_data(m))->activation = activation;
    s = aril__keras_own(k, m, "kernel", turned(k, kernel));
    if (s == ARIL_OK) s = aril__keras_own_shaped(k, m, "bias", ARIL_SHAPE(units));
    return aril__keras_made(m, s);
}

/* ---- EinsumDense ---- */

typedef struct einsum_dense {
    keras_base base;
    char equation[64];
    aril_shape bias;
    keras_activation activation;
} einsum_dense;

ARIL__FORWARD(einsum_forward)
{
    const einsum_dense *e = aril_module_data(self);
    aril_tensor *y = aril_einsum(e->equation, ARIL_LIST(in[0], aril__own_at(self, 0)));
    if (aril__own_at(self, 1)) y = aril_add(y, aril_reshape(aril__own_at(self, 1), e->bias));
    out[0] = aril__keras_activate(&e->activation, y);
}

/* An ellipsis stands for the axes that the input has more: letters of its own. */
static bool expand_equation(const keras_make *k, const char *text, char *out, size_t size)
{
    size_t letters = 0, at = 0;
    bool arrow = false, dots = strstr(text, "...") != NULL;
    for (const char *c = text; *c && *c != ','; c++) letters += *c != '.' && *c != ' ';
    if (letters > (size_t)k->rank) return false;
    for (const char *c = text; *c; c++) {
        if (at + ARIL_MAX_DIMS + 2 > size) return false;
        arrow |= *c == '>';
        if (*c == ' ') continue;
        if (*c != '.') {
            out[at++] = *c;
            continue;
        }
        if (strncmp(c, "...", 3) != 0) return false;
        c += 2;
        for (size_t i = 0; i < (size_t)k->rank - letters; i++) out[at++] = (char)('A' + i);
    }
    out[at] = 0;
    return arrow && (dots || letters == (size_t)k->rank);
}

aril_module *aril__keras_einsum_dense(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(einsum_dense), .type = "EinsumDense", .forward = einsum_forward }
    };
    ARIL_SCOPE;
    einsum_dense e = { 0 };
    const char *text = aril__json_text(aril__json_get(k->config, "equation"), ""),
               *axes = aril__json_text(aril__json_get(k->config, "bias_axes"), "");
    if (!expand_equation(k, text, e.equation, sizeof e.equation)) {
        aril__keras_fail(k, ARIL_ERR_FORMAT, "equation \"%s\" does not fit its input", text);
        return NULL;
    }
    if (aril__keras_activation(k, aril__json_get(k->config, "activation"), &e.activation) < 0)
        return NULL;
    aril_tensor *kernel = aril__keras_variable(k, "kernel"),
                *bias = aril__keras_has(k, "bias") ? aril__keras_variable(k, "bias") : NULL;
    if (!kernel || (aril__keras_has(k, "bias") && !bias)) return NULL;
    const char *result = strchr(e.equation, '>') + 1;
    int n = 0;
    for (const char *c = result; *c && bias && e.bias.ndim < ARIL_MAX_DIMS; c++) {
        bool has = strchr(axes, *c) != NULL && n < bias->ndim;
        e.bias.dim[e.bias.ndim++] = has ? bias->dim[n++] : 1;
    }
    aril_module *m = aril__keras_module(k, &layer);
    if (!m) return NULL;
    e.base = *(keras_base *)aril_module_data(m);
    *(einsum_dense *)aril_module_data(m) = e;
    aril_status s = bias && n != bias->ndim
                        ? aril__keras_fail(k, ARIL_ERR_FORMAT, "its bias does not fit bias_axes")
                        : aril__keras_own(k, m, "kernel", kernel);
    if (s == ARIL_OK) s = aril__keras_own(k, m, "bias", bias);
    return aril__keras_made(m, s);
}

/* ---- embedding ---- */

typedef struct embedding {
    keras_base base;
    bool mask_zero;
} embedding;

ARIL__FORWARD(embedding_forward)
{
    const embedding *e = aril_module_data(self);
    out[0] = aril_embedding(aril_cast(in[0], ARIL_I64), aril__own_at(self, 0),
                            (aril_embedding_opts){ 0 });
    if (n_out > 1 && e->mask_zero) out[1] = aril_ne_scalar(in[0], 0);
}

aril_module *aril__keras_embedding(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(embedding), .type = "Embedding", .forward = embedding_forward }
    };
    int64_t rows, size;
    aril_status s = aril__keras_integer(k, "input_dim", 1, 1, &rows);
    if (s == ARIL_OK) s = aril__keras_integer(k, "output_dim", 1, 1, &size);
    aril_module *m = s == ARIL_OK ? aril__keras_module(k, &layer) : NULL;
    if (!m) return NULL;
    embedding *e = aril_module_data(m);
    e->mask_zero = aril__json_bool(aril__json_get(k->config, "mask_zero"), false);
    m->made.outputs = e->mask_zero ? 2 : 1;
    return aril__keras_made(m, aril__keras_own_shaped(k, m, "embeddings", ARIL_SHAPE(rows, size)));
}

/* Steps of [N,T,F] whose features all equal a value are masked, and 0. */
typedef struct masking {
    keras_base base;
    double value;
} masking;

ARIL__FORWARD(masking_forward)
{
    const masking *mk = aril_module_data(self);
    aril_tensor *keep = aril_any(aril_ne_scalar(in[0], mk->value), ARIL_KEEPDIM(-1));
    out[0] = aril_where(keep, in[0], aril_scalar(0));
    if (n_out > 1) out[1] = aril_squeeze(keep, ARIL_AXES(-1));
}

aril_module *aril__keras_masking(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(masking),
                                                 .type = "Masking",
                                                 .forward = masking_forward,
                                                 .outputs = 2 } };
    aril_module *m = aril__keras_module(k, &layer);
    if (m)
        ((masking *)aril_module_data(m))->value =
            aril__json_real(aril__json_get(k->config, "mask_value"), 0);
    return m;
}
