/* Optimizers: creation, parameter groups, inspection. */
#include "optim/optim.h"

#include "aril/autograd.h"
#include "aril/scope.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- groups ---- */

static aril_status add_group(aril_optim *opt, const aril_optim_opts *o)
{
    size_t bytes = (size_t)(opt->n_groups + 1) * sizeof *opt->groups;
    aril__optim_group *groups = aril__realloc(opt->groups, bytes);
    if (!groups) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", opt->kind->name);
    opt->groups = groups;
    aril__optim_group *g = &groups[opt->n_groups];
    *g = (aril__optim_group){ .opts = *o, .base = o->lr };
    g->lr = aril__number_new(o->lr, ARIL_F64);
    g->momentum = g->lr ? aril__number_new(0, ARIL_F64) : NULL;
    if (!g->momentum) {
        aril_release(g->lr);
        return ARIL_ERR_MEMORY;
    }
    aril__optim_attrs(opt->kind, &g->opts, &g->attrs);
    opt->n_groups++;
    return ARIL_OK;
}

static void drop_groups(aril_optim *opt, int to)
{
    while (opt->n_groups > to) {
        aril__optim_group *g = &opt->groups[--opt->n_groups];
        aril_release(g->lr);
        aril_release(g->momentum);
    }
}

static void drop_params(aril_optim *opt, int to)
{
    while (opt->n_params > to) {
        aril__optim_param *p = &opt->params[--opt->n_params];
        aril__slots_drop(p);
        aril_release(p->p);
        free(p->name);
    }
}

/* Makes room for n parameters. */
static aril_status reserve(aril_optim *opt, const char *what, size_t n)
{
    aril__optim_param *params = aril__realloc(opt->params, (n + 1) * sizeof *params);
    if (params) opt->params = params;
    size_t bytes = (n + 1) * sizeof *opt->updates + aril__update_buffer((int)n);
    aril__update *updates = params ? aril__realloc(opt->updates, bytes) : NULL;
    if (updates) opt->updates = updates;
    aril_tensor **grads = updates ? aril__realloc(opt->grads, (n + 1) * sizeof *grads) : NULL;
    if (grads) opt->grads = grads;
    bool *took = grads ? aril__realloc(opt->took, (n + 1) * sizeof *took) : NULL;
    if (took) opt->took = took;
    if (took && aril__lookup_reserve(opt, n)) return ARIL_OK;
    return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what);
}

static aril_status check_new(const aril_optim *opt, const char *what, const aril_tensor *p,
                             const char *name)
{
    int same = aril__lookup_tensor(opt, p);
    if (same >= 0)
        return aril__fail(ARIL_ERR_ARG, "%s: parameter '%s' was already added as '%s'", what, name,
                          opt->params[same].name);
    if (aril__lookup_name(opt, name) >= 0)
        return aril__fail(ARIL_ERR_ARG, "%s: two parameters have the name '%s'", what, name);
    const aril__method *method = opt->kind->method;
    return method && method->check ? method->check(what, name, p) : ARIL_OK;
}

static aril_status add_param(aril_optim *opt, const char *what, aril_tensor *t, const char *name,
                             int group)
{
    aril_status s = check_new(opt, what, t, name);
    if (s < 0) return s;
    aril__optim_param *p = &opt->params[opt->n_params];
    *p = (aril__optim_param){ .group = group, .name = aril__strdup(name) };
    if (!p->name) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what);
    p->p = aril_keep(t);
    aril__lookup_add(opt, opt->n_params++);
    return aril__names_add(&opt->listed, t, "%s", name);
}

/* Appends the parameters of a group, all or nothing. The numbering of unnamed tensors continues
 * across groups. They missed the steps that were taken before they were added. */
