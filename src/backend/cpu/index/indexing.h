/* Indexing by index tensors, in parallel: shared by the kernels of this folder and by padding. */
#ifndef ARIL_CPU_INDEXING_H
#define ARIL_CPU_INDEXING_H

#include "ops/index/indexing.h"

/* Writes the offset from x's first element for each position of the index dimensions. Fails if an
 * index is out of range. */
aril_status aril__indexing_offsets(const char *op, const aril_tensor *x, const aril__indexing *p,
                                   int n, aril_tensor *const *index, int64_t *offsets);
#define ARIL__FETCH_SKIP INT64_MIN /* an offset that writes skip */

/* out = x at the indices. */
void aril__indexing_read(aril_tensor *out, const aril_tensor *x, const aril__indexing *p,
                         const int64_t *offsets);

/* Writes the elements of `value`, broadcast to the indexed shape, to x, or adds them to it (f32,
 * f64, i64 and u64), in the order of the indices. `spare`: memory for as many numbers as there are
 * offsets; not needed for a contiguous value of the indexed shape. */
void aril__indexing_write(aril_tensor *x, const aril_tensor *value, const aril__indexing *p,
                          const int64_t *offsets, bool add, int64_t *spare);

/* As aril__check_indices. */
aril_status aril__cpu_check_indices(const char *op, const aril_tensor *index, int64_t size,
                                    int axis, bool negative);

/* Checks that all indices are in -size..size-1. *wrap: the size if some are negative, else 0; for
 * aril__wrap and the runs below. */
aril_status aril__check_and_wrap(const char *op, const aril_tensor *index, int64_t size, int axis,
                                 int64_t *wrap);

/* Whether any of n indices is outside [low, high). */
bool aril__outside(const int64_t *at, int64_t n, int64_t low, int64_t high);

/* ---- runs of elements, by size or type ---- */

/* Strides in elements; `along` is the stride of the indexed axis, of size `size` (0 if no index is
 * negative). */
typedef struct aril__mover {
    /* out[i] = x[i + index[i] * along] */
    void (*gather)(void *out, int64_t so, const void *x, int64_t sx, int64_t along,
                   const int64_t *index, int64_t si, int64_t size, int64_t n);
    /* x[i + index[i] * along] = value[i] */
    void (*scatter)(void *x, int64_t sx, int64_t along, const int64_t *index, int64_t si,
                    int64_t size, const void *value, int64_t sv, int64_t n);
    /* out[i] = x[i + offset[i]] */
    void (*pick)(void *out, int64_t so, const void *x, int64_t sx, const int64_t *offset,
                 int64_t sf, int64_t n);
    /* out[i] = x[i] */
    void (*copy)(void *out, int64_t so, const void *x, int64_t sx, int64_t n);
    /* Packs the elements of x where the mask is true; returns their number. */
    int64_t (*compress)(void *out, const void *x, int64_t sx, const uint8_t *mask, int64_t sm,
                        int64_t n);
    /* The reverse: unpacks x to where the mask is true. */
    int64_t (*spread)(void *out, int64_t so, const void *x, const uint8_t *mask, int64_t sm,
                      int64_t n);
} aril__mover;

typedef struct aril__combiner {
    /* x[i + index[i] * along] = how(itself, value[i]) */
    void (*scatter)(aril__combine how, void *x, int64_t sx, int64_t along, const int64_t *index,
                    int64_t si, int64_t size, const void *value, int64_t sv, int64_t n);
    /* x[i] += value[i] */
    void (*add)(void *x, int64_t sx, const void *value, int64_t sv, int64_t n);
} aril__combiner;

const aril__mover *aril__mover_of(aril_dtype dtype);       /* by size: 1, 2, 4, 8 bytes */
const aril__combiner *aril__combiner_of(aril_dtype dtype); /* f32, f64, i64, u64 */

#endif
