/* Elementwise ops: their shared rules. The rows come from elementwise.def, the kernels from the
 * backends. */
#ifndef ARIL_OPS_ELEMENTWISE_H
#define ARIL_OPS_ELEMENTWISE_H

#include "ops/elementwise/formula.h"
#include "ops/table/op.h"

/* dtype and broadcast shape. */
aril_status aril__ew_infer(aril__call *c);

/* Gradients of any elementwise op, from its derivatives. */
void aril__ew_vjp(aril__grad *c);

/* A gradient op in public ops. */
void aril__ew_decompose(aril__call *c, aril_tensor **out);

/* PyTorch's result type of some tensors: those with dimensions decide before 0-d ones, and those
 * before weak scalars. NULLs are passed over. */
aril_dtype aril__result_type(int n, aril_tensor *const *t);

/* A weak scalar; owned by the scope. */
aril_tensor *aril__scalar_f64(double v);

/* g summed and cast to the shape and dtype of `like`, where they differ. */
aril_tensor *aril__undo_broadcast(aril_tensor *g, aril_tensor *like);

/* The gradient that the rule being run by this thread is given, and that nobody looks at
 * afterwards: the rule may write over it. NULL: there is none. */
extern _Thread_local const aril_tensor *aril__last_use;

#endif
