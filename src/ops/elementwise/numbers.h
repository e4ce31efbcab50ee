/* Numbers of formulas, by which kernels are found: in the order of elementwise.def, each op before
 * its gradients. */
#ifndef ARIL_OPS_ELEMENTWISE_NUMBERS_H
#define ARIL_OPS_ELEMENTWISE_NUMBERS_H

#define NUMBER(name) ARIL__FORMULA_##name,
enum {
#define EW1(name, ...)  NUMBER(name) NUMBER(name##_grad)
#define EW1N(name, ...) NUMBER(name)
#define EW2(name, ...)  NUMBER(name) NUMBER(name##_grad_a) NUMBER(name##_grad_b)
#define EW2N(name, ...) NUMBER(name)
#define EW3(name, ...) \
    NUMBER(name) NUMBER(name##_grad_a) NUMBER(name##_grad_b) NUMBER(name##_grad_c)
#include "ops/elementwise/elementwise.def"
    ARIL__FORMULA_COUNT
};
#undef NUMBER

#endif
