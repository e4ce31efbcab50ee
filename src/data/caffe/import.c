/* Databases of Caffe: datasets written as LMDB, and their mean. */
#include "aril/caffe.h"
#include "aril/caffe_data.h"
#include "aril/create.h"
#include "aril/datasets.h"
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/datum.h"
#include "formats/atomic_file.h"
#include "formats/image.h"
#include "formats/lmdb.h"
#include "formats/png_write.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct importing {
    aril_caffe_import_opts opts;
    aril__lmdb_writer *to;
    aril__message *datum;
    aril__bytes record, encoded;
    aril_shape first;
    int64_t n;          /* samples written */
    bool jpeg, reverse; /* reverse: channels R, G, B are stored as B, G, R */
} importing;

static aril_status label_of(const char *name, const aril_sample *s, int64_t *label)
{
    *label = 0;
    if (!s->y) return ARIL_OK;
    if (aril_numel(s->y) != 1 || aril_dtype_is_float(aril_dtype_of(s->y)))
        return aril__fail(ARIL_ERR_DTYPE,
                          "%s: a Datum has an integer label; this target is %s with %lld values",
                          name, aril_dtype_name(aril_dtype_of(s->y)), (long long)aril_numel(s->y));
    *label = aril_item_int(s->y);
    if (*label >= INT32_MIN && *label <= INT32_MAX) return aril_tensor_status(s->y);
    return aril__fail(ARIL_ERR_ARG, "%s: the label %lld is too large for a Datum", name,
                      (long long)*label);
}

/* The image as u8 or f32 [C,H,W]: images in 0..1 are stored as they are. */
static aril_tensor *image_of(const char *name, aril_tensor *x)
{
    if (aril_tensor_status(x) != ARIL_OK) return x;
    if (aril_ndim(x) < 1 || aril_ndim(x) > 3) {
        aril__fail(ARIL_ERR_SHAPE, "%s: a Datum has 1 to 3 dimensions, the sample has %d", name,
                   aril_ndim(x));
        return aril__poison();
    }
    if (aril_ndim(x) == 2) x = aril_unsqueeze(x, 0);
    if (aril_ndim(x) == 1) x = aril_reshape(x, ARIL_SHAPE(aril_size(x, 0), 1, 1));
    return aril_contiguous(aril_dtype_of(x) == ARIL_U8 ? x : aril_cast(x, ARIL_F32));
}

static aril_status encode(importing *m, const char *name, aril_tensor *x)
{
    aril__pixels p;
    if (aril_dtype_of(x) != ARIL_U8 || (aril_size(x, 0) != 1 && aril_size(x, 0) != 3))
        return aril__fail(ARIL_ERR_DTYPE, "%s: only u8 images of 1 or 3 channels can be encoded",
                          name);
    m->encoded.n = 0;
    aril_status status = aril__pixels_of("caffe_import", x, 0, &p);
    if (status != ARIL_OK) return status;
    if (m->jpeg)
        status = aril__jpeg_encode(&p, 95, &m->encoded);
    else
        status = aril__png_encode("caffe_import", p.at, p.width, p.height, p.channels,
                                  p.width * p.channels, &m->encoded);
    free(p.at);
    if (status == ARIL_OK && m->encoded.failed)
        status = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", name);
    aril__message_refer_bytes(m->datum, "data", m->encoded.at, m->encoded.n);
    aril__message_set_int(m->datum, "encoded", 1);
    return status;
}

static aril_status put_values(importing *m, const char *name, aril_tensor *x)
{
    for (int i = 0; i < 3; i++)
        if (aril_size(x, i) > INT32_MAX)
            return aril__fail(ARIL_ERR_SHAPE, "%s: its shape is too large for a Datum", name);
    aril__message_set_int(m->datum, "channels", aril_size(x, 0));
    aril__message_set_int(m->datum, "height", aril_size(x, 1));
    aril__message_set_int(m->datum, "width", aril_size(x, 2));
    if (m->reverse && aril_size(x, 0) == 3) x = aril_contiguous(aril_flip(x, ARIL_AXES(0)));
    if (aril_tensor_status(x) != ARIL_OK) return aril_tensor_status(x);
    size_t n = (size_t)aril_numel(x);
    if (aril_dtype_of(x) == ARIL_U8)
        aril__message_refer_bytes(m->datum, "data", aril__ptr(x), n);
    else
        aril__message_set_floats(m->datum, "float_data", aril__ptr(x), n);
    return ARIL_OK;
}

