#include "autograd/node.h"

#include <stdlib.h>
#include <string.h>

static size_t align8(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

aril__node *aril__node_new(aril__thread *th, const aril__op *op, int n_in, int n_out, int n_saved,
                           size_t attr_size)
{
    size_t edges = align8(sizeof(aril__node)), saved = edges + (size_t)n_in * sizeof(aril__edge);
    size_t grads = saved + (size_t)n_saved * sizeof(aril__saved);
    size_t attrs = grads + (size_t)n_out * sizeof(aril_tensor *), size = attrs + attr_size;
    size_t units = (size + ARIL__SLAB_STEP - 1) / ARIL__SLAB_STEP;
    if (aril__unlikely(n_in > UINT16_MAX || n_saved > UINT16_MAX)) {
        aril__fail(ARIL_ERR_UNSUPPORTED, "%s: %d inputs, at most %d can be differentiated",
                   op ? op->name : "leaf", n_in, UINT16_MAX);
        return NULL;
    }
    char *block = units > UINT16_MAX ? NULL : aril__slab_alloc(&th->slab, units * ARIL__SLAB_STEP);
    if (aril__unlikely(!block)) {
        aril__fail(ARIL_ERR_MEMORY, "%s: out of memory while recording it for backward",
                   op ? op->name : "leaf");
        return NULL;
    }
    aril__node *n = (aril__node *)(void *)block;
    atomic_init(&n->refs, 1);
    n->n_in = (uint16_t)n_in;
    n->n_saved = (uint16_t)n_saved;
    n->n_out = (uint8_t)n_out;
    n->flags = 0;
    n->size = (uint16_t)units;
    n->sequence = 0;
    n->op = op;
    n->edge = (aril__edge *)(void *)(block + edges);
    n->saved = (aril__saved *)(void *)(block + saved);
    n->grad = (aril_tensor **)(void *)(block + grads);
    n->attrs = attr_size ? block + attrs : NULL;
    n->extra = NULL;
    n->next = NULL;
    atomic_init(&n->busy, 0);
    n->mark = 0;
    if (aril__likely(n_out == 1)) /* most have one: no call of memset */
        n->grad[0] = NULL;
    else
        for (int i = 0; i < n_out; i++) n->grad[i] = NULL;
    return n;
}

aril__node *aril__leaf_new(aril__thread *th)
{
    aril__node *n = aril__node_new(th, NULL, 0, 1, 0, 0);
    if (n) n->flags = ARIL__NODE_LEAF | (th->tracer ? ARIL__NODE_TRACED : 0);
    return n;
}

aril__node_extra *aril__node_extra_of(aril__node *n)
{
    if (!n->extra && !(n->extra = aril__calloc(sizeof *n->extra)))
        aril__fail(ARIL_ERR_MEMORY, "autograd: out of memory");
    return n->extra;
}

void aril__node_free_saved(aril__thread *th, aril__node *n)
{
    for (int i = 0; i < n->n_saved; i++) {
        if (n->saved[i].tensor) aril__tensor_release(th, n->saved[i].tensor);
        n->saved[i].tensor = NULL;
    }
    if (n->extra && n->extra->drop) {
        n->extra->drop(n->attrs);
        n->extra->drop = NULL;
    }
    n->flags |= ARIL__NODE_FREED;
}

static void free_extra(aril__thread *th, aril__node_extra *e)
{
    while (e->hooks) {
        aril__hook_entry *h = e->hooks;
        e->hooks = h->next;
        aril__hook_entry_free(h);
    }
    for (int i = 0; i < ARIL__MAX_OUT; i++)
        if (e->retained[i]) aril__tensor_release(th, e->retained[i]);
    free(e->location);
    free(e);
}

/* Freeing a node can free its inputs' nodes, and so on a million levels deep: they go on a list
 * that the outermost call processes, which avoids recursion. Views form such chains too. */
static void free_listed(aril__thread *th);

static void destroy_node(aril__thread *th, aril__node *n)
{
    aril__node_free_saved(th, n);
    for (int i = 0; i < n->n_in; i++)
        if (n->edge[i].node) aril__node_release(th, n->edge[i].node);
    for (int i = 0; i < n->n_out; i++)
        if (n->grad[i]) aril__tensor_release(th, n->grad[i]);
    if (n->extra) free_extra(th, n->extra);
    aril__slab_free(&th->slab, n, (size_t)n->size * ARIL__SLAB_STEP);
}

void aril__node_release(aril__thread *th, aril__node *n)
{
    if (atomic_load_explicit(&n->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) != 1)
        return;
    n->next = th->dead_nodes;
    th->dead_nodes = n;
    if (!th->in_release) free_listed(th);
}

void aril__view_release(aril__thread *th, aril__view *v)
{
    v->next = th->dead_views;
    th->dead_views = v;
    if (!th->in_release) free_listed(th);
}

static void free_listed(aril__thread *th)
{
    th->in_release = true;
    while (th->dead_nodes || th->dead_views) {
        if (th->dead_nodes) {
            aril__node *n = th->dead_nodes;
            th->dead_nodes = n->next;
            destroy_node(th, n);
        }
        if (th->dead_views) {
            aril__view *v = th->dead_views;
            th->dead_views = v->next;
            aril__tensor_release(th, v->parent);
            aril__slab_free(&th->slab, v, sizeof *v + v->op->attr_size);
        }
    }
    th->in_release = false;
}

void aril__bind(aril__thread *th, aril_tensor *t, aril__node *n, uint32_t out)
{
    aril__node *old = t->node;
    t->node = n ? aril__node_keep(n) : NULL;
    t->node_out = out;
    if (old) aril__node_release(th, old);
}

const char *aril__node_name(const aril__node *n)
{
    return n->op ? n->op->name : NULL;
}
