/* One step: checks and scales gradients, updates all parameters in one pass, drops gradients. */
#include "optim/optim.h"

#include "aril/autocast.h"
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
    aril_release(p->missed_there);
    p->missed_there = NULL;
}

/* Whether a parameter of that dtype keeps its state, and its master, in f32. */
static bool is_low(const aril_tensor *p)
{
    return p->dtype == ARIL_F16 || p->dtype == ARIL_BF16;
}

static bool wants_master(const aril_optim *opt, const aril__optim_param *p)
{
    return opt->groups[p->group].opts.master_weights && is_low(p->p);
}

aril__slot aril__slot_of(const aril_optim *opt, const aril__optim_param *p, int i)
{
    const aril__optim_group *group = &opt->groups[p->group];
    const aril__method *method = opt->kind->method;
    aril__slot s = { .shape = aril__shape(p->p) };
    if (i == ARIL__MASTER_SLOT) {
        s.name = "master";
        s.wanted = wants_master(opt, p);
        return s;
    }
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

/* Of the memory format of the parameter, where it has its shape. */
static aril_tensor *new_slot(const aril__optim_param *p, const aril__slot *slot)
{
    aril_dtype dtype = slot->scalar || p->p->dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
    bool like = aril__same_dims(slot->shape.ndim, slot->shape.dim, p->p->ndim, p->p->dim);
    if (!like || slot->scalar)
        return aril_full(slot->shape, slot->initial, dtype, aril_device_of(p->p));
    aril_tensor *zeros = aril_cast(aril_zeros_like(p->p), dtype);
    return slot->initial != 0 ? aril_add_scalar(zeros, slot->initial) : zeros;
}

static aril_status make_slots(aril_optim *opt, aril__optim_param *p)
{
    const char *const *names =
        opt->kind->method ? opt->kind->method->slot : aril__rules[opt->kind->rule].slot;
    unsigned scalar = opt->kind->method ? 0 : aril__rules[opt->kind->rule].scalar;
    const aril__optim_group *group = &opt->groups[p->group];
    for (int i = 0; i < ARIL__RULE_SLOTS && names[i]; i++) {
        if (p->slot[i]) { /* the usual case: every step comes here */
            aril_status s = follow(p, i, scalar >> i & 1);
            if (s < 0) return s;
            continue;
        }
        if (!opt->kind->method && !aril__rules[opt->kind->rule].wants(&group->attrs, i)) continue;
        aril__slot slot = aril__slot_of(opt, p, i);
        if (!slot.wanted) continue;
        aril_tensor *t = new_slot(p, &slot);
        aril_status s = aril_tensor_status(t);
        if (s < 0) return s;
        p->slot[i] = aril_keep(t);
    }
    return ARIL_OK;
}

/* A parameter that is no longer in half precision needs no master. */
static aril_status make_master(aril_optim *opt, aril__optim_param *p)
{
    if (p->slot[ARIL__MASTER_SLOT] && wants_master(opt, p))
        return follow(p, ARIL__MASTER_SLOT, false);
    if (p->slot[ARIL__MASTER_SLOT]) {
        aril_release(p->slot[ARIL__MASTER_SLOT]);
        p->slot[ARIL__MASTER_SLOT] = NULL;
    }
    if (!wants_master(opt, p)) return ARIL_OK;
    aril_tensor *t = aril_cast(aril_detach(p->p), ARIL_F32);
    aril_status s = aril_tensor_status(t);
    if (s == ARIL_OK) p->slot[ARIL__MASTER_SLOT] = aril_keep(t);
    return s;
}

/* Suspends tracing: the state has real values even while the step is only being recorded. */
aril_status aril__slots_ready(aril_optim *opt, aril__optim_param *p)
{
    aril__pause pause = aril__trace_pause();
    aril_status s = make_slots(opt, p);
    if (s == ARIL_OK) s = make_master(opt, p);
    aril__trace_resume(pause);
    return s;
}

/* ---- gradient norm and clipping ---- */

/* `value` on the device of t; the same tensor if it is there already, or in a trace, where the
 * gradients have no storage yet. */
static aril_tensor *on_device_of(const aril_tensor *t, aril_tensor *value)
{
    if (!t->storage) return value;
    return aril_to(value, t->storage->device->id);
}

/* The norm of all gradients, in f64 if one of them is f64, on the device of the first; poison on
 * failure. Gradients without elements, which have no maximum norm, add nothing to any. */
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
    int found = 0;
    for (int i = 0; i < n; i++) {
        aril_tensor *g = grads[i];
        if (aril_numel(g) == 0) continue;
        if (g->dtype != ARIL_F64 && g->dtype != ARIL_F32) g = aril_cast(g, ARIL_F32);
        norms[found] = aril_cast(aril_norm(g, ARIL_ALL, p), dtype);
        if (g->storage && grads[0]->storage) norms[found] = on_device_of(grads[0], norms[found]);
        found++;
    }
    aril_tensor *total;
    if (found == 0)
        total = aril_zeros(ARIL_SHAPE(), dtype, aril_device_of(grads[0]));
    else if (found == 1)
        total = norms[0];
    else
        total = aril_norm(aril_stack((aril_list){ found, norms }, 0), ARIL_ALL, p);
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
            aril_tensor *f = aril_cast(on_device_of(grads[i], factor), aril_dtype_of(grads[i]));
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
    if (!opt->scale) return loss;
    if (!loss || !loss->storage || opt->scale->storage->device == aril__cpu_device)
        return aril_mul(loss, opt->scale);
    /* Not a weak scalar: the product keeps the dtype of the loss by a cast. */
    aril_tensor *scaled = aril_mul(aril_cast(loss, loss->dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32),
                                   on_device_of(loss, opt->scale));
    return aril_cast(scaled, (aril_dtype)loss->dtype);
}

