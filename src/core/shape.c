#include "core/shape.h"

#include "core/error.h"
#include "core/sizes.h"
#include "core/thread.h"

#include <inttypes.h>

/* Whether a number stands for a size of the trace, or of a defined graph. */
static bool is_open_size(int64_t d)
{
    return aril__size_is_named(d) && (aril__self()->tracer || aril__sizes_of(1, &d));
}

aril_status aril__check_shape(const char *what, aril_shape s, bool unknown)
{
    if (s.ndim < 0 || s.ndim > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "%s: got %d dimensions, expected 0 to %d", what, s.ndim,
                          ARIL_MAX_DIMS);
    char text[ARIL__SHAPE_TEXT];
    int64_t count = 1;
    for (int i = 0; i < s.ndim; i++) {
        int64_t d = s.dim[i];
        if (d < 0 && !(unknown && d == -1) && !is_open_size(d))
            return aril__fail(ARIL_ERR_SHAPE,
                              "%s: size %" PRId64 " of dimension %d is negative in %s", what, d, i,
                              aril__shape_text(text, s.ndim, s.dim));
        if (d > 0 && __builtin_mul_overflow(count, d, &count)) count = INT64_MAX;
        if (count > INT64_MAX / 16)
            return aril__fail(ARIL_ERR_SHAPE, "%s: too many elements in %s", what,
                              aril__shape_text(text, s.ndim, s.dim));
    }
    return ARIL_OK;
}

int64_t aril__unknown_extent(int64_t d)
{
    return aril__size_nominal(aril__self()->sizes, d);
}

bool aril__broadcast(int *out_ndim, int64_t *out, int b_ndim, const int64_t *b)
{
    if (b_ndim > *out_ndim) { /* shift `out` right, with ones in front */
        int shift = b_ndim - *out_ndim;
        for (int i = *out_ndim - 1; i >= 0; i--) out[i + shift] = out[i];
        for (int i = 0; i < shift; i++) out[i] = 1;
        *out_ndim = b_ndim;
    }
    for (int i = 0; i < b_ndim; i++) {
        int64_t *o = &out[*out_ndim - b_ndim + i], d = b[i];
        if ((*o == d && d != -1) || d == 1) continue;
        if (*o == 1)
            *o = d;
        else if (*o < 0 || d < 0)
            *o = aril__size_broadcast(aril__self()->sizes, *o, d);
        else
            return false;
    }
    return true;
}

int aril__axis(const char *what, int64_t axis, int ndim)
{
    int64_t n = ndim > 0 ? ndim : 1;
    if (axis < -n || axis >= n) {
        aril__fail(ARIL_ERR_INDEX, "%s: axis %" PRId64 " is out of range for %d dimensions", what,
                   axis, ndim);
        return -1;
    }
    return (int)(axis < 0 ? axis + n : axis);
}

const char *aril__shape_text(char buf[ARIL__SHAPE_TEXT], int ndim, const int64_t *dim)
{
    int n = snprintf(buf, ARIL__SHAPE_TEXT, "[");
    for (int i = 0; i < ndim && i < ARIL_MAX_DIMS; i++) {
        if (dim[i] < 0 && (dim[i] == -1 || aril__size_is_named(dim[i])))
            n += snprintf(buf + n, (size_t)(ARIL__SHAPE_TEXT - n), "%s%s", i ? "," : "",
                          aril__size_name(aril__self()->sizes, dim[i]));
        else
            n += snprintf(buf + n, (size_t)(ARIL__SHAPE_TEXT - n), "%s%" PRId64, i ? "," : "",
                          dim[i]);
    }
    snprintf(buf + n, (size_t)(ARIL__SHAPE_TEXT - n), "]");
    return buf;
}
