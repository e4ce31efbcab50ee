/* Pooling layers. */
#include "nn/module.h"

#include "aril/conv.h"
#include "nn/window.h"

/* ---- windows of a given size ---- */

typedef struct pool {
    int spatial;
    double p; /* lp pooling */
    aril_pool_opts opts;
    aril_shape size; /* fold */
    union {
        aril_tensor *(*max)(aril_tensor *x, aril_pool_opts opts, aril_tensor **indices);
        aril_tensor *(*avg)(aril_tensor *x, aril_pool_opts opts);
        aril_tensor *(*lp)(aril_tensor *x, double p, aril_pool_opts opts);
        aril_tensor *(*unpool)(aril_tensor *x, aril_tensor *indices, aril_shape size,
                               aril_pool_opts opts);
    } fn;
} pool;

static aril_pool_opts options_of(const pool *p)
{
    aril_pool_opts opts = p->opts;
    aril__window_as_given(opts.padding);
    return opts;
}

/* The second result, when requested, holds the indices of the maxima. */
ARIL__FORWARD(max_forward)
{
    const pool *p = aril_module_data(self);
    out[0] = p->fn.max(in[0], options_of(p), n_out > 1 ? &out[1] : NULL);
}

ARIL__FORWARD(avg_forward)
{
    const pool *p = aril_module_data(self);
    out[0] = p->fn.avg(in[0], options_of(p));
}

ARIL__FORWARD(lp_forward)
{
    const pool *p = aril_module_data(self);
    out[0] = p->fn.lp(in[0], p->p, options_of(p));
}

ARIL__FORWARD(unpool_forward)
{
    const pool *p = aril_module_data(self);
    out[0] = p->fn.unpool(in[0], n_in > 1 ? in[1] : NULL, (aril_shape){ 0 }, options_of(p));
}

ARIL__FORWARD(unfold_forward)
{
    const pool *p = aril_module_data(self);
    out[0] = aril_unfold(in[0], options_of(p));
}

ARIL__FORWARD(fold_forward)
{
    const pool *p = aril_module_data(self);
    out[0] = aril_fold(in[0], p->size, options_of(p));
}

/* A single number when all are equal, otherwise "(2, 3)". */
static void append_size(aril__text_out *t, const char *before, int n, const int64_t *at)
{
    if (aril__all_are(n, at, at[0]))
        aril__text_append(t, "%s%lld", before, (long long)at[0]);
    else
        aril__text_append_sizes(t, before, n, at);
}

static const char *bool_text(bool b)
{
    return b ? "True" : "False";
}

static void max_describe(const aril_module *self, char *text, size_t size)
{
    const pool *p = aril_module_data(self);
    aril__text_out t = { text, size };
    append_size(&t, "kernel_size=", p->spatial, p->opts.kernel);
    append_size(&t, ", stride=", p->spatial, p->opts.stride);
    append_size(&t, ", padding=", p->spatial, p->opts.padding);
    append_size(&t, ", dilation=", p->spatial, p->opts.dilation);
    aril__text_append(&t, ", ceil_mode=%s", bool_text(p->opts.ceil_mode));
}

/* PyTorch prints the sizes of 1-d pooling as a tuple. */
static void avg_describe(const aril_module *self, char *text, size_t size)
{
    const pool *p = aril_module_data(self);
    void (*say)(aril__text_out *, const char *, int, const int64_t *) =
        p->spatial == 1 ? aril__text_append_sizes : append_size;
    aril__text_out t = { text, size };
    say(&t, "kernel_size=", p->spatial, p->opts.kernel);
    say(&t, ", stride=", p->spatial, p->opts.stride);
    say(&t, ", padding=", p->spatial, p->opts.padding);
}

static void lp_describe(const aril_module *self, char *text, size_t size)
{
    const pool *p = aril_module_data(self);
    aril__text_out t = { text, size };
    aril__text_append(&t, "norm_type=%g", p->p);
    append_size(&t, ", kernel_size=", p->spatial, p->opts.kernel);
    append_size(&t, ", stride=", p->spatial, p->opts.stride);
    aril__text_append(&t, ", ceil_mode=%s", bool_text(p->opts.ceil_mode));
}

static void unpool_describe(const aril_module *self, char *text, size_t size)
{
    const pool *p = aril_module_data(self);
    aril__text_out t = { text, size };
    aril__text_append_sizes(&t, "kernel_size=", p->spatial, p->opts.kernel);
    aril__text_append_sizes(&t, ", stride=", p->spatial, p->opts.stride);
    aril__text_append_sizes(&t, ", padding=", p->spatial, p->opts.padding);
}

