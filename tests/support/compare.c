#include "support/compare.h"

#include "aril/aril.h"
#include "core/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static char text[512];

/* A device may report an error of its kernels only when values are read. */
static char *unreadable(void)
{
    snprintf(text, sizeof text, "%s", aril_error());
    return text;
}

static bool same_shape(aril_tensor *got, aril_tensor *want)
{
    aril_shape a = aril_shape_of(got), b = aril_shape_of(want);
    if (aril__same_dims(a.ndim, a.dim, b.ndim, b.dim)) return true;
    char s[ARIL__SHAPE_TEXT], t[ARIL__SHAPE_TEXT];
    snprintf(text, sizeof text, "shape is %s, expected %s", aril__shape_text(s, a.ndim, a.dim),
             aril__shape_text(t, b.ndim, b.dim));
    return false;
}

static bool same_dtype(aril_tensor *got, aril_tensor *want)
{
    if (aril_dtype_of(got) == aril_dtype_of(want)) return true;
    snprintf(text, sizeof text, "dtype is %s, expected %s", aril_dtype_name(aril_dtype_of(got)),
             aril_dtype_name(aril_dtype_of(want)));
    return false;
}

static bool usable(aril_tensor *got, aril_tensor *want)
{
    if (got && want && aril_tensor_status(got) == ARIL_OK && aril_tensor_status(want) == ARIL_OK)
        return true;
    const char *why = !got || !want                 ? "NULL tensor"
                      : aril_tensor_status(got) < 0 ? aril_tensor_error(got)
                                                    : aril_tensor_error(want);
    snprintf(text, sizeof text, "%s", why ? why : "poisoned");
    return false;
}

/* The index of element i as text, "[1,2]". */
static const char *index_text(const aril_tensor *t, int64_t i)
{
    static char at[ARIL__SHAPE_TEXT];
    aril_shape s = aril_shape_of(t);
    for (int d = s.ndim - 1; d >= 0; d--) {
        int64_t n = s.dim[d];
        s.dim[d] = i % n;
        i /= n;
    }
    return aril__shape_text(at, s.ndim, s.dim);
}

char *test_difference_in_value(aril_tensor *got, aril_tensor *want, double rtol, double atol)
{
    if (!usable(got, want) || !same_shape(got, want)) return text;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    int64_t n = aril_numel(want);
    if (!aril_dtype_is_float(aril_dtype_of(want)) && !aril_dtype_is_float(aril_dtype_of(got))) {
        const int64_t *a = aril_data(aril_cast(got, ARIL_I64));
        const int64_t *b = aril_data(aril_cast(want, ARIL_I64));
        if (!a || !b) return unreadable();
        for (int64_t i = 0; i < n; i++) {
            if (a[i] == b[i]) continue;
            snprintf(text, sizeof text, "element %s is %" PRId64 ", expected %" PRId64,
                     index_text(want, i), a[i], b[i]);
            return text;
        }
        return NULL;
    }
    const double *a = aril_data(aril_cast(got, ARIL_F64));
    const double *b = aril_data(aril_cast(want, ARIL_F64));
    if (!a || !b) return unreadable();
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < n; i++) {
        bool near = (isnan(a[i]) && isnan(b[i])) || a[i] == b[i] ||
                    fabs(a[i] - b[i]) <= atol + rtol * fabs(b[i]);
        if (near && !(isinf(b[i]) && a[i] != b[i])) continue;
        wrong++;
        if (first < 0) first = i;
    }
    if (!wrong) return NULL;
    snprintf(text, sizeof text,
             "element %s is %.9g, expected %.9g (relative tolerance %g, absolute %g; %" PRId64
             " of %" PRId64 " differ)",
             index_text(want, first), a[first], b[first], rtol, atol, wrong, n);
    return text;
}

char *test_difference(aril_tensor *got, aril_tensor *want, double rtol, double atol)
{
    if (!usable(got, want) || !same_dtype(got, want)) return text;
    return test_difference_in_value(got, want, rtol, atol);
}

char *test_difference_in_bits(aril_tensor *got, aril_tensor *want)
{
    if (!usable(got, want) || !same_dtype(got, want) || !same_shape(got, want)) return text;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    size_t size = aril_dtype_size(aril_dtype_of(want));
    const char *a = aril_data(got), *b = aril_data(want);
    for (int64_t i = 0; i < aril_numel(want); i++) {
        if (memcmp(a + (size_t)i * size, b + (size_t)i * size, size) == 0) continue;
        snprintf(text, sizeof text, "element %s differs in its bits", index_text(want, i));
        return text;
    }
    return NULL;
}
