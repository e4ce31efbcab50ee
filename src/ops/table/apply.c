#include "ops/table/apply.h"

#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "core/profile.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/table/autocast.h"
#include "ops/table/planned.h"
#include "ops/table/rows.h"
#include "ops/shape/copy.h"

#include <stdlib.h>
#include <string.h>

aril__tape aril__tape_hook;

static aril__cold aril_status poison_all(int n_out, aril_tensor **out)
{
    aril__poison_all(n_out, out);
    aril__error *e = aril__self()->last_error;
    return e ? e->code : ARIL_ERR_MEMORY;
}

static aril__cold aril_status bad_input(const aril__op *op, int n_in, aril_tensor *const *in,
                                        aril_tensor **out)
{
    for (int i = 0; i < n_in; i++) {
        if (!in[i] && !(op->optional >> aril__role(op, i) & 1)) {
            aril__fail(ARIL_ERR_ARG, "%s: input %d is NULL", op->name, i);
            break;
        }
        if (in[i] && in[i]->flags & ARIL__POISON) {
            aril__refuse_poison(op->name, i, in[i]);
            break;
        }
        if (in[i] && in[i]->flags & ARIL__SHAPE_ONLY && !(op->shape_only >> i & 1)) {
            aril__fail(ARIL_ERR_INTERNAL,
                       "%s: input %d has no value ('saves' of its op lists only its shape)",
                       op->name, i);
            break;
        }
    }
    return poison_all(op->n_out, out);
}

static aril__cold aril_status count_error(const aril__op *op, int n_in, aril_tensor **out)
{
    if (op->each && n_in >= op->min_in)
        aril__fail(ARIL_ERR_ARG, "%s: got %d inputs, expected %d and %d for each item", op->name,
                   n_in, op->fixed, op->each);
    else
        aril__fail(ARIL_ERR_ARG, "%s: got %d inputs, expected %d%s", op->name, n_in, op->min_in,
                   op->max_in == op->min_in ? "" : " or more");
    return poison_all(op->n_out, out);
}

/* The maximum number of inputs of in-place forms. */
enum { WRITE_INPUTS = 16 };

static aril__cold aril_status devices_differ(const aril__op *op, const aril__device *a,
                                             const aril__device *b, aril_tensor **out)
{
    char first[48], second[48];
    aril__fail(ARIL_ERR_DEVICE,
               "%s: inputs are on different devices, %s and %s; move them with aril_to", op->name,
               aril_device_name(a->id, first, sizeof first),
               aril_device_name(b->id, second, sizeof second));
    return poison_all(op->n_out, out);
}

/* A view of a number in the shape of a tensor elsewhere: no kernel runs that could read the number,
 * so the view is of a copy on that device. */
static aril__cold aril_status move_viewed(aril__call *c, aril_tensor **in)
{
    int base = c->op->out[0] - 1;
    for (int i = 0; i < c->n_in; i++) in[i] = c->in[i];
    in[base] = aril_to(in[base], c->device->id);
    c->in = in;
    return aril_tensor_status(in[base]);
}

/* ---- outputs ---- */

static bool same_geometry(const aril_tensor *a, const aril_tensor *b)
{
    return a->offset == b->offset && a->dtype == b->dtype &&
           aril__same_dims(a->ndim, a->dim, b->ndim, b->dim) &&
           aril__same_dims(a->ndim, a->stride, b->ndim, b->stride);
}

static aril__cold aril_status shared_memory(const aril__op *op)
{
    return aril__fail(ARIL_ERR_STATE,
                      "%s_: elements of the destination share memory (it was expanded, or is a "
                      "view of overlapping windows); write to a copy",
                      op->name);
}

/* shape[0]: of the result, shape[1]: of the destination. */
static aril__cold aril_status check_sizes(const aril__requirement *q)
{
    const aril_shape *of = &q->shape[0], *to = &q->shape[1];
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (aril__shapes_fit(of, to)) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "%s_: the result has shape %s, but the destination has %s",
                      q->what, aril__shape_text(a, of->ndim, of->dim),
                      aril__shape_text(b, to->ndim, to->dim));
}

static aril__cold aril_status require_sizes(const aril__call *c, aril_tensor *dest)
{
    const aril__meta *o = &c->out[0];
    aril__requirement q;
    memset(&q, 0, sizeof q);
    q.check = check_sizes;
    q.n_shapes = 2;
    snprintf(q.what, sizeof q.what, "%s", c->op->name);
    q.shape[0].ndim = o->ndim;
    memcpy(q.shape[0].dim, o->dim, (size_t)o->ndim * sizeof *o->dim);
    q.shape[1] = aril__shape(dest);
    return aril__require_now(&q, 1, &dest);
}

static aril_status check_dest(const aril__call *c, aril_tensor *dest)
{
    const aril__meta *o = &c->out[0];
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (!aril__same_dims(o->ndim, o->dim, dest->ndim, dest->dim)) { /* or some are unknown */
        aril_status s = require_sizes(c, dest);
        if (s < 0) return s;
    }
    if (aril__unlikely(dest->storage && c->device && dest->storage->device != c->device))
        return aril__fail(ARIL_ERR_DEVICE,
                          "%s_: the destination is on %s, but the inputs are on %s", c->op->name,
                          aril_device_name(dest->storage->device->id, a, sizeof a),
                          aril_device_name(c->device->id, b, sizeof b));
    aril_dtype to = (aril_dtype)dest->dtype;
    bool narrows = (aril__is_float(o->dtype) && !aril__is_float(to)) ||
                   (o->dtype != ARIL_BOOL && to == ARIL_BOOL);
    if (narrows && !(c->op->flags & RAW))
        return aril__fail(ARIL_ERR_DTYPE, "%s_: a result of dtype %s cannot be stored in %s",
                          c->op->name, aril__dtypes[o->dtype].name, aril__dtypes[to].name);
    if (aril__unlikely(!aril__is_dense(dest) && aril__overlaps(dest))) return shared_memory(c->op);
    return ARIL_OK;
}

