/* HDF5 files that stay open: a list of their arrays, and text attributes. */
#include "formats/hdf5.h"

#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/hdf5_library.h"

#include <stdlib.h>
#include <string.h>

#ifdef ARIL_HAVE_HDF5

/* Limits for hostile files: groups may contain each other, and claim any number of strings. */
enum { MAX_DEPTH = 32, MAX_ARRAYS = 1 << 20, MAX_TEXTS = 1 << 20, MAX_TEXT = 1 << 26 };

typedef struct array {
    char *name;
    aril_dtype dtype;
    aril_shape shape;
    const char *problem; /* why it cannot be read; NULL: it can */
} array;

typedef struct arrays {
    int n, capacity;
    array *at;
} arrays;

struct aril__hdf5 {
    hid_t file;
    char *path;
    uint64_t size;
    arrays readable, refused;
    int visited; /* links that were followed */
};

/* ---- listing ---- */

/* The names of the hard links of a group. */
typedef struct links {
    char **at;
    int n, capacity;
    bool failed;
} links;

#if H5_VERSION_GE(1, 12, 0)
typedef H5L_info2_t link_info;
#define ITERATE aril__h5.H5Literate2_
#else
typedef H5L_info_t link_info;
#define ITERATE aril__h5.H5Literate_
#endif

static herr_t add_link(hid_t group, const char *name, const link_info *info, void *ctx)
{
    links *l = ctx;
    (void)group;
    if (info->type != H5L_TYPE_HARD) return 0; /* links to other files are not followed */
    if (l->n == l->capacity) {
        int capacity = 2 * l->capacity + 16;
        char **grown = aril__realloc(l->at, (size_t)capacity * sizeof *grown);
        if (!grown) l->failed = true;
        if (!grown) return -1;
        l->at = grown;
        l->capacity = capacity;
    }
    l->at[l->n] = aril__strdup(name);
    if (!l->at[l->n]) l->failed = true;
    return l->at[l->n] ? l->n++, 0 : -1;
}

static void links_free(links *l)
{
    for (int i = 0; i < l->n; i++) free(l->at[i]);
    free(l->at);
}

/* Why an array cannot be read. */
static const char *problem_of(hid_t type, hid_t space)
{
    aril_dtype dtype;
    H5T_class_t class = type >= 0 ? aril__h5.H5Tget_class_(type) : H5T_NO_CLASS;
    if (class == H5T_STRING) return "text";
    if (class == H5T_COMPOUND) return "dtype complex or of records";
    if (type < 0 || !aril__h5_dtype_of(type, &dtype)) return "dtype that is not supported";
    if (space >= 0 && aril__h5.H5Sget_simple_extent_type_(space) == H5S_NULL) return "no value";
    return "more than 8 dimensions, or a malformed shape";
}

static aril_status no_memory(const aril__hdf5 *f)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", f->path);
}

/* Takes over the name. */
static aril_status add_array(aril__hdf5 *f, char *name, hid_t dataset)
{
    hid_t type = aril__h5.H5Dget_type_(dataset), space = aril__h5.H5Dget_space_(dataset);
    array a = { .name = name };
    bool known = type >= 0 && space >= 0 && aril__h5_dtype_of(type, &a.dtype) &&
                 aril__h5_shape_of(space, &a.shape);
    if (!known) a.problem = problem_of(type, space);
    if (type >= 0) aril__h5.H5Tclose_(type);
    if (space >= 0) aril__h5.H5Sclose_(space);
    arrays *to = known ? &f->readable : &f->refused;
    if (to->n == to->capacity) {
        int capacity = 2 * to->capacity + 64;
        array *grown = aril__realloc(to->at, (size_t)capacity * sizeof *grown);
        if (!grown) {
            free(name);
            return no_memory(f);
        }
        to->at = grown;
        to->capacity = capacity;
    }
    to->at[to->n++] = a;
    return ARIL_OK;
}

static aril_status list_group(aril__hdf5 *f, hid_t group, const char *prefix, int depth);

