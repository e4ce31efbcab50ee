#include "ops/table/stage.h"

#include "aril/create.h"
#include "aril/math.h"
#include "ops/shape/copy.h"
#include "ops/table/apply.h"
#include "ops/table/planned.h"

#include <stdlib.h>

/* ---- memory orders ---- */

static bool is_heads_inner(const aril_tensor *t)
{
    int64_t stride[ARIL_MAX_DIMS];
    aril__heads_inner_strides(t->ndim, t->dim, stride);
    for (int d = 0; d < t->ndim; d++)
        if (t->dim[d] != 1 && t->stride[d] != stride[d]) return false;
    return true;
}

static bool has_order(const aril_tensor *t, int order)
{
    switch (order) {
    case ARIL_ORDER_CONTIGUOUS: return aril__is_dense(t);
    case ARIL_ORDER_CHANNELS_LAST: return aril_is_channels_last(t);
    case ARIL_ORDER_SAMPLES_LAST: return aril__is_samples_last(t);
    case ARIL_ORDER_HEADS_INNER: return is_heads_inner(t);
    default: return true;
    }
}

void aril__set_order(aril_tensor *t, int order)
{
    if (order == ARIL_ORDER_ANY) return;
    t->flags &= (uint16_t)~ARIL__CHANNELS_LAST;
    if (order == ARIL_ORDER_CONTIGUOUS) {
        aril__dense_strides(t->ndim, t->dim, t->stride);
    } else if (order == ARIL_ORDER_CHANNELS_LAST) {
        aril__channels_last_strides(t->ndim, t->dim, t->stride);
        t->flags |= ARIL__CHANNELS_LAST;
    } else if (order == ARIL_ORDER_SAMPLES_LAST) {
        aril__samples_last_strides(t->ndim, t->dim, t->stride);
    } else {
        aril__heads_inner_strides(t->ndim, t->dim, t->stride);
    }
}

/* A new tensor for the innermost scope; poison on failure. */
static aril_tensor *new_in_order(const aril_tensor *like, aril_dtype dtype, int order,
                                 aril__device *device)
{
    aril__thread *th = aril__self();
    aril_tensor *t = aril__give(th, aril__tensor_new(th, dtype, like->ndim, like->dim, device));
    if (aril_tensor_status(t) == ARIL_OK) aril__set_order(t, order);
    return t;
}

static aril_tensor *to_order(aril_tensor *t, int order)
{
    if (aril_tensor_status(t) < 0 || has_order(t, order)) return t;
    if (order == ARIL_ORDER_CONTIGUOUS) return aril_contiguous(t);
    aril_tensor *to = new_in_order(t, (aril_dtype)t->dtype, order, t->storage->device);
    return aril_tensor_status(to) < 0 ? to : aril_copy_(to, t);
}

/* ---- what a kernel asks for ---- */

enum { STAGED_INPUTS = 64 }; /* longer lists are staged only for kernels that need it */

/* One run of a kernel with staged operands. */
typedef struct staging {
    const aril__kernel *k;
    aril__run *r;
    aril_dtype type; /* the dtype it computes in, in place of r->type */
    aril_tensor **in, *out[ARIL__MAX_OUT];
} staging;

typedef struct ask {
    aril_dtype dtype;
    int order;
} ask;

aril_dtype aril__staged_dtype(uint32_t native, aril_dtype t)
{
    static const aril_dtype of[] = { [ARIL__C_F32] = ARIL_F32,
                                     [ARIL__C_F64] = ARIL_F64,
                                     [ARIL__C_I64] = ARIL_I64,
                                     [ARIL__C_U64] = ARIL_U64 };
    if (!native || native >> t & 1) return t;
    aril_dtype to = of[aril__dtypes[t].ctype];
    if (!(native >> to & 1) && to == ARIL_U64) to = ARIL_I64;
    if (!(native >> to & 1) && to == ARIL_I64) to = ARIL_F64;
    return to;
}

/* What the kernel asks of operand t, to which its plan answers `o` (NULL: nothing). */
static ask ask_of(const staging *g, const aril_tensor *t, const aril_operand *o)
{
    ask a = { (aril_dtype)t->dtype, o ? o->order : ARIL_ORDER_ANY };
    if (o && o->dtype)
        a.dtype = (aril_dtype)(o->dtype - 1);
    else if (g->type != g->r->type && t->dtype == g->r->type)
        a.dtype = g->type;
    if (a.order == ARIL_ORDER_ANY && !g->k->strided) a.order = ARIL_ORDER_CONTIGUOUS;
    return a;
}

static inline bool is_index(const aril__run *r, int i)
{
    return i < 31 && r->op->index_in >> i & 1;
}

