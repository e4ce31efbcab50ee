/* Sorting and searching. NaN sorts as the largest number. Indices are returned as i64 in *indices
 * (may be NULL); gradients flow through the values. */
#ifndef ARIL_SORT_H
#define ARIL_SORT_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- along an axis ---- */

typedef struct aril_sort_opts {
    bool descending;
} aril_sort_opts;

/* Sorts x along the axis; stable: equal elements keep their order. aril_argsort returns the
 * indices. */
ARIL_API aril_tensor *aril_sort(aril_tensor *x, int axis, aril_sort_opts opts,
                                aril_tensor **indices);
ARIL_API aril_tensor *aril_argsort(aril_tensor *x, int axis, aril_sort_opts opts);

typedef struct aril_topk_opts {
    bool smallest;
    bool unsorted; /* results may be in any order */
} aril_topk_opts;

/* The k largest (or smallest) elements along the axis, sorted. x [..., n, ...] -> [..., k, ...] */
ARIL_API aril_tensor *aril_topk(aril_tensor *x, int64_t k, int axis, aril_topk_opts opts,
                                aril_tensor **indices);

/* Selects one element along an axis, or (ARIL_ALL) of the flattened tensor: the k-th smallest,
 * counted from 1; the median (the lower one for an even count), NaN if any element is NaN; the
 * median ignoring NaN; the mode, the most frequent value (the smallest one if tied). */
ARIL_API aril_tensor *aril_kthvalue(aril_tensor *x, int64_t k, aril_axes axis,
                                    aril_tensor **indices);
ARIL_API aril_tensor *aril_median(aril_tensor *x, aril_axes axis, aril_tensor **indices);
ARIL_API aril_tensor *aril_nanmedian(aril_tensor *x, aril_axes axis, aril_tensor **indices);
ARIL_API aril_tensor *aril_mode(aril_tensor *x, aril_axes axis, aril_tensor **indices);

/* Interpolation between two elements: linear, the lower, the higher, the midpoint, the nearest. */
typedef enum aril_quantile_mode {
    ARIL_QUANTILE_LINEAR,
    ARIL_QUANTILE_LOWER,
    ARIL_QUANTILE_HIGHER,
    ARIL_QUANTILE_MIDPOINT,
    ARIL_QUANTILE_NEAREST,
} aril_quantile_mode;

/* The q-quantile (q from 0 to 1), along one axis or (ARIL_ALL) of all elements; NaN if any element
 * is NaN. x: f32 or f64. q [] -> the reduced shape; q [k] -> [k, reduced]. */
ARIL_API aril_tensor *aril_quantile(aril_tensor *x, aril_tensor *q, aril_axes axis,
                                    aril_quantile_mode how);

/* The same ignoring NaN: NaN only where there is nothing else. */
ARIL_API aril_tensor *aril_nanquantile(aril_tensor *x, aril_tensor *q, aril_axes axis,
                                       aril_quantile_mode how);

/* ---- over all elements ---- */

/* The unique values of x, sorted [k]; k depends on the data. *inverse (the shape of x): the index
 * of each element of x in the result; *counts [k]: how often each occurs in x; both i64, may be
 * NULL. aril_unique_axis compares slices along an axis instead of elements: x [..., n, ...] ->
 * [..., k, ...], inverse [n]. No gradient. */
ARIL_API aril_tensor *aril_unique(aril_tensor *x, aril_tensor **inverse, aril_tensor **counts);
ARIL_API aril_tensor *aril_unique_axis(aril_tensor *x, int axis, aril_tensor **inverse,
                                       aril_tensor **counts);

/* The same for runs of equal neighbors: keeps the first of each run, in the order of x. */
ARIL_API aril_tensor *aril_unique_consecutive(aril_tensor *x, aril_tensor **inverse,
                                              aril_tensor **counts);
ARIL_API aril_tensor *aril_unique_consecutive_axis(aril_tensor *x, int axis, aril_tensor **inverse,
                                                   aril_tensor **counts);

/* Whether each element of x occurs among `values`, of any shape (with `invert`: does not): bool
 * with the shape of x. NaN occurs nowhere. No gradient. */
ARIL_API aril_tensor *aril_isin(aril_tensor *x, aril_tensor *values, bool invert);

/* Counts how often each value 0, 1, ... up to the largest (or up to minlength - 1, if that is more)
 * occurs in x [n], nonnegative integers: i64. With weights [n], sums them instead: f32 for f32,
 * else f64. The size depends on the data. No gradient. */
ARIL_API aril_tensor *aril_bincount(aril_tensor *x, aril_tensor *weights, int64_t minlength);

/* Counts the elements of x (float) in each of `bins` equal bins of low..high, in x's dtype [bins].
 * Elements outside are ignored; low == high means the range of x. No gradient. */
ARIL_API aril_tensor *aril_histc(aril_tensor *x, int64_t bins, double low, double high);

typedef struct aril_histogram_opts {
    aril_tensor *weights; /* the shape of x: the weight of each element; NULL: 1 */
    bool density;         /* normalized so that the integral over the bins is 1 */
} aril_histogram_opts;

/* Histogram of x (float) with the bin edges `edges` [n + 1], ascending: x's dtype [n]. A bin
 * includes its lower edge, and the last bin also its upper edge; elements outside are ignored. No
 * gradient. */
ARIL_API aril_tensor *aril_histogram(aril_tensor *x, aril_tensor *edges, aril_histogram_opts opts);

/* The same with `bins` equal bins of low..high (low == high: the range of x); *edges, unless NULL,
 * receives the bin edges [bins + 1]. */
ARIL_API aril_tensor *aril_histogram_bins(aril_tensor *x, int64_t bins, double low, double high,
                                          aril_histogram_opts opts, aril_tensor **edges);

/* The insertion index of each of `values` in `sorted` that keeps it sorted, as i64 with the shape
 * of values: before equal elements, or after them with `right`. sorted [n] with values of any
 * shape, or sorted [..., n] with values [..., k]; same dtype. aril_bucketize: the same with the
 * arguments swapped, boundaries [n]. No gradient. */
typedef struct aril_search_opts {
    bool right;
} aril_search_opts;
ARIL_API aril_tensor *aril_searchsorted(aril_tensor *sorted, aril_tensor *values,
                                        aril_search_opts opts);
ARIL_API aril_tensor *aril_bucketize(aril_tensor *x, aril_tensor *boundaries,
                                     aril_search_opts opts);

ARIL_C_END

#endif
