/* Histograms: search for each element's bin, then count the bins. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/sort.h"
#include "aril/view.h"
#include "ops/table/apply.h"

static aril_status has_edges(const aril__requirement *q)
{
    const aril_shape *edges = &q->shape[0];
    if (edges->ndim == 1 && (edges->dim[0] < 0 || edges->dim[0] >= 2)) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE,
                      "histogram: expected at least 2 edges in one dimension, got %s",
                      aril__shape_text(a, edges->ndim, edges->dim));
}

static aril_status weights_match(const aril__requirement *q)
{
    const aril_shape *w = &q->shape[0], *x = &q->shape[1];
    if (aril__shapes_fit(w, x)) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "histogram: weights %s do not match values %s",
                      aril__shape_text(a, w->ndim, w->dim), aril__shape_text(b, x->ndim, x->dim));
}

static aril_status check(aril_tensor *x, aril_tensor *edges, aril_tensor *weights)
{
    aril_tensor *all[] = { x, edges, weights };
    for (int i = 0; i < 3; i++) {
        if (!all[i] && i < 2)
            return aril__fail(ARIL_ERR_ARG, "histogram: the %s are NULL", i ? "edges" : "values");
        if (all[i] && all[i]->flags & ARIL__POISON)
            return aril__refuse_poison("histogram", i, all[i]);
        if (all[i] && all[i]->dtype != x->dtype)
            return aril__fail(ARIL_ERR_DTYPE, "histogram: dtypes %s and %s differ",
                              aril__dtypes[x->dtype].name, aril__dtypes[all[i]->dtype].name);
    }
    if (!aril__is_float((aril_dtype)x->dtype))
        return aril__fail(ARIL_ERR_DTYPE, "histogram: expected a floating-point dtype, got %s",
                          aril__dtypes[x->dtype].name);
    if (aril__require_of("histogram", has_edges, edges) < 0) return ARIL_ERR_SHAPE;
    return weights ? aril__require_of("histogram", weights_match, weights, x) : ARIL_OK;
}

aril_tensor *aril_histogram(aril_tensor *x, aril_tensor *edges, aril_histogram_opts opts)
{
    if (check(x, edges, opts.weights) < 0) return aril__poison();
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    int64_t bins = edges->dim[0] - 1;
    aril_tensor *flat = aril_reshape(x, ARIL_SHAPE(-1));
    aril_tensor *first = aril_select(edges, 0, 0), *last = aril_select(edges, 0, -1);
    aril_tensor *inside = aril_logical_and(aril_ge(flat, first), aril_le(flat, last));
    flat = aril_masked_select(flat, inside);
    /* An element's bin is the number of edges <= it, minus one; the last bin includes the last
     * edge. */
    aril_tensor *bin = aril_searchsorted(edges, flat, (aril_search_opts){ .right = true });
    bin = aril_clamp_max(aril_sub_scalar(bin, 1), bins - 1);
    aril_tensor *weights = opts.weights ? aril_reshape(opts.weights, ARIL_SHAPE(-1)) : NULL;
    if (weights) weights = aril_masked_select(weights, inside);
    aril_tensor *h = aril_cast(aril_bincount(bin, weights, bins), (aril_dtype)x->dtype);
    if (opts.density) {
        aril_tensor *width =
            aril_sub(aril_narrow(edges, 0, 1, bins), aril_narrow(edges, 0, 0, bins));
        h = aril_div(h, aril_mul(width, aril_sum(h, ARIL_ALL)));
    }
    return aril_escape(h);
}

aril_tensor *aril_histogram_bins(aril_tensor *x, int64_t bins, double low, double high,
                                 aril_histogram_opts opts, aril_tensor **edges)
{
    aril_tensor *borders = NULL;
    if (!x) {
        borders = aril__null_tensor("histogram");
    } else if (aril__is_poison(x)) {
        borders = aril__poison_like(x);
    } else if (bins < 1 || bins == INT64_MAX || !(low <= high) || low < -1e300 || high > 1e300) {
        aril__fail(ARIL_ERR_ARG, "histogram: invalid bins or range: %lld bins from %g to %g",
                   (long long)bins, low, high);
        borders = aril__poison();
    } else if (low == high && x->numel > 0) {
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        low = aril_item(aril_amin(x, ARIL_ALL));
        high = aril_item(aril_amax(x, ARIL_ALL));
        if (!(low <= high) || low < -1e300 || high > 1e300) {
            aril__fail(ARIL_ERR_NUMBER,
                       "histogram: the range of the values, %g to %g, is not finite", low, high);
            borders = aril_escape(aril__poison());
        }
    }
    if (!borders) {
        if (low == high) { /* all elements equal, or empty input */
            low -= 0.5;
            high += 0.5;
        }
        borders = aril_linspace(low, high, bins + 1, (aril_dtype)x->dtype, aril_device_of(x));
    }
    aril_tensor *out[2] = { aril__is_poison(borders) ? aril__poison_like(borders)
                                                     : aril_histogram(x, borders, opts),
                            borders };
    aril__fail_together(2, out);
    if (edges) *edges = out[1];
    return out[0];
}
