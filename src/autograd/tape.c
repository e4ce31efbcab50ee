/* Recording: what apply does when an input requires a gradient. */
#include "autograd/node.h"

#include "core/ended.h"
#include "core/source_location.h"
#include "ops/elementwise/elementwise.h"
#include "ops/shape/view_write.h"
#include "ops/table/symbolic.h"

#include <string.h>

enum { MANY = 7 }; /* in masks, bits 0..6 are inputs 0..6, and bit 7 is all later ones */

static bool wants_grad(const aril_tensor *t)
{
    return t && t->node && aril__is_float((aril_dtype)t->dtype);
}

/* Is the gradient of input i needed? None flows through shape-only inputs. */
static bool input_wants(const aril__op *op, int i, const aril_tensor *t)
{
    return wants_grad(t) && !(i < 31 && op->shape_only >> i & 1);
}

static bool differs(const aril_tensor *a, const aril_tensor *b)
{
    return a->dtype != b->dtype || !aril__same_dims(a->ndim, a->dim, b->ndim, b->dim);
}

/* A second header over the same memory with the same node, and no view. */
static aril_tensor *alias(aril__thread *th, const aril_tensor *t)
{
    aril_tensor *a = aril__tensor_header_like(th, t, (aril_dtype)t->dtype);
    if (aril__unlikely(!a)) return NULL;
    a->flags = t->flags & (uint16_t)~ARIL__HELD;
    a->node_out = t->node_out;
    a->storage = t->storage;
    a->offset = t->offset;
    a->node = t->node ? aril__node_keep(t->node) : NULL;
    if (a->storage) atomic_fetch_add_explicit(&a->storage->refs, 1, memory_order_relaxed);
    return a;
}

aril_status aril__save(aril__thread *th, aril__saved *s, aril__saved_kind kind, int index,
                       aril_tensor *t)
{
    s->kind = (uint8_t)kind;
    s->index = (uint16_t)index;
    s->version = aril__version(t);
    if (kind == ARIL__SAVED_IN) {
        /* A tensor that is written to later gets bound to a later node, which would form a
         * reference cycle with this one: so save a new header bound to the current node. Leaves are
         * never rebound, and a trace identifies tensors by their headers. */
        bool as_is = (t->node && t->node->flags & ARIL__NODE_LEAF) || th->tracer ||
                     t->flags & (ARIL__SYMBOLIC | ARIL__IMMORTAL);
        s->tensor = as_is ? aril__tensor_keep(t) : alias(th, t);
    } else if (kind != ARIL__SAVED_OUT) {
        /* In a trace the graph must know which value the shape belongs to. */
        bool as_is = t->flags & (ARIL__SYMBOLIC | ARIL__SHAPE_ONLY);
        s->tensor = as_is ? aril__tensor_keep(t) : aril__tensor_shape_only(th, t);
    } else {
        s->tensor = aril__tensor_detached(th, t);
    }
    return s->tensor ? ARIL_OK : ARIL_ERR_MEMORY;
}

/* Counts the values to save, and saves them into `n` unless it is NULL. -1 when out of memory. */
static int save_all(aril__thread *th, aril__node *n, uint32_t mask, int n_in,
                    aril_tensor *const *in, int n_out, aril_tensor *const *out)
{
    int count = 0;
    for (int i = 0; i < n_in + n_out; i++) {
        bool is_out = i >= n_in;
        int index = is_out ? i - n_in : i, bit = index < MANY ? index : MANY;
        aril_tensor *t = is_out ? out[index] : in[index];
        bool value = mask & (is_out ? OUT(bit) : IN(bit));
        bool shape = mask & (is_out ? LIKE_OUT(bit) : LIKE(bit));
        if (!t || !(value || shape)) continue;
        if (n) {
            aril__saved_kind kind = is_out  ? value ? ARIL__SAVED_OUT : ARIL__SAVED_LIKE_OUT
                                    : value ? ARIL__SAVED_IN
                                            : ARIL__SAVED_LIKE;
            if (aril__save(th, &n->saved[count], kind, index, t) < 0) {
                n->n_saved = (uint16_t)count;
                return -1;
            }
        }
        count++;
    }
    return count;
}

static aril_status remember_location(aril__node *n)
{
    char location[256];
    aril__node_extra *e = aril__node_extra_of(n);
    if (!e) return ARIL_ERR_MEMORY;
    if (aril__location(location, sizeof location)) e->location = aril__strdup(location);
    return ARIL_OK;
}

/* The in-place write has changed `view`'s base too: each parent up the chain gets a node for the
 * write, and other views refresh themselves on next use. Skips a parent with overlapping elements,
 * where one written element appears several times: the write is recorded on that parent's own
 * base. */
static aril_status propagate_to_bases(aril__thread *th, aril_tensor *view)
{
    for (aril_tensor *t = view, *parent; t->view; t = parent) {
        struct view_write_attrs attrs = aril__view_write_attrs(t->view->op, t->view->attrs);
        aril_status s = ARIL_OK;
        parent = t->view->parent;
        t->view->seen = aril__version(t);
        while (s == ARIL_OK && parent->view && parent->storage && aril__overlaps(parent)) {
            s = aril__view_write_extend(&attrs, parent->view->op, parent->view->attrs);
            parent = parent->view->parent;
        }
        if (s == ARIL_OK && (t->node || parent->node))
            s = aril__autograd_tape.record(th, &aril__op_view_write, 2,
                                           (aril_tensor *[]){ parent, t }, &attrs, 1,
                                           (aril_tensor *[]){ parent }, NULL);
        if (s < 0) return s;
    }
    return ARIL_OK;
}

