/* Caffemodels as files of weights: blobs by the names that they have in a net, without making the
 * net, whose inputs may have no sizes. */
#include "models/caffe/inside.h"

#include "formats/weights/weights.h"

#include <stdlib.h>

/* A file in wire form has no sign of its kind. */
static int probe(aril_weights *w)
{
    return aril__ends_with(w->path, ".caffemodel");
}

/* The name and the number of axes of blob k of n. */
static caffe_stored stored_of(const caffe_row *row, const aril__message *layer, size_t n, size_t k)
{
    size_t total = 0, left;
    bool single = aril__message_count(layer, "bottom") <= 1;
    for (int i = 0; row && i < CAFFE_BLOBS && row->blob[i].name; i++)
        total += single || !row->blob[i].one_bottom;
    left = total > n ? total - n : 0;
    for (int i = 0; row && i < CAFFE_BLOBS && row->blob[i].name; i++) {
        const caffe_stored *b = &row->blob[i];
        if (!single && b->one_bottom) continue;
        if (b->optional && left > 0 && left--) continue;
        if (k-- == 0) return *b;
    }
    return (caffe_stored){ 0 };
}

/* Removes sizes of 1 in front of those that the blob has in a net. */
static void drop_ones(aril_shape *shape, int axes)
{
    while (axes && shape->ndim > axes && shape->dim[0] == 1) {
        shape->ndim--;
        memmove(shape->dim, shape->dim + 1, (size_t)shape->ndim * sizeof *shape->dim);
    }
}

/* The name of a layer as a child of a net. */
static aril_status child_name(const char *name, caffe_map *used, char *to, size_t size)
{
    int times = aril__caffe_map_get(used, name);
    times = times < 0 ? 1 : times + 1;
    snprintf(to, size, times > 1 ? "%.400s#%d" : "%.400s", *name ? name : "layer", times);
    for (char *c = to; *c; c++)
        if (*c == '.') *c = '_';
    return aril__caffe_map_set(used, name, times);
}

static aril_status add_layer(aril_weights *w, size_t i, caffe_map *used)
{
    const aril__message *layer = aril__message_sub_at(w->reader, "layer", i);
    const caffe_row *row = aril__caffe_row_of(aril__message_text(layer, "type"));
    size_t n = aril__message_count(layer, "blobs");
    char child[512], what[600];
    aril_status s =
        n ? child_name(aril__message_text(layer, "name"), used, child, sizeof child) : ARIL_OK;
    for (size_t k = 0; k < n && s == ARIL_OK; k++) {
        const aril__message *blob = aril__message_sub_at(layer, "blobs", k);
        caffe_stored stored = stored_of(row, layer, n, k);
        aril_shape shape;
        snprintf(what, sizeof what, "%.64s: layer '%s'", w->path, child);
        s = aril__caffe_stored_shape(what, blob, &shape);
        if (s < 0) return s;
        if (!aril__message_has(blob, "shape")) drop_ones(&shape, stored.axes);
        if (stored.name)
            snprintf(what, sizeof what, "%s.%s", child, stored.name);
        else
            snprintf(what, sizeof what, "%s.%zu", child, k);
        aril_dtype dtype = aril__message_array(blob, "double_data").n ? ARIL_F64 : ARIL_F32;
        if (!aril__weights_add(w, what, dtype, shape, (uint64_t)i << 32 | k))
            s = aril__weights_no_memory(w);
    }
    return s;
}

static aril_status open_file(aril_weights *w)
{
    caffe_map used = { 0 };
    aril__message *net = aril__message_read(&aril__caffe_NetParameter, w->data, w->size,
                                            (aril__message_opts){ .name = w->path });
    w->reader = net;
    aril_status s = net ? aril__caffe_net_upgrade(net, w->path) : aril__latest_status();
    for (size_t i = 0; s == ARIL_OK && i < aril__message_count(net, "layer"); i++)
        s = add_layer(w, i, &used);
    aril__caffe_map_free(&used);
    return s;
}

static aril_tensor *tensor(aril_weights *w, int i)
{
    const aril__weights_entry *e = &w->entry[i];
    const aril__message *layer = aril__message_sub_at(w->reader, "layer", (size_t)(e->at >> 32));
    return aril__caffe_stored_values(
        aril__message_sub_at(layer, "blobs", (size_t)(e->at & UINT32_MAX)), e->shape);
}

static void close_file(aril_weights *w)
{
    aril__message_free(w->reader);
}

const aril__weights_kind aril__caffe_weights = { .name = "Caffe",
                                                 .id = "caffe",
                                                 .probe = probe,
                                                 .open = open_file,
                                                 .tensor = tensor,
                                                 .close = close_file };
