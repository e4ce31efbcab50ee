/* Every op of the table, by name: aril__op_add ... */
#ifndef ARIL_TEST_OPS_H
#define ARIL_TEST_OPS_H

#include "ops/table/op.h"

#define X(name) extern const aril__op aril__op_##name;
#include "ops/table/all.def"

#endif