/* The number of steps, the loss scale and the steps since it changed after this step; NULL: as they
 * are. Copied at the end, so that a failed step changes none of them. */
typedef struct next_numbers {
    aril_tensor *step, *scale, *good;
    aril_tensor *taken; /* [] i64: 1 if the step is taken, 0 if it is skipped */
} next_numbers;

/* The scale after a step: halved when the step is skipped, doubled after many good ones. Computed
 * by ops, so that a device need not be waited for, and a traced program of the step updates it. */
static void next_scale(aril_optim *opt, aril_tensor *finite, next_numbers *next)
{
    double growth = opt->opts.loss_scale_growth;
    aril_tensor *zero = aril_scalar(0), *one = aril_scalar(1);
    aril_tensor *more = aril_where(finite, aril_add_scalar(opt->good, 1), zero);
    aril_tensor *grows = aril_ge_scalar(more, growth);
    aril_tensor *up = aril_where(grows, aril_scalar(2), one);
    aril_tensor *change = aril_where(finite, up, aril_scalar(0.5));
    aril_tensor *scale = aril_mul(opt->scale, change);
    next->scale = aril_cast(aril_clamp(scale, ARIL__MIN_SCALE, ARIL__MAX_SCALE), ARIL_F32);
    next->good = aril_cast(aril_where(grows, zero, more), ARIL_I64);
}

static aril_status next_status(const next_numbers *n)
{
    aril_status s = n->step ? aril_tensor_status(n->step) : ARIL_OK;
    if (s == ARIL_OK && n->scale) s = aril_tensor_status(n->scale);
    return s == ARIL_OK && n->good ? aril_tensor_status(n->good) : s;
}

/* With a loss scale: a parameter without a gradient missed the step unless it is skipped. */
static aril_status count_missed(aril_optim *opt, aril_tensor *taken)
{
    for (int i = 0; i < opt->n_params; i++) {
        aril__optim_param *p = &opt->params[i];
        if (aril_has_grad(p->p)) continue;
        aril_status s = aril_tensor_status(aril_add_(p->missed_there, taken));
        if (s < 0) return s;
    }
    return ARIL_OK;
}

static aril_status store_numbers(aril_optim *opt, const next_numbers *n)
{
    aril_status s = ARIL_OK;
    if (n->step) s = aril_tensor_status(aril_copy_(opt->step, n->step));
    if (s == ARIL_OK && n->scale) s = aril_tensor_status(aril_copy_(opt->scale, n->scale));
    if (s == ARIL_OK && n->good) s = aril_tensor_status(aril_copy_(opt->good, n->good));
    return s;
}

/* ---- step ---- */

