/* Averages of weights over updates: exponential, or with equal weights. */
#include "optim/optim.h"

#include "aril/autocast.h"
#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/math.h"
#include "core/lifetime.h"
#include "core/memory.h"
#include "ops/table/apply.h"

#include <stdio.h>
#include <stdlib.h>

struct aril_average {
    aril__lifetime_slot life; /* for programs that read it */
    aril_average_opts opts;
    int n;
    aril_tensor **params, **means; /* hold references; the means have the parameters' dtypes */
    char **name;
    aril__update *updates;
    aril_tensor *count;  /* [] i64: updates so far */
    aril_tensor *weight; /* [] f64: of the newest value */
    struct update_attrs attrs;
    bool swapped;
    aril__names state;
};

static aril_status start(aril_average *a, const aril_named *params)
{
    size_t n = (size_t)params->n + 1;
    a->params = aril__calloc(n * sizeof *a->params);
    a->means = aril__calloc(n * sizeof *a->means);
    a->name = aril__calloc(n * sizeof *a->name);
    a->updates = aril__calloc(n * sizeof *a->updates + aril__update_buffer(params->n));
    if (!a->params || !a->means || !a->name || !a->updates)
        return aril__fail(ARIL_ERR_MEMORY, "average: out of memory");
    a->count = aril__number_new(0, ARIL_I64);
    a->weight = a->count ? aril__number_new(1, ARIL_F64) : NULL;
    if (!a->weight) return ARIL_ERR_MEMORY;
    a->attrs.rule[0] = ARIL__RULE_average;
    for (int i = 0; i < params->n; i++) {
        char number[16];
        aril_tensor *mean = aril_copy(aril_detach(params->at[i]));
        aril_status s = aril_tensor_status(mean);
        if (s < 0) return s;
        a->n = i + 1;
        a->params[i] = aril_keep(params->at[i]);
        a->means[i] = aril_keep(mean);
        a->name[i] = aril__strdup(aril__param_name(params, i, number, sizeof number));
        if (!a->name[i]) return aril__fail(ARIL_ERR_MEMORY, "average: out of memory");
    }
    return ARIL_OK;
}

aril_average *aril_average_new(const aril_named *params, aril_average_opts opts)
{
    double decay = opts.decay == 0 ? 0.999 : opts.decay == ARIL_ZERO ? 0 : opts.decay;
    if (!params || !(decay >= 0 && decay < 1) || (opts.equal && opts.decay != 0)) {
        if (!params)
            aril__fail(ARIL_ERR_ARG, "average: the parameters are NULL");
        else if (opts.equal && opts.decay != 0)
            aril__fail(ARIL_ERR_ARG, "average: set either .decay or .equal, not both");
        else
            aril__fail(ARIL_ERR_ARG, "average: .decay must be at least 0 and below 1, got %g",
                       decay);
        return NULL;
    }
    if (aril__params_check("average", params) < 0) return NULL;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_average *a = aril__calloc(sizeof *a);
    if (!a) {
        aril__fail(ARIL_ERR_MEMORY, "average: out of memory");
        return NULL;
    }
    a->opts = opts;
    a->opts.decay = decay;
    if (start(a, params) < 0) {
        aril_average_free(a);
        return NULL;
    }
    return a;
}

void aril_average_free(aril_average *a)
{
    if (!a) return;
    aril__lifetime_end(&a->life);
    for (int i = 0; i < a->n; i++) {
        aril_release(a->params[i]);
        aril_release(a->means[i]);
        free(a->name[i]);
    }
    aril_release(a->count);
    aril_release(a->weight);
    aril__names_free(&a->state);
    free(a->params);
    free(a->means);
    free(a->name);
    free(a->updates);
    free(a);
}