/* Copies inputs that share memory with `dest` and that a kernel would overwrite before reading. */
static aril_status unshare_inputs(aril__call *c, const aril_tensor *dest, aril_tensor **in)
{
    for (int i = 0; i < c->n_in; i++) {
        in[i] = c->in[i];
        bool shape_only = i < 31 && c->op->shape_only >> i & 1;
        if (!in[i] || shape_only || !in[i]->storage || in[i]->storage != dest->storage) continue;
        if (in[i] == dest && (i == 0 || c->op->flags & ELEMENTWISE)) continue;
        if (!same_geometry(in[i], dest) || !(c->op->flags & ELEMENTWISE)) {
            in[i] = aril__op(&aril__op_copy, in[i]);
            if (in[i]->flags & ARIL__POISON) return aril_tensor_status(in[i]);
        }
    }
    return ARIL_OK;
}

/* The gradient of an in-place op may need values that the op overwrites: those inputs are recorded
 * as copies, through which their gradients flow. */
static aril_status save_overwritten(const aril__call *c, aril_tensor *const *in,
                                    const aril_tensor *dest, aril_tensor **recorded)
{
    uint32_t mask = 0;
    for (int i = 0; i < c->n_in; i++)
        if (in[i] && in[i]->node) mask |= aril__op_saves(c->op, c->attrs, i);
    for (int i = 0; i < c->n_in; i++) {
        recorded[i] = in[i];
        if (!in[i] || !aril__same_memory(in[i], dest) || !(mask & IN(i < 7 ? i : 7))) continue;
        recorded[i] = aril__op(&aril__op_copy, in[i]);
        if (recorded[i]->flags & ARIL__POISON) return aril_tensor_status(recorded[i]);
    }
    return ARIL_OK;
}

/* Samples-last and neither contiguous nor channels-last. */
static bool is_samples_last(const aril_tensor *t)
{
    return !aril__is_dense(t) && aril__is_samples_last(t) && !aril_is_channels_last(t);
}

/* Channels adjacent, then the spatial axes from the last one on, with gaps: a slice of the channels
 * of a channels-last tensor. */
static bool is_part_of_last(const aril_tensor *t)
{
    if (t->ndim < 3 || t->dim[1] < 2 || t->stride[1] != 1) return false;
    int64_t reach = t->dim[1];
    for (int i = 1; i < t->ndim; i++) {
        int d = i < t->ndim - 1 ? t->ndim - i : 0;
        if (t->dim[d] == 1) continue;
        if (t->stride[d] < reach) return false;
        reach = t->stride[d] * aril__extent(t->dim[d]);
    }
    return true;
}

void aril__default_order(const aril__call *c, const aril__meta *o, aril_tensor *t)
{
    if (o->ndim < 2 || !(c->op->flags & (KEEPS_ORDER | KEEPS_CHANNELS))) return;
    if (c->op->flags & KEEPS_CHANNELS) {
        for (int k = 0; k < c->n_in; k++) {
            const aril_tensor *like = c->in[k];
            /* A gradient has the memory format of its tensor, which is a shape-only input. */
            if (k > 0 && !(k < 31 && c->op->shape_only >> k & 1)) continue;
            if (!like || like->ndim != o->ndim) continue;
            if (aril__is_only_channels_last(like)) {
                aril__channels_last_strides(o->ndim, o->dim, t->stride);
                t->flags |= ARIL__CHANNELS_LAST;
                return;
            }
            if (is_samples_last(like)) {
                aril__samples_last_strides(o->ndim, o->dim, t->stride);
                return;
            }
        }
        return;
    }
    bool dense = false; /* an input of the same shape is contiguous; channels-last wins over it */
    bool part = false;  /* one is a slice of a channels-last tensor */
    for (int k = 0; k < c->n_in; k++) {
        const aril_tensor *like = c->in[k];
        if (!like || !aril__same_dims(like->ndim, like->dim, o->ndim, o->dim)) continue;
        if (aril__is_dense(like)) {
            if (o->ndim < 3) break;
            dense = true;
            continue;
        }
        if (!aril__is_packed(like)) { /* expanded or sliced */
            part = part || is_part_of_last(like);
            continue;
        }
        if (dense && !aril_is_channels_last(like)) continue;
        aril__strides_like(like, o->ndim, o->dim, t->stride);
        t->flags |= like->flags & ARIL__CHANNELS_LAST;
        return;
    }
    if (part && !dense) {
        aril__channels_last_strides(o->ndim, o->dim, t->stride);
        t->flags |= ARIL__CHANNELS_LAST;
    }
}