/* Creates what count_missed will count. */
static aril_status missed_ready(aril_optim *opt, aril__device *device)
{
    for (int i = 0; i < opt->n_params; i++) {
        aril__optim_param *p = &opt->params[i];
        if (!p->missed_there && aril_has_grad(p->p)) continue;
        if (!p->missed_there && !(p->missed_there = aril__number_new(0, ARIL_I64)))
            return ARIL_ERR_MEMORY;
        aril_status s = aril__number_to(p->missed_there, device);
        if (s < 0) return s;
    }
    return ARIL_OK;
}

/* Moves the numbers that the step will compute to the device on which it does; not traced, like
 * other state. */
static aril_status numbers_ready(aril_optim *opt)
{
    const aril_tensor *first = opt->updates[0].p;
    if (!opt->scale) return ARIL_OK;
    aril__device *device = first->storage ? first->storage->device : opt->scale->storage->device;
    aril__pause pause = aril__trace_pause();
    aril_status s = aril__number_to(opt->step, device);
    if (s == ARIL_OK) s = aril__number_to(opt->good, device);
    if (s == ARIL_OK) s = aril__number_to(opt->scale, device);
    if (s == ARIL_OK) s = missed_ready(opt, device);
    aril__trace_resume(pause);
    return s;
}

/* The factor for all gradients, [] f64, on the device of the first; NULL: none. Negative: skip the
 * step. With a loss scale, *finite is a boolean: whether the step is taken. */
