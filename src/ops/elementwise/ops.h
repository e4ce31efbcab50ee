/* Op numbers and declarations for elementwise.def, including gradient ops. */
#ifndef ARIL_OPS_ELEMENTWISE_OPS_H
#define ARIL_OPS_ELEMENTWISE_OPS_H

#include "ops/table/numbers.h"

enum {
    ARIL__BEFORE_elementwise = ARIL__ROOM_elementwise - 1,
#define EW1(name, ...)  ARIL__OP_##name, ARIL__OP_##name##_grad,
#define EW1N(name, ...) ARIL__OP_##name,
#define EW2N(name, ...) ARIL__OP_##name,
#define EW2(name, ...)  ARIL__OP_##name, ARIL__OP_##name##_grad_a, ARIL__OP_##name##_grad_b,
#define EW3(name, ...) \
    ARIL__OP_##name, ARIL__OP_##name##_grad_a, ARIL__OP_##name##_grad_b, ARIL__OP_##name##_grad_c,
#include "ops/elementwise/elementwise.def"
    ARIL__END_elementwise
};
_Static_assert((int)ARIL__END_elementwise <= (int)ARIL__ROOM_ELEMENTWISE_SIZE,
               "the room is full: raise ARIL__ROOM_ELEMENTWISE_SIZE");

#define EW1(name, ...)  extern const aril__op aril__op_##name, aril__op_##name##_grad;
#define EW1N(name, ...) extern const aril__op aril__op_##name;
#define EW2N(name, ...) extern const aril__op aril__op_##name;
#define EW2(name, ...) \
    extern const aril__op aril__op_##name, aril__op_##name##_grad_a, aril__op_##name##_grad_b;
#define EW3(name, ...)                                                                         \
    extern const aril__op aril__op_##name, aril__op_##name##_grad_a, aril__op_##name##_grad_b, \
        aril__op_##name##_grad_c;
#include "ops/elementwise/elementwise.def"

#endif
