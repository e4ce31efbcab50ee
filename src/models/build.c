#include "models/build.h"

#include "aril/create.h"
#include "aril/init.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/shape.h"
#include "nn/module.h"

#include <string.h>

bool aril__takes_image(const char *network, aril_shape input)
{
    if (input.ndim == 3) return true;
    char text[ARIL__SHAPE_TEXT];
    aril__fail(ARIL_ERR_SHAPE, "%s expects images, [C,H,W], got inputs of shape %s", network,
               aril__shape_text(text, input.ndim, input.dim));
    return false;
}

/* ---- putting together ---- */

aril_module *aril__with(aril_module *m, const char *name, aril_module *child)
{
    if (!m) {
        aril_module_release(child);
        return NULL;
    }
    if (aril_module_add(m, name, child)) return m;
    aril_module_release(m);
    return NULL;
}

aril_module *aril__append(aril_module *m, aril_module *child)
{
    return aril__with_number(m, "", m ? aril_module_children(m) : 0, child);
}

aril_module *aril__with_number(aril_module *m, const char *name, int number, aril_module *child)
{
    char text[48];
    snprintf(text, sizeof text, "%s%d", name, number);
    return aril__with(m, text, child);
}

/* ---- layers ---- */

aril_module *aril__conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding)
{
    return aril_nn_conv2d_with(in, out, kernel,
                               (aril_nn_conv_opts){
                                   .stride = { stride }, .padding = { padding }, .no_bias = true });
}

aril_module *aril__conv_bias(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                             int64_t padding)
{
    return aril_nn_conv2d_with(in, out, kernel,
                               (aril_nn_conv_opts){ .stride = { stride }, .padding = { padding } });
}

aril_module *aril__conv_norm(int64_t in, int64_t out, int64_t kernel, aril__conv_norm_opts opts)
{
    aril_module *conv = aril_nn_conv2d_with(in, out, kernel,
                                            (aril_nn_conv_opts){ .stride = { opts.stride },
                                                                 .padding = { kernel / 2 },
                                                                 .groups = opts.groups,
                                                                 .no_bias = true });
    aril_module *m = aril__append(aril_nn_sequential_of(0, NULL), conv);
    m = aril__append(m, aril_nn_batch_norm2d_with(out, opts.norm));
    return opts.activation ? aril__append(m, opts.activation()) : m;
}

aril_module *aril__max_pool(int64_t kernel, int64_t stride, int64_t padding)
{
    return aril_nn_max_pool2d_with(kernel, (aril_pool_opts){ .stride = { stride },
                                                             .padding = { padding } });
}

aril_module *aril__max_pool_ceil(int64_t kernel, int64_t stride, int64_t padding)
{
    return aril_nn_max_pool2d_with(kernel, (aril_pool_opts){ .stride = { stride },
                                                             .padding = { padding },
                                                             .ceil_mode = true });
}

aril_module *aril__alexnet_norm(void)
{
    /* The layer's alpha is for the mean of the five squares. */
    return aril_nn_local_response_norm_with(5, (aril_lrn_opts){ .alpha = 5e-4, .k = 2 });
}

aril_module *aril__dropout(const aril_zoo_opts *opts, double p)
{
    return aril_nn_dropout(opts->no_dropout ? 0 : p);
}

/* ---- squeeze and excitation ---- */

static aril_tensor *squeeze_excite_forward(aril_module *self, aril_tensor *x)
{
    aril_tensor *scale = aril__run_children(self, 0, aril_module_children(self) - 1, x);
    return aril_mul(x, scale);
}

aril_module *aril__squeeze_excite(int64_t channels, int64_t squeezed,
                                  aril_module *(*activation)(void), aril_module *(*gate)(void))
{
    aril_module *m = aril_module_new("SqueezeExcitation", 0, squeeze_excite_forward);
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "fc1", aril_nn_conv2d(channels, squeezed, 1));
    m = aril__with(m, "activation", activation());
    m = aril__with(m, "fc2", aril_nn_conv2d(squeezed, channels, 1));
    return aril__with(m, "scale_activation", gate());
}

/* ---- stochastic depth ---- */

