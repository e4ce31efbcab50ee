/* Single elements of a tensor, for reference kernels: any dtype, any strides. */
#ifndef ARIL_OPS_ELEMENT_H
#define ARIL_OPS_ELEMENT_H

#include "core/tensor.h"

#include <string.h>

/* The position in memory, in elements, of element i in row-major order. */
static inline int64_t aril__element_at(const aril_tensor *t, int64_t i)
{
    int64_t at = t->offset;
    for (int d = t->ndim - 1; d >= 0 && i > 0; d--) {
        at += i % t->dim[d] * t->stride[d];
        i /= t->dim[d];
    }
    return at;
}

/* Element i of `to` = element j of `from`, of the same dtype, bit by bit. */
static inline void aril__put_same(aril_tensor *to, int64_t i, const aril_tensor *from, int64_t j)
{
    size_t bytes = aril__dtypes[to->dtype].bits / 8;
    memmove((char *)aril__base(to) + (size_t)aril__element_at(to, i) * bytes,
            (const char *)aril__base(from) + (size_t)aril__element_at(from, j) * bytes, bytes);
}

/* Element i of a, of a float or integer dtype, against element j of b, of the same: negative, 0 or
 * positive as it is smaller, equal or larger. NaN is larger than all numbers, and equal to NaN. */
static inline int aril__compare(const aril_tensor *a, int64_t i, const aril_tensor *b, int64_t j)
{
    union {
        double f;
        int64_t i;
        uint64_t u;
    } x, y;
    aril__ctype type = aril__is_float((aril_dtype)a->dtype) ? ARIL__C_F64
                       : a->dtype == ARIL_U64               ? ARIL__C_U64
                                                            : ARIL__C_I64;
    aril__dtypes[a->dtype].load[type](&x, aril__base(a), aril__element_at(a, i), 1, 1);
    aril__dtypes[b->dtype].load[type](&y, aril__base(b), aril__element_at(b, j), 1, 1);
    if (type == ARIL__C_U64) return (x.u > y.u) - (x.u < y.u);
    if (type == ARIL__C_I64) return (x.i > y.i) - (x.i < y.i);
    bool odd = x.f != x.f || y.f != y.f;
    return odd ? (x.f != x.f) - (y.f != y.f) : (x.f > y.f) - (x.f < y.f);
}

static inline double aril__get(const aril_tensor *t, int64_t i)
{
    double v;
    aril__dtypes[t->dtype].load[ARIL__C_F64](&v, aril__base(t), aril__element_at(t, i), 1, 1);
    return v;
}

static inline void aril__put(aril_tensor *t, int64_t i, double v)
{
    aril__dtypes[t->dtype].store[ARIL__C_F64](aril__base(t), aril__element_at(t, i), 1, &v, 1);
}

/* Exact for integers of any dtype; u64 wraps around. */
static inline int64_t aril__get_i64(const aril_tensor *t, int64_t i)
{
    int64_t v;
    aril__dtypes[t->dtype].load[ARIL__C_I64](&v, aril__base(t), aril__element_at(t, i), 1, 1);
    return v;
}

static inline void aril__put_i64(aril_tensor *t, int64_t i, int64_t v)
{
    aril__dtypes[t->dtype].store[ARIL__C_I64](aril__base(t), aril__element_at(t, i), 1, &v, 1);
}

#endif
