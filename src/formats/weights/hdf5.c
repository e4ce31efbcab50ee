/* HDF5 files as weights: arrays under their full names, "group/x". Of Keras' files, those of the
 * model: without the optimizer's, and for .h5 by layer, without "model_weights/". Of MATLAB's (.mat
 * of version 7.3), those of numbers, whose sizes stand in the file from the last to the first. */
#include "formats/hdf5.h"

#include "aril/create.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/gzip.h"
#include "formats/keras.h"
#include "formats/weights/weights.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    aril__keras_file file;
    aril_tensor **kept; /* by entry: the array of one that others are names of, kept; else NULL */
    bool *several;      /* by entry: others are names of the same array */
} reader;

static bool is_matlab(const aril_weights *w)
{
    static const char text[] = "MATLAB 7.3";
    return w->size > sizeof text && memcmp(w->data, text, sizeof text - 1) == 0;
}

static int probe_hdf5(aril_weights *w)
{
    bool is_zip = w->size >= 2 && memcmp(w->data, "PK", 2) == 0; /* it may hold an HDF5 file */
    if (!is_zip && aril__hdf5_begin(w->data, w->size) < w->size) return 1;
    aril_status status;
    const aril__zip *z = aril__weights_zip(w, &status);
    for (int i = 0; z && i < z->n; i++)
        if (strcmp(z->member[i].name, "model.weights.h5") == 0) return 1;
    return z ? 0 : status;
}

/* The name of an array below a part of the file; NULL: it is not in it. */
static const char *below(const char *name, const char *root)
{
    size_t n = strlen(root);
    if (n == 0) return name;
    return strncmp(name, root, n) == 0 && name[n] == '/' ? name + n + 1 : NULL;
}

static bool is_model(const aril__hdf5 *h, aril__hdf5_texts *layers)
{
    return aril__hdf5_attribute(h, "model_weights", "layer_names", layers) == ARIL_OK &&
           layers->n > 0;
}

/* The classes of MATLAB whose arrays are what they are; others refer to arrays, or are text. */
static aril_status is_matrix(const aril__hdf5 *h, int i, bool *is)
{
    static const struct {
        const char *class;
        aril_dtype dtype;
    } classes[] = {
        { "double", ARIL_F64 }, { "single", ARIL_F32 }, { "logical", ARIL_U8 },
        { "int8", ARIL_I8 },    { "uint8", ARIL_U8 },   { "int16", ARIL_I16 },
        { "uint16", ARIL_U16 }, { "int32", ARIL_I32 },  { "uint32", ARIL_U32 },
        { "int64", ARIL_I64 },  { "uint64", ARIL_U64 },
    };
    const char *name = aril__hdf5_array_name(h, i);
    aril__hdf5_texts class = { 0 };
    *is = false;
    if (*name == '#') return ARIL_OK; /* what cells and objects refer to */
    aril_status s = aril__hdf5_attribute(h, name, "MATLAB_class", &class);
    for (size_t k = 0; k<sizeof classes / sizeof *classes &&class.n> 0; k++)
        *is |= strcmp(class.at[0], classes[k].class) == 0 &&
               /* An empty matrix is stored as its sizes. */
               aril__hdf5_array_dtype(h, i) == classes[k].dtype;
    aril__hdf5_texts_free(&class);
    return s;
}

static aril_shape reversed(aril_shape s)
{
    aril_shape r = { .ndim = s.ndim };
    for (int i = 0; i < s.ndim; i++) r.dim[i] = s.dim[s.ndim - 1 - i];
    return r;
}

static aril_status list_matrices(aril_weights *w, const aril__hdf5 *h)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < aril__hdf5_count(h) && s == ARIL_OK; i++) {
        bool is;
        s = is_matrix(h, i, &is);
        if (s == ARIL_OK && is &&
            !aril__weights_add(w, aril__hdf5_array_name(h, i), aril__hdf5_array_dtype(h, i),
                               reversed(aril__hdf5_array_shape(h, i)), (uint64_t)i))
            s = ARIL_ERR_MEMORY;
    }
    return s;
}

/* The name to list an array under; NULL: it is not of the part that is listed. */
static const char *listed_name(const aril_weights *w, const char *full)
{
    bool all = w->root_wanted && !*w->root_wanted;
    const char *root = w->root ? w->root : "";
    bool optimizer = below(full, "optimizer") || below(full, "optimizer_weights");
    return optimizer && !all && !*root ? NULL : below(full, root);
}

