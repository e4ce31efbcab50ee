/* The calls between layers: inbound_nodes of Keras 2 and 3, and the chain of a Sequential. */
#include "models/keras/keras.h"

#include "core/error.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 1 << 16, MAX_ARGUMENTS = 4096 };

/* The layers of a network by name. */
typedef struct names {
    keras_loader *l;
    keras_layer *network;
    keras_layer **sorted;
} names;

static int by_name(const void *a, const void *b)
{
    return strcmp((*(keras_layer *const *)a)->name, (*(keras_layer *const *)b)->name);
}

static keras_layer *find_layer(const names *n, const char *name)
{
    int low = 0, high = n->network->n_inner;
    while (low < high) {
        int middle = (low + high) / 2, order = strcmp(n->sorted[middle]->name, name);
        if (order == 0) return n->sorted[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static aril_status no_memory(const keras_loader *l)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory loading %s", l->path);
}

static aril_status sort_names(names *n)
{
    n->sorted = aril__malloc((size_t)n->network->n_inner * sizeof(keras_layer *) + 1);
    if (!n->sorted) return no_memory(n->l);
    memcpy(n->sorted, n->network->inner, (size_t)n->network->n_inner * sizeof *n->sorted);
    qsort(n->sorted, (size_t)n->network->n_inner, sizeof *n->sorted, by_name);
    for (int i = 1; i < n->network->n_inner; i++)
        if (strcmp(n->sorted[i - 1]->name, n->sorted[i]->name) == 0)
            return aril__fail(ARIL_ERR_FORMAT, "%s: two layers are named \"%s\"", n->l->path,
                              n->sorted[i]->name);
    return ARIL_OK;
}

/* ---- references ---- */

/* ["dense", 0, 0], perhaps with more after it: a reference. */
static bool is_reference(const json *v)
{
    return aril__json_kind(v) == '[' && v->n >= 3 && aril__json_kind(v->first) == '"' &&
           aril__json_kind(v->first->next) == '0' && aril__json_kind(v->first->next->next) == '0';
}

static aril_status read_reference(const names *n, const json *v, keras_ref *out)
{
    const char *name = aril__json_text(aril__json_at(v, 0), "");
    int64_t node = aril__json_integer(aril__json_at(v, 1), -1),
            tensor = aril__json_integer(aril__json_at(v, 2), -1);
    keras_layer *layer = find_layer(n, name);
    if (!layer)
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s: the configuration refers to a layer \"%s\", which "
                          "network \"%s\" does not have",
                          n->l->path, name, n->network->name);
    if (node < 0 || node > MAX_NODES || tensor < 0 || tensor > MAX_NODES)
        return aril__fail(ARIL_ERR_FORMAT, "%s: a reference to layer \"%s\" is broken", n->l->path,
                          name);
    *out = (keras_ref){ layer, (int)node, (int)tensor };
    return ARIL_OK;
}

/* ---- arguments ---- */

static aril_status add_argument(const names *n, keras_node *node, keras_argument a)
{
    if (node->n_in == node->cap) {
        int cap = 2 * node->cap + 2;
        keras_argument *grown =
            cap <= MAX_ARGUMENTS ? aril__realloc(node->in, (size_t)cap * sizeof *grown) : NULL;
        if (!grown) return no_memory(n->l);
        node->in = grown;
        node->cap = cap;
    }
    node->in[node->n_in++] = a;
    return ARIL_OK;
}

/* The tensors within a value, in order; `constants`: other values too. */
static aril_status add_arguments(const names *n, keras_node *node, const char *role, const json *v,
                                 bool constants)
{
    keras_argument a = { .role = role };
    const json *history = NULL;
    const char *class = aril__json_text(aril__json_get(v, "class_name"), "");
    if (strcmp(class, "__keras_tensor__") == 0)
        history = aril__json_get(aril__json_get(v, "config"), "keras_history");
    if (!history && is_reference(v) &&
        (find_layer(n, v->first->text) || !role)) /* as a keyword, a list may be something else */
        history = v;
    if (history && is_reference(history) && strcmp(history->first->text, "_CONSTANT_VALUE") != 0) {
        aril_status s = read_reference(n, history, &a.ref);
        return s < 0 ? s : add_argument(n, node, a);
    }
    if (history && is_reference(history)) {
        a.constant = aril__json_at(history, 2);
        return constants ? add_argument(n, node, a) : ARIL_OK;
    }
    if (aril__json_kind(v) == '[' && !(constants && v->n && aril__json_kind(v->first) == '0')) {
        aril_status s = ARIL_OK;
        for (const json *e = v->first; e && s == ARIL_OK; e = e->next)
            s = add_arguments(n, node, role, e, constants);
        return s;
    }
    a.constant = v;
    return constants && aril__json_kind(v) != 'n' ? add_argument(n, node, a) : ARIL_OK;
}

/* Operands of an operation are the same by keyword as by position. */
static aril_status add_keywords(const names *n, keras_node *node, const json *keywords, bool op)
{
    if (aril__json_kind(keywords) != '{') return ARIL_OK;
    node->keywords = keywords;
    aril_status s = ARIL_OK;
    for (const json *e = keywords->first; e && s == ARIL_OK; e = e->next) {
        bool masks = strcmp(e->key, "mask") == 0 && e->kind == '[' && !is_reference(e);
        for (const json *m = e->first; masks && m && s == ARIL_OK; m = m->next)
            s = m->kind == 'n' ? add_argument(n, node, (keras_argument){ .role = e->key })
                               : add_arguments(n, node, e->key, m, false);
        if (!masks) s = add_arguments(n, node, op ? NULL : e->key, e, false);
    }
    return s;
}

/* A node of Keras 3 is { args, kwargs }, one of Keras 2 a list of [layer, node, tensor, kwargs]. */
static aril_status read_node(const names *n, keras_layer *layer, keras_node *node, const json *v)
{
    bool op = layer->kind && strncmp(layer->kind->name, "op:", 3) == 0;
    if (aril__json_kind(v) == '{') {
        const json *args = node->args = aril__json_get(v, "args");
        aril_status s = ARIL_OK;
        for (const json *e = args ? args->first : NULL; e && s == ARIL_OK; e = e->next)
            s = add_arguments(n, node, NULL, e, op);
        return s < 0 ? s : add_keywords(n, node, aril__json_get(v, "kwargs"), op);
    }
    if (aril__json_kind(v) != '[')
        return aril__fail(ARIL_ERR_FORMAT, "%s: the inbound_nodes of layer \"%s\" are broken",
                          n->l->path, layer->name);
    if (is_reference(v)) { /* the call of an op of Keras 2 */
        aril_status s = add_arguments(n, node, NULL, v, op);
        return s < 0 ? s : add_keywords(n, node, aril__json_at(v, 3), op);
    }
    aril_status s = ARIL_OK;
    for (const json *e = v->first; e && s == ARIL_OK; e = e->next)
        s = add_arguments(n, node, NULL, e, op);
    for (const json *e = v->first; e && s == ARIL_OK && !node->keywords; e = e->next)
        s = add_keywords(n, node, aril__json_at(e, 3), op);
    return s;
}

static aril_status read_nodes(const names *n, keras_layer *layer, const json *nodes)
{
    int count = aril__json_kind(nodes) == '[' ? nodes->n : 0;
    bool is_input = strcmp(layer->class, "InputLayer") == 0;
    if (count > MAX_NODES)
        return aril__fail(ARIL_ERR_FORMAT, "%s: layer \"%s\" is called %d times", n->l->path,
                          layer->name, count);
    layer->node = aril__calloc((size_t)(count + 1) * sizeof *layer->node);
    if (!layer->node) return no_memory(n->l);
    layer->n_nodes = is_input ? 1 : count;
    aril_status s = ARIL_OK;
    const json *e = count ? nodes->first : NULL;
    for (int i = 0; e && !is_input && s == ARIL_OK; e = e->next)
        s = read_node(n, layer, &layer->node[i++], e);
    return s;
}

/* ---- inputs and outputs of a network ---- */

static aril_status read_ends(const names *n, const json *v, keras_ref **at, int *count)
{
    if (is_reference(v)) {
        keras_ref *grown = aril__realloc(*at, (size_t)(*count + 1) * sizeof **at);
        if (!grown) return no_memory(n->l);
        *at = grown;
        return read_reference(n, v, &(*at)[(*count)++]);
    }
    if (aril__json_kind(v) != '[' && aril__json_kind(v) != '{')
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s: network \"%s\" has no valid input_layers and output_layers",
                          n->l->path, n->network->name);
    aril_status s = ARIL_OK;
    for (const json *e = v->first; e && s == ARIL_OK; e = e->next) s = read_ends(n, e, at, count);
    return s;
}

