/* Attention: attributes. */
#ifndef ARIL_OPS_ATTENTION_H
#define ARIL_OPS_ATTENTION_H

#include "ops/op.h"

/* scale 0: one over the root of E. causal: query i sees keys 0 .. i. */
#define ATTENTION_ATTRS(A) \
    A(attention, F64, 1, scale, 0, "scale") A(attention, I64, 1, causal, 0, "is_causal")
ATTRS(attention, ATTENTION_ATTRS)

#endif
