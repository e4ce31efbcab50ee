/* Planning: the calls of a network in order, with the memory order of each value.
 *
 * Keras' order of images is channels-last, Aril's is channels-first. A value keeps the order in
 * which it was computed; it is permuted only where a layer needs the other one. Flattened images
 * keep their order too: the dense layer that reads them gets its weights in that order. Shapes are
 * those of a run on symbolic values, which also checks that all layers fit together. */
#include "models/keras/model.h"

#include "aril/graph.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 512, MAX_STEPS = 1 << 20 };

typedef struct planner {
    keras_loader *l;
    keras_layer *network;
    aril_module *root;
    keras_program *p;
    keras_value *value;
    int cap_values;
} planner;

static aril_status no_memory(const planner *pl)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory loading %s", pl->l->path);
}

/* ---- values and steps ---- */

/* Returns its number, or a negative status. */
static int add_value(planner *pl, keras_value v)
{
    if (pl->p->n_values == pl->cap_values) {
        int cap = 2 * pl->cap_values + 64;
        keras_value *grown = aril__realloc(pl->value, (size_t)cap * sizeof *grown);
        if (!grown) return no_memory(pl);
        pl->value = grown;
        pl->cap_values = cap;
    }
    pl->value[pl->p->n_values] = v;
    return pl->p->n_values++;
}

static keras_step *add_step(planner *pl, keras_action action, int n_in, int n_out)
{
    keras_program *p = pl->p;
    if (p->n_steps == p->cap_steps) {
        int cap = 2 * p->cap_steps + 64;
        keras_step *grown =
            cap <= MAX_STEPS ? aril__realloc(p->step, (size_t)cap * sizeof *grown) : NULL;
        if (!grown) return no_memory(pl), NULL;
        p->step = grown;
        p->cap_steps = cap;
    }
    keras_step *s = &p->step[p->n_steps];
    *s = (keras_step){ .action = action, .n_in = n_in, .n_out = n_out };
    s->in = aril__malloc((size_t)n_in * sizeof *s->in + 1);
    s->out = aril__malloc((size_t)n_out * sizeof *s->out + 1);
    if (!s->in || !s->out) {
        free(s->in);
        free(s->out);
        return no_memory(pl), NULL;
    }
    p->n_steps++;
    return s;
}

/* A step with one input that changes its shape. */
static int add_change(planner *pl, keras_action action, int from, keras_order order, aril_axes axes,
                      aril_shape shape)
{
    aril_tensor *x = pl->value[from].tensor;
    x = action == KERAS_PERMUTE     ? aril_permute(x, axes)
        : action == KERAS_UNFLATTEN ? aril_unflatten(x, 1, shape)
                                    : aril_flatten(x, 1, -1);
    if (aril_tensor_status(x) < 0) return aril_tensor_status(x);
    int to = add_value(pl, (keras_value){ x, order, { 0 }, pl->value[from].mask });
    keras_step *s = to < 0 ? NULL : add_step(pl, action, 1, 1);
    if (!s) return to < 0 ? to : ARIL_ERR_MEMORY;
    s->axes = axes;
    s->shape = shape;
    s->in[0] = from;
    s->out[0] = to;
    return to;
}

/* ---- orders ---- */

static int permuted(planner *pl, int from, keras_order order)
{
    int rank = pl->value[from].tensor->ndim;
    aril_axes axes = { .n = rank };
    for (int i = 1; i < rank; i++) {
        if (order == KERAS_FIRST)
            axes.axis[i] = i == 1 ? rank - 1 : i - 1;
        else
            axes.axis[i] = i == rank - 1 ? 1 : i + 1;
    }
    return add_change(pl, KERAS_PERMUTE, from, order, axes, (aril_shape){ 0 });
}

/* [N,F] of flattened channels-first values to that of Keras. */
static int unflattened(planner *pl, int from)
{
    aril_shape keras = pl->value[from].flat, first = keras;
    first.dim[0] = keras.dim[keras.ndim - 1];
    for (int i = 1; i < keras.ndim; i++) first.dim[i] = keras.dim[i - 1];
    int at = add_change(pl, KERAS_UNFLATTEN, from, KERAS_FIRST, (aril_axes){ 0 }, first);
    if (at >= 0) at = permuted(pl, at, KERAS_ORDER);
    if (at >= 0)
        at = add_change(pl, KERAS_FLAT, at, KERAS_ORDER, (aril_axes){ 0 }, (aril_shape){ 0 });
    return at;
}

