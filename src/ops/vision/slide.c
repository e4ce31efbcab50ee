#include "ops/vision/slide.h"

#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/shape/view.h"

#include <inttypes.h>

int64_t aril__slide_unknown(const aril__slide *w, int64_t n)
{
    int64_t more = w->begin + w->end - aril__slide_span(w);
    if (w->stride == 1 && more == -1) return n;
    /* Rounding up depends on where the input begins, otherwise only the sum counts. */
    int64_t key[6] = { ARIL__SIZE_SLIDE, n, more, w->stride, w->ceil && w->stride > 1, 0 };
    if (key[4]) key[5] = w->begin;
    return aril__size_is_named(n) ? aril__size_derived(aril__self()->sizes, 6, key) : -1;
}

int64_t aril__slide_known(const int64_t *key, int64_t n)
{
    /* A window of one element, with the padding that makes up for it. */
    aril__slide w = { .kernel = 1,
                      .stride = key[3],
                      .begin = key[5],
                      .end = key[2] + 1 - key[5],
                      .dilation = 1,
                      .ceil = key[4] != 0 };
    return aril__slide_count(&w, n);
}

aril_status aril__slide_numbers(const char *what, const char *name, int n, const int64_t *given,
                                int64_t initial, int64_t *out)
{
    int64_t first = given[0] ? given[0] : initial;
    for (int i = 0; i < 3; i++) {
        out[i] = i < n ? given[i] ? given[i] : first : 1;
        if (out[i] == ARIL_ZERO) out[i] = 0;
        if (out[i] < 1 || out[i] > INT32_MAX)
            return aril__fail(ARIL_ERR_ARG, "%s: %s %" PRId64 " must be %s", what, name, out[i],
                              out[i] < 1 ? "at least 1" : "at most 2147483647");
    }
    return ARIL_OK;
}

aril_status aril__slide_extra(const char *what, const char *name, int n, const int64_t *given,
                              int64_t *out)
{
    for (int i = 0; i < 3; i++) {
        out[i] = i >= n ? 0 : given[i] ? given[i] : given[0];
        if (out[i] == ARIL_ZERO) out[i] = 0;
        if (out[i] < 0 || out[i] > INT32_MAX)
            return aril__fail(ARIL_ERR_ARG, "%s: %s %" PRId64 " must be from 0 to %d", what, name,
                              out[i], INT32_MAX);
    }
    return ARIL_OK;
}

aril_status aril__slide_padding(const char *what, int n, const int64_t *begin, const int64_t *end,
                                int64_t *out)
{
    int64_t before[3], after[3];
    if (aril__slide_extra(what, "padding", n, begin, before) < 0 ||
        aril__slide_extra(what, "padding_end", n, end, after) < 0)
        return ARIL_ERR_ARG;
    for (int i = 0; i < 3; i++) {
        bool given = i < n && (end[0] || end[i]);
        out[2 * i] = before[i];
        out[2 * i + 1] = given ? after[i] : before[i];
    }
    return ARIL_OK;
}

aril_tensor *aril__slide_batched(const char *what, aril_tensor *x, int n, bool *single)
{
    char text[ARIL__SHAPE_TEXT];
    *single = false;
    if (!x) {
        aril__null_tensor(what);
        return NULL;
    }
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (x->ndim == n + 2) return x;
    if (x->ndim != n + 1) {
        aril__fail(ARIL_ERR_SHAPE, "%s: expected [N,C] or [C] and %d spatial dimensions, got %s",
                   what, n, aril__text(text, x));
        return NULL;
    }
    *single = true;
    return aril_unsqueeze(x, 0);
}

aril_tensor *aril__slide_unbatched(aril_tensor *y, bool single)
{
    struct unsqueeze_attrs first = { { 1 } };
    if (aril__is_poison(y)) return aril__pass_on(y);
    if (!single) return y;
    return aril__op_with(&first, &aril__op_squeeze, y);
}
