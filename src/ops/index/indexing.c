#include "ops/index/indexing.h"

#include "aril/create.h"
#include "ops/elementwise/elementwise.h"
#include "ops/table/element.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

aril_tensor *aril__number_like(const aril_tensor *x, aril_number v)
{
    return aril__constant(v, (aril_dtype)x->dtype);
}

aril_tensor *aril__settle(aril_tensor *value, const aril_tensor *x)
{
    if (!(value->flags & ARIL__WEAK)) return value;
    return aril__number_like(x, aril__is_float((aril_dtype)value->dtype)
                                    ? ARIL_NUMBER(aril_item(value))
                                    : ARIL_NUMBER(aril_item_int(value)));
}

/* ---- checks ---- */

aril_status aril__check_index_dtype(const char *op, const aril_tensor *t)
{
    if (aril__is_int((aril_dtype)t->dtype) && t->dtype <= ARIL_F64) return ARIL_OK;
    return aril__fail(ARIL_ERR_DTYPE, "%s: indices must be integers, got %s", op,
                      aril__dtypes[t->dtype].name);
}

aril_status aril__check_indices(const char *op, const aril_tensor *index, int64_t size, int axis,
                                bool negative)
{
    for (int64_t i = 0; i < index->numel; i++) {
        int64_t at = aril__get_i64(index, i);
        if (at < (negative ? -size : 0) || at >= size)
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: index %" PRId64 " is out of range for axis %d of size %" PRId64,
                              op, at, axis, size);
    }
    return ARIL_OK;
}

aril_status aril__indexing_shape(const char *op, const aril_tensor *x, int64_t mask, int n,
                                 aril_tensor *const *index, aril__indexing *p)
{
    memset(p, 0, sizeof *p);
    p->mask = mask;
    if (mask >> x->ndim || __builtin_popcountll((unsigned long long)mask) != n)
        return aril__fail(ARIL_ERR_INDEX,
                          "%s: %d index tensors for the axes of a tensor of %d "
                          "dimensions",
                          op, n, x->ndim);
    int64_t b[ARIL_MAX_DIMS];
    for (int k = 0; k < n; k++) {
        aril_status s = aril__check_index_dtype(op, index[k]);
        if (s < 0) return s;
        char one[ARIL__SHAPE_TEXT], two[ARIL__SHAPE_TEXT];
        if (!aril__broadcast(&p->nb, b, index[k]->ndim, index[k]->dim))
            return aril__fail(ARIL_ERR_SHAPE,
                              "%s: index tensors of shapes %s and %s do not "
                              "broadcast together",
                              op, aril__text(one, index[0]), aril__text(two, index[k]));
    }
    p->ndim = x->ndim - n + p->nb;
    if (p->ndim > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: the result would have %d dimensions, at most %d can "
                          "be",
                          op, p->ndim, ARIL_MAX_DIMS);
    /* The axes are adjacent if the mask is one run of ones. */
    int first = mask ? __builtin_ctzll((unsigned long long)mask) : 0;
    int64_t run = mask >> first;
    p->at = (run & (run + 1)) == 0 ? first : 0;
    int kept = 0;
    for (int d = 0; d < p->ndim; d++) {
        if (d >= p->at && d < p->at + p->nb) {
            p->dim[d] = b[d - p->at];
            continue;
        }
        while (mask >> kept & 1) kept++;
        p->dim[d] = x->dim[kept++];
    }
    return ARIL_OK;
}

/* ---- references ---- */

int64_t aril__broadcast_at(const aril_tensor *t, int ndim, const int64_t *dim, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = ndim - 1, k = t->ndim - 1; k >= 0; d--, k--) {
        if (t->dim[k] != 1) at += i % dim[d] * step;
        step *= t->dim[k];
        i /= dim[d];
    }
    return at;
}

int64_t aril__indexed_at(const aril_tensor *x, const aril__indexing *p, aril_tensor *const *index,
                         int64_t i)
{
    const int64_t *picked = p->dim + p->at; /* the index dimensions */
    int64_t position[ARIL_MAX_DIMS], at = 0, b = 0;
    for (int d = p->ndim - 1; d >= 0; d--) {
        position[d] = i % p->dim[d];
        i /= p->dim[d];
    }
    for (int d = 0; d < p->nb; d++) b = b * picked[d] + position[p->at + d];
    for (int axis = 0, kept = 0; axis < x->ndim; axis++) {
        at *= x->dim[axis];
        if (p->mask >> axis & 1) {
            int64_t k = aril__broadcast_at(*index, p->nb, picked, b);
            at += aril__wrap(aril__get_i64(*index++, k), x->dim[axis]);
        } else {
            if (kept == p->at) kept += p->nb;
            at += position[kept++];
        }
    }
    return at;
}

void aril__combine_at(aril__combine how, aril_tensor *x, int64_t i, const aril_tensor *value,
                      int64_t k)
{
    if (how == ARIL__SET) {
        aril__put_same(x, i, value, k);
    } else if (how == ARIL__MAX || how == ARIL__MIN) {
        int order = aril__compare(value, k, x, i);
        bool odd = isnan(aril__get(value, k)) || isnan(aril__get(x, i));
        if (how == ARIL__MAX || odd ? order > 0 : order < 0) aril__put_same(x, i, value, k);
    } else if (aril__is_float((aril_dtype)x->dtype)) {
        double a = aril__get(x, i), b = aril__get(value, k);
        aril__put(x, i, how == ARIL__ADD ? a + b : a * b);
    } else {
        uint64_t a = (uint64_t)aril__get_i64(x, i), b = (uint64_t)aril__get_i64(value, k);
        aril__put_i64(x, i, (int64_t)(how == ARIL__ADD ? a + b : a * b));
    }
}
