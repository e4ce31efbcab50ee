/* Optimizer updates for lists of parameters. */
#include "aril/update.h"

#include "aril/autograd.h"
#include "aril/math.h"
#include "ops/table/apply.h"
#include "ops/update/update.h"

#include <stdlib.h>

static aril_status check_list(const char *what, const char *name, aril_list params, aril_list list,
                              bool optional)
{
    if (list.n == 0 && optional) return ARIL_OK;
    if (list.n != params.n || (list.n && !list.at))
        return aril__fail(ARIL_ERR_ARG, "%s: got %d parameters, but %d %s", what, params.n, list.n,
                          name);
    for (int i = 0; i < list.n; i++) {
        aril_status s = aril__check_value(what, list.at[i]);
        if (s < 0) return s;
    }
    return ARIL_OK;
}

static aril_status check_like(const char *what, const char *name, aril_list params, aril_list list)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    for (int i = 0; i < list.n; i++) {
        const aril_tensor *p = params.at[i], *t = list.at[i];
        if (!aril__same_dims(p->ndim, p->dim, t->ndim, t->dim))
            return aril__fail(ARIL_ERR_SHAPE, "%s: parameter %d has shape %s, but its %s %s", what,
                              i, aril__text(a, p), name, aril__text(b, t));
        bool low = p->dtype == ARIL_F16 || p->dtype == ARIL_BF16;
        if (t->dtype != p->dtype && !(low && t->dtype == ARIL_F32))
            return aril__fail(ARIL_ERR_DTYPE, "%s: parameter %d is %s, but its %s is %s", what, i,
                              aril__dtypes[p->dtype].name, name, aril__dtypes[t->dtype].name);
        if (t->storage->device != p->storage->device)
            return aril__fail(ARIL_ERR_DEVICE,
                              "%s: parameter %d and its %s are on different devices", what, i,
                              name);
    }
    return ARIL_OK;
}

typedef struct part {
    const char *name;
    aril_list list;
    bool optional;
} part;

/* Checks all arguments before anything is written. */
static aril_status check(const char *what, aril_list params, int n, const part *parts,
                         const aril_tensor *lr, const aril_tensor *step, bool needs_step)
{
    aril_status s = aril__check_value(what, lr);
    if (s == ARIL_OK && lr->numel != 1)
        s = aril__fail(ARIL_ERR_SHAPE, "%s: the learning rate must be a scalar", what);
    if (s == ARIL_OK && (needs_step || step)) {
        s = aril__check_value(what, step);
        if (s == ARIL_OK && (step->dtype != ARIL_I64 || step->numel != 1))
            s = aril__fail(ARIL_ERR_ARG, "%s: the step must be an i64 scalar", what);
    }
    if (s == ARIL_OK) s = check_list(what, "parameter", params, params, false);
    for (int i = 0; i < params.n && s == ARIL_OK; i++)
        if (!(DT_FLOAT >> params.at[i]->dtype & 1))
            s = aril__fail(ARIL_ERR_DTYPE,
                           "%s: parameter %d is %s, expected a floating point dtype", what, i,
                           aril__dtypes[params.at[i]->dtype].name);
    for (int k = 0; k < n && s == ARIL_OK; k++) {
        s = check_list(what, parts[k].name, params, parts[k].list, parts[k].optional);
        if (s == ARIL_OK) s = check_like(what, parts[k].name, params, parts[k].list);
    }
    return s;
}

/* The gradient of parameter i: as given, or the accumulated one; NULL if there is none. */
static aril_tensor *grad_of(aril_list params, aril_list grads, int i)
{
    if (grads.n) return grads.at[i];
    return aril_has_grad(params.at[i]) ? aril_grad(params.at[i]) : NULL;
}

/* A number of the host, for parameters on a device: the same memory as a scalar that combines with
 * tensors on any device. */
static aril_tensor *by_value(aril_tensor *t)
{
    aril__thread *th = aril__self();
    if (!t || aril__is_number(t) || t->storage->device != aril__cpu_device) return t;
    aril_tensor *number = aril__give(th, aril__tensor_detached(th, t));
    if (!aril__is_poison(number)) number->flags |= ARIL__WEAK | ARIL__STATE;
    return number;
}

