/* Loading the HDF5 library with dlopen. */
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

#endif
