/* A write through a view, as an op: the base with the part that a view shows replaced. It is how
 * in-place changes of views enter the graph, and the gradient of views that leave elements out. */
#ifndef ARIL_OPS_VIEW_WRITE_H
#define ARIL_OPS_VIEW_WRITE_H

#include "ops/table/op.h"

/* The way from the base to the part: n views, the first of the base, each as the op's number and
 * the words of its attributes. */
#define VIEW_WRITE_ATTRS(A) A(view_write, I64, 1, n, 0, NULL) A(view_write, I64, 40, path, 0, NULL)
ATTRS(view_write, VIEW_WRITE_ATTRS)

/* The way of one view op and its attributes (NULL: none). */
struct view_write_attrs aril__view_write_attrs(const aril__op *view, const void *attrs);

/* Puts a view in front of the way: the base is now what that view was made of. */
aril_status aril__view_write_extend(struct view_write_attrs *a, const aril__op *view,
                                    const void *attrs);

/* base with the elements that view(base) shows replaced by `value`. */
aril_tensor *aril__view_write(aril_tensor *base, aril_tensor *value, const aril__op *view,
                              const void *attrs);

#endif
