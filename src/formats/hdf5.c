/* HDF5 through its C library, loaded with dlopen on first use: it pulls in many other libraries
 * that few programs need. */
#include "formats/hdf5.h"

#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/formats.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/file.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/array.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"

#include <stdlib.h>
#include <string.h>

#ifdef ARIL_HAVE_HDF5

#include <dlfcn.h>
#include <hdf5.h>
#include <pthread.h>
#include <unistd.h>

/* ---- the library ---- */

/* HDF5's macros for these constants call the library. */
enum { READ_ONLY = 0, CREATE = 2 };

static struct {
#define FUNCTION(name) __typeof__(name) *name##_;
#define NUMBER(name)   hid_t *name##_;
#include "formats/hdf5.def"
#undef FUNCTION
#undef NUMBER
    char wrong[256];
} h5;

/* Sets *to to the address of a symbol. */
static void find(void *library, const char *name, void *to)
{
    void *symbol = dlsym(library, name);
    memcpy(to, &symbol, sizeof symbol);
    if (!symbol) snprintf(h5.wrong, sizeof h5.wrong, "no %s", name);
}

static void load(void)
{
    void *library = dlopen(ARIL_HDF5_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(h5.wrong, sizeof h5.wrong, "%s", why ? why : ARIL_HDF5_FILE);
        return;
    }
#define FUNCTION(name) find(library, #name, &h5.name##_);
#define NUMBER         FUNCTION
#include "formats/hdf5.def"
#undef FUNCTION
#undef NUMBER
    if (!*h5.wrong && (h5.H5open_() < 0 || h5.H5Eset_auto2_(H5E_DEFAULT, NULL, NULL) < 0))
        snprintf(h5.wrong, sizeof h5.wrong, "it does not start");
}

/* The library is not thread-safe. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static aril_status begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (*h5.wrong)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "the HDF5 library (" ARIL_HDF5_FILE
                          ", on Debian: libhdf5-dev) cannot be used: %s",
                          h5.wrong);
    pthread_mutex_lock(&lock);
    return ARIL_OK;
}

static void end(void)
{
    pthread_mutex_unlock(&lock);
}

/* ---- dtypes ---- */

static hid_t memory_type(aril_dtype dtype)
{
    switch (dtype) {
    case ARIL_BOOL:
    case ARIL_U8: return *h5.H5T_NATIVE_UINT8_g_;
    case ARIL_U16: return *h5.H5T_NATIVE_UINT16_g_;
    case ARIL_U32: return *h5.H5T_NATIVE_UINT32_g_;
    case ARIL_U64: return *h5.H5T_NATIVE_UINT64_g_;
    case ARIL_I8: return *h5.H5T_NATIVE_INT8_g_;
    case ARIL_I16: return *h5.H5T_NATIVE_INT16_g_;
    case ARIL_I32: return *h5.H5T_NATIVE_INT32_g_;
    case ARIL_I64: return *h5.H5T_NATIVE_INT64_g_;
    case ARIL_F32: return *h5.H5T_NATIVE_FLOAT_g_;
    case ARIL_F64: return *h5.H5T_NATIVE_DOUBLE_g_;
    default: return H5I_INVALID_HID;
    }
}

/* The dtype that an array is read as: its own, or f32 for narrower floats. */
static bool dtype_of(hid_t type, aril_dtype *dtype)
{
    static const aril_dtype integers[2][4] = { { ARIL_U8, ARIL_U16, ARIL_U32, ARIL_U64 },
                                               { ARIL_I8, ARIL_I16, ARIL_I32, ARIL_I64 } };
    size_t size = h5.H5Tget_size_(type);
    switch (h5.H5Tget_class_(type)) {
    case H5T_FLOAT: *dtype = size <= 4 ? ARIL_F32 : ARIL_F64; return size >= 1 && size <= 8;
    case H5T_ENUM: /* how h5py writes bool */
    case H5T_INTEGER: {
        bool is_signed = h5.H5Tget_sign_(type) == H5T_SGN_2;
        if (h5.H5Tget_class_(type) == H5T_ENUM) is_signed = false;
        int k = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;
        if (k < 0) return false;
        *dtype = integers[is_signed][k];
        return h5.H5Tget_class_(type) == H5T_INTEGER || size == 1;
    }
    default: return false;
    }
}

