/* Op ids and declarations for ops/vision/ops.def. */
#ifndef ARIL_OPS_VISION_OPS_H
#define ARIL_OPS_VISION_OPS_H

#define ROOM     vision
#define ROOM_OPS "ops/vision/ops.def"
#include "ops/table/room.inc"

#endif