/* `late`: without memory, which dispatch allocates when a row has given the order. */
static aril_tensor *new_output(aril__thread *th, const aril__call *c, int i, bool late)
{
    const aril__meta *o = &c->out[i];
    aril_tensor *t = aril__unlikely(late)
                         ? aril__tensor_header(th, o->dtype, o->ndim, o->dim)
                         : aril__tensor_new(th, o->dtype, o->ndim, o->dim, c->device);
    if (aril__likely(t) && c->op->flags & (KEEPS_ORDER | KEEPS_CHANNELS) && o->ndim >= 2)
        aril__default_order(c, o, t);
    return t;
}

static aril_tensor *new_view(aril__thread *th, const aril__call *c, int i, aril_tensor *base)
{
    const aril__meta *o = &c->out[i];
    aril_tensor *t = aril__tensor_header(th, o->dtype, o->ndim, o->dim);
    if (aril__unlikely(!t)) return NULL;
    memcpy(t->stride, o->stride, (size_t)o->ndim * sizeof *o->stride);
    t->offset = o->offset;
    atomic_fetch_add_explicit(&base->storage->refs, 1, memory_order_relaxed);
    t->storage = base->storage;
    t->flags = base->flags & (ARIL__INFERENCE | ARIL__LOOSE_VIEW);
    if (th->mode.no_grad) t->flags |= ARIL__LOOSE_VIEW;
    return t;
}

/* ---- anomaly mode ---- */

bool aril__has_nan(aril_tensor *t)
{
    const aril__dtype_row *row = &aril__dtypes[t->dtype];
    if (!t->storage || row->kind != ARIL__KIND_FLOAT || !row->computes) return false;
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril__self()->mode.anomaly = false; /* the guard restores it */
    return aril_item_int(aril_any(aril_isnan(t), ARIL_ALL)) != 0;
}

static aril__cold aril_status check_anomaly(const aril__call *c, aril_tensor **out)
{
    bool found = false;
    for (int i = 0; i < c->op->n_out; i++) found |= out[i] && aril__has_nan(out[i]);
    for (int i = 0; i < c->n_in && c->op->writes; i++)
        found |= c->in[i] && aril__changes(c->op, i) && aril__has_nan(c->in[i]);
    return found ? aril__fail(ARIL_ERR_NUMBER, "%s: produced a NaN (anomaly mode)", c->op->name)
                 : ARIL_OK;
}

/* ---- inputs changed in place ---- */

/* The role of the input after one: see aril__role. */
static inline int next_role(const aril__op *op, int role)
{
    if (role < 31) role++;
    return op->each && role == op->fixed + op->each ? op->fixed : role;
}

/* May they be written to? */
static aril_status check_changes(aril__thread *th, const aril__call *c)
{
    const aril__op *op = c->op;
    aril_status s = ARIL_OK;
    for (int i = 0, role = 0; i < c->n_in && s == ARIL_OK; i++, role = next_role(op, role)) {
        aril_tensor *t = c->in[i];
        if (!t || !(op->writes >> role & 1)) continue;
        if (!th->mode.no_grad) s = aril__tape_hook.check_write(th, op, t);
        if (s == ARIL_OK && t->storage && !aril__is_dense(t) && aril__overlaps(t))
            s = shared_memory(op);
    }
    return s;
}

/* A write to a symbolic view counts as one to what it is a view of, if that is a tensor that
 * exists; a trace counts the others. */
static inline void count_write(aril_tensor *t)
{
    aril__bump_version(aril__unlikely(t->flags & ARIL__SYMBOLIC) ? aril__root(t) : t);
}

static void note_changes(const aril__call *c)
{
    const aril__op *op = c->op;
    for (int i = 0, role = 0; i < c->n_in; i++, role = next_role(op, role))
        if (c->in[i] && op->writes >> role & 1) count_write(c->in[i]);
}

/* ---- tracing ---- */

static inline bool is_wide_index(const aril__call *c, int i)
{
    return i < 31 && c->op->index_in >> i & 1 && c->in[i] && c->in[i]->dtype == ARIL_U64;
}

/* The plan of a program casts indices to i64, in which the largest values of u64 are negative: they
 * are clamped in ops that it records. */
static aril__cold aril_status trace_clamped(aril__thread *th, const aril__call *c,
                                            aril_tensor *dest, aril_tensor **out)
{
    ARIL_SCOPE;
    aril__call clamped = *c;
    aril_tensor **in = aril__malloc((size_t)c->n_in * sizeof *in);
    if (!in) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", c->op->name);
    aril_status s = ARIL_OK;
    for (int i = 0; i < c->n_in && s == ARIL_OK; i++) {
        in[i] = c->in[i];
        if (!is_wide_index(c, i)) continue;
        in[i] = aril_cast(aril__clamp_index(in[i]), ARIL_I64);
        s = aril_tensor_status(in[i]);
    }
    clamped.in = in;
    if (s == ARIL_OK) s = th->tracer->apply(th->tracer, &clamped, dest, out);
    free(in);
    return s;
}

static aril_status run_traced(aril__thread *th, aril__call *c, aril_tensor *dest, aril_tensor **out)
{
    bool wide = false;
    for (int i = 0; i < c->n_in && c->op->index_in; i++) wide |= is_wide_index(c, i);
    aril_status s = aril__unlikely(wide) ? trace_clamped(th, c, dest, out)
                                         : th->tracer->apply(th->tracer, c, dest, out);
    if (s == ARIL_OK && dest) count_write(dest);
    if (s == ARIL_OK && c->op->writes) note_changes(c);
    return s;
}

/* ---- apply ---- */

