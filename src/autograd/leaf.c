/* Leaves, their gradients, hooks, and the public entry points of the backward pass. */
#include "autograd/backward.h"

#include "aril/create.h"

#include <stdlib.h>

static bool is_leaf_node(const aril__node *n)
{
    return n->flags & ARIL__NODE_LEAF;
}

/* Brings a view's node up to date before it is used. */
static aril_status look(const char *what, aril_tensor *t)
{
    if (!t) return aril__fail(ARIL_ERR_ARG, "%s: the tensor is NULL", what);
    if (t->flags & ARIL__POISON) return aril__refuse_poison(what, -1, t);
    return t->view ? aril__autograd_tape.refresh(aril__self(), t) : ARIL_OK;
}

bool aril_requires_grad(const aril_tensor *t)
{
    if (!t || aril__is_poison(t)) return false;
    if (t->view) aril__autograd_tape.refresh(aril__self(), (aril_tensor *)(uintptr_t)t);
    return t->node != NULL;
}

bool aril_is_leaf(const aril_tensor *t)
{
    return t && !aril__is_poison(t) && (!t->node || is_leaf_node(t->node));
}

aril_status aril_set_requires_grad(aril_tensor *t, bool wants)
{
    aril_status s = look("set_requires_grad", t);
    if (s < 0) return s;
    if (t->node && !is_leaf_node(t->node))
        return wants ? ARIL_OK
                     : aril__fail(ARIL_ERR_GRAD, "set_requires_grad: requires_grad can be turned "
                                                 "off for leaf tensors only; use aril_detach");
    if (wants == (t->node != NULL)) return ARIL_OK;
    aril__thread *th = aril__self();
    if (!wants) {
        aril__bind(th, t, NULL, 0);
        return ARIL_OK;
    }
    if (!aril__is_float((aril_dtype)t->dtype) || !aril__dtypes[t->dtype].computes)
        return aril__fail(
            ARIL_ERR_DTYPE,
            "set_requires_grad: %s tensors cannot require a gradient, only floating point ones can",
            aril__dtypes[t->dtype].name);
    if (t->flags & ARIL__INFERENCE)
        return aril__fail(
            ARIL_ERR_STATE,
            "set_requires_grad: the tensor was created in inference mode; copy it first");
    aril__node *leaf = aril__leaf_new(th);
    if (!leaf) return ARIL_ERR_MEMORY;
    aril__bind(th, t, leaf, 0);
    aril__node_release(th, leaf);
    return ARIL_OK;
}

aril_tensor *aril_parameter(aril_tensor *t)
{
    if (!t) return aril__tensor_keep(aril__null_tensor("parameter"));
    if (aril__is_poison(t)) return aril__tensor_keep(aril__pass_on(t));
    aril_tensor *p = t;
    if ((t->node && !is_leaf_node(t->node)) || t->view) p = aril_detach(t);
    if (p->flags & ARIL__INFERENCE) p = aril_copy(p);
    return aril_set_requires_grad(p, true) < 0 ? aril__tensor_keep(aril__poison())
                                               : aril__tensor_keep(p);
}

aril_status aril__leaf_touched(aril__node *leaf)
{
    aril__tracer *t = aril__self()->tracer;
    return aril__unlikely(t && t->leaf) ? t->leaf(t, leaf) : ARIL_OK;
}

bool aril__leaf_is_outside(const aril__node *leaf)
{
    const aril__tracer *t = aril__self()->tracer;
    return t && t->reached && is_leaf_node(leaf) && !(leaf->flags & ARIL__NODE_TRACED);
}

/* Where the accumulated gradient of t is stored, or NULL. */
static aril_tensor **gathered(const aril_tensor *t)
{
    if (!t || aril__is_poison(t) || !t->node) return NULL;
    if (is_leaf_node(t->node)) return aril__leaf_touched(t->node) < 0 ? NULL : &t->node->grad[0];
    if (t->node->extra && t->node->extra->retained_mask >> t->node_out & 1)
        return &t->node->extra->retained[t->node_out];
    return NULL;
}

bool aril_has_grad(const aril_tensor *t)
{
    aril_tensor **g = gathered(t);
    return g && *g;
}

aril_tensor *aril_grad(const aril_tensor *t)
{
    aril__thread *th = aril__self();
    aril_tensor **g = gathered(t);
    if (g && *g) return aril__give(th, aril__tensor_keep(*g));
    if (!t) return aril__null_tensor("grad");
    if (aril__is_poison(t)) return aril__pass_on((aril_tensor *)(uintptr_t)t);
    aril__fail(ARIL_ERR_GRAD,
               !t->node ? "grad: the tensor does not require a gradient"
               : !g     ? "grad: the gradient of a tensor that is not a leaf is not kept; call "
                          "aril_retain_grad before backward"
                        : "grad: the tensor has no gradient yet; call aril_backward first");
    return aril__poison();
}