static aril_status find_factor(aril_optim *opt, int n, aril_tensor **factor, aril_tensor **finite)
{
    const aril_optim_opts *o = &opt->opts;
    *factor = opt->share;
    *finite = NULL;
    if (!opt->scale && o->clip_norm == 0) return ARIL_OK;
    double share = opt->share ? *(double *)aril__ptr(opt->share) : 1;
    aril_tensor *norm =
        aril_cast(total_norm(n, opt->grads, o->clip_norm > 0 ? 2 : INFINITY), ARIL_F64);
    aril_tensor *f = NULL; /* `share` */
    if (opt->scale) f = aril_rdiv_scalar(aril_cast(opt->scale, ARIL_F64), share);
    if (o->clip_norm > 0) {
        aril_tensor *scaled = f ? aril_mul(norm, f) : aril_mul_scalar(norm, share);
        aril_tensor *clip = clip_factor(scaled, o->clip_norm);
        f = f ? aril_mul(f, clip) : aril_mul_scalar(clip, share);
    }
    if (opt->scale) {
        *finite = aril_isfinite(norm);
        f = aril_where(*finite, f, aril_scalar(-1));
    }
    *factor = f;
    return aril_tensor_status(f);
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
                             .momentum = group->moves_momentum ? group->momentum : NULL,
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

static const aril__device *device_of(const aril_tensor *t)
{
    return t->storage ? t->storage->device : NULL;
}

/* An earlier update on the device of update i; NULL: it is the first there. */
static const aril__update *neighbour(const aril_optim *opt, int i)
{
    for (int k = 0; k < i; k++)
        if (device_of(opt->updates[k].p) == device_of(opt->updates[i].p)) return &opt->updates[k];
    return NULL;
}

/* The number of the step as a parameter counts it, whose device `step` is on. */
static aril_tensor *own_step(const aril_optim *opt, const aril__update *u, aril_tensor *step)
{
    aril_tensor *missed = opt->params[u->param].missed_there;
    if (!missed) return step;
    return aril_sub(step, u->p->storage ? on_device_of(u->p, missed) : missed);
}

/* Gives each update the factor and the step: numbers of the host as they are, values of the first
 * parameter's device as one copy for each other device. */
static aril_status spread(aril_optim *opt, int n, aril_tensor *factor, aril_tensor *step)
{
    const aril__device *home = device_of(opt->updates[0].p);
    for (int i = 0; i < n; i++) {
        aril__update *u = &opt->updates[i];
        u->factor = factor;
        u->step = step;
        if (!u->p->storage || device_of(u->p) == home) continue;
        const aril__update *like = neighbour(opt, i);
        if (factor && factor != opt->share)
            u->factor = like ? like->factor : on_device_of(u->p, factor);
        if (opt->scale) u->step = like ? like->step : on_device_of(u->p, step);
    }
    for (int i = 0; i < n; i++) {
        aril__update *u = &opt->updates[i];
        if (opt->scale) u->step = own_step(opt, u, u->step);
        aril_status s = u->factor ? aril_tensor_status(u->factor) : ARIL_OK;
        if (s == ARIL_OK) s = aril_tensor_status(u->step);
        if (s < 0) return s;
    }
    return ARIL_OK;
}

/* Updates read the number of the step, so a number of the host is counted before them. A recorded
 * step counts when it is replayed. */
static aril_status count(aril_optim *opt)
{
    if (aril__self()->tracer) return aril_tensor_status(aril_add_scalar_(opt->step, 1));
    ++*(int64_t *)aril__ptr(opt->step);
    aril__bump_version(opt->step);
    return ARIL_OK;
}

/* Takes the count back after a failure, so that the step can be repeated. */
static void uncount(aril_optim *opt)
{
    if (aril__self()->tracer) return;
    --*(int64_t *)aril__ptr(opt->step);
    aril__bump_version(opt->step);
}

static aril_status update_all(aril_optim *opt, int n)
{
    aril_status s = opt->kind->method
                        ? aril__method_step_all(opt, n, opt->updates)
                        : aril__update_all(n, opt->updates, opt->updates + opt->n_params);
    for (int i = 0; i < n; i++) opt->params[opt->updates[i].param].ahead = opt->updates[i].done;
    return s;
}

/* In a trace: the tensors of the state, which exist now. Loading a state may replace them. */
static aril__cold aril_status watch_state(aril_optim *opt)
{
    aril_status s = ARIL_OK;
    aril__trace_name(opt->step, "step");
    if (opt->scale) aril__trace_name(opt->scale, "loss_scale");
    for (int i = 0; i < opt->n_groups; i++) aril__trace_name(opt->groups[i].lr, "lr");
    for (int i = 0; i < opt->n_params && s == ARIL_OK; i++) {
        aril__optim_param *p = &opt->params[i];
        char name[320];
        s = aril__trace_depend(p->slot, sizeof p->slot);
        for (int k = 0; k < ARIL__UPDATE_SLOTS; k++) {
            if (!p->slot[k]) continue;
            snprintf(name, sizeof name, "%s.%s", p->name, aril__slot_of(opt, p, k).name);
            aril__trace_name(p->slot[k], name);
        }
    }
    return s;
}

/* The ops of a step. None of them waits for a device. */
static aril_status apply_step(aril_optim *opt)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    ARIL_NO_AUTOCAST; /* updates are computed in the dtype of the state, also inside a region */
    aril_tensor *factor = NULL, *finite = NULL;
    next_numbers next = { 0 };
    if (aril__optim_check_moved(opt, "step") < 0) return ARIL_ERR_STATE;
    int n = gather(opt);
    if (n < 0) return n;
    if (n == 0) return no_gradient(opt);
    aril_status s = aril__unlikely(aril__self()->tracer != NULL) ? watch_state(opt) : ARIL_OK;
    if (s == ARIL_OK) s = numbers_ready(opt);
    if (s == ARIL_OK) s = find_factor(opt, n, &factor, &finite);
    if (s < 0) return s;
    if (finite) next.taken = aril_cast(finite, ARIL_I64);
    if (finite) next.step = aril_add(opt->step, next.taken);
    if (finite && opt->opts.loss_scale_growth > 0) next_scale(opt, finite, &next);
    s = next_status(&next);
    if (s == ARIL_OK) s = spread(opt, n, factor, finite ? next.step : opt->step);
    if (s == ARIL_OK && !finite) s = count(opt);
    if (s < 0) return s;
    s = update_all(opt, n);
    if (s < 0 && !finite) uncount(opt);
    if (s == ARIL_OK && finite) s = count_missed(opt, next.taken);
    return s == ARIL_OK ? store_numbers(opt, &next) : s;
}

void aril__step_host(aril_optim *opt, const bool *took)
{
    if (opt->pending + 1 < opt->opts.accumulate) {
        opt->pending++;
        return;
    }
    opt->pending = 0;
    for (int i = 0; i < opt->n_params && !opt->scale; i++) opt->params[i].missed += !took[i];
    if (opt->n_schedules) aril__schedules_advance(opt, true, false, NAN);
}