/* The memory that the call wrote to has new values. */
static inline void note_writes(const aril__call *c, aril_tensor *dest, aril_tensor *const *out)
{
    const aril__op *op = c->op;
    if (dest) aril__bump_version(dest);
    if (aril__unlikely(op->writes)) note_changes(c);
    for (int i = 0; i < op->n_out; i++)
        if (ARIL__IS_WRITE(op->out[i]) && out[i]) aril__bump_version(out[i]);
}

/* A kernel of an op that allocates its results itself has left one out. */
static aril__cold aril_status missing_result(const aril__call *c, aril_tensor *const *out)
{
    for (int i = 0; i < c->op->n_out; i++)
        if (!out[i])
            return aril__fail(ARIL_ERR_PLUGIN, "%s: the kernel did not allocate result %d",
                              c->op->name, i);
    return ARIL_OK;
}

/* Allocates outputs and runs the kernels. Puts new references in out[], none on failure. */
static aril_status run_now(aril__thread *th, aril__call *c, aril_tensor *dest, aril_tensor **out)
{
    const aril__op *op = c->op;
    aril_status s = ARIL_OK;
    int n_out = op->n_out;
    bool late = !(op->flags & ELEMENTWISE) && aril__rows_prepare(c->device, op, c->type);
    for (int i = 0; i < n_out; i++) {
        int kind = op->out[i];
        out[i] = NULL;
        if (aril__unlikely(s < 0)) continue;
        if (i == 0 && dest)
            out[i] = aril__tensor_keep(dest);
        else if (ARIL__IS_VIEW(kind))
            out[i] = new_view(th, c, i, c->in[kind - 1]);
        else if (ARIL__IS_WRITE(kind))
            out[i] = c->in[kind - 32] ? aril__tensor_keep(c->in[kind - 32]) : NULL;
        else if (op->flags & DYNAMIC || i + 1 == op->reserve_out)
            continue; /* allocated once the size, or the row, is known */
        else
            out[i] = new_output(th, c, i, late);
        if (!out[i] && !ARIL__IS_WRITE(kind)) s = ARIL_ERR_MEMORY;
    }
    if (s == ARIL_OK && !ARIL__IS_VIEW(op->out[0])) {
        aril__run r = { .op = op,
                        .attrs = c->attrs,
                        .n_in = c->n_in,
                        .n_out = n_out,
                        .in = c->in,
                        .out = out,
                        .late = late,
                        .type = c->type,
                        .device = c->device };
        s = aril__dispatch(&r);
        if (s == ARIL_OK && aril__unlikely(op->flags & DYNAMIC)) s = missing_result(c, out);
        if (s == ARIL_OK && aril__unlikely(th->mode.anomaly)) s = check_anomaly(c, out);
    }
    /* Kernels of the CPU check before they write; others may have stopped midway. */
    if (aril__likely(s == ARIL_OK) || c->device != aril__cpu_device) note_writes(c, dest, out);
    for (int i = 0; i < n_out && aril__unlikely(s < 0); i++)
        if (out[i]) aril__tensor_release(th, out[i]);
    return s;
}

/* Hands new results to the scope; tensors that were written to already have an owner. If an output
 * is missing because its state input is absent, out[0] takes its place. */
static void give_outputs(aril__thread *th, const aril__op *op, aril_tensor *dest, aril_tensor **out)
{
    for (int i = 0; i < op->n_out; i++) {
        if (!out[i])
            out[i] = out[0];
        else if ((i == 0 && dest) || ARIL__IS_WRITE(op->out[i]))
            aril__tensor_release(th, out[i]);
        else
            aril__own(th, out[i]);
    }
}

/* What an in-place form needs besides the call itself. */
typedef struct write {
    aril_guard temporaries;              /* a scope for the copies below */
    aril_tensor *in[WRITE_INPUTS];       /* the inputs, copied if they would be overwritten */
    aril_tensor *recorded[WRITE_INPUTS]; /* the same, copied if the gradient needs the old value */
} write;

/* Checks that `dest` may be written to, and copies values that are still needed. On success the
 * scope of w->temporaries is open. */
static aril_status prepare_write(aril__thread *th, aril__call *c, aril_tensor *dest, bool wants,
                                 write *w)
{
    aril_tensor *const *in = c->in;
    aril_status s = check_dest(c, dest);
    if (s == ARIL_OK) s = aril__tape_hook.check_write(th, c->op, dest);
    if (s == ARIL_OK && wants && dest->flags & (ARIL__INFERENCE | ARIL__LOOSE_VIEW))
        s = aril__fail(ARIL_ERR_GRAD,
                       dest->flags & ARIL__INFERENCE
                           ? "%s_: a tensor created in inference mode cannot be modified while "
                             "gradients are recorded; write to a copy"
                           : "%s_: a write to a view created under ARIL_NO_GRAD cannot be "
                             "differentiated; create the view outside it, or write to a copy",
                       c->op->name);
    if (s == ARIL_OK && c->n_in > WRITE_INPUTS)
        s = aril__fail(ARIL_ERR_UNSUPPORTED, "%s_: more than %d inputs", c->op->name, WRITE_INPUTS);
    if (s < 0) return s;
    w->temporaries = aril_scope_begin();
    s = unshare_inputs(c, dest, w->in);
    c->in = w->in;
    if (s == ARIL_OK && wants) s = save_overwritten(c, in, dest, w->recorded);
    if (s < 0) aril_guard_end(&w->temporaries);
    return s;
}

