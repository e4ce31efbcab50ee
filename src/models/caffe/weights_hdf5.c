/* Weights in HDF5 files, as Caffe writes them: a group data/LAYER for each layer, with the arrays
 * 0, 1 ... for its blobs, of which shared ones are only with their owner. Further layers of the
 * same name, which Caffe cannot write so, are LAYER#2, LAYER#3 ... */
#include "models/caffe/inside.h"

#include "formats/hdf5.h"

#include <stdlib.h>

static aril_status no_memory(const char *path)
{
    return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", path);
}

/* "IN/LAYER", or "IN/LAYER/k"; freed by the caller. `position` is that among the layers of its
 * name. NULL: out of memory. */
static char *name_in(const char *in, const char *layer, int position, int k)
{
    size_t size = strlen(in) + strlen(layer) + 48;
    char *name = aril__malloc(size), number[16] = "", blob[16] = "";
    if (position > 1) snprintf(number, sizeof number, "#%d", position);
    if (k >= 0) snprintf(blob, sizeof blob, "/%d", k);
    if (name) snprintf(name, size, "%s/%s%s%s", in, layer, number, blob);
    return name;
}

static char *name_of(const char *layer, int position, int k)
{
    return name_in("data", layer, position, k);
}

/* Whether a blob is stored with that layer, not with one that shares it. */
static bool is_owner(const caffe_net *net, int node, int k)
{
    for (int i = 0; i < net->n_weights; i++)
        if (net->weight[i].node == node && net->weight[i].index == k) return true;
    return false;
}

/* ---- reading ---- */

typedef struct source {
    caffe_net *net;
    const aril__hdf5 *file;
    const caffe_names *names;
    caffe_copies *to;
    bool *used; /* of the arrays in the file */
    int n;      /* layers with blobs that were found */
} source;

/* The array of a blob; negative: none, or an error, which *status is set to. */
static int find(const source *s, int node, int k, aril_status *status)
{
    char *name = name_of(s->net->node[node].name, s->names->position[node], k);
    if (!name) *status = no_memory(s->net->file);
    int at = name ? aril__hdf5_find(s->file, name) : -1;
    if (at == ARIL_ERR_MEMORY) *status = ARIL_ERR_MEMORY;
    free(name);
    return at;
}

static aril_status read_blob(const source *s, int node, int k, int at)
{
    caffe_layer *l = aril__caffe_layer_of(&s->net->node[node]);
    aril_tensor *t = aril__caffe_weight_at(s->net, node, k);
    aril_shape shape = aril__hdf5_array_shape(s->file, at);
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (!aril__same_dims(t->ndim, t->dim, shape.ndim, shape.dim) &&
        !aril__same_dims(l->shape[k].ndim, l->shape[k].dim, shape.ndim, shape.dim))
        return aril__caffe_bad(l, ARIL_ERR_SHAPE, "blob %d is %s, in the file %s", k,
                               aril__text(a, t), aril__shape_text(b, shape.ndim, shape.dim));
    s->used[at] = true;
    return aril__caffe_copies_add(s->to, t, aril__hdf5_array(s->file, at));
}

static aril_status read_layer(source *s, int node)
{
    caffe_layer *l = aril__caffe_layer_of(&s->net->node[node]);
    aril__hdf5_texts links = { 0 };
    char *group = name_of(s->net->node[node].name, s->names->position[node], -1);
    int status = group ? aril__hdf5_group(s->file, group, &links) : no_memory(s->net->file);
    free(group);
    aril__hdf5_texts_free(&links);
    if (status != ARIL_OK) return status == 1 ? ARIL_OK : (aril_status)status;
    aril_status found = ARIL_OK;
    int stored = 0;
    for (int k = 0; found == ARIL_OK && find(s, node, k, &found) >= 0; k++) stored++;
    if (found == ARIL_OK && stored > l->n_blobs)
        return aril__caffe_bad(l, ARIL_ERR_SHAPE, "has %d blobs, in the file %d", l->n_blobs,
                               stored);
    s->n += stored > 0;
    s->net->node[node].found |= stored > 0;
    for (int k = 0; k < l->n_blobs && found == ARIL_OK; k++) {
        int at = find(s, node, k, &found);
        if (found != ARIL_OK) return found;
        if (at >= 0)
            found = read_blob(s, node, k, at);
        else if (is_owner(s->net, node, k))
            return aril__caffe_bad(l, ARIL_ERR_SHAPE, "blob %d is not in the file", k);
    }
    return found;
}

