/* Sums and means of embeddings: attributes and bags, for the backends. */
#ifndef ARIL_OPS_EMBEDDING_BAG_H
#define ARIL_OPS_EMBEDDING_BAG_H

#include "ops/table/op.h"

/* `padding`: an index that is ignored, -1 for none. `last`: the last offset is the end of the last
 * bag. */
#define BAG_ATTRS(A) \
    A(bag, I64, 1, mean, 0, NULL) A(bag, I64, 1, padding, -1, NULL) A(bag, I64, 1, last, 0, NULL)
ATTRS(bag, BAG_ATTRS)

/* The bags of a call. */
typedef struct aril__bags {
    int64_t n;
    int64_t *start; /* start of each bag, and the end of the last one */
    double *count;  /* non-padding entries of each bag */
} aril__bags;

/* Finds them from contiguous i64 indices, with offsets or without; fails if an offset is out of
 * range, or an index for a weight of so many rows. They lie in r->workspace, of as many bytes as
 * aril__bags_scratch says. */
aril_status aril__bags_find(const aril__run *r, const aril_tensor *index,
                            const aril_tensor *offsets, int64_t rows, aril__bags *b);
size_t aril__bags_scratch(const aril__run *r);

#endif
