/* Matrix products of plain memory, beneath matmul, linear and whatever else can be put that way. */
#ifndef ARIL_CPU_GEMM_H
#define ARIL_CPU_GEMM_H

#include "ops/table/op.h"

/* How Aril's own product goes about it. */
enum aril__gemm_path {
    ARIL__GEMM_PLAIN,  /* element by element */
    ARIL__GEMM_DOTS,   /* vectors along k */
    ARIL__GEMM_DIRECT, /* vectors along the rows of b, which is read as it lies */
    ARIL__GEMM_PACKED, /* the same, with a and b packed block by block */
};

/* c = a b, or c += a b with `add`: a [m,k], b [k,n], c [m,n], of float or double. Strides are in
 * elements, any for a and b (0 and negative ones too); those of c must keep its elements apart. c
 * may not overlap a or b. */
typedef struct aril__gemm {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col;
    bool add;
    bool turned;               /* c^T = b^T a^T */
    enum aril__gemm_path path; /* of Aril's own: by aril__gemm_choose */
} aril__gemm;

typedef void aril__gemm_fn(const aril__gemm *g);

/* The fastest there is for f32 or f64, on all threads; serial within a parallel loop. The result
 * does not depend on the number of threads. */
void aril__cpu_gemm(aril_dtype type, const aril__gemm *g);

/* Aril's own, on the calling thread: vector registers, the widest instructions that the machine has.
 * The way must be chosen first, for elements of `size` bytes: that sets g->path, and may turn the
 * product over (c^T = b^T a^T). A product may then be cut along m and n: an element of the result
 * has the same bits whatever the cut. */
void aril__gemm_choose(aril__gemm *g, size_t size);
aril__gemm_fn aril__gemm_f32, aril__gemm_f64;

/* bias, of n elements, added to each row of c, [m,n]. */
void aril__gemm_bias(aril_dtype type, int64_t m, int64_t n, void *c, int64_t c_row, int64_t c_col,
                     const void *bias, int64_t bias_step);

/* For a matrix b [k,n] that many products share: packed once into panels of aril__gemm_panel(type)
 * columns, k * panel elements each, one after another (the last is filled up with zeros); then
 * c = a b or c += a b with rows of a and c that lie together, for n columns from any panel on. On
 * the calling thread. */
enum { ARIL__GEMM_MOST_PANEL = 32 };
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
