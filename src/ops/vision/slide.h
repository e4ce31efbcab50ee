/* Windows that slide over the spatial dimensions of [N,C,spatial...]: shared by convolution,
 * pooling and unfold. */
#ifndef ARIL_OPS_SLIDE_H
#define ARIL_OPS_SLIDE_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_interpolate, aril__op_interpolate_grad;

/* A window along one dimension. */
typedef struct aril__slide {
    int64_t kernel, stride, begin, end, dilation; /* begin, end: padding */
    bool ceil;                                    /* windows may overhang if they start inside */
} aril__slide;

/* Elements that the window spans. */
static inline int64_t aril__slide_span(const aril__slide *w)
{
    return (w->kernel - 1) * w->dilation + 1;
}

/* The number of windows on an unknown number of elements. */
int64_t aril__slide_unknown(const aril__slide *w, int64_t n);

/* The same from the key of that unknown (ARIL__SIZE_SLIDE), when the n elements are known. */
int64_t aril__slide_known(const int64_t *key, int64_t n);

/* The number of windows on n elements; 0 or less if not even one fits, unknown if n is. */
static inline int64_t aril__slide_count(const aril__slide *w, int64_t n)
{
    if (n < 0) return aril__slide_unknown(w, n);
    int64_t span = n + w->begin + w->end - aril__slide_span(w) + (w->ceil ? w->stride - 1 : 0);
    if (span < 0) return 0;
    int64_t count = span / w->stride + 1;
    if (w->ceil && (count - 1) * w->stride >= n + w->begin) count--;
    return count;
}

/* Where the odd element of `same` padding goes: after the input, or before it. */
enum { ARIL__SAME_UPPER = 1, ARIL__SAME_LOWER = 2 };

/* Padding for which n elements give ceil(n / stride) windows. */
static inline void aril__slide_same(aril__slide *w, int64_t n, int64_t how)
{
    int64_t count = n < 0 ? -1 : (n + w->stride - 1) / w->stride;
    /* Of an unknown n, the padding that gives as many windows. */
    int64_t span = aril__slide_span(w),
            total = n < 0 ? span - 1 : (count - 1) * w->stride + span - n;
    if (total < 0) total = 0;
    w->begin = how == ARIL__SAME_LOWER ? total - total / 2 : total / 2;
    w->end = total - w->begin;
}

/* Fills an option's three numbers, of which the caller gave the first n: 0 repeats the first, and a
 * first 0 means `initial`. Fails if one is below 1. */
aril_status aril__slide_numbers(const char *what, const char *name, int n, const int64_t *given,
                                int64_t initial, int64_t *out);

/* Fills three numbers that may be 0, of which the caller gave the first n: a 0 after the first
 * repeats the first, and ARIL_ZERO is an explicit 0. Fails if one is negative. */
aril_status aril__slide_extra(const char *what, const char *name, int n, const int64_t *given,
                              int64_t *out);

/* Fills padding from options in the same way: `begin` on both sides, or `end` after if given. */
aril_status aril__slide_padding(const char *what, int n, const int64_t *begin, const int64_t *end,
                                int64_t *out);

/* Checks that x is [N,C,n spatial] or [C,n spatial], and adds a batch dimension in the latter case
 * (setting *single). Returns NULL, with an error, if it is neither; returns poison unchanged. */
aril_tensor *aril__slide_batched(const char *what, aril_tensor *x, int n, bool *single);

/* Removes the batch dimension again. */
aril_tensor *aril__slide_unbatched(aril_tensor *y, bool single);

#endif
