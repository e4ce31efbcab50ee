/* Indexing along the axes in a mask: the shape, as in ops/index/indexing.c, and the offset of each
 * index position. */
#ifndef ARIL_CUDA_PICKED_CUH
#define ARIL_CUDA_PICKED_CUH

#include "backend/cuda/index/index.cuh"

/* The shape of x indexed along the axes in a mask. */
struct aril_cuda_picked {
    int64_t mask;
    int n;                      /* index tensors */
    int at, nb;                 /* position and number of the index dimensions */
    int ndim;                   /* of the result */
    int64_t dim[ARIL_MAX_DIMS]; /* of the result */
    int64_t count;              /* index positions */
    int64_t rows;               /* the product of the indexed sizes */
};

/* The n index tensors are the inputs from `first` on. */
aril_cuda_picked aril_cuda_picked_of(const aril_run *r, const aril_tensor *x, int64_t mask,
                                     int first, int n);

/* Where index positions point to. */
struct aril_cuda_locator {
    int n;
    bool from_end;   /* negative indices count from the end; otherwise they are wrong */
    int64_t padding; /* a row that is skipped; -1: none */
    aril_cuda_indices index[ARIL_MAX_DIMS];
    aril_cuda_spread spread[ARIL_MAX_DIMS];
    int64_t size[ARIL_MAX_DIMS], stride[ARIL_MAX_DIMS];
    int axis[ARIL_MAX_DIMS];
    aril_cuda_report report;
};

aril_cuda_locator aril_cuda_locator_of(const aril_run *r, const aril_tensor *x,
                                       const aril_cuda_picked &p, int first);

#define ARIL_CUDA_SKIP INT64_MIN /* an offset that is not read or written */

/* The offset of index position b from x's first element, or ARIL_CUDA_SKIP. *row: its number among
 * the indexed rows. */
static __device__ __forceinline__ int64_t aril_cuda_locate(const aril_cuda_locator &l, int64_t b,
                                                           int64_t *row)
{
    int64_t at = 0, number = 0;
    bool valid = true;
#pragma unroll 1
    for (int k = 0; k < l.n; k++) {
        int64_t i = l.index[k][l.spread[k].offset(b)], size = l.size[k];
        int64_t w = i < 0 && l.from_end ? i + size : i;
        if (w < 0 || w >= size) {
            aril_cuda_fail(l.report, ARIL_CUDA_BAD_INDEX, i, size, l.axis[k]);
            valid = false;
        }
        at += w * l.stride[k];
        number = number * size + w;
    }
    *row = number;
    return valid && number != l.padding ? at : ARIL_CUDA_SKIP;
}

/* Writes the offset of each of n positions, and (unless NULL) its row as a key: `rows` if it is
 * skipped. */
aril_status aril_cuda_locate_all(const aril_run *r, const aril_cuda_locator &l, int64_t n,
                                 int64_t *offset, uint64_t *key, int64_t rows);

/* ---- moving elements between x and a tensor of the indexed shape ---- */

/* Operand 0 is the other tensor, operand 1 is x along the dimensions that are kept, operand 2 is
 * the index position. Offsets are read from `offset`, or (NULL) made from one index tensor. */
struct aril_cuda_mover {
    aril_cuda_loops loops;
    void *other, *x;
    int64_t bytes; /* of an element; aril_cuda_mover_widen makes it that of a unit */
    int64_t unit;  /* elements of a unit */
    const int64_t *offset;
    aril_cuda_indices index;
    int64_t size, along; /* of the indexed axis, in units */
    int axis;
    bool from_end;
    aril_cuda_report report;
};

/* Moves as many bytes at a time as sizes and addresses allow. `stride`: of x along the indexed
 * axes. */
void aril_cuda_mover_widen(aril_cuda_mover *m, int n, const int64_t *stride);
/* other = x at the indices; elements at wrong ones are 0. */
aril_status aril_cuda_move_out(const aril_run *r, const aril_cuda_mover &m);
/* x at the indices = other. */
aril_status aril_cuda_move_in(const aril_run *r, const aril_cuda_mover &m);

/* The strides of x along the dimensions of p: 0 along those of the indices. */
void aril_cuda_kept_strides(const aril_tensor *x, const aril_cuda_picked &p, int64_t *stride);
/* Those of the index position: contiguous along its own dimensions, else 0. */
void aril_cuda_position_strides(const aril_cuda_picked &p, int64_t *stride);

#endif
