#include "ops/table/autocast.h"

#include "aril/autocast.h"
#include "aril/autograd.h"
#include "aril/create.h"
#include "core/casts.h"
#include "ops/shape/copy.h"
#include "ops/table/apply.h"

#include <stdlib.h>

/* ---- which dtype ---- */

/* A number adopts the dtype of the other operands by itself. */
static bool is_float_value(const aril_tensor *t)
{
    return t && !(t->flags & (ARIL__POISON | ARIL__WEAK | ARIL__SHAPE_ONLY)) &&
           aril__is_float((aril_dtype)t->dtype);
}

static bool may_cast(const aril_tensor *t)
{
    return is_float_value(t) &&
           (t->dtype == ARIL_F32 || t->dtype == ARIL_BF16 || t->dtype == ARIL_F16);
}

/* The widest dtype of the inputs that may be cast, as a set of them. */
static aril_dtype widest(uint32_t types)
{
    bool one = (types & (types - 1)) == 0;
    if (one && types & DT(ARIL_BF16)) return ARIL_BF16;
    return one && types & DT(ARIL_F16) ? ARIL_F16 : ARIL_F32;
}

/* The dtype that inputs are cast to; false: they stay as they are. A call with an f64 input is left
 * alone, since its other inputs would lose digits that the result has. */
static bool choose(unsigned class_, aril_dtype low, int n, aril_tensor *const *in, aril_dtype *to)
{
    uint32_t types = 0;
    for (int i = 0; i < n; i++)
        if (is_float_value(in[i])) types |= DT(in[i]->dtype);
    if (class_ == CAST_NONE || low == ARIL_F32 || !types || types & DT(ARIL_F64)) return false;
    *to = class_ == CAST_LOW ? low : class_ == CAST_F32 ? ARIL_F32 : widest(types);
    return true;
}

static int kind_of(int n, aril_tensor *const *in)
{
    for (int i = 0; i < n; i++)
        if (in[i] && in[i]->storage && !(in[i]->flags & ARIL__WEAK))
            return in[i]->storage->device->id.kind;
    return ARIL__CPU;
}

/* ---- casts ---- */

/* A leaf that requires a gradient is used again and again in a region. In a trace every cast has to
 * be seen. */
static bool is_weight(const aril__thread *th, const aril_tensor *t)
{
    return !th->tracer && t->node && t->storage && !t->view && aril_is_leaf(t);
}

/* The values of a weight in another dtype, without a graph: of the region, or computed. */
static const aril_tensor *weight_values(aril__thread *th, aril_tensor *weight, aril_dtype to)
{
    const aril_tensor *kept = aril__casts_find(th, weight, to);
    if (kept) return kept;
    aril__mode mode = th->mode;
    th->mode.no_grad = true;
    th->mode.inference = false; /* what is kept may join a graph later */
    aril_tensor *values = aril_cast(weight, to);
    th->mode = mode;
    if (!(values->flags & ARIL__POISON)) aril__casts_keep(th, weight, values);
    return values;
}

static aril_tensor *cast_weight(aril__thread *th, aril_tensor *weight, aril_dtype to)
{
    const struct cast_attrs attrs = { .dtype = { to } };
    aril_tensor *out[1] = { NULL };
    ARIL_SCOPE;
    const aril_tensor *values = weight_values(th, weight, to);
    if (values->flags & ARIL__POISON) return aril_escape(aril__poison());
    out[0] = aril__give(th, aril__tensor_detached(th, values));
    if (out[0]->flags & ARIL__POISON) return aril_escape(out[0]);
    if (th->mode.inference) out[0]->flags |= ARIL__INFERENCE;
    if (!th->mode.no_grad &&
        aril__tape_hook.record(th, &aril__op_cast, 1, &weight, &attrs, 1, out, NULL) < 0)
        return aril_escape(aril__poison());
    return aril_escape(out[0]);
}

static aril_tensor *cast_input(aril__thread *th, aril_tensor *t, aril_dtype to)
{
    if (!may_cast(t) || t->dtype == to) return t;
    return is_weight(th, t) ? cast_weight(th, t, to) : aril_cast(t, to);
}

/* ---- one call ---- */

static unsigned class_of(const aril__call *c)
{
    return c->op->cast == CAST_BY_CALL ? c->op->cast_of(c) : c->op->cast;
}

static unsigned class_in(const aril__call *c, aril_dtype low)
{
    unsigned class_ = class_of(c);
    if (class_ != CAST_F32_IN_F16) return class_;
    return low == ARIL_F16 ? CAST_F32 : CAST_NONE;
}

static aril_dtype low_dtype(const aril__thread *th, const aril__call *c)
{
    int kind = c->device ? c->device->id.kind : kind_of(c->n_in, c->in);
    return aril__autocast_dtype(&th->mode, kind);
}

bool aril__cast_applies(const aril__thread *th, const aril__call *c)
{
    aril_dtype low = low_dtype(th, c);
    return low != ARIL_F32 && class_in(c, low) != CAST_NONE;
}

aril_status aril__cast_begin(aril__thread *th, const aril__call *c, aril__cast_call *k)
{
    aril_dtype to, low = low_dtype(th, c);
    bool casts = choose(class_in(c, low), low, c->n_in, c->in, &to);
    k->autocast = th->mode.autocast;
    k->in = k->few;
    if (c->n_in > ARIL__CAST_INPUTS) k->in = aril__malloc((size_t)c->n_in * sizeof *k->in);
    if (!k->in) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", c->op->name);
    th->mode.autocast = 0;
    for (int i = 0; i < c->n_in; i++) {
        bool shape_only = i < 31 && c->op->shape_only >> i & 1;
        k->in[i] = casts && !shape_only ? cast_input(th, c->in[i], to) : c->in[i];
    }
    return ARIL_OK;
}

void aril__cast_end(aril__thread *th, const aril__call *c, aril__cast_call *k)
{
    th->mode.autocast = k->autocast;
    if (!k->in) return;
    for (int i = 0; i < c->n_in; i++)
        if (k->in[i] != c->in[i]) aril_drop(k->in[i]);
    if (k->in != k->few) free(k->in);
}

aril_guard aril__cast_as(unsigned class_, int n, aril_tensor **const *arg)
{
    aril__thread *th = aril__self();
    if (aril__likely(!th->mode.autocast)) return (aril_guard){ UINT32_MAX };
    enum { MAX_ARGS = 4 };
    ARIL_ASSERT(n <= MAX_ARGS);
    aril_tensor *in[MAX_ARGS];
    for (int i = 0; i < n; i++) in[i] = *arg[i];
    aril_dtype low = aril__autocast_dtype(&th->mode, kind_of(n, in)), to;
    bool casts = choose(class_, low, n, in, &to);
    aril_guard g = aril_no_autocast_begin();
    for (int i = 0; i < n && casts; i++) *arg[i] = cast_input(th, in[i], to);
    return g;
}