static aril_status read_layers(source *s)
{
    aril_status status = ARIL_OK;
    for (int i = 0; i < s->net->n_nodes && status == ARIL_OK; i++)
        if (s->names->position[i] || aril__caffe_map_get(&s->names->at, s->net->node[i].name) == i)
            status = read_layer(s, i);
    return status;
}

/* Layers whose first blob no layer of the net has taken. */
static aril_status note_ignored(const source *s)
{
    static const char begin[] = "data/";
    size_t skip = sizeof begin - 1;
    aril_status status = ARIL_OK;
    for (int i = 0; i < aril__hdf5_count(s->file) && status == ARIL_OK; i++) {
        const char *name = aril__hdf5_array_name(s->file, i), *slash = strrchr(name, '/');
        if (s->used[i] || strncmp(name, begin, skip) != 0 || strcmp(slash, "/0") != 0) continue;
        if (slash > name + skip)
            status = aril__caffe_ignored_add(s->net, name + skip, (size_t)(slash - name) - skip);
    }
    return status;
}

aril_status aril__caffe_weights_from_hdf5(caffe_net *net, const char *path)
{
    ARIL_SCOPE;
    caffe_names names = { 0 };
    caffe_copies copies = { 0 };
    aril__hdf5_texts links = { 0 };
    aril__hdf5 *file = aril__hdf5_open(path);
    if (!file) return aril__latest_status();
    int s = aril__hdf5_group(file, "data", &links);
    if (s == 1)
        s = aril__fail(ARIL_ERR_FORMAT, "%s has no group 'data' with the blobs of layers: it is %s",
                       path,
                       aril__hdf5_find(file, "current_step") >= 0
                           ? "the state of a solver, not a caffemodel"
                           : "no caffemodel");
    aril__hdf5_texts_free(&links);
    bool *used = aril__calloc((size_t)aril__hdf5_count(file) + 1);
    if (s == ARIL_OK && !used) s = no_memory(path);
    if (s == ARIL_OK) s = aril__caffe_names(net, &names);
    if (s == ARIL_OK) s = aril__caffe_copies_open(&copies, net);
    source from = { .net = net, .file = file, .names = &names, .to = &copies, .used = used };
    if (s == ARIL_OK) s = read_layers(&from);
    if (s == ARIL_OK) s = aril__caffe_weights_found(net, path, from.n);
    if (s == ARIL_OK) s = note_ignored(&from);
    free(used);
    aril__caffe_names_free(&names);
    aril__hdf5_close(file);
    return aril__caffe_copies_finish(&copies, (aril_status)s);
}

/* ---- writing ---- */

typedef struct sink {
    aril_tensor **at;
    char **name, **group;
    int n, n_groups;
} sink;

/* Adds an array; `name` is owned by it. */
static aril_status add_array(const caffe_net *net, aril_tensor *t, char *name, sink *to)
{
    t = aril_detach(aril_to(t, aril_cpu()));
    to->at[to->n] = aril_dtype_of(t) == ARIL_F64 ? t : aril_cast(t, ARIL_F32);
    to->name[to->n] = name;
    return to->name[to->n++] ? ARIL_OK : no_memory(net->file);
}

/* Diffs are stored for shared blobs too, as by Caffe. */
static aril_status add_diffs(const caffe_net *net, int node, int position,
                             aril_tensor *const *diffs, sink *to)
{
    const char *layer = net->node[node].name;
    if (!(to->group[to->n_groups++] = name_in("diff", layer, position, -1)))
        return no_memory(net->file);
    aril_status s = ARIL_OK;
    for (int k = 0; k < aril__caffe_layer_of(&net->node[node])->n_blobs && s == ARIL_OK; k++)
        s = add_array(net, diffs[aril__caffe_weight_number(net, node, k)],
                      name_in("diff", layer, position, k), to);
    return s;
}

static aril_status add_layer(const caffe_net *net, int node, int position, sink *to)
{
    const char *layer = net->node[node].name;
    if (!(to->group[to->n_groups++] = name_of(layer, position, -1))) return no_memory(net->file);
    for (int k = 0; k < aril__caffe_layer_of(&net->node[node])->n_blobs; k++) {
        if (!is_owner(net, node, k)) continue;
        aril_status s =
            add_array(net, aril__caffe_weight_at(net, node, k), name_of(layer, position, k), to);
        if (s != ARIL_OK) return s;
    }
    return ARIL_OK;
}

