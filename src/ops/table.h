/* Numbers and declarations of all ops, from table.def and elementwise.def. */
#ifndef ARIL_OPS_TABLE_H
#define ARIL_OPS_TABLE_H

typedef struct aril__op aril__op;

enum {
#define EW1(name, ...)  ARIL__OP_##name, ARIL__OP_##name##_grad,
#define EW1N(name, ...) ARIL__OP_##name,
#define EW2N(name, ...) ARIL__OP_##name,
#define EW2(name, ...)  ARIL__OP_##name, ARIL__OP_##name##_grad_a, ARIL__OP_##name##_grad_b,
#define EW3(name, ...) \
    ARIL__OP_##name, ARIL__OP_##name##_grad_a, ARIL__OP_##name##_grad_b, ARIL__OP_##name##_grad_c,
#include "ops/elementwise.def"
#define X(name) ARIL__OP_##name,
#include "ops/table.def"
#undef X
    ARIL__OP_COUNT
};

#define EW1(name, ...)  extern const aril__op aril__op_##name, aril__op_##name##_grad;
#define EW1N(name, ...) extern const aril__op aril__op_##name;
#define EW2N(name, ...) extern const aril__op aril__op_##name;
#define EW2(name, ...) \
    extern const aril__op aril__op_##name, aril__op_##name##_grad_a, aril__op_##name##_grad_b;
#define EW3(name, ...)                                                                         \
    extern const aril__op aril__op_##name, aril__op_##name##_grad_a, aril__op_##name##_grad_b, \
        aril__op_##name##_grad_c;
#include "ops/elementwise.def"
#define X(name) extern const aril__op aril__op_##name;
#include "ops/table.def"
#undef X

#endif
