/* The HDF5 library, loaded on first use: its functions, its lock, and dtypes. */
#ifndef ARIL_FORMATS_HDF5_LIBRARY_H
#define ARIL_FORMATS_HDF5_LIBRARY_H

#ifdef ARIL_HAVE_HDF5

#include "aril/base.h"

#include <hdf5.h>

/* HDF5's macros for these constants call the library. */
enum { ARIL__H5_READ_ONLY = 0, ARIL__H5_CREATE = 2 };

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

/* Opens a file for reading; negative, with an error, on failure. *size is its size. */
hid_t aril__h5_open_file(const char *path, uint64_t *size);

/* The type of a dtype in memory; H5I_INVALID_HID if HDF5 has none. */
hid_t aril__h5_memory_type(aril_dtype dtype);
/* The dtype that an array is read as: its own, or f32 for narrower floats. */
bool aril__h5_dtype_of(hid_t type, aril_dtype *dtype);

/* The shape of a dataspace; false if it has none, or more than 8 dimensions. */
bool aril__h5_shape_of(hid_t space, aril_shape *shape);

/* External links are not followed: an untrusted file must not choose other files to read. */
herr_t aril__h5_refuse_link(const char *from, const char *group, const char *to, const char *object,
                            unsigned *flags, hid_t access, void *ctx);
/* Opens an array of a file or group; negative, without an error, if there is none. */
hid_t aril__h5_open_array(hid_t file, const char *name);

/* Is the data of an open array stored in this file rather than in external files? */
bool aril__h5_is_inside(hid_t array);

/* Reads an open array; `path` and `name` are for messages, `size` is that of the file. */
aril_tensor *aril__h5_read_array(const char *path, uint64_t size, const char *name, hid_t array);

#endif

#endif