/* ---- reading ---- */

static aril_status malformed(const char *path, const char *name, const char *what)
{
    return aril__fail(ARIL_ERR_FORMAT, "array %s of %s %s", name, path, what);
}

/* Is the data stored in this file rather than in external files? */
static bool is_inside(hid_t array)
{
    hid_t made = h5.H5Dget_create_plist_(array);
    bool inside =
        made >= 0 && h5.H5Pget_external_count_(made) == 0 && h5.H5Pget_layout_(made) != H5D_VIRTUAL;
    if (made >= 0) h5.H5Pclose_(made);
    return inside;
}

static aril_tensor *read_array(const char *path, uint64_t size, const char *name, hid_t array,
                               hid_t type, hid_t space)
{
    aril_dtype dtype = ARIL_F32;
    if (!dtype_of(type, &dtype)) {
        aril__fail(ARIL_ERR_UNSUPPORTED, "array %s of %s has neither integers nor floats", name,
                   path);
        return aril__poison();
    }
    if (!is_inside(array)) {
        aril__fail(ARIL_ERR_UNSUPPORTED,
                   "array %s of %s is stored in other files, which are not followed; merge them "
                   "with h5repack",
                   name, path);
        return aril__poison();
    }
    hsize_t dim[H5S_MAX_RANK];
    int ndim = h5.H5Sget_simple_extent_ndims_(space);
    if (ndim < 0 || ndim > ARIL_MAX_DIMS || h5.H5Sget_simple_extent_dims_(space, dim, NULL) < 0) {
        malformed(path, name, "has a shape that cannot be read, or of more than 8 dimensions");
        return aril__poison();
    }
    aril_shape shape = { .ndim = ndim };
    for (int i = 0; i < ndim; i++) shape.dim[i] = dim[i] > INT64_MAX ? -1 : (int64_t)dim[i];
    /* Missing data is filled in: a size beyond any compression ratio means a malformed file. */
    uint64_t stored = h5.H5Dget_storage_size_(array), bytes;
    if (stored > size) stored = size; /* the storage size is only claimed by the file */
    if (!aril__array_bytes(shape, aril_dtype_size(dtype), stored * 1032 + (1 << 20), &bytes)) {
        malformed(path, name, "claims to be larger than what is stored of it");
        return aril__poison();
    }
    aril_tensor *t = aril_empty(shape, dtype, aril_cpu());
    if (aril_tensor_status(t) != ARIL_OK || bytes == 0) return t;
    hid_t as = h5.H5Tget_class_(type) == H5T_ENUM ? type : memory_type(dtype);
    if (h5.H5Dread_(array, as, H5S_ALL, H5S_ALL, H5P_DEFAULT, aril__ptr(t)) >= 0) return t;
    malformed(path, name,
              "cannot be read: the file is truncated, corrupt, or compressed by a filter that is "
              "not installed");
    aril_drop(t);
    return aril__poison();
}

/* Open without blocking: the library would wait for a FIFO's writer. */
static hid_t open_file(const char *path, uint64_t *size)
{
    int fd;
    if (aril__file_open("HDF5", path, &fd, size) != ARIL_OK) return H5I_INVALID_HID;
    close(fd);
    hid_t file = h5.H5Fopen_(path, READ_ONLY, H5P_DEFAULT);
    if (file < 0) aril__fail(ARIL_ERR_FORMAT, "%s is not a valid HDF5 file", path);
    return file;
}

/* External links are not followed: an untrusted file must not choose other files to read. */
static herr_t refuse_link(const char *from, const char *group, const char *to, const char *object,
                          unsigned *flags, hid_t access, void *ctx)
{
    (void)from, (void)group, (void)to, (void)object, (void)flags, (void)access, (void)ctx;
    return -1;
}

static hid_t open_array(hid_t file, const char *name)
{
    hid_t access = h5.H5Pcreate_(*h5.H5P_CLS_DATASET_ACCESS_ID_g_), array = H5I_INVALID_HID;
    if (access < 0) return array;
    if (h5.H5Pset_elink_cb_(access, refuse_link, NULL) >= 0)
        array = h5.H5Dopen2_(file, name, access);
    h5.H5Pclose_(access);
    return array;
}

