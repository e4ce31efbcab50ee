/* x[...] as in NumPy: integers, slices and new axes create a view; index tensors and masks gather
 * from it. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/index/indexing.h"
#include "ops/index/index.h"

#include <string.h>

/* The resolved items: a view, and index tensors for some of its axes. */
typedef struct subscript {
    aril_tensor *view;
    int64_t mask;
    int n;
    aril_tensor *index[ARIL_MAX_DIMS];
} subscript;

static bool is_mask(const aril_index_item *i)
{
    return i->kind == ARIL_ITEM_BY && i->by->dtype == ARIL_BOOL;
}

/* Dimensions of the tensor that an item consumes. */
static int uses(const aril_index_item *i)
{
    return i->kind == ARIL_ITEM_NEW || i->kind == ARIL_ITEM_DOTS ? 0 : is_mask(i) ? i->by->ndim : 1;
}

static aril_status check_items(const char *op, const aril_tensor *x, aril_items items, int *used)
{
    int dots = 0;
    *used = 0;
    if (items.n < 0 || (items.n && !items.at))
        return aril__fail(ARIL_ERR_ARG, "%s: %d items", op, items.n);
    for (int k = 0; k < items.n; k++) {
        const aril_index_item *i = &items.at[k];
        if (i->kind < ARIL_ITEM_AT || i->kind > ARIL_ITEM_BY)
            return aril__fail(ARIL_ERR_ARG, "%s: item %d has an unknown kind", op, k);
        if (i->kind == ARIL_ITEM_BY && !i->by)
            return aril__fail(ARIL_ERR_ARG, "%s: the index tensor in item %d is NULL", op, k);
        if (i->kind == ARIL_ITEM_BY && i->by->flags & ARIL__POISON)
            return aril__refuse_poison(op, k + 1, i->by);
        if (i->kind == ARIL_ITEM_BY && !is_mask(i) && aril__check_index_dtype(op, i->by) < 0)
            return ARIL_ERR_DTYPE;
        if (i->kind == ARIL_ITEM_DOTS && dots++)
            return aril__fail(ARIL_ERR_INDEX, "%s: ARIL_DOTS may appear only once", op);
        if (i->kind == ARIL_ITEM_RANGE && i->step == 0)
            return aril__fail(ARIL_ERR_ARG, "%s: the step of item %d must not be 0", op, k);
        *used += uses(i);
    }
    char text[ARIL__SHAPE_TEXT];
    if (*used > x->ndim)
        return aril__fail(ARIL_ERR_INDEX,
                          "%s: too many items: they index %d dimensions, the tensor %s has %d", op,
                          *used, aril__text(text, x), x->ndim);
    return ARIL_OK;
}

/* Indices where the mask is true, one index tensor for each of its dimensions. */
static aril_status add_mask(const char *op, subscript *s, int axis, aril_tensor *mask)
{
    if (mask->ndim == 0) { /* keeps everything or nothing, along a new axis */
        s->view = aril_unsqueeze(s->view, axis);
        mask = aril_unsqueeze(mask, 0);
        if (aril__is_poison(s->view)) return aril_tensor_status(s->view);
    }
    for (int d = 0; d < mask->ndim; d++) {
        int64_t have = s->view->dim[axis + d], want = mask->dim[d];
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        if (have >= 0 && want >= 0 && have != want)
            return aril__fail(ARIL_ERR_SHAPE, "%s: mask %s does not match %s from axis %d", op,
                              aril__text(a, mask), aril__text(b, s->view), axis);
    }
    aril_tensor *where = aril_nonzero(mask);
    for (int d = 0; d < mask->ndim; d++) {
        s->mask |= 1 << (axis + d);
        s->index[s->n++] = aril_select(where, 1, d);
    }
    return aril_tensor_status(where);
}

