/* Moves elements unchanged between tensors of any strides: by rows, or by transposed tiles where
 * the contiguous dimension of one is strided in the other.
 *
 * All layers copy between layouts, dispatch among them: so this is no kernel row of a backend. */
#ifndef ARIL_CORE_MOVE_H
#define ARIL_CORE_MOVE_H

#include "core/loops.h"

/* Moves elements of 1, 2, 4 or 8 bytes. Operand 0 of the loops is the source, whose first element
 * is at `from`; operand 1, by which the loops were merged, is the destination, at `to`. They must
 * not overlap, unless each element is read from where it is written. */
void aril__move(const aril__loops *loops, const char *from, char *to, int64_t size);

#endif