static aril_status check_shape(importing *m, const char *name, aril_tensor *x)
{
    aril_shape s = aril_shape_of(x);
    if (m->n == 0) m->first = s;
    if (!m->opts.same_shape || memcmp(s.dim, m->first.dim, 3 * sizeof *s.dim) == 0) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE,
                      "%s is [%lld,%lld,%lld], the first sample [%lld,%lld,%lld]; resize them",
                      name, (long long)s.dim[0], (long long)s.dim[1], (long long)s.dim[2],
                      (long long)m->first.dim[0], (long long)m->first.dim[1],
                      (long long)m->first.dim[2]);
}

/* Sample i; *left_out if it cannot be read and may be skipped. */
static aril_status read_sample(const importing *m, aril_dataset *d, int64_t i, aril_sample *s,
                               bool *left_out)
{
    aril__saved_errors before = aril__errors_begin_quiet();
    aril_status status = aril_dataset_get(d, i, s);
    aril__error *e = aril__errors_end(&before);
    *left_out = status != ARIL_OK && status != ARIL_ERR_MEMORY && m->opts.skipped && e;
    if (*left_out)
        m->opts.skipped(e->message, m->opts.ctx);
    else if (e)
        aril__raise_error(e);
    aril__error_release(e);
    return *left_out ? ARIL_OK : status;
}

static aril_status import_sample(importing *m, aril_dataset *d, int64_t i)
{
    ARIL_SCOPE;
    aril_sample s = { 0 };
    char name[64], key[600];
    int64_t label;
    bool left_out;
    aril_status status = read_sample(m, d, i, &s, &left_out);
    if (status != ARIL_OK || left_out) return status;
    snprintf(name, sizeof name, "sample %lld", (long long)i);
    const char *called = s.name ? s.name : name;
    aril_tensor *x = image_of(called, s.x);
    status = aril_tensor_status(x);
    if (status == ARIL_OK) status = label_of(called, &s, &label);
    if (status == ARIL_OK) status = check_shape(m, called, x);
    if (status != ARIL_OK) return status;
    aril__message_reset(m->datum);
    status = m->opts.encoded ? encode(m, called, x) : put_values(m, called, x);
    if (status != ARIL_OK) return status;
    aril__message_set_int(m->datum, "label", label);
    m->record.n = 0;
    status = aril__message_write(m->datum, &m->record);
    if (status != ARIL_OK) return status;
    int length =
        snprintf(key, sizeof key, "%0*lld%s%s", m->opts.key_digits ? m->opts.key_digits : 8,
                 (long long)i, m->opts.name_keys && s.name ? "_" : "",
                 m->opts.name_keys && s.name ? s.name : "");
    if (length > 511) length = 511; /* the number makes it unique */
    m->n++;
    return aril__lmdb_add(m->to, key, (size_t)length, m->record.at, m->record.n);
}

static aril_status check_opts(const aril_dataset *d, const char *folder,
                              const aril_caffe_import_opts *o, bool *jpeg)
{
    if (!d || !folder || !*folder)
        return aril__fail(ARIL_ERR_ARG, "caffe_import: the %s is missing",
                          d ? "folder" : "dataset");
    if (aril_dataset_size(d) < 0)
        return aril__fail(ARIL_ERR_ARG, "caffe_import: a stream cannot be imported");
    if (o->key_digits < 0 || o->key_digits > 18)
        return aril__fail(ARIL_ERR_ARG, "caffe_import: expected 1 to 18 digits, got %d",
                          o->key_digits);
    *jpeg = o->encoded && (!strcasecmp(o->encoded, "jpg") || !strcasecmp(o->encoded, "jpeg"));
    if (o->encoded && !*jpeg && strcasecmp(o->encoded, "png") != 0)
        return aril__fail(ARIL_ERR_ARG, "caffe_import: expected png or jpg for encoded, got '%s'",
                          o->encoded);
    return ARIL_OK;
}

int64_t aril_caffe_import(aril_dataset *d, const char *folder, aril_caffe_import_opts opts)
{
    importing m = { .opts = opts };
    char path[PATH_MAX];
    aril_status status = check_opts(d, folder, &opts, &m.jpeg);
    if (status == ARIL_OK && snprintf(path, sizeof path, "%s/data.mdb", folder) >= PATH_MAX)
        status = aril__fail(ARIL_ERR_ARG, "caffe_import: the path '%.80s...' is too long", folder);
    struct stat st;
    bool is_new = status == ARIL_OK && stat(folder, &st) != 0;
    if (status == ARIL_OK && opts.only_new && stat(path, &st) == 0)
        status = aril__fail(ARIL_ERR_IO, "caffe_import: %s is a database already", folder);
    if (status == ARIL_OK) status = aril__folder_create("caffe_import", folder);
    if (status != ARIL_OK) return status;
    m.reverse = !opts.rgb && aril_dataset_has_images(d);
    m.to = aril__lmdb_begin(path);
    m.datum = m.to ? aril__message_new(&aril__caffe_Datum) : NULL;
    if (!m.datum) status = aril__latest_status();
    if (m.to && opts.only_new) aril__lmdb_only_new(m.to);
    int64_t n = aril_dataset_size(d);
    for (int64_t i = 0; i < n && status == ARIL_OK; i++) status = import_sample(&m, d, i);
    if (status == ARIL_OK && n && !m.n)
        status = aril__fail(ARIL_ERR_FORMAT, "caffe_import: none of the %lld samples can be read",
                            (long long)n);
    if (status == ARIL_OK)
        status = aril__lmdb_commit(m.to);
    else
        aril__lmdb_abandon(m.to);
    if (status != ARIL_OK && is_new) rmdir(folder);
    aril__message_free(m.datum);
    aril__bytes_free(&m.record);
    aril__bytes_free(&m.encoded);
    return status == ARIL_OK ? m.n : status;
}