static aril_status list(aril_weights *w, const aril__hdf5 *h)
{
    if (is_matlab(w)) return list_matrices(w, h);
    bool all = w->root_wanted && !*w->root_wanted;
    for (int i = 0; i < aril__hdf5_count(h); i++) {
        const char *name = listed_name(w, aril__hdf5_array_name(h, i));
        if (!name) continue;
        if (!aril__weights_add(w, name, aril__hdf5_array_dtype(h, i), aril__hdf5_array_shape(h, i),
                               (uint64_t)i))
            return ARIL_ERR_MEMORY;
    }
    for (int i = 0; i < aril__hdf5_refused(h); i++) {
        const char *problem, *name = listed_name(w, aril__hdf5_refused_name(h, i, &problem));
        if (!name) continue;
        aril__weights_entry *e = aril__weights_add(w, name, ARIL_F32, (aril_shape){ 0 }, 0);
        if (!e) return ARIL_ERR_MEMORY;
        aril_status s = aril__weights_refuse(e, "%s", problem);
        if (s != ARIL_OK) return s;
    }
    if (w->n || !w->root_wanted || all) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG, "%s has no arrays below \"%s\"", w->path, w->root_wanted);
}

/* Keras 3 writes a group "vars" for the model itself, and for every layer; Keras 2 the names of the
 * layers. */
static aril_status find_keras(aril_weights *w, const aril__keras_file *f)
{
    aril__hdf5_texts names = { 0 };
    w->kernels_turned = f->config || f->version;
    if (w->kernels_turned) return ARIL_OK;
    int s = aril__hdf5_attribute(f->arrays, "/", "layer_names", &names);
    w->kernels_turned = names.n > 0;
    aril__hdf5_texts_free(&names);
    if (s < 0 || w->kernels_turned) return s;
    s = aril__hdf5_group(f->arrays, "vars", &names);
    w->kernels_turned = s == 0;
    aril__hdf5_texts_free(&names);
    return s < 0 ? s : ARIL_OK;
}

typedef struct place {
    uint64_t address;
    int entry;
} place;

static int by_address(const void *a, const void *b)
{
    const place *x = a, *y = b;
    int order = (x->address > y->address) - (x->address < y->address);
    return order ? order : (x->entry > y->entry) - (x->entry < y->entry);
}

/* All arrays together may take more than other compressed files may unpack to, as arrays of zeros
 * are common; but a small file cannot exhaust memory. */
enum { FREE_BYTES = 256 << 20, REPEAT_TIMES = 16, REPEAT_FREE = 64 << 20 };

/* Names of the same array count once; what they repeat is limited too, as few other formats can
 * share arrays. */
static aril_status check_unpacked(const aril_weights *w)
{
    uint64_t most = (uint64_t)w->size * ARIL__UNPACKED_TIMES + FREE_BYTES, bytes,
             most_again = (uint64_t)w->size * REPEAT_TIMES + REPEAT_FREE, all = 0, again = 0;
    for (int i = 0; i < w->n; i++) {
        const aril__weights_entry *e = &w->entry[i];
        bool repeats = e->shared != i;
        if (e->problem) continue;
        if (!aril__weights_bytes(e->shape, e->dtype, repeats ? most_again - again : most - all,
                                 &bytes))
            return aril__fail(ARIL_ERR_FORMAT,
                              repeats ? "%s repeats arrays under several names: more than the %llu "
                                        "bytes expected for its size"
                                      : "%s unpacks to more than the %llu bytes expected for its "
                                        "size; if that is intended, save it without compression",
                              w->path, (unsigned long long)(repeats ? most_again : most));
        if (repeats)
            again += bytes;
        else
            all += bytes;
    }
    return ARIL_OK;
}