/* An op without a gradient rule is recorded as its decomposition. */
static aril__cold aril_status run_decomposed(aril__call *c, aril_tensor *dest, aril_tensor **out)
{
    c->op->decompose(c, out);
    const aril__meta *o = &c->out[0];
    /* A derivative that is constant is a number: it has the shape that the rule inferred. */
    if (!(out[0]->flags & ARIL__POISON) && out[0]->ndim == 0 && o->ndim > 0) {
        aril_shape shape = { .ndim = o->ndim };
        memcpy(shape.dim, o->dim, sizeof shape.dim);
        out[0] = aril_add(aril_zeros(shape, o->dtype, c->device->id), out[0]);
    }
    if (dest && !(out[0]->flags & ARIL__POISON)) out[0] = aril_copy_(dest, out[0]);
    return aril_tensor_status(out[0]);
}

/* Connects the results to the graph. */
static aril_status join_graph(aril__thread *th, const aril__call *c, aril_tensor *const *in,
                              aril_tensor *dest, bool wants, aril_tensor **out)
{
    const aril__op *op = c->op;
    aril_status s = ARIL_OK;
    if (wants || (dest && dest->node && !th->mode.no_grad))
        s = aril__tape_hook.record(th, op, c->n_in, in, c->attrs, op->n_out, out, dest);
    if (s == ARIL_OK && ARIL__IS_VIEW(op->out[0]) && !th->mode.no_grad)
        s = aril__tape_hook.view(th, op, in[op->out[0] - 1], c->attrs, out[0]);
    for (int i = 0; i < op->n_out && th->mode.inference; i++)
        if (out[i] && !ARIL__IS_WRITE(op->out[i]) && out[i] != dest)
            out[i]->flags |= ARIL__INFERENCE;
    for (int i = 0; i < op->n_out && aril__unlikely(s < 0); i++)
        if (out[i]) aril__tensor_release(th, out[i]);
    return s;
}

/* Where a call without tensors runs: where its shape comes from, where its result goes, or where
 * its numbers are. NULL: the shape rule decides. */
static aril__device *device_of_call(aril__device *like, const aril_tensor *dest, unsigned flags)
{
    if (like) return like;
    if (dest && dest->storage) return dest->storage->device;
    return flags & ARIL__NUMBER ? aril__cpu_device : NULL;
}

static aril_status apply_now(const aril__op *op, int n_in, aril_tensor *const *in,
                             const void *attrs, aril_tensor *dest, aril_tensor **out);

/* An op with a class of its own in an autocast region. */
static aril__cold aril_status apply_cast(aril__thread *th, const aril__call *c, aril_tensor **out)
{
    aril__cast_call k;
    aril_status s = aril__cast_begin(th, c, &k);
    s = s < 0 ? poison_all(c->op->n_out, out)
              : apply_now(c->op, c->n_in, k.in, c->attrs, NULL, out);
    aril__cast_end(th, c, &k);
    return s;
}

/* The inputs on the device of ARIL_DEVICE. */
static aril_tensor *const *placed(int n_in, aril_tensor *const *in, aril_tensor **moved)
{
    const aril__thread *th = aril__self();
    const aril__device *device = aril__device_find(th->mode.device);
    for (int i = 0; i < n_in; i++) {
        bool there = !in[i] || in[i]->flags & (ARIL__POISON | ARIL__SHAPE_ONLY) ||
                     aril__is_number(in[i]) ||
                     (aril__tensor_device(in[i]) == device &&
                      !(in[i]->flags & ARIL__SYMBOLIC && device == aril__cpu_device));
        moved[i] = there ? in[i] : aril__to_placed(in[i], th->mode.device);
    }
    return moved;
}

/* The inputs on the device of the session, if one is there: beside it, tensors with a value, and
 * symbolic ones that ARIL_DEVICE placed elsewhere. */
static aril_tensor *const *joined(int n_in, aril_tensor *const *in, aril_tensor **moved)
{
    bool open = false;
    for (int i = 0; i < n_in; i++)
        open |= in[i] && in[i]->flags & ARIL__SYMBOLIC &&
                aril__tensor_device(in[i]) == aril__cpu_device;
    for (int i = 0; i < n_in; i++) {
        bool there = !open || !in[i] || !(in[i]->storage || in[i]->flags & ARIL__SYMBOLIC) ||
                     aril__is_number(in[i]) || aril__tensor_device(in[i]) == aril__cpu_device;
        moved[i] = there ? in[i] : aril__to_session(in[i]);
    }
    return moved;
}

/* An error if a call in a graph that is defined would change an input that has a value. */
static aril_status check_unchanged(const aril__op *op, int n_in, aril_tensor *const *in)
{
    for (int i = 0; i < n_in; i++) {
        bool changes = op->writes && aril__changes(op, i);
        for (int k = 0; k < op->n_out; k++) changes |= op->out[k] == WRITES(i);
        if (changes && in[i] && in[i]->storage)
            return aril__fail(ARIL_ERR_STATE,
                              "%s: a graph does not change tensors while it is defined, such as "
                              "running statistics of a module; call aril_module_eval before, or "
                              "train with a compiled function (aril_jit)",
                              op->name);
    }
    return ARIL_OK;
}

