/* Elementwise ops: their shared rules. The rows come from elementwise.def, the kernels from the
 * backends. */
#ifndef ARIL_OPS_ELEMENTWISE_H
#define ARIL_OPS_ELEMENTWISE_H

#include "ops/elementwise/formula.h"
#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_floor_div, aril__op_fmod, aril__op_pow, aril__op_remainder,
    aril__op_where;

/* Infers dtype and broadcast shape. */
aril_status aril__ew_infer(aril__call *c);

/* Gradients of any elementwise op, from its derivatives. */
void aril__ew_vjp(aril__grad *c);

/* Decomposes a gradient op into public ops. */
void aril__ew_decompose(aril__call *c, aril_tensor **out);

/* PyTorch's result type of some tensors: those with dimensions take precedence over 0-d ones, and
 * those over weak scalars. NULLs are skipped. */
aril_dtype aril__result_type(int n, aril_tensor *const *t);

/* A weak scalar; owned by the scope. */
aril_tensor *aril__scalar_f64(double v);

/* A constant of that dtype: a host number, which joins tensors of any device. */
aril_tensor *aril__constant(aril_number v, aril_dtype dtype);

/* g summed and cast to the shape and dtype of `like`, where they differ. */
aril_tensor *aril__undo_broadcast(aril_tensor *g, aril_tensor *like);

/* The gradient passed to the rule that this thread is running, if nobody reads it afterwards: the
 * rule may overwrite it. NULL otherwise. */
extern _Thread_local const aril_tensor *aril__last_use;

#endif
