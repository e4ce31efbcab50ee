/* How many parts to cut a convolution into along samples, rows and channels, so that threads get
 * about equal work. Pure arithmetic: no primitive is created here.
 *
 * Cutting by rows is cheapest. But when there are fewer rows than threads, or the weights are much
 * larger than the images, as in the last layers of a network, every piece would read all the
 * weights; a part of the channels reads only part of them. Its images are not contiguous, so they
 * are staged. */
#ifndef ARIL_BACKEND_ONEDNN_CONV_SPLIT_H
#define ARIL_BACKEND_ONEDNN_CONV_SPLIT_H

#include "ops/vision/conv.h"

/* What is computed: y, x (conv_dgrad, conv_transpose), or w. */
enum aril__conv_role { ARIL__CONV_Y, ARIL__CONV_X, ARIL__CONV_W };

enum { ARIL__CONV_BLOCK = 16 }; /* channels that always stay together */

typedef struct aril__conv_job {
    const aril__conv *d;
    enum aril__conv_role role;
    int axis;        /* the spatial dimension whose rows are cut */
    int64_t threads; /* number of threads to split for */
    bool activates;  /* each piece applies an activation to its result */
} aril__conv_job;

/* Numbers of parts. rows > 1 only when each sample is a part of its own. */
typedef struct aril__conv_split {
    int64_t batch, rows, channels;
    double cost; /* per thread, in multiplications */
} aril__conv_split;

/* Fills `to` with at most `most` splits, cheapest first, and returns how many. The uncut split is
 * always the last. */
int aril__conv_splits(const aril__conv_job *j, aril__conv_split *to, int max);

/* Number of rows of the result. */
int64_t aril__conv_rows(const aril__conv_job *j);

/* The channels of the result (for weights, of y) in part i of n: [*begin, *end); groups if there
 * are several. */
void aril__conv_channels(const aril__conv_job *j, int64_t i, int64_t n, int64_t *begin,
                         int64_t *end);

/* Numbers of multiplications, of weight elements, and of elements in one sample of x or y. */
double aril__conv_work(const aril__conv *d);
double aril__conv_weights(const aril__conv *d);
double aril__conv_image(const aril__conv *d, bool x);

#endif
