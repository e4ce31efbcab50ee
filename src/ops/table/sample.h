/* Samples: inputs on which the tests run every op.
 *
 * An input is a word of text:
 *     "[2,3]"    normal values of the dtype under test
 *     "+[2,3]"   between 0.2 and 3           "u[2,3]"  between -0.9 and 0.9
 *     "p[2,3]"   between 0.1 and 0.9         "1[2,3]"  between 1.1 and 4
 *     "z[2,3]"   away from 0                 "d[2,3]"  all different, well apart (for max, sort)
 *     "i5[4]"    indices 0..4, i64           "b[2,3]"  bool
 *     "k[2,3]"   away from 0, small integers and their halves (where derivatives jump)
 *     "s[3,3]"   symmetric, positive definite (the last two dimensions)
 *     "key"      a key for a random op       "-"       an absent optional input
 * "![2,3]", or "!+[3]": the gradient of that input is not checked. If BATCH is set, a size written
 * as N (its value is 2) is a batch size, which the tests vary; without an N, the batch size is the
 * first size of the first input, and of other inputs that begin with the same size. */
#ifndef ARIL_OPS_SAMPLE_H
#define ARIL_OPS_SAMPLE_H

#include "ops/table/op.h"

enum {
    SAMPLE_BATCH = 1,     /* the batch size may vary: tests shape rule and trace */
    SAMPLE_NO_GRAD = 2,   /* do not check gradients (values outside the smooth domain) */
    SAMPLE_NO_SECOND = 4, /* do not check second gradients */
    SAMPLE_NO_LOW = 8,    /* skip f16 and bf16 (ill-conditioned) */
    SAMPLE_FIRST = 16,    /* only the first result has a gradient */
};

/* Ends a list of samples. */
#define SAMPLE_END     \
    {                  \
        .in = { NULL } \
    }

struct aril__sample {
    const char *in[20]; /* NULL ends */
    const void *attrs;  /* NULL: none */
    unsigned flags;
    double tol; /* relative tolerance of gradient checks; 0: the test driver's default */
};

#endif