/* A call on symbolic tensors of a graph that is defined by calls. */
static aril__cold aril_status apply_in_graph(aril__tracer *tracer, const aril__op *op, int n_in,
                                             aril_tensor *const *in, const void *attrs,
                                             aril_tensor *dest, aril_tensor **out)
{
    if (!tracer) {
        aril__fail(ARIL_ERR_STATE, "%s: a symbolic tensor was used outside its graph", op->name);
        return poison_all(op->n_out, out);
    }
    if (check_unchanged(op, n_in, in) < 0) return poison_all(op->n_out, out);
    aril__tracer *before = aril__trace(tracer);
    aril_tensor *moved[WRITE_INPUTS];
    if (n_in <= WRITE_INPUTS && !dest && op != &aril__op_to_device)
        in = aril__self()->mode.placed ? placed(n_in, in, moved) : joined(n_in, in, moved);
    aril_status s = apply_now(op, n_in, in, attrs, dest, out);
    aril__trace(before);
    return s;
}

static __attribute__((noinline)) aril_status apply_now(const aril__op *op, int n_in,
                                                       aril_tensor *const *in, const void *attrs,
                                                       aril_tensor *dest, aril_tensor **out)
{
    aril__thread *th = aril__self();
    unsigned flags = 0;
    bool graph = false, views = false;
    aril__device *like = NULL;  /* of a shape-only input */
    aril__device *other = NULL; /* a second one among the inputs */
    aril__call c;               /* large, and filled by the shape rule: only set what that reads */
    c.op = op;
    c.attrs = attrs;
    c.n_in = n_in;
    c.in = in;
    c.device = NULL;
    c.type = n_in && in[0] ? (aril_dtype)in[0]->dtype : ARIL_F32;
    bool many =
        op->max_in == ARIL__ANY ? op->each && (n_in - op->fixed) % op->each : n_in > op->max_in;
    if (aril__unlikely(n_in < op->min_in || many)) return count_error(op, n_in, out);
    for (int i = 0; i < n_in; i++) {
        const aril_tensor *t = in[i];
        if (aril__unlikely(!t)) {
            if (!(op->optional >> aril__role(op, i) & 1)) return bad_input(op, n_in, in, out);
            continue;
        }
        if (aril__unlikely(i < 31 && op->shape_only >> i & 1)) {
            flags |= t->flags & ~(unsigned)ARIL__SHAPE_ONLY;
            if (t->flags & ARIL__SHAPE_ONLY) like = t->u.device;
        } else {
            flags |= t->flags;
            graph |= t->node != NULL;
        }
        views |= t->view != NULL;
        if (t->storage && !aril__is_number(t)) {
            if (!c.device)
                c.device = t->storage->device;
            else if (aril__unlikely(t->storage->device != c.device))
                other = t->storage->device;
        }
    }
    if (aril__unlikely(flags & (ARIL__POISON | ARIL__SHAPE_ONLY)))
        return bad_input(op, n_in, in, out);
    bool symbolic = flags & ARIL__SYMBOLIC || (dest && !dest->storage);
    if (aril__unlikely(symbolic)) {
        if (!th->tracer)
            return apply_in_graph(aril__symbolic_tracer(n_in, in, dest), op, n_in, in, attrs, dest,
                                  out);
        if (!other) other = aril__symbolic_device(&c);
    }
    if (aril__unlikely(atomic_load_explicit(&aril__sizes_n_asked, memory_order_relaxed)) &&
        !th->tracer) { /* sizes may be those of a graph */
        aril__tracer *of = aril__symbolic_sizes_of(op, attrs);
        if (aril__symbolic_attrs_computed(op, attrs) < 0) return poison_all(op->n_out, out);
        if (of) return apply_in_graph(of, op, n_in, in, attrs, dest, out);
    }
    if (aril__unlikely(other)) return devices_differ(op, c.device, other, out);
    if (aril__unlikely(!c.device)) c.device = device_of_call(like, dest, flags);
    if (aril__unlikely(th->mode.autocast) && !dest && aril__cast_applies(th, &c))
        return apply_cast(th, &c, out);
    aril_tensor *moved[WRITE_INPUTS];
    if (aril__unlikely(flags & ARIL__NUMBER && c.device != aril__cpu_device) &&
        ARIL__IS_VIEW(op->out[0]) && aril__is_number(in[op->out[0] - 1]) &&
        move_viewed(&c, moved) < 0)
        return poison_all(op->n_out, out);
    if (aril__unlikely(views) && !th->mode.no_grad) {
        for (int i = 0; i < n_in; i++) {
            if (!in[i] || !in[i]->view) continue;
            if (aril__tape_hook.refresh(th, in[i]) < 0) return poison_all(op->n_out, out);
            graph |= in[i]->node != NULL;
        }
    }
    if (op->types && aril__unlikely(!(op->types >> c.type & 1))) {
        aril__fail(ARIL_ERR_DTYPE, "%s: not defined for %s", op->name, aril__dtypes[c.type].name);
        return poison_all(op->n_out, out);
    }
    if (aril__unlikely(op->infer(&c) < 0)) return poison_all(op->n_out, out);
    if (aril__unlikely(th->tracer)) aril__symbolic_sizes(th, &c);

    if (aril__unlikely(op->writes) && check_changes(th, &c) < 0) return poison_all(op->n_out, out);

    bool wants = graph && !th->mode.no_grad && !(op->flags & NONDIFF);
    if (aril__unlikely(wants && !op->vjp && op->decompose)) return run_decomposed(&c, dest, out);
    const char *caller = th->call; /* of an op that calls this one */
    th->call = op->name;
    write w;
    if (aril__unlikely(!aril__own_reserve(th, op->n_out) ||
                       (dest && prepare_write(th, &c, dest, wants, &w) < 0))) {
        th->call = caller;
        return poison_all(op->n_out, out);
    }
    aril_status s =
        aril__unlikely(th->tracer) ? run_traced(th, &c, dest, out) : run_now(th, &c, dest, out);
    if (aril__likely(s == ARIL_OK)) {
        c.in = in; /* record the caller's tensors, not their copies */
        s = join_graph(th, &c, dest && wants ? w.recorded : in, dest, wants, out);
    }
    if (dest) aril_guard_end(&w.temporaries);
    th->call = caller;
    if (aril__unlikely(s < 0)) return poison_all(op->n_out, out);
    give_outputs(th, op, dest, out);
    return ARIL_OK;
}

