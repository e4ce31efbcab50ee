#include "ops/op.h"

const aril__op *const aril__ops[] = {
#define EW1(name, ...)  &aril__op_##name, &aril__op_##name##_grad,
#define EW1N(name, ...) &aril__op_##name,
#define EW2(name, ...)  &aril__op_##name, &aril__op_##name##_grad_a, &aril__op_##name##_grad_b,
#define EW2N(name, ...) &aril__op_##name,
#define EW3(name, ...)                                                      \
    &aril__op_##name, &aril__op_##name##_grad_a, &aril__op_##name##_grad_b, \
        &aril__op_##name##_grad_c,
#include "ops/elementwise.def"
#define X(name) &aril__op_##name,
#include "ops/table.def"
#undef X
};
const int aril__n_ops = sizeof aril__ops / sizeof *aril__ops;
