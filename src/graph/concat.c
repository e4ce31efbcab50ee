/* Concatenation without copies: the memory of an input can be its part of the result.
 *
 * Where the part is contiguous, the place of an input moves into that of the result: whatever
 * computes it writes to the result. Elsewhere a part has gaps between its rows. oneDNN's
 * convolutions do not write to such memory, and a copy of the whole part is as fast as copies of
 * their pieces.
 *
 * Where a concatenation appends to the result of another, as the layers of a dense block do, both
 * results are in the memory of the last one: only what is appended is copied. Values in between
 * have gaps, so that this is done if all that read them take such values as they are. */
#include "graph/passes.h"
#include "graph/planner.h"
#include "ops/norm/norm.h"
#include "ops/shape/concat.h"

#include <stdlib.h>
#include <string.h>

/* ---- concatenations that append to another ---- */

static const aril__graph_node *node_of(const aril__planner *p, uint32_t step)
{
    return &p->r->g->nodes[p->x->steps[step].node];
}

static int axis_of(const aril__planner *p, const aril__graph_node *n)
{
    return (int)((const struct cat_attrs *)aril__graph_attrs(p->r->g, n))->axis[0];
}

static bool is_cat(const aril__graph_node *n)
{
    return n->op == &aril__op_cat && n->n_in > 1;
}

/* Whether the CPU's kernels of an op take input i with gaps between its rows. */
static bool takes_gaps(const aril__graph *g, const aril__graph_node *n, int i)
{
    enum { RESIDUAL = 5 };
    if (i < 31 && n->op->shape_only >> i & 1) return true;
    if (n->op == &aril__op_batch_norm_eval) return i == 0 && !aril__graph_in(g, n)[RESIDUAL];
    return (n->op->flags & ELEMENTWISE) != 0;
}

/* The slot of result 0 of a step. */
static uint32_t result_of(const aril__planner *p, uint32_t step)
{
    return p->x->slots[p->x->steps[step].out];
}

/* Notes, for each value that steps read, which of them appends to it; `other`: values that are read
 * by something else that asks for memory without gaps. */
static void find_appends(aril__planner *p, bool *other)
{
    const aril__exec *x = p->x;
    for (uint32_t i = 0; i < x->n_steps; i++) {
        const aril__graph_node *n = node_of(p, i);
        for (int k = 0; k < n->n_in; k++) {
            uint32_t slot = x->slots[x->steps[i].in + (uint32_t)k];
            if (is_cat(n) && k == 0 && !p->next[slot])
                p->next[slot] = 1 + i;
            else
                other[slot] |= !takes_gaps(p->r->g, n, k);
        }
    }
}

bool aril__concat_find(aril__planner *p)
{
    const aril__exec *x = p->x;
    bool found = false;
    for (uint32_t i = 0; i < x->n_steps && !found; i++) found = is_cat(node_of(p, i));
    if (!found || !aril__pass_is_on("concat")) return true;
    bool *other = aril__calloc(x->n_slots + 1);
    p->next = aril__calloc(((size_t)x->n_slots + 1) * sizeof *p->next);
    p->full = aril__calloc(((size_t)x->n_slots + 1) * sizeof *p->full);
    if (!other || !p->next || !p->full) {
        free(other);
        p->status = aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
        return false;
    }
    find_appends(p, other);
    for (uint32_t i = 0; i < x->n_steps; i++) {
        const aril__graph_node *n = node_of(p, i);
        for (uint32_t k = 0; k < n->n_out; k++) { /* only those of concatenations remain */
            uint32_t slot = x->slots[x->steps[i].out + k], next = p->next[slot];
            bool chained = is_cat(n) && !other[slot] && !x->wanted[slot] && next &&
                           !x->wanted[result_of(p, next - 1)] && !x->steps[next - 1].home &&
                           axis_of(p, n) == axis_of(p, node_of(p, next - 1));
            if (!chained) p->next[slot] = 0;
        }
    }
    for (uint32_t i = 0; i < x->n_sources; i++) p->next[x->source[i]] = 0;
    free(other);
    return true;
}