static aril_status list_link(aril__hdf5 *f, hid_t group, const char *prefix, const char *link,
                             int depth)
{
    if (++f->visited > MAX_ARRAYS)
        return aril__fail(ARIL_ERR_FORMAT, "%s has more than %d groups and arrays", f->path,
                          MAX_ARRAYS);
    size_t a = strlen(prefix), b = strlen(link);
    char *name = aril__malloc(a + b + 2);
    if (!name) return no_memory(f);
    memcpy(name, prefix, a);
    memcpy(name + a, "/", a ? 1 : 0);
    memcpy(name + a + (a ? 1 : 0), link, b + 1);
    hid_t dataset = aril__h5_open_array(group, link);
    if (dataset >= 0) {
        aril_status s = add_array(f, name, dataset);
        aril__h5.H5Dclose_(dataset);
        return s;
    }
    hid_t inner = aril__h5.H5Gopen2_(group, link, H5P_DEFAULT);
    aril_status s = ARIL_OK;
    if (inner >= 0) {
        s = list_group(f, inner, name, depth + 1);
        aril__h5.H5Gclose_(inner);
    }
    free(name);
    return s;
}

static aril_status list_group(aril__hdf5 *f, hid_t group, const char *prefix, int depth)
{
    if (depth > MAX_DEPTH)
        return aril__fail(ARIL_ERR_FORMAT, "%s: groups are nested more than %d levels deep",
                          f->path, MAX_DEPTH);
    links l = { 0 };
    hsize_t at = 0;
    herr_t done = ITERATE(group, H5_INDEX_NAME, H5_ITER_INC, &at, add_link, &l);
    aril_status s = ARIL_OK;
    if (l.failed)
        s = no_memory(f);
    else if (done < 0)
        s = aril__fail(ARIL_ERR_FORMAT, "%s: group \"%s\" is corrupt", f->path, prefix);
    for (int i = 0; i < l.n && s == ARIL_OK; i++) s = list_link(f, group, prefix, l.at[i], depth);
    links_free(&l);
    return s;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const array *)a)->name, ((const array *)b)->name);
}

/* ---- opening ---- */

/* The library works on the caller's memory: "copies" are the memory itself. */
static void *image_malloc(size_t size, H5FD_file_image_op_t op, void *image)
{
    (void)size, (void)op;
    return image;
}

static void *image_copy(void *to, const void *from, size_t size, H5FD_file_image_op_t op,
                        void *image)
{
    (void)op, (void)image;
    return to == from ? to : memcpy(to, from, size);
}

static void *image_realloc(void *at, size_t size, H5FD_file_image_op_t op, void *image)
{
    (void)at, (void)size, (void)op, (void)image;
    return NULL; /* a file that is only read never grows */
}

static herr_t image_free(void *at, H5FD_file_image_op_t op, void *image)
{
    (void)at, (void)op, (void)image;
    return 0;
}

static void *same_image(void *image)
{
    return image;
}

static herr_t keep_image(void *image)
{
    (void)image;
    return 0;
}

static hid_t open_image(const void *data, size_t size, const char *name)
{
    void *image = (void *)(uintptr_t)data; /* opened for reading only */
    H5FD_file_image_callbacks_t callbacks = { image_malloc, image_copy, image_realloc, image_free,
                                              same_image,   keep_image, image };
    hid_t access = aril__h5.H5Pcreate_(*aril__h5.H5P_CLS_FILE_ACCESS_ID_g_), file = -1;
    if (access >= 0 && size > 0 && aril__h5.H5Pset_fapl_core_(access, 1 << 16, 0) >= 0 &&
        aril__h5.H5Pset_file_image_callbacks_(access, &callbacks) >= 0 &&
        aril__h5.H5Pset_file_image_(access, image, size) >= 0)
        file = aril__h5.H5Fopen_("aril", ARIL__H5_READ_ONLY, access); /* the name is never used */
    if (access >= 0) aril__h5.H5Pclose_(access);
    if (file < 0) aril__fail(ARIL_ERR_FORMAT, "%s is not a valid HDF5 file", name);
    return file;
}

static void arrays_free(arrays *a)
{
    for (int i = 0; i < a->n; i++) free(a->at[i].name);
    free(a->at);
}

static void sort(arrays *a)
{
    if (a->n) qsort(a->at, (size_t)a->n, sizeof *a->at, by_name);
}

