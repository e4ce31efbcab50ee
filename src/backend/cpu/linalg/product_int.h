/* Matrix products of integers. */
#ifndef ARIL_CPU_PRODUCT_INT_H
#define ARIL_CPU_PRODUCT_INT_H

#include "ops/table/op.h"

aril_status aril__cpu_product_int(aril__run *r);

#endif
