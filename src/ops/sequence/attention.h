/* Attention: attributes. */
#ifndef ARIL_OPS_ATTENTION_H
#define ARIL_OPS_ATTENTION_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_attention, aril__op_attention_grad;

/* scale 0: 1 / sqrt(E). causal: query i sees keys 0 .. i. */
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

/* What a kernel works on: contiguous q [batch,l,e], k [batch,s,e], v [batch,s,ev]. */
typedef struct aril__attention {
    int64_t batch, l, s, e, ev;
    double scale;
    bool causal;
    const void *q, *k, *v, *g, *g_lse;
    void *y, *lse, *delta, *dq, *dk, *dv;
    const unsigned char *allowed; /* a boolean mask, or */
    const void *added;            /* an additive mask; or neither */
    int batch_ndim;
    int64_t batch_dim[ARIL_MAX_DIMS], mask_step[ARIL_MAX_DIMS], mask_row, mask_col;
} aril__attention;

/* Fills the job from the inputs, including the gradient's; the caller sets the result pointers. */
aril__attention aril__attention_of(const aril__run *r);

/* The offset of the mask of batch b, in elements. */
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