static void free_file(aril__hdf5 *f)
{
    arrays_free(&f->readable);
    arrays_free(&f->refused);
    free(f->path);
    free(f);
}

static aril__hdf5 *open_file(const char *path, const void *data, size_t size)
{
    aril__hdf5 *f = aril__calloc(sizeof *f);
    char *name = aril__strdup(path);
    if (!f || !name) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", path);
        free(f);
        free(name);
        return NULL;
    }
    f->path = name;
    f->size = size;
    f->file = -1;
    if (aril__h5_begin() != ARIL_OK) {
        free_file(f);
        return NULL;
    }
    f->file = data ? open_image(data, size, path) : aril__h5_open_file(path, &f->size);
    hid_t root = f->file >= 0 ? aril__h5.H5Gopen2_(f->file, "/", H5P_DEFAULT) : -1;
    aril_status s = root >= 0 ? list_group(f, root, "", 0) : ARIL_ERR_FORMAT;
    if (f->file >= 0 && root < 0)
        aril__fail(ARIL_ERR_FORMAT, "%s: the first group is corrupt", f->path);
    if (root >= 0) aril__h5.H5Gclose_(root);
    if (s < 0 && f->file >= 0) aril__h5.H5Fclose_(f->file);
    aril__h5_end();
    if (s < 0) {
        free_file(f);
        return NULL;
    }
    sort(&f->readable);
    sort(&f->refused);
    return f;
}

aril__hdf5 *aril__hdf5_open(const char *path)
{
    return open_file(path, NULL, 0);
}

aril__hdf5 *aril__hdf5_open_memory(const void *data, size_t size, const char *name)
{
    return open_file(name, data, size);
}

void aril__hdf5_close(aril__hdf5 *f)
{
    if (!f) return;
    if (aril__h5_begin() == ARIL_OK) {
        aril__h5.H5Fclose_(f->file);
        aril__h5_end();
    }
    free_file(f);
}

/* ---- arrays ---- */

int aril__hdf5_count(const aril__hdf5 *f)
{
    return f->readable.n;
}

const char *aril__hdf5_array_name(const aril__hdf5 *f, int i)
{
    return f->readable.at[i].name;
}

int aril__hdf5_refused(const aril__hdf5 *f)
{
    return f->refused.n;
}

const char *aril__hdf5_refused_name(const aril__hdf5 *f, int i, const char **problem)
{
    *problem = f->refused.at[i].problem;
    return f->refused.at[i].name;
}

aril_dtype aril__hdf5_array_dtype(const aril__hdf5 *f, int i)
{
    return f->readable.at[i].dtype;
}

aril_shape aril__hdf5_array_shape(const aril__hdf5 *f, int i)
{
    return f->readable.at[i].shape;
}

int aril__hdf5_find(const aril__hdf5 *f, const char *name)
{
    array key = { .name = (char *)(uintptr_t)name };
    const array *found = f->readable.n ? bsearch(&key, f->readable.at, (size_t)f->readable.n,
                                                 sizeof *f->readable.at, by_name)
                                       : NULL;
    return found ? (int)(found - f->readable.at) : -1;
}

aril_tensor *aril__hdf5_array(const aril__hdf5 *f, int i)
{
    if (aril__h5_begin() != ARIL_OK) return aril__poison();
    hid_t dataset = aril__h5_open_array(f->file, f->readable.at[i].name);
    aril_tensor *t = NULL;
    if (dataset < 0) {
        aril__fail(ARIL_ERR_FORMAT, "array %s of %s cannot be opened", f->readable.at[i].name,
                   f->path);
    } else {
        t = aril__h5_read_array(f->path, f->size, f->readable.at[i].name, dataset);
        aril__h5.H5Dclose_(dataset);
    }
    aril__h5_end();
    return t ? t : aril__poison();
}

/* ---- attributes ---- */

void aril__hdf5_texts_free(aril__hdf5_texts *t)
{
    for (int i = 0; i < t->n; i++) free(t->at[i]);
    free(t->at);
    *t = (aril__hdf5_texts){ 0 };
}

