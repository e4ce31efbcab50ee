/* Arithmetic on sizes and strides. Sizes of symbolic tensors may be unknown: negative (sizes.h). */
#ifndef ARIL_CORE_SHAPE_H
#define ARIL_CORE_SHAPE_H

#include "aril/base.h"

/* The product of n sizes, or -1 if one is unknown (and none is 0). */
static inline int64_t aril__count(int n, const int64_t *dim)
{
    int64_t count = 1;
    bool unknown = false;
    for (int i = 0; i < n; i++) {
        if (dim[i] < 0)
            unknown = true;
        else
            count *= dim[i];
    }
    return unknown && count != 0 ? -1 : count;
}

/* The size for which an unknown one counts in strides; others as they are, but 1 for 0. */
int64_t aril__unknown_extent(int64_t d);
static inline int64_t aril__extent(int64_t d)
{
    return d > 1 ? d : d >= 0 ? 1 : aril__unknown_extent(d);
}

/* Contiguous (row-major) strides. */
static inline void aril__dense_strides(int n, const int64_t *dim, int64_t *stride)
{
    int64_t step = 1;
    for (int i = n - 1; i >= 0; i--) {
        stride[i] = step;
        step *= aril__extent(dim[i]);
    }
}

/* The same for [N,C,spatial...] in the order N, spatial, C; at least two dimensions. */
static inline void aril__channels_last_strides(int n, const int64_t *dim, int64_t *stride)
{
    int64_t step = aril__extent(dim[1]);
    stride[1] = 1;
    for (int i = n - 1; i >= 0; i--) {
        if (i == 1) continue;
        stride[i] = step;
        step *= aril__extent(dim[i]);
    }
}

/* The same in the order spatial, C, N: samples are adjacent in memory. */
static inline void aril__samples_last_strides(int n, const int64_t *dim, int64_t *stride)
{
    int64_t step = 1;
    for (int i = 0; i < n; i++) {
        int d = i < 2 ? i : n + 1 - i;
        stride[d] = step;
        step *= aril__extent(dim[d]);
    }
}

/* [...,heads,rows,columns] in the order ..., rows, heads, columns; at least three dimensions. */
static inline void aril__heads_inner_strides(int n, const int64_t *dim, int64_t *stride)
{
    int64_t step = 1;
    for (int i = n - 1; i >= 0; i--) {
        int d = i == n - 2 ? n - 3 : i == n - 3 ? n - 2 : i;
        stride[d] = step;
        step *= aril__extent(dim[d]);
    }
}

static inline bool aril__same_dims(int n, const int64_t *a, int m, const int64_t *b)
{
    if (n != m) return false;
    for (int i = 0; i < n; i++)
        if (a[i] != b[i]) return false;
    return true;
}

/* Whether two sizes are equal, or may be because one is unknown. */
static inline bool aril__size_fits(int64_t a, int64_t b)
{
    return a < 0 || b < 0 || a == b;
}

static inline bool aril__dims_fit(int n, const int64_t *a, int m, const int64_t *b)
{
    if (n != m) return false;
    for (int i = 0; i < n; i++)
        if (!aril__size_fits(a[i], b[i])) return false;
    return true;
}

/* Checks sizes given by the user: 0..8 dimensions, none negative (-1 is allowed when `unknown`, and
 * in a trace, sizes of symbolic tensors), and no more elements than memory can address. `what`
 * names the op in the message. */
aril_status aril__check_shape(const char *what, aril_shape s, bool unknown);

/* Adds `b` to the broadcast shape in `out` (NumPy's rule). False if the sizes are incompatible. An
 * unknown size is compatible with any, and a known one other than 1 replaces it; two different
 * unknown ones give a third. */
bool aril__broadcast(int *out_ndim, int64_t *out, int b_ndim, const int64_t *b);

/* Turns a negative axis into 0..ndim-1. Returns -1, with an error naming `what`, when out of
 * range. A 0-d tensor takes axis 0 and -1, as PyTorch's does. */
int aril__axis(const char *what, int64_t axis, int ndim);

/* "[2,?,3]" in buf, or "[2,N,3]" where an unknown size has a name; returns buf. */
enum { ARIL__SHAPE_TEXT = 8 * 25 + 3 };
const char *aril__shape_text(char buf[ARIL__SHAPE_TEXT], int ndim, const int64_t *dim);

#endif
