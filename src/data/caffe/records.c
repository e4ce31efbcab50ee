/* Data layers: an LMDB of Datum messages. */
#include "aril/create.h"
#include "aril/device.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/caffe/source.h"
#include "data/datum.h"
#include "data/image_sample.h"
#include "formats/array.h"
#include "formats/lmdb.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct records {
    aril__lmdb *file;
    aril__caffe_transform t;
    int64_t channels, height, width; /* of the first image, transformed */
    int tops;
} records;

static int64_t size_of(aril_dataset *self)
{
    return aril__lmdb_count(((records *)aril_dataset_data(self))->file);
}

/* The image of an encoded Datum: decoded as in the file, or as the transform wants. */
static aril_status decode(const records *r, const char *name, const aril__datum *d,
                          aril__caffe_image *v)
{
    aril_sample s = { 0 };
    int channels = r->t.color ? 3 : r->t.gray ? 1 : 0;
    aril_status status = aril__sample_image(&s, name, d->bytes.at, d->bytes.n, channels);
    if (status != ARIL_OK) return status;
    if (aril_dtype_of(s.x) != ARIL_U8)
        return aril__fail(ARIL_ERR_FORMAT, "%s: an image of 8 bits was expected", name);
    *v = aril__caffe_image_of(s.x, true);
    if (v->channels == 2) v->channels = 1; /* without alpha */
    return ARIL_OK;
}

/* Calls take(r, image, name, label) for the image of a pair; floats are copied for alignment. */
static aril_status image_of(const records *r, int64_t i, aril__bytes *raw, aril__datum *d,
                            aril__caffe_image *v, float **copy)
{
    const char *name = aril__lmdb_key(r->file, i);
    aril_status status = aril__lmdb_read(r->file, i, raw);
    if (status == ARIL_OK) status = aril__datum_read(name, raw->at, raw->n, d);
    if (status != ARIL_OK) return status;
    if (d->encoded) return decode(r, name, d, v);
    *v = (aril__caffe_image){ .data = d->bytes.at,
                              .channels = d->channels,
                              .height = d->height,
                              .width = d->width,
                              .plane = d->height * d->width,
                              .row = d->width,
                              .pixel = 1 };
    if (d->bytes.n) return ARIL_OK;
    *copy = aril__malloc(4 * d->floats.n + 1);
    if (!*copy) return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", name);
    if (d->floats.n) memcpy(*copy, d->floats.at, 4 * d->floats.n);
    aril__to_host_order(*copy, 4, (int64_t)d->floats.n, false);
    v->data = *copy;
    v->f32 = true;
    return ARIL_OK;
}

/* Transforms pair i to to[]; sets its label. */
static aril_status read_pair(const records *r, int64_t i, aril_generator *g, float *to,
                             float *label)
{
    ARIL_SCOPE;
    aril__bytes raw = { 0 };
    aril__datum d = { 0 };
    aril__caffe_image v;
    float *copy = NULL;
    const char *name = aril__lmdb_key(r->file, i);
    aril_status status = image_of(r, i, &raw, &d, &v, &copy);
    int64_t height, width;
    if (status == ARIL_OK) {
        status = aril__caffe_transform_size(&r->t, name, &v, &height, &width);
        if (status == ARIL_OK &&
            (v.channels != r->channels || height != r->height || width != r->width))
            status = aril__fail(ARIL_ERR_SHAPE,
                                "%s has the shape [%lld,%lld,%lld], the first image "
                                "[%lld,%lld,%lld]; use crop_size, or import the images in one size",
                                name, (long long)v.channels, (long long)height, (long long)width,
                                (long long)r->channels, (long long)r->height, (long long)r->width);
    }
    if (status == ARIL_OK) status = aril__caffe_transform_apply(&r->t, name, &v, g, to);
    *label = (float)d.label;
    aril__datum_free(&d);
    aril__bytes_free(&raw);
    free(copy);
    return status;
}

static aril_status get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const records *r = aril_dataset_data(self);
    s->name = aril__lmdb_key(r->file, i);
    aril_tensor *x = aril_empty(ARIL_SHAPE(r->channels, r->height, r->width), ARIL_F32, aril_cpu());
    aril_status status = aril_tensor_status(x);
    float label = 0;
    if (status == ARIL_OK) status = read_pair(r, i, s->random, aril__ptr(x), &label);
    if (status != ARIL_OK) return status;
    aril__caffe_source_set(s, 0, x);
    if (r->tops > 1)
        aril__caffe_source_set(s, 1, aril_from(&label, ARIL_SHAPE(), ARIL_F32, aril_cpu()));
    return r->tops > 1 ? aril_tensor_status(s->y) : ARIL_OK;
}

