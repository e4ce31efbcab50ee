/* Sorting and searching. NaN counts as the largest number. Functions with positions give them as
 * i64 in *indices (NULL where they are not wanted); gradients flow through the values. */
#ifndef ARIL_SORT_H
#define ARIL_SORT_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- along an axis ---- */

typedef struct aril_sort_opts {
    bool descending;
} aril_sort_opts;

/* x in order along the axis; equal elements keep their order. aril_argsort gives the positions. */
ARIL_API aril_tensor *aril_sort(aril_tensor *x, int axis, aril_sort_opts opts,
                                aril_tensor **indices);
ARIL_API aril_tensor *aril_argsort(aril_tensor *x, int axis, aril_sort_opts opts);

typedef struct aril_topk_opts {
    bool smallest;
    bool unsorted; /* any order will do */
} aril_topk_opts;

/* The k largest (or smallest) along the axis, in order. x [..., n, ...] -> [..., k, ...] */
ARIL_API aril_tensor *aril_topk(aril_tensor *x, int64_t k, int axis, aril_topk_opts opts,
                                aril_tensor **indices);

/* One element of each line of an axis, or (ARIL_ALL) of the flattened tensor: the k-th smallest,
 * counted from 1; the median, of an even number the lower one, NaN if an element is; the median of
 * what is not NaN; the most frequent value, of several the smallest. */
ARIL_API aril_tensor *aril_kthvalue(aril_tensor *x, int64_t k, aril_axes axis,
                                    aril_tensor **indices);
ARIL_API aril_tensor *aril_median(aril_tensor *x, aril_axes axis, aril_tensor **indices);
ARIL_API aril_tensor *aril_nanmedian(aril_tensor *x, aril_axes axis, aril_tensor **indices);
ARIL_API aril_tensor *aril_mode(aril_tensor *x, aril_axes axis, aril_tensor **indices);

/* Between two elements: by distance, the lower, the higher, halfway, the nearer. */
typedef enum aril_quantile_mode {
    ARIL_QUANTILE_LINEAR,
    ARIL_QUANTILE_LOWER,
    ARIL_QUANTILE_HIGHER,
    ARIL_QUANTILE_MIDPOINT,
    ARIL_QUANTILE_NEAREST,
} aril_quantile_mode;

/* The value below which the part q (0 to 1) of the elements lies, along one axis or (ARIL_ALL) of
 * all; NaN if an element is. x: f32 or f64. q [] -> the reduced shape; q [k] -> [k, reduced]. */
ARIL_API aril_tensor *aril_quantile(aril_tensor *x, aril_tensor *q, aril_axes axis,
                                    aril_quantile_mode how);

/* ---- of all elements ---- */

/* The different values of x in order [k]; k is known after the run. *inverse (the shape of x):
 * where each element of x is found in the result; *counts [k]: how often each stands in x; both
 * i64, NULL where they are not wanted. aril_unique_axis takes the slices of an axis for elements: x
 * [..., n, ...] -> [..., k, ...], inverse [n]. No gradient. */
ARIL_API aril_tensor *aril_unique(aril_tensor *x, aril_tensor **inverse, aril_tensor **counts);
ARIL_API aril_tensor *aril_unique_axis(aril_tensor *x, int axis, aril_tensor **inverse,
                                       aril_tensor **counts);

/* How often each number 0, 1, ... up to the largest (or up to minlength - 1, if that is more)
 * stands in x [n], integers not below 0: i64. With weights [n], their sums: f32 of f32, else f64.
 * The size is known after the run. No gradient. */
ARIL_API aril_tensor *aril_bincount(aril_tensor *x, aril_tensor *weights, int64_t minlength);

/* How many elements of x (floating point) fall into each of `bins` equal parts of low..high, as x's
 * dtype [bins]. What lies outside is not counted; low == high means the range of x. No gradient. */
ARIL_API aril_tensor *aril_histc(aril_tensor *x, int64_t bins, double low, double high);

typedef struct aril_histogram_opts {
    aril_tensor *weights; /* the shape of x: what each element counts; NULL: 1 */
    bool density;         /* divided so that the integral over the bins is 1 */
} aril_histogram_opts;

/* How much of x (floating point) falls into each bin between neighbours of `edges` [n + 1], which
 * go up: x's dtype [n]. A bin holds its lower edge, and the last its upper one too; what lies
 * outside is not counted. No gradient. */
ARIL_API aril_tensor *aril_histogram(aril_tensor *x, aril_tensor *edges, aril_histogram_opts opts);

/* The same with `bins` equal parts of low..high (low == high: the range of x); *edges, unless NULL,
 * gets their borders [bins + 1]. */
ARIL_API aril_tensor *aril_histogram_bins(aril_tensor *x, int64_t bins, double low, double high,
                                          aril_histogram_opts opts, aril_tensor **edges);

/* Where each of `values` would go in `sorted` so that the order holds, as i64 in the shape of
 * values: before equal elements, or with `right` behind them. sorted [n] with values of any shape,
 * or sorted [..., n] with values [..., k]; one dtype. aril_bucketize: the same, arguments
 * exchanged, boundaries [n]. No gradient. */
typedef struct aril_search_opts {
    bool right;
} aril_search_opts;
ARIL_API aril_tensor *aril_searchsorted(aril_tensor *sorted, aril_tensor *values,
                                        aril_search_opts opts);
ARIL_API aril_tensor *aril_bucketize(aril_tensor *x, aril_tensor *boundaries,
                                     aril_search_opts opts);

ARIL_C_END

#endif