/* The value in another order: its number, or a negative status. */
static int ordered(planner *pl, int from, keras_order order)
{
    const keras_value *v = &pl->value[from];
    if (v->order == order) return from;
    if (v->order == KERAS_FLATTEN) return unflattened(pl, from);
    if (v->tensor->ndim < 3) return from; /* no channels apart from features */
    return permuted(pl, from, order);
}

static bool same_flat(aril_shape a, aril_shape b)
{
    bool same = a.ndim == b.ndim;
    for (int i = 0; same && i < a.ndim; i++) same = a.dim[i] == b.dim[i];
    return same;
}

/* The order that suits all inputs of a layer that takes any. */
static keras_order common_order(const planner *pl, const int *in, int n)
{
    keras_order order = KERAS_ORDER;
    for (int i = 0; i < n; i++) {
        const keras_value *v = &pl->value[in[i]], *first = &pl->value[in[0]];
        if (v->tensor->ndim != first->tensor->ndim) return KERAS_ORDER;
        if (v->order == KERAS_FLATTEN) {
            for (int k = 0; k < n; k++)
                if (pl->value[in[k]].order != KERAS_FLATTEN ||
                    !same_flat(pl->value[in[k]].flat, v->flat))
                    return KERAS_ORDER;
            return KERAS_FLATTEN;
        }
        if (v->order == KERAS_FIRST) order = KERAS_FIRST;
    }
    return order;
}

static keras_order wanted(const planner *pl, const keras_layer *layer, const int *in, int n)
{
    if (!layer->kind) return KERAS_ORDER;
    keras_order common;
    switch (layer->kind->want) {
    case KERAS_WANT_SPATIAL:
        return aril__keras_channels_first(layer->config) ? KERAS_ORDER : KERAS_FIRST;
    case KERAS_WANT_ANY: return common_order(pl, in, n);
    case KERAS_WANT_AXIS:
        common = common_order(pl, in, n);
        return common == KERAS_FLATTEN ? KERAS_ORDER : common;
    case KERAS_WANT_FLAT:
        common = common_order(pl, in, n);
        return common == KERAS_FLATTEN && layer->n_nodes == 1 ? KERAS_FLATTEN : KERAS_ORDER;
    default: return KERAS_ORDER;
    }
}

/* Brings the inputs of a call into the orders that its layer takes. */
static aril_status order_inputs(planner *pl, const keras_layer *layer, int *in, int n, int n_all)
{
    keras_order order = wanted(pl, layer, in, n);
    bool fixed = layer->module && (!layer->kind || layer->kind->want == KERAS_WANT_AXIS);
    for (int i = 0; i < n_all; i++) {
        keras_order want = i < n ? order : KERAS_ORDER;
        if (fixed && i < 8) want = layer->orders[i];
        /* A network takes images as they come: its own layers convert them. */
        if (!layer->kind && !layer->module)
            want = pl->value[in[i]].order == KERAS_FLATTEN ? KERAS_ORDER : pl->value[in[i]].order;
        in[i] = ordered(pl, in[i], want);
        if (in[i] < 0) return in[i];
    }
    return ARIL_OK;
}

/* ---- calls ---- */

static keras_node *node_of(keras_ref r)
{
    return &r.layer->node[r.node];
}

static int value_of(const planner *pl, keras_ref r)
{
    const keras_node *node = node_of(r);
    if (r.tensor < node->n_values) return node->value[r.tensor];
    return aril__fail(ARIL_ERR_FORMAT, "%s: layer \"%s\" has %d results, result %d is used",
                      pl->l->path, r.layer->name, node->n_values, r.tensor);
}

/* Inputs of a call: values by position, then those by keyword, then masks. */
typedef struct call {
    int in[2 * MAX_INPUTS];
    int n, n_all, n_total;
    int mask[4], n_masks; /* those that the call gives to its inputs; -1: none */
} call;

