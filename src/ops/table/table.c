#include "ops/table/op.h"

#include "ops/table/numbers.h"

_Static_assert((int)ARIL__OP_COUNT <= (int)ARIL__MAX_OPS, "the table is full: raise ARIL__MAX_OPS");

#define X(name) extern const aril__op aril__op_##name;
#include "ops/table/all.def"

const aril__op *const aril__ops[] = {
#define X(name) &aril__op_##name,
#include "ops/table/all.def"
};
const int aril__n_ops = ARIL__OP_COUNT;

/* Rows refer to their numbers here, so that only this file is compiled again when they change. */
#define X(name) const uint16_t aril__number_##name = ARIL__OP_##name;
#include "ops/table/all.def"

const aril__op *aril__op_numbered(int number)
{
    return number >= 0 && number < aril__n_ops ? aril__ops[number] : NULL;
}