/* ---- the short way ----
 *
 * Most calls are alike: an elementwise op of contiguous tensors of one floating-point dtype, shape
 * and device. They answer most questions of apply_now by themselves, and skip them. Results and
 * errors are the same. */

/* Whether nothing changes or watches what ops do on this thread. */
static inline bool is_ordinary(const aril__thread *th)
{
    const aril__mode *m = &th->mode;
    return !th->tracer && !m->autocast && !m->anomaly && !m->inference && aril__force_row < 0 &&
           !aril__log_on(ARIL__LOG_DISPATCH | ARIL__LOG_PROFILE | ARIL__LOG_METER);
}

static inline bool is_ordinary_value(const aril_tensor *t)
{
    return !(t->flags & ~(unsigned)(ARIL__IMMORTAL | ARIL__INFERENCE)) && !t->view;
}

/* Rules of formulas whose result has the dtype of its inputs, if that is a floating-point one. */
enum {
    ALIKE_RULES = 1 << ARIL__EW_REAL | 1 << ARIL__EW_NUM | 1 << ARIL__EW_NUMX | 1 << ARIL__EW_FLT
};

/* Whether all inputs have the dtype, shape, strides and device of the first, which is contiguous.
 * *graph: one of them requires a gradient. */
static inline bool are_alike(const aril__op *op, int n, aril_tensor *const *in, bool *graph)
{
    const aril_tensor *first = in[0];
    if (!first || !is_ordinary_value(first) || !aril__is_dense(first)) return false;
    *graph = first->node != NULL;
    for (int i = 1; i < n; i++) {
        const aril_tensor *t = in[i];
        if (!t) {
            if (!(op->optional >> i & 1)) return false;
            continue;
        }
        if (!is_ordinary_value(t) || t->dtype != first->dtype || t->ndim != first->ndim ||
            t->storage->device != first->storage->device)
            return false;
        for (int d = 0; d < first->ndim; d++)
            if (t->dim[d] != first->dim[d] || t->stride[d] != first->stride[d]) return false;
        *graph |= t->node != NULL;
    }
    return true;
}

/* For an op with a formula. NULL, and nothing was done, if the call has to go the long way. */
static inline aril_tensor *apply_alike(const aril__op *op, int n_in, aril_tensor *const *in,
                                       const void *attrs)
{
    const aril__formula *f = op->formula;
    aril__thread *th = aril__self();
    bool graph;
    if (n_in != f->arity || !(ALIKE_RULES >> f->rule & 1) || !is_ordinary(th) ||
        !are_alike(op, n_in, in, &graph))
        return NULL;
    aril_dtype type = (aril_dtype)in[0]->dtype;
    bool wants = graph && !th->mode.no_grad && !(op->flags & NONDIFF);
    const aril__row *row =
        DT_FLOAT >> type & 1 ? aril__row_direct(in[0]->storage->device, op, type) : NULL;
    if (!row || (wants && !op->vjp)) return NULL;

    const char *caller = th->call;
    th->call = op->name;
    aril_tensor *y = NULL;
    if (aril__unlikely(!aril__own_reserve(th, 1) ||
                       !(y = aril__tensor_new_like(th, in[0], type)))) {
        th->call = caller;
        return aril__poison();
    }
    aril__run r = { .op = op,
                    .attrs = attrs,
                    .n_in = n_in,
                    .n_out = 1,
                    .in = in,
                    .out = &y,
                    .alike = true,
                    .type = type,
                    .device = in[0]->storage->device };
    aril_status s = aril__run_direct(row, &r);
    if (aril__likely(s == ARIL_OK) && wants)
        s = aril__tape_hook.record(th, op, n_in, in, attrs, 1, &y, NULL);
    th->call = caller;
    if (aril__unlikely(s < 0)) {
        aril__tensor_release(th, y);
        return aril__poison();
    }
    aril__own(th, y);
    return y;
}

/* ---- planned calls ---- */

/* The device that a call runs on; false if its inputs are on two. */
static bool find_device(aril__call *c, const aril_tensor *dest, unsigned *flags)
{
    aril__device *like = NULL;
    *flags = 0;
    for (int i = 0; i < c->n_in; i++) {
        const aril_tensor *t = c->in[i];
        if (!t) continue;
        *flags |= t->flags;
        if (t->flags & ARIL__SHAPE_ONLY) like = t->u.device;
        if (!t->storage || aril__is_number(t)) continue;
        if (c->device && c->device != t->storage->device) return false;
        c->device = t->storage->device;
    }
    if (!c->device) c->device = device_of_call(like, dest, *flags);
    return true;
}