/* Keras counts the calls of a network that is a layer from 1 where it kept a call of its own. Keras
 * 2 counts the same in arguments and in the list of outputs (`ends`), and each call is in one of
 * them: one number that is too large tells. Keras 3 counts from 1 in the list of outputs, unless
 * the layer is a Sequential, and from 0 in arguments. */
static void note_reference(const names *n, keras_ref r, bool ends)
{
    if (!aril__keras_is_network(r.layer->class)) return;
    bool one = r.node >= r.layer->n_nodes;
    if (one && n->l->version < 3) r.layer->first_node[!ends] = 1;
    if (ends && n->l->version >= 3) one |= strcmp(r.layer->class, "Sequential") != 0;
    if (one) r.layer->first_node[ends] = 1;
}

static aril_status settle_reference(const names *n, keras_ref *r, bool ends)
{
    r->node -= r->layer->first_node[ends];
    if (r->node >= 0 && r->node < r->layer->n_nodes) return ARIL_OK;
    return aril__fail(ARIL_ERR_FORMAT,
                      "%s: the configuration refers to call %d of layer \"%s\", which is called %d "
                      "times",
                      n->l->path, r->node, r->layer->name, r->layer->n_nodes);
}

static aril_status settle_references(const names *n)
{
    aril_status s = ARIL_OK;
    for (int pass = 0; pass < 2; pass++) {
        const keras_layer *net = n->network;
        for (int i = 0; i < net->n_inner; i++)
            for (int k = 0; k < net->inner[i]->n_nodes; k++) {
                keras_node *node = &net->inner[i]->node[k];
                for (int a = 0; a < node->n_in && s == ARIL_OK; a++)
                    if (node->in[a].ref.layer && pass == 0)
                        note_reference(n, node->in[a].ref, false);
                    else if (node->in[a].ref.layer)
                        s = settle_reference(n, &node->in[a].ref, false);
            }
        for (int i = 0; i < net->n_in + net->n_out && s == ARIL_OK; i++) {
            keras_ref *r = i < net->n_in ? &net->in[i] : &net->out[i - net->n_in];
            if (pass == 0)
                note_reference(n, *r, true);
            else
                s = settle_reference(n, r, true);
        }
    }
    return s;
}

