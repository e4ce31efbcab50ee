/* Callbacks: call order, state, and the small built-in ones. */
#include "core/error.h"
#include "core/memory.h"
#include "train/model.h"

#include <stdlib.h>

aril_callback *aril_callback_make(const aril_callback_class *type)
{
    if (type == NULL || type->name == NULL) {
        aril__fail(ARIL_ERR_ARG, "a callback needs a class with a name");
        return NULL;
    }
    aril_callback *cb = aril__calloc(sizeof *cb);
    void *data = type->size > 0 ? aril__calloc(type->size) : NULL;
    if (cb == NULL || (type->size > 0 && data == NULL)) {
        free(cb);
        free(data);
        aril__fail(ARIL_ERR_MEMORY, "out of memory for the callback %s", type->name);
        return NULL;
    }
    cb->type = type;
    cb->data = data;
    return cb;
}

void *aril_callback_data(aril_callback *cb)
{
    return cb != NULL ? cb->data : NULL;
}

void aril_callback_free(aril_callback *cb)
{
    if (cb == NULL) return;
    if (cb->type->destroy != NULL) cb->type->destroy(cb);
    aril__states_clear(&cb->states);
    free(cb->data);
    free(cb);
}

aril_tensor *aril_callback_get(aril_callback *cb, const char *name)
{
    return cb != NULL ? aril__states_get(&cb->states, name) : NULL;
}

aril_status aril_callback_set(aril_callback *cb, const char *name, aril_tensor *value)
{
    if (cb == NULL) return aril__fail(ARIL_ERR_ARG, "callback_set: the callback is NULL");
    return aril__states_set(&cb->states, name, value);
}

aril_status aril__callbacks_call(aril_fit *fit, aril__moment when)
{
    aril_callback *const *all = fit->opts.callbacks.at;
    for (int i = 0; i < fit->opts.callbacks.n; i++) {
        const aril_callback_class *type = all[i]->type;
        aril_status (*const fn[])(aril_callback *, aril_fit *) = { type->begin, type->epoch_begin,
                                                                   type->batch_end, type->epoch_end,
                                                                   type->end };
        if (fn[when] == NULL) continue;
        aril_status status = fn[when](all[i], fit);
        aril__model_put_back(fit->model);
        if (status >= 0) continue;
        /* A callback that set an error keeps its own message. */
        return aril_ok() ? aril__fail(status, "the callback %s ended the fit with status %d (%s)",
                                      type->name, (int)status, aril_status_text(status))
                         : status;
    }
    return ARIL_OK;
}

/* ---- functions ---- */

typedef struct function {
    aril_callback_fn *fn;
    void *ctx;
} function;

static aril_status call_function(aril_callback *cb, aril_fit *fit)
{
    const function *f = cb->data;
    return f->fn(fit, f->ctx);
}

static const aril_callback_class on_epoch = { .name = "on_epoch",
                                              .size = sizeof(function),
                                              .epoch_end = call_function };
static const aril_callback_class on_batch = { .name = "on_batch",
                                              .size = sizeof(function),
                                              .batch_end = call_function };

static aril_callback *of_function(const aril_callback_class *type, aril_callback_fn *fn, void *ctx)
{
    if (fn == NULL) {
        aril__fail(ARIL_ERR_ARG, "aril_%s takes a function, got NULL", type->name);
        return NULL;
    }
    aril_callback *cb = aril_callback_make(type);
    if (cb != NULL) *(function *)cb->data = (function){ fn, ctx };
    return cb;
}

aril_callback *aril_on_epoch(aril_callback_fn *fn, void *ctx)
{
    return of_function(&on_epoch, fn, ctx);
}

aril_callback *aril_on_batch(aril_callback_fn *fn, void *ctx)
{
    return of_function(&on_batch, fn, ctx);
}

/* ---- learning rate ---- */

typedef struct rate {
    aril_lr_fn *fn;
    void *ctx;
} rate;

static aril_status set_rate(aril_callback *cb, aril_fit *fit)
{
    const rate *r = cb->data;
    aril_optim *opt = aril_model_optim(fit->model);
    return aril_optim_set_lr(opt, r->fn(fit->epoch, aril_item(aril_optim_lr(opt)), r->ctx));
}

static const aril_callback_class rate_class = { .name = "rate",
                                                .size = sizeof(rate),
                                                .epoch_begin = set_rate };

aril_callback *aril_lr_callback(aril_lr_fn *fn, void *ctx)
{
    if (fn == NULL) {
        aril__fail(ARIL_ERR_ARG, "aril_lr_callback takes a function, got NULL");
        return NULL;
    }
    aril_callback *cb = aril_callback_make(&rate_class);
    if (cb != NULL) *(rate *)cb->data = (rate){ fn, ctx };
    return cb;
}