/* The shape rule without an error. */
static aril_status infer_quietly(aril__call *c)
{
    aril__thread *th = aril__self();
    aril__error *first = th->error, *last = th->last_error;
    th->error = th->last_error = NULL;
    aril_status s = c->op->infer(c);
    aril__error_release(th->error);
    aril__error_release(th->last_error);
    th->error = first;
    th->last_error = last;
    return s;
}

bool aril__call_infer(aril__call *c, const aril_tensor *dest)
{
    const aril__op *op = c->op;
    unsigned flags;
    bool many = op->max_in == ARIL__ANY ? op->each && (c->n_in - op->fixed) % op->each
                                        : c->n_in > op->max_in;
    if (c->n_in < op->min_in || many) return false;
    c->device = NULL;
    c->type = c->n_in && c->in[0] ? (aril_dtype)c->in[0]->dtype : ARIL_F32;
    for (int i = 0; i < c->n_in; i++)
        if (!c->in[i] && !(op->optional >> aril__role(op, i) & 1)) return false;
    if (!find_device(c, dest, &flags)) return false;
    if (flags & ARIL__NUMBER && c->device != aril__cpu_device && ARIL__IS_VIEW(op->out[0]) &&
        aril__is_number(c->in[op->out[0] - 1]))
        return false;
    if (op->types && !(op->types >> c->type & 1)) return false;
    aril_status s = infer_quietly(c);
    for (int i = 0; i < c->n_in && s == ARIL_OK && op->writes; i++)
        if (c->in[i] && aril__changes(op, i) && !aril__is_dense(c->in[i]) &&
            aril__overlaps(c->in[i]))
            return false;
    return s == ARIL_OK;
}

aril_tensor *aril__call_result(aril__thread *th, const aril__call *c, int i)
{
    return new_output(th, c, i, true);
}

bool aril__call_is_late(const aril__call *c)
{
    return !(c->op->flags & ELEMENTWISE) && aril__rows_prepare(c->device, c->op, c->type);
}

/* Whether t is contiguous, with the dtype, shape and device of `like`. */
static bool is_dense_like(const aril_tensor *t, const aril_tensor *like)
{
    return t->dtype == like->dtype && t->storage->device == like->storage->device &&
           aril__same_dims(t->ndim, t->dim, like->ndim, like->dim) && aril__is_dense(t);
}

bool aril__call_is_alike(const aril__op *op, int n_in, aril_tensor *const *in,
                         const aril_tensor *out)
{
    const aril__formula *f = op->formula;
    if (!f || n_in != f->arity || !(ALIKE_RULES >> f->rule & 1) || !in[0] ||
        !(DT_FLOAT >> in[0]->dtype & 1) || !is_dense_like(out, in[0]))
        return false;
    for (int i = 0; i < n_in; i++)
        if (in[i] && !is_dense_like(in[i], in[0])) return false;
    return aril__row_direct(in[0]->storage->device, op, (aril_dtype)in[0]->dtype);
}

aril_status aril__check_results(const aril__op *op, int n_in, aril_tensor *const *in,
                                aril_tensor **out)
{
    aril__call c;
    c.op = op;
    c.n_in = n_in;
    c.in = in;
    return check_anomaly(&c, out);
}

/* ---- calls ---- */

static inline aril_status apply(const aril__op *op, int n_in, aril_tensor *const *in,
                                const void *attrs, aril_tensor *dest, aril_tensor **out)
{
    if (aril__likely(!aril__profiling())) return apply_now(op, n_in, in, attrs, dest, out);
    aril__span span = aril__span_begin(op->name, op->name);
    aril_status s = apply_now(op, n_in, in, attrs, dest, out);
    aril__span_end(span);
    return s;
}

aril_status aril__apply(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs,
                        aril_tensor **out)
{
    return apply(op, n_in, in, attrs, NULL, out);
}

aril_tensor *aril__apply1(const aril__op *op, int n_in, aril_tensor *const *in, const void *attrs)
{
    aril_tensor *out[ARIL__MAX_OUT], *y = op->formula ? apply_alike(op, n_in, in, attrs) : NULL;
    if (y) return y;
    apply(op, n_in, in, attrs, NULL, out);
    return out[0];
}

aril_tensor *aril__apply_to(aril_tensor *dest, const aril__op *op, int n_in, aril_tensor *const *in,
                            const void *attrs)
{
    aril_tensor *out[ARIL__MAX_OUT];
    if (!dest) return aril__null_tensor(op->name);
    if (aril__unlikely(dest->flags & ARIL__POISON)) {
        aril__refuse_poison(op->name, 0, dest);
        return dest->flags & ARIL__ENDED ? aril__poison()
                                         : dest; /* an in-place form returns its own */
    }
    aril_status s = apply(op, n_in, in, attrs, dest, out);
    return s < 0 ? out[0] : dest;
}

uint32_t aril__op_saves(const aril__op *op, const void *attrs, int i)
{
    if (op->formula) return i < op->formula->arity ? aril__derivatives(op)[i].saves : 0;
    uint32_t mask = op->saves[i < ARIL__SAVES ? i : ARIL__SAVES - 1];
    if (op->activation && attrs) {
        int64_t act;
        memcpy(&act, (const char *)attrs + op->activation - 1, sizeof act);
        if (act != ARIL_NO_ACTIVATION) mask |= OUT(0);
    }
    return mask;
}

const aril__op *aril__op_find(const char *name)
{
    for (int i = 0; i < aril__n_ops; i++)
        if (strcmp(aril__ops[i]->name, name) == 0) return aril__ops[i];
    return NULL;
}
