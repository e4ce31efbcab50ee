/* Arrays of numbers as files hold them: in either order of bytes. */
#ifndef ARIL_FORMATS_ARRAY_H
#define ARIL_FORMATS_ARRAY_H

#include "aril/base.h"

/* Turns the bytes of n elements of `size` bytes round, where `big` is not the order of this
 * machine. */
void aril__to_host_order(void *data, size_t size, int64_t n, bool big);

/* The bytes of an array of that shape and element size, false where they are more than `most`. */
bool aril__array_bytes(aril_shape shape, size_t size, uint64_t most, uint64_t *bytes);

#endif