/* Room for so many arrays and layers. */
static aril_status sink_open(sink *to, size_t arrays, size_t layers, const char *path)
{
    *to = (sink){ .at = aril__calloc((arrays + 1) * sizeof *to->at),
                  .name = aril__calloc((arrays + 1) * sizeof *to->name),
                  .group = aril__calloc((layers + 1) * sizeof *to->group) };
    if (!to->at || !to->name || !to->group) return no_memory(path);
    to->group[to->n_groups++] = aril__strdup("data");
    return to->group[0] ? ARIL_OK : no_memory(path);
}

/* Makes the file in memory unless s is an error already. */
static aril_status sink_image(sink *to, aril__bytes *image, aril_status s)
{
    if (s == ARIL_OK)
        s = aril__hdf5_image(
            &(aril__hdf5_contents){
                .arrays = { .n = to->n, .at = to->at, .name = (const char *const *)to->name },
                .n_groups = to->n_groups,
                .group = (const char *const *)to->group },
            image);
    for (int i = 0; i < to->n; i++) free(to->name[i]);
    for (int i = 0; i < to->n_groups; i++) free(to->group[i]);
    free(to->at);
    free(to->name);
    free(to->group);
    return s;
}

aril_status aril__caffe_weights_to_hdf5(const caffe_net *net, aril_tensor *const *diffs,
                                        aril__file *file)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    sink to;
    aril__bytes image = { 0 };
    caffe_names names = { 0 };
    size_t arrays = (size_t)net->n_weights, groups = (size_t)net->n_nodes;
    for (int i = 0; i < net->n_nodes && diffs; i++)
        arrays += (size_t)aril__caffe_layer_of(&net->node[i])->n_blobs;
    aril_status s = sink_open(&to, arrays, (diffs ? 2 : 1) * groups + 1, net->file);
    if (s == ARIL_OK && diffs && !(to.group[to.n_groups++] = aril__strdup("diff")))
        s = no_memory(net->file);
    if (s == ARIL_OK) s = aril__caffe_names(net, &names);
    for (int i = 0; i < net->n_nodes && s == ARIL_OK; i++) {
        s = add_layer(net, i, names.position[i], &to);
        if (s == ARIL_OK && diffs) s = add_diffs(net, i, names.position[i], diffs, &to);
    }
    aril__caffe_names_free(&names);
    s = sink_image(&to, &image, s);
    if (s == ARIL_OK) s = aril__file_write(file, image.at, image.n);
    aril__bytes_free(&image);
    return s;
}

/* ---- of files ---- */

/* The blobs of a layer of a file; names[]: how many layers of each name came before. */
static aril_status add_stored(const aril__message *layer, const char *path, caffe_map *names,
                              sink *to)
{
    const char *name = aril__message_text(layer, "name");
    size_t n = aril__message_count(layer, "blobs");
    aril_status s = ARIL_OK;
    if (n == 0) return ARIL_OK;
    int before = aril__caffe_map_get(names, name), position = before < 0 ? 1 : before + 1;
    s = aril__caffe_map_set(names, name, position);
    if (s == ARIL_OK && !(to->group[to->n_groups++] = name_of(name, position, -1)))
        s = no_memory(path);
    for (size_t k = 0; k < n && s == ARIL_OK; k++) {
        const aril__message *blob = aril__message_sub_at(layer, "blobs", k);
        aril_shape shape;
        s = aril__caffe_stored_shape(name, blob, &shape);
        if (s != ARIL_OK) break;
        aril_tensor *t = aril__caffe_stored_values(blob, shape);
        to->at[to->n] = t;
        to->name[to->n] = name_of(name, position, (int)k);
        s = to->name[to->n++] ? aril_tensor_status(t) : no_memory(path);
    }
    return s;
}

aril_status aril__caffe_message_to_hdf5(const aril__message *net, const char *path)
{
    ARIL_SCOPE;
    sink to;
    caffe_map names = { 0 };
    aril__bytes image = { 0 };
    size_t layers = aril__message_count(net, "layer"), blobs = 0;
    for (size_t i = 0; i < layers; i++)
        blobs += aril__message_count(aril__message_sub_at(net, "layer", i), "blobs");
    aril_status s = sink_open(&to, blobs, layers, path);
    for (size_t i = 0; i < layers && s == ARIL_OK; i++)
        s = add_stored(aril__message_sub_at(net, "layer", i), path, &names, &to);
    if (s == ARIL_OK) s = aril__message_check(net);
    aril__caffe_map_free(&names);
    s = sink_image(&to, &image, s);
    if (s == ARIL_OK) s = aril__file_replace(path, image.at, image.n);
    aril__bytes_free(&image);
    return s;
}
