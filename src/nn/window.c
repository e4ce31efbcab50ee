#include "nn/window.h"

#include "core/error.h"

#include <stdarg.h>

aril_status aril__window(const char *type, const char *what, int spatial, const int64_t *from,
                         int64_t unset, int64_t min, int64_t *to)
{
    for (int i = 0; i < spatial; i++) {
        to[i] = from[i] == ARIL_ZERO ? 0 : from[i] ? from[i] : i ? to[0] : unset;
        if (to[i] < min)
            return aril__fail(ARIL_ERR_ARG, "%s: %s is %lld, expected at least %lld", type, what,
                              (long long)to[i], (long long)min);
    }
    return ARIL_OK;
}

aril_status aril__window_kernel(const char *type, int spatial, int64_t kernel, const int64_t *sizes,
                                int64_t *to)
{
    const int64_t all[3] = { kernel };
    return aril__window(type, "kernel", spatial, kernel ? all : sizes, 0, 1, to);
}

void aril__window_as_given(int64_t size[3])
{
    for (int i = 0; i < 3; i++)
        if (size[i] == 0) size[i] = ARIL_ZERO;
}

bool aril__all_are(int n, const int64_t *at, int64_t value)
{
    for (int i = 0; i < n; i++)
        if (at[i] != value) return false;
    return true;
}

void aril__text_append(aril__text_out *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->at, t->left, format, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left ? t->left - 1 : 0;
    t->at += used;
    t->left -= used;
}

void aril__text_append_sizes(aril__text_out *t, const char *before, int n, const int64_t *at)
{
    aril__text_append(t, "%s(", before);
    for (int i = 0; i < n; i++) aril__text_append(t, i ? ", %lld" : "%lld", (long long)at[i]);
    aril__text_append(t, n == 1 ? ",)" : ")");
}
