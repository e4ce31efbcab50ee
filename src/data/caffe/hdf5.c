/* HDF5Data layers: a list of files, each with an array for each top. */
#include "aril/device.h"
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/formats.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "data/caffe/source.h"
#include "data/files.h"
#include "formats/bytes.h"
#include "formats/hdf5.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Only the files in use are in memory: samples are read file by file, and workers may be at the
 * end of one and at the start of the next. */
enum { LOADED = 3 };

typedef struct loaded {
    int file; /* -1: none */
    int64_t used;
    aril_tensor *top[ARIL__CAFFE_TOPS];
} loaded;

typedef struct arrays {
    aril__texts file;
    int64_t *rows; /* of each file */
    int64_t size;
    int tops;
    char *name[ARIL__CAFFE_TOPS];
    pthread_mutex_t lock;
    bool has_lock;
    loaded cache[LOADED];
    int64_t clock;
} arrays;

static int64_t size_of(aril_dataset *self)
{
    return ((arrays *)aril_dataset_data(self))->size;
}

static void unload(loaded *c)
{
    for (int k = 0; k < ARIL__CAFFE_TOPS; k++) {
        aril_release(c->top[k]);
        c->top[k] = NULL;
    }
    c->file = -1;
}

static aril_status load(arrays *a, int file, loaded *c)
{
    ARIL_SCOPE;
    unload(c);
    const char *path = a->file.at[file];
    for (int k = 0; k < a->tops; k++) {
        aril_tensor *t = aril_hdf5_read(path, a->name[k]);
        if (aril_tensor_status(t) == ARIL_OK) t = aril_contiguous(aril_cast(t, ARIL_F32));
        aril_status status = aril_tensor_status(t);
        if (status == ARIL_OK && (aril_ndim(t) < 1 || aril_size(t, 0) != a->rows[file]))
            status = aril__fail(ARIL_ERR_IO, "%s has changed while it was in use", path);
        if (status != ARIL_OK) {
            unload(c);
            return status;
        }
        c->top[k] = aril_keep(t);
    }
    c->file = file;
    return ARIL_OK;
}

/* Finds a file in memory, or loads it in place of the one that was used least recently. Under the
 * lock. */
static aril_status find(arrays *a, int file, loaded **at)
{
    loaded *oldest = &a->cache[0];
    for (int i = 0; i < LOADED; i++) {
        loaded *c = &a->cache[i];
        if (c->file == file) {
            c->used = ++a->clock;
            *at = c;
            return ARIL_OK;
        }
        if (c->used < oldest->used) oldest = c;
    }
    aril_status status = load(a, file, oldest);
    oldest->used = status == ARIL_OK ? ++a->clock : 0;
    *at = oldest;
    return status;
}