aril_tensor *aril_hdf5_read(const char *path, const char *name)
{
    if (begin() != ARIL_OK) return aril__poison();
    aril_tensor *t = NULL;
    uint64_t size;
    hid_t file = open_file(path, &size);
    hid_t array = file >= 0 && name ? open_array(file, name) : H5I_INVALID_HID;
    if (file >= 0 && array < 0)
        aril__fail(ARIL_ERR_ARG,
                   "%s has no array %s of its own (links to other files are not followed)", path,
                   name ? name : "without a name");
    if (array >= 0) {
        hid_t type = h5.H5Dget_type_(array), space = h5.H5Dget_space_(array);
        if (type >= 0 && space >= 0)
            t = read_array(path, size, name, array, type, space);
        else
            malformed(path, name, "cannot be read");
        if (type >= 0) h5.H5Tclose_(type);
        if (space >= 0) h5.H5Sclose_(space);
        h5.H5Dclose_(array);
    }
    if (file >= 0) h5.H5Fclose_(file);
    end();
    return t ? t : aril__poison();
}

aril_status aril__hdf5_shape(const char *path, const char *name, aril_shape *shape)
{
    aril_status status = begin();
    if (status != ARIL_OK) return status;
    uint64_t size;
    hid_t file = open_file(path, &size);
    hid_t array = file >= 0 ? open_array(file, name) : H5I_INVALID_HID;
    hid_t space = array >= 0 ? h5.H5Dget_space_(array) : H5I_INVALID_HID;
    hsize_t dim[H5S_MAX_RANK];
    int ndim = space >= 0 ? h5.H5Sget_simple_extent_ndims_(space) : -1;
    if (file < 0)
        status = aril__latest_status();
    else if (array < 0)
        status = aril__fail(ARIL_ERR_ARG, "%s has no array %s of its own", path, name);
    else if (ndim < 0 || ndim > ARIL_MAX_DIMS ||
             h5.H5Sget_simple_extent_dims_(space, dim, NULL) < 0)
        status = malformed(path, name,
                           "has a shape that cannot be read, or of more than 8 "
                           "dimensions");
    *shape = (aril_shape){ .ndim = status == ARIL_OK ? ndim : 0 };
    for (int i = 0; i < shape->ndim; i++)
        shape->dim[i] = dim[i] > INT64_MAX ? INT64_MAX : (int64_t)dim[i];
    if (space >= 0) h5.H5Sclose_(space);
    if (array >= 0) h5.H5Dclose_(array);
    if (file >= 0) h5.H5Fclose_(file);
    end();
    return status;
}

bool aril__hdf5_opens(const char *path)
{
    if (begin() != ARIL_OK) return false;
    uint64_t size;
    hid_t file = open_file(path, &size);
    if (file >= 0) h5.H5Fclose_(file);
    end();
    return file >= 0;
}

bool aril__hdf5_has(const char *path, const char *name)
{
    struct stat st;
    int fd = aril__open_to_read(path, &st);
    if (fd < 0) return false;
    close(fd);
    if (begin() != ARIL_OK) return false;
    hid_t file = h5.H5Fopen_(path, READ_ONLY, H5P_DEFAULT);
    bool has = file >= 0 && h5.H5Lexists_(file, name, H5P_DEFAULT) > 0;
    if (file >= 0) h5.H5Fclose_(file);
    end();
    return has;
}

/* ---- writing: to memory, which then replaces the file atomically ---- */

