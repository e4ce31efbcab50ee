/* Caffemodels as files of weights: blobs by the names that they have in a net, without making the
 * net, whose inputs may have no sizes. */
#include "models/caffe/inside.h"

#include "aril/dtype.h"
#include "formats/hdf5.h"
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

/* ---- HDF5: data/LAYER/0, data/LAYER/1 ..., and with snapshot_diff the same below diff ---- */

/* The layer and the number of a blob from the name of its array; false: it is none. The layer ends
 * before *end. */
static bool blob_of(const char *name, const char **layer, const char **end, int *k)
{
    static const char group[] = "data/";
    const char *slash = strrchr(name, '/');
    if (strncmp(name, group, sizeof group - 1) != 0) return false;
    *layer = name + sizeof group - 1;
    *end = slash;
    size_t digits = strspn(slash + 1, "0123456789");
    if (slash <= *layer || digits == 0 || digits > 4 || slash[1 + digits]) return false;
    *k = atoi(slash + 1);
    return true;
}

/* The array of blob k of the layer of an array's name, up to `end`; -1: there is none. */
static int sibling(const aril__hdf5 *h, const char *name, const char *end, int k)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "%.*s/%d", (int)(end - name), name, k);
    return n > 0 && (size_t)n < sizeof text ? aril__hdf5_find(h, text) : -1;
}

/* Whether all that the file has is the blobs of layers. */
static bool has_caffe_layout(const aril__hdf5 *h)
{
    int blobs = 0, k;
    const char *layer, *end;
    aril__hdf5_texts groups = { 0 };
    bool good = aril__hdf5_refused(h) == 0 && aril__hdf5_group(h, "/", &groups) == 0;
    for (int i = 0; i < groups.n && good; i++)
        good = strcmp(groups.at[i], "data") == 0 || strcmp(groups.at[i], "diff") == 0;
    aril__hdf5_texts_free(&groups);
    for (int i = 0; i < aril__hdf5_count(h) && good; i++) {
        const char *name = aril__hdf5_array_name(h, i);
        if (strncmp(name, "diff/", 5) == 0) continue;
        good = blob_of(name, &layer, &end, &k) && aril_dtype_is_float(aril__hdf5_array_dtype(h, i));
        blobs++;
    }
    return good && blobs > 0;
}

/* With a root, or for all that a file holds, it is any HDF5 file. */
static int probe_hdf5(aril_weights *w)
{
    if (w->root_wanted || aril__hdf5_begin(w->data, w->size) != 0) return 0;
    aril__saved_errors before = aril__errors_begin_quiet();
    aril__hdf5 *h = aril__hdf5_open_memory(w->data, w->size, w->path);
    bool is = h && has_caffe_layout(h);
    aril__hdf5_close(h);
    aril__error_release(aril__errors_end(&before));
    return is;
}

/* What blob k of n is called. The file does not tell the type of its layer, but how many blobs of
 * which dimensions there are does, but for a lone one: that of Bias is called weight, too. */
static const char *name_by_sizes(const aril__hdf5 *h, const char *name, const char *end, int n,
                                 int k)
{
    static const struct {
        int n;
        const char *ndim, *name[CAFFE_BLOBS]; /* digits: of each blob; NULL: any */
    } known[] = {
        { 1, NULL, { "weight" } },
        { 2, NULL, { "weight", "bias" } },
        { 3, "111", { "mean", "variance", "scale_factor" } },
        { 3, "212", { "weight_x", "bias", "weight_h" } },
        { 4, "2122", { "weight_x", "bias", "weight_static", "weight_h" } },
        { 5, "21221", { "weight_x", "bias_h", "weight_h", "weight_o", "bias_o" } },
        { 6,
          "212221",
          { "weight_x", "bias_h", "weight_static", "weight_h", "weight_o", "bias_o" } },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bool fits = known[i].n == n;
        for (int b = 0; b < n && fits && known[i].ndim; b++) {
            int at = sibling(h, name, end, b);
            fits = at >= 0 && aril__hdf5_array_shape(h, at).ndim == known[i].ndim[b] - '0';
        }
        if (fits) return known[i].name[k];
    }
    return NULL;
}

static aril_status open_hdf5(aril_weights *w)
{
    aril__hdf5 *h = aril__hdf5_open_memory(w->data, w->size, w->path);
    w->reader = h;
    if (!h) return aril__latest_status();
    for (int i = 0; i < aril__hdf5_count(h); i++) {
        const char *layer, *end, *name = aril__hdf5_array_name(h, i);
        char text[1024];
        int k, n = 0;
        if (!blob_of(name, &layer, &end, &k)) continue;
        for (int b = 0; b < CAFFE_BLOBS; b++) /* shared ones are with another layer */
            if (sibling(h, name, end, b) >= 0) n = b + 1;
        const char *known = k < n ? name_by_sizes(h, name, end, n, k) : NULL;
        size_t length = (size_t)(end - layer);
        if (length + 32 > sizeof text)
            return aril__fail(ARIL_ERR_FORMAT, "%s: the name of a layer has %zu bytes", w->path,
                              length);
        memcpy(text, layer, length);
        for (size_t c = 0; c < length; c++)
            if (text[c] == '.') text[c] = '_';
        if (known)
            snprintf(text + length, sizeof text - length, ".%s", known);
        else
            snprintf(text + length, sizeof text - length, ".%d", k);
        if (!aril__weights_add(w, text, aril__hdf5_array_dtype(h, i), aril__hdf5_array_shape(h, i),
                               (uint64_t)i))
            return ARIL_ERR_MEMORY;
    }
    return ARIL_OK;
}

static aril_tensor *hdf5_tensor(aril_weights *w, int i)
{
    return aril__hdf5_array(w->reader, (int)w->entry[i].at);
}

static void close_hdf5(aril_weights *w)
{
    aril__hdf5_close(w->reader);
}

const aril__weights_kind aril__caffe_hdf5_weights = { .name = "Caffe",
                                                      .id = "caffe",
                                                      .probe = probe_hdf5,
                                                      .open = open_hdf5,
                                                      .tensor = hdf5_tensor,
                                                      .close = close_hdf5 };
