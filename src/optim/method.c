/* Steps of optimizers that are not element-wise, one parameter at a time. */
#include "optim/optim.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/math.h"
#include "core/memory.h"
#include "ops/table/apply.h"

#include <stdlib.h>

aril_tensor *aril__method_value(const aril__optim_param *p, aril_dtype dtype)
{
    aril_tensor *x = aril_cast(aril_detach(p->p), dtype), *master = p->slot[ARIL__MASTER_SLOT];
    if (!master) return x;
    aril_tensor *rounded = aril_cast(aril_cast(master, (aril_dtype)p->p->dtype), dtype);
    return aril_where(aril_eq(rounded, x), master, x); /* as the op `update` does */
}

aril_status aril__method_store(const aril__step_values *v, aril_tensor *to, aril_tensor *value)
{
    if (v->skip) value = aril_where(v->skip, aril_detach(to), value);
    value = aril_cast(value, (aril_dtype)to->dtype);
    aril_status s = aril_tensor_status(value);
    if (s < 0) return s;
    v->writes->at[v->writes->n].to = to;
    v->writes->at[v->writes->n++].value = aril_keep(value);
    return ARIL_OK;
}

aril_status aril__method_store_value(const aril__step_values *v, aril__optim_param *p,
                                     aril_tensor *value)
{
    aril_tensor *master = p->slot[ARIL__MASTER_SLOT];
    aril_status s = master ? aril__method_store(v, master, value) : ARIL_OK;
    return s == ARIL_OK ? aril__method_store(v, p->p, value) : s;
}

/* Whether the host can read the value without waiting for a device; in a trace, each run has
 * another one. */
static bool is_here(const aril_tensor *t)
{
    return !aril__self()->tracer && t->storage->device == aril__cpu_device;
}

/* A number of the host, or a tensor, as [] f64 on the device of `like`. */
static aril_tensor *bring(aril_tensor *t, const aril_tensor *like)
{
    if (!aril__self()->tracer) return t; /* is there already */
    return aril_add(aril_zeros(ARIL_SHAPE(), ARIL_F64, aril_device_of(like)), t);
}

aril_tensor *aril__method_number(const aril__step_number *n, double a, double b, aril_dtype dtype)
{
    if (!n->there) return aril_scalar(a + b * n->known);
    return aril_cast(aril_add_scalar(aril_mul_scalar(n->there, b), a), dtype);
}

/* The gradient in the state's dtype, scaled and clipped. Contiguous, so that sums have the same
 * bits in any memory format. */
static aril_tensor *gradient(const aril_optim_opts *o, const aril__update *u)
{
    aril_dtype dtype = u->p->dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
    aril_tensor *g = aril_contiguous(aril_cast(u->grad, dtype));
    double sign = o->maximize ? -1 : 1, factor = sign;
    if (u->factor && is_here(u->factor))
        factor *= aril_item(u->factor);
    else if (u->factor)
        g = aril_mul(g, aril_cast(bring(u->factor, u->p), dtype));
    if (factor != 1) g = aril_mul_scalar(g, factor);
    return o->clip_value > 0 ? aril_clamp(g, -o->clip_value, o->clip_value) : g;
}

static aril__step_number number_of(const aril__update *u, aril_tensor *t, double missed)
{
    if (is_here(t)) return (aril__step_number){ .known = aril_item(t) - missed };
    return (aril__step_number){ .there =
                                    aril_add_scalar(aril_cast(bring(t, u->p), ARIL_F64), -missed) };
}

static aril__step_values values_of(const aril__optim_group *group, const aril__optim_param *p,
                                   const aril__update *u)
{
    aril__step_values v = { .lr = number_of(u, u->lr, 0),
                            .momentum = { .known = group->opts.momentum },
                            .t = number_of(u, u->step, (double)p->missed) };
    if (u->momentum) v.momentum = number_of(u, u->momentum, 0);
    if (u->factor && !is_here(u->factor)) v.skip = aril_lt_scalar(bring(u->factor, u->p), 0);
    return v;
}

static aril_status compute(aril_optim *opt, aril__update *u, aril__writes *writes)
{
    ARIL_SCOPE;
    if (u->factor && is_here(u->factor) && aril_item(u->factor) < 0)
        return ARIL_OK; /* a gradient overflowed */
    aril__optim_param *p = &opt->params[u->param];
    const aril__optim_group *group = &opt->groups[p->group];
    aril__step_values v = values_of(group, p, u);
    v.writes = writes;
    return opt->kind->method->step(&group->opts, &v, p, gradient(&group->opts, u));
}

aril_status aril__method_step_all(aril_optim *opt, int n, aril__update *updates)
{
    aril__writes *w = NULL;
    size_t most = (size_t)n * (ARIL__UPDATE_SLOTS + 1);
    if (!(w = aril__calloc(sizeof *w + most * sizeof w->at[0])))
        return aril__fail(ARIL_ERR_MEMORY, "step: out of memory");
    aril_status s = ARIL_OK;
    for (int i = 0; i < n && s == ARIL_OK; i++) s = compute(opt, &updates[i], w);
    for (int i = 0; i < w->n && s == ARIL_OK; i++)
        s = aril_tensor_status(aril_copy_(w->at[i].to, w->at[i].value));
    for (int i = 0; i < w->n; i++) aril_release(w->at[i].value);
    free(w);
    return s;
}
