/* NumPy arrays in memory. */
#ifndef ARIL_FORMATS_NPY_H
#define ARIL_FORMATS_NPY_H

#include "formats/bytes.h"

/* Decodes the bytes of a .npy file; poison, with an error that names the file, on failure. */
aril_tensor *aril__npy_decode(const char *name, const unsigned char *data, size_t size);

/* Appends the .npy header of t. An error if NumPy has no such dtype. */
aril_status aril__npy_head(const char *name, const aril_tensor *t, aril__bytes *out);

#endif
