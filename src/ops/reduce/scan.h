/* Scans: results along axes that depend on all preceding elements. */
#ifndef ARIL_OPS_SCAN_H
#define ARIL_OPS_SCAN_H

#include "ops/table/op.h"

/* The scanned axes, as a mask, in logical order or (reverse) from the end; and the initial value of
 * linear_scan. */
#define SCAN_ATTRS(A)              \
    A(scan, I64, 1, mask, 0, NULL) \
    A(scan, I64, 1, reverse, 0, "reverse") A(scan, F64, 1, init, 0, NULL)
ATTRS(scan, SCAN_ATTRS)

/* The product of all elements before (or, if reverse, after) each one over the axes of the mask. */
aril_tensor *aril__prod_before(aril_tensor *x, int64_t mask, bool reverse);

#endif
