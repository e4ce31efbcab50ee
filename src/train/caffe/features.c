/* Writes the values of blobs, for other programs. */
#include "aril/caffe_solver.h"
#include "aril/create.h"
#include "aril/formats.h"
#include "aril/index.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/atomic_file.h"
#include "formats/hdf5.h"
#include "formats/lmdb.h"
#include "formats/schemas.h"
#include "train/caffe/solver.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One file that is being written. */
typedef struct feature_file {
    const char *path;
    char name[PATH_MAX];     /* of the file itself: the database is in a folder */
    struct stat folder;      /* that contains it */
    aril__lmdb_writer *lmdb; /* NULL: HDF5, of all values at the end */
    aril_tensor **part;
    int64_t n, capacity, written;
} feature_file;

static bool is_hdf5(const char *path)
{
    size_t n = strlen(path);
    return n > 3 && strcmp(path + n - 3, ".h5") == 0;
}

/* The part of a file's name after its folder. */
static const char *own_name(const feature_file *f)
{
    const char *slash = strrchr(f->name, '/');
    return slash ? slash + 1 : f->name;
}

/* Finds out which file it is, and creates its folder. */
static aril_status locate(feature_file *f, const char *path)
{
    char folder[PATH_MAX];
    f->path = path;
    if (snprintf(f->name, sizeof f->name, "%s%s", path, is_hdf5(path) ? "" : "/data.mdb") >=
        PATH_MAX)
        return aril__fail(ARIL_ERR_ARG, "caffe_features: the path '%.80s...' is too long", path);
    aril_status status = aril__folder_create_for("caffe_features", f->name);
    const char *own = own_name(f);
    snprintf(folder, sizeof folder, "%.*s", own > f->name ? (int)(own - f->name) : 1,
             own > f->name ? f->name : ".");
    if (status == ARIL_OK && stat(folder, &f->folder) != 0)
        status = aril__fail(ARIL_ERR_IO, "caffe_features: cannot open the folder %s", folder);
    return status;
}

/* Features go to new files: an old one may be what the net reads. */
static aril_status begin(feature_file *all, int i, const char *path)
{
    feature_file *f = &all[i];
    struct stat st;
    aril_status status = locate(f, path);
    if (status != ARIL_OK) return status;
    if (lstat(f->name, &st) == 0)
        return aril__fail(ARIL_ERR_ARG,
                          "caffe_features: %s exists; remove it, or give another path", f->name);
    for (int k = 0; k < i; k++)
        if (all[k].folder.st_dev == f->folder.st_dev && all[k].folder.st_ino == f->folder.st_ino &&
            strcmp(own_name(&all[k]), own_name(f)) == 0)
            return aril__fail(ARIL_ERR_ARG,
                              "caffe_features: %s and %s are the same; each blob needs its own",
                              all[k].path, path);
    if (!is_hdf5(path) && !(f->lmdb = aril__lmdb_begin(f->name))) status = aril__latest_status();
    if (f->lmdb) aril__lmdb_only_new(f->lmdb);
    return status;
}

/* Writes each sample of a blob as a Datum of floats. */
static aril_status add_records(feature_file *f, aril_tensor *v)
{
    int64_t n = aril_ndim(v) > 0 ? aril_size(v, 0) : 1, each = n ? aril_numel(v) / n : 0;
    static const char *const sizes[] = { "channels", "height", "width" };
    const float *data = aril_data(v);
    if (!data && aril_numel(v) > 0) return aril__latest_status();
    if (aril_ndim(v) > 4 || each > INT32_MAX)
        return aril__fail(ARIL_ERR_SHAPE, "caffe_features: a Datum has at most 3 dimensions");
    aril__message *m = aril__message_new(&aril__caffe_Datum);
    aril__bytes b = { 0 };
    aril_status status = m ? ARIL_OK : aril__latest_status();
    for (int64_t i = 0; i < n && status == ARIL_OK; i++) {
        char key[32];
        aril__message_reset(m);
        for (int k = 0; k < 3; k++)
            aril__message_set_int(m, sizes[k], k + 1 < aril_ndim(v) ? aril_size(v, k + 1) : 1);
        aril__message_set_floats(m, "float_data", data + i * each, (size_t)each);
        b.n = 0;
        status = aril__message_write(m, &b);
        int length = snprintf(key, sizeof key, "%010lld", (long long)f->written++);
        if (status == ARIL_OK) status = aril__lmdb_add(f->lmdb, key, (size_t)length, b.at, b.n);
    }
    aril__message_free(m);
    aril__bytes_free(&b);
    return status;
}

/* Makes room for another batch. */
static aril_status reserve(feature_file *f)
{
    if (f->n < f->capacity) return ARIL_OK;
    int64_t capacity = f->capacity ? 2 * f->capacity : 64;
    aril_tensor **more = aril__realloc(f->part, (size_t)capacity * sizeof *more);
    if (!more) return aril__fail(ARIL_ERR_MEMORY, "caffe_features: out of memory");
    f->part = more;
    f->capacity = capacity;
    return ARIL_OK;
}

