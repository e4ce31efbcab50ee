/* Membership, and runs of equal neighbors. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/sort.h"
#include "aril/view.h"
#include "ops/elementwise/elementwise.h"

/* ---- isin ---- */

aril_tensor *aril_isin(aril_tensor *x, aril_tensor *values, bool invert)
{
    if (!x || !values) return aril__null_tensor("isin");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (aril__is_poison(values)) return aril__pass_on(values);
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_dtype type = aril__result_type(2, (aril_tensor *[]){ x, values });
    if (type == ARIL_BOOL) type = ARIL_U8;
    aril_tensor *line = aril_reshape(aril_cast(values, type), ARIL_SHAPE(-1)), *found;
    if (line->numel == 0) {
        found = aril_zeros(aril__shape(x), ARIL_BOOL, aril_device_of(x));
    } else {
        aril_tensor *sorted = aril_sort(line, 0, (aril_sort_opts){ 0 }, NULL),
                    *y = aril_cast(x, type);
        aril_tensor *at = aril_searchsorted(sorted, y, (aril_search_opts){ 0 });
        found = aril_eq(aril_take(sorted, aril_clamp_max(at, line->numel - 1)), y);
    }
    return aril_escape(invert ? aril_logical_not(found) : found);
}

/* ---- runs ---- */

/* Whether each slice along axis 0 begins a run: true for the first one. [n] */
static aril_tensor *run_starts(aril_tensor *x)
{
    aril_tensor *rows = x->ndim == 1 ? aril_unsqueeze(x, 1) : aril_flatten(x, 1, -1);
    aril_tensor *differs =
        aril_ne(aril_slice(rows, 0, 1, ARIL_END, 1), aril_slice(rows, 0, 0, -1, 1));
    aril_tensor *first = aril_ones(ARIL_SHAPE(x->dim[0] > 0), ARIL_BOOL, aril_device_of(x));
    return aril_cat(ARIL_LIST(first, aril_any(differs, ARIL_AXES(1))), 0);
}

/* The values of runs along axis 0 of x, and for each slice the number of its run. */
static aril_tensor *runs(aril_tensor *x, aril_tensor **inverse, aril_tensor **counts)
{
    aril_tensor *starts = run_starts(x);
    aril_tensor *at = aril_reshape(aril_nonzero(starts), ARIL_SHAPE(-1)); /* [k] */
    *inverse = aril_sub_scalar(aril_cumsum(starts, 0), 1);
    aril_tensor *end = aril_full(ARIL_SHAPE(1), x->dim[0], ARIL_I64, aril_device_of(x));
    *counts = aril_diff(aril_cat(ARIL_LIST(at, end), 0), 1, 0);
    return aril_index_select(x, at, 0);
}

static aril_tensor *refuse_runs(aril_tensor *bad, aril_tensor **inverse, aril_tensor **counts)
{
    if (inverse) *inverse = aril__poison_like(bad);
    if (counts) *counts = aril__poison_like(bad);
    return bad;
}

/* Hands results to the caller's scope, where they are wanted. */
static aril_tensor *hand_out(aril_tensor *y, aril_tensor *numbers, aril_tensor *lengths,
                             aril_tensor **inverse, aril_tensor **counts)
{
    aril_tensor *out[3] = { y, numbers, lengths };
    aril__fail_together(3, out);
    if (inverse) *inverse = aril_escape(out[1]);
    if (counts) *counts = aril_escape(out[2]);
    return aril_escape(out[0]);
}

aril_tensor *aril_unique_consecutive(aril_tensor *x, aril_tensor **inverse, aril_tensor **counts)
{
    if (!x) return refuse_runs(aril__null_tensor("unique_consecutive"), inverse, counts);
    if (aril__is_poison(x)) return refuse_runs(aril__pass_on(x), inverse, counts);
    aril_tensor *numbers, *lengths;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *y = runs(aril_reshape(x, ARIL_SHAPE(x->numel)), &numbers, &lengths);
    return hand_out(y, aril_reshape(numbers, aril__shape(x)), lengths, inverse, counts);
}

aril_tensor *aril_unique_consecutive_axis(aril_tensor *x, int axis, aril_tensor **inverse,
                                          aril_tensor **counts)
{
    if (!x) return refuse_runs(aril__null_tensor("unique_consecutive_axis"), inverse, counts);
    if (aril__is_poison(x)) return refuse_runs(aril__pass_on(x), inverse, counts);
    if (x->ndim == 0)
        aril__fail(ARIL_ERR_SHAPE, "unique_consecutive_axis: a 0-d tensor has no axis");
    int at = x->ndim ? aril__axis("unique_consecutive_axis", axis, x->ndim) : -1;
    if (at >= 0 && x->numel == 0 && x->dim[at] != 0) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "unique_consecutive_axis: slices of %s along axis %d are empty",
                   aril__text(text, x), at);
        at = -1;
    }
    if (at < 0) return refuse_runs(aril__poison(), inverse, counts);
    aril_tensor *numbers, *lengths;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *y = runs(aril_movedim(x, ARIL_AXES(at), ARIL_AXES(0)), &numbers, &lengths);
    return hand_out(aril_movedim(y, ARIL_AXES(0), ARIL_AXES(at)), numbers, lengths, inverse,
                    counts);
}