/* Whether a gradient is on the device of its tensor, where either is on one. */
static aril_status check_device(const char *what, const aril_tensor *g, const aril_tensor *t)
{
    char a[32], b[32];
    if (!g->storage || !t->storage || g->storage->device == t->storage->device) return ARIL_OK;
    return aril__fail(ARIL_ERR_DEVICE, "%s: the gradient is on %s, but the tensor is on %s", what,
                      aril_device_name(g->storage->device->id, a, sizeof a),
                      aril_device_name(t->storage->device->id, b, sizeof b));
}

aril_status aril_set_grad(aril_tensor *t, aril_tensor *g)
{
    aril_status s = look("set_grad", t);
    if (s < 0) return s;
    aril_tensor **at = gathered(t);
    if (!at)
        return aril__fail(ARIL_ERR_GRAD, "set_grad: the tensor does not keep a gradient; call "
                                         "aril_set_requires_grad or aril_retain_grad first");
    if (g) {
        if (aril__is_poison(g)) return aril_tensor_status(g);
        if ((s = check_device("set_grad", g, t)) < 0) return s;
        if (!aril__dims_fit(g->ndim, g->dim, t->ndim, t->dim) || g->dtype != t->dtype) {
            char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
            return aril__fail(ARIL_ERR_SHAPE,
                              "set_grad: the gradient is %s %s, but the tensor is %s %s",
                              aril__dtypes[g->dtype].name, aril__text(a, g),
                              aril__dtypes[t->dtype].name, aril__text(b, t));
        }
        aril__tensor_keep(g);
    }
    if (*at) aril__tensor_release(aril__self(), *at);
    *at = g;
    return ARIL_OK;
}

void aril_zero_grad(aril_tensor *t)
{
    if (t && gathered(t)) aril_set_grad(t, NULL);
}

aril_status aril_retain_grad(aril_tensor *t)
{
    aril_status s = look("retain_grad", t);
    if (s < 0) return s;
    if (!t->node)
        return aril__fail(ARIL_ERR_GRAD, "retain_grad: the tensor does not require a gradient");
    if (is_leaf_node(t->node)) return ARIL_OK;
    aril__node_extra *e = aril__node_extra_of(t->node);
    if (!e) return ARIL_ERR_MEMORY;
    e->retained_mask |= 1u << t->node_out;
    return ARIL_OK;
}

aril_tensor *aril_detach(aril_tensor *t)
{
    aril__thread *th = aril__self();
    if (!t) return aril__null_tensor("detach");
    if (aril__is_poison(t)) return aril__pass_on(t);
    return aril__give(th, aril__tensor_detached(th, t));
}

void aril__hook_entry_free(aril__hook_entry *h)
{
    if (h->drop) h->drop(h->ctx);
    free(h);
}

/* The traced code runs once, and its program would neither set nor remove a hook. */
static aril_status outside_trace(const char *what, const aril_tensor *t)
{
    char text[ARIL__SHAPE_TEXT];
    if (!t->node || !aril__leaf_is_outside(t->node)) return ARIL_OK;
    return aril__fail(ARIL_ERR_STATE,
                      "%s: in a trace, the hooks of a tensor %s from outside the traced function "
                      "cannot change, since a program would not repeat that; call it before",
                      what, aril__text(text, t));
}

static int add_hook(aril_tensor *t, aril_grad_hook *fn, void *ctx, void (*drop)(void *ctx))
{
    static atomic_int ids;
    aril_status s = look("hook", t);
    if (s < 0) return s;
    if (!fn || !t->node)
        return aril__fail(fn ? ARIL_ERR_GRAD : ARIL_ERR_ARG, "hook: %s",
                          fn ? "the tensor does not require a gradient" : "the function is NULL");
    if ((s = outside_trace("hook", t)) < 0) return s;
    aril__node_extra *e = aril__node_extra_of(t->node);
    aril__hook_entry *h = e ? aril__malloc(sizeof *h) : NULL;
    if (!h) return aril__fail(ARIL_ERR_MEMORY, "hook: out of memory");
    *h = (aril__hook_entry){
        .out = t->node_out, .id = atomic_fetch_add(&ids, 1) + 1, .fn = fn, .ctx = ctx, .drop = drop
    };
    aril__hook_entry **end = &e->hooks;
    while (*end) end = &(*end)->next;
    *end = h;
    return h->id;
}

int aril_hook(aril_tensor *t, aril_grad_hook *fn, void *ctx)
{
    return add_hook(t, fn, ctx, NULL);
}