static aril_status functional_nodes(names *n)
{
    const json *config = n->network->config, *layers = aril__json_get(config, "layers");
    aril_status s = sort_names(n);
    const json *e = layers->first;
    for (int i = 0; s == ARIL_OK && i < n->network->n_inner; i++, e = e->next)
        s = read_nodes(n, n->network->inner[i], aril__json_get(e, "inbound_nodes"));
    keras_layer *net = n->network;
    if (s == ARIL_OK)
        s = read_ends(n, aril__json_get(config, "input_layers"), &net->in, &net->n_in);
    if (s == ARIL_OK)
        s = read_ends(n, aril__json_get(config, "output_layers"), &net->out, &net->n_out);
    if (s == ARIL_OK && (!net->n_in || !net->n_out))
        s = aril__fail(ARIL_ERR_FORMAT, "%s: network \"%s\" has no %s", n->l->path, net->name,
                       net->n_in ? "outputs" : "inputs");
    for (int i = 0; i < net->n_in && s == ARIL_OK; i++)
        if (strcmp(net->in[i].layer->class, "InputLayer") != 0)
            s = aril__fail(ARIL_ERR_FORMAT, "%s: input \"%s\" of network \"%s\" is no InputLayer",
                           n->l->path, net->in[i].layer->name, net->name);
    return s == ARIL_OK ? settle_references(n) : s;
}

/* ---- Sequential ---- */

/* An input for a chain that begins with another layer: its shape is in that layer's
 * configuration. */
static keras_layer *own_input(const names *n)
{
    keras_layer *input = aril__calloc(sizeof *input), *net = n->network;
    keras_layer **grown =
        aril__realloc(net->inner, (size_t)(net->n_inner + 1) * sizeof *net->inner);
    if (grown) net->inner = grown;
    if (!input || !grown) {
        free(input);
        no_memory(n->l);
        return NULL;
    }
    input->class = input->name = "InputLayer";
    input->config = net->n_inner ? net->inner[0]->config : net->config;
    input->parent = net;
    input->trainable = true;
    net->inner[net->n_inner++] = input;
    net->cap_inner = net->n_inner;
    return input;
}

static aril_status sequential_nodes(names *n)
{
    keras_layer *net = n->network;
    int layers = net->n_inner;
    bool has = strcmp(net->inner[0]->class, "InputLayer") == 0;
    keras_layer *before = has ? net->inner[0] : own_input(n);
    net->in = aril__malloc(sizeof *net->in);
    net->out = aril__malloc(sizeof *net->out);
    if (!before || !net->in || !net->out) return no_memory(n->l);
    aril_status s = read_nodes(n, before, NULL);
    net->in[net->n_in++] = (keras_ref){ before, 0, 0 };
    for (int i = has; i < layers && s == ARIL_OK; i++) {
        keras_layer *layer = net->inner[i];
        if (strcmp(layer->class, "InputLayer") == 0)
            return aril__fail(ARIL_ERR_FORMAT, "%s: \"%s\" is an InputLayer amid a Sequential",
                              n->l->path, layer->name);
        layer->node = aril__calloc(sizeof *layer->node);
        if (!layer->node) return no_memory(n->l);
        layer->n_nodes = 1;
        s = add_argument(n, layer->node, (keras_argument){ .ref = { before, 0, 0 } });
        before = layer;
    }
    net->out[net->n_out++] = (keras_ref){ before, 0, 0 };
    return s;
}

aril_status aril__keras_nodes(keras_loader *l, keras_layer *network)
{
    names n = { l, network, NULL };
    aril_status s =
        strcmp(network->class, "Sequential") == 0 ? sequential_nodes(&n) : functional_nodes(&n);
    free(n.sorted);
    for (int i = 0; i < network->n_inner && s == ARIL_OK; i++) {
        keras_layer *inner = network->inner[i];
        if (aril__keras_is_network(inner->class)) s = aril__keras_nodes(l, inner);
        for (int k = 0; k < inner->n_inner && s == ARIL_OK; k++)
            if (!aril__keras_is_network(inner->class) &&
                aril__keras_is_network(inner->inner[k]->class))
                s = aril__keras_nodes(l, inner->inner[k]);
    }
    return s;
}
