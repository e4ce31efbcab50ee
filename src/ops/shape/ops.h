/* Op numbers and declarations for ops/shape/ops.def. */
#ifndef ARIL_OPS_SHAPE_OPS_H
#define ARIL_OPS_SHAPE_OPS_H

#define ROOM     shape
#define ROOM_OPS "ops/shape/ops.def"
#include "ops/table/room.inc"

#endif
