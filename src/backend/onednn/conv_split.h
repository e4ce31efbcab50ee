/* Into how many parts a convolution is cut along samples, rows and channels, so that each thread gets
 * about the same work. Arithmetic alone: no primitive is made here.
 *
 * Rows cost the least to cut by. But where rows are fewer than threads, or the weights are much larger
 * than the images, as in the last layers of a network, every piece would read all of the weights;
 * a part of the channels reads a part of them. Its images are not contiguous, so they are staged. */
#ifndef ARIL_BACKEND_ONEDNN_CONV_SPLIT_H
#define ARIL_BACKEND_ONEDNN_CONV_SPLIT_H

#include "ops/vision/conv.h"

/* What is computed: y, x (conv_dgrad, conv_transpose), or w. */
enum aril__conv_role { ARIL__CONV_Y, ARIL__CONV_X, ARIL__CONV_W };

enum { ARIL__CONV_BLOCK = 16 }; /* channels that are not cut apart */

typedef struct aril__conv_job {
    const aril__conv *d;
    enum aril__conv_role role;
    int axis;        /* the spatial dimension whose rows are cut */
    int64_t threads; /* for so many */
    bool activates;  /* each piece applies an activation to its result */
} aril__conv_job;

/* Numbers of parts. rows > 1 only where batch is the number of samples. */
typedef struct aril__conv_split {
    int64_t batch, rows, channels;
    double cost; /* of a thread, in multiplications */
} aril__conv_split;

/* Fills `to` with at most `most` splits, the cheapest first, and returns how many. The whole, in one
 * piece, is always the last one. */
int aril__conv_splits(const aril__conv_job *j, aril__conv_split *to, int most);

/* Rows of the result. */
int64_t aril__conv_rows(const aril__conv_job *j);

/* Channels of the result (of y for weights) that part i of n has: [*begin, *end); groups where there
 * are several. */
void aril__conv_channels(const aril__conv_job *j, int64_t i, int64_t n, int64_t *begin,
                         int64_t *end);

/* Multiplications, elements of the weights, and elements of one sample of x or y. */
double aril__conv_work(const aril__conv *d);
double aril__conv_weights(const aril__conv *d);
double aril__conv_image(const aril__conv *d, bool x);

#endif