static aril_status collect(const planner *pl, const keras_layer *layer, const keras_node *node,
                           call *c)
{
    c->n = c->n_all = c->n_masks = 0;
    if (node->n_in > MAX_INPUTS)
        return aril__fail(ARIL_ERR_FORMAT, "%s: layer \"%s\" has %d inputs, at most %d are allowed",
                          pl->l->path, layer->name, node->n_in, MAX_INPUTS);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < node->n_in; i++) {
            const keras_argument *a = &node->in[i];
            bool mask = a->role && strcmp(a->role, "mask") == 0;
            if ((!a->ref.layer && !mask) || (a->role != NULL) != (pass == 1)) continue;
            int v = a->ref.layer ? value_of(pl, a->ref) : -1;
            if (v < 0 && a->ref.layer) return v;
            if (!mask)
                c->in[c->n_all++] = v;
            else if (c->n_masks < 4)
                c->mask[c->n_masks++] = v;
        }
        if (pass == 0) c->n = c->n_all;
    }
    if (c->n_all && !c->n) c->n = 1; /* everything by keyword */
    if (c->n_all) return ARIL_OK;
    return aril__fail(ARIL_ERR_FORMAT, "%s: layer \"%s\" (%s) is called without inputs",
                      pl->l->path, layer->name, layer->class);
}

static int mask_of(const planner *pl, const call *c, int i)
{
    if (i < c->n_masks && c->mask[i] >= 0) return c->mask[i];
    return pl->value[c->in[i]].mask;
}

/* Masks follow the inputs of layers that take them; the mask of the result in *passed. */
static aril_status add_masks(const planner *pl, const keras_layer *layer, call *c, int *passed)
{
    keras_mask rule = layer->kind ? layer->kind->mask : KERAS_MASK_PASS;
    int first = mask_of(pl, c, 0);
    *passed =
        rule == KERAS_MASK_PASS || rule == KERAS_MASK_BOTH || rule == KERAS_MASK_ALONE ? first : -1;
    c->n_total = c->n_all;
    bool takes = rule == KERAS_MASK_TAKE || rule == KERAS_MASK_BOTH || rule == KERAS_MASK_ALONE;
    if (rule == KERAS_MASK_ALONE && pl->l->version >= 3 && c->n_all > 1 && !c->n_masks)
        takes = false;
    if (takes) {
        for (int i = 0; i < c->n_all; i++) c->in[c->n_total++] = mask_of(pl, c, i);
        while (c->n_total > c->n_all && c->in[c->n_total - 1] < 0) c->n_total--;
    }
    for (int i = 1; i < c->n && rule == KERAS_MASK_PASS; i++)
        if (mask_of(pl, c, i) != first)
            return aril__fail(ARIL_ERR_UNSUPPORTED,
                              "%s: the inputs of layer \"%s\" (%s) are masked differently, which "
                              "is not supported",
                              pl->l->path, layer->name, layer->class);
    return ARIL_OK;
}

static char *child_name(const char *name)
{
    char *copy = aril__strdup(*name ? name : "layer");
    for (char *c = copy; c && *c; c++)
        if (*c == '.') *c = '_';
    return copy;
}

static bool takes_masks(const keras_layer *layer)
{
    bool takes = layer->kind &&
                 (layer->kind->mask == KERAS_MASK_TAKE || layer->kind->mask == KERAS_MASK_BOTH);
    for (int i = 0; i < layer->n_inner && !takes; i++) takes = takes_masks(layer->inner[i]);
    return takes;
}

/* Whether a network can be called with these inputs. */
static aril_status check_network(const planner *pl, const keras_layer *layer, const call *c)
{
    if (c->n_all != layer->n_in)
        return aril__fail(ARIL_ERR_FORMAT, "%s: network \"%s\" has %d inputs, it is called with %d",
                          pl->l->path, layer->name, layer->n_in, c->n_all);
    for (int i = 0; i < c->n_all; i++)
        if (pl->value[c->in[i]].mask >= 0 && takes_masks(layer))
            return aril__fail(ARIL_ERR_UNSUPPORTED,
                              "%s: an input of network \"%s\" is masked, which is supported only "
                              "within one network",
                              pl->l->path, layer->name);
    return ARIL_OK;
}

