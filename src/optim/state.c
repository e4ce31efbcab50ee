/* The state of an optimizer: everything that later steps depend on. */
#include "optim/optim.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- saving ---- */

/* Adds a copy of the optimizer's own numbers. */
static aril_status add_numbers(aril__names *to, const char *name, const void *data, int64_t n,
                               aril_dtype dtype)
{
    return aril__names_add(to, aril_from(data, ARIL_SHAPE(n), dtype, aril_cpu()), "%s", name);
}

static aril_status add_param(aril_optim *opt, const aril__optim_param *p)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < ARIL__UPDATE_SLOTS && s == ARIL_OK; i++)
        if (p->slot[i])
            s = aril__names_add(&opt->state, p->slot[i], "%s.%s", p->name,
                                aril__slot_of(opt, p, i).name);
    if (s == ARIL_OK && opt->pending && aril_has_grad(p->p))
        s = aril__names_add(&opt->state, aril_grad(p->p), "%s.grad", p->name);
    return s;
}

static aril_status add_integer(aril_optim *opt)
{
    aril__names *to = &opt->state;
    size_t max = (size_t)(opt->n_params + opt->n_groups + 1);
    for (int i = 0; i < opt->n_schedules; i++)
        max += (size_t)aril__schedule_count(opt->schedules[i]);
    double *numbers = aril__malloc(max * sizeof *numbers);
    int64_t *counts = aril__malloc(max * sizeof *counts);
    aril_status s =
        numbers && counts ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "optim_state: out of memory");
    if (s == ARIL_OK) s = aril__names_add(to, opt->step, "optim.step");
    for (int i = 0; i < opt->n_groups && s == ARIL_OK; i++) {
        s = i ? aril__names_add(to, opt->groups[i].lr, "optim.lr.%d", i)
              : aril__names_add(to, opt->groups[i].lr, "optim.lr");
        numbers[i] = opt->groups[i].base;
    }
    if (s == ARIL_OK) s = add_numbers(to, "optim.base_lr", numbers, opt->n_groups, ARIL_F64);
    for (int i = 0; i < opt->n_params && s == ARIL_OK; i++) counts[i] = opt->params[i].missed;
    if (s == ARIL_OK) s = add_numbers(to, "optim.missed", counts, opt->n_params, ARIL_I64);
    for (int i = 0; i < opt->n_params && s == ARIL_OK; i++)
        counts[i + 1] = opt->pending && aril_has_grad(opt->params[i].p);
    if (s == ARIL_OK) counts[0] = opt->pending; /* ... and which parameters have a gradient */
    if (s == ARIL_OK && opt->share)
        s = add_numbers(to, "optim.pending", counts, 1 + opt->n_params, ARIL_I64);
    if (s == ARIL_OK && opt->scale) s = aril__names_add(to, opt->scale, "optim.loss_scale");
    if (s == ARIL_OK && opt->scale) s = aril__names_add(to, opt->good, "optim.good");
    for (int i = 0; i < opt->n_schedules && s == ARIL_OK; i++) {
        char name[48];
        snprintf(name, sizeof name, "optim.schedule.%d", i);
        aril__schedule_get(opt->schedules[i], numbers);
        s = add_numbers(to, name, numbers, aril__schedule_count(opt->schedules[i]), ARIL_F64);
    }
    free(numbers);
    free(counts);
    return s;
}

const aril_named *aril_optim_state(aril_optim *opt)
{
    if (!opt) {
        aril__fail(ARIL_ERR_ARG, "optim_state: the optimizer is NULL");
        return NULL;
    }
    ARIL_SCOPE;
    aril__names_clear(&opt->state);
    aril_status s = add_integer(opt);
    for (int i = 0; i < opt->n_params && s == ARIL_OK; i++) s = add_param(opt, &opt->params[i]);
    if (s == ARIL_OK && opt->lbfgs) s = aril__lbfgs_state(opt->lbfgs, &opt->state);
    for (int i = 0; i < opt->state.n && s == ARIL_OK; i++) s = aril_tensor_status(opt->state.at[i]);
    if (s < 0) {
        aril__names_clear(&opt->state);
        return NULL;
    }
    return aril__names_list(&opt->state);
}

/* ---- loading ---- */

/* Everything read, before anything is changed. */
typedef struct reading {
    int64_t step, good;
    int64_t *pending; /* accumulated calls, then for each parameter whether it has a gradient */
    float scale;
    int known;       /* number of names used */
    double *numbers; /* learning rates, base rates, schedules */
    int64_t *missed;
    aril_tensor **slots; /* ARIL__UPDATE_SLOTS per parameter */
    aril_tensor **grads;
    aril__lbfgs *lbfgs;
} reading;

