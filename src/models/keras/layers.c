/* The tree of layers that a configuration describes. */
#include "models/keras/keras.h"

#include "core/error.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

/* Some work grows with the square of the number of layers. */
enum { MAX_NESTING = 16, MAX_LAYERS = 10000 };

/* ---- variables ---- */

/* Whether the condition after '?' holds: "key" unless it is false or null, "key=0" only if it is
 * true, "key:text" if it is that text, or null. */
static bool holds(const json *config, const char *condition, size_t n)
{
    char key[40];
    size_t length = strcspn(condition, ":= ");
    if (length > n) length = n;
    if (length >= sizeof key) return false;
    memcpy(key, condition, length);
    key[length] = 0;
    const json *v = aril__json_get(config, key);
    char kind = aril__json_kind(v);
    if (length < n && condition[length] == ':') {
        const char *text = aril__json_text(v, kind == 'n' || !kind ? "null" : "");
        return strlen(text) == n - length - 1 &&
               !memcmp(text, condition + length + 1, n - length - 1);
    }
    return length < n ? kind == 't' : kind != 'f' && kind != 'n';
}

static void add_variable(keras_layer *layer, const char *at, size_t n)
{
    const char *condition = memchr(at, '?', n);
    if (condition && !holds(layer->config, condition + 1, n - (size_t)(condition + 1 - at))) return;
    if (condition) n = (size_t)(condition - at);
    keras_variable *v = &layer->variable[layer->n_variables++];
    *v = (keras_variable){ .array = -1 };
    if (at[n - 1] == '!') {
        v->fixed = true;
        n--;
    }
    const char *slash = memchr(at, '/', n);
    size_t path = slash ? (size_t)(slash - at) : 0, skip = slash ? path + 1 : 0;
    memcpy(v->path, at, path);
    memcpy(v->name, at + skip, n - skip);
    for (int i = 0; i + 1 < layer->n_variables; i++)
        v->index += strcmp(layer->variable[i].path, v->path) == 0;
}

static void list_variables(keras_layer *layer)
{
    for (const char *at = layer->kind->variables; at && *at;) {
        size_t n = strcspn(at, " ");
        add_variable(layer, at, n);
        at += n + (at[n] == ' ');
    }
}

/* ---- the tree ---- */

bool aril__keras_is_network(const char *class)
{
    return strcmp(class, "Sequential") == 0 || strcmp(class, "Functional") == 0 ||
           strcmp(class, "Model") == 0;
}

static void out_of_memory(const keras_loader *l)
{
    aril__fail(ARIL_ERR_MEMORY, "out of memory loading %s", l->path);
}

static bool add_inner(keras_layer *parent, keras_layer *layer)
{
    if (parent->n_inner == parent->cap_inner) {
        int cap = 2 * parent->cap_inner + 8;
        keras_layer **grown = aril__realloc(parent->inner, (size_t)cap * sizeof *grown);
        if (!grown) return false;
        parent->inner = grown;
        parent->cap_inner = cap;
    }
    parent->inner[parent->n_inner++] = layer;
    return true;
}

static void note_unknown(keras_loader *l, const keras_layer *layer)
{
    if (l->n_unknown++ < 50)
        aril__bytes_print(&l->unknown, "%s%s (%s)", l->n_unknown > 1 ? ", " : "", layer->name,
                          layer->class);
    else if (l->n_unknown == 51)
        aril__bytes_print(&l->unknown, " and others");
}

static int depth_of(const keras_layer *layer)
{
    int depth = 0;
    for (; layer; layer = layer->parent) depth++;
    return depth;
}

/* Python's naming of groups: "Conv2DTranspose" is conv2d_transpose. */
static void snake_case(const char *class, char *out, size_t size)
{
    size_t n = strlen(class), at = 0;
    for (size_t i = 0; i < n && at + 3 < size; i++) {
        unsigned char c = (unsigned char)class[i], before = i ? (unsigned char)class[i - 1] : 0,
                      after = (unsigned char)class[i + 1];
        bool upper = c >= 'A' && c <= 'Z', lower_after = after >= 'a' && after <= 'z',
             lower_before = before >= 'a' && before <= 'z';
        if (upper && i && (lower_after || lower_before)) out[at++] = '_';
        out[at++] = (char)(upper ? c - 'A' + 'a' : c);
    }
    out[at] = 0;
}

/* The class in Python, by which groups are named, where that is another name. */
static const char *python_class(const char *class)
{
    return strcmp(class, "GroupQueryAttention") == 0 ? "GroupedQueryAttention" : class;
}

/* "dense", then "dense_1": unique among the layers before it. */
static char *part_name(const keras_layer *parent, const char *class)
{
    char name[128], text[192];
    snake_case(python_class(class), name, sizeof name);
    int same = 0;
    for (int i = 0; i < parent->n_inner; i++) same += strcmp(parent->inner[i]->class, class) == 0;
    if (same)
        snprintf(text, sizeof text, "layers/%s_%d", name, same);
    else
        snprintf(text, sizeof text, "layers/%s", name);
    return aril__strdup(text);
}

static keras_layer *make_layer(keras_loader *l, keras_layer *parent, const json *v,
                               const char *part);

