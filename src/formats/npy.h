/* NumPy arrays in memory. */
#ifndef ARIL_FORMATS_NPY_H
#define ARIL_FORMATS_NPY_H

#include "formats/bytes.h"

/* What the beginning of a .npy file says of the array. */
typedef struct aril__npy_info {
    aril_dtype dtype;
    aril_shape shape;
    bool big, fortran; /* big-endian; in Fortran's order */
    char descr[16];    /* the dtype as the file names it */
    size_t data;       /* the offset of the elements */
} aril__npy_info;

/* Reads it from the first n bytes of a file of `size` bytes, and checks that the elements fill the
 * rest. With ARIL_ERR_UNSUPPORTED the dtype is one that Aril does not have: only it is unset. */
aril_status aril__npy_head_of(const char *name, const unsigned char *first, size_t n, uint64_t size,
                              aril__npy_info *info);

/* The dtype that NumPy writes as "<f4" or "?"; false if Aril has none such. */
bool aril__npy_dtype(const char *descr, aril_dtype *dtype, bool *big);

/* Decodes the bytes of a .npy file; poison, with an error that names the file, on failure. */
aril_tensor *aril__npy_decode(const char *name, const unsigned char *data, size_t size);

/* Appends the .npy header of t. An error if NumPy has no such dtype. */
aril_status aril__npy_head(const char *name, const aril_tensor *t, aril__bytes *out);

#endif
