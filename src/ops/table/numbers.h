/* Op numbers. Each room (folder) of src/ops has its own range, so that adding an op renumbers, and
 * recompiles, nothing outside its room. */
#ifndef ARIL_OPS_TABLE_NUMBERS_H
#define ARIL_OPS_TABLE_NUMBERS_H

typedef struct aril__op aril__op;

enum {
    ARIL__ROOM_ELEMENTWISE_SIZE = 512,
    ARIL__ROOM_SIZE = 64,

    ARIL__ROOM_elementwise = 0,
    ARIL__ROOM_shape = ARIL__ROOM_ELEMENTWISE_SIZE,
    ARIL__ROOM_reduce = ARIL__ROOM_ELEMENTWISE_SIZE + ARIL__ROOM_SIZE,
    ARIL__ROOM_index = ARIL__ROOM_ELEMENTWISE_SIZE + 2 * ARIL__ROOM_SIZE,
    ARIL__ROOM_vision = ARIL__ROOM_ELEMENTWISE_SIZE + 3 * ARIL__ROOM_SIZE,
    ARIL__ROOM_norm = ARIL__ROOM_ELEMENTWISE_SIZE + 4 * ARIL__ROOM_SIZE,
    ARIL__ROOM_sequence = ARIL__ROOM_ELEMENTWISE_SIZE + 5 * ARIL__ROOM_SIZE,
    ARIL__ROOM_linalg = ARIL__ROOM_ELEMENTWISE_SIZE + 6 * ARIL__ROOM_SIZE,
    ARIL__ROOM_signal = ARIL__ROOM_ELEMENTWISE_SIZE + 7 * ARIL__ROOM_SIZE,
    ARIL__ROOM_loss = ARIL__ROOM_ELEMENTWISE_SIZE + 8 * ARIL__ROOM_SIZE,
    ARIL__ROOM_random = ARIL__ROOM_ELEMENTWISE_SIZE + 9 * ARIL__ROOM_SIZE,
    ARIL__ROOM_update = ARIL__ROOM_ELEMENTWISE_SIZE + 10 * ARIL__ROOM_SIZE,
    ARIL__OP_COUNT = ARIL__ROOM_ELEMENTWISE_SIZE + 11 * ARIL__ROOM_SIZE
};

#endif