/* The layers of a network. Very old files have a list in place of its configuration. */
static aril_status add_layers(keras_loader *l, keras_layer *network)
{
    const json *layers = aril__json_kind(network->config) == '['
                             ? network->config
                             : aril__json_get(network->config, "layers");
    if (aril__json_kind(layers) != '[' || layers->n == 0)
        return aril__fail(ARIL_ERR_FORMAT, "%s: network \"%s\" has no list of layers", l->path,
                          network->name);
    for (const json *e = layers->first; e; e = e->next)
        if (!make_layer(l, network, e, NULL)) return aril__latest_status();
    return ARIL_OK;
}

/* What a wrapper holds. */
static aril_status add_wrapped(keras_loader *l, keras_layer *layer)
{
    bool both = strcmp(layer->class, "Bidirectional") == 0;
    if (!both && strcmp(layer->class, "TimeDistributed") != 0 &&
        strcmp(layer->class, "SpectralNormalization") != 0)
        return ARIL_OK;
    const json *inner = aril__json_get(layer->config, "layer"),
               *backward = aril__json_get(layer->config, "backward_layer");
    if (!make_layer(l, layer, inner, both ? "forward_layer" : "layer"))
        return aril__latest_status();
    if (both && !make_layer(l, layer, aril__json_kind(backward) == '{' ? backward : inner,
                            "backward_layer"))
        return aril__latest_status();
    return ARIL_OK;
}

static aril_status fill_layer(keras_loader *l, keras_layer *layer, const json *v)
{
    if (depth_of(layer) > MAX_NESTING)
        return aril__fail(ARIL_ERR_FORMAT, "%s: networks are nested more than %d levels deep",
                          l->path, MAX_NESTING);
    if (l->n_layers == MAX_LAYERS)
        return aril__fail(ARIL_ERR_FORMAT, "%s: its configuration has more than %d layers", l->path,
                          MAX_LAYERS);
    if (!layer->class ||
        (aril__json_kind(layer->config) != '{' && !(layer->config && layer->config->kind == '[')))
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s: a layer of its configuration has no class_name or no config",
                          l->path);
    const json *config = layer->config;
    if (aril__json_kind(aril__json_get(config, "trainable")) == 'f') layer->trainable = false;
    const char *name = aril__json_text(aril__json_get(v, "name"), NULL);
    layer->name = aril__json_text(aril__json_get(config, "name"), name ? name : layer->class);
    l->n_layers++;
    if (aril__keras_is_network(layer->class)) return add_layers(l, layer);
    char op[128];
    layer->kind = aril__keras_kind(aril__keras_op_name(v, op, sizeof op));
    if (!layer->kind) {
        note_unknown(l, layer);
        return ARIL_OK;
    }
    list_variables(layer);
    return add_wrapped(l, layer);
}

/* NULL with an error. The parent owns it. */
static keras_layer *make_layer(keras_loader *l, keras_layer *parent, const json *v,
                               const char *part)
{
    keras_layer *layer = aril__calloc(sizeof *layer);
    if (!layer) {
        out_of_memory(l);
        return NULL;
    }
    layer->class = aril__json_text(aril__json_get(v, "class_name"), NULL);
    layer->config = aril__json_get(v, "config");
    layer->parent = parent;
    layer->trainable = !parent || parent->trainable;
    if (parent && layer->class) {
        layer->part = part ? aril__strdup(part) : part_name(parent, layer->class);
        if (!layer->part || !add_inner(parent, layer)) {
            out_of_memory(l);
            aril__keras_free(layer);
            return NULL;
        }
    }
    if (fill_layer(l, layer, v) == ARIL_OK) return layer;
    if (!parent || !layer->class) aril__keras_free(layer);
    return NULL;
}

keras_layer *aril__keras_layers(keras_loader *l, const json *config)
{
    const char *class = aril__json_text(aril__json_get(config, "class_name"), NULL);
    if (!class || !aril__keras_is_network(class)) {
        aril__fail(ARIL_ERR_UNSUPPORTED,
                   "%s is a model of class %s; only Sequential and Functional models hold a "
                   "configuration of all layers",
                   l->path, class ? class : "(none)");
        return NULL;
    }
    keras_layer *root = make_layer(l, NULL, config, NULL);
    if (!root || !l->n_unknown) return root;
    aril__fail(ARIL_ERR_UNSUPPORTED,
               "%s: %d of %d layers are of a class that is not supported: %s (docs/keras.md lists "
               "those that are)",
               l->path, l->n_unknown, l->n_layers, l->unknown.at ? (char *)l->unknown.at : "");
    aril__keras_free(root);
    return NULL;
}

void aril__keras_free(keras_layer *layer)
{
    if (!layer) return;
    for (int i = 0; i < layer->n_inner; i++) aril__keras_free(layer->inner[i]);
    for (int i = 0; i < layer->n_nodes; i++) {
        free(layer->node[i].in);
        free(layer->node[i].value);
    }
    free(layer->node);
    free(layer->inner);
    free(layer->in);
    free(layer->out);
    free(layer->part);
    free(layer->results);
    free(layer);
}