/* The size along an axis of an input that may not be planned yet; -1: not known. */
static int64_t size_of(const aril__planner *p, uint32_t slot, int axis)
{
    const aril_tensor *t = aril__header_of(p, p->n->slot[slot]);
    if (t) return t->dim[axis];
    int64_t size = aril__graph_dims(p->r->g, p->x->value[slot])[axis];
    return size < 0 ? aril__size_value(p->r->g->sizes, size, aril__exec_size, p->r) : size;
}

/* The size of the last concatenation that appends to a value, directly or not. */
static int64_t final_size(const aril__planner *p, uint32_t slot, int axis, int64_t size)
{
    for (uint32_t next; (next = p->next[slot]) != 0; slot = result_of(p, next - 1)) {
        const aril__step *s = &p->x->steps[next - 1];
        for (int k = 1; k < node_of(p, next - 1)->n_in; k++) {
            int64_t more = size_of(p, p->x->slots[s->in + (uint32_t)k], axis);
            if (more < 0 || __builtin_add_overflow(size, more, &size)) return -1;
        }
    }
    return size;
}

/* ---- parts ---- */

/* A header like that of a call's result, of another size along the axis; NULL with an error. */
static aril_tensor *result_like(const aril__planner *p, const aril__planned_call *q, int axis,
                                int64_t size)
{
    aril__call c = q->c;
    c.out[0].dim[axis] = size;
    return aril__call_result(p->r->th, &c, 0);
}

/* The part of a header from `at` on along an axis; 0 on failure. */
static uint32_t add_part(aril__planner *p, uint32_t whole, int axis, int64_t at, int64_t size)
{
    const aril_tensor *of = aril__header_of(p, whole);
    int64_t dim[ARIL_MAX_DIMS];
    memcpy(dim, of->dim, (size_t)of->ndim * sizeof *dim);
    dim[axis] = size;
    aril_tensor *t = aril__tensor_header(p->r->th, (aril_dtype)of->dtype, of->ndim, dim);
    if (t) memcpy(t->stride, of->stride, (size_t)of->ndim * sizeof *dim);
    if (t && size == of->dim[axis]) t->flags |= of->flags & ARIL__CHANNELS_LAST;
    return aril__plan_header(p, t, p->n->headers[whole].place,
                             p->n->headers[whole].offset + at * of->stride[axis]);
}

/* Copies inputs that are not in their parts of the result. */
static bool copy_others(aril__planner *p, const aril__planned_call *q, uint32_t whole, int axis)
{
    int64_t at = 0;
    for (int i = 0; i < q->n_in; i++) {
        const aril_tensor *t = q->tensor[i];
        const aril__planned_header *x = &p->n->headers[q->in[i]], *y = &p->n->headers[whole];
        int64_t from = y->offset + at * y->t->stride[axis];
        bool there = x->place == y->place && x->offset == from;
        if (!there && t->numel) {
            uint32_t part = add_part(p, whole, axis, at, t->dim[axis]);
            if (!part || !aril__plan_copy(p, q->in[i], part)) return false;
        }
        at += t->dim[axis];
    }
    return true;
}

/* ---- a chain ---- */

/* Appends to input 0, which is the beginning of `full` already, or begins a chain there. */
static bool append(aril__planner *p, aril__planned_call *q, uint32_t full, int axis, uint32_t slot)
{
    q->out[0] = add_part(p, full, axis, 0, q->c.out[0].dim[axis]);
    if (!q->out[0] || !copy_others(p, q, full, axis)) return false;
    p->full[slot] = p->next[slot] ? full : 0;
    return true;
}

/* The header of the whole that a concatenation is the beginning of; 0: of none. */
static uint32_t whole_of(aril__planner *p, const aril__planned_call *q, int axis, uint32_t slot)
{
    uint32_t first = p->x->slots[p->step->in], full = p->full[first];
    if (full && p->n->slot[first] == q->in[0]) return full;
    int64_t here = q->c.out[0].dim[axis], size = final_size(p, slot, axis, here);
    if (!p->next[slot] || size <= here) return 0;
    aril_tensor *t = result_like(p, q, axis, size);
    return aril__plan_value(p, t, ARIL__IN_ARENA, q->c.device);
}

/* ---- contiguous parts ---- */

