/* Op ids and declarations for ops/loss/ops.def. */
#ifndef ARIL_OPS_LOSS_OPS_H
#define ARIL_OPS_LOSS_OPS_H

#define ROOM     loss
#define ROOM_OPS "ops/loss/ops.def"
#include "ops/table/room.inc"

#endif