static void reading_free(reading *r, int n)
{
    for (int i = 0; i < n && r->slots; i++)
        for (int k = 0; k < ARIL__UPDATE_SLOTS; k++)
            aril_release(r->slots[i * ARIL__UPDATE_SLOTS + k]);
    for (int i = 0; i < n && r->grads; i++) aril_release(r->grads[i]);
    free(r->numbers);
    free(r->missed);
    free(r->pending);
    free(r->slots);
    free(r->grads);
    aril__lbfgs_free(r->lbfgs);
}

static aril_status read_numbers(reading *r, const aril__name_lookup *from, const char *name,
                                aril_dtype dtype, int64_t n, void *copy)
{
    r->known++;
    return aril__named_numbers("optim_load_state", from, name, dtype, n, copy);
}

static aril_status read_counts(reading *r, const aril__name_lookup *from, const char *name,
                               int64_t n, int64_t *copy)
{
    r->known++;
    return aril__named_counts("optim_load_state", from, name, n, copy);
}

/* Learning rates: a non-finite one would destroy every weight at the next step. */
static aril_status read_rates(reading *r, const aril__name_lookup *from, const char *name,
                              int64_t n, double *copy)
{
    aril_status s = read_numbers(r, from, name, ARIL_F64, n, copy);
    for (int64_t i = 0; i < n && s == ARIL_OK; i++)
        if (!isfinite(copy[i]))
            s = aril__fail(ARIL_ERR_FORMAT,
                           "optim_load_state: '%s' holds %g, expected a learning rate", name,
                           copy[i]);
    return s;
}

static aril_status read_integer(const aril_optim *opt, const aril__name_lookup *from, reading *r)
{
    aril_status s = read_counts(r, from, "optim.step", 1, &r->step);
    char name[48] = "optim.lr";
    double *to = r->numbers;
    for (int i = 0; i < opt->n_groups && s == ARIL_OK; i++) {
        if (i) snprintf(name, sizeof name, "optim.lr.%d", i);
        s = read_rates(r, from, name, 1, to++);
    }
    if (s == ARIL_OK) s = read_rates(r, from, "optim.base_lr", opt->n_groups, to);
    to += opt->n_groups;
    if (s == ARIL_OK) s = read_counts(r, from, "optim.missed", opt->n_params, r->missed);
    if (s == ARIL_OK && opt->share)
        s = read_counts(r, from, "optim.pending", 1 + opt->n_params, r->pending);
    if (s == ARIL_OK && opt->scale)
        s = read_numbers(r, from, "optim.loss_scale", ARIL_F32, 1, &r->scale);
    if (s == ARIL_OK && opt->scale) s = read_counts(r, from, "optim.good", 1, &r->good);
    for (int i = 0; i < opt->n_schedules && s == ARIL_OK; i++) {
        int n = aril__schedule_count(opt->schedules[i]);
        snprintf(name, sizeof name, "optim.schedule.%d", i);
        s = read_numbers(r, from, name, ARIL_F64, n, to);
        if (s == ARIL_OK) s = aril__schedule_check(opt->schedules[i], name, to);
        to += n;
    }
    return s;
}

/* A copy of `t`, which must be `dtype` of that shape, for parameter p; the caller owns it. */
static aril_status copy_for(const aril__optim_param *p, const char *name, aril_tensor *t,
                            aril_dtype dtype, aril_shape shape, aril_tensor **to)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    aril_status s = aril__check_value("optim_load_state", t);
    if (s < 0) return s;
    if (!aril__same_dims(t->ndim, t->dim, shape.ndim, shape.dim) || t->dtype != dtype)
        return aril__fail(ARIL_ERR_FORMAT, "optim_load_state: '%s.%s' is %s %s, expected %s %s",
                          p->name, name, aril__dtypes[t->dtype].name, aril__text(a, t),
                          aril__dtypes[dtype].name, aril__shape_text(b, shape.ndim, shape.dim));
    aril_tensor *copy = aril_zeros(shape, dtype, aril_device_of(p->p));
    copy = aril_copy_(copy, aril_to(t, aril_device_of(p->p)));
    s = aril_tensor_status(copy);
    if (s == ARIL_OK) *to = aril_keep(copy);
    return s;
}

/* A parameter that was updated has all of its state, any other has none. */
static aril_status read_param(const aril_optim *opt, const aril__name_lookup *from, reading *r,
                              int i)
{
    const aril__optim_param *p = &opt->params[i];
    aril_dtype dtype = p->p->dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
    aril_status s = ARIL_OK;
    for (int k = 0; k < ARIL__UPDATE_SLOTS && s == ARIL_OK; k++) {
        aril__slot slot = aril__slot_of(opt, p, k);
        if (!slot.wanted) continue;
        aril_tensor *t = aril__named_find(from, "%s.%s", p->name, slot.name);
        if (!t && r->step - r->missed[i] > 0)
            return aril__fail(ARIL_ERR_FORMAT, "optim_load_state: '%s.%s' is missing", p->name,
                              slot.name);
        if (!t) continue;
        r->known++;
        s = copy_for(p, slot.name, t, slot.scalar ? ARIL_F64 : dtype, slot.shape,
                     &r->slots[i * ARIL__UPDATE_SLOTS + k]);
    }
    if (s < 0 || !r->pending[i + 1]) return s;
    aril_tensor *g = aril__named_find(from, "%s.grad", p->name);
    if (!g) return aril__fail(ARIL_ERR_FORMAT, "optim_load_state: '%s.grad' is missing", p->name);
    r->known++;
    s = copy_for(p, "grad", g, (aril_dtype)p->p->dtype, aril__shape(p->p), &r->grads[i]);
    return s;
}

