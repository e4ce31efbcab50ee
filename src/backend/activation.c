#include "backend/activation.h"

#include "core/vector/vecmath.h"

#define TEMPLATE "backend/activation.inc"
#include "core/vector/each_target.inc"

void aril__activation_run(aril_dtype type, int64_t act, int64_t n, void *y)
{
    ARIL__PICK(activate, type == ARIL_F64)(act, n, y);
}

void aril__activation_grad_run(aril_dtype type, int64_t act, int64_t n, void *g, const void *y)
{
    ARIL__PICK(activate_grad, type == ARIL_F64)(act, n, g, y);
}
