/* Loading the HDF5 library with dlopen, and reading arrays. */
#include "formats/hdf5_library.h"

#include "aril/create.h"
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/tensor.h"
#include "formats/array.h"
#include "formats/bytes.h"

#include <stdlib.h>
#include <string.h>

#ifdef ARIL_HAVE_HDF5

#include <dlfcn.h>
#include <unistd.h>
#include <pthread.h>

/* ---- the library ---- */

aril__h5_library aril__h5;

/* Sets *to to the address of a symbol. */
static void find(void *library, const char *name, void *to)
{
    void *symbol = dlsym(library, name);
    memcpy(to, &symbol, sizeof symbol);
    if (!symbol) snprintf(aril__h5.wrong, sizeof aril__h5.wrong, "no %s", name);
}

static void load(void)
{
    void *library = dlopen(ARIL_HDF5_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(aril__h5.wrong, sizeof aril__h5.wrong, "%s", why ? why : ARIL_HDF5_FILE);
        return;
    }
#define FUNCTION(name) find(library, #name, &aril__h5.name##_);
#define NUMBER         FUNCTION
#include "formats/hdf5.def"
#undef FUNCTION
#undef NUMBER
    if (!*aril__h5.wrong &&
        (aril__h5.H5open_() < 0 || aril__h5.H5Eset_auto2_(H5E_DEFAULT, NULL, NULL) < 0))
        snprintf(aril__h5.wrong, sizeof aril__h5.wrong, "it does not start");
}

/* The library is not thread-safe. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

aril_status aril__h5_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (*aril__h5.wrong)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "the HDF5 library (" ARIL_HDF5_FILE
                          ", on Debian: libhdf5-dev) cannot be used: %s",
                          aril__h5.wrong);
    pthread_mutex_lock(&lock);
    return ARIL_OK;
}

void aril__h5_end(void)
{
    pthread_mutex_unlock(&lock);
}

/* ---- dtypes ---- */

hid_t aril__h5_memory_type(aril_dtype dtype)
{
    switch (dtype) {
    case ARIL_BOOL:
    case ARIL_U8: return *aril__h5.H5T_NATIVE_UINT8_g_;
    case ARIL_U16: return *aril__h5.H5T_NATIVE_UINT16_g_;
    case ARIL_U32: return *aril__h5.H5T_NATIVE_UINT32_g_;
    case ARIL_U64: return *aril__h5.H5T_NATIVE_UINT64_g_;
    case ARIL_I8: return *aril__h5.H5T_NATIVE_INT8_g_;
    case ARIL_I16: return *aril__h5.H5T_NATIVE_INT16_g_;
    case ARIL_I32: return *aril__h5.H5T_NATIVE_INT32_g_;
    case ARIL_I64: return *aril__h5.H5T_NATIVE_INT64_g_;
    case ARIL_F32: return *aril__h5.H5T_NATIVE_FLOAT_g_;
    case ARIL_F64: return *aril__h5.H5T_NATIVE_DOUBLE_g_;
    default: return H5I_INVALID_HID;
    }
}

bool aril__h5_dtype_of(hid_t type, aril_dtype *dtype)
{
    static const aril_dtype integers[2][4] = { { ARIL_U8, ARIL_U16, ARIL_U32, ARIL_U64 },
                                               { ARIL_I8, ARIL_I16, ARIL_I32, ARIL_I64 } };
    size_t size = aril__h5.H5Tget_size_(type);
    switch (aril__h5.H5Tget_class_(type)) {
    case H5T_FLOAT: *dtype = size <= 4 ? ARIL_F32 : ARIL_F64; return size >= 1 && size <= 8;
    case H5T_ENUM: /* how h5py writes bool */
    case H5T_INTEGER: {
        bool is_signed = aril__h5.H5Tget_sign_(type) == H5T_SGN_2;
        if (aril__h5.H5Tget_class_(type) == H5T_ENUM) is_signed = false;
        int k = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;
        if (k < 0) return false;
        *dtype = integers[is_signed][k];
        return aril__h5.H5Tget_class_(type) == H5T_INTEGER || size == 1;
    }
    default: return false;
    }
}

/* ---- files ---- */

/* Opens without blocking: the library would wait for a FIFO's writer. */
hid_t aril__h5_open_file(const char *path, uint64_t *size)
{
    int fd;
    if (aril__file_open("HDF5", path, &fd, size) != ARIL_OK) return H5I_INVALID_HID;
    close(fd);
    hid_t file = aril__h5.H5Fopen_(path, ARIL__H5_READ_ONLY, H5P_DEFAULT);
    if (file < 0) aril__fail(ARIL_ERR_FORMAT, "%s is not a valid HDF5 file", path);
    return file;
}

