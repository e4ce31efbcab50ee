/* One step: checks and scales gradients, updates all parameters in one pass, drops gradients. */
#include "optim/optim.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "ops/table/apply.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

aril_tensor *aril__grad_of(aril_tensor *p)
{
    return aril_has_grad(p) ? aril_grad(p) : NULL;
}

/* ---- state of a parameter ---- */

void aril__slots_drop(aril__optim_param *p)
{
    for (int i = 0; i < ARIL__UPDATE_SLOTS; i++) {
        aril_release(p->slot[i]);
        p->slot[i] = NULL;
    }
}

aril__slot aril__slot_of(const aril_optim *opt, const aril__optim_param *p, int i)
{
    const aril__optim_group *group = &opt->groups[p->group];
    const aril__method *method = opt->kind->method;
    aril__slot s = { .shape = aril__shape(p->p) };
    if (method) {
        s.name = method->slot[i];
        s.wanted = s.name && method->slot_shape(aril__shape(p->p), i, &s.shape);
        return s;
    }
    const aril__rule_row *rule = &aril__rules[opt->kind->rule];
    s.name = rule->slot[i];
    s.wanted = rule->wants(&group->attrs, i);
    if (!s.wanted) return s;
    s.scalar = rule->scalar >> i & 1;
    s.initial = rule->initial(&group->attrs, *(double *)aril__ptr(group->lr), i);
    if (s.scalar) s.shape = ARIL_SHAPE();
    return s;
}

/* Moves and casts the state along with its parameter; half-precision parameters keep f32 state. */
static aril_status follow(aril__optim_param *p, int i, bool single)
{
    aril_dtype want = single || p->p->dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
    aril_tensor *t = p->slot[i];
    if (!p->p->storage || (t->dtype == want && t->storage->device == p->p->storage->device))
        return ARIL_OK;
    t = aril_cast(aril_to(t, aril_device_of(p->p)), want);
    aril_status s = aril_tensor_status(t);
    if (s == ARIL_OK) aril_set(&p->slot[i], t);
    return s;
}

static aril_status make_slots(aril_optim *opt, aril__optim_param *p)
{
    const char *const *names =
        opt->kind->method ? opt->kind->method->slot : aril__rules[opt->kind->rule].slot;
    unsigned scalar = opt->kind->method ? 0 : aril__rules[opt->kind->rule].scalar;
    const aril__optim_group *group = &opt->groups[p->group];
    for (int i = 0; i < ARIL__UPDATE_SLOTS && names[i]; i++) {
        if (p->slot[i]) { /* the usual case: every step comes here */
            aril_status s = follow(p, i, scalar >> i & 1);
            if (s < 0) return s;
            continue;
        }
        if (!opt->kind->method && !aril__rules[opt->kind->rule].wants(&group->attrs, i)) continue;
        aril__slot slot = aril__slot_of(opt, p, i);
        if (!slot.wanted) continue;
        aril_dtype dtype = slot.scalar || p->p->dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
        bool like = aril__same_dims(slot.shape.ndim, slot.shape.dim, p->p->ndim, p->p->dim);
        aril_tensor *t = p->p->dtype == dtype && like && !slot.scalar
                             ? aril_zeros_like(p->p)
                             : aril_zeros(slot.shape, dtype, aril_device_of(p->p));
        if (slot.initial != 0) t = aril_fill_(t, slot.initial);
        aril_status s = aril_tensor_status(t);
        if (s < 0) return s;
        p->slot[i] = aril_keep(t);
    }
    return ARIL_OK;
}

/* Suspends tracing: the state has real values even while the step is only being recorded. */
aril_status aril__slots_ready(aril_optim *opt, aril__optim_param *p)
{
    aril__thread *th = aril__self();
    aril__tracer *tracer = th->tracer;
    th->tracer = NULL;
    aril_status s = make_slots(opt, p);
    th->tracer = tracer;
    return s;
}

/* ---- gradient norm and clipping ---- */