void aril__step_done(aril_optim *opt)
{
    for (int i = 0; i < opt->n_params; i++) {
        aril_tensor *p = opt->params[i].p;
        opt->took[i] = aril_has_grad(p);
        if (opt->took[i] && !opt->opts.keep_grads) aril_zero_grad(p);
    }
    if (aril__self()->tracer)
        opt->pending = 0;
    else
        aril__step_host(opt, opt->took);
}

/* ---- in a trace ---- */

static void after_run(void *opt, const void *took)
{
    aril__step_host(opt, took);
}

aril_status aril__optim_defer(aril_optim *opt, void (*fn)(void *opt, const void *data),
                              const void *data, size_t bytes)
{
    aril_status s = aril__trace_watch(&opt->moved, sizeof opt->moved); /* false after the trace */
    opt->moved = true;
    return s == ARIL_OK ? aril__trace_after(fn, opt, data, bytes) : s;
}

aril_status aril__optim_check_moved(const aril_optim *opt, const char *what)
{
    if (!opt->moved) return ARIL_OK;
    return aril__fail(ARIL_ERR_STATE,
                      "%s: the traced function has changed the learning rate before, which a "
                      "program does at the end of its run; change it after the last step, or "
                      "between runs",
                      what);
}

/* Whether a step ends with new learning rates. */
static bool moves_rates(const aril_optim *opt)
{
    bool moves = false;
    for (int i = 0; i < opt->n_schedules; i++) moves |= aril__schedule_per_batch(opt->schedules[i]);
    return moves;
}

/* Has each run do the host's part of the step. */
static aril_status record_host(aril_optim *opt)
{
    size_t bytes = (size_t)opt->n_params * sizeof *opt->took;
    return moves_rates(opt) ? aril__optim_defer(opt, after_run, opt->took, bytes)
                            : aril__trace_after(after_run, opt, opt->took, bytes);
}

/* What the recorded ops depend on besides tensors. A program is made for these values. */
static aril_status watch_host(aril_optim *opt)
{
    /* The lists come before their elements: others may have been allocated since. */
    aril_status s = aril__trace_reads(&opt->life, "optimizer");
    if (s == ARIL_OK) s = aril__trace_depend(&opt->groups, sizeof opt->groups);
    if (s == ARIL_OK) s = aril__trace_depend(&opt->n_groups, sizeof opt->n_groups);
    if (s == ARIL_OK) s = aril__trace_depend(&opt->params, sizeof opt->params);
    if (s == ARIL_OK) s = aril__trace_depend(&opt->n_params, sizeof opt->n_params);
    if (s == ARIL_OK) s = aril__trace_watch(&opt->pending, sizeof opt->pending);
    for (int i = 0; i < opt->n_groups && s == ARIL_OK; i++) {
        aril__optim_group *g = &opt->groups[i];
        s = aril__trace_watch(&g->attrs, sizeof g->attrs);
        if (s == ARIL_OK) s = aril__trace_watch(&g->moves_momentum, sizeof g->moves_momentum);
    }
    for (int i = 0; i < opt->n_params && s == ARIL_OK; i++) {
        aril__optim_param *p = &opt->params[i];
        /* A frozen parameter misses every step, which changes nothing until it is unfrozen. */
        bool frozen = !p->p->node && !aril_has_grad(p->p);
        s = frozen ? aril__trace_watch(&p->p->node, sizeof p->p->node)
                   : aril__trace_watch(&p->missed, sizeof p->missed);
    }
    return s;
}

aril_status aril_step(aril_optim *opt)
{
    if (!opt) return aril__fail(ARIL_ERR_ARG, "step: the optimizer is NULL");
    if (aril_optim_needs_closure(opt))
        return aril__fail(
            ARIL_ERR_STATE,
            "step: %s evaluates the loss several times per step; use aril_step_closure",
            opt->kind->name);
    aril_status s = aril__unlikely(aril__self()->tracer != NULL) ? watch_host(opt) : ARIL_OK;
    if (s < 0) return s;
    if (opt->pending + 1 < opt->opts.accumulate) {
        aril__step_host(opt, NULL);
        return aril__trace_after(after_run, opt, NULL, 0);
    }
    s = apply_step(opt);
    if (s == ARIL_OK) aril__step_done(opt);
    return s == ARIL_OK && aril__self()->tracer ? record_host(opt) : s;
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
