/* Op ids and declarations for ops/index/ops.def. */
#ifndef ARIL_OPS_INDEX_OPS_H
#define ARIL_OPS_INDEX_OPS_H

#define ROOM     index
#define ROOM_OPS "ops/index/ops.def"
#include "ops/table/room.inc"

#endif
