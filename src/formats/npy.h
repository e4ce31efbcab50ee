/* NumPy's arrays in memory. */
#ifndef ARIL_FORMATS_NPY_H
#define ARIL_FORMATS_NPY_H

#include "formats/bytes.h"

/* The array in the bytes of a .npy file; poison, with an error that names the file, on failure. */
aril_tensor *aril__npy_decode(const char *name, const unsigned char *data, size_t size);

/* Adds what stands before the elements of t in a .npy file. An error where NumPy has no such
 * dtype. */
aril_status aril__npy_head(const char *name, const aril_tensor *t, aril__bytes *out);

#endif