int aril__hook_owned(aril_tensor *t, aril_grad_hook *fn, void *ctx, void (*drop)(void *ctx))
{
    int id = add_hook(t, fn, ctx, drop);
    if (id < 0) drop(ctx);
    return id;
}

aril_status aril_remove_hook(aril_tensor *t, int id)
{
    aril_status s = look("remove_hook", t);
    if (s == ARIL_OK) s = outside_trace("remove_hook", t);
    if (s < 0) return s;
    for (aril__hook_entry **at = t->node && t->node->extra ? &t->node->extra->hooks : NULL;
         at && *at; at = &(*at)->next) {
        if ((*at)->id == id) {
            aril__hook_entry *h = *at;
            *at = h->next;
            aril__hook_entry_free(h);
            return ARIL_OK;
        }
    }
    return aril__fail(ARIL_ERR_ARG, "remove_hook: the tensor has no hook %d", id);
}

void aril_set_anomaly(bool on)
{
    aril__self()->mode.anomaly = on;
}

/* ---- backward ---- */

static aril_status is_scalar(const aril__requirement *q)
{
    int64_t n = aril__count(q->shape[0].ndim, q->shape[0].dim);
    if (n == 1 || n < 0) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE,
                      "%s: the result has shape %s; backward starts without a gradient from a "
                      "scalar only, pass the gradient of the result",
                      q->what, aril__shape_text(a, q->shape[0].ndim, q->shape[0].dim));
}

static aril_status is_gradient_of(const aril__requirement *q)
{
    const aril_shape *grad = &q->shape[0], *t = &q->shape[1];
    if (aril__shapes_fit(grad, t)) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: the gradient has shape %s, but the result has shape %s",
                      q->what, aril__shape_text(a, grad->ndim, grad->dim),
                      aril__shape_text(b, t->ndim, t->dim));
}

/* The initial gradient: as given, or ones. */
static aril_status start_from(const char *what, aril_tensor *t, aril_tensor *grad, bool scalar,
                              aril_tensor **start)
{
    aril_status s = look(what, t);
    char a[ARIL__SHAPE_TEXT];
    if (s < 0) return s;
    if (!t->node)
        return aril__fail(
            ARIL_ERR_GRAD,
            "%s: the result, %s %s, was not computed from any tensor that requires a gradient",
            what, aril__dtypes[t->dtype].name, aril__text(a, t));
    if (!grad) {
        if (scalar && t->numel != 1 && (s = aril__require_of(what, is_scalar, t)) < 0) return s;
        *start = aril_ones_like(t);
        return aril_tensor_status(*start);
    }
    if (grad->flags & ARIL__POISON) return aril__refuse_poison(what, 1, grad);
    if ((s = aril__require_of(what, is_gradient_of, grad, t)) < 0) return s;
    if (!aril__is_number(grad) && (s = check_device(what, grad, t)) < 0) return s;
    *start = aril_cast(grad, (aril_dtype)t->dtype);
    return aril_tensor_status(*start);
}

/* True for the usual loss: one number in host memory. */
static bool is_plain_loss(const aril__thread *th, const aril_tensor *t)
{
    return t && t->numel == 1 && t->node && !t->view && t->storage && !th->tracer &&
           t->storage->device->host_memory && !(t->flags & ARIL__POISON);
}

/* A new tensor like `t`, which has one element, with the value 1; NULL when out of memory. */
static aril_tensor *one_like(aril__thread *th, const aril_tensor *t)
{
    aril_tensor *one = aril__tensor_new_like(th, t, (aril_dtype)t->dtype);
    if (one) aril__dtypes[t->dtype].store[ARIL__C_F64](aril__base(one), 0, 1, &(double){ 1 }, 1);
    return one;
}

/* The walk takes over the initial gradient, which no scope owns any more. */
static aril_status backward(aril_tensor *t, aril_tensor *grad, bool scalar, aril_grad_opts opts)
{
    aril__thread *th = aril__self();
    aril_tensor *start;
    if (aril__unlikely(t && t->flags & ARIL__SYMBOLIC) && !th->tracer)
        return aril__fail(ARIL_ERR_STATE,
                          "backward: a graph does not change gradients while it is defined; use "
                          "aril_gradients and aril_assign");
    if (aril__likely(!grad && is_plain_loss(th, t))) {
        start = one_like(th, t);
        return start ? aril__backward_from(t, start, opts) : ARIL_ERR_MEMORY;
    }
    aril_guard scope = aril_scope_begin();
    aril_status s = start_from("backward", t, grad, scalar, &start);
    if (s == ARIL_OK) aril__tensor_keep(start);
    aril_guard_end(&scope);
    return s < 0 ? s : aril__backward_from(t, start, opts);
}