/* The norm of all gradients, in f64 if one of them is f64; poison on failure. */
static aril_tensor *total_norm(int n, aril_tensor *const *grads, double p)
{
    aril_tensor *few[32], **norms = few;
    if (n == 0) return aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu());
    if (n > 32 && !(norms = aril__malloc((size_t)n * sizeof *norms))) {
        aril__fail(ARIL_ERR_MEMORY, "clip_grad_norm: out of memory");
        return aril__poison();
    }
    aril_dtype dtype = ARIL_F32;
    for (int i = 0; i < n; i++)
        if (grads[i]->dtype == ARIL_F64) dtype = ARIL_F64;
    for (int i = 0; i < n; i++) {
        aril_tensor *g = grads[i];
        if (g->dtype != ARIL_F64 && g->dtype != ARIL_F32) g = aril_cast(g, ARIL_F32);
        norms[i] = aril_cast(aril_norm(g, ARIL_ALL, p), dtype);
        if (g->storage && g->storage->device != aril__cpu_device && grads[0]->storage &&
            grads[0]->storage->device != g->storage->device)
            norms[i] = aril_to(norms[i], aril_device_of(grads[0]));
    }
    aril_tensor *total =
        n == 1 ? norms[0] : aril_norm(aril_stack((aril_list){ n, norms }, 0), ARIL_ALL, p);
    if (norms != few) free(norms);
    return total;
}

/* The factor that scales gradients so that their norm is at most `most`. */
static aril_tensor *clip_factor(aril_tensor *norm, double max)
{
    return aril_clamp_max(aril_rdiv_scalar(aril_add_scalar(norm, 1e-6), max), 1);
}

aril_tensor *aril_clip_grad_norm(const aril_named *params, double max_norm, double p)
{
    if (!params || aril__params_check("clip_grad_norm", params) < 0 || !(max_norm >= 0) ||
        !(p >= 0)) {
        if (!params)
            aril__fail(ARIL_ERR_ARG, "clip_grad_norm: the parameters are NULL");
        else if (!(max_norm >= 0) || !(p >= 0))
            aril__fail(ARIL_ERR_ARG,
                       "clip_grad_norm: max_norm and p must be at least 0, got %g and %g", max_norm,
                       p);
        return aril__poison();
    }
    aril_guard scope = aril_scope_begin();
    aril_guard quiet = aril_no_grad_begin();
    aril_tensor **grads = aril__malloc((size_t)(params->n + 1) * sizeof *grads), *norm;
    int n = 0;
    if (!grads) {
        aril__fail(ARIL_ERR_MEMORY, "clip_grad_norm: out of memory");
        norm = aril__poison();
    } else {
        for (int i = 0; i < params->n; i++)
            if (aril_has_grad(params->at[i])) grads[n++] = aril_grad(params->at[i]);
        norm = total_norm(n, grads, p == 0 ? 2 : p);
        aril_tensor *factor = clip_factor(norm, max_norm);
        for (int i = 0; i < n && aril_tensor_status(factor) == ARIL_OK; i++) {
            aril_tensor *f = aril_cast(factor, aril_dtype_of(grads[i]));
            if (aril_tensor_status(aril_mul_(grads[i], f)) < 0) norm = aril__poison();
        }
    }
    free(grads);
    aril_guard_end(&quiet);
    aril_escape(norm);
    aril_guard_end(&scope);
    return norm;
}

aril_status aril_clip_grad_value(const aril_named *params, double max)
{
    if (!params || !(max >= 0))
        return aril__fail(ARIL_ERR_ARG, "clip_grad_value: %s",
                          params ? "the limit must be at least 0" : "the parameters are NULL");
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_status s = aril__params_check("clip_grad_value", params);
    for (int i = 0; i < params->n && s == ARIL_OK; i++)
        if (aril_has_grad(params->at[i]))
            s = aril_tensor_status(aril_clamp_(aril_grad(params->at[i]), -max, max));
    return s;
}

/* ---- loss scale ---- */

