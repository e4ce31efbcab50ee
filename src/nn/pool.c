/* Pooling layers. */
#include "nn/module.h"

#include "aril/ops.h"
#include "nn/window.h"

typedef struct pool {
    int spatial;
    aril_pool_opts opts;
    union {
        aril_tensor *(*max)(aril_tensor *x, aril_pool_opts opts, aril_tensor **indices);
        aril_tensor *(*avg)(aril_tensor *x, aril_pool_opts opts);
    } fn;
} pool;

/* The second result, where it is asked for, are the places of the largest elements. */
static void max_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                        aril_tensor **out)
{
    const pool *p = aril_module_data(self);
    (void)n_in;
    out[0] = p->fn.max(in[0], p->opts, n_out > 1 ? &out[1] : NULL);
}

/* PyTorch writes one number where all are the same. */
static void say_size(aril__text_out *t, const char *before, int n, const int64_t *at)
{
    if (aril__all_are(n, at, at[0]))
        aril__say(t, "%s%lld", before, (long long)at[0]);
    else
        aril__say_sizes(t, before, n, at);
}

static void max_describe(const aril_module *self, char *text, size_t size)
{
    const pool *p = aril_module_data(self);
    aril__text_out t = { text, size };
    say_size(&t, "kernel_size=", p->spatial, p->opts.kernel);
    say_size(&t, ", stride=", p->spatial, p->opts.stride);
    say_size(&t, ", padding=", p->spatial, p->opts.padding);
    say_size(&t, ", dilation=", p->spatial, p->opts.dilation);
    aril__say(&t, ", ceil_mode=%s", p->opts.ceil_mode ? "True" : "False");
}

/* A module with the sizes as they are meant. */
static aril_module *make(const aril__layer *layer, int spatial, int64_t kernel, aril_pool_opts opts)
{
    const char *type = layer->base.type;
    aril_module *m = aril__layer_make(layer);
    if (!m) return NULL;
    pool *p = aril_module_data(m);
    p->spatial = spatial;
    p->opts = opts;
    aril_status s = aril__window_kernel(type, spatial, kernel, opts.kernel, p->opts.kernel);
    for (int i = 0; i < spatial; i++) /* the kernel, unless one is given */
        if (!opts.stride[0]) opts.stride[i] = p->opts.kernel[i];
    if (s == ARIL_OK) s = aril__window(type, "stride", spatial, opts.stride, 1, 1, p->opts.stride);
    if (s == ARIL_OK)
        s = aril__window(type, "padding", spatial, opts.padding, 0, 0, p->opts.padding);
    if (s == ARIL_OK)
        s = aril__window(type, "dilation", spatial, opts.dilation, 1, 1, p->opts.dilation);
    return aril__layer_made(m, s);
}

#define MAX_POOL(name, shown, n)                                            \
    aril_module *aril_nn_##name##_with(int64_t kernel, aril_pool_opts opts) \
    {                                                                       \
        static const aril__layer layer = {                                  \
            .base = { .type = shown,                                        \
                      .size = sizeof(pool),                                 \
                      .forward = max_forward,                               \
                      .describe = max_describe,                             \
                      .outputs = 2 },                                       \
        };                                                                  \
        aril_module *m = make(&layer, n, kernel, opts);                     \
        if (m) ((pool *)aril_module_data(m))->fn.max = aril_##name;         \
        return m;                                                           \
    }                                                                       \
    aril_module *aril_nn_##name(int64_t kernel)                             \
    {                                                                       \
        return aril_nn_##name##_with(kernel, (aril_pool_opts){ 0 });        \
    }

MAX_POOL(max_pool2d, "MaxPool2d", 2)