aril_status aril_backward_with(aril_tensor *t, aril_tensor *grad, aril_grad_opts opts)
{
    return backward(t, grad, false, opts);
}

aril_status aril_backward(aril_tensor *loss)
{
    return backward(loss, NULL, true, (aril_grad_opts){ 0 });
}

static aril_status gradients(aril_list outputs, aril_list inputs, aril_tensor **grads,
                             aril_grad_opts opts, bool scalar)
{
    aril__thread *th = aril__self();
    if (outputs.n < 1 || inputs.n < 1 || !outputs.at || !inputs.at || !grads)
        return aril__fail(ARIL_ERR_ARG,
                          "gradients: expected results, inputs and an array for the gradients, got "
                          "%d results and %d inputs",
                          outputs.n, inputs.n);
    if (opts.grad_outputs.n && opts.grad_outputs.n != outputs.n)
        return aril__fail(ARIL_ERR_ARG, "gradients: got %d gradients for %d results",
                          opts.grad_outputs.n, outputs.n);
    /* A graph that is defined by calls can be differentiated again. */
    if (outputs.at[0] && outputs.at[0]->flags & ARIL__SYMBOLIC && !th->tracer)
        opts.retain_graph = true;
    size_t n = (size_t)inputs.n, m = (size_t)outputs.n;
    aril__target *target = aril__calloc(n * sizeof *target);
    aril_tensor **captured = aril__calloc(n * sizeof *captured);
    aril_tensor **start = aril__calloc(2 * m * sizeof *start), **root = start ? start + m : NULL;
    int n_roots = 0;
    aril_status s = target && captured && start
                        ? ARIL_OK
                        : aril__fail(ARIL_ERR_MEMORY, "gradients: out of memory");
    {
        ARIL_SCOPE;
        for (size_t i = 0; i < m && s == ARIL_OK; i++) {
            aril_tensor *grad = opts.grad_outputs.n ? opts.grad_outputs.at[i] : NULL;
            s = look("gradients", outputs.at[i]);
            if (s < 0) continue;
            if (opts.allow_unused && !outputs.at[i]->node) { /* it depends on no input */
                if (scalar && outputs.at[i]->numel != 1)
                    s = aril__require_of("gradients", is_scalar, outputs.at[i]);
                continue;
            }
            root[n_roots] = outputs.at[i];
            s = start_from("gradients", outputs.at[i], grad, scalar, &start[n_roots++]);
        }
        for (size_t i = 0; i < n && s == ARIL_OK; i++) {
            s = look("gradients", inputs.at[i]);
            if (s == ARIL_OK && !inputs.at[i]->node && !opts.allow_unused)
                s = aril__fail(ARIL_ERR_GRAD, "gradients: input %zu does not require a gradient",
                               i);
            if (s == ARIL_OK && inputs.at[i]->node)
                target[i] = (aril__target){ inputs.at[i]->node, inputs.at[i]->node_out };
        }
        /* If an input is listed twice, the first captures the gradient, and the loop below shares
         * it. */
        if (s == ARIL_OK && n_roots)
            s = aril__backward(n_roots, root, start, inputs.n, target, captured, opts);
    }
    for (size_t i = 0; i < n && s == ARIL_OK; i++) {
        for (size_t k = 0; k < i && !captured[i]; k++)
            if (target[i].node && target[k].node == target[i].node &&
                target[k].out == target[i].out)
                captured[i] = aril__tensor_keep(grads[k]);
        if (captured[i]) {
            grads[i] = aril__give(th, captured[i]);
            captured[i] = NULL;
        } else if (opts.allow_unused) {
            grads[i] = aril_zeros_like(inputs.at[i]);
        } else {
            s = aril__fail(ARIL_ERR_GRAD,
                           "gradients: the result does not depend on input %zu; set "
                           "allow_unused to get zeros",
                           i);
        }
        if (s == ARIL_OK) s = aril_tensor_status(grads[i]);
    }
    if (s < 0) {
        for (size_t i = 0; i < n; i++) {
            grads[i] = aril__poison();
            if (captured && captured[i]) aril__tensor_release(th, captured[i]);
        }
    }
    free(target);
    free(captured);
    free(start);
    return s;
}

aril_status aril_gradients(aril_tensor *y, aril_list inputs, aril_tensor **grads,
                           aril_grad_opts opts)
{
    return gradients((aril_list){ 1, &y }, inputs, grads, opts, !opts.grad_outputs.n);
}

aril_status aril_gradients_n(aril_list outputs, aril_list inputs, aril_tensor **grads,
                             aril_grad_opts opts)
{
    return gradients(outputs, inputs, grads, opts, false);
}
