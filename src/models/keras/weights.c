/* The arrays of layers in a file: by layer and number in Keras 3's, as lists in Keras 2's. */
#include "models/keras/keras.h"

#include "core/error.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

static const char *full_name(const keras_layer *layer, char *text, size_t size)
{
    snprintf(text, size, "layer \"%s\" (%s)", layer->name, layer->class);
    return text;
}

static aril_status missing(const keras_loader *l, const keras_layer *layer, const char *variable,
                           const char *where)
{
    char name[256];
    return aril__fail(ARIL_ERR_FORMAT, "%s: no weights for variable %s of %s%s%s", l->path,
                      variable, full_name(layer, name, sizeof name),
                      *where ? ": expected the array " : "", where);
}

/* ---- Keras 3: layers/dense_1/vars/0 ---- */

static int try_array(const keras_loader *l, const char *prefix, const char *part,
                     const keras_variable *v, char *path, size_t size)
{
    snprintf(path, size, "%s%s%s%s%svars/%d", prefix, *prefix ? "/" : "", part, v->path,
             *v->path ? "/" : "", v->index);
    return aril__hdf5_find(l->weights, path);
}

static aril_status bind_by_path(keras_loader *l, keras_layer *layer, const char *prefix)
{
    char path[1024];
    for (int i = 0; i < layer->n_variables; i++) {
        keras_variable *v = &layer->variable[i];
        /* An attribute of the layer may be private: _query_dense. */
        v->array = *v->path ? try_array(l, prefix, "_", v, path, sizeof path) : -1;
        if (v->array == -1) v->array = try_array(l, prefix, "", v, path, sizeof path);
        if (v->array == ARIL_ERR_MEMORY) return ARIL_ERR_MEMORY;
        if (v->array < 0) return missing(l, layer, v->name, path);
    }
    for (int i = 0; i < layer->n_inner; i++) {
        keras_layer *inner = layer->inner[i];
        if (!inner->part) continue;
        size_t n = strlen(prefix) + strlen(inner->part) + 2;
        char *below = aril__malloc(n);
        if (!below) return aril__fail(ARIL_ERR_MEMORY, "out of memory loading %s", l->path);
        snprintf(below, n, "%s%s%s", prefix, *prefix ? "/" : "", inner->part);
        aril_status s = bind_by_path(l, inner, below);
        free(below);
        if (s < 0) return s;
    }
    return ARIL_OK;
}

/* ---- Keras 2: each layer has a list of names ---- */

/* Strings of an attribute; a long list is split over name0, name1 and so on. */
static aril_status read_list(const keras_loader *l, const char *group, const char *attribute,
                             aril__hdf5_texts *out)
{
    aril_status s = aril__hdf5_attribute(l->weights, group, attribute, out);
    for (int i = 0; s == ARIL_OK && i < 10000; i++) {
        char name[64];
        aril__hdf5_texts more;
        snprintf(name, sizeof name, "%s%d", attribute, i);
        s = aril__hdf5_attribute(l->weights, group, name, &more);
        if (s < 0 || more.n == 0) {
            aril__hdf5_texts_free(&more);
            break;
        }
        char **grown = aril__realloc(out->at, (size_t)(out->n + more.n) * sizeof *grown);
        if (!grown) s = aril__fail(ARIL_ERR_MEMORY, "out of memory loading %s", l->path);
        if (grown) {
            out->at = grown;
            memcpy(grown + out->n, more.at, (size_t)more.n * sizeof *grown);
            out->n += more.n;
            more.n = 0;
        }
        aril__hdf5_texts_free(&more);
    }
    if (s < 0) aril__hdf5_texts_free(out);
    return s;
}

typedef struct list {
    keras_loader *l;
    const char *group; /* "model_weights/block1/" */
    aril__hdf5_texts names;
    int at;
} list;

/* The trained variables of a whole network come first in its list, then the others. */
static aril_status take(list *t, keras_layer *layer, bool trained)
{
    char path[2048];
    for (int i = 0; i < layer->n_variables; i++) {
        keras_variable *v = &layer->variable[i];
        if ((layer->trainable && !v->fixed) != trained) continue;
        if (t->at == t->names.n) return missing(t->l, layer, v->name, "");
        snprintf(path, sizeof path, "%s%s", t->group, t->names.at[t->at++]);
        v->array = aril__hdf5_find(t->l->weights, path);
        if (v->array == ARIL_ERR_MEMORY) return ARIL_ERR_MEMORY;
        if (v->array < 0) return missing(t->l, layer, v->name, path);
    }
    for (int i = 0; i < layer->n_inner; i++) {
        aril_status s = take(t, layer->inner[i], trained);
        if (s < 0) return s;
    }
    return ARIL_OK;
}

static aril_status bind_list(keras_loader *l, keras_layer *layer, const char *root)
{
    char group[1024], slashed[1032];
    snprintf(group, sizeof group, "%s%s", root, layer->name);
    snprintf(slashed, sizeof slashed, "%s/", group);
    list t = { .l = l, .group = slashed };
    aril_status s = read_list(l, group, "weight_names", &t.names);
    if (s == ARIL_OK) s = take(&t, layer, true);
    if (s == ARIL_OK) s = take(&t, layer, false);
    char name[256];
    if (s == ARIL_OK && t.at < t.names.n)
        s = aril__fail(ARIL_ERR_FORMAT, "%s: %s has %d variables, the file holds %d arrays for it",
                       l->path, full_name(layer, name, sizeof name), t.at, t.names.n);
    aril__hdf5_texts_free(&t.names);
    return s;
}

aril_status aril__keras_bind(keras_loader *l)
{
    aril__hdf5_texts top = { 0 };
    aril_status s = read_list(l, "/", "layer_names", &top);
    bool below = top.n == 0;
    aril__hdf5_texts_free(&top);
    if (s == ARIL_OK && below) {
        s = read_list(l, "model_weights", "layer_names", &top);
        l->legacy = top.n > 0;
        aril__hdf5_texts_free(&top);
    } else {
        l->legacy = true;
    }
    if (s < 0) return s;
    if (!l->legacy) return bind_by_path(l, l->root, "");
    for (int i = 0; i < l->root->n_inner && s == ARIL_OK; i++)
        s = bind_list(l, l->root->inner[i], below ? "model_weights/" : "");
    return s;
}
