/* Op ids and declarations for ops/linalg/ops.def. */
#ifndef ARIL_OPS_LINALG_OPS_H
#define ARIL_OPS_LINALG_OPS_H

#define ROOM     linalg
#define ROOM_OPS "ops/linalg/ops.def"
#include "ops/table/room.inc"

#endif