/* ---- mean ---- */

static aril_status add_image(const char *folder, const aril_sample *s, aril_shape *shape,
                             double **sum)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_contiguous(aril_cast(s->x, ARIL_F32));
    aril_status status = aril_tensor_status(x);
    if (status != ARIL_OK) return status;
    aril_shape now = aril_shape_of(x);
    int64_t n = aril_numel(x);
    if (!*sum) {
        *shape = now;
        *sum = aril__calloc((size_t)n * sizeof **sum + 1);
        if (!*sum) return aril__fail(ARIL_ERR_MEMORY, "caffe_mean: out of memory");
    }
    if (now.ndim != 3 || memcmp(now.dim, shape->dim, 3 * sizeof *now.dim) != 0)
        return aril__fail(ARIL_ERR_SHAPE,
                          "caffe_mean: the images in %s have different shapes; import them in one "
                          "size",
                          folder);
    const float *v = aril__ptr(x);
    for (int64_t i = 0; i < n; i++) (*sum)[i] += (double)v[i];
    return ARIL_OK;
}

/* Encoded images are decoded to RGB; Caffe's means are BGR. */
static void reverse_channels(aril_sample *s, bool encoded)
{
    if (encoded && aril_size(s->x, 0) == 3) s->x = aril_flip(s->x, ARIL_AXES(0));
}

static aril_status is_encoded(aril__lmdb *f, int64_t i, bool *encoded, aril_sample *s)
{
    aril__bytes b = { 0 };
    aril__datum d = { 0 };
    const char *name = aril__lmdb_key(f, i);
    aril_status status = aril__lmdb_read(f, i, &b);
    if (status == ARIL_OK) status = aril__datum_read(name, b.at, b.n, &d);
    if (status == ARIL_OK) *encoded = d.encoded;
    aril__datum_free(&d);
    if (status == ARIL_OK) status = aril__datum_decode(name, b.at, b.n, s);
    aril__bytes_free(&b);
    return status;
}

static aril_status save_mean(const char *to, aril_shape shape, const double *sum, int64_t n)
{
    ARIL_SCOPE;
    aril_tensor *mean =
        aril_empty(ARIL_SHAPE(1, shape.dim[0], shape.dim[1], shape.dim[2]), ARIL_F32, aril_cpu());
    if (aril_tensor_status(mean) != ARIL_OK) return aril_tensor_status(mean);
    float *m = aril__ptr(mean);
    for (int64_t i = 0; i < aril_numel(mean); i++) m[i] = (float)(sum[i] / (double)n);
    return aril_caffe_blob_save(to, mean);
}

aril_status aril_caffe_mean(const char *folder, const char *to)
{
    if (!folder || !to) return aril__fail(ARIL_ERR_ARG, "caffe_mean: a path is NULL");
    char path[PATH_MAX];
    aril__source source;
    if (snprintf(path, sizeof path, "%s/data.mdb", folder) >= PATH_MAX)
        return aril__fail(ARIL_ERR_ARG, "caffe_mean: the path '%.80s...' is too long", folder);
    aril_status status = aril__source_open(&source, "LMDB", path);
    if (status != ARIL_OK) return status;
    aril__lmdb *f = aril__lmdb_open(source);
    if (!f) return aril__latest_status();
    aril_shape shape = { 0 };
    double *sum = NULL;
    int64_t n = aril__lmdb_count(f);
    if (n == 0) status = aril__fail(ARIL_ERR_FORMAT, "caffe_mean: %s is empty", folder);
    for (int64_t i = 0; i < n && status == ARIL_OK; i++) {
        ARIL_SCOPE;
        aril_sample s = { 0 };
        bool encoded = false;
        status = is_encoded(f, i, &encoded, &s);
        if (status != ARIL_OK) break;
        reverse_channels(&s, encoded);
        status = add_image(folder, &s, &shape, &sum);
    }
    if (status == ARIL_OK) status = save_mean(to, shape, sum, n);
    free(sum);
    aril__lmdb_close(f);
    return status;
}
