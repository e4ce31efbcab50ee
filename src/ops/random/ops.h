/* Op ids and declarations for ops/random/ops.def. */
#ifndef ARIL_OPS_RANDOM_OPS_H
#define ARIL_OPS_RANDOM_OPS_H

#define ROOM     random
#define ROOM_OPS "ops/random/ops.def"
#include "ops/table/room.inc"

#endif
