/* Repetition of elements by a tensor of counts. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/reduce.h"
#include "aril/sort.h"
#include "aril/view.h"
#include "ops/table/op.h"

static aril_status check_times(const aril_tensor *x, int at, const aril_tensor *times)
{
    char text[ARIL__SHAPE_TEXT];
    if (!aril__is_int((aril_dtype)times->dtype))
        return aril__fail(ARIL_ERR_DTYPE,
                          "repeat_interleave_by: the numbers must be integers, not %s",
                          aril__dtypes[times->dtype].name);
    int64_t n = x->ndim ? x->dim[at] : 1;
    if (times->ndim > 1 || (times->numel != 1 && times->numel != n))
        return aril__fail(
            ARIL_ERR_SHAPE,
            "repeat_interleave_by: needs a number for each of %lld positions, or one, "
            "got %s",
            (long long)n, aril__text(text, times));
    return ARIL_OK;
}

/* Position k of the result comes from the first position up to which more than k are made. */
static aril_tensor *source_positions(aril_tensor *times, int64_t n, aril_device device)
{
    times = aril_expand(aril_reshape(aril_cast(times, ARIL_I64), ARIL_SHAPE(-1)), ARIL_SHAPE(n));
    if (n == 0) return aril_zeros(ARIL_SHAPE(0), ARIL_I64, device);
    int64_t min = aril_item_int(aril_amin(times, ARIL_ALL));
    if (min < 0) {
        aril__fail(ARIL_ERR_ARG, "repeat_interleave_by: %lld times", (long long)min);
        return aril__poison();
    }
    aril_tensor *ends = aril_cumsum(times, 0);
    int64_t total = aril_item_int(aril_select(ends, 0, -1));
    aril_tensor *k = aril_arange(0, total, 1, ARIL_I64, device);
    return aril_searchsorted(ends, k, (aril_search_opts){ .right = true });
}

aril_tensor *aril_repeat_interleave_by(aril_tensor *x, aril_tensor *times, int axis)
{
    if (!x || !times) return aril__null_tensor("repeat_interleave_by");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (aril__is_poison(times)) return aril__pass_on(times);
    int at = aril__axis("repeat_interleave_by", axis, x->ndim);
    if (at < 0 || check_times(x, at, times) < 0) return aril__poison();
    ARIL_SCOPE;
    if (x->ndim == 0) x = aril_unsqueeze(x, 0);
    aril_tensor *from = source_positions(times, x->dim[at], aril_device_of(x));
    return aril_escape(aril_index_select(x, from, at));
}
