/* Op ids and declarations for ops/norm/ops.def. */
#ifndef ARIL_OPS_NORM_OPS_H
#define ARIL_OPS_NORM_OPS_H

#define ROOM     norm
#define ROOM_OPS "ops/norm/ops.def"
#include "ops/table/room.inc"

#endif
