#include "models/keras/model.h"

#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/shape.h"

#include <stdlib.h>
#include <string.h>

typedef struct network {
    keras_base base;
    keras_program program;
} network;

/* ---- running ---- */

static bool run_step(const keras_step *s, aril_tensor **v)
{
    aril_tensor *x = v[s->in[0]];
    if (s->action != KERAS_CALL) {
        aril_tensor *y = s->action == KERAS_PERMUTE     ? aril_permute(x, s->axes)
                         : s->action == KERAS_UNFLATTEN ? aril_unflatten(x, 1, s->shape)
                                                        : aril_flatten(x, 1, -1);
        v[s->out[0]] = y;
        return !aril__is_poison(y);
    }
    if (s->activates && !s->module->hooks && !s->activates->hooks) {
        v[s->out[0]] = aril__forward_fused(s->module, x, s->activation);
        return !aril__is_poison(v[s->out[0]]);
    }
    enum { FEW = 8 };
    aril_tensor *few[2 * FEW], **in = few, **out = few + FEW;
    if (s->n_in > FEW || s->n_out > FEW) {
        in = aril__malloc((size_t)(s->n_in + s->n_out) * sizeof(aril_tensor *));
        if (!in) return aril__fail(ARIL_ERR_MEMORY, "out of memory for %d inputs", s->n_in), false;
        out = in + s->n_in;
    }
    for (int i = 0; i < s->n_in; i++) in[i] = s->in[i] < 0 ? NULL : v[s->in[i]];
    aril_status status = aril_forward_all(s->module, (aril_list){ s->n_in, in }, s->n_out, out);
    for (int i = 0; i < s->n_out; i++) v[s->out[i]] = out[i];
    if (in != few) free(in);
    if (status == ARIL_OK && s->activates) v[s->out[0]] = aril_forward(s->activates, v[s->out[0]]);
    return status == ARIL_OK && !aril__is_poison(v[s->out[0]]);
}

/* Values that a step returned unchanged, or twice, have two names: neither is dropped early. */
static void note_same(const keras_step *s, aril_tensor **v, bool *stays)
{
    for (int o = 0; o < s->n_out; o++) {
        int at = s->out[o];
        for (int i = 0; i < s->n_in; i++)
            if (s->in[i] >= 0 && v[s->in[i]] == v[at]) stays[s->in[i]] = stays[at] = true;
        for (int i = 0; i < o; i++)
            if (v[s->out[i]] == v[at]) stays[s->out[i]] = stays[at] = true;
    }
}

static void drop_used(const keras_program *p, int step, aril_tensor **v, const bool *stays)
{
    const keras_step *s = &p->step[step];
    for (int i = 0; i < s->n_in; i++) {
        int at = s->in[i];
        if (at < 0 || p->last[at] != step || stays[at] || !v[at]) continue;
        aril_drop(v[at]);
        v[at] = NULL;
    }
}

static bool check_inputs(const keras_program *p, int n_in, aril_tensor *const *in)
{
    char got[ARIL__SHAPE_TEXT], want[ARIL__SHAPE_TEXT];
    for (int i = 0; i < p->n_in; i++) {
        if (i >= n_in || !in[i]) {
            aril__fail(ARIL_ERR_ARG, "expected %d inputs, got %d; input %d is \"%s\"", p->n_in,
                       n_in, i, p->name[i]);
            return false;
        }
        bool fits = in[i]->ndim == p->shape[i].ndim;
        for (int k = 0; fits && k < in[i]->ndim; k++)
            fits =
                p->shape[i].dim[k] < 0 || in[i]->dim[k] < 0 || in[i]->dim[k] == p->shape[i].dim[k];
        if (fits) continue;
        aril__fail(ARIL_ERR_SHAPE, "input \"%s\" is %s, expected %s (?: any size)", p->name[i],
                   aril__text(got, in[i]),
                   aril__shape_text(want, p->shape[i].ndim, p->shape[i].dim));
        return false;
    }
    return true;
}

static void network_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                            aril_tensor **out)
{
    const keras_program *p = &((network *)aril_module_data(self))->program;
    aril_tensor **v = NULL;
    if (check_inputs(p, n_in, in)) {
        v = aril__calloc((size_t)p->n_values * (sizeof *v + sizeof(bool)));
        if (!v) aril__fail(ARIL_ERR_MEMORY, "out of memory for %d values", p->n_values);
    }
    if (!v) {
        aril__poison_all(n_out, out);
        return;
    }
    bool *stays = (bool *)(v + p->n_values), good = true;
    for (int i = 0; i < p->n_in; i++) {
        v[p->in[i]] = in[i];
        stays[p->in[i]] = true;
    }
    for (int i = 0; i < p->n_steps && good; i++) {
        good = run_step(&p->step[i], v);
        note_same(&p->step[i], v, stays);
        if (good) drop_used(p, i, v, stays);
    }
    for (int i = 0; i < n_out && i < p->n_out && good; i++) out[i] = v[p->out[i]];
    if (!good) aril__poison_all(n_out, out);
    free(v);
}