static inline ask ask_in(const staging *g, int i)
{
    const aril__plan *p = g->k->plan;
    ask a = ask_of(g, g->r->in[i], p && i < ARIL_PLAN_INPUTS ? &p->in[i] : NULL);
    if (is_index(g->r, i)) a = (ask){ ARIL_I64, ARIL_ORDER_CONTIGUOUS };
    return a;
}

static inline ask ask_out(const staging *g, int i)
{
    const aril__plan *p = g->k->plan;
    return ask_of(g, g->r->out[i], p ? &p->out[i] : NULL);
}

/* Kernels of other devices than the CPU read a number's value, whatever its dtype: it stays where
 * it is. */
static inline bool stays(const aril__run *r, int i)
{
    return aril__unlikely(aril__is_number(r->in[i])) && r->device != aril__cpu_device;
}

/* Whether the kernel reads the elements of input i. */
static inline bool is_read(const aril__run *r, int i)
{
    return r->in[i] && !(i < 31 && r->op->shape_only >> i & 1) && !stays(r, i);
}

/* A result in the memory of the first input, of a kernel that cannot do that. */
static inline bool is_overlaid(const staging *g, int i)
{
    const aril__run *r = g->r;
    return i == 0 && r->n_in && r->out[0] == r->in[0] && !(r->op->flags & INPLACE) &&
           !(g->k->plan && g->k->plan->overlay & 1);
}

/* Whether the first element begins within a byte: plug-ins get addresses of bytes. */
static inline bool is_split(const aril__kernel *k, const aril_tensor *t)
{
    if (aril__likely(t->dtype < ARIL_F4E2M1) || !k->plan || !t->storage) return false;
    return t->offset * aril__dtypes[t->dtype].bits % 8 != 0;
}

static inline bool suits(const staging *g, const aril_tensor *t, ask a)
{
    return t->dtype == a.dtype && has_order(t, a.order) && !is_split(g->k, t);
}

/* ---- the same for programs that plan ---- */

aril_dtype aril__asked_type(const aril__kernel *k, const aril__run *r)
{
    return r->op->flags & RAW ? r->type : aril__staged_dtype(k->native, r->type);
}

/* Long lists are taken as they are. */
static bool takes_all(const staging *g)
{
    return g->r->n_in > STAGED_INPUTS && g->type == g->r->type && g->k->strided;
}

static staging staging_of(const aril__kernel *k, const aril__run *r)
{
    return (staging){ .k = k, .r = (aril__run *)(uintptr_t)r, .type = aril__asked_type(k, r) };
}

aril__asked aril__asked_in(const aril__kernel *k, const aril__run *r, int i)
{
    staging g = staging_of(k, r);
    if (takes_all(&g) || !is_read(r, i)) return (aril__asked){ .as_is = true };
    ask a = ask_in(&g, i);
    return (aril__asked){ suits(&g, r->in[i], a), a.dtype, a.order };
}

aril__asked aril__asked_out(const aril__kernel *k, const aril__run *r, int i)
{
    staging g = staging_of(k, r);
    if (takes_all(&g) || !r->out[i]) return (aril__asked){ .as_is = true };
    ask a = ask_out(&g, i);
    return (aril__asked){ suits(&g, r->out[i], a) && !is_overlaid(&g, i), a.dtype, a.order };
}

/* ---- staging ---- */

static bool is_ready(const staging *g)
{
    const aril__run *r = g->r;
    if (g->type != r->type) return false;
    for (int i = 0; i < r->n_in; i++)
        if (is_read(r, i) && !suits(g, r->in[i], ask_in(g, i))) return false;
    for (int i = 0; i < r->n_out; i++)
        if (r->out[i] && (is_overlaid(g, i) || !suits(g, r->out[i], ask_out(g, i)))) return false;
    return true;
}

/* ---- results without memory ---- */

static aril_status allocate(aril__run *r, int i, int order)
{
    aril_tensor *t = r->out[i];
    if (!t || t->storage) return ARIL_OK;
    aril__set_order(t, order);
    t->storage = aril__storage_new(aril__self(), r->device,
                                   aril__dtype_bytes((aril_dtype)t->dtype, t->numel));
    return t->storage ? ARIL_OK : ARIL_ERR_MEMORY;
}

aril_status aril__run_allocate(aril__run *r)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < r->n_out && s == ARIL_OK && r->late; i++)
        s = allocate(r, i, ARIL_ORDER_ANY);
    r->late = false;
    return s;
}

/* The same in the orders that the plan gives, if it does. */
static aril_status allocate_as_planned(aril__run *r, const aril__plan *p)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < r->n_out && s == ARIL_OK; i++) s = allocate(r, i, p->out[i].order);
    r->late = false;
    return s;
}

