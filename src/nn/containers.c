/* Containers: modules of modules. */
#include "nn/module.h"

#include "aril/ops.h"

/* ---- Sequential ---- */

/* Which activation a layer applies, where nothing wants to see its input and result; 0: none. */
static aril_activation activation_of(const aril_module *m)
{
    return !m->hooks && m->layer && m->layer->activation ? m->layer->activation(m)
                                                         : ARIL_NO_ACTIVATION;
}

static void sequential_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                               aril_tensor **out)
{
    aril_tensor *x = in[0];
    (void)n_in;
    (void)n_out;
    for (int i = 0; i < self->n_children; i++) {
        aril_module *m = self->child[i].module;
        aril_activation act = ARIL_NO_ACTIVATION;
        if (i + 1 < self->n_children && m->layer && m->layer->fused && !m->hooks)
            act = activation_of(self->child[i + 1].module);
        aril_tensor *y = act ? aril__forward_fused(m, x, act) : aril_forward(m, x);
        i += act != ARIL_NO_ACTIVATION;
        if (y->flags & ARIL__POISON) {
            x = y;
            break;
        }
        if (x != in[0] && x != y) aril_drop(x);
        x = y;
    }
    out[0] = x;
}

static const aril__layer sequential_layer = {
    .base = { .type = "Sequential", .forward = sequential_forward },
};

/* Takes n modules over as the children "0", "1", ...; m, or NULL when one of them is missing. */
static aril_module *filled(aril_module *m, int n, aril_module *const *layers)
{
    bool good = m != NULL;
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        if (good)
            good = aril_module_add(m, name, layers[i]) != NULL;
        else
            aril_module_release(layers[i]);
    }
    if (good) return m;
    aril_module_release(m);
    return NULL;
}

aril_module *aril_nn_sequential_of(int n, aril_module *const *layers)
{
    return filled(aril__layer_make(&sequential_layer), n, layers);
}