/* ---- arrays ---- */

herr_t aril__h5_refuse_link(const char *from, const char *group, const char *to, const char *object,
                            unsigned *flags, hid_t access, void *ctx)
{
    (void)from, (void)group, (void)to, (void)object, (void)flags, (void)access, (void)ctx;
    return -1;
}

hid_t aril__h5_open_array(hid_t file, const char *name)
{
    hid_t access = aril__h5.H5Pcreate_(*aril__h5.H5P_CLS_DATASET_ACCESS_ID_g_),
          array = H5I_INVALID_HID;
    if (access < 0) return array;
    if (aril__h5.H5Pset_elink_cb_(access, aril__h5_refuse_link, NULL) >= 0)
        array = aril__h5.H5Dopen2_(file, name, access);
    aril__h5.H5Pclose_(access);
    return array;
}

static aril_status malformed(const char *path, const char *name, const char *what)
{
    return aril__fail(ARIL_ERR_FORMAT, "array %s of %s %s", name, path, what);
}

bool aril__h5_is_inside(hid_t array)
{
    hid_t made = aril__h5.H5Dget_create_plist_(array);
    bool inside = made >= 0 && aril__h5.H5Pget_external_count_(made) == 0 &&
                  aril__h5.H5Pget_layout_(made) != H5D_VIRTUAL;
    if (made >= 0) aril__h5.H5Pclose_(made);
    return inside;
}

bool aril__h5_shape_of(hid_t space, aril_shape *shape)
{
    hsize_t dim[H5S_MAX_RANK];
    int ndim = aril__h5.H5Sget_simple_extent_ndims_(space);
    if (ndim < 0 || ndim > ARIL_MAX_DIMS ||
        aril__h5.H5Sget_simple_extent_type_(space) == H5S_NULL || /* empty, but no scalar */
        aril__h5.H5Sget_simple_extent_dims_(space, dim, NULL) < 0)
        return false;
    *shape = (aril_shape){ .ndim = ndim };
    for (int i = 0; i < ndim; i++) shape->dim[i] = dim[i] > INT64_MAX ? -1 : (int64_t)dim[i];
    return true;
}

static aril_tensor *read_as(const char *path, uint64_t size, const char *name, hid_t array,
                            hid_t type, hid_t space)
{
    aril_dtype dtype = ARIL_F32;
    if (!aril__h5_dtype_of(type, &dtype)) {
        aril__fail(ARIL_ERR_UNSUPPORTED, "array %s of %s has neither integers nor floats", name,
                   path);
        return aril__poison();
    }
    if (!aril__h5_is_inside(array)) {
        aril__fail(ARIL_ERR_UNSUPPORTED,
                   "array %s of %s is stored in other files, which are not followed; merge them "
                   "with h5repack",
                   name, path);
        return aril__poison();
    }
    aril_shape shape;
    if (!aril__h5_shape_of(space, &shape)) {
        malformed(path, name, "has a shape that cannot be read, or of more than 8 dimensions");
        return aril__poison();
    }
    /* Missing data is filled in: a size beyond any compression ratio means a malformed file. */
    uint64_t stored = aril__h5.H5Dget_storage_size_(array), bytes;
    if (stored > size) stored = size; /* the storage size is only claimed by the file */
    if (!aril__array_bytes(shape, aril_dtype_size(dtype), stored * 1032 + (1 << 20), &bytes)) {
        malformed(path, name, "claims to be larger than what is stored of it");
        return aril__poison();
    }
    aril_tensor *t = aril_empty(shape, dtype, aril_cpu());
    if (aril_tensor_status(t) != ARIL_OK || bytes == 0) return t;
    hid_t as = aril__h5.H5Tget_class_(type) == H5T_ENUM ? type : aril__h5_memory_type(dtype);
    if (aril__h5.H5Dread_(array, as, H5S_ALL, H5S_ALL, H5P_DEFAULT, aril__ptr(t)) >= 0) return t;
    malformed(path, name,
              "cannot be read: the file is truncated, corrupt, or compressed by a filter that is "
              "not installed");
    aril_drop(t);
    return aril__poison();
}

aril_tensor *aril__h5_read_array(const char *path, uint64_t size, const char *name, hid_t array)
{
    hid_t type = aril__h5.H5Dget_type_(array), space = aril__h5.H5Dget_space_(array);
    aril_tensor *t = NULL;
    if (type >= 0 && space >= 0)
        t = read_as(path, size, name, array, type, space);
    else
        malformed(path, name, "cannot be read");
    if (type >= 0) aril__h5.H5Tclose_(type);
    if (space >= 0) aril__h5.H5Sclose_(space);
    return t ? t : aril__poison();
}

#endif