aril_tensor *aril_scale_loss(aril_optim *opt, aril_tensor *loss)
{
    if (!opt) {
        aril__fail(ARIL_ERR_ARG, "scale_loss: the optimizer is NULL");
        return aril__poison();
    }
    return opt->scale ? aril_mul(loss, opt->scale) : loss;
}

/* The scale after a step: halved when the step is skipped, doubled after many good ones. Computed
 * by ops, so that a traced program of the step updates it too. */
static aril_status next_scale(aril_optim *opt, aril_tensor *finite, aril_tensor **scale,
                              aril_tensor **good)
{
    double growth = opt->opts.loss_scale_growth;
    aril_tensor *zero = aril_scalar(0), *one = aril_scalar(1);
    aril_tensor *more = aril_where(finite, aril_add_scalar(opt->good, 1), zero);
    aril_tensor *grows = aril_ge_scalar(more, growth);
    aril_tensor *up = aril_where(grows, aril_scalar(2), one);
    aril_tensor *change = aril_where(finite, up, aril_scalar(0.5));
    /* At 0 or infinity it would stay there forever. */
    aril_tensor *next = aril_clamp(aril_mul(opt->scale, change), 0x1p-126, 0x1p126);
    *scale = aril_cast(next, ARIL_F32);
    *good = aril_cast(aril_where(grows, zero, more), ARIL_I64);
    aril_status s = aril_tensor_status(*scale);
    return s < 0 ? s : aril_tensor_status(*good);
}

/* ---- step ---- */

/* The factor for all gradients, [] f64; NULL: none. Negative: skip the step. With a loss scale,
 * *finite is a boolean: whether the step is taken. */
static aril_status find_factor(aril_optim *opt, int n, aril_tensor **factor, aril_tensor **finite)
{
    const aril_optim_opts *o = &opt->opts;
    *factor = *finite = NULL;
    if (!opt->scale && o->clip_norm == 0) {
        *factor = opt->share;
        return ARIL_OK;
    }
    aril_tensor *norm = total_norm(n, opt->grads, o->clip_norm > 0 ? 2 : INFINITY);
    norm = aril_cast(aril_to(norm, aril_cpu()), ARIL_F64);
    aril_tensor *f = opt->share ? opt->share : aril_ones(ARIL_SHAPE(), ARIL_F64, aril_cpu());
    if (opt->scale) f = aril_div(f, aril_cast(opt->scale, ARIL_F64));
    if (o->clip_norm > 0) f = aril_mul(f, clip_factor(aril_mul(norm, f), o->clip_norm));
    if (opt->scale) {
        *finite = aril_isfinite(norm);
        f = aril_where(*finite, f, aril_scalar(-1));
    }
    aril_status s = aril_tensor_status(f);
    if (s == ARIL_OK && f != opt->share) f->flags |= ARIL__WEAK;
    *factor = f;
    return s;
}

/* Fills opt->updates and opt->grads with the parameters that have a gradient; returns their number,
 * or a negative status. */
static int gather(aril_optim *opt)
{
    int n = 0;
    for (int i = 0; i < opt->n_params; i++) {
        aril__optim_param *p = &opt->params[i];
        aril__optim_group *group = &opt->groups[p->group];
        aril_tensor *g = aril__grad_of(p->p);
        if (!g) continue;
        aril_status s = aril__slots_ready(opt, p);
        if (s < 0) return s;
        if (p->missed) {
            p->own = group->attrs;
            p->own.missed[0] = p->missed;
        }
        aril__update *u = &opt->updates[n];
        *u = (aril__update){ .param = i,
                             .done = p->ahead,
                             .p = p->p,
                             .grad = g,
                             .lr = group->lr,
                             .step = opt->step,
                             .attrs = p->missed ? &p->own : &group->attrs };
        memcpy(u->slot, p->slot, sizeof u->slot);
        opt->grads[n++] = g;
    }
    return n;
}

static aril_status no_gradient(const aril_optim *opt)
{
    if (opt->n_params == 0)
        return aril__fail(
            ARIL_ERR_STATE,
            "step: this %s has no parameters; add them with aril_optim_set_parameters",
            opt->kind->name);
    return aril__fail(ARIL_ERR_GRAD,
                      "step: none of the %d parameters has a gradient; call aril_backward first",
                      opt->n_params);
}

