/* Attributes of searches. */
#ifndef ARIL_OPS_SEARCH_H
#define ARIL_OPS_SEARCH_H

#include "ops/op.h"

#define SEARCHSORTED_ATTRS(A) A(searchsorted, I64, 1, right, 0, NULL)
ATTRS(searchsorted, SEARCHSORTED_ATTRS)

#endif