static aril_status get(aril_dataset *self, int64_t i, aril_sample *s)
{
    arrays *a = aril_dataset_data(self);
    int file = 0;
    while (i >= a->rows[file]) i -= a->rows[file++];
    s->name = a->file.at[file];
    loaded *c;
    pthread_mutex_lock(&a->lock);
    aril_status status = find(a, file, &c);
    for (int k = 0; k < a->tops && status == ARIL_OK; k++) {
        aril_tensor *row = aril_select(c->top[k], 0, i);
        status = aril_tensor_status(row);
        if (status == ARIL_OK) aril__caffe_source_set(s, k, row);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

static void destroy(aril_dataset *self)
{
    arrays *a = aril_dataset_data(self);
    for (int i = 0; i < LOADED; i++) unload(&a->cache[i]);
    for (int k = 0; k < ARIL__CAFFE_TOPS; k++) free(a->name[k]);
    aril__texts_free(&a->file);
    free(a->rows);
    if (a->has_lock) pthread_mutex_destroy(&a->lock);
}

static const aril_dataset_class arrays_class = {
    .type = "HDF5Data layer",
    .data_size = sizeof(arrays),
    .size = size_of,
    .get = get,
    .destroy = destroy,
};

/* The files of the list, one per line, relative to root. */
static aril_status read_list(arrays *a, const char *path, const char *root)
{
    aril__bytes b = { 0 };
    aril_status status = aril__read_file("list of HDF5 files", path, 0, &b);
    if (status != ARIL_OK) return status;
    aril__bytes_add(&b, "", 1);
    if (b.failed) status = aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", path);
    char *rest = NULL;
    for (char *line = status == ARIL_OK ? strtok_r((char *)b.at, " \t\r\n", &rest) : NULL;
         line && status == ARIL_OK; line = strtok_r(NULL, " \t\r\n", &rest)) {
        char *file = aril__caffe_source_path(root, line);
        status = file ? aril__texts_add(&a->file, file) : ARIL_ERR_MEMORY;
        free(file);
    }
    aril__bytes_free(&b);
    if (status == ARIL_OK && a->file.n == 0)
        status = aril__fail(ARIL_ERR_FORMAT, "%s lists no files", path);
    return status;
}

static aril_status count_rows(arrays *a)
{
    a->rows = aril__calloc((size_t)a->file.n * sizeof *a->rows);
    if (!a->rows) return aril__fail(ARIL_ERR_MEMORY, "out of memory");
    aril_shape first[ARIL__CAFFE_TOPS];
    for (int64_t f = 0; f < a->file.n; f++)
        for (int k = 0; k < a->tops; k++) {
            aril_shape s;
            char text[ARIL__SHAPE_TEXT], want[ARIL__SHAPE_TEXT];
            aril_status status = aril__hdf5_shape(a->file.at[f], a->name[k], &s);
            if (status != ARIL_OK) return status;
            if (f == 0) first[k] = s;
            if (s.ndim < 1 || (k > 0 && s.dim[0] != a->rows[f]))
                return aril__fail(ARIL_ERR_SHAPE,
                                  "the arrays of %s do not have the same number of "
                                  "rows: '%s' is %s",
                                  a->file.at[f], a->name[k], aril__shape_text(text, s.ndim, s.dim));
            if (!aril__same_dims(s.ndim - 1, s.dim + 1, first[k].ndim - 1, first[k].dim + 1))
                return aril__fail(ARIL_ERR_SHAPE, "'%s' is %s in %s, but %s in %s", a->name[k],
                                  aril__shape_text(text, s.ndim, s.dim), a->file.at[f],
                                  aril__shape_text(want, first[k].ndim, first[k].dim),
                                  a->file.at[0]);
            a->rows[f] = s.dim[0];
            if (k == 0 && __builtin_add_overflow(a->size, s.dim[0], &a->size))
                return aril__fail(ARIL_ERR_FORMAT, "too many rows");
        }
    return ARIL_OK;
}

aril_status aril__caffe_open_hdf5(const aril__message *layer, const aril__caffe_source_opts *opts,
                                  aril__caffe_source *s)
{
    const aril__message *p = aril__message_sub(layer, "hdf5_data_param");
    s->batch = aril__caffe_batch_size(p);
    if (s->batch < 0) return (aril_status)s->batch;
    s->dataset = aril_dataset_make(&arrays_class);
    if (!s->dataset) return aril__latest_status();
    arrays *a = aril_dataset_data(s->dataset);
    for (int i = 0; i < LOADED; i++) a->cache[i].file = -1;
    a->tops = (int)aril__message_count(layer, "top");
    if (aril__message_has(layer, "transform_param"))
        return aril__fail(ARIL_ERR_ARG, "HDF5Data has no transform_param; transform the data when "
                                        "they are written");
    if (pthread_mutex_init(&a->lock, NULL) != 0)
        return aril__fail(ARIL_ERR_MEMORY, "out of memory");
    a->has_lock = true;
    for (int k = 0; k < a->tops; k++)
        if (!(a->name[k] = aril__strdup(aril__message_text_at(layer, "top", (size_t)k))))
            return aril__fail(ARIL_ERR_MEMORY, "out of memory");
    char *path = aril__caffe_source_path(opts->root, aril__message_text(p, "source"));
    if (!path) return ARIL_ERR_MEMORY;
    aril_status status = read_list(a, path, opts->root);
    free(path);
    if (status == ARIL_OK) status = count_rows(a);
    if (status == ARIL_OK && aril__message_int(p, "shuffle")) {
        s->shuffle = true;
        s->n_parts = (int)a->file.n;
        s->part = a->rows;
    }
    return status;
}