static aril_status resolve(const char *op, aril_tensor *x, aril_items items, subscript *s)
{
    int used, axis = 0;
    aril_status status = check_items(op, x, items, &used);
    *s = (subscript){ .view = x };
    for (int k = 0; k < items.n && status == ARIL_OK; k++) {
        const aril_index_item *i = &items.at[k];
        int64_t size = axis < s->view->ndim ? s->view->dim[axis] : 0;
        switch (i->kind) {
        case ARIL_ITEM_AT:
            if (size >= 0 && (i->start < -size || i->start >= size))
                return aril__fail(ARIL_ERR_INDEX,
                                  "%s: index %lld is out of range for axis %d of size %lld", op,
                                  (long long)i->start, axis, (long long)size);
            s->view = aril_select(s->view, axis, i->start);
            break;
        case ARIL_ITEM_RANGE:
            if (i->start != 0 || i->stop != ARIL_END || i->step != 1)
                s->view = aril_slice(s->view, axis, i->start, i->stop, i->step);
            axis++;
            break;
        case ARIL_ITEM_DOTS: axis += x->ndim - used; break;
        case ARIL_ITEM_NEW: s->view = aril_unsqueeze(s->view, axis++); break;
        default:
            if (is_mask(i)) {
                status = add_mask(op, s, axis, i->by);
                axis += i->by->ndim ? i->by->ndim : 1;
            } else {
                s->mask |= 1 << axis++;
                s->index[s->n++] = i->by;
            }
        }
        if (status == ARIL_OK) status = aril_tensor_status(s->view);
    }
    return status;
}

aril_tensor *aril_index(aril_tensor *x, aril_items items)
{
    if (!x) return aril__null_tensor("index");
    if (aril__is_poison(x)) return aril__pass_on(x);
    ARIL_SCOPE;
    subscript s;
    if (resolve("index", x, items, &s) < 0) return aril_escape(aril__poison());
    if (s.n == 0) return aril_escape(s.view);
    struct index_attrs a = { { s.mask } };
    aril_tensor *in[1 + ARIL_MAX_DIMS] = { s.view };
    memcpy(in + 1, s.index, sizeof s.index);
    return aril_escape(aril__apply1(&aril__op_index, s.n + 1, in, &a));
}

/* Writes to where the subscript points, in place or (if no view was needed) to a new tensor. */
static aril_tensor *put(const subscript *s, aril_tensor *value, bool accumulate, bool in_place)
{
    aril_tensor *to = s->view;
    value = aril_cast(aril__settle(value, to), (aril_dtype)to->dtype);
    if (s->n == 0) return accumulate ? aril_add_(to, value) : aril_copy_(to, value);
    const aril__op *op = accumulate ? &aril__op_index_put_add : &aril__op_index_put;
    struct index_attrs a = { { s->mask } };
    aril_tensor *in[2 + ARIL_MAX_DIMS] = { to, value };
    memcpy(in + 2, s->index, sizeof s->index);
    return in_place ? aril__apply_to(to, op, s->n + 2, in, &a) : aril__apply1(op, s->n + 2, in, &a);
}

static aril_tensor *index_put(aril_tensor *x, aril_items items, aril_tensor *value, bool accumulate,
                              bool in_place)
{
    if (!x || !value) return aril__null_tensor("index_put");
    if (aril__is_poison(x) || aril__is_poison(value))
        return aril__pass_on(x->flags & ARIL__POISON ? x : value);
    ARIL_SCOPE;
    subscript s;
    aril_tensor *to = x;
    if (resolve("index_put", to, items, &s) < 0) return aril_escape(aril__poison());
    bool full = s.view == x && s.n > 0;
    if (!in_place && !full) { /* write through a view of a copy */
        to = aril_copy(x);
        if (aril_tensor_status(to) < 0 || resolve("index_put", to, items, &s) < 0)
            return aril_escape(aril__poison());
    }
    aril_tensor *written = put(&s, value, accumulate, in_place || !full);
    if (aril__is_poison(written)) return aril_escape(aril__pass_on(written));
    return aril_escape(in_place || !full ? to : written);
}

aril_tensor *aril_index_put(aril_tensor *x, aril_items items, aril_tensor *value, bool accumulate)
{
    return index_put(x, items, value, accumulate, false);
}

aril_tensor *aril_index_put_(aril_tensor *x, aril_items items, aril_tensor *value, bool accumulate)
{
    return index_put(x, items, value, accumulate, true);
}
