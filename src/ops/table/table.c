#include "ops/table/op.h"

#include "ops/elementwise/ops.h"
#include "ops/shape/ops.h"
#include "ops/reduce/ops.h"
#include "ops/index/ops.h"
#include "ops/vision/ops.h"
#include "ops/norm/ops.h"
#include "ops/sequence/ops.h"
#include "ops/linalg/ops.h"
#include "ops/signal/ops.h"
#include "ops/loss/ops.h"
#include "ops/random/ops.h"
#include "ops/update/ops.h"

const aril__op *const aril__ops[] = {
#define X(name)         &aril__op_##name,
#define EW1(name, ...)  X(name) X(name##_grad)
#define EW1N(name, ...) X(name)
#define EW2(name, ...)  X(name) X(name##_grad_a) X(name##_grad_b)
#define EW2N(name, ...) X(name)
#define EW3(name, ...)  X(name) X(name##_grad_a) X(name##_grad_b) X(name##_grad_c)
#include "ops/elementwise/elementwise.def"
#include "ops/shape/ops.def"
#include "ops/reduce/ops.def"
#include "ops/index/ops.def"
#include "ops/vision/ops.def"
#include "ops/norm/ops.def"
#include "ops/sequence/ops.def"
#include "ops/linalg/ops.def"
#include "ops/signal/ops.def"
#include "ops/loss/ops.def"
#include "ops/random/ops.def"
#include "ops/update/ops.def"
#undef X
};
const int aril__n_ops = sizeof aril__ops / sizeof *aril__ops;

static const aril__op *const by_number[ARIL__OP_COUNT] = {
#define X(name)         [ARIL__OP_##name] = &aril__op_##name,
#define EW1(name, ...)  X(name) X(name##_grad)
#define EW1N(name, ...) X(name)
#define EW2(name, ...)  X(name) X(name##_grad_a) X(name##_grad_b)
#define EW2N(name, ...) X(name)
#define EW3(name, ...)  X(name) X(name##_grad_a) X(name##_grad_b) X(name##_grad_c)
#include "ops/elementwise/elementwise.def"
#include "ops/shape/ops.def"
#include "ops/reduce/ops.def"
#include "ops/index/ops.def"
#include "ops/vision/ops.def"
#include "ops/norm/ops.def"
#include "ops/sequence/ops.def"
#include "ops/linalg/ops.def"
#include "ops/signal/ops.def"
#include "ops/loss/ops.def"
#include "ops/random/ops.def"
#include "ops/update/ops.def"
#undef X
};

const aril__op *aril__op_numbered(int id)
{
    return id >= 0 && id < ARIL__OP_COUNT ? by_number[id] : NULL;
}