static aril_status write_array(hid_t file, const char *name, aril_tensor *t)
{
    ARIL_SCOPE;
    hid_t type = memory_type(aril_dtype_of(t));
    if (type < 0)
        return aril__fail(ARIL_ERR_DTYPE, "%s: HDF5 has no dtype %s; cast to f32", name,
                          aril_dtype_name(aril_dtype_of(t)));
    const void *data = aril_data(t);
    if (!data && aril_numel(t) > 0) return aril__latest_status();
    aril_shape s = aril_shape_of(t);
    hsize_t dim[ARIL_MAX_DIMS] = { 0 };
    for (int i = 0; i < s.ndim; i++) dim[i] = (hsize_t)s.dim[i];
    hid_t space = h5.H5Screate_simple_(s.ndim, dim, NULL),
          links = h5.H5Pcreate_(*h5.H5P_CLS_LINK_CREATE_ID_g_);
    hid_t array = H5I_INVALID_HID;
    if (space >= 0 && links >= 0 && h5.H5Pset_create_intermediate_group_(links, 1) >= 0)
        array = h5.H5Dcreate2_(file, name, type, space, links, H5P_DEFAULT, H5P_DEFAULT);
    bool good = array >= 0 && (aril_numel(t) == 0 ||
                               h5.H5Dwrite_(array, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    if (array >= 0) h5.H5Dclose_(array);
    if (space >= 0) h5.H5Sclose_(space);
    if (links >= 0) h5.H5Pclose_(links);
    return good ? ARIL_OK
                : aril__fail(ARIL_ERR_ARG,
                             "HDF5 cannot create the array \"%s\": is the name used twice?", name);
}

static aril_status replace_by_image(const char *path, hid_t file)
{
    ssize_t size =
        h5.H5Fflush_(file, H5F_SCOPE_GLOBAL) >= 0 ? h5.H5Fget_file_image_(file, NULL, 0) : -1;
    void *image = size > 0 ? aril__malloc((size_t)size) : NULL;
    aril_status status;
    if (!image || h5.H5Fget_file_image_(file, image, (size_t)size) != size)
        status = aril__fail(ARIL_ERR_MEMORY, "out of memory writing %s", path);
    else
        status = aril__file_replace(path, image, (size_t)size);
    free(image);
    return status;
}

aril_status aril_hdf5_write(const char *path, const aril_named *tensors)
{
    if (!path || !*path || !tensors)
        return aril__fail(ARIL_ERR_ARG, "aril_hdf5_write: no %s",
                          tensors ? "file name" : "tensors");
    for (int i = 0; i < tensors->n; i++) {
        aril_status status = aril__check_value("aril_hdf5_write", tensors->at[i]);
        if (status != ARIL_OK) return status;
    }
    aril_status status = begin();
    if (status != ARIL_OK) return status;
    hid_t access = h5.H5Pcreate_(*h5.H5P_CLS_FILE_ACCESS_ID_g_), file = H5I_INVALID_HID;
    if (access >= 0 && h5.H5Pset_fapl_core_(access, 1 << 16, 0) >= 0)
        file = h5.H5Fcreate_("aril", CREATE, H5P_DEFAULT, access); /* the name is never used */
    if (file < 0) status = aril__fail(ARIL_ERR_MEMORY, "out of memory writing %s", path);
    for (int i = 0; i < tensors->n && status == ARIL_OK; i++) {
        char number[24];
        snprintf(number, sizeof number, "%d", i);
        status = write_array(file, tensors->name ? tensors->name[i] : number, tensors->at[i]);
    }
    if (status == ARIL_OK) status = replace_by_image(path, file);
    if (file >= 0) h5.H5Fclose_(file);
    if (access >= 0) h5.H5Pclose_(access);
    end();
    return status;
}

#else

static aril_status absent(const char *path)
{
    return aril__fail(
        ARIL_ERR_UNSUPPORTED,
        "%s: Aril was built without HDF5; on Debian: apt-get install libhdf5-dev, then build again",
        path ? path : "HDF5");
}

aril_tensor *aril_hdf5_read(const char *path, const char *name)
{
    (void)name;
    absent(path);
    return aril__poison();
}

aril_status aril_hdf5_write(const char *path, const aril_named *tensors)
{
    (void)tensors;
    return absent(path);
}

aril_status aril__hdf5_shape(const char *path, const char *name, aril_shape *shape)
{
    (void)name;
    *shape = (aril_shape){ 0 };
    return absent(path);
}

bool aril__hdf5_opens(const char *path)
{
    absent(path);
    return false;
}

bool aril__hdf5_has(const char *path, const char *name)
{
    (void)path, (void)name;
    return false;
}

#endif
