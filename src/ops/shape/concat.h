/* Concatenating tensors along an axis. */
#ifndef ARIL_OPS_CONCAT_H
#define ARIL_OPS_CONCAT_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_cat;

#define CAT_ATTRS(A) A(cat, I64, 1, axis, 0, "axis")
ATTRS(cat, CAT_ATTRS)

/* Which part of an axis, where n is the size of another tensor along it: the first n, the last n,
 * all but the first n. */
enum { ARIL__FIRST = 0, ARIL__LAST = 1, ARIL__AFTER = 2 };
#define NARROW_LIKE_ATTRS(A) \
    A(narrow_like, I64, 1, axis, 0, NULL) A(narrow_like, I64, 1, part, 0, NULL)
ATTRS(narrow_like, NARROW_LIKE_ATTRS)

/* Repeats an axis as a whole (or, with `each`, each of its elements) `times` times. */
#define REPEAT_ATTRS(A)              \
    A(repeat, I64, 1, axis, 0, NULL) \
    A(repeat, I64, 1, times, 1, NULL) A(repeat, I64, 1, each, 0, NULL)
ATTRS(repeat, REPEAT_ATTRS)

/* A header over contiguous t as [outer, times, n, inner], or with `each` as [outer, n, times,
 * inner], where the axis has n elements before it is repeated. */
aril_tensor aril__repeat_blocks(const aril_tensor *t, const struct repeat_attrs *a, int64_t n,
                                int64_t times);

#endif
