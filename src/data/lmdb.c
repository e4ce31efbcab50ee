/* LMDB files of Caffe's Datum messages. */
#include "aril/datasets.h"

#include "aril/device.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/datum.h"
#include "data/files.h"
#include "data/image_sample.h"
#include "data/open.h"
#include "formats/array.h"
#include "formats/lmdb.h"
#include "formats/schemas.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct pairs {
    aril__lmdb *file;
};

static aril_status malformed(const char *name, const char *what)
{
    return aril__fail(ARIL_ERR_FORMAT, "%s is not a valid Datum: %s", name, what);
}

/* The image of a Datum, in bytes or in floats. [C,H,W] */
static aril_tensor *values_of(const char *name, const aril__message *m)
{
    aril__slice bytes = aril__message_bytes(m, "data");
    aril__proto_array floats = aril__message_array(m, "float_data");
    aril_shape shape = ARIL_SHAPE(aril__message_int(m, "channels"), aril__message_int(m, "height"),
                                  aril__message_int(m, "width"));
    size_t n = bytes.n ? bytes.n : floats.n;
    uint64_t numel;
    if (!aril__array_bytes(shape, 1, n, &numel) || numel != n) {
        malformed(name, "its data do not fill its shape");
        return NULL;
    }
    aril_tensor *x = aril_empty(shape, bytes.n ? ARIL_U8 : ARIL_F32, aril_cpu());
    if (aril_tensor_status(x) != ARIL_OK) return NULL;
    if (bytes.n) {
        memcpy(aril__ptr(x), bytes.at, bytes.n);
    } else {
        memcpy(aril__ptr(x), floats.at, 4 * n);
        aril__to_host_order(aril__ptr(x), 4, (int64_t)n, false);
    }
    return x;
}

aril_status aril__datum_decode(const char *name, const unsigned char *data, size_t size,
                               aril_sample *s)
{
    aril__message *m =
        aril__message_read(&aril__caffe_Datum, data, size, (aril__message_opts){ .name = name });
    if (!m) return aril__latest_status();
    int64_t label = aril__message_int(m, "label");
    aril_status status = ARIL_OK;
    s->y = aril_from(&label, ARIL_SHAPE(), ARIL_I64, aril_cpu());
    if (aril_tensor_status(s->y) != ARIL_OK) {
        status = aril_tensor_status(s->y);
    } else if (aril__message_int(m, "encoded")) {
        aril__slice bytes = aril__message_bytes(m, "data");
        status = aril__sample_image(s, name, bytes.at, bytes.n, 0);
    } else {
        s->x = values_of(name, m);
        if (!s->x) status = aril__latest_status();
    }
    aril__message_free(m);
    return status;
}

static int64_t pairs_size(aril_dataset *self)
{
    const struct pairs *d = aril_dataset_data(self);
    return aril__lmdb_count(d->file);
}

static aril_status pairs_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const struct pairs *d = aril_dataset_data(self);
    aril__bytes b = { 0 };
    s->name = aril__lmdb_key(d->file, i);
    aril_status status = aril__lmdb_read(d->file, i, &b);
    if (status == ARIL_OK) status = aril__datum_decode(s->name, b.at, b.n, s);
    aril__bytes_free(&b);
    return status;
}

static void pairs_destroy(aril_dataset *self)
{
    struct pairs *d = aril_dataset_data(self);
    aril__lmdb_close(d->file);
}

static const aril_dataset_class pairs_class = {
    .type = "LMDB",
    .data_size = sizeof(struct pairs),
    .size = pairs_size,
    .get = pairs_get,
    .destroy = pairs_destroy,
    .images = true,
};

aril_dataset *aril_dataset_lmdb(const char *path)
{
    char file[PATH_MAX];
    struct stat st;
    bool folder = path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(file, sizeof file, "%s%s", path ? path : "", folder ? "/data.mdb" : "");
    aril__source source;
    if (aril__source_open(&source, "LMDB", file) != ARIL_OK) return NULL;
    aril__lmdb *f = aril__lmdb_open(source);
    aril_dataset *self = f ? aril_dataset_make(&pairs_class) : NULL;
    if (self)
        ((struct pairs *)aril_dataset_data(self))->file = f;
    else
        aril__lmdb_close(f);
    return self;
}

bool aril__holds_lmdb(const char *folder)
{
    return aril__is_file(folder, "data.mdb");
}

aril_dataset *aril__open_lmdb(const char *path, const char *split, const aril_open_opts *opts)
{
    (void)split, (void)opts;
    return aril_dataset_lmdb(path);
}
