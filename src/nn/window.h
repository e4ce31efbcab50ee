/* Shared by layers with sliding windows: sizes per spatial dimension, and their printed form. */
#ifndef ARIL_NN_WINDOW_H
#define ARIL_NN_WINDOW_H

#include "aril/base.h"

/* Resolves sizes: a 0 after the first repeats the first, a first 0 means `unset`, ARIL_ZERO means
 * 0. An error when a size is below `least`. */
aril_status aril__window(const char *type, const char *what, int spatial, const int64_t *from,
                         int64_t unset, int64_t min, int64_t *to);
/* The sizes of a kernel: `kernel` in each dimension, or `sizes` when it is 0. */
aril_status aril__window_kernel(const char *type, int spatial, int64_t kernel, const int64_t *sizes,
                                int64_t *to);

/* Converts resolved sizes back to options: each 0 becomes ARIL_ZERO. */
void aril__window_as_given(int64_t size[3]);

bool aril__all_are(int n, const int64_t *at, int64_t value);

/* A text buffer that is appended to until it is full. */
typedef struct aril__text_out {
    char *at;
    size_t left;
} aril__text_out;
void aril__text_append(aril__text_out *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "(3, 3)", or "(3,)" for one size. */
void aril__text_append_sizes(aril__text_out *t, const char *before, int n, const int64_t *at);

#endif
