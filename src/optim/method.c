/* Steps of optimizers that are not element-wise, one parameter at a time. */
#include "optim/optim.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/math.h"
#include "ops/table/apply.h"

/* The gradient in the state's dtype, scaled and clipped. Contiguous, so that sums have the same
 * bits in any memory format. */
static aril_tensor *gradient(const aril_optim_opts *o, const aril__step_values *v,
                             const aril__update *u)
{
    aril_tensor *g =
        aril_contiguous(aril_cast(u->grad, u->p->dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32));
    if (v->factor != 1) g = aril_mul_scalar(g, v->factor);
    return o->clip_value > 0 ? aril_clamp(g, -o->clip_value, o->clip_value) : g;
}

aril_status aril__method_step_all(aril_optim *opt, int n, aril__update *updates)
{
    if (aril__self()->tracer)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "step: %s reads tensor values and cannot be traced",
                          opt->kind->name);
    aril_status s = ARIL_OK;
    for (int i = 0; i < n && s == ARIL_OK; i++) {
        ARIL_SCOPE;
        aril__update *u = &updates[i];
        if (u->done) continue;
        aril__optim_param *p = &opt->params[u->param];
        const aril_optim_opts *o = &opt->groups[p->group].opts;
        aril__step_values v = { .lr = aril_item(u->lr),
                                .factor = u->factor ? aril_item(u->factor) : 1,
                                .t = aril_item(u->step) - (double)p->missed };
        if (v.factor < 0) return ARIL_OK; /* a gradient overflowed */
        if (o->maximize) v.factor = -v.factor;
        s = opt->kind->method->step(o, &v, p, gradient(o, &v, u));
        u->done = s == ARIL_OK;
    }
    for (int i = 0; i < n && s == ARIL_OK; i++) updates[i].done = false;
    return s;
}
