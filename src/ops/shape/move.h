/* Elements moved as they are between tensors of any strides: rows, and blocks turned over where
 * what are neighbours in one are apart in the other. */
#ifndef ARIL_OPS_MOVE_H
#define ARIL_OPS_MOVE_H

#include "core/loops.h"

/* Moves elements of 1, 2, 4 or 8 bytes. Operand 0 of the nest is the source, whose first element is
 * at `from`; operand 1, by which the nest is merged, the destination, at `to`. They may not
 * overlap, but for a source that is read where it is written. */
void aril__move(const aril__loops *nest, const char *from, char *to, int64_t size);

#endif
