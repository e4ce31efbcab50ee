/* Module hooks: functions called before and after forward, and when a gradient is known. */
#include "autograd/node.h"
#include "nn/module.h"

#include "aril/view.h"

#include <stdlib.h>
#include <string.h>

static void hook_release(aril__module_hook *h)
{
    if (atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) == 1) free(h);
}

static int add_hook(aril_module *m, aril__module_hook hook, bool complete)
{
    static atomic_int ids;
    if (!m || !complete)
        return aril__fail(ARIL_ERR_ARG, "module_hook: the %s is NULL", m ? "function" : "module");
    aril__module_hook *h = aril__malloc(sizeof *h);
    if (!h) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for a hook", m->type->type);
    *h = hook;
    h->next = NULL;
    atomic_init(&h->refs, 1);
    h->module = m;
    h->id = atomic_fetch_add(&ids, 1) + 1;
    aril__module_hook **end = &m->hooks;
    while (*end) end = &(*end)->next;
    *end = h;
    return h->id;
}

int aril_module_hook_before(aril_module *m, aril_pre_hook *fn, void *ctx)
{
    return add_hook(m,
                    (aril__module_hook){ .kind = ARIL__HOOK_BEFORE, .fn.before = fn, .ctx = ctx },
                    fn != NULL);
}

int aril_module_hook_after(aril_module *m, aril_post_hook *fn, void *ctx)
{
    return add_hook(m, (aril__module_hook){ .kind = ARIL__HOOK_AFTER, .fn.after = fn, .ctx = ctx },
                    fn != NULL);
}

int aril_module_hook_backward(aril_module *m, aril_backward_hook *fn, void *ctx)
{
    return add_hook(
        m, (aril__module_hook){ .kind = ARIL__HOOK_BACKWARD, .fn.backward = fn, .ctx = ctx },
        fn != NULL);
}

aril_status aril_module_unhook(aril_module *m, int id)
{
    for (aril__module_hook **at = m ? &m->hooks : NULL; at && *at; at = &(*at)->next) {
        if ((*at)->id != id) continue;
        aril__module_hook *h = *at;
        *at = h->next;
        h->module = NULL; /* graphs that still hold it skip it */
        hook_release(h);
        return ARIL_OK;
    }
    return aril__fail(ARIL_ERR_ARG, "module_unhook: %s has no hook %d", aril_module_type(m), id);
}

void aril__hooks_free(aril_module *m)
{
    while (m->hooks) {
        aril__module_hook *h = m->hooks;
        m->hooks = h->next;
        h->module = NULL;
        hook_release(h);
    }
}

/* The next hook of a kind: the first with a larger id, since a hook may remove hooks. */
static aril__module_hook *next_hook(const aril_module *m, aril__hook_kind kind, int last)
{
    for (aril__module_hook *h = m->hooks; h; h = h->next)
        if (h->kind == kind && h->id > last) return h;
    return NULL;
}

/* A backward hook pending in a graph, for the gradient of one result. */
typedef struct waiting {
    aril__module_hook *hook;
    int out;
} waiting;

static aril_tensor *call_backward(aril_tensor *grad, void *ctx)
{
    waiting *w = ctx;
    aril__module_hook *h = w->hook;
    return h->module ? h->fn.backward(h->module, w->out, grad, h->ctx) : NULL;
}

static void waiting_drop(void *ctx)
{
    waiting *w = ctx;
    hook_release(w->hook);
    free(w);
}

static aril_status wait_for_gradient(aril__module_hook *h, int out, aril_tensor **result)
{
    aril_tensor *y = *result;
    if (!y || !aril_grad_enabled() || !aril_requires_grad(y)) return ARIL_OK;
    if (aril_is_leaf(y)) {
        /* A leaf passed through unchanged keeps its own hooks: attach this one to a view of it. */
        *result = y = aril_view(y, aril_shape_of(y));
        if (aril_tensor_status(y) < 0) return aril_tensor_status(y);
    }
    waiting *w = aril__malloc(sizeof *w);
    if (!w) return aril__fail(ARIL_ERR_MEMORY, "hook: out of memory");
    *w = (waiting){ h, out };
    atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
    int id = aril__hook_owned(y, call_backward, w, waiting_drop);
    return id < 0 ? id : ARIL_OK;
}

enum { FEW = 16 };

aril_status aril__run_hooked(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                             aril_tensor **out)
{
    aril_tensor *few[FEW] = { NULL };
    aril_tensor **use = n_in <= FEW ? few : aril__malloc((size_t)n_in * sizeof *use);
    if (!use) return aril__fail(ARIL_ERR_MEMORY, "out of memory for %d inputs", n_in);
    memcpy(use, in, (size_t)n_in * sizeof *use);
    aril__module_hook *h;
    for (int last = 0; (h = next_hook(m, ARIL__HOOK_BEFORE, last)) != NULL;) {
        last = h->id;
        h->fn.before(m, n_in, use, h->ctx);
    }
    bool removed = n_in > 0 && !use[0]; /* data layers have no input */
    aril_status s = removed ? aril__fail(ARIL_ERR_ARG, "a hook removed the input") : ARIL_OK;
    if (s == ARIL_OK) s = aril__run_class(m, n_in, use, n_out, out);
    for (int last = 0; s == ARIL_OK && (h = next_hook(m, ARIL__HOOK_AFTER, last)) != NULL;) {
        last = h->id;
        h->fn.after(m, n_in, use, n_out, out, h->ctx);
        if (n_out > 0 && !out[0]) s = aril__fail(ARIL_ERR_ARG, "a hook removed the result");
    }
    for (int last = 0; s == ARIL_OK && (h = next_hook(m, ARIL__HOOK_BACKWARD, last)) != NULL;) {
        last = h->id;
        for (int i = 0; i < n_out && s == ARIL_OK; i++) s = wait_for_gradient(h, i, &out[i]);
    }
    if (use != few) free(use);
    if (s < 0 && n_out > 0) out[0] = aril__poison();
    return s;
}
