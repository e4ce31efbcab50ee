/* Scans: results along axes that depend on all elements before. */
#ifndef ARIL_OPS_SCAN_H
#define ARIL_OPS_SCAN_H

#include "ops/table/op.h"

/* The axes scanned, as a mask, in their logical order or (reverse) from the end; and what
 * linear_scan begins with. */
#define SCAN_ATTRS(A)              \
    A(scan, I64, 1, mask, 0, NULL) \
    A(scan, I64, 1, reverse, 0, "reverse") A(scan, F64, 1, init, 0, NULL)
ATTRS(scan, SCAN_ATTRS)

/* The products of all elements before (or, reverse, behind) each one over the axes of the mask. */
aril_tensor *aril__prod_before(aril_tensor *x, int64_t mask, bool reverse);

#endif
