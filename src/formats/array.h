/* Arrays of numbers in files, of either byte order. */
#ifndef ARIL_FORMATS_ARRAY_H
#define ARIL_FORMATS_ARRAY_H

#include "aril/base.h"

/* Swaps the bytes of n elements of `size` bytes if `big` (big-endian) is not the host's byte
 * order. */
void aril__to_host_order(void *data, size_t size, int64_t n, bool big);

/* Computes the bytes of an array of that shape and element size; false if more than `most`. */
bool aril__array_bytes(aril_shape shape, size_t size, uint64_t max, uint64_t *bytes);

#endif