static aril_status record(aril__thread *th, const aril__op *op, int n_in, aril_tensor *const *in,
                          const void *attrs, int n_out, aril_tensor **out, aril_tensor *dest)
{
    uint32_t mask = 0;
    bool any = false;
    for (int i = 0; i < n_in; i++) {
        if (!input_wants(op, i, in[i])) continue;
        any = true;
        mask |= aril__op_saves(op, attrs, i);
        if (op->formula && differs(in[i], out[0])) mask |= LIKE(i);
    }
    aril__node *n = NULL;
    if (any && !(op->flags & NONDIFF)) {
        int n_saved = mask ? save_all(th, NULL, mask, n_in, in, n_out, out) : 0;
        n = aril__node_new(th, op, n_in, n_out, n_saved, attrs ? op->attr_size : 0);
        if (aril__unlikely(!n)) return ARIL_ERR_MEMORY;
        uint64_t sequence = th->sequence;
        for (int i = 0; i < n_in; i++) {
            n->edge[i] = (aril__edge){ 0 };
            if (!input_wants(op, i, in[i])) continue;
            aril__node *to = aril__node_keep(in[i]->node);
            n->edge[i] = (aril__edge){ to, in[i]->node_out };
            if (to->sequence > sequence) sequence = to->sequence;
        }
        th->sequence = n->sequence = sequence + 1;
        if (attrs && n->attrs) memcpy(n->attrs, attrs, op->attr_size);
        if ((n_saved && save_all(th, n, mask, n_in, in, n_out, out) < 0) ||
            (aril__unlikely(th->mode.anomaly) && remember_location(n) < 0)) {
            aril__node_release(th, n);
            return ARIL_ERR_MEMORY;
        }
    }
    bool handed_over = !n; /* the reference to n */
    for (int i = 0; i < n_out; i++) {
        if (!out[i] || ARIL__IS_WRITE(op->out[i])) continue;
        if (n && aril__is_float((aril_dtype)out[i]->dtype)) {
            if (handed_over || out[i]->node) {
                aril__bind(th, out[i], n, (uint32_t)i);
                continue;
            }
            out[i]->node = n;
            out[i]->node_out = (uint32_t)i;
            handed_over = true;
        } else if (i == 0 && dest) {
            aril__bind(th, dest, NULL, 0);
        }
    }
    if (!handed_over) aril__node_release(th, n);
    return dest && dest->view ? propagate_to_bases(th, dest) : ARIL_OK;
}

static aril_status remember_view(aril__thread *th, const aril__op *op, aril_tensor *in,
                                 const void *attrs, aril_tensor *out)
{
    size_t size = attrs ? op->attr_size : 0;
    aril__view *v = aril__slab_alloc(&th->slab, sizeof *v + op->attr_size);
    if (!v) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for the view", op->name);
    *v = (aril__view){ .parent = aril__tensor_keep(in), .op = op, .seen = aril__version(out) };
    v->attrs = size ? memcpy(v + 1, attrs, size) : NULL;
    out->view = v;
    return ARIL_OK;
}

static aril_status refresh(aril__thread *th, aril_tensor *t)
{
    /* The stale views of the chain, nearest first. */
    enum { DEEP = 64 };
    aril_tensor *chain[DEEP];
    while (t->view && t->view->seen != aril__version(t)) {
        int n = 0;
        aril_tensor *at = t;
        /* A longer chain is processed from its far end, DEEP at a time. */
        for (; at->view && at->view->seen != aril__version(at); at = at->view->parent)
            chain[n++ % DEEP] = at;
        for (int k = n - 1; k >= 0 && k >= n - DEEP; k--) {
            aril_tensor *v = chain[k % DEEP], *parent = v->view->parent;
            if (v->node && v->node->flags & ARIL__NODE_LEAF) {
                v->view->seen = aril__version(v);
                continue;
            }
            if (wants_grad(parent)) {
                aril_tensor *out[1] = { v };
                aril_status s = record(th, v->view->op, 1, &parent, v->view->attrs, 1, out, NULL);
                if (s < 0) return s;
            } else {
                aril__bind(th, v, NULL, 0);
            }
            v->view->seen = aril__version(v);
        }
    }
    return ARIL_OK;
}

static aril_status check_write(aril__thread *th, const aril__op *op, aril_tensor *dest)
{
    if (th->mode.no_grad) return ARIL_OK;
    bool through_view = false;
    for (const aril_tensor *t = dest; t; t = t->view ? t->view->parent : NULL) {
        bool leaf = t->node && t->node->flags & ARIL__NODE_LEAF;
        if (leaf && t->flags & ARIL__SYMBOLIC && t->u.symbol &&
            ((const aril__symbol *)t->u.symbol)->owner->tracer)
            return aril__fail(ARIL_ERR_STATE,
                              "%s_: a graph does not change its placeholders and variables while "
                              "it is defined; use aril_assign on a variable, or the result of %s",
                              op->name, op->name);
        if (leaf)
            return aril__fail(ARIL_ERR_GRAD,
                              "%s_: %s leaf that requires a gradient cannot be modified in place; "
                              "use ARIL_NO_GRAD",
                              op->name, through_view ? "a view of a" : "a");
        through_view = true;
    }
    return ARIL_OK;
}

const aril__tape aril__autograd_tape = {
    .record = record, .view = remember_view, .refresh = refresh, .check_write = check_write
};
