#include "models/build.h"

#include "aril/create.h"
#include "aril/init.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/shape.h"

#include <string.h>

bool aril__takes_image(const char *network, aril_shape input)
{
    if (input.ndim == 3) return true;
    char text[ARIL__SHAPE_TEXT];
    aril__fail(ARIL_ERR_SHAPE, "%s expects images, [C,H,W], got inputs of shape %s", network,
               aril__shape_text(text, input.ndim, input.dim));
    return false;
}

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
    char name[16];
    snprintf(name, sizeof name, "%d", m ? aril_module_children(m) : 0);
    return aril__with(m, name, child);
}

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

static void init_layer(aril_module *m, const char *path, void *ctx)
{
    (void)path;
    const double *std = ctx;
    const char *type = aril_module_type(m);
    bool conv = strcmp(type, "Conv2d") == 0, linear = strcmp(type, "Linear") == 0;
    if (!conv && !(linear && *std > 0)) return;
    aril_tensor *w = aril_module_own(m, 0), *b = aril_module_own(m, 1);
    if (conv)
        aril_init_kaiming_normal(w, (aril_kaiming_opts){ .fan_out = true, .nonlinearity = "relu" });
    else
        aril_init_normal(w, 0, *std);
    if (b) aril_init_zeros(b);
}

aril_module *aril__init_images(aril_module *m, double linear_std)
{
    ARIL_SCOPE;
    if (m && aril_module_visit(m, init_layer, &linear_std) == ARIL_OK) return m;
    aril_module_release(m);
    return NULL;
}
