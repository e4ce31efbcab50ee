/* Embedding bags: reductions over several rows of an embedding table. For single rows see
 * aril_embedding, in aril/index.h. */
#ifndef ARIL_EMBEDDING_H
#define ARIL_EMBEDDING_H

#include "aril/loss.h"

ARIL_C_BEGIN

typedef struct aril_embedding_bag_opts {
    aril_reduction mode;             /* ARIL_MEAN, ARIL_SUM or ARIL_MAX */
    aril_tensor *per_sample_weights; /* NULL, or factors with the shape of index; ARIL_SUM only */
    int64_t padding_idx;      /* an index that is ignored; 0: none, ARIL_ZERO: 0, -1: the last */
    bool include_last_offset; /* the last offset is the end of the last bag */
} aril_embedding_bag_opts;

/* The mean, sum or maximum of the rows of `weight` [rows,D] in each bag: [B,D]. index [B,L]: each
 * row is a bag, offsets is NULL; or index [n] and offsets [B], where bag b begins (the first at 0,
 * in order). An empty bag gives zeros. An index outside 0..rows-1 is ARIL_ERR_INDEX. */
ARIL_API aril_tensor *aril_embedding_bag(aril_tensor *index, aril_tensor *weight,
                                         aril_tensor *offsets, aril_embedding_bag_opts opts);

ARIL_C_END

#endif