/* Makes the module of a layer for the inputs of its first call, and adds it to the network. */
static aril_status make_module(planner *pl, keras_layer *layer, const keras_node *node, call *c,
                               keras_value *results)
{
    keras_value in[MAX_INPUTS];
    for (int i = 0; i < c->n_all; i++) in[i] = pl->value[c->in[i]];
    for (int i = 0; i < c->n_all && i < 8; i++) layer->orders[i] = in[i].order;
    aril_module *m;
    if (!layer->kind) {
        aril_status s = check_network(pl, layer, c);
        if (s < 0) return s;
        m = aril__keras_plan(pl->l, layer, in, results);
    } else {
        keras_make k = { .loader = pl->l,
                         .layer = layer,
                         .config = layer->config,
                         .keywords = node->keywords,
                         .node = node,
                         .in = in,
                         .n_in = c->n,
                         .n_all = c->n_all,
                         .rank = in[0].tensor->ndim,
                         .order = in[0].order };
        m = layer->kind->make(&k);
    }
    char *name = m ? child_name(layer->name) : NULL;
    if (m && !name) {
        aril_module_release(m);
        return no_memory(pl);
    }
    if (m && !layer->trainable) aril_module_freeze(m);
    layer->module = m ? aril_module_add(pl->root, name, m) : NULL;
    free(name);
    return layer->module ? ARIL_OK : aril__last_status();
}

/* The order and mask of a result. */
static keras_value result_of(const planner *pl, const keras_layer *layer, const call *c,
                             aril_tensor *t, int passed)
{
    const keras_value *in = &pl->value[c->in[0]];
    keras_value v = { .tensor = t, .order = KERAS_ORDER, .mask = passed };
    if (layer->kind->gives == KERAS_GIVES_KERAS) return v;
    if (layer->kind->gives == KERAS_GIVES_FLAT) {
        v.order = in->order == KERAS_FIRST ? KERAS_FLATTEN : in->order;
        if (in->order == KERAS_FLATTEN) v.flat = in->flat;
        for (int i = 1; i < in->tensor->ndim && in->order == KERAS_FIRST; i++)
            v.flat.dim[i - 1] = in->tensor->dim[i + 1 < in->tensor->ndim ? i + 1 : 1];
        if (in->order == KERAS_FIRST) v.flat.ndim = in->tensor->ndim - 1;
        return v;
    }
    if (in->order == KERAS_FLATTEN) {
        v.order = KERAS_FLATTEN;
        v.flat = in->flat;
    } else if (t->ndim >= 3) {
        v.order = in->order;
    }
    return v;
}

/* Runs the module on symbolic values: in evaluation, since a defined graph changes no running
 * statistics. */
static aril_status run_call(planner *pl, keras_layer *layer, const call *c, int n_out,
                            aril_tensor **out)
{
    aril_tensor *in[2 * MAX_INPUTS];
    for (int i = 0; i < c->n_total; i++) in[i] = c->in[i] < 0 ? NULL : pl->value[c->in[i]].tensor;
    aril__thread *th = aril__self();
    aril__frame frame = { .up = th->frame, .what = pl->root }; /* messages name the layer */
    th->frame = &frame;
    bool training = aril_module_training(layer->module);
    aril_module_eval(layer->module);
    aril_status s = aril_forward_all(layer->module, (aril_list){ c->n_total, in }, n_out, out);
    if (training) aril_module_train(layer->module);
    th->frame = frame.up;
    for (int i = 0; i < n_out && s == ARIL_OK; i++)
        if (!out[i])
            s = aril__fail(ARIL_ERR_FORMAT, "%s: layer \"%s\" does not give result %d", pl->l->path,
                           layer->name, i);
    return s;
}

/* Flattened images keep their order only if their size is known. */
static bool flat_sizes_known(const aril_tensor *t)
{
    for (int i = 1; i < t->ndim; i++)
        if (t->dim[i] < 0) return false;
    return true;
}