/* Copies n strings, which are pointers or lie side by side. False when out of memory. */
static bool copy_texts(aril__hdf5_texts *out, const char *fixed, size_t width, char **pointers,
                       int n)
{
    out->at = aril__calloc((size_t)n * sizeof *out->at);
    for (int i = 0; out->at && i < n; i++) {
        const char *from = pointers ? pointers[i] : fixed + (size_t)i * width;
        size_t length = !from ? 0 : pointers ? strlen(from) : strnlen(from, width);
        while (!pointers && length && from[length - 1] == ' ') length--; /* Fortran's padding */
        char *copy = aril__malloc(length + 1);
        if (!copy) return false;
        if (length) memcpy(copy, from, length);
        copy[length] = 0;
        out->at[out->n++] = copy;
    }
    return out->at != NULL;
}

/* An attribute or an array. */
typedef struct text_object {
    hid_t at;
    bool is_array;
    const char *what, *name; /* for messages */
} text_object;

static bool read_into(const text_object *o, hid_t type, void *data)
{
    return (o->is_array ? aril__h5.H5Dread_(o->at, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data)
                        : aril__h5.H5Aread_(o->at, type, data)) >= 0;
}

static aril_status cannot_read(const aril__hdf5 *f, const text_object *o)
{
    return aril__fail(ARIL_ERR_FORMAT, "%s %s of %s cannot be read", o->what, o->name, f->path);
}

static aril_status read_texts(const aril__hdf5 *f, const text_object *o, hid_t type, int n,
                              aril__hdf5_texts *out)
{
    bool pointers = aril__h5.H5Tis_variable_str_(type) > 0;
    size_t width = pointers ? sizeof(char *) : aril__h5.H5Tget_size_(type);
    if (width == 0 || width > MAX_TEXT || (size_t)n > MAX_TEXT / width)
        return aril__fail(ARIL_ERR_FORMAT, "%s %s of %s claims to be too long", o->what, o->name,
                          f->path);
    void *data = aril__calloc((size_t)n * width);
    if (!data) return no_memory(f);
    aril_status s = ARIL_OK;
    bool read = read_into(o, type, data);
    if (!read)
        s = cannot_read(f, o);
    else if (!copy_texts(out, data, width, pointers ? data : NULL, n))
        s = no_memory(f);
    for (int i = 0; pointers && read && i < n; i++) aril__h5.H5free_memory_(((char **)data)[i]);
    free(data);
    return s;
}

static aril_status read_object(const aril__hdf5 *f, const text_object *o, aril__hdf5_texts *out)
{
    hid_t type = o->is_array ? aril__h5.H5Dget_type_(o->at) : aril__h5.H5Aget_type_(o->at);
    hid_t space = o->is_array ? aril__h5.H5Dget_space_(o->at) : aril__h5.H5Aget_space_(o->at);
    hssize_t n = space >= 0 ? aril__h5.H5Sget_simple_extent_npoints_(space) : -1;
    aril_status s = ARIL_OK;
    if (type < 0 || n < 0 || n > MAX_TEXTS || (o->is_array && !aril__h5_is_inside(o->at)))
        s = cannot_read(f, o);
    else if (n > 0 && aril__h5.H5Tget_class_(type) != H5T_STRING)
        s = aril__fail(ARIL_ERR_FORMAT, "%s %s of %s is not text", o->what, o->name, f->path);
    else if (n > 0)
        s = read_texts(f, o, type, (int)n, out);
    if (type >= 0) aril__h5.H5Tclose_(type);
    if (space >= 0) aril__h5.H5Sclose_(space);
    return s;
}

aril_status aril__hdf5_attribute(const aril__hdf5 *f, const char *group, const char *attribute,
                                 aril__hdf5_texts *out)
{
    *out = (aril__hdf5_texts){ 0 };
    aril_status s = aril__h5_begin();
    if (s < 0) return s;
    text_object o = { .at = -1, .what = "attribute", .name = attribute };
    if (aril__h5.H5Aexists_by_name_(f->file, group, attribute, H5P_DEFAULT) > 0)
        o.at = aril__h5.H5Aopen_by_name_(f->file, group, attribute, H5P_DEFAULT, H5P_DEFAULT);
    if (o.at >= 0) {
        s = read_object(f, &o, out);
        aril__h5.H5Aclose_(o.at);
    }
    aril__h5_end();
    if (s < 0) aril__hdf5_texts_free(out);
    return s;
}