/* Moves and casts the means to where the parameters are now, as the state of an optimizer is. */
static aril_status move_means(aril_average *a)
{
    for (int i = 0; i < a->n; i++) {
        const aril_tensor *p = a->params[i], *mean = a->means[i];
        if (!p->storage || (p->dtype == mean->dtype && p->storage->device == mean->storage->device))
            continue;
        ARIL_SCOPE;
        aril_tensor *moved = aril_to(a->means[i], aril_device_of(p));
        moved = aril_cast(moved, (aril_dtype)p->dtype);
        if (aril_tensor_status(moved) < 0) return aril_tensor_status(moved);
        aril_set(&a->means[i], moved);
    }
    return ARIL_OK;
}

/* The same, not traced. A program is made for these means, and for whether they are swapped in. */
static aril_status follow(aril_average *a)
{
    aril__pause pause = aril__trace_pause();
    aril_status s = move_means(a);
    aril__trace_resume(pause);
    if (s == ARIL_OK) s = aril__trace_reads(&a->life, "average of weights");
    if (s == ARIL_OK) s = aril__trace_depend(a->means, (size_t)a->n * sizeof *a->means);
    if (s == ARIL_OK) s = aril__trace_watch(&a->swapped, sizeof a->swapped);
    if (s < 0 || !aril__self()->tracer) return s;
    aril__trace_name(a->count, "average.count");
    for (int i = 0; i < a->n; i++) {
        char name[320];
        snprintf(name, sizeof name, "%s.average", a->name[i]);
        aril__trace_name(a->means[i], name);
    }
    return ARIL_OK;
}

/* The weight of the newest value: 1 of the first one. Computed by ops, so that a program of the
 * update computes it in each run. */
static aril_status weigh(aril_average *a)
{
    aril_device host = aril_cpu();
    aril_tensor *n = aril_cast(a->count, ARIL_F64), *weight;
    if (a->opts.equal)
        weight = aril_rdiv_scalar(aril_add_scalar(n, 1), 1);
    else
        weight = aril_where(aril_eq_scalar(n, 0), aril_full(ARIL_SHAPE(), 1, ARIL_F64, host),
                            aril_full(ARIL_SHAPE(), 1 - a->opts.decay, ARIL_F64, host));
    return aril_tensor_status(aril_copy_(a->weight, weight));
}

aril_status aril_average_update(aril_average *a)
{
    if (!a) return aril__fail(ARIL_ERR_ARG, "average_update: the average is NULL");
    if (a->swapped)
        return aril__fail(ARIL_ERR_STATE, "average_update: the averages are swapped in; call "
                                          "aril_average_swap first");
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    ARIL_NO_AUTOCAST;
    aril_status s = follow(a);
    if (s == ARIL_OK) s = weigh(a);
    if (s < 0) return s;
    for (int i = 0; i < a->n; i++)
        a->updates[i] = (aril__update){
            .p = a->means[i], .grad = a->params[i], .lr = a->weight, .attrs = &a->attrs
        };
    s = aril__update_all(a->n, a->updates, a->updates + a->n);
    return s == ARIL_OK ? aril_tensor_status(aril_add_scalar_(a->count, 1)) : s;
}

/* Copies of all values come first: writing them within a device needs no memory, so the swap is
 * all or nothing. copies: n parameters, then n averages. */
static aril_status swap(aril_average *a, aril_tensor **copies)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < a->n && s == ARIL_OK; i++) {
        aril_tensor *p = a->params[i], *mean = a->means[i];
        aril_tensor *value = aril_copy(aril_detach(p));
        copies[i] = aril_to(value, aril_device_of(mean));
        copies[a->n + i] = aril_to(mean, aril_device_of(p));
        s = aril_tensor_status(copies[i]);
        if (s == ARIL_OK) s = aril_tensor_status(copies[a->n + i]);
    }
    for (int i = 0; i < a->n && s == ARIL_OK; i++) {
        s = aril_tensor_status(aril_copy_(a->params[i], copies[a->n + i]));
        if (s == ARIL_OK) s = aril_tensor_status(aril_copy_(a->means[i], copies[i]));
    }
    return s;
}

