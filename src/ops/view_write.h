/* A write through a view, as an op: the base with the part that a view shows replaced. It is how
 * in-place changes of views enter the graph, and the gradient of views that leave elements out. */
#ifndef ARIL_OPS_VIEW_WRITE_H
#define ARIL_OPS_VIEW_WRITE_H

#include "ops/op.h"

#define VIEW_WRITE_ATTRS(A)                                                                        \
    A(view_write, I64, 1, view, 0, NULL) A(view_write, I64, 20, attrs, 0, NULL)
ATTRS(view_write, VIEW_WRITE_ATTRS)

/* Names a view op and its attributes (NULL: none). */
struct view_write_attrs aril__view_write_attrs(const aril__op *view, const void *attrs);

/* base with the elements that view(base) shows replaced by `value`. */
aril_tensor *aril__view_write(aril_tensor *base, aril_tensor *value, const aril__op *view,
                              const void *attrs);

#endif