aril_status aril__hdf5_text_array(const aril__hdf5 *f, const char *name, aril__hdf5_texts *out)
{
    *out = (aril__hdf5_texts){ 0 };
    aril_status s = aril__h5_begin();
    if (s < 0) return s;
    text_object o = {
        .at = aril__h5_open_array(f->file, name), .is_array = true, .what = "array", .name = name
    };
    if (o.at >= 0) {
        s = read_object(f, &o, out);
        aril__h5.H5Dclose_(o.at);
    }
    aril__h5_end();
    if (s < 0) aril__hdf5_texts_free(out);
    return s;
}

int aril__hdf5_group(const aril__hdf5 *f, const char *name, aril__hdf5_texts *out)
{
    *out = (aril__hdf5_texts){ 0 };
    aril_status s = aril__h5_begin();
    if (s < 0) return s;
    links l = { 0 };
    hsize_t at = 0;
    hid_t group = aril__h5.H5Gopen2_(f->file, name, H5P_DEFAULT);
    if (group >= 0 && ITERATE(group, H5_INDEX_NAME, H5_ITER_INC, &at, add_link, &l) < 0)
        s = l.failed ? no_memory(f)
                     : aril__fail(ARIL_ERR_FORMAT, "%s: group \"%s\" is corrupt", f->path, name);
    if (group >= 0) aril__h5.H5Gclose_(group);
    aril__h5_end();
    if (s < 0)
        links_free(&l);
    else
        *out = (aril__hdf5_texts){ .n = l.n, .at = l.at };
    return s < 0 || group >= 0 ? (int)s : 1;
}

#else

static aril_status absent(const char *path)
{
    return aril__fail(
        ARIL_ERR_UNSUPPORTED,
        "%s: Aril was built without HDF5; on Debian: apt-get install libhdf5-dev, then build again",
        path);
}

aril__hdf5 *aril__hdf5_open(const char *path)
{
    absent(path);
    return NULL;
}

aril__hdf5 *aril__hdf5_open_memory(const void *data, size_t size, const char *name)
{
    (void)data, (void)size;
    absent(name);
    return NULL;
}

void aril__hdf5_close(aril__hdf5 *f)
{
    (void)f;
}

int aril__hdf5_count(const aril__hdf5 *f)
{
    (void)f;
    return 0;
}

const char *aril__hdf5_array_name(const aril__hdf5 *f, int i)
{
    (void)f, (void)i;
    return "";
}

int aril__hdf5_refused(const aril__hdf5 *f)
{
    return f->refused.n;
}

const char *aril__hdf5_refused_name(const aril__hdf5 *f, int i, const char **problem)
{
    *problem = f->refused.at[i].problem;
    return f->refused.at[i].name;
}

aril_dtype aril__hdf5_array_dtype(const aril__hdf5 *f, int i)
{
    (void)f, (void)i;
    return ARIL_F32;
}

aril_shape aril__hdf5_array_shape(const aril__hdf5 *f, int i)
{
    (void)f, (void)i;
    return (aril_shape){ 0 };
}

int aril__hdf5_find(const aril__hdf5 *f, const char *name)
{
    (void)f, (void)name;
    return -1;
}

aril_tensor *aril__hdf5_array(const aril__hdf5 *f, int i)
{
    (void)f, (void)i;
    return aril__poison();
}

aril_status aril__hdf5_attribute(const aril__hdf5 *f, const char *group, const char *attribute,
                                 aril__hdf5_texts *out)
{
    (void)f, (void)group, (void)attribute;
    *out = (aril__hdf5_texts){ 0 };
    return ARIL_ERR_UNSUPPORTED;
}

aril_status aril__hdf5_text_array(const aril__hdf5 *f, const char *name, aril__hdf5_texts *out)
{
    return aril__hdf5_attribute(f, "", name, out);
}

int aril__hdf5_group(const aril__hdf5 *f, const char *name, aril__hdf5_texts *out)
{
    return aril__hdf5_attribute(f, name, "", out);
}

void aril__hdf5_texts_free(aril__hdf5_texts *t)
{
    (void)t;
}

#endif
