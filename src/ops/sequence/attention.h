/* Attention: attributes. */
#ifndef ARIL_OPS_ATTENTION_H
#define ARIL_OPS_ATTENTION_H

#include "ops/table/op.h"

/* scale 0: one over the root of E. causal: query i sees keys 0 .. i. */
#define ATTENTION_ATTRS(A) \
    A(attention, F64, 1, scale, 0, "scale") A(attention, I64, 1, causal, 0, "is_causal")
ATTRS(attention, ATTENTION_ATTRS)

/* Inputs of attention (the first four) and of its gradient. */
enum {
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_MASK,
    ATTENTION_Y,
    ATTENTION_LSE,
    ATTENTION_G,
    ATTENTION_G_LSE,
    ATTENTION_INPUTS
};

/* What a kernel works on: dense q [batch,l,e], k [batch,s,e], v [batch,s,ev]. */
typedef struct aril__attention {
    int64_t batch, l, s, e, ev;
    double scale;
    bool causal;
    const void *q, *k, *v, *g, *g_lse;
    void *y, *lse, *delta, *dq, *dk, *dv;
    const unsigned char *allowed; /* a mask of bools, or */
    const void *added;            /* of numbers; or neither */
    int batch_ndim;
    int64_t batch_dim[ARIL_MAX_DIMS], mask_step[ARIL_MAX_DIMS], mask_row, mask_col;
} aril__attention;

/* From the inputs and, for the gradient, from the others; the results' addresses are the
 * caller's. */
aril__attention aril__attention_of(const aril__run *r);

/* Where the mask of batch b begins, in elements. */
static inline int64_t aril__attention_mask_at(const aril__attention *j, int64_t b)
{
    int64_t at = 0;
    for (int d = j->batch_ndim - 1; d >= 0; d--) {
        at += b % j->batch_dim[d] * j->mask_step[d];
        b /= j->batch_dim[d];
    }
    return at;
}

#endif
