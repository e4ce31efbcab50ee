/* Connects layers by the names of their bottoms and tops. */
#include "models/caffe/inside.h"

#include <stdlib.h>

typedef struct wiring {
    caffe_net *net;
    caffe_map names; /* blob -> its latest value */
} wiring;

static caffe_layer *layer_of(const caffe_node *node)
{
    return aril__caffe_layer_of(node);
}

/* ---- values ---- */

static int add_value(caffe_net *net, const char *name, int writer)
{
    if (net->n_values == net->cap_values) {
        int more = net->cap_values ? 2 * net->cap_values : 64;
        caffe_value *wider = aril__realloc(net->value, (size_t)more * sizeof *wider);
        if (!wider) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file), -1;
        net->value = wider;
        net->cap_values = more;
    }
    net->value[net->n_values] =
        (caffe_value){ .name = name, .writer = writer, .last = -1, .input = -1 };
    return net->n_values++;
}

/* Whether a layer from `node` on has this top: then blobs are read before they are written. */
static const char *later_writer(const caffe_net *net, int node, const char *blob)
{
    for (int i = node; i < net->n_nodes; i++)
        for (size_t k = 0; k < aril__message_count(net->node[i].message, "top"); k++)
            if (strcmp(aril__message_text_at(net->node[i].message, "top", k), blob) == 0)
                return net->node[i].name;
    return NULL;
}

/* A layer with this top that is not in the net, as its rules say; NULL: none. */
static const aril__message *excluded_writer(const caffe_net *net, const char *blob)
{
    for (int i = net->n_excluded - 1; i >= 0; i--)
        for (size_t k = 0; k < aril__message_count(net->excluded[i], "top"); k++)
            if (strcmp(aril__message_text_at(net->excluded[i], "top", k), blob) == 0)
                return net->excluded[i];
    return NULL;
}