static aril_status add_params(aril_optim *opt, const char *what, const aril_named *params,
                              int group)
{
    aril_status s = aril__params_check(what, params);
    int before = opt->n_params;
    if (s == ARIL_OK) s = reserve(opt, what, (size_t)(before + params->n));
    if (s < 0) return s;
    int64_t missed = before ? aril_item_int(opt->step) : 0;
    for (int i = 0; i < params->n && s == ARIL_OK; i++) {
        char number[16];
        const char *name = params->name ? params->name[i] : NULL;
        if (!name) {
            snprintf(number, sizeof number, "%d", before + i);
            name = number;
        }
        s = add_param(opt, what, params->at[i], name, group);
        if (s == ARIL_OK) opt->params[before + i].missed = missed;
    }
    if (s < 0) {
        drop_params(opt, before);
        aril__names_cut(&opt->listed, before);
        aril__lookup_reset(opt);
    }
    return s;
}

aril_status aril_optim_set_parameters(aril_optim *opt, const aril_named *params)
{
    if (!opt || !params)
        return aril__fail(ARIL_ERR_ARG, "optim_set_parameters: the %s NULL",
                          opt ? "parameters are" : "optimizer is");
    if (opt->n_params > 0)
        return aril__fail(ARIL_ERR_STATE,
                          "optim_set_parameters: this %s already has %d parameters; add more with "
                          "aril_optim_add_group, or create a new optimizer",
                          opt->kind->name, opt->n_params);
    return add_params(opt, "optim_set_parameters", params, 0);
}

int aril_optim_add_group(aril_optim *opt, const aril_named *params, aril_optim_opts opts)
{
    if (!opt || !params)
        return aril__fail(ARIL_ERR_ARG, "optim_add_group: the %s NULL",
                          opt ? "parameters are" : "optimizer is");
    if (opt->lbfgs)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "optim_add_group: lbfgs supports a single group only");
    aril_optim_opts full;
    aril_status s =
        aril__optim_resolve(opt->kind, "optim_add_group", &opts, &opt->opts, true, &full);
    if (s == ARIL_OK) s = add_group(opt, &full);
    if (s < 0) return s;
    s = add_params(opt, "optim_add_group", params, opt->n_groups - 1);
    if (s < 0) {
        drop_groups(opt, opt->n_groups - 1);
        return s;
    }
    aril__schedules_apply(opt);
    return opt->n_groups - 1;
}

/* ---- creation ---- */

static aril_status start(aril_optim *opt, const aril_named *params, const aril_optim_opts *opts)
{
    const char *what = opt->kind->name;
    aril_optim_opts defaults = aril__optim_kind_defaults(opt->kind);
    aril_status s = aril__optim_resolve(opt->kind, what, opts, &defaults, false, &opt->opts);
    if (s == ARIL_OK) s = add_group(opt, &opt->opts);
    if (s < 0) return s;
    if (!(opt->step = aril__number_new(0, ARIL_I64))) return ARIL_ERR_MEMORY;
    if (opt->opts.accumulate > 1 &&
        !(opt->share = aril__number_new(1.0 / opt->opts.accumulate, ARIL_F64)))
        return ARIL_ERR_MEMORY;
    if (opt->opts.loss_scale > 0 &&
        (!(opt->scale = aril__number_new(opt->opts.loss_scale, ARIL_F32)) ||
         !(opt->good = aril__number_new(0, ARIL_I64))))
        return ARIL_ERR_MEMORY;
    if (opt->kind->facts & NEEDS_CLOSURE && !(opt->lbfgs = aril__lbfgs_new()))
        return ARIL_ERR_MEMORY;
    return params ? add_params(opt, what, params, 0) : ARIL_OK;
}

aril_optim *aril_optim_new(const char *name, const aril_named *params, aril_optim_opts opts)
{
    const aril__optim_kind *kind = aril__optim_kind_find(name);
    aril_optim *opt = kind ? aril__calloc(sizeof *opt) : NULL;
    if (!opt) {
        if (kind) aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", name);
        return NULL;
    }
    opt->kind = kind;
    if (start(opt, params, &opts) < 0) {
        aril_optim_free(opt);
        return NULL;
    }
    return opt;
}