/* A whole batch, where no random numbers are drawn. */
static aril_status get_batch(aril_dataset *self, int64_t n, const int64_t *index, aril_batch *b)
{
    const records *r = aril_dataset_data(self);
    if (aril__caffe_transform_is_random(&r->t)) return 1;
    aril_tensor *x =
        aril_batch_buffer(&b->x, ARIL_F32, ARIL_SHAPE(n, r->channels, r->height, r->width));
    aril_tensor *y = x && r->tops > 1 ? aril_batch_buffer(&b->y, ARIL_F32, ARIL_SHAPE(n)) : NULL;
    if (!x || (r->tops > 1 && !y)) return aril__latest_status();
    int64_t each = r->channels * r->height * r->width;
    for (int64_t i = 0; i < n; i++) {
        float label;
        /* The caller reads the samples one by one to name the one that fails. */
        if (read_pair(r, index[i], NULL, (float *)aril__ptr(x) + i * each, &label) != ARIL_OK) {
            aril_clear_error();
            return 1;
        }
        if (y) ((float *)aril__ptr(y))[i] = label;
    }
    return ARIL_OK;
}

static void destroy(aril_dataset *self)
{
    records *r = aril_dataset_data(self);
    aril__caffe_transform_free(&r->t);
    aril__lmdb_close(r->file);
}

static const aril_dataset_class records_class = {
    .type = "Data layer",
    .data_size = sizeof(records),
    .size = size_of,
    .get = get,
    .get_batch = get_batch,
    .destroy = destroy,
};

/* A path that ends with _leveldb may have an LMDB beside it, as Caffe's scripts name them. */
static aril__lmdb *open_file(const aril__message *p, const char *root)
{
    char folder[PATH_MAX], file[PATH_MAX + 16];
    const char *source = aril__message_text(p, "source");
    static const char level[] = "leveldb";
    size_t n = strlen(source);
    bool is_level = n > sizeof level && strcmp(source + n - (sizeof level - 1), level) == 0;
    struct stat st;
    if (n >= sizeof folder) {
        aril__fail(ARIL_ERR_ARG, "the source '%.80s...' is too long", source);
        return NULL;
    }
    memcpy(folder, source, n + 1);
    if (is_level) memcpy(folder + n - (sizeof level - 1), "lmdb", sizeof "lmdb");
    char *path = aril__caffe_source_path(root, folder);
    if (!path) return NULL;
    snprintf(folder, sizeof folder, "%s", path);
    free(path);
    snprintf(file, sizeof file, "%s%s", folder,
             stat(folder, &st) == 0 && S_ISDIR(st.st_mode) ? "/data.mdb" : "");
    if (stat(file, &st) != 0) {
        aril__fail(ARIL_ERR_IO,
                   is_level ? "%s is a LevelDB, which Aril does not read, "
                              "and there is no LMDB %s; make one with `aril data "
                              "import`"
                            : "there is no LMDB %s (%s); make one with "
                              "`aril data import`",
                   is_level ? source : folder, is_level ? folder : source);
        return NULL;
    }
    aril__source from;
    if (aril__source_open(&from, "LMDB", file) != ARIL_OK) return NULL;
    return aril__lmdb_open(from);
}

/* The shape of all images is that of the first one. */
static aril_status look(records *r, const char *source)
{
    ARIL_SCOPE;
    aril__bytes raw = { 0 };
    aril__datum d = { 0 };
    aril__caffe_image v;
    float *copy = NULL;
    if (aril__lmdb_count(r->file) == 0)
        return aril__fail(ARIL_ERR_FORMAT, "the LMDB %s is empty", source);
    aril_status status = image_of(r, 0, &raw, &d, &v, &copy);
    if (status == ARIL_OK) {
        r->channels = v.channels;
        status = aril__caffe_transform_size(&r->t, aril__lmdb_key(r->file, 0), &v, &r->height,
                                            &r->width);
    }
    aril__datum_free(&d);
    aril__bytes_free(&raw);
    free(copy);
    return status;
}

aril_status aril__caffe_open_data(const aril__message *layer, const aril__caffe_source_opts *opts,
                                  aril__caffe_source *s)
{
    const aril__message *p = aril__message_sub(layer, "data_param");
    s->batch = aril__caffe_batch_size(p);
    if (s->batch < 0) return (aril_status)s->batch;
    s->skip_below = aril__message_int(p, "rand_skip");
    s->shuffle = aril__message_int(p, "shuffle") != 0;
    s->dataset = aril_dataset_make(&records_class);
    if (!s->dataset) return aril__latest_status();
    records *r = aril_dataset_data(s->dataset);
    r->tops = (int)aril__message_count(layer, "top");
    aril_status status = aril__caffe_transform_read(layer, opts->train, opts->root, &r->t);
    if (status == ARIL_OK && aril__message_int(p, "force_encoded_color")) r->t.color = true;
    if (status == ARIL_OK && !(r->file = open_file(p, opts->root))) status = aril__latest_status();
    return status == ARIL_OK ? look(r, aril__message_text(p, "source")) : status;
}