void aril__step_done(aril_optim *opt)
{
    for (int i = 0; i < opt->n_params; i++) {
        aril__optim_param *p = &opt->params[i];
        if (!aril_has_grad(p->p))
            p->missed++;
        else if (!opt->opts.keep_grads)
            aril_zero_grad(p->p);
    }
    opt->pending = 0;
    if (opt->n_schedules) aril__schedules_advance(opt, true, false, NAN);
}

/* Updates read the number of the step, so it is counted before them. */
static aril_status count(aril_optim *opt, aril_tensor *finite)
{
    if (finite) return aril_tensor_status(aril_add_(opt->step, aril_cast(finite, ARIL_I64)));
    if (aril__self()->tracer) return aril_tensor_status(aril_add_scalar_(opt->step, 1));
    ++*(int64_t *)aril__ptr(opt->step);
    aril__bump_version(opt->step);
    return ARIL_OK;
}

/* Takes the count back after a failure, so that the step can be repeated. A recorded step has not
 * counted yet. */
static void uncount(aril_optim *opt, int64_t before)
{
    if (aril__self()->tracer) return;
    *(int64_t *)aril__ptr(opt->step) = before;
    aril__bump_version(opt->step);
}

aril_status aril_step(aril_optim *opt)
{
    if (!opt) return aril__fail(ARIL_ERR_ARG, "step: the optimizer is NULL");
    if (aril_optim_needs_closure(opt))
        return aril__fail(
            ARIL_ERR_STATE,
            "step: %s evaluates the loss several times per step; use aril_step_closure",
            opt->kind->name);
    if (opt->pending + 1 < opt->opts.accumulate) {
        opt->pending++;
        return ARIL_OK;
    }
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *factor, *finite, *scale = NULL, *good = NULL;
    int n = gather(opt);
    if (n < 0) return n;
    if (n == 0) return no_gradient(opt);
    aril_status s = find_factor(opt, n, &factor, &finite);
    if (s == ARIL_OK && finite && opt->opts.loss_scale_growth > 0)
        s = next_scale(opt, finite, &scale, &good);
    int64_t before = *(int64_t *)aril__ptr(opt->step);
    if (s == ARIL_OK) s = count(opt, finite);
    if (s < 0) return s;
    for (int i = 0; i < n && factor; i++) opt->updates[i].factor = factor;
    s = opt->kind->method ? aril__method_step_all(opt, n, opt->updates)
                          : aril__update_all(n, opt->updates, opt->updates + opt->n_params);
    for (int i = 0; i < n; i++) opt->params[opt->updates[i].param].ahead = opt->updates[i].done;
    if (s == ARIL_OK && scale) s = aril_tensor_status(aril_copy_(opt->scale, scale));
    if (s == ARIL_OK && scale) s = aril_tensor_status(aril_copy_(opt->good, good));
    if (s == ARIL_OK)
        aril__step_done(opt);
    else
        uncount(opt, before);
    return s;
}

aril_tensor *aril_step_closure(aril_optim *opt, aril_closure *fn, void *ctx)
{
    if (!opt || !fn) {
        aril__fail(ARIL_ERR_ARG, "step_closure: the %s is NULL", opt ? "function" : "optimizer");
        return aril__poison();
    }
    if (opt->lbfgs) return aril__lbfgs_step(opt, fn, ctx);
    if (opt->pending == 0) aril_optim_zero_grad(opt);
    aril_tensor *loss = fn(ctx);
    if (!loss) return aril__null_tensor("step_closure");
    if (aril_tensor_status(loss) == ARIL_OK && aril_step(opt) < 0) return aril__poison();
    return loss;
}

void aril_optim_zero_grad(aril_optim *opt)
{
    for (int i = 0; opt && i < opt->n_params; i++) aril_zero_grad(opt->params[i].p);
}