static aril_status set_results(planner *pl, keras_layer *layer, keras_node *node, const call *c,
                               aril_tensor **out, int n_out, const keras_value *of_network,
                               int passed)
{
    node->value = aril__malloc((size_t)n_out * sizeof *node->value);
    keras_step *s = node->value ? add_step(pl, KERAS_CALL, c->n_total, n_out) : NULL;
    if (!s) return no_memory(pl);
    s->module = layer->module;
    memcpy(s->in, c->in, (size_t)c->n_total * sizeof *s->in);
    for (int i = 0; i < n_out; i++) s->out[i] = -1;
    int at = pl->p->n_steps - 1;
    for (int i = 0; i < n_out; i++) {
        keras_value v = layer->kind ? result_of(pl, layer, c, out[i], passed) : of_network[i];
        v.tensor = out[i];
        if (!layer->kind) v.mask = passed;
        int number = add_value(pl, v);
        if (number < 0) return number;
        pl->p->step[at].out[i] = node->value[i] = number;
        node->n_values++;
    }
    if (layer->kind && layer->kind->mask == KERAS_MASK_MAKE && n_out > 1)
        pl->value[node->value[0]].mask = node->value[1];
    return ARIL_OK;
}

static aril_status plan_call(planner *pl, keras_layer *layer, keras_node *node)
{
    call c;
    int passed = -1;
    aril_status s = collect(pl, layer, node, &c);
    if (s == ARIL_OK && layer->kind && layer->kind->gives == KERAS_GIVES_FLAT &&
        !flat_sizes_known(pl->value[c.in[0]].tensor))
        s = (c.in[0] = ordered(pl, c.in[0], KERAS_ORDER)) < 0 ? c.in[0] : ARIL_OK;
    if (s == ARIL_OK) s = order_inputs(pl, layer, c.in, c.n, c.n_all);
    if (s < 0) return s;
    int room = layer->kind ? 0 : layer->n_out;
    if (!layer->kind && !layer->results)
        layer->results = aril__calloc((size_t)room * sizeof *layer->results + 1);
    if (!layer->kind && !layer->results) return no_memory(pl);
    if (!layer->module) s = make_module(pl, layer, node, &c, layer->results);
    if (s == ARIL_OK) s = add_masks(pl, layer, &c, &passed);
    if (s < 0) return s;
    int n_out = layer->kind ? layer->module->type->outputs : layer->n_out;
    if (n_out < 1) n_out = 1;
    aril_tensor **out = aril__calloc((size_t)n_out * sizeof *out);
    if (!out) return no_memory(pl);
    s = run_call(pl, layer, &c, n_out, out);
    if (s == ARIL_OK) s = set_results(pl, layer, node, &c, out, n_out, layer->results, passed);
    free(out);
    return s;
}

/* ---- the order of calls ---- */

typedef struct visit {
    keras_layer *layer;
    keras_node *node;
    int next; /* argument */
} visit;

typedef struct stack {
    visit *at;
    int n, cap;
} stack;

static aril_status push(planner *pl, stack *st, keras_ref r)
{
    keras_node *node = node_of(r);
    if (node->state == 2) return ARIL_OK;
    if (node->state == 1)
        return aril__fail(ARIL_ERR_FORMAT, "%s: layer \"%s\" reads its own result (a cycle)",
                          pl->l->path, r.layer->name);
    if (st->n == st->cap) {
        int cap = 2 * st->cap + 64;
        visit *grown = aril__realloc(st->at, (size_t)cap * sizeof *grown);
        if (!grown) return no_memory(pl);
        st->at = grown;
        st->cap = cap;
    }
    node->state = 1;
    st->at[st->n++] = (visit){ r.layer, node, 0 };
    return ARIL_OK;
}

/* Plans the calls that a result needs, then its own. */
static aril_status plan_result(planner *pl, keras_ref r)
{
    stack st = { 0 };
    aril_status s = push(pl, &st, r);
    while (st.n && s == ARIL_OK) {
        visit *v = &st.at[st.n - 1];
        if (v->next < v->node->n_in) {
            const keras_argument *a = &v->node->in[v->next++];
            if (a->ref.layer) s = push(pl, &st, a->ref);
        } else {
            st.n--;
            s = plan_call(pl, v->layer, v->node);
            v->node->state = 2;
        }
    }
    free(st.at);
    return s;
}

/* ---- a network ---- */