static void fold_describe(const aril_module *self, char *text, size_t size)
{
    const pool *p = aril_module_data(self);
    aril__text_out t = { text, size };
    if (p->size.ndim) append_size(&t, "output_size=", p->size.ndim, p->size.dim);
    append_size(&t, p->size.ndim ? ", kernel_size=" : "kernel_size=", 2, p->opts.kernel);
    append_size(&t, ", dilation=", 2, p->opts.dilation);
    append_size(&t, ", padding=", 2, p->opts.padding);
    append_size(&t, ", stride=", 2, p->opts.stride);
}

/* Creates a module with resolved sizes; a stride of 0 means the kernel size, or 1 for unfold and
 * fold. */
static aril_module *make(const aril__layer *layer, int spatial, int64_t kernel, aril_pool_opts opts,
                         bool columns)
{
    const char *type = layer->base.type;
    aril_module *m = aril__layer_make(layer);
    if (!m) return NULL;
    pool *p = aril_module_data(m);
    p->spatial = spatial;
    p->opts = opts;
    aril_status s = aril__window_kernel(type, spatial, kernel, opts.kernel, p->opts.kernel);
    bool strides = opts.stride[0] != 0;
    for (int i = 0; i < spatial && !strides && !columns; i++) opts.stride[i] = p->opts.kernel[i];
    if (s == ARIL_OK) s = aril__window(type, "stride", spatial, opts.stride, 1, 1, p->opts.stride);
    if (s == ARIL_OK)
        s = aril__window(type, "padding", spatial, opts.padding, 0, 0, p->opts.padding);
    if (s == ARIL_OK)
        s = aril__window(type, "dilation", spatial, opts.dilation, 1, 1, p->opts.dilation);
    return aril__layer_made(m, s);
}

#define LAYER(shown, kind, n_inputs, n_outputs) \
    static const aril__layer layer = {          \
        .base = { .type = shown,                \
                  .size = sizeof(pool),         \
                  .forward = kind##_forward,    \
                  .describe = kind##_describe,  \
                  .inputs = n_inputs,           \
                  .outputs = n_outputs },       \
    }

#define POOL(name, shown, n, kind, n_inputs, n_outputs)                     \
    aril_module *aril_nn_##name##_with(int64_t kernel, aril_pool_opts opts) \
    {                                                                       \
        LAYER(shown, kind, n_inputs, n_outputs);                            \
        aril_module *m = make(&layer, n, kernel, opts, false);              \
        if (m) ((pool *)aril_module_data(m))->fn.kind = aril_##name;        \
        return m;                                                           \
    }                                                                       \
    aril_module *aril_nn_##name(int64_t kernel)                             \
    {                                                                       \
        return aril_nn_##name##_with(kernel, (aril_pool_opts){ 0 });        \
    }

POOL(max_pool1d, "MaxPool1d", 1, max, 1, 2)
POOL(max_pool2d, "MaxPool2d", 2, max, 1, 2)
POOL(max_pool3d, "MaxPool3d", 3, max, 1, 2)
POOL(avg_pool1d, "AvgPool1d", 1, avg, 1, 1)
POOL(avg_pool2d, "AvgPool2d", 2, avg, 1, 1)
POOL(avg_pool3d, "AvgPool3d", 3, avg, 1, 1)
POOL(max_unpool1d, "MaxUnpool1d", 1, unpool, 2, 1)
POOL(max_unpool2d, "MaxUnpool2d", 2, unpool, 2, 1)
POOL(max_unpool3d, "MaxUnpool3d", 3, unpool, 2, 1)

