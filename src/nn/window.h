/* What layers of windows share: sizes for each spatial dimension, and their text. */
#ifndef ARIL_NN_WINDOW_H
#define ARIL_NN_WINDOW_H

#include "aril/base.h"

/* Sizes as they are meant: a 0 behind the first repeats it, a first 0 is `unset`, ARIL_ZERO is 0.
 * An error where one is below `least`. */
aril_status aril__window(const char *type, const char *what, int spatial, const int64_t *from,
                         int64_t unset, int64_t least, int64_t *to);
/* The sizes of a kernel: the number, or where that is 0 the sizes. */
aril_status aril__window_kernel(const char *type, int spatial, int64_t kernel, const int64_t *sizes,
                                int64_t *to);

/* Sizes that were read so, written for options that are read again: each 0 as ARIL_ZERO. */
void aril__window_as_given(int64_t size[3]);

bool aril__all_are(int n, const int64_t *at, int64_t value);

/* A text that is added to until it is full. */
typedef struct aril__text_out {
    char *at;
    size_t left;
} aril__text_out;
void aril__say(aril__text_out *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "(3, 3)", and "(3,)" for one. */
void aril__say_sizes(aril__text_out *t, const char *before, int n, const int64_t *at);

#endif
