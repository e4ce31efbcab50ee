/* The backward pass: visits nodes in reverse order of creation, each once, after all gradients that
 * flow into it have arrived. */
#include "autograd/backward.h"

#include "aril/create.h"
#include "aril/math.h"
#include "core/log.h"
#include "core/profile.h"
#include "ops/elementwise/elementwise.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct walk {
    aril__thread *th;
    aril__node **heap; /* greatest sequence first */
    int n, cap;
    aril__node *inline_heap[64];
    bool retain, create;
    bool prune;  /* only nodes marked as needed */
    bool leaves; /* the walk ends at the targets, and other leaves accumulate gradients */
    bool plain;  /* hooks of leaves are not called */
    int n_targets;
    const aril__target *target;
    aril_tensor **captured; /* per target */
    struct pending {
        aril__node *leaf;
        aril_tensor *grad;
    } * pending; /* leaves with hooks, which see the full gradient after the walk */
    int n_pending, cap_pending;
    unsigned id;
} walk;

/* The name in profiles of the time spent between the ops of a backward pass. */
static const char WALK[] = "(backward)";

/* ---- the heap ---- */

static bool heap_push(walk *w, aril__node *n)
{
    if (w->n == w->cap) {
        int cap = w->cap * 2;
        aril__node **grown = aril__malloc((size_t)cap * sizeof *grown);
        if (!grown) return false;
        memcpy(grown, w->heap, (size_t)w->n * sizeof *grown);
        if (w->heap != w->inline_heap) free(w->heap);
        w->heap = grown;
        w->cap = cap;
    }
    int at = w->n++;
    for (; at > 0 && w->heap[(at - 1) / 2]->sequence < n->sequence; at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = n;
    return true;
}

static aril__node *heap_pop(walk *w)
{
    aril__node *top = w->heap[0], *last = w->heap[--w->n];
    int at = 0;
    for (int child = 1; child < w->n; child = 2 * at + 1) {
        if (child + 1 < w->n && w->heap[child + 1]->sequence > w->heap[child]->sequence) child++;
        if (w->heap[child]->sequence <= last->sequence) break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = last;
    return top;
}

/* ---- accumulation ---- */

/* True if nothing else refers to the memory of `t`, so that it may be modified or kept. */
static bool is_ours(const aril_tensor *t)
{
    return atomic_load_explicit(&t->refs, memory_order_relaxed) == 1 && t->storage &&
           atomic_load_explicit(&t->storage->refs, memory_order_relaxed) == 1 && !t->node &&
           !t->storage->deleter;
}

/* Adds g (takes over the reference) to *sum. */
static aril_status gather(walk *w, aril_tensor **sum, aril_tensor *g)
{
    aril_tensor *old = *sum;
    if (!old) {
        *sum = g;
        return ARIL_OK;
    }
    ARIL_SCOPE;
    aril_status s = ARIL_OK;
    bool alike = !w->create && old->dtype == g->dtype;
    if (alike && is_ours(old) && aril__is_packed(old)) {
        s = aril_tensor_status(aril_add_(old, g));
    } else if (alike && is_ours(g) && aril__is_packed(g)) {
        s = aril_tensor_status(aril_add_(g, old));
        *sum = g;
        g = old;
    } else {
        aril_tensor *both = aril_add(old, g);
        s = aril_tensor_status(both);
        *sum = aril__tensor_keep(both);
        aril__tensor_release(w->th, old);
    }
    aril__tensor_release(w->th, g);
    return s;
}

static void lock_leaf(aril__node *leaf)
{
    while (atomic_exchange_explicit(&leaf->busy, 1, memory_order_acquire))
        ;
}

static void unlock_leaf(aril__node *leaf)
{
    atomic_store_explicit(&leaf->busy, 0, memory_order_release);
}

/* Adds g (takes over the reference) to the gradient of a leaf. */
static aril_status add_to_leaf(walk *w, aril__node *leaf, aril_tensor *g)
{
    aril_status s = aril__leaf_touched(leaf);
    if (s < 0) {
        aril__tensor_release(w->th, g);
        return s;
    }
    lock_leaf(leaf);
    if (!leaf->grad[0] && !w->create && !(is_ours(g) && aril__is_packed(g)) && g->storage) {
        /* The memory is shared, or g is an expanded view: the leaf gets a copy. */
        ARIL_SCOPE;
        aril_tensor *own = aril_copy(g);
        s = aril_tensor_status(own);
        leaf->grad[0] = s < 0 ? NULL : aril__tensor_keep(own);
        aril__tensor_release(w->th, g);
    } else {
        s = gather(w, &leaf->grad[0], g);
    }
    unlock_leaf(leaf);
    return s;
}

static int target_of(const walk *w, const aril__node *n, uint32_t out)
{
    for (int i = 0; i < w->n_targets; i++)
        if (w->target[i].node == n && w->target[i].out == out) return i;
    return -1;
}

/* Is a gradient that arrives at n needed? Several threads may reach one leaf concurrently, so
 * leaves are not marked. */
static bool is_needed(const walk *w, const aril__node *n)
{
    if (!w->prune) return true;
    if (n->flags & ARIL__NODE_LEAF) return target_of(w, n, 0) >= 0;
    return n->mark == w->id && n->flags & ARIL__NODE_NEEDED;
}

static aril_status enqueue(walk *w, aril__node *n)
{
    if (n->flags & ARIL__NODE_QUEUED) return ARIL_OK;
    unsigned owner = atomic_exchange_explicit(&n->busy, w->id, memory_order_acquire);
    if (owner) {
        atomic_store_explicit(&n->busy, owner, memory_order_release);
        return aril__fail(
            ARIL_ERR_STATE,
            "backward: another thread is running backward through the same graph (at %s)",
            n->op->name);
    }
    if (!heap_push(w, n)) {
        atomic_store_explicit(&n->busy, 0, memory_order_release);
        return aril__fail(ARIL_ERR_MEMORY, "backward: out of memory for the queue");
    }
    n->flags |= ARIL__NODE_QUEUED;
    aril__node_keep(n); /* until it is visited: a hook may drop the other references */
    return ARIL_OK;
}

/* Adds g (takes over the reference) to the pending gradient of a leaf with hooks. Kept in the walk,
 * as several threads may reach one leaf concurrently. */
static aril_status wait_for_hooks(walk *w, aril__node *leaf, aril_tensor *g)
{
    for (int i = 0; i < w->n_pending; i++)
        if (w->pending[i].leaf == leaf) return gather(w, &w->pending[i].grad, g);
    if (w->n_pending == w->cap_pending) {
        int cap = w->cap_pending ? w->cap_pending * 2 : 16;
        struct pending *grown = aril__realloc(w->pending, (size_t)cap * sizeof *grown);
        if (!grown) {
            aril__tensor_release(w->th, g);
            return aril__fail(ARIL_ERR_MEMORY, "backward: out of memory for the queue");
        }
        w->pending = grown;
        w->cap_pending = cap;
    }
    w->pending[w->n_pending++] = (struct pending){ aril__node_keep(leaf), g };
    return ARIL_OK;
}

/* Sends g (takes over the reference) to output `out` of node n. */
static aril_status send(walk *w, aril__node *n, uint32_t out, aril_tensor *g)
{
    if (n->flags & ARIL__NODE_LEAF) {
        if (aril__unlikely(w->th->tracer && !w->plain && aril__leaf_is_outside(n))) {
            aril_status s = w->th->tracer->reached(w->th->tracer, n);
            if (s < 0) {
                aril__tensor_release(w->th, g);
                return s;
            }
        }
        if (n->extra && n->extra->hooks && !w->plain) return wait_for_hooks(w, n, g);
        if (w->n_targets) {
            int at = target_of(w, n, out);
            if (at >= 0) return gather(w, &w->captured[at], g);
            if (!w->leaves) {
                aril__tensor_release(w->th, g);
                return ARIL_OK;
            }
        }
        return add_to_leaf(w, n, g);
    }
    if (!is_needed(w, n)) {
        aril__tensor_release(w->th, g);
        return ARIL_OK;
    }
    aril_status s = gather(w, &n->grad[out], g);
    return s < 0 ? s : enqueue(w, n);
}

/* ---- one node ---- */

static aril_status run_hooks(walk *w, aril__node *n, uint32_t out, aril_tensor **g)
{
    /* A hook may add hooks and remove any, itself included: the next one is that with a greater
     * id. */
    int last = 0, end = INT_MAX;
    for (aril__hook_entry *h = n->extra->hooks; h; h = h->next) end = h->id;
    while (*g) {
        aril__hook_entry *h = n->extra->hooks;
        while (h && (h->out != out || h->id <= last)) h = h->next;
        if (!h || h->id > end) break;
        last = h->id;
        ARIL_SCOPE;
        aril_tensor *changed = h->fn(*g, h->ctx);
        if (!changed || changed == *g) continue;
        if (aril_tensor_status(changed) < 0) return aril_tensor_status(changed);
        if (!aril__dims_fit(changed->ndim, changed->dim, (*g)->ndim, (*g)->dim))
            return aril__fail(ARIL_ERR_SHAPE, "hook: the new gradient has a different shape");
        aril__tensor_keep(changed);
        aril__tensor_release(w->th, *g);
        *g = changed;
    }
    return ARIL_OK;
}

/* Runs the hooks of a leaf on its full gradient g (takes over the reference) and stores the
 * result. */
static aril_status finish_leaf(walk *w, aril__node *n, aril_tensor *g)
{
    aril_status s = run_hooks(w, n, 0, &g);
    if (s < 0) {
        aril__tensor_release(w->th, g);
        return s;
    }
    int at = w->n_targets ? target_of(w, n, 0) : -1;
    if (at >= 0) return gather(w, &w->captured[at], g);
    if (w->n_targets && !w->leaves) {
        aril__tensor_release(w->th, g);
        return ARIL_OK;
    }
    return add_to_leaf(w, n, g);
}

/* Unpacks the saved values for the rule; a value overwritten since it was saved is an error. */
static aril_status unpack(walk *w, aril__node *n, aril_tensor **x, aril_tensor **y)
{
    for (int i = 0; i < n->n_saved; i++) {
        aril__saved *s = &n->saved[i];
        aril_tensor *t = s->tensor;
        bool value = s->kind == ARIL__SAVED_IN || s->kind == ARIL__SAVED_OUT;
        if (value) {
            unsigned now = aril__version(t);
            if (now != s->version) {
                char text[ARIL__SHAPE_TEXT];
                return aril__fail(ARIL_ERR_GRAD,
                                  "backward: %s %d of %s, %s %s, was modified in place after it "
                                  "was saved (version %u, now %u); modify a copy instead",
                                  s->kind == ARIL__SAVED_IN ? "input" : "result", s->index,
                                  n->op->name, aril__dtypes[t->dtype].name, aril__text(text, t),
                                  s->version, now);
            }
        }
        if (s->kind == ARIL__SAVED_IN || s->kind == ARIL__SAVED_LIKE) {
            x[s->index] = t;
            continue;
        }
        if (s->kind == ARIL__SAVED_OUT && w->create) { /* reattach it to its node */
            aril_tensor *joined = aril__give(w->th, aril__tensor_detached(w->th, t));
            if (aril_tensor_status(joined) < 0) return aril_tensor_status(joined);
            if (aril__is_float((aril_dtype)t->dtype)) aril__bind(w->th, joined, n, s->index);
            t = joined;
        }
        y[s->index] = t;
    }
    return ARIL_OK;
}

static aril_status check_gradients(const aril__node *n, aril_tensor *const *dx)
{
    for (int i = 0; i < n->n_in; i++)
        if (dx[i] && aril__has_nan(dx[i]))
            return aril__fail(ARIL_ERR_NUMBER,
                              "backward: the gradient of input %d of %s (called at "
                              "%s) is NaN (anomaly mode)",
                              i, n->op->name,
                              n->extra && n->extra->location ? n->extra->location
                                                             : "an unknown location");
    return ARIL_OK;
}

/* Runs the gradient rule of a node; the references in dx[] belong to the caller. */
static aril_status run_rule(walk *w, aril__node *n, aril_tensor **dx)
{
    ARIL_SCOPE;
    /* Custom functions may save more than their inputs: there is room for that after the inputs. */
    enum { FEW = 16 };
    aril_tensor *few_x[FEW + ARIL_CTX_SAVED], *y[ARIL__MAX_OUT];
    bool few_wants[FEW];
    aril_tensor **x = few_x;
    bool *wants = few_wants;
    if (n->n_in > FEW) {
        size_t slots = (size_t)n->n_in + ARIL_CTX_SAVED;
        x = aril__calloc(slots * sizeof *x + n->n_in * sizeof *wants);
        if (!x)
            return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for its gradient", n->op->name);
        wants = (bool *)(x + slots);
    }
    for (int i = 0; i < n->n_out; i++) y[i] = NULL;
    for (int i = n->n_in; !n->op->number && i < n->n_in + ARIL_CTX_SAVED; i++)
        x[i] = NULL; /* only custom functions have values there */
    for (int i = 0; i < n->n_in; i++) {
        const aril__node *to = n->edge[i].node;
        x[i] = NULL;
        wants[i] = to && is_needed(w, to);
    }
    aril_status s = unpack(w, n, x, y);
    if (s == ARIL_OK) {
        aril__grad c = { .op = n->op,
                         .attrs = n->attrs,
                         .n_in = n->n_in,
                         .n_out = n->n_out,
                         .x = x,
                         .y = y,
                         .g = n->grad,
                         .dx = dx,
                         .wants = wants };
        aril__mode saved = w->th->mode;
        w->th->mode.no_grad = !w->create;
        w->th->mode.anomaly = false;
        const aril_tensor *outer = aril__last_use;
        aril__last_use = w->create ? NULL : n->grad[0];
        n->op->vjp(&c);
        aril__last_use = outer;
        w->th->mode = saved;
    }
    for (int i = 0; i < n->n_in; i++) {
        if (dx[i] && (s < 0 || !wants[i])) dx[i] = NULL;
        if (!dx[i]) continue;
        s = aril_tensor_status(dx[i]);
        if (s < 0)
            dx[i] = NULL;
        else
            aril__tensor_keep(dx[i]);
    }
    if (x != few_x) free(x);
    return s;
}

/* Ends the visit of a node whose gradients have been used. */
static void leave(walk *w, aril__node *n)
{
    for (uint32_t o = 0; o < n->n_out; o++) {
        if (n->grad[o]) aril__tensor_release(w->th, n->grad[o]);
        n->grad[o] = NULL;
    }
    if (!w->retain) aril__node_free_saved(w->th, n);
    n->flags &= (uint8_t) ~(ARIL__NODE_QUEUED | ARIL__NODE_APART);
    atomic_store_explicit(&n->busy, 0, memory_order_release);
}

/* Adds the gradient of a part to the sum of what has arrived for the whole, if there is one and it
 * may be modified: *done. */
static aril_status add_in_place(const aril__node *n, aril_tensor *sum, bool *done)
{
    aril_tensor *g = n->grad[0];
    if (!sum || !g || sum->dtype != g->dtype || !is_ours(sum) || !aril__is_packed(sum))
        return ARIL_OK;
    ARIL_SCOPE;
    aril_tensor *part = aril__apply1(n->op, 1, (aril_tensor *[]){ sum }, n->attrs);
    aril_status s = aril_tensor_status(part);
    if (s == ARIL_OK && !aril__same_dims(part->ndim, part->dim, g->ndim, g->dim)) return ARIL_OK;
    *done = true;
    return s < 0 ? s : aril_tensor_status(aril_add_(part, g));
}

static aril_status add_part(walk *w, const aril__node *n, bool *done)
{
    aril__node *to = n->edge[0].node;
    uint32_t out = n->edge[0].out;
    if (!n->op->join || n->extra || w->create || w->th->tracer || w->th->mode.anomaly || !to ||
        !is_needed(w, to))
        return ARIL_OK;
    if (!(to->flags & ARIL__NODE_LEAF)) return add_in_place(n, to->grad[out], done);
    if (to->extra && to->extra->hooks && !w->plain) return ARIL_OK;
    int at = w->n_targets ? target_of(w, to, out) : -1;
    if (at >= 0) return add_in_place(n, w->captured[at], done);
    if (w->n_targets && !w->leaves) return ARIL_OK;
    lock_leaf(to);
    aril_status s = add_in_place(n, to->grad[0], done);
    unlock_leaf(to);
    return s;
}

static aril_status visit(walk *w, aril__node *n)
{
    aril__thread *th = w->th;
    enum { FEW = 16 };
    aril_tensor *few[FEW], **dx = few;
    aril_status s = ARIL_OK;
    for (int i = 0; i < n->n_in && i < FEW; i++) few[i] = NULL;
    if (n->extra) {
        for (uint32_t o = 0; o < n->n_out && s == ARIL_OK; o++) {
            s = run_hooks(w, n, o, &n->grad[o]);
            if (s == ARIL_OK && n->extra->retained_mask >> o & 1 && n->grad[o])
                s = gather(w, &n->extra->retained[o], aril__tensor_keep(n->grad[o]));
        }
    }
    bool ends = false, added = false;
    for (int i = 0; i < w->n_targets && s == ARIL_OK; i++) {
        if (w->target[i].node != n || !n->grad[w->target[i].out]) continue;
        s = gather(w, &w->captured[i], aril__tensor_keep(n->grad[w->target[i].out]));
        ends = w->leaves;
    }
    if (s == ARIL_OK && n->flags & ARIL__NODE_FREED)
        s = aril__fail(ARIL_ERR_GRAD,
                       "backward: the graph at %s was freed by an earlier backward; "
                       "set retain_graph in that one",
                       n->op->name);
    if (s == ARIL_OK && !ends) s = add_part(w, n, &added);
    if (s == ARIL_OK && n->n_in > FEW && !(dx = aril__calloc(n->n_in * sizeof *dx)))
        s = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for its gradient", n->op->name);
    if (s == ARIL_OK) {
        if (aril__unlikely(aril__log_on(ARIL__LOG_AUTOGRAD)))
            aril__log(ARIL__LOG_AUTOGRAD, "node %" PRIu64 ": %s", n->sequence, n->op->name);
        aril__span span = { -1, 0 };
        if (aril__unlikely(aril__profiling())) span = aril__span_begin(WALK, n->op->name);
        s = ends || added ? ARIL_OK : run_rule(w, n, dx);
        aril__span_end(span);
    }
    if (s == ARIL_OK && aril__unlikely(th->mode.anomaly)) s = check_gradients(n, dx);
    leave(w, n);
    int n_dx = !dx || (dx == few && n->n_in > FEW) ? 0 : n->n_in; /* 0 if it failed early */
    for (int i = 0; i < n_dx; i++) {
        if (!dx[i]) continue;
        if (s == ARIL_OK)
            s = send(w, n->edge[i].node, n->edge[i].out, dx[i]);
        else
            aril__tensor_release(th, dx[i]);
    }
    if (dx != few) free(dx);
    aril__node_release(th, n);
    return s;
}

/* ---- several nodes at once ---- */

/* Whether nothing but the rule happens at a node, and the rule can join it with others. */
static bool may_join(const walk *w, const aril__node *n)
{
    return n->op->join && !n->extra && !(n->flags & (ARIL__NODE_FREED | ARIL__NODE_APART)) &&
           n->edge[0].node && is_needed(w, n->edge[0].node) && target_of(w, n, 0) < 0;
}

/* Nodes that are visited together. Many are tried together only once. */
typedef struct group {
    int n, cap;
    aril__node **node; /* `few` if there are not many */
    aril__node *few[64];
} group;

static bool add_to_group(group *all, aril__node *n)
{
    if (all->n == all->cap) {
        aril__node **grown = aril__malloc((size_t)all->cap * 2 * sizeof *grown);
        if (!grown) return false;
        memcpy(grown, all->node, (size_t)all->n * sizeof *grown);
        if (all->node != all->few) free(all->node);
        all->node = grown;
        all->cap *= 2;
    }
    all->node[all->n++] = n;
    return true;
}

/* Takes the nodes that follow n in the queue and view the same tensor. */
static void take_others(walk *w, aril__node *n, group *all)
{
    all->n = 0;
    all->node = all->few;
    all->cap = sizeof all->few / sizeof *all->few;
    add_to_group(all, n);
    if (!may_join(w, n)) return;
    while (w->n > 0 && w->heap[0]->op == n->op && may_join(w, w->heap[0]) &&
           w->heap[0]->edge[0].node == n->edge[0].node &&
           w->heap[0]->edge[0].out == n->edge[0].out && add_to_group(all, w->heap[0]))
        heap_pop(w);
}

/* The gradient of the input that the nodes share, with a reference that belongs to the caller;
 * NULL: it is not one op. */
static aril_status join_rules(walk *w, const group *all, aril_tensor **dx)
{
    ARIL_SCOPE;
    size_t n = (size_t)all->n;
    aril__grad *c = aril__malloc(n * (sizeof *c + sizeof(aril_tensor *)));
    if (!c) return ARIL_OK; /* one by one, then */
    aril_tensor **x = (aril_tensor **)(void *)(c + n), *y[ARIL__MAX_OUT];
    static const bool wants[1] = { true };
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < n && s == ARIL_OK; i++) {
        x[i] = NULL;
        c[i] = (aril__grad){ .op = all->node[i]->op,
                             .attrs = all->node[i]->attrs,
                             .n_in = 1,
                             .n_out = 1,
                             .x = &x[i],
                             .y = y,
                             .g = all->node[i]->grad,
                             .wants = wants };
        s = unpack(w, all->node[i], &x[i], y);
    }
    if (s == ARIL_OK) {
        aril__mode saved = w->th->mode;
        w->th->mode.no_grad = !w->create;
        aril__span span = { -1, 0 };
        if (aril__unlikely(aril__profiling())) span = aril__span_begin(WALK, c[0].op->name);
        *dx = c[0].op->join(all->n, c);
        aril__span_end(span);
        w->th->mode = saved;
    }
    free(c);
    if (s < 0 || !*dx) return s;
    s = aril_tensor_status(*dx);
    *dx = s < 0 ? NULL : aril__tensor_keep(*dx);
    return s;
}

/* Visits n, and with it nodes of other parts of the same tensor if one op gives the gradient. */
static aril_status visit_together(walk *w, aril__node *n)
{
    group all;
    take_others(w, n, &all);
    aril_tensor *dx = NULL;
    aril_status s = all.n > 1 ? join_rules(w, &all, &dx) : ARIL_OK;
    for (int i = 0; i < all.n; i++)
        if (dx) {
            leave(w, all.node[i]);
        } else {
            if (all.node != all.few) all.node[i]->flags |= ARIL__NODE_APART; /* not tried again */
            if (i > 0) heap_push(w, all.node[i]); /* there is room for them */
        }
    if (dx) {
        s = send(w, n->edge[0].node, n->edge[0].out, dx);
        for (int i = 0; i < all.n; i++) aril__node_release(w->th, all.node[i]);
    } else if (s == ARIL_OK) {
        s = visit(w, n);
    } else {
        leave(w, n);
        aril__node_release(w->th, n);
    }
    if (all.node != all.few) free(all.node);
    return s;
}

/* ---- which nodes are needed ---- */

/* Marks all reachable nodes with w->id, and those that lead to a target as needed. */
static aril_status mark_needed(walk *w, int n_roots, aril_tensor *const *roots)
{
    int n = 0, cap = n_roots > 256 ? n_roots : 256;
    aril__node **all = aril__malloc((size_t)cap * sizeof *all);
    for (int pass = 0; all && pass < n_roots; pass++) {
        aril__node *root = roots[pass]->node;
        if (root && !(root->flags & ARIL__NODE_LEAF) && root->mark != w->id) {
            root->mark = w->id;
            root->flags &= (uint8_t)~ARIL__NODE_NEEDED;
            all[n++] = root;
        }
    }
    for (int at = 0; all && at < n; at++) { /* breadth first: `all` is the queue too */
        for (int i = 0; i < all[at]->n_in; i++) {
            aril__node *to = all[at]->edge[i].node;
            if (!to || to->flags & ARIL__NODE_LEAF || to->mark == w->id) continue;
            if (n == cap) {
                aril__node **grown = aril__realloc(all, (size_t)cap * 2 * sizeof *grown);
                if (!grown) {
                    free(all);
                    all = NULL;
                    break;
                }
                all = grown;
                cap *= 2;
            }
            to->mark = w->id;
            to->flags &= (uint8_t)~ARIL__NODE_NEEDED;
            all[n++] = to;
        }
        if (!all) break;
    }
    if (!all)
        return aril__fail(ARIL_ERR_MEMORY, "gradients: out of memory while traversing the graph");
    for (int i = 0; i < w->n_targets; i++)
        if (w->target[i].node && !(w->target[i].node->flags & ARIL__NODE_LEAF) &&
            w->target[i].node->mark == w->id)
            w->target[i].node->flags |= ARIL__NODE_NEEDED;
    /* Propagate from the oldest node up; the heap gives the newest first, so fill from the back. */
    int count = n;
    w->n = 0;
    aril_status s = ARIL_OK;
    for (int i = 0; i < count && s == ARIL_OK; i++)
        if (!heap_push(w, all[i]))
            s = aril__fail(ARIL_ERR_MEMORY, "gradients: out of memory while traversing the graph");
    for (int i = count; i-- > 0 && s == ARIL_OK;) all[i] = heap_pop(w);
    w->n = 0;
    for (int i = 0; i < count && s == ARIL_OK; i++)
        for (int k = 0; k < all[i]->n_in; k++)
            if (all[i]->edge[k].node && is_needed(w, all[i]->edge[k].node))
                all[i]->flags |= ARIL__NODE_NEEDED;
    free(all);
    return s;
}

/* ---- the walk ---- */

static _Thread_local const walk *current;

bool aril__backward_has_targets(void)
{
    return current && current->n_targets > 0 && !current->leaves;
}

static aril_status walk_back(int n_roots, aril_tensor *const *roots, aril_tensor *const *grads,
                             int n_targets, const aril__target *targets, aril_tensor **captured,
                             bool leaves, bool plain, bool handed_over, aril_grad_opts opts)
{
    static atomic_uint walks;
    aril__span span = { -1, 0 };
    if (aril__unlikely(aril__profiling())) span = aril__span_begin(WALK, "backward");
    walk w; /* its heap is not initialized */
    w.th = aril__self();
    w.heap = w.inline_heap;
    w.n = w.n_pending = w.cap_pending = 0;
    w.pending = NULL;
    w.cap = sizeof w.inline_heap / sizeof *w.inline_heap;
    w.retain = opts.retain_graph || opts.create_graph;
    w.create = opts.create_graph;
    w.leaves = leaves;
    w.plain = plain;
    w.prune = n_targets > 0 && !leaves;
    w.n_targets = n_targets;
    w.target = targets;
    w.captured = captured;
    do w.id = atomic_fetch_add_explicit(&walks, 1, memory_order_relaxed) + 1;
    while (w.id == 0);
    /* Record the ops of the backward pass only if create_graph is set. */
    aril__mode saved = w.th->mode;
    const walk *outer = current;
    current = &w;
    w.th->mode.no_grad = !w.create;
    w.th->mode.autocast = 0; /* gradients have the dtypes of the forward pass */
    aril_status s = w.prune ? mark_needed(&w, n_roots, roots) : ARIL_OK;
    for (int i = 0; i < n_roots && s == ARIL_OK; i++)
        if (roots[i]->node)
            s = send(&w, roots[i]->node, roots[i]->node_out,
                     handed_over ? grads[i] : aril__tensor_keep(grads[i]));
    while (w.n && s == ARIL_OK) {
        aril__node *n = heap_pop(&w);
        s = n->op->join ? visit_together(&w, n) : visit(&w, n);
    }
    for (int i = 0; i < w.n_pending; i++) {
        if (s == ARIL_OK)
            s = finish_leaf(&w, w.pending[i].leaf, w.pending[i].grad);
        else if (w.pending[i].grad)
            aril__tensor_release(w.th, w.pending[i].grad);
        aril__node_release(w.th, w.pending[i].leaf);
    }
    free(w.pending);
    while (w.n) { /* after an error: release what is queued */
        aril__node *n = heap_pop(&w);
        for (int i = 0; i < n->n_out; i++) {
            if (n->grad[i]) aril__tensor_release(w.th, n->grad[i]);
            n->grad[i] = NULL;
        }
        n->flags &= (uint8_t) ~(ARIL__NODE_QUEUED | ARIL__NODE_APART);
        atomic_store_explicit(&n->busy, 0, memory_order_release);
        aril__node_release(w.th, n);
    }
    w.th->mode = saved;
    current = outer;
    if (w.heap != w.inline_heap) free(w.heap);
    aril__span_end(span);
    return s;
}

aril_status aril__backward_to(int n_roots, aril_tensor *const *roots, aril_tensor *const *grads,
                              int n_targets, const aril__target *targets, aril_tensor **captured,
                              bool leaves, aril_grad_opts opts)
{
    return walk_back(n_roots, roots, grads, n_targets, targets, captured, leaves, false, false,
                     opts);
}

aril_status aril__backward(int n_roots, aril_tensor *const *roots, aril_tensor *const *grads,
                           int n_targets, const aril__target *targets, aril_tensor **captured,
                           aril_grad_opts opts)
{
    return walk_back(n_roots, roots, grads, n_targets, targets, captured, false, false, false,
                     opts);
}

aril_status aril__backward_from(aril_tensor *root, aril_tensor *grad, aril_grad_opts opts)
{
    return walk_back(1, &root, &grad, 0, NULL, NULL, false, false, true, opts);
}

aril_status aril__backward_capture(int n_roots, aril_tensor *const *roots,
                                   aril_tensor *const *grads, int n_targets,
                                   const aril__target *targets, aril_tensor **captured)
{
    return walk_back(n_roots, roots, grads, n_targets, targets, captured, false, true, false,
                     (aril_grad_opts){ 0 });
}