aril_tensor *aril__clamp_index(aril_tensor *index)
{
    return aril_minimum(index, aril_scalar(INT64_MAX));
}

static aril_status stage_inputs(staging *g)
{
    const aril__run *r = g->r;
    aril_status s = ARIL_OK;
    for (int i = 0; i < r->n_in && s == ARIL_OK; i++) {
        aril_tensor *t = g->in[i] = r->in[i];
        if (!is_read(r, i)) continue;
        ask a = ask_in(g, i);
        if (is_split(g->k, t)) t = aril_copy(t);
        if (aril__unlikely(t->dtype == ARIL_U64) && is_index(r, i)) t = aril__clamp_index(t);
        if (t->dtype != a.dtype) t = aril_cast(t, a.dtype);
        g->in[i] = to_order(t, a.order);
        s = aril_tensor_status(g->in[i]);
    }
    return s;
}

static aril_status stage_outputs(staging *g)
{
    const aril__run *r = g->r;
    const aril__op *op = r->op;
    for (int i = 0; i < r->n_out; i++) {
        aril_tensor *t = g->out[i] = r->out[i];
        if (!t) continue;
        ask a = ask_out(g, i);
        if (suits(g, t, a) && !is_overlaid(g, i)) continue;
        bool is_input = i == 0 && op->flags & INPLACE && r->n_in && t == r->in[0];
        if (ARIL__IS_WRITE(op->out[i]) || is_input)
            g->out[i] = g->in[is_input ? 0 : op->out[i] - 32]; /* staged state */
        else
            g->out[i] = new_in_order(t, a.dtype, a.order, r->device);
        if (aril_tensor_status(g->out[i]) < 0) return aril_tensor_status(g->out[i]);
    }
    return ARIL_OK;
}

/* A result that the kernel allocated in the staged dtype; the caller gets a reference. */
static aril_status take_result(const staging *g, int i)
{
    aril__run *r = g->r;
    if (!g->out[i]) return ARIL_OK; /* reported where the op was called */
    aril_tensor *made = aril__give(aril__self(), g->out[i]);
    if (g->type != r->type && made->dtype == g->type) made = aril_cast(made, r->type);
    aril_status s = aril_tensor_status(made);
    r->out[i] = s == ARIL_OK ? aril__tensor_keep(made) : NULL;
    return s;
}

static aril_status return_results(const staging *g)
{
    aril__run *r = g->r;
    aril_status s = ARIL_OK;
    for (int i = 0; i < r->n_out && s == ARIL_OK; i++)
        if (g->out[i] != r->out[i])
            s = r->out[i] ? aril__copy_across(r->out[i], g->out[i]) : take_result(g, i);
    for (int i = 0; i < r->n_in && s == ARIL_OK && r->op->writes; i++)
        if (g->in[i] != r->in[i] && aril__changes(r->op, i))
            s = aril__copy_across(r->in[i], g->in[i]);
    return s;
}

aril_status aril__run_watched(const aril__kernel *k, aril__run *r)
{
    bool before = aril__allocations_close(r->op->name, k->name);
    aril_status s = k->run(r);
    aril__allocations_reopen(before);
    return s;
}

static aril_status run_converted(staging *g)
{
    aril__thread *th = aril__self();
    aril__run staged = *g->r;
    staged.in = g->in;
    staged.out = g->out;
    staged.type = g->type;
    aril_status s = aril__launch(g->k, &staged);
    if (s == ARIL_OK) return return_results(g);
    for (int i = 0; i < g->r->n_out; i++)
        if (!g->r->out[i] && g->out[i]) /* allocated before the kernel failed */
            aril__tensor_release(th, g->out[i]);
    return s;
}

aril_status aril__run_staged(const aril__kernel *k, aril__run *r)
{
    staging g = { .k = k, .r = r, .type = aril__asked_type(k, r) };
    if (r->late) {
        aril_status s = k->plan ? allocate_as_planned(r, k->plan) : aril__run_allocate(r);
        if (s < 0) return s;
    }
    if (aril__likely(is_ready(&g))) return aril__launch(k, r);
    if (takes_all(&g)) return aril__launch(k, r);

    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril__self()->mode.anomaly = false; /* results are checked once, at the end of the op */
    aril_tensor *few[STAGED_INPUTS];
    g.in = few;
    if (r->n_in > STAGED_INPUTS && !(g.in = aril__malloc((size_t)r->n_in * sizeof *g.in)))
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", r->op->name);
    aril_status s = stage_inputs(&g);
    if (s == ARIL_OK) s = stage_outputs(&g);
    if (s == ARIL_OK) s = run_converted(&g);
    if (g.in != few) free(g.in);
    return s;
}
