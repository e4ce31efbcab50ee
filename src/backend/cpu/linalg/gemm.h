/* Matrix products on raw memory, used by matmul, linear and other ops that reduce to them. */
#ifndef ARIL_CPU_GEMM_H
#define ARIL_CPU_GEMM_H

#include "ops/table/op.h"

/* The algorithm of Aril's own product. */
enum aril__gemm_path {
    ARIL__GEMM_PLAIN,  /* element by element */
    ARIL__GEMM_DOTS,   /* vectorized along k */
    ARIL__GEMM_DIRECT, /* vectorized along the rows of b, which is read in place */
    ARIL__GEMM_TURNED, /* the same, of a small b whose columns are contiguous: transposed first */
    ARIL__GEMM_PACKED, /* the same, with a and b packed block by block */
    ARIL__GEMM_STREAM, /* for few rows of a: b is read once, four whole rows at a time */
};

/* c = a b, or c += a b with `add`: a [m,k], b [k,n], c [m,n], of float or double. Strides are in
 * elements, arbitrary for a and b (even 0 or negative); c's elements must not overlap each other,
 * nor a or b. */
typedef struct aril__gemm {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col;
    bool add;
    bool turned;               /* c^T = b^T a^T */
    enum aril__gemm_path path; /* for Aril's own: set by aril__gemm_choose */
} aril__gemm;

typedef void aril__gemm_fn(const aril__gemm *g);

/* The fastest available product for f32 or f64, on all threads; serial inside a parallel loop. The
 * result does not depend on the number of threads. */
void aril__cpu_gemm(aril_dtype type, const aril__gemm *g);

/* Aril's own product, on the calling thread, with the machine's widest vector instructions. Call
 * aril__gemm_choose first, for elements of `size` bytes: it sets g->path, and may transpose the
 * product (c^T = b^T a^T). The product may then be cut along m and n: each element of the result
 * has the same bits whatever the cut. */
void aril__gemm_choose(aril__gemm *g, size_t size);
aril__gemm_fn aril__gemm_f32, aril__gemm_f64;

/* The same for a product of one or two rows with contiguous elements in c, n and k up to 64: in
 * less time than the choice takes. False if the strides are not such. */
bool aril__gemm_few_rows(aril_dtype type, const aril__gemm *g);

/* `count` products of one row and one column, with the bits of as many calls: the operands a, b and
 * c of each are step[0], step[1] and step[2] elements after those before it. Returns false, and
 * does nothing, where such a product would not be a dot product. */
bool aril__gemm_dots(aril_dtype type, const aril__gemm *g, int64_t count, const int64_t step[3]);

/* Adds bias, of n elements, to each row of c, [m,n]. */
void aril__gemm_bias(aril_dtype type, int64_t m, int64_t n, void *c, int64_t c_row, int64_t c_col,
                     const void *bias, int64_t bias_step);

/* For a matrix b [k,n] that many products share: packed once into panels of aril__gemm_panel(type)
 * columns, k * panel elements each, one after another (the last is zero-padded); then c = a b or c
 * += a b with contiguous rows of a and c, for n columns starting at any panel. On the calling
 * thread. */
enum { ARIL__GEMM_MAX_PANEL = 32 };
int64_t aril__gemm_panel(aril_dtype type);
void aril__gemm_pack(aril_dtype type, int64_t k, int64_t n, const void *b, int64_t b_row,
                     int64_t b_col, void *to);
void aril__gemm_by_panels(aril_dtype type, int64_t m, int64_t n, int64_t k, const void *a,
                          int64_t a_row, const void *panels, void *c, int64_t c_row, bool add);

void aril__gemm_shutdown(void);

/* The rows of matmul, linear and outer_sum. */
aril_status aril__cpu_product(aril__run *r);
aril_status aril__cpu_product_blas(aril__run *r);

#endif
