/* Layers that change the shape alone. */
#include "nn/module.h"

#include "aril/ops.h"

typedef struct flatten {
    int start, end;
} flatten;

static void flatten_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                            aril_tensor **out)
{
    const flatten *f = aril_module_data(self);
    (void)n_in;
    (void)n_out;
    out[0] = aril_flatten(in[0], f->start, f->end);
}

static void flatten_describe(const aril_module *self, char *text, size_t size)
{
    const flatten *f = aril_module_data(self);
    snprintf(text, size, "start_dim=%d, end_dim=%d", f->start, f->end);
}

static const aril__layer flatten_layer = {
    .base = { .type = "Flatten",
              .size = sizeof(flatten),
              .forward = flatten_forward,
              .describe = flatten_describe },
};

aril_module *aril_nn_flatten(void)
{
    return aril_nn_flatten_with(1, -1);
}

aril_module *aril_nn_flatten_with(int start, int end)
{
    aril_module *m = aril__layer_make(&flatten_layer);
    if (m) *(flatten *)aril_module_data(m) = (flatten){ start, end };
    return m;
}
