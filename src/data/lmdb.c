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
#include "formats/proto.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHANNELS = 1, HEIGHT, WIDTH, DATA, LABEL, FLOAT_DATA, ENCODED };

struct pairs {
    aril__lmdb *file;
};

static aril_status malformed(const char *name, const char *what)
{
    return aril__fail(ARIL_ERR_FORMAT, "%s is not a valid Datum: %s", name, what);
}

/* The floats of a Datum, packed or unpacked. [C,H,W] */
static aril_status read_floats(const char *name, const unsigned char *data, size_t size,
                               aril_tensor *x)
{
    float *to = aril__ptr(x), v;
    int64_t n = 0, max = aril_numel(x);
    aril__proto_in in = aril__proto_open(data, size);
    while (aril__proto_next(&in)) {
        if (in.field != FLOAT_DATA) continue;
        for (const uint8_t *from = NULL; aril__proto_each_float(&in, &from, &v); n++)
            if (n < max) to[n] = v;
    }
    return n == max ? ARIL_OK : malformed(name, "its numbers do not fill its shape");
}

aril_status aril__datum_decode(const char *name, const unsigned char *data, size_t size,
                               aril_sample *s)
{
    aril_shape shape = { .ndim = 3 };
    const unsigned char *bytes = NULL;
    size_t n = 0;
    int64_t label = 0, floats = 0;
    bool encoded = false;
    aril__proto_in in = aril__proto_open(data, size);
    while (aril__proto_next(&in)) {
        switch (in.field) {
        case CHANNELS:
        case HEIGHT:
        case WIDTH: shape.dim[in.field - CHANNELS] = aril__proto_get_int(&in); break;
        case LABEL: label = aril__proto_get_int(&in); break;
        case ENCODED: encoded = aril__proto_get_int(&in) != 0; break;
        case FLOAT_DATA: floats += in.wire == ARIL__PROTO_BYTES ? (int64_t)(in.n / 4) : 1; break;
        case DATA:
            if (in.wire != ARIL__PROTO_BYTES) return malformed(name, "its data are no bytes");
            bytes = in.bytes;
            n = in.n;
            break;
        default: break;
        }
    }
    if (in.malformed) return malformed(name, "it is truncated or no protocol buffer");
    s->y = aril_from(&label, ARIL_SHAPE(), ARIL_I64, aril_cpu());
    if (aril_tensor_status(s->y) != ARIL_OK) return aril_tensor_status(s->y);
    if (encoded) return aril__sample_image(s, name, bytes ? bytes : data, n, 0);
    uint64_t numel;
    bool fits = aril__array_bytes(shape, 1, n > (size_t)floats ? n : (uint64_t)floats, &numel);
    if (!fits || (n > 0 ? numel != n : numel != (uint64_t)floats))
        return malformed(name, "its data do not fill its shape");
    s->x = aril_empty(shape, n > 0 ? ARIL_U8 : ARIL_F32, aril_cpu()); /* [C,H,W] */
    if (aril_tensor_status(s->x) != ARIL_OK) return aril_tensor_status(s->x);
    if (n == 0) return read_floats(name, data, size, s->x);
    memcpy(aril__ptr(s->x), bytes, n);
    return ARIL_OK;
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