static void network_destroy(aril_module *self)
{
    network *n = aril_module_data(self);
    keras_program *p = &n->program;
    for (int i = 0; i < p->n_steps; i++) {
        free(p->step[i].in);
        free(p->step[i].out);
    }
    for (int i = 0; i < p->n_in && p->name; i++) free(p->name[i]);
    free(p->step);
    free(p->in);
    free(p->out);
    free(p->last);
    free(p->name);
    free(p->shape);
    free(n->base.text);
}

static void network_describe(const aril_module *self, char *text, size_t size)
{
    const network *n = aril_module_data(self);
    snprintf(text, size, "%s", n->base.text ? n->base.text : "");
}

static const aril__layer network_layer = { .base = { .type = "Keras",
                                                     .size = sizeof(network),
                                                     .forward = network_forward,
                                                     .describe = network_describe,
                                                     .destroy = network_destroy,
                                                     .inputs = -1,
                                                     .outputs = -1 } };

aril_module *aril__keras_network(const char *name)
{
    aril_module *m = aril__layer_make(&network_layer);
    if (!m) return NULL;
    network *n = aril_module_data(m);
    n->base.text = aril__strdup(name);
    if (n->base.text) return m;
    aril__fail(ARIL_ERR_MEMORY, "out of memory for network \"%s\"", name);
    aril_module_release(m);
    return NULL;
}

keras_program *aril__keras_program(aril_module *m)
{
    return &((network *)aril_module_data(m))->program;
}

int aril_keras_inputs(const aril_module *m)
{
    if (!m || m->layer != &network_layer) return 0;
    return ((const network *)aril_module_data(m))->program.n_in;
}

aril_shape aril_keras_input_shape(const aril_module *m, int i)
{
    if (i < 0 || i >= aril_keras_inputs(m)) return (aril_shape){ 0 };
    return ((const network *)aril_module_data(m))->program.shape[i];
}

/* ---- finishing ---- */

static void remove_steps(keras_program *p, const bool *gone)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++) {
        if (gone[i]) {
            free(p->step[i].in);
            free(p->step[i].out);
        } else {
            p->step[n++] = p->step[i];
        }
    }
    p->n_steps = n;
}

/* The activation that a step applies to its only input; 0: none that can be fused. */
static aril_activation fused_by(const keras_step *s)
{
    if (s->action != KERAS_CALL || s->n_in != 1 || s->n_out != 1) return ARIL_NO_ACTIVATION;
    return aril__keras_fused(s->module);
}

/* An activation moves into the step before it if nothing else reads that step's result. */
static void fuse(keras_program *p, int *uses, int *reader, bool *gone)
{
    for (int i = 0; i < p->n_steps; i++) {
        for (int k = 0; k < p->step[i].n_in; k++) {
            if (p->step[i].in[k] < 0) continue;
            uses[p->step[i].in[k]]++;
            reader[p->step[i].in[k]] = i;
        }
    }
    for (int i = 0; i < p->n_out; i++) uses[p->out[i]] += 2;
    for (int i = 0; i < p->n_steps; i++) {
        keras_step *s = &p->step[i];
        if (s->action != KERAS_CALL || s->n_in != 1 || s->n_out != 1 || s->in[0] < 0) continue;
        if (!s->module->layer || !s->module->layer->fused || uses[s->out[0]] != 1) continue;
        const keras_step *next = &p->step[reader[s->out[0]]];
        if (!fused_by(next)) continue;
        s->activation = fused_by(next);
        s->activates = next->module;
        s->out[0] = next->out[0];
        gone[next - p->step] = true;
    }
}

aril_status aril__keras_finish(aril_module *m)
{
    keras_program *p = aril__keras_program(m);
    size_t values = (size_t)p->n_values + 1, steps = (size_t)p->n_steps + 1;
    int *uses = aril__calloc(values * sizeof *uses), *reader = aril__calloc(values * sizeof *uses);
    bool *gone = aril__calloc(steps);
    p->last = aril__malloc(values * sizeof *p->last);
    bool good = uses && reader && gone && p->last;
    if (good) {
        fuse(p, uses, reader, gone);
        remove_steps(p, gone);
        for (int i = 0; i < p->n_values; i++) p->last[i] = -1;
        for (int i = 0; i < p->n_steps; i++)
            for (int k = 0; k < p->step[i].n_in; k++)
                if (p->step[i].in[k] >= 0) p->last[p->step[i].in[k]] = i;
        for (int i = 0; i < p->n_out; i++) p->last[p->out[i]] = -1;
    }
    free(uses);
    free(reader);
    free(gone);
    return good ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "out of memory for a network");
}
