/* Products of 8-bit integers with sums in i32, exact on every processor. B is packed once into
 * panels of columns; A is staged a few rows at a time, as u8 (i8 plus 128) for processors with
 * vpdpbusd, and as i16 for others, whose vpmaddubsw would saturate. */
#ifndef ARIL_BACKEND_CPU_GEMM_INT8_H
#define ARIL_BACKEND_CPU_GEMM_INT8_H

#include "ops/linalg/integer.h"

enum {
    ARIL__INT8_ROWS = 6,     /* rows of a tile */
    ARIL__INT8_COLUMNS = 64, /* columns of a panel */
};

/* How values lie in staged rows and panels. */
typedef struct aril__int8 {
    int64_t k, n;
    bool bytes;              /* u8 x i8 by fours, else i16 by twos */
    bool a_signed, b_signed; /* i8, else u8 */
} aril__int8;

/* For this processor. */
aril__int8 aril__int8_of(int64_t k, int64_t n, bool a_signed, bool b_signed);

/* Bytes of packed weights; they begin with the sum of each column as i32. */
size_t aril__int8_packed(const aril__int8 *g);
/* Packs B, whose element (k,n) is at b[k * row + n * col]. */
void aril__int8_pack(const aril__int8 *g, const void *b, int64_t row, int64_t col, void *to);

/* Bytes of a staged row, and staging of n values to the positions from `at` on; `step` bytes apart.
 * The row must be cleared behind its last value: aril__int8_end. */
size_t aril__int8_row(const aril__int8 *g);
/* Bytes to ask for, for each row: as many for any processor. */
static inline size_t aril__int8_space(const aril__int8 *g)
{
    return (size_t)(2 * g->k + 63) / 64 * 64 + 64;
}
void aril__int8_stage(const aril__int8 *g, void *row, int64_t at, const void *from, int64_t n,
                      int64_t step);
/* n times the value `v`. */
void aril__int8_fill(const aril__int8 *g, void *row, int64_t at, int64_t v, int64_t n);
void aril__int8_end(const aril__int8 *g, void *row);

/* Terms of columns, computed once for each run, each of aril__int8_padded(g) entries. */
typedef struct aril__int8_columns {
    int32_t *base;   /* bias - a_zero * sum of the column */
    int32_t *b_zero; /* NULL: all are 0 */
    float *scale;    /* NULL: results are i32 */
    int32_t a_zero, zero, low, high;
} aril__int8_columns;

static inline int64_t aril__int8_padded(int64_t n)
{
    return (n + ARIL__INT8_COLUMNS - 1) / ARIL__INT8_COLUMNS * ARIL__INT8_COLUMNS;
}

/* Bytes for them, and their values for columns first ... first + n of the run. */
size_t aril__int8_columns_bytes(int64_t n);
aril__int8_columns aril__int8_columns_of(const aril__int8 *g, const aril__rescale *s, int64_t first,
                                         const void *packed, void *space);

/* Rows of results, i32, u8 or i8, `step` elements apart, of columns [begin, end), which starts at a
 * panel: up to any number of staged rows. */
void aril__int8_rows(const aril__int8 *g, const aril__int8_columns *c, const void *packed,
                     const void *a, int64_t rows, int64_t begin, int64_t end, void *y,
                     int64_t step);

/* Into how many cuts of columns each of `blocks` blocks of `rows` rows in all is divided, so that
 * threads have equal shares; and the columns of a cut. */
int64_t aril__int8_cuts(const aril__int8 *g, int64_t rows, int64_t blocks);
void aril__int8_cut(const aril__int8 *g, int64_t cut, int64_t cuts, int64_t *begin, int64_t *end);

#endif