static aril_tensor *stochastic_depth_forward(aril_module *self, aril_tensor *x)
{
    double p = *(const double *)aril_module_data(self);
    if (p <= 0 || !aril_module_training(self)) return x;
    aril_shape rows = { .ndim = aril_ndim(x), .dim = { aril_size(x, 0) } };
    for (int i = 1; i < rows.ndim; i++) rows.dim[i] = 1;
    aril_tensor *ones = aril_ones(rows, aril_dtype_of(x), aril_device_of(x));
    return aril_mul(x, aril_dropout(ones, p, (aril_dropout_opts){ 0 }));
}

aril_module *aril__stochastic_depth(double p)
{
    aril_module *m = aril_module_new("StochasticDepth", sizeof(double), stochastic_depth_forward);
    if (m) *(double *)aril_module_data(m) = p;
    return m;
}

/* ---- running ---- */

aril_tensor *aril__run_children(aril_module *m, int first, int last, aril_tensor *x)
{
    aril_tensor *y = x;
    for (int i = first; i <= last; i++) {
        aril_module *child = aril_module_child(m, i);
        aril_activation act = ARIL_NO_ACTIVATION;
        if (i < last && child->layer && child->layer->fused && !child->hooks)
            act = aril__activation_of(aril_module_child(m, i + 1));
        aril_tensor *z = act ? aril__forward_fused(child, y, act) : aril_forward(child, y);
        i += act != ARIL_NO_ACTIVATION;
        if (y != x && z != y) aril_drop(y);
        y = z;
    }
    return y;
}

aril_tensor *aril__run_add(aril_module *m, aril_tensor *x, aril_tensor *residual)
{
    int n = aril_module_children(m);
    if (!n || m->hooks) return aril__forward_add(m, x, residual);
    aril_tensor *y = n > 1 ? aril__run_children(m, 0, n - 2, x) : x;
    return aril__run_add(aril_module_child(m, n - 1), y, residual);
}

/* ---- initialization ---- */

aril_module *aril__init_layers(aril_module *m, aril__init_fn *fn, void *ctx)
{
    if (aril__sketching()) return m;
    ARIL_SCOPE;
    if (m && aril_module_visit(m, fn, ctx) == ARIL_OK) return m;
    aril_module_release(m);
    return NULL;
}

static bool is_conv(const aril_module *m)
{
    return strcmp(aril_module_type(m), "Conv2d") == 0;
}

static bool is_linear(const aril_module *m)
{
    return strcmp(aril_module_type(m), "Linear") == 0;
}

static void init_image_layer(aril_module *m, const char *path, void *ctx)
{
    (void)path;
    const double *std = ctx;
    bool conv = is_conv(m);
    if (!conv && !(is_linear(m) && *std > 0)) return;
    aril_tensor *w = aril_module_own(m, 0), *b = aril_module_own(m, 1);
    if (conv)
        aril_init_kaiming_normal(w, (aril_kaiming_opts){ .fan_out = true, .nonlinearity = "relu" });
    else
        aril_init_normal(w, 0, *std);
    if (b) aril_init_zeros(b);
}

aril_module *aril__init_images(aril_module *m, double linear_std)
{
    return aril__init_layers(m, init_image_layer, &linear_std);
}

typedef struct truncated {
    double std;
    bool zero_bias;
} truncated;

static void init_truncated_layer(aril_module *m, const char *path, void *ctx)
{
    (void)path;
    const truncated *t = ctx;
    if (!is_conv(m) && !is_linear(m)) return;
    aril_init_truncated_normal(aril_module_own(m, 0), 0, t->std, -2, 2);
    if (t->zero_bias && aril_module_own(m, 1)) aril_init_zeros(aril_module_own(m, 1));
}

aril_module *aril__init_truncated(aril_module *m, double std, bool zero_bias)
{
    return aril__init_layers(m, init_truncated_layer, &(truncated){ std, zero_bias });
}

void aril__set_normal(aril_tensor *t, double std)
{
    if (!aril__sketching()) aril_init_normal(t, 0, std);
}

void aril__set_constant(aril_tensor *t, double value)
{
    aril__fill_number(t, value);
}

aril_module *aril__with_parameter(aril_module *m, const char *name, aril_shape shape,
                                  void (*init)(aril_tensor *t, double value), double value)
{
    if (!m) return NULL;
    if (aril__add_parameter(m, name, shape) < 0) {
        aril_module_release(m);
        return NULL;
    }
    (init ? init : aril__set_constant)(aril__own_at(m, m->n_own - 1), value);
    return m;
}
