/* The HDF5 library, which writes files: loaded on first use, with its lock, and dtypes. */
#ifndef ARIL_FORMATS_HDF5_LIBRARY_H
#define ARIL_FORMATS_HDF5_LIBRARY_H

#ifdef ARIL_HAVE_HDF5

#include "aril/base.h"

#include <hdf5.h>

/* HDF5's macro for this constant calls the library. */
enum { ARIL__H5_CREATE = 2 };

typedef struct aril__h5_library {
#define FUNCTION(name) __typeof__(name) *name##_;
#define NUMBER(name)   hid_t *name##_;
#include "formats/hdf5.def"
#undef FUNCTION
#undef NUMBER
    char wrong[256];
} aril__h5_library;
extern aril__h5_library aril__h5;

/* Loads the library and takes its lock, since it is not thread-safe; an error if it cannot be used,
 * which holds no lock. */
aril_status aril__h5_begin(void);
void aril__h5_end(void);

/* The type of a dtype in memory; H5I_INVALID_HID if HDF5 has none. */
hid_t aril__h5_memory_type(aril_dtype dtype);
#endif

#endif