static aril_status add(feature_file *f, aril_tensor *value)
{
    ARIL_SCOPE;
    aril_tensor *v = aril_contiguous(aril_to(aril_cast(value, ARIL_F32), aril_cpu()));
    aril_status status = aril_tensor_status(v);
    if (status != ARIL_OK) return status;
    if (f->lmdb) return add_records(f, v);
    if (aril_ndim(v) == 0) v = aril_reshape(v, ARIL_SHAPE(1));
    v = aril_copy(v); /* a program may use its memory again */
    status = aril_tensor_status(v);
    if (status == ARIL_OK) status = reserve(f);
    if (status == ARIL_OK) f->part[f->n++] = aril_keep(v);
    return status;
}

/* An HDF5 file is put together in memory: the batches, their concatenation, and the file, twice.
 * Checked after the first batch, as a system may grant far more memory than it has. */
static aril_status check_memory(const feature_file *file, const char *const *blobs, int n,
                                int64_t iterations)
{
    enum { COPIES = 4 };
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE), sum = 0;
    for (int i = 0; i < n; i++) {
        double bytes = file[i].n ? 4.0 * (double)aril_numel(file[i].part[0]) : 0;
        sum += COPIES * bytes * (double)iterations;
        if (memory > 0 && sum > memory)
            return aril__fail(
                ARIL_ERR_MEMORY,
                "caffe_features: %lld batches of '%s' are %.1f GB, and HDF5 files need %d times "
                "their size in memory, of which there are %.1f GB; write an LMDB (a path without "
                ".h5), or fewer batches",
                (long long)iterations, blobs[i], bytes * (double)iterations / 1e9, COPIES,
                memory / 1e9);
    }
    return ARIL_OK;
}

static aril_status end(feature_file *f, const char *name)
{
    ARIL_SCOPE;
    if (f->lmdb) {
        aril__lmdb_writer *w = f->lmdb;
        f->lmdb = NULL;
        return aril__lmdb_commit(w);
    }
    aril_tensor *all = aril_cat((aril_list){ .n = (int)f->n, .at = f->part }, 0);
    if (aril_tensor_status(all) != ARIL_OK) return aril_tensor_status(all);
    aril__bytes image = { 0 };
    const aril__hdf5_contents contents = { .arrays = { .n = 1, .at = &all, .name = &name } };
    aril_status status = aril__hdf5_image(&contents, &image);
    aril__file *file = status == ARIL_OK ? aril__file_begin(f->path) : NULL;
    if (file) {
        aril__file_only_new(file);
        aril__file_write(file, image.at, image.n);
    }
    aril__bytes_free(&image);
    return file ? aril__file_commit(file) : aril__latest_status();
}

static aril_status run(aril_module *net, aril_caffe_feed *feed, int64_t iterations, int n,
                       const char *const *blobs, feature_file *file)
{
    ARIL_NO_GRAD;
    aril_status status = ARIL_OK;
    int n_in = aril_caffe_inputs(net);
    aril_tensor **in = aril__calloc((size_t)(n_in + n + 1) * sizeof *in), **out = in + n_in;
    if (!in) return aril__fail(ARIL_ERR_MEMORY, "caffe_features: out of memory");
    for (int64_t k = 0; k < iterations && status == ARIL_OK; k++) {
        ARIL_SCOPE;
        status = aril_caffe_feed_next(feed, in);
        if (status == ARIL_OK)
            status = aril_caffe_blobs(net, (aril_list){ .n = n_in, .at = in }, n, blobs, out);
        for (int i = 0; i < n && status == ARIL_OK; i++) status = add(&file[i], out[i]);
        if (status == ARIL_OK && k == 0) status = check_memory(file, blobs, n, iterations);
    }
    for (int i = 0; i < n && status == ARIL_OK; i++) status = end(&file[i], blobs[i]);
    free(in);
    return status;
}

aril_status aril_caffe_features(aril_module *net, aril_caffe_feed *f, int64_t iterations, int n,
                                const char *const *blobs, const char *const *to)
{
    if (!net || !f || iterations < 1 || iterations > INT_MAX || n < 1 || !blobs || !to)
        return aril__fail(ARIL_ERR_ARG, "caffe_features: expected a net, its feed, at least one "
                                        "iteration and one blob");
    for (int i = 0; i < n; i++)
        if (!blobs[i] || !to[i] || !*to[i])
            return aril__fail(ARIL_ERR_ARG, "caffe_features: the %s %d is %s",
                              blobs[i] ? "path" : "blob", i, blobs[i] && to[i] ? "empty" : "NULL");
    feature_file *file = aril__calloc((size_t)n * sizeof *file);
    if (!file) return aril__fail(ARIL_ERR_MEMORY, "caffe_features: out of memory");
    aril_status status = ARIL_OK;
    for (int i = 0; i < n && status == ARIL_OK; i++) status = begin(file, i, to[i]);
    if (status == ARIL_OK) status = run(net, f, iterations, n, blobs, file);
    for (int i = 0; i < n; i++) {
        aril__lmdb_abandon(file[i].lmdb);
        for (int64_t k = 0; k < file[i].n; k++) aril_release(file[i].part[k]);
        free(file[i].part);
    }
    free(file);
    return status;
}