/* Finds names of the same array. */
static aril_status find_shared(aril_weights *w, reader *r)
{
    size_t n = (size_t)w->n + 1;
    place *p = aril__malloc(n * sizeof *p);
    r->kept = aril__calloc(n * sizeof *r->kept);
    r->several = aril__calloc(n * sizeof *r->several);
    if (!p || !r->kept || !r->several) {
        free(p);
        return aril__weights_no_memory(w);
    }
    int found = 0;
    for (int i = 0; i < w->n; i++)
        if (!w->entry[i].problem)
            p[found++] =
                (place){ aril__hdf5_array_address(r->file.arrays, (int)w->entry[i].at), i };
    qsort(p, (size_t)found, sizeof *p, by_address);
    for (int i = 1; i < found; i++) {
        if (p[i].address != p[i - 1].address) continue;
        w->entry[p[i].entry].shared = w->entry[p[i - 1].entry].shared;
        r->several[w->entry[p[i].entry].shared] = true;
    }
    free(p);
    return check_unpacked(w);
}

static aril_status open_hdf5(aril_weights *w)
{
    reader *r = aril__calloc(sizeof *r);
    aril__keras_file *f = r ? &r->file : NULL;
    if (!f) return aril__weights_no_memory(w);
    aril_status s = ARIL_OK;
    if (is_matlab(w)) { /* which begins with a block of MATLAB's own */
        f->arrays = aril__hdf5_open(w->path);
        s = f->arrays ? ARIL_OK : aril__latest_status();
    } else {
        s = aril__keras_open(f, w->path);
    }
    if (s < 0) {
        free(r);
        return s;
    }
    w->reader = r;
    aril__hdf5_texts layers = { 0 };
    const char *root = w->root_wanted;
    if (!root && is_model(f->arrays, &layers)) root = "model_weights";
    aril__hdf5_texts_free(&layers);
    if (root && *root) {
        w->root = aril__strdup(root);
        if (!w->root) return aril__weights_no_memory(w);
    }
    if (!is_matlab(w)) s = find_keras(w, f);
    if (f->version && s == ARIL_OK) s = aril__weights_note(w, "keras_version", f->version);
    if (s == ARIL_OK) s = list(w, f->arrays);
    return s == ARIL_OK ? find_shared(w, r) : s;
}

static aril_tensor *read_array(const aril_weights *w, int i)
{
    const reader *r = w->reader;
    aril_tensor *t = aril__hdf5_array(r->file.arrays, (int)w->entry[i].at);
    if (!is_matlab(w) || aril_tensor_status(t) != ARIL_OK) return t;
    aril_axes order = { .n = aril_ndim(t) };
    for (int k = 0; k < order.n; k++) order.axis[k] = order.n - 1 - k;
    return aril_contiguous(aril_permute(t, order));
}

static aril_tensor *hdf5_tensor(aril_weights *w, int i)
{
    reader *r = w->reader;
    int first = w->entry[i].shared;
    if (!r->several[first]) return read_array(w, i);
    if (!r->kept[first]) {
        aril_tensor *t = read_array(w, first);
        if (aril_tensor_status(t) != ARIL_OK) return t;
        r->kept[first] = aril_keep(t);
    }
    return aril_reshape(r->kept[first], w->entry[i].shape);
}

static void close_hdf5(aril_weights *w)
{
    reader *r = w->reader;
    if (!r) return;
    for (int i = 0; r->kept && i < w->n; i++) aril_release(r->kept[i]);
    free(r->kept);
    free(r->several);
    aril__keras_close(&r->file);
    free(r);
}

/* Whether HDF5 does not shorten a name: "/a", "a//b" and "a/./b" would change. */
static bool is_own_path(const char *name)
{
    for (;; name++) {
        size_t n = strcspn(name, "/");
        if (n == 0 || (n == 1 && *name == '.')) return false;
        name += n;
        if (!*name) return true;
    }
}

static aril_status save_hdf5(const char *path, const aril_named *tensors,
                             const aril_metadata *metadata)
{
    (void)metadata; /* arrays only */
    for (int i = 0; tensors->name && i < tensors->n; i++)
        if (!is_own_path(tensors->name[i]))
            return aril__fail(ARIL_ERR_ARG,
                              "%s: HDF5 has no array of the name \"%s\": parts of a name between "
                              "'/' cannot be empty or \".\"",
                              path, tensors->name[i]);
    return aril_hdf5_write(path, tensors);
}

const aril__weights_kind aril__hdf5_weights = { .name = "HDF5",
                                                .id = "hdf5",
                                                .extensions = ".h5 .hdf5",
                                                .probe = probe_hdf5,
                                                .open = open_hdf5,
                                                .tensor = hdf5_tensor,
                                                .close = close_hdf5,
                                                .save = save_hdf5 };
