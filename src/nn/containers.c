/* Containers: modules of modules. */
#include "nn/module.h"

#include "aril/index.h"
#include "aril/loss.h"
#include "aril/math.h"

#include <stdlib.h>

/* ---- Sequential ---- */

ARIL__FORWARD(sequential_forward)
{
    aril_tensor *x = in[0];
    for (int i = 0; i < self->n_children; i++) {
        aril_module *m = self->child[i].module;
        aril_activation act = ARIL_NO_ACTIVATION;
        if (i + 1 < self->n_children && m->layer && m->layer->fused && !m->hooks)
            act = aril__activation_of(self->child[i + 1].module);
        aril_tensor *y = act ? aril__forward_fused(m, x, act) : aril_forward(m, x);
        i += act != ARIL_NO_ACTIVATION;
        if (aril__is_poison(y)) {
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

/* Adds n modules, whose ownership it takes, as the children "0", "1", ...; returns m, or NULL when
 * one of them is missing. */
static aril_module *filled(aril_module *m, int n, aril_module *const *layers)
{
    bool good = m != NULL;
    if (good && (n < 0 || (n > 0 && !layers))) {
        aril__fail(ARIL_ERR_ARG, "%s: %d modules in a list that is %s", aril_module_type(m), n,
                   layers ? "there" : "NULL");
        good = false;
    }
    for (int i = 0; i < n && layers; i++) {
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

/* ---- lists and dictionaries ---- */

static void no_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                       aril_tensor **out)
{
    (void)n_in;
    (void)in;
    aril__fail(ARIL_ERR_UNSUPPORTED,
               "a %s has no forward function: the module that contains it calls its children",
               self->type->type);
    if (n_out > 0) out[0] = aril__poison();
}

static const aril__layer list_layer = { .base = { .type = "ModuleList", .forward = no_forward } };
static const aril__layer dict_layer = { .base = { .type = "ModuleDict", .forward = no_forward } };

aril_module *aril_nn_list_of(int n, aril_module *const *modules)
{
    return filled(aril__layer_make(&list_layer), n, modules);
}

aril_module *aril_nn_append(aril_module *list, aril_module *child)
{
    char name[16];
    snprintf(name, sizeof name, "%d", list ? list->n_children : 0);
    return aril_module_add(list, name, child);
}

aril_module *aril_nn_dict(void)
{
    return aril__layer_make(&dict_layer);
}

/* ---- branches ---- */

ARIL__FORWARD(residual_forward)
{
    aril_tensor *y = aril_forward(self->child[0].module, in[0]);
    aril_tensor *x = self->n_children > 1 ? aril_forward(self->child[1].module, in[0]) : in[0];
    out[0] = aril_add(x, y);
}

aril_module *aril_nn_residual(aril_module *body)
{
    static const aril__layer layer = { .base = { .type = "Residual",
                                                 .forward = residual_forward } };
    aril_module *m = aril__layer_make(&layer);
    if (!m) aril_module_release(body);
    return m && !aril_module_add(m, "body", body) ? aril__layer_made(m, ARIL_ERR_ARG) : m;
}

aril_module *aril_nn_residual_with(aril_module *body, aril_module *projection)
{
    aril_module *m = aril_nn_residual(body);
    if (!m) aril_module_release(projection);
    return m && !aril_module_add(m, "projection", projection) ? aril__layer_made(m, ARIL_ERR_ARG)
                                                              : m;
}

typedef struct concat {
    int axis;
} concat;

enum { FEW = 32 };

ARIL__FORWARD(concat_forward)
{
    const concat *c = aril_module_data(self);
    aril_tensor *few[FEW];
    int n = self->n_children;
    aril_tensor **part = n <= FEW ? few : aril__malloc((size_t)n * sizeof *part);
    if (!part || n == 0) {
        aril__fail(part ? ARIL_ERR_STATE : ARIL_ERR_MEMORY,
                   part ? "expected at least one branch" : "out of memory for %d branches", n);
        out[0] = aril__poison();
    } else {
        for (int i = 0; i < n; i++) part[i] = aril_forward(self->child[i].module, in[0]);
        out[0] = aril_cat((aril_list){ n, part }, c->axis);
    }
    if (part != few) free(part);
}

static void concat_describe(const aril_module *self, char *text, size_t size)
{
    snprintf(text, size, "dim=%d", ((const concat *)aril_module_data(self))->axis);
}

aril_module *aril_nn_concat_of(int n, aril_module *const *branches)
{
    return aril_nn_concat_with(1, n, branches);
}

aril_module *aril_nn_concat_with(int axis, int n, aril_module *const *branches)
{
    static const aril__layer layer = { .base = { .type = "Concat",
                                                 .size = sizeof(concat),
                                                 .forward = concat_forward,
                                                 .describe = concat_describe } };
    aril_module *m = filled(aril__layer_make(&layer), n, branches);
    if (m) ((concat *)aril_module_data(m))->axis = axis;
    return m;
}

ARIL__FORWARD(sum_forward)
{
    if (self->n_children == 0) {
        aril__fail(ARIL_ERR_STATE, "expected at least one branch");
        out[0] = aril__poison();
        return;
    }
    aril_tensor *sum = aril_forward(self->child[0].module, in[0]);
    for (int i = 1; i < self->n_children; i++) {
        aril_tensor *y = aril_forward(self->child[i].module, in[0]), *before = sum;
        sum = aril_add(sum, y);
        if (before != in[0]) aril_drop(before);
        if (y != in[0]) aril_drop(y);
    }
    out[0] = sum;
}

aril_module *aril_nn_sum_of(int n, aril_module *const *branches)
{
    static const aril__layer layer = { .base = { .type = "Sum", .forward = sum_forward } };
    return filled(aril__layer_make(&layer), n, branches);
}

/* ---- functions ---- */

ARIL__FORWARD(identity_forward)
{
    out[0] = in[0];
}

aril_module *aril_nn_identity(void)
{
    static const aril__layer layer = { .base = { .type = "Identity",
                                                 .forward = identity_forward } };
    return aril__layer_make(&layer);
}

typedef struct lambda {
    aril_tensor *(*fn)(aril_tensor *x, void *ctx);
    void *ctx;
} lambda;

ARIL__FORWARD(lambda_forward)
{
    const lambda *l = aril_module_data(self);
    out[0] = l->fn(in[0], l->ctx);
}

aril_module *aril_nn_lambda(aril_tensor *(*fn)(aril_tensor *x, void *ctx), void *ctx)
{
    static const aril__layer layer = {
        .base = { .type = "Lambda", .size = sizeof(lambda), .forward = lambda_forward }
    };
    if (!fn) {
        aril__fail(ARIL_ERR_ARG, "Lambda: the function is NULL");
        return NULL;
    }
    aril_module *m = aril__layer_make(&layer);
    if (m) *(lambda *)aril_module_data(m) = (lambda){ fn, ctx };
    return m;
}

/* ---- distances ---- */

typedef struct distance {
    int axis;
    aril_distance_opts opts;
} distance;

ARIL__FORWARD(cosine_forward)
{
    const distance *d = aril_module_data(self);
    out[0] = aril_cosine_similarity(in[0], n_in > 1 ? in[1] : NULL, d->axis);
}

ARIL__FORWARD(pairwise_forward)
{
    const distance *d = aril_module_data(self);
    out[0] = aril_pairwise_distance_with(in[0], n_in > 1 ? in[1] : NULL, d->opts);
}

aril_module *aril_nn_cosine_similarity(int axis)
{
    static const aril__layer layer = { .base = { .type = "CosineSimilarity",
                                                 .size = sizeof(distance),
                                                 .forward = cosine_forward,
                                                 .inputs = 2 } };
    aril_module *m = aril__layer_make(&layer);
    if (m) ((distance *)aril_module_data(m))->axis = axis;
    return m;
}

aril_module *aril_nn_pairwise_distance(aril_distance_opts opts)
{
    static const aril__layer layer = { .base = { .type = "PairwiseDistance",
                                                 .size = sizeof(distance),
                                                 .forward = pairwise_forward,
                                                 .inputs = 2 } };
    aril_module *m = aril__layer_make(&layer);
    if (m) ((distance *)aril_module_data(m))->opts = opts;
    return m;
}