static aril_status unknown_bottom(const wiring *w, int node, const char *blob)
{
    const caffe_node *n = &w->net->node[node];
    const char *later = later_writer(w->net, node, blob);
    enum { MOST = 256 };
    const char *names[MOST];
    int count = 0;
    for (int i = w->net->n_values - 1; i >= 0 && count < MOST; i--)
        names[count++] = w->net->value[i].name;
    const char *near = later ? NULL : aril_nearest(blob, names, count);
    if (later)
        return aril__caffe_bad(layer_of(n), ARIL_ERR_FORMAT,
                               "the bottom '%s' is computed by a later layer, '%s'; layers must "
                               "stand in the order in which they run",
                               blob, later);
    const aril__message *out = excluded_writer(w->net, blob);
    char place[40];
    if (out)
        return aril__caffe_bad(layer_of(n), ARIL_ERR_FORMAT,
                               "no layer has the top '%s' in the phase %s: layer '%.100s' (%.60s) "
                               "at %s has it, but its include or exclude rules leave it out",
                               blob, w->net->train ? "TRAIN" : "TEST",
                               aril__message_text(out, "name"), aril__message_text(out, "type"),
                               aril__message_place(out, place, sizeof place));
    return aril__caffe_bad(layer_of(n), ARIL_ERR_FORMAT, "no layer has the top '%s'%s%s%s", blob,
                           near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static aril_status wire_bottoms(wiring *w, int node)
{
    caffe_net *net = w->net;
    caffe_node *n = &net->node[node];
    for (int i = 0; i < n->n_in; i++) {
        n->bottoms[i] = aril__message_text_at(n->message, "bottom", (size_t)i);
        int v = aril__caffe_map_get(&w->names, n->bottoms[i]);
        if (v < 0) return unknown_bottom(w, node, n->bottoms[i]);
        n->in[i] = v;
        net->value[v].readers++;
        net->value[v].last = node;
    }
    return ARIL_OK;
}

static aril_status wire_top(wiring *w, int node, int i)
{
    caffe_node *n = &w->net->node[node];
    bool named = (size_t)i < aril__message_count(n->message, "top");
    const char *name = named ? aril__message_text_at(n->message, "top", (size_t)i) : "(automatic)";
    bool in_place = named && i < n->n_in && strcmp(n->bottoms[i], name) == 0;
    int before = named ? aril__caffe_map_get(&w->names, name) : -1;
    if (before >= 0 && !in_place)
        return aril__caffe_bad(layer_of(n), ARIL_ERR_FORMAT,
                               "the top '%s' is computed by layer '%s' already", name,
                               w->net->node[w->net->value[before].writer].name);
    int v = add_value(w->net, name, node);
    if (v < 0) return ARIL_ERR_MEMORY;
    w->net->value[v].automatic = !named;
    n->out[i] = v;
    if (named) n->tops[i] = name;
    return named ? aril__caffe_map_set(&w->names, name, v) : ARIL_OK;
}

/* ---- what layers say about their tops ---- */

static aril_status wire_loss(wiring *w, int node)
{
    caffe_node *n = &w->net->node[node];
    size_t given = aril__message_count(n->message, "loss_weight");
    if (given && given != (size_t)n->n_out)
        return aril__caffe_bad(layer_of(n), ARIL_ERR_FORMAT,
                               "%zu values of loss_weight for %d tops", given, n->n_out);
    for (int i = 0; i < n->n_out; i++) {
        double weight = given ? aril__message_number_at(n->message, "loss_weight", (size_t)i)
                              : i == 0 && n->row->flags & CAFFE_LOSS;
        w->net->value[n->out[i]].loss_weight = weight;
        w->net->has_loss |= weight != 0;
    }
    return ARIL_OK;
}

static aril_status wire_propagation(wiring *w, int node)
{
    caffe_node *n = &w->net->node[node];
    size_t given = aril__message_count(n->message, "propagate_down");
    if (!given) return ARIL_OK;
    if (given != (size_t)n->n_in)
        return aril__caffe_bad(layer_of(n), ARIL_ERR_FORMAT,
                               "%zu values of propagate_down for %d bottoms", given, n->n_in);
    n->detached = aril__calloc(given * sizeof *n->detached);
    if (!n->detached) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", w->net->file);
    for (size_t i = 0; i < given; i++)
        n->detached[i] = !aril__message_int_at(n->message, "propagate_down", i);
    return ARIL_OK;
}

/* ---- nodes ---- */

static aril_status count_ends(const caffe_node *n, const char *what, size_t got, int low, int high)
{
    if (got >= (size_t)low && got <= (size_t)high && got <= CAFFE_MAX_BOTTOMS) return ARIL_OK;
    if (low == high)
        return aril__caffe_bad(layer_of(n), ARIL_ERR_FORMAT, "expected %d %s%s, got %zu", low, what,
                               low == 1 ? "" : "s", got);
    if (got > CAFFE_MAX_BOTTOMS)
        return aril__caffe_bad(layer_of(n), ARIL_ERR_UNSUPPORTED, "at most %d %ss, got %zu",
                               CAFFE_MAX_BOTTOMS, what, got);
    if (high == CAFFE_ANY)
        return aril__caffe_bad(layer_of(n), ARIL_ERR_FORMAT, "expected at least %d %ss, got %zu",
                               low, what, got);
    return aril__caffe_bad(layer_of(n), ARIL_ERR_FORMAT, "expected %d to %d %ss, got %zu", low,
                           high, what, got);
}

/* Counts of bottoms and tops, and room for them. */
static aril_status open_node(caffe_net *net, caffe_node *n)
{
    size_t bottoms = aril__message_count(n->message, "bottom"),
           tops = aril__message_count(n->message, "top");
    const caffe_row *r = n->row;
    int few = r->flags & CAFFE_AUTO_TOP ? 0 : r->min_tops;
    aril_status s = count_ends(n, "bottom", bottoms, r->min_bottoms, r->max_bottoms);
    if (s == ARIL_OK) s = count_ends(n, "top", tops, few, r->max_tops);
    if (s < 0) return s;
    n->n_in = (int)bottoms;
    n->n_tops = (int)tops;
    n->n_out = n->n_tops < r->min_tops ? r->min_tops : n->n_tops;
    n->in = aril__calloc((bottoms + 1) * sizeof *n->in);
    n->out = aril__calloc((size_t)(n->n_out + 1) * sizeof *n->out);
    n->bottoms = aril__calloc((bottoms + 1) * sizeof *n->bottoms);
    n->tops = aril__calloc((tops + 1) * sizeof *n->tops);
    if (!n->in || !n->out || !n->bottoms || !n->tops)
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    if (n->n_in > net->most_in) net->most_in = n->n_in;
    if (n->n_out > net->most_out) net->most_out = n->n_out;
    caffe_layer *l = layer_of(n);
    l->n_bottoms = n->n_in;
    l->n_tops = n->n_out;
    return ARIL_OK;
}

static void note_inputs(caffe_net *net, caffe_node *n)
{
    n->first_input = -1;
    if (!(n->row->flags & CAFFE_INPUT)) return;
    n->first_input = net->n_inputs;
    for (int i = 0; i < n->n_out; i++) {
        net->value[n->out[i]].input = net->n_inputs;
        net->inputs[net->n_inputs++] = n->out[i];
    }
}

static aril_status wire_node(wiring *w, int node)
{
    caffe_node *n = &w->net->node[node];
    aril_status s = open_node(w->net, n);
    if (s == ARIL_OK) s = aril__caffe_check_numbers(layer_of(n));
    if (s == ARIL_OK) s = wire_bottoms(w, node);
    for (int i = 0; i < n->n_out && s == ARIL_OK; i++) s = wire_top(w, node, i);
    if (s == ARIL_OK) s = wire_loss(w, node);
    if (s == ARIL_OK) s = wire_propagation(w, node);
    if (s == ARIL_OK && n->row->check) s = n->row->check(n->module, layer_of(n));
    w->net->has_python |= strcmp(n->row->layer.base.type, "Python") == 0;
    return s;
}

/* ---- the ends of the net ---- */

/* What HDF5Output layers write follows the outputs: a run gives it where it is asked for. */
static aril_status list_written(caffe_net *net)
{
    size_t most = (size_t)net->n_outputs;
    for (int i = 0; i < net->n_nodes; i++) most += (size_t)net->node[i].n_in;
    int *more = aril__realloc(net->outputs, (most + 1) * sizeof *more);
    if (!more) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    net->outputs = more;
    for (int i = 0; i < net->n_nodes; i++) {
        const caffe_node *n = &net->node[i];
        for (int k = 0; k < n->n_in && n->row->flags & CAFFE_SINK; k++)
            net->outputs[net->n_outputs + net->n_written++] = n->in[k];
    }
    return ARIL_OK;
}

/* Outputs in the order of their names. */
static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static aril_status list_ends(caffe_net *net)
{
    net->inputs = aril__calloc(((size_t)net->n_values + 1) * sizeof *net->inputs);
    net->outputs = aril__calloc(((size_t)net->n_values + 1) * sizeof *net->outputs);
    struct {
        const char *name;
        int value;
    } *found = aril__calloc(((size_t)net->n_values + 1) * sizeof *found);
    if (!net->inputs || !net->outputs || !found) {
        free(found);
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    }
    for (int i = 0; i < net->n_nodes; i++) note_inputs(net, &net->node[i]);
    for (int v = 0; v < net->n_values; v++) {
        const caffe_value *value = &net->value[v];
        if (value->readers || value->automatic || value->input >= 0) continue;
        found[net->n_outputs].name = value->name;
        found[net->n_outputs++].value = v;
    }
    if (net->n_outputs) qsort(found, (size_t)net->n_outputs, sizeof *found, by_name);
    for (int i = 0; i < net->n_outputs; i++) net->outputs[i] = found[i].value;
    free(found);
    return list_written(net);
}

/* A layer that can apply the activation which alone reads its top. */
static void find_fusions(caffe_net *net)
{
    for (int i = 0; i < net->n_nodes; i++) net->node[i].fused = net->node[i].applier = -1;
    for (int i = 0; i < net->n_nodes; i++) {
        caffe_node *n = &net->node[i];
        if (!n->row->layer.fused || n->n_in != 1 || n->n_out != 1 || n->detached) continue;
        const caffe_value *v = &net->value[n->out[0]];
        if (v->readers != 1 || v->loss_weight != 0) continue;
        caffe_node *next = &net->node[v->last];
        if (!next->row->activation || next->n_in != 1 || next->detached) continue;
        if (next->row->activation(layer_of(next)) == ARIL_NO_ACTIVATION) continue;
        n->fused = v->last;
        next->applier = i;
    }
}

aril_status aril__caffe_wire(caffe_net *net)
{
    wiring w = { .net = net };
    aril_status s = ARIL_OK;
    for (int i = 0; i < net->n_nodes && s == ARIL_OK; i++) s = wire_node(&w, i);
    aril__caffe_map_free(&w.names);
    if (s == ARIL_OK) s = list_ends(net);
    if (s == ARIL_OK) find_fusions(net);
    return s;
}
