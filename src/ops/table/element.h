/* Single elements of a tensor, for reference kernels: any dtype, any strides. */
#ifndef ARIL_OPS_ELEMENT_H
#define ARIL_OPS_ELEMENT_H

#include "core/tensor.h"

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
