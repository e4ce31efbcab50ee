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

/* ---- differences in value ---- */

enum { PIECE = 1 << 16 }; /* elements that are cast at a time: large networks have many */

/* Whether the bits are seen to be the same without copies: then so are the values. */
static bool has_the_bits_of(aril_tensor *got, aril_tensor *want)
{
    size_t size = aril_dtype_size(aril_dtype_of(want));
    if (aril_dtype_of(got) != aril_dtype_of(want) || size == 0 || !aril_is_contiguous(got) ||
        !aril_is_contiguous(want))
        return false;
    const void *a = aril_data(got), *b = aril_data(want);
    return a && b && memcmp(a, b, (size_t)aril_numel(want) * size) == 0;
}

/* Elements [at, at + n) in `dtype`; t has one axis, unless they are all it has. */
static const void *elements(aril_tensor *t, int64_t at, int64_t n, aril_dtype dtype)
{
    return aril_data(aril_cast(n < aril_numel(t) ? aril_narrow(t, 0, at, n) : t, dtype));
}

/* The first of n integers that differs, -1 if there is none. */
static int64_t first_unequal(const int64_t *a, const int64_t *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i]) return i;
    return -1;
}

static bool is_near(double a, double b, double rtol, double atol)
{
    if ((isnan(a) && isnan(b)) || a == b) return true;
    return !isinf(b) && fabs(a - b) <= atol + rtol * fabs(b);
}

static char *integer_difference(aril_tensor *got, aril_tensor *want, int64_t n)
{
    aril_tensor *x = n > PIECE ? aril_flatten(got, 0, -1) : got;
    aril_tensor *y = n > PIECE ? aril_flatten(want, 0, -1) : want;
    for (int64_t at = 0; at == 0 || at < n; at += PIECE) { /* reads an empty one, too */
        ARIL_SCOPE;
        int64_t m = n - at < PIECE ? n - at : PIECE;
        const int64_t *a = elements(x, at, m, ARIL_I64), *b = elements(y, at, m, ARIL_I64);
        if (!a || !b) return unreadable();
        int64_t i = first_unequal(a, b, m);
        if (i < 0) continue;
        snprintf(text, sizeof text, "element %s is %" PRId64 ", expected %" PRId64,
                 index_text(want, at + i), a[i], b[i]);
        return text;
    }
    return NULL;
}

static char *float_difference(aril_tensor *got, aril_tensor *want, int64_t n, double rtol,
                              double atol)
{
    aril_tensor *x = n > PIECE ? aril_flatten(got, 0, -1) : got;
    aril_tensor *y = n > PIECE ? aril_flatten(want, 0, -1) : want;
    int64_t wrong = 0, first = 0;
    double first_got = 0, first_want = 0;
    for (int64_t at = 0; at == 0 || at < n; at += PIECE) { /* reads an empty one, too */
        ARIL_SCOPE;
        int64_t m = n - at < PIECE ? n - at : PIECE;
        const double *a = elements(x, at, m, ARIL_F64), *b = elements(y, at, m, ARIL_F64);
        if (!a || !b) return unreadable();
        for (int64_t i = 0; i < m; i++) {
            if (is_near(a[i], b[i], rtol, atol) || wrong++) continue;
            first = at + i;
            first_got = a[i];
            first_want = b[i];
        }
    }
    if (!wrong) return NULL;
    snprintf(text, sizeof text,
             "element %s is %.9g, expected %.9g (relative tolerance %g, absolute %g; %" PRId64
             " of %" PRId64 " differ)",
             index_text(want, first), first_got, first_want, rtol, atol, wrong, n);
    return text;
}

char *test_difference_in_value(aril_tensor *got, aril_tensor *want, double rtol, double atol)
{
    if (!usable(got, want) || !same_shape(got, want)) return text;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    int64_t n = aril_numel(want);
    if (has_the_bits_of(got, want)) return NULL;
    if (!aril_dtype_is_float(aril_dtype_of(want)) && !aril_dtype_is_float(aril_dtype_of(got)))
        return integer_difference(got, want, n);
    return float_difference(got, want, n, rtol, atol);
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
