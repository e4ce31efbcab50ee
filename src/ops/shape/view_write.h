/* A write through a view, as an op: the base with the part that a view covers replaced. It records
 * in-place changes of views in the graph, and is the gradient of views that cover only part of
 * their base. */
#ifndef ARIL_OPS_VIEW_WRITE_H
#define ARIL_OPS_VIEW_WRITE_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_view_write;

/* The path from the base to the part: n views, starting at the base, each stored as the op number
 * and the words of its attributes. */
#define VIEW_WRITE_ATTRS(A) A(view_write, I64, 1, n, 0, NULL) A(view_write, I64, 40, path, 0, NULL)
ATTRS(view_write, VIEW_WRITE_ATTRS)

/* The path of a single view op with its attributes (NULL: none). */
struct view_write_attrs aril__view_write_attrs(const aril__op *view, const void *attrs);

/* Prepends a view to the path: the base is then the base of that view. */
aril_status aril__view_write_extend(struct view_write_attrs *a, const aril__op *view,
                                    const void *attrs);

/* base with the elements covered by view(base) replaced by `value`. */
aril_tensor *aril__view_write(aril_tensor *base, aril_tensor *value, const aril__op *view,
                              const void *attrs);

/* The gradient of a tensor of which n views are used that share no elements, and of nothing else:
 * the gradient of each view in its part, zeros elsewhere. */
aril_tensor *aril__parts_written(int n, const aril__grad *calls);

#endif
