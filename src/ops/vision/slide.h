/* Windows that slide over the spatial dimensions of [N,C,spatial...]: what convolution, pooling and
 * unfold share. */
#ifndef ARIL_OPS_SLIDE_H
#define ARIL_OPS_SLIDE_H

#include "ops/table/op.h"

/* A window along one dimension. */
typedef struct aril__slide {
    int64_t kernel, stride, begin, end, dilation; /* begin, end: padding */
    bool
        ceil; /* a last window that hangs over the end counts, if it begins inside; the first too */
} aril__slide;

/* Elements that the window spans. */
static inline int64_t aril__slide_span(const aril__slide *w)
{
    return (w->kernel - 1) * w->dilation + 1;
}

/* The number of windows on n elements; 0 or less where not even one fits, -1 where n is unknown. */
static inline int64_t aril__slide_count(const aril__slide *w, int64_t n)
{
    int64_t room = n + w->begin + w->end - aril__slide_span(w) + (w->ceil ? w->stride - 1 : 0);
    if (n < 0) return -1;
    if (room < 0) return 0;
    int64_t count = room / w->stride + 1;
    if (w->ceil && (count - 1) * w->stride >= n + w->begin) count--;
    return count;
}

/* How `same` padding is shared out: after the window's elements first, or before them. */
enum { ARIL__SAME_UPPER = 1, ARIL__SAME_LOWER = 2 };

/* Padding under which n elements give ceil(n / stride) windows. */
static inline void aril__slide_same(aril__slide *w, int64_t n, int64_t how)
{
    int64_t count = n < 0 ? -1 : (n + w->stride - 1) / w->stride;
    int64_t total = count < 0 ? 0 : (count - 1) * w->stride + aril__slide_span(w) - n;
    if (total < 0) total = 0;
    w->begin = how == ARIL__SAME_LOWER ? total - total / 2 : total / 2;
    w->end = total - w->begin;
}

/* Three numbers of an option of which the caller gave the first n: 0 repeats the first, and a first
 * 0 is `initial`. Fails when one is below 1. */
aril_status aril__slide_numbers(const char *what, const char *name, int n, const int64_t *given,
                                int64_t initial, int64_t *out);

/* Three numbers that may be 0, of which the caller gave the first n: a 0 behind the first repeats
 * it, and ARIL_ZERO is a 0 that does not. Fails when one is negative. */
aril_status aril__slide_extra(const char *what, const char *name, int n, const int64_t *given,
                              int64_t *out);

/* Padding from options, read in the same way: `begin` on both sides, or `end` after where given. */
aril_status aril__slide_padding(const char *what, int n, const int64_t *begin, const int64_t *end,
                                int64_t *out);

/* Checks that x is [N,C,n spatial] or [C,n spatial] and gives it a batch dimension in that case
 * (*single set). NULL, with an error, when it is neither; poison comes back as it is. */
aril_tensor *aril__slide_batched(const char *what, aril_tensor *x, int n, bool *single);

/* Takes the batch dimension away again. */
aril_tensor *aril__slide_unbatched(aril_tensor *y, bool single);

#endif