static void toggle(void *ctx, const void *data)
{
    aril_average *a = ctx;
    (void)data;
    a->swapped = !a->swapped;
}

aril_status aril_average_swap(aril_average *a)
{
    if (!a) return aril__fail(ARIL_ERR_ARG, "average_swap: the average is NULL");
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor **copies = aril__calloc((2 * (size_t)a->n + 1) * sizeof *copies);
    if (!copies) return aril__fail(ARIL_ERR_MEMORY, "average_swap: out of memory");
    aril_status s = follow(a);
    if (s == ARIL_OK) s = swap(a, copies);
    free(copies);
    if (s == ARIL_OK) s = aril__trace_after(toggle, a, NULL, 0);
    if (s == ARIL_OK) toggle(a, NULL);
    return s;
}

const aril_named *aril_average_state(aril_average *a)
{
    if (!a) {
        aril__fail(ARIL_ERR_ARG, "average_state: the average is NULL");
        return NULL;
    }
    if (a->swapped) {
        aril__fail(ARIL_ERR_STATE, "average_state: the averages are swapped in; call "
                                   "aril_average_swap first");
        return NULL;
    }
    aril__names_clear(&a->state);
    aril_status s = aril__names_add(&a->state, a->count, "average.count");
    for (int i = 0; i < a->n && s == ARIL_OK; i++)
        s = aril__names_add(&a->state, a->means[i], "%s.average", a->name[i]);
    return s < 0 ? NULL : aril__names_list(&a->state);
}

/* Copies the averages, if the list has one of the right shape for each. */
static aril_status load(aril_average *a, const aril__name_lookup *from)
{
    int64_t count;
    aril_status s = aril__named_counts("average_load_state", from, "average.count", 1, &count);
    if (s == ARIL_OK && from->list->n != a->n + 1)
        s = aril__fail(ARIL_ERR_FORMAT, "average_load_state: %d tensors, expected %d",
                       from->list->n, a->n + 1);
    for (int i = 0; i < a->n && s == ARIL_OK; i++) {
        char x[ARIL__SHAPE_TEXT], y[ARIL__SHAPE_TEXT];
        const aril_tensor *t = aril__named_find(from, "%s.average", a->name[i]), *m = a->means[i];
        if (!t)
            s = aril__fail(ARIL_ERR_FORMAT, "average_load_state: '%s.average' is missing",
                           a->name[i]);
        else if ((s = aril__check_value("average_load_state", t)) == ARIL_OK &&
                 (t->dtype != m->dtype || !aril__same_dims(t->ndim, t->dim, m->ndim, m->dim)))
            s = aril__fail(ARIL_ERR_FORMAT,
                           "average_load_state: '%s.average' is %s %s, expected %s %s", a->name[i],
                           aril__dtypes[t->dtype].name, aril__text(x, t),
                           aril__dtypes[m->dtype].name, aril__text(y, m));
    }
    for (int i = 0; i < a->n && s == ARIL_OK; i++) {
        aril_tensor *t = aril__named_find(from, "%s.average", a->name[i]);
        s = aril_tensor_status(aril_copy_(a->means[i], aril_to(t, aril_device_of(a->means[i]))));
    }
    if (s == ARIL_OK) aril__number_set(a->count, (double)count);
    return s;
}

aril_status aril_average_load_state(aril_average *a, const aril_named *from)
{
    if (!a || !from || from->n < 0 || (from->n && !from->at))
        return aril__fail(ARIL_ERR_ARG, "average_load_state: the %s NULL",
                          a ? "state is" : "average is");
    if (a->swapped)
        return aril__fail(ARIL_ERR_STATE, "average_load_state: the averages are swapped in; call "
                                          "aril_average_swap first");
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril__name_lookup names;
    aril_status s = aril__names_index(&names, "average_load_state", from);
    if (s == ARIL_OK) s = load(a, &names);
    aril__names_index_free(&names);
    return s;
}