enum { SMALL = 1 << 20 }; /* bytes of a result that may be kept for longer than its larger half */

/* Whether the part of t from `at` on has the strides of an input that fills its own place. */
static bool can_move(const aril__planner *p, const aril__planned_call *q, int i,
                     const aril_tensor *t, int axis, int64_t at)
{
    const aril_tensor *x = q->tensor[i];
    const aril__place *from = aril__place_of(p, q->in[i]);
    size_t bytes = aril__bytes_of(x), offset = (size_t)(at * t->stride[axis]);
    offset *= aril__dtype_bytes((aril_dtype)t->dtype, 1);
    if (from->kind != ARIL__IN_ARENA || from->bytes != bytes || !bytes || !aril__is_packed(x) ||
        p->n->headers[q->in[i]].offset != 0 || x->dtype != t->dtype ||
        aril__dtypes[t->dtype].bits < 8 || offset % ARIL__PLACE_ALIGN != 0)
        return false;
    if (aril__bytes_of(t) > SMALL && bytes < aril__bytes_of(t) / 2) return false;
    for (int d = 0; d < x->ndim; d++)
        if (x->dim[d] != 1 && x->stride[d] != t->stride[d]) return false;
    return true;
}

/* Moves all headers of a place into another one. */
static void move_place(aril__planner *p, uint32_t from_, uint32_t to_, size_t offset)
{
    aril__instance *n = p->n;
    aril__place *from = &n->places[from_], *to = &n->places[to_];
    uint32_t last = 0;
    for (uint32_t h = from->header; h; h = n->headers[h].next) {
        aril__planned_header *at = &n->headers[h];
        at->place = to_;
        at->offset += (int64_t)(offset * 8 / aril__dtypes[at->t->dtype].bits);
        at->t->offset = at->offset;
        aril__storage_release(p->r->th, at->t->storage);
        atomic_fetch_add_explicit(&to->storage->refs, 1, memory_order_relaxed);
        at->t->storage = to->storage;
        last = h;
    }
    n->headers[last].next = to->header; /* the first header of a place stays at the end */
    to->header = from->header;
    to->live += from->live;
    to->plain |= from->plain;
    if (from->first < to->first) to->first = from->first;
    if (from->last > to->last) to->last = from->last;
    from->header = from->live = 0; /* nothing is in it */
    from->bytes = 0;
    from->first = UINT32_MAX;
}

/* Lets inputs be computed where their parts of the result are; false: none can be. */
static bool move_inputs(aril__planner *p, aril__planned_call *q, int axis)
{
    bool movable = false;
    int64_t at = 0, size = q->c.out[0].dim[axis];
    aril_tensor *t = result_like(p, q, axis, size);
    if (!t) p->status = aril__latest_status();
    for (int i = 0; i < q->n_in && t; at += q->tensor[i++]->dim[axis])
        movable |= can_move(p, q, i, t, axis, at);
    if (!movable) {
        if (t) aril__tensor_release(p->r->th, t);
        return false;
    }
    int kind = q->to_caller[0] ? ARIL__IN_RESULT : ARIL__IN_ARENA;
    uint32_t whole = q->out[0] = aril__plan_value(p, t, kind, q->c.device);
    if (!whole) return false;
    at = 0;
    for (int i = 0; i < q->n_in; at += q->tensor[i++]->dim[axis])
        if (can_move(p, q, i, t, axis, at))
            move_place(p, p->n->headers[q->in[i]].place, p->n->headers[whole].place,
                       (size_t)(at * t->stride[axis]) * aril__dtype_bytes((aril_dtype)t->dtype, 1));
    return copy_others(p, q, whole, axis);
}

bool aril__concat_plan(aril__planner *p, aril__planned_call *q)
{
    if (!p->next || q->op != &aril__op_cat || q->n_in < 2 || q->dest ||
        q->c.device != aril__cpu_device || aril__call_is_late(&q->c))
        return false;
    int axis = (int)((const struct cat_attrs *)q->attrs)->axis[0];
    uint32_t slot = p->x->slots[p->step->out];
    uint32_t full = whole_of(p, q, axis, slot);
    if (p->status < 0) return false;
    return full ? append(p, q, full, axis, slot) : move_inputs(p, q, axis);
}
