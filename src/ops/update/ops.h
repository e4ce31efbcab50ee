/* Op ids and declarations for ops/update/ops.def. */
#ifndef ARIL_OPS_UPDATE_OPS_H
#define ARIL_OPS_UPDATE_OPS_H

#define ROOM     update
#define ROOM_OPS "ops/update/ops.def"
#include "ops/table/room.inc"

#endif
