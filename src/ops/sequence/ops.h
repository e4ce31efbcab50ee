/* Op ids and declarations for ops/sequence/ops.def. */
#ifndef ARIL_OPS_SEQUENCE_OPS_H
#define ARIL_OPS_SEQUENCE_OPS_H

#define ROOM     sequence
#define ROOM_OPS "ops/sequence/ops.def"
#include "ops/table/room.inc"

#endif
