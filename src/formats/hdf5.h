/* Inspecting HDF5 files. */
#ifndef ARIL_FORMATS_HDF5_H
#define ARIL_FORMATS_HDF5_H

#include "aril/base.h"

/* Can the file be opened (if not, sets an error)? Does it hold an array of that name (no error if
 * it cannot be opened)? */
bool aril__hdf5_opens(const char *path);
bool aril__hdf5_has(const char *path, const char *name);

/* The shape of an array, which is not read. */
aril_status aril__hdf5_shape(const char *path, const char *name, aril_shape *shape);

#endif
