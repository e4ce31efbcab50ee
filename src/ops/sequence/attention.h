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

#endif
