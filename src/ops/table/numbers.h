/* Numbers of ops as constants: their positions in the table. Every new op recompiles the files that
 * include this; others use aril__op_number. */
#ifndef ARIL_OPS_TABLE_NUMBERS_H
#define ARIL_OPS_TABLE_NUMBERS_H

enum {
#define X(name) ARIL__OP_##name,
#include "ops/table/all.def"
    ARIL__OP_COUNT
};

#endif
