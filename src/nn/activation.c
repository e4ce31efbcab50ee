/* Activations as layers: one definition, a row for each. */
#include "nn/module.h"

#include "aril/ops.h"

static void relu_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                         aril_tensor **out)
{
    (void)self;
    (void)n_in;
    (void)n_out;
    out[0] = aril_relu(in[0]);
}

static aril_activation is_relu(const aril_module *self)
{
    (void)self;
    return ARIL_RELU;
}

aril_module *aril_nn_relu(void)
{
    static const aril__layer layer = {
        .base = { .type = "ReLU", .forward = relu_forward },
        .activation = is_relu,
    };
    return aril__layer_make(&layer);
}