/* Nothing below can fail. */
static void commit(aril_optim *opt, reading *r)
{
    aril__number_set(opt->step, (double)r->step);
    const double *at = r->numbers;
    for (int i = 0; i < opt->n_groups; i++) {
        aril__number_set(opt->groups[i].lr, at[i]);
        opt->groups[i].base = at[opt->n_groups + i];
    }
    at += 2 * opt->n_groups;
    opt->pending = r->pending[0];
    if (opt->scale) aril__number_set(opt->scale, r->scale);
    if (opt->scale) aril__number_set(opt->good, (double)r->good);
    for (int i = 0; i < opt->n_schedules; i++) {
        aril__schedule_put(opt->schedules[i], at);
        at += aril__schedule_count(opt->schedules[i]);
    }
    aril__schedules_apply_momentum(opt);
    for (int i = 0; i < opt->n_params; i++) {
        aril__optim_param *p = &opt->params[i];
        p->missed = r->missed[i];
        p->ahead = false;
        aril__slots_drop(p);
        memcpy(p->slot, r->slots + (size_t)i * ARIL__UPDATE_SLOTS, sizeof p->slot);
        memset(r->slots + (size_t)i * ARIL__UPDATE_SLOTS, 0, sizeof p->slot);
        aril_zero_grad(p->p);
        if (r->grads[i]) aril_set_grad(p->p, r->grads[i]);
    }
    if (opt->lbfgs) {
        aril__lbfgs *before = opt->lbfgs;
        opt->lbfgs = r->lbfgs;
        r->lbfgs = before;
    }
}

static aril_status read_all(const aril_optim *opt, const aril__name_lookup *from, reading *r)
{
    size_t n = (size_t)opt->n_params + 1, numbers = 2 * (size_t)opt->n_groups;
    for (int i = 0; i < opt->n_schedules; i++)
        numbers += (size_t)aril__schedule_count(opt->schedules[i]);
    r->numbers = aril__calloc(numbers * sizeof *r->numbers);
    r->missed = aril__calloc(n * sizeof *r->missed);
    r->pending = aril__calloc(n * sizeof *r->pending);
    r->slots = aril__calloc(n * ARIL__UPDATE_SLOTS * sizeof *r->slots);
    r->grads = aril__calloc(n * sizeof *r->grads);
    if (!r->numbers || !r->missed || !r->pending || !r->slots || !r->grads)
        return aril__fail(ARIL_ERR_MEMORY, "optim_load_state: out of memory");
    aril_status s = read_integer(opt, from, r);
    for (int i = 0; i < opt->n_params && s == ARIL_OK; i++) s = read_param(opt, from, r, i);
    if (s == ARIL_OK && opt->lbfgs) s = aril__lbfgs_read(opt, from, &r->lbfgs, &r->known);
    if (s == ARIL_OK && r->known != from->list->n)
        s = aril__fail(ARIL_ERR_FORMAT,
                       "optim_load_state: %d of %d tensors are unknown to this %s; was the state "
                       "saved by another optimizer, or with other groups or schedules?",
                       from->list->n - r->known, from->list->n, opt->kind->name);
    return s;
}

/* Moves numbers that are on a device to the host, where setting them cannot fail; the next step
 * moves them back. */
static aril_status numbers_home(aril_optim *opt)
{
    aril_status s = aril__number_to(opt->step, aril__cpu_device);
    if (s == ARIL_OK && opt->scale) s = aril__number_to(opt->scale, aril__cpu_device);
    if (s == ARIL_OK && opt->scale) s = aril__number_to(opt->good, aril__cpu_device);
    return s;
}

aril_status aril_optim_load_state(aril_optim *opt, const aril_named *from)
{
    if (!opt || !from || from->n < 0 || (from->n && !from->at))
        return aril__fail(ARIL_ERR_ARG, "optim_load_state: the %s NULL",
                          opt ? "state is" : "optimizer is");
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    reading r = { 0 };
    aril_status s = numbers_home(opt);
    aril__name_lookup names = { 0 };
    if (s == ARIL_OK) s = aril__names_index(&names, "optim_load_state", from);
    if (s == ARIL_OK) s = read_all(opt, &names, &r);
    if (s == ARIL_OK) commit(opt, &r);
    reading_free(&r, opt->n_params);
    aril__names_index_free(&names);
    return s;
}
