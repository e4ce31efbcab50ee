/* Op ids and declarations for ops/reduce/ops.def. */
#ifndef ARIL_OPS_REDUCE_OPS_H
#define ARIL_OPS_REDUCE_OPS_H

#define ROOM     reduce
#define ROOM_OPS "ops/reduce/ops.def"
#include "ops/table/room.inc"

#endif