#define LP_POOL(n)                                                                         \
    aril_module *aril_nn_lp_pool##n##d_with(double p, int64_t kernel, aril_pool_opts opts) \
    {                                                                                      \
        LAYER("LPPool" #n "d", lp, 1, 1);                                                  \
        aril_module *m = make(&layer, n, kernel, opts, false);                             \
        if (m) ((pool *)aril_module_data(m))->fn.lp = aril_lp_pool##n##d;                  \
        if (m) ((pool *)aril_module_data(m))->p = p;                                       \
        return m;                                                                          \
    }                                                                                      \
    aril_module *aril_nn_lp_pool##n##d(double p, int64_t kernel)                           \
    {                                                                                      \
        return aril_nn_lp_pool##n##d_with(p, kernel, (aril_pool_opts){ 0 });               \
    }

LP_POOL(1)
LP_POOL(2)
LP_POOL(3)

/* ---- unfold and fold ---- */

aril_module *aril_nn_unfold(int64_t kernel, aril_pool_opts opts)
{
    static const aril__layer layer = { .base = { .type = "Unfold",
                                                 .size = sizeof(pool),
                                                 .forward = unfold_forward,
                                                 .describe = fold_describe } };
    return make(&layer, 2, kernel, opts, true);
}

aril_module *aril_nn_fold(aril_shape size, int64_t kernel, aril_pool_opts opts)
{
    static const aril__layer layer = { .base = { .type = "Fold",
                                                 .size = sizeof(pool),
                                                 .forward = fold_forward,
                                                 .describe = fold_describe } };
    aril_module *m = make(&layer, 2, kernel, opts, true);
    if (m) ((pool *)aril_module_data(m))->size = size;
    return m;
}

/* ---- adaptive pooling ---- */

typedef struct adaptive {
    aril_shape size;
    union {
        aril_tensor *(*avg)(aril_tensor *x, aril_shape size);
        aril_tensor *(*max)(aril_tensor *x, aril_shape size, aril_tensor **indices);
    } fn;
} adaptive;

ARIL__FORWARD(adaptive_avg_forward)
{
    const adaptive *a = aril_module_data(self);
    out[0] = a->fn.avg(in[0], a->size);
}

ARIL__FORWARD(adaptive_max_forward)
{
    const adaptive *a = aril_module_data(self);
    out[0] = a->fn.max(in[0], a->size, n_out > 1 ? &out[1] : NULL);
}

static void adaptive_describe(const aril_module *self, char *text, size_t size)
{
    const adaptive *a = aril_module_data(self);
    aril__text_out t = { text, size };
    append_size(&t, "output_size=", a->size.ndim, a->size.dim);
}

static aril_module *make_adaptive(const aril__layer *layer, int spatial, aril_shape size)
{
    bool wrong = size.ndim != spatial;
    for (int i = 0; i < spatial && !wrong; i++) wrong = size.dim[i] == 0 || size.dim[i] < -1;
    if (wrong) {
        aril__fail(ARIL_ERR_ARG, "%s: expected %d sizes of at least 1", layer->base.type, spatial);
        return NULL;
    }
    aril_module *m = aril__layer_make(layer);
    if (m) ((adaptive *)aril_module_data(m))->size = size;
    return m;
}

static aril_shape square(int spatial, int64_t size)
{
    return (aril_shape){ .ndim = spatial, .dim = { size, size, size } };
}

#define ADAPTIVE(kind, shown, n, scope, with, n_outputs)                                       \
    scope aril_module *with(aril_shape size)                                                   \
    {                                                                                          \
        static const aril__layer layer = {                                                     \
            .base = { .type = "Adaptive" shown "Pool" #n "d",                                  \
                      .size = sizeof(adaptive),                                                \
                      .forward = adaptive_##kind##_forward,                                    \
                      .describe = adaptive_describe,                                           \
                      .outputs = n_outputs },                                                  \
        };                                                                                     \
        aril_module *m = make_adaptive(&layer, n, size);                                       \
        if (m) ((adaptive *)aril_module_data(m))->fn.kind = aril_adaptive_##kind##_pool##n##d; \
        return m;                                                                              \
    }                                                                                          \
    aril_module *aril_nn_adaptive_##kind##_pool##n##d(int64_t size)                            \
    {                                                                                          \
        return with(square(n, size));                                                          \
    }

ADAPTIVE(avg, "Avg", 1, static, adaptive_avg_pool1d, 1)
ADAPTIVE(avg, "Avg", 2, , aril_nn_adaptive_avg_pool2d_with, 1)
ADAPTIVE(avg, "Avg", 3, , aril_nn_adaptive_avg_pool3d_with, 1)
ADAPTIVE(max, "Max", 1, static, adaptive_max_pool1d, 2)
ADAPTIVE(max, "Max", 2, , aril_nn_adaptive_max_pool2d_with, 2)
ADAPTIVE(max, "Max", 3, , aril_nn_adaptive_max_pool3d_with, 2)

ARIL__FORWARD(global_avg_forward)
{
    out[0] = aril_global_avg_pool(in[0]);
}

ARIL__FORWARD(global_max_forward)
{
    out[0] = aril_global_max_pool(in[0]);
}

aril_module *aril_nn_global_avg_pool(void)
{
    static const aril__layer layer = { .base = { .type = "GlobalAvgPool",
                                                 .forward = global_avg_forward } };
    return aril__layer_make(&layer);
}

aril_module *aril_nn_global_max_pool(void)
{
    static const aril__layer layer = { .base = { .type = "GlobalMaxPool",
                                                 .forward = global_max_forward } };
    return aril__layer_make(&layer);
}