/* Updates each parameter that has a gradient: slots[k] holds state k of all parameters. */
static aril_status update(aril_list params, aril_list grads, aril_tensor *lr, aril_tensor *step,
                          const aril_list *slots, const struct update_attrs *a)
{
    aril__update *u =
        aril__malloc((size_t)params.n * sizeof *u + aril__update_buffer(params.n) + 1);
    if (!u) return aril__fail(ARIL_ERR_MEMORY, "update: out of memory");
    aril_status s = step ? aril_tensor_status(aril_add_scalar_(step, 1)) : ARIL_OK;
    int n = 0;
    lr = by_value(lr);
    step = by_value(step);
    for (int i = 0; i < params.n; i++) {
        aril_tensor *g = grad_of(params, grads, i);
        if (!g) continue;
        u[n] = (aril__update){ .p = params.at[i], .grad = g, .lr = lr, .step = step, .attrs = a };
        for (int k = 0; k < ARIL__RULE_SLOTS; k++)
            u[n].slot[k] = slots[k].n ? slots[k].at[i] : NULL;
        n++;
    }
    if (s == ARIL_OK) s = aril__update_all(n, u, u + params.n);
    free(u);
    return s;
}

aril_status aril_sgd_update(aril_list params, aril_list grads, aril_list buffers, aril_tensor *lr,
                            aril_tensor *step, aril_sgd_update_opts opts)
{
    struct update_attrs a = { .rule = { ARIL__RULE_sgd },
                              .momentum = { opts.momentum },
                              .dampening = { opts.dampening },
                              .weight_decay = { opts.weight_decay },
                              .nesterov = { opts.nesterov },
                              .maximize = { opts.maximize } };
    const part parts[] = { { "gradient", grads, true }, { "buffer", buffers, opts.momentum == 0 } };
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_status s = check("sgd_update", params, 2, parts, lr, step, opts.dampening != 0);
    if (s == ARIL_OK && opts.nesterov && (opts.momentum == 0 || opts.dampening != 0))
        s = aril__fail(ARIL_ERR_ARG,
                       "sgd_update: nesterov needs momentum above 0 and dampening 0, got %g and %g",
                       opts.momentum, opts.dampening);
    if (s < 0) return s;
    aril_list slots[ARIL__RULE_SLOTS] = { { 0 } };
    if (opts.momentum != 0) slots[0] = buffers;
    return update(params, grads, lr, step, slots, &a);
}

static double or_default(double given, double defaults)
{
    return given == 0 ? defaults : given == ARIL_ZERO ? 0 : given;
}

aril_status aril_adam_update(aril_list params, aril_list grads, aril_list m, aril_list v,
                             aril_list largest, aril_tensor *lr, aril_tensor *step,
                             aril_adam_update_opts opts)
{
    struct update_attrs a = { .rule = { ARIL__RULE_adam },
                              .beta1 = { or_default(opts.beta1, 0.9) },
                              .beta2 = { or_default(opts.beta2, 0.999) },
                              .eps = { or_default(opts.eps, 1e-8) },
                              .weight_decay = { opts.weight_decay },
                              .decoupled = { opts.decoupled },
                              .maximize = { opts.maximize } };
    const part parts[] = { { "gradient", grads, true },
                           { "m", m, false },
                           { "v", v, false },
                           { "largest v", largest, true } };
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_status s = check("adam_update", params, 4, parts, lr, step, true);
    if (s == ARIL_OK && !(a.beta1[0] >= 0 && a.beta1[0] < 1 && a.beta2[0] >= 0 && a.beta2[0] < 1))
        s = aril__fail(ARIL_ERR_ARG,
                       "adam_update: beta1 and beta2 must be at least 0 and below 1, got %g and %g",
                       a.beta1[0], a.beta2[0]);
    if (s < 0) return s;
    return update(params, grads, lr, step, (aril_list[]){ m, v, largest }, &a);
}