/* The function of each: aril_sgd and so on. */
#define KIND_ROW(kind, ...)                                                 \
    aril_optim *aril_##kind(const aril_named *params, aril_optim_opts opts) \
    {                                                                       \
        return aril_optim_new(#kind, params, opts);                         \
    }
#include "ops/update/optimizers.def"

void aril_optim_free(aril_optim *opt)
{
    if (!opt) return;
    aril__lifetime_end(&opt->life);
    drop_params(opt, 0);
    drop_groups(opt, 0);
    for (int i = 0; i < opt->n_schedules; i++) aril_schedule_free(opt->schedules[i]);
    aril__names_free(&opt->listed);
    aril__names_free(&opt->state);
    aril__lbfgs_free(opt->lbfgs);
    aril_release(opt->step);
    aril_release(opt->share);
    aril_release(opt->scale);
    aril_release(opt->good);
    free(opt->schedules);
    free(opt->lookup.slot);
    free(opt->groups);
    free(opt->params);
    free(opt->updates);
    free(opt->grads);
    free(opt->took);
    free(opt);
}

/* ---- inspection ---- */

const char *aril_optim_name(const aril_optim *opt)
{
    return opt ? opt->kind->name : "NULL";
}

bool aril_optim_needs_closure(const aril_optim *opt)
{
    return opt && opt->kind->facts & NEEDS_CLOSURE;
}

int aril_optim_groups(const aril_optim *opt)
{
    return opt ? opt->n_groups : 0;
}

const aril_named *aril_optim_parameters(const aril_optim *opt)
{
    if (opt) return aril__names_list(&((aril_optim *)(uintptr_t)opt)->listed);
    aril__fail(ARIL_ERR_ARG, "optim_parameters: the optimizer is NULL");
    return NULL;
}

aril_tensor *aril_optim_group_lr(aril_optim *opt, int group)
{
    if (opt && group >= 0 && group < opt->n_groups)
        return aril__optim_check_moved(opt, "optim_lr") < 0 ? aril__poison()
                                                            : opt->groups[group].lr;
    if (!opt)
        aril__fail(ARIL_ERR_ARG, "optim_lr: the optimizer is NULL");
    else
        aril__fail(ARIL_ERR_INDEX, "optim_group_lr: group %d is out of range, there are %d", group,
                   opt->n_groups);
    return aril__poison();
}

aril_tensor *aril_optim_lr(aril_optim *opt)
{
    return aril_optim_group_lr(opt, 0);
}

static void set_lr(aril_optim *opt, double lr)
{
    double first = opt->groups[0].base;
    for (int i = 0; i < opt->n_groups; i++) {
        aril__optim_group *g = &opt->groups[i];
        g->base = i == 0 || first == 0 ? lr : g->base * (lr / first);
        aril__number_set(g->lr, g->base);
    }
    aril__schedules_apply(opt);
}

static void set_lr_after(void *opt, const void *lr)
{
    set_lr(opt, *(const double *)lr);
}

aril_status aril_optim_set_lr(aril_optim *opt, double lr)
{
    if (!opt) return aril__fail(ARIL_ERR_ARG, "optim_set_lr: the optimizer is NULL");
    if (!(lr >= 0 && lr <= 1e300))
        return aril__fail(ARIL_ERR_ARG,
                          "optim_set_lr: the learning rate must be at least 0, got %g", lr);
    if (aril__self()->tracer) return aril__optim_defer(opt, set_lr_after, &lr, sizeof lr);
    set_lr(opt, lr);
    return ARIL_OK;
}

aril_tensor *aril_optim_steps(aril_optim *opt)
{
    if (opt) return opt->step;
    aril__fail(ARIL_ERR_ARG, "optim_steps: the optimizer is NULL");
    return aril__poison();
}

aril_tensor *aril_optim_loss_scale(aril_optim *opt)
{
    return opt ? opt->scale : NULL;
}
