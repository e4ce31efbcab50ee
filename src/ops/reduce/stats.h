/* Statistics over axes. */
#ifndef ARIL_OPS_STATS_H
#define ARIL_OPS_STATS_H

#include "ops/table/op.h"

/* A reduction's attributes plus a number: the order of a norm, or the correction of a variance. */
#define STATS_ATTRS(A)              \
    A(stats, I64, 1, mask, 0, NULL) \
    A(stats, I64, 1, keep, 0, "keepdims") A(stats, F64, 1, p, 0, NULL)
ATTRS(stats, STATS_ATTRS)

#endif
