/* Matrices whose rows do not start at multiples of 16 bytes, copied to and from such whose rows do:
 * tensor cores read and write the latter several times as fast. */
#ifndef ARIL_CUDA_PAD_CUH
#define ARIL_CUDA_PAD_CUH

#include "backend/cuda/host.cuh"

/* Rows of a matrix in memory: row i starts at element i * ld. */
struct aril_cuda_pitched {
    char *at;
    int64_t ld;
};

/* Copies [rows, columns] of elements of 2 or 4 bytes, at addresses that are multiples of their
 * size. `width`, at least `columns`: how much of each row is written, the rest of it with zeros. */
void aril_cuda_copy_rows(aril_run *r, int size, aril_cuda_pitched to, aril_cuda_pitched from,
                         int64_t rows, int64_t columns, int64_t width);

#endif
