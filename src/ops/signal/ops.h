/* Op ids and declarations for ops/signal/ops.def. */
#ifndef ARIL_OPS_SIGNAL_OPS_H
#define ARIL_OPS_SIGNAL_OPS_H

#define ROOM     signal
#define ROOM_OPS "ops/signal/ops.def"
#include "ops/table/room.inc"

#endif