static aril_status add_inputs(planner *pl, const keras_value *in)
{
    keras_program *p = pl->p;
    const keras_layer *net = pl->network;
    size_t n = (size_t)net->n_in;
    p->in = aril__calloc(n * sizeof *p->in);
    p->name = aril__calloc(n * sizeof *p->name);
    p->shape = aril__calloc(n * sizeof *p->shape);
    p->out = aril__calloc((size_t)net->n_out * sizeof *p->out);
    if (!p->in || !p->name || !p->shape || !p->out) return no_memory(pl);
    for (int i = 0; i < net->n_in; i++) {
        p->name[i] = aril__strdup(net->in[i].layer->name);
        p->n_in++;
        keras_node *node = &net->in[i].layer->node[0];
        if (!p->name[i]) return no_memory(pl);
        if (!node->value) node->value = aril__malloc(sizeof *node->value);
        keras_value v = in[i];
        v.mask = -1;
        int number = add_value(pl, v);
        if (!node->value || number < 0) return no_memory(pl);
        node->value[0] = p->in[i] = number;
        node->n_values = 1;
        node->state = 2;
        p->shape[i].ndim = in[i].tensor->ndim;
        for (int k = 0; k < in[i].tensor->ndim; k++)
            p->shape[i].dim[k] = k && in[i].tensor->dim[k] >= 0 ? in[i].tensor->dim[k] : -1;
    }
    return ARIL_OK;
}

static aril_status add_outputs(planner *pl, keras_value *out)
{
    const keras_layer *net = pl->network;
    bool top = !net->parent, keras = pl->l->as_keras || pl->l->first;
    for (int i = 0; i < net->n_out; i++) {
        aril_status s = plan_result(pl, net->out[i]);
        int v = s < 0 ? s : value_of(pl, net->out[i]);
        if (v < 0) return v;
        keras_order order = pl->value[v].order;
        int rank = pl->value[v].tensor->ndim;
        if (top) order = !keras && (rank == 4 || rank == 5) ? KERAS_FIRST : KERAS_ORDER;
        if (order == KERAS_FLATTEN || net->ordered) order = KERAS_ORDER;
        if ((v = ordered(pl, v, order)) < 0) return v;
        if (!top && pl->value[v].mask >= 0)
            return aril__fail(ARIL_ERR_UNSUPPORTED,
                              "%s: a result of network \"%s\" is masked, which is supported only "
                              "within one network",
                              pl->l->path, net->name);
        pl->p->out[i] = v;
        out[i] = pl->value[v];
        pl->p->n_out++;
    }
    return ARIL_OK;
}

aril_module *aril__keras_plan(keras_loader *l, keras_layer *network, const keras_value *in,
                              keras_value *out)
{
    planner pl = { .l = l, .network = network, .root = aril__keras_network(network->name) };
    if (!pl.root) return NULL;
    pl.p = aril__keras_program(pl.root);
    aril_module_eval(pl.root);
    aril_status s = add_inputs(&pl, in);
    if (s == ARIL_OK) s = add_outputs(&pl, out);
    if (s == ARIL_OK) s = aril__keras_finish(pl.root);
    free(pl.value);
    return aril__layer_made(pl.root, s);
}

/* A network of one call. */
aril_module *aril__keras_plan_layer(keras_loader *l, keras_layer *layer, keras_value in)
{
    keras_layer input = { .class = "InputLayer", .name = "input" };
    keras_node calls[2] = { { .state = 0 }, { .state = 0 } };
    keras_argument argument = { .ref = { &input, 0, 0 } };
    calls[1].in = &argument;
    calls[1].n_in = 1;
    input.node = &calls[0];
    input.n_nodes = 1;
    keras_node *before = layer->node;
    int n_before = layer->n_nodes;
    layer->node = &calls[1];
    layer->n_nodes = 1;
    keras_ref in_ref = { &input, 0, 0 }, out_ref = { layer, 0, 0 };
    keras_layer network = { .name = layer->name,
                            .class = "Sequential",
                            .parent = layer->parent,
                            .trainable = layer->trainable,
                            .in = &in_ref,
                            .out = &out_ref,
                            .n_in = 1,
                            .n_out = 1,
                            .ordered = true };
    keras_value out;
    aril_module *m = aril__keras_plan(l, &network, &in, &out);
    free(calls[0].value);
    free(calls[1].value);
    layer->node = before;
    layer->n_nodes = n_before;
    return m;
}
