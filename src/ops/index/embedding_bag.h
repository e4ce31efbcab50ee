/* Sums and means of embeddings: attributes, for the backends. */
#ifndef ARIL_OPS_EMBEDDING_BAG_H
#define ARIL_OPS_EMBEDDING_BAG_H

#include "ops/table/op.h"

/* `padding`: an index that is ignored, -1 for none. `last`: the last offset is the end of the last
 * bag. */
#define BAG_ATTRS(A) \
    A(bag, I64, 1, mean, 0, NULL) A(bag, I64, 1, padding, -1, NULL) A(bag, I64, 1, last, 0, NULL)
ATTRS(bag, BAG_ATTRS)

#endif
