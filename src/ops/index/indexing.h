/* Indexing by index tensors: shapes, checks and single elements, shared by index, index_put,
 * index_select, embedding, gather and scatter. Indices are contiguous i64, and negative ones count
 * from the end. */
#ifndef ARIL_OPS_INDEXING_H
#define ARIL_OPS_INDEXING_H

#include "ops/table/op.h"

#define DT_WHOLE_BYTES ((1u << ARIL_F4E2M1) - 1) /* byte-addressable dtypes */

/* The shape of x indexed along the axes in a mask: the index dimensions, broadcast together,
 * replace the first indexed axis, or come first if the axes are not adjacent (NumPy's rule). */
typedef struct aril__indexing {
    int64_t mask;
    int at, nb;                 /* position and number of the index dimensions */
    int ndim;                   /* of the result */
    int64_t dim[ARIL_MAX_DIMS]; /* of the result */
} aril__indexing;

/* Fails if indices are not integers or do not broadcast, or if there are too many dimensions. */
aril_status aril__indexing_shape(const char *op, const aril_tensor *x, int64_t mask, int n,
                                 aril_tensor *const *index, aril__indexing *p);

/* The position in t, in row-major order, of element i of the shape that t is broadcast to. */
int64_t aril__broadcast_at(const aril_tensor *t, int ndim, const int64_t *dim, int64_t i);

/* The position in x, in row-major order, of element i of the indexed shape. */
int64_t aril__indexed_at(const aril_tensor *x, const aril__indexing *p, aril_tensor *const *index,
                         int64_t i);

/* Checks that all indices of a contiguous i64 tensor are in -size..size-1 (or 0..size-1). */
aril_status aril__check_indices(const char *op, const aril_tensor *index, int64_t size, int axis,
                                bool negative);

/* Fails unless t has an integer dtype. */
aril_status aril__check_index_dtype(const char *op, const aril_tensor *t);

/* A constant of the dtype of x. */
aril_tensor *aril__number_like(const aril_tensor *x, aril_number v);

/* Casts a scalar of no fixed dtype to x's dtype; returns other values unchanged. */
aril_tensor *aril__settle(aril_tensor *value, const aril_tensor *x);

static inline int64_t aril__wrap(int64_t i, int64_t size)
{
    return i + (size & i >> 63);
}

/* ---- references ---- */

typedef enum aril__combine { ARIL__ADD, ARIL__MUL, ARIL__MAX, ARIL__MIN, ARIL__SET } aril__combine;

/* Element i of x = how(itself, element k of value), of the same dtype; NaN is the largest and the
 * smallest. */
void aril__combine_at(aril__combine how, aril_tensor *x, int64_t i, const aril_tensor *value,
                      int64_t k);

#endif
