/* An optimizer's update of all parameters needs all gradients at once. Divided into one update for
 * each parameter, which follows as soon as its gradient is there and the old value is not needed
 * any more, it frees their memory during the backward pass. Results stay the same. */
#include "graph/executor.h"
#include "ops/update/update.h"

#include <limits.h>
#include <stdlib.h>

/* One parameter of an update. */
typedef struct item {
    aril__node_id of;
    int k;
    uint32_t next; /* 1 + another one at the same position */
} item;

typedef struct spread {
    aril__graph *g;
    aril__rewrite r;
    aril__value_id *base; /* by value: that of which it is a view, or itself */
    aril__node_id *last;  /* by base: the last node that reads its memory, besides updates */
    uint32_t *first;      /* by node: 1 + the first item that follows it, */
    uint32_t *end;        /* and the last */
    uint8_t *early;       /* by node: FREE, MOVED */
    item *items;
    uint32_t n_items, n_all;
} spread;

/* Nodes that compute numbers from sources alone, such as the learning rate of a step: FREE. Those
 * that updates need run before all others: MOVED. */
enum { FREE = 1, MOVED = 2 };

/* Whether a node updates several parameters, each by itself. */
static bool is_divisible(const aril__graph *g, const aril__graph_node *n)
{
    return n->op == &aril__op_update && aril__items(n->op, n->n_in) > 1 &&
           !aril__graph_in(g, n)[ARIL__UPDATE_NORMS];
}

static void find_uses(spread *w)
{
    const aril__graph *g = w->g;
    for (aril__value_id v = 0; v < g->n_values; v++) w->base[v] = v;
    for (aril__node_id id = 1; id < g->n_nodes; id++) {
        const aril__graph_node *n = &g->nodes[id];
        const aril__value_id *in = aril__graph_in(g, n);
        for (uint32_t k = 0; k < n->op->n_out && k < n->n_out; k++)
            if (ARIL__IS_VIEW(n->op->out[k])) w->base[n->out + k] = w->base[in[n->op->out[k] - 1]];
        if (is_divisible(g, n)) {
            w->n_all += (uint32_t)aril__items(n->op, n->n_in);
            continue;
        }
        for (uint32_t i = 0; i < n->n_in; i++) w->last[w->base[in[i]]] = id;
    }
}

static bool is_small(const aril__graph *g, const aril__graph_node *n)
{
    for (uint32_t k = 0; k < n->n_out; k++) {
        const int64_t *dim = aril__graph_dims(g, n->out + k);
        for (int d = 0; d < g->values[n->out + k].ndim; d++)
            if (dim[d] < 0 || dim[d] > 8) return false;
    }
    return true;
}

static void find_early(spread *w)
{
    const aril__graph *g = w->g;
    for (aril__node_id id = 1; id < g->n_nodes; id++) {
        const aril__graph_node *n = &g->nodes[id];
        bool free_node = !n->n_bodies && !(n->op->flags & DYNAMIC) && is_small(g, n);
        for (uint32_t i = 0; i < n->n_in && free_node; i++) {
            aril__value_id v = aril__graph_in(g, n)[i];
            free_node = !v || g->values[v].kind != ARIL__FROM_NODE || w->early[g->values[v].from];
        }
        w->early[id] = free_node ? FREE : 0;
    }
    for (aril__node_id id = g->n_nodes; id-- > 1;) {
        const aril__graph_node *n = &g->nodes[id];
        bool update = is_divisible(g, n);
        for (uint32_t i = 0; i < n->n_in && (update || w->early[id] == MOVED); i++) {
            aril__value_id v = aril__graph_in(g, n)[i];
            if (v && g->values[v].kind == ARIL__FROM_NODE && w->early[g->values[v].from])
                w->early[g->values[v].from] = MOVED;
        }
        if (update) w->early[id] = 0;
    }
}

/* Whether input i of an update belongs to item k, or to all. */
static bool is_of_item(const aril__op *op, int i, int k)
{
    return i < op->fixed || (i - op->fixed) / op->each == k;
}

/* The node after which an item can follow. */
static aril__node_id earliest(const spread *w, aril__node_id id, int k)
{
    const aril__graph *g = w->g;
    const aril__graph_node *n = &g->nodes[id];
    aril__node_id at = 0;
    for (int i = 0; i < n->n_in; i++) {
        aril__value_id v = aril__graph_in(g, n)[i];
        if (!v || !is_of_item(n->op, i, k)) continue;
        aril__node_id from = g->values[v].kind == ARIL__FROM_NODE ? g->values[v].from : 0;
        if (from && w->early[from] == MOVED) from = 0;
        if (aril__changes(n->op, i) && w->last[w->base[v]] > from) from = w->last[w->base[v]];
        if (from > at) at = from;
    }
    return at && at < id ? at : id;
}

static void place_items(spread *w)
{
    const aril__graph *g = w->g;
    for (aril__node_id id = 1; id < g->n_nodes; id++) {
        const aril__graph_node *n = &g->nodes[id];
        for (int k = 0; is_divisible(g, n) && k < aril__items(n->op, n->n_in); k++) {
            aril__node_id at = earliest(w, id, k);
            w->items[w->n_items] = (item){ id, k, 0 };
            *(w->first[at] ? &w->items[w->end[at] - 1].next : &w->first[at]) = w->n_items + 1;
            w->end[at] = ++w->n_items;
        }
    }
}

/* The update of one parameter. */
static bool add_item(spread *w, const item *x)
{
    aril__graph *g = w->g;
    const aril__graph_node *old = &w->r.old[x->of];
    aril__value_id in[ARIL__UPDATE_FIXED + ARIL__ITEM], result[ARIL__UPDATE_FIXED + ARIL__ITEM];
    int n_in = 0, n_result = 0;
    aril__value_id out = old->out; /* of the next input that is changed */
    for (int i = 0; i < old->n_in; i++) {
        aril__value_id v = g->ids[old->in + (uint32_t)i];
        bool own = is_of_item(old->op, i, x->k), changed = v && aril__changes(old->op, i);
        if (own) in[n_in++] = aril__rewrite_now(&w->r, v);
        if (own && changed) result[n_result++] = out;
        out += changed;
    }
    aril__node_id id = aril__graph_node_add(g, old->op, n_in, in, NULL);
    if (!id) return false;
    aril__graph_node *n = &g->nodes[id];
    n->attrs = old->attrs;
    n->has_attrs = old->has_attrs;
    n->sized = old->sized;
    n->scope = old->scope;
    n->label = old->label;
    n->where = old->where;
    for (int k = 0; k < n_result; k++) {
        aril__value v = g->values[result[k]];
        v.from = id;
        v.index = (unsigned)k & INT_MAX;
        g->values[n->out + (uint32_t)k] = v;
        aril__rewrite_value(&w->r, result[k], n->out + (uint32_t)k);
    }
    return true;
}

static bool add_items(spread *w, aril__node_id at)
{
    for (uint32_t i = w->first[at]; i; i = w->items[i - 1].next)
        if (!add_item(w, &w->items[i - 1])) return false;
    return true;
}

static aril_status rewrite(spread *w)
{
    if (!aril__rewrite_begin(&w->r, w->g)) return ARIL_ERR_MEMORY;
    bool fits = true;
    for (aril__node_id id = 1; id < w->r.n_old && fits; id++)
        if (w->early[id] == MOVED) fits = aril__rewrite_keep(&w->r, id);
    for (aril__node_id id = 1; id < w->r.n_old && fits; id++) {
        bool kept = w->early[id] == MOVED || is_divisible(w->g, &w->r.old[id]);
        if (!kept) fits = aril__rewrite_keep(&w->r, id);
        if (fits) fits = add_items(w, id);
    }
    return aril__rewrite_end(&w->r, fits);
}

aril_status aril__spread_updates(aril__graph *g, bool *changed)
{
    spread w = { .g = g };
    aril_status s = ARIL_OK;
    w.base = aril__malloc(((size_t)g->n_values + 1) * sizeof *w.base);
    w.last = aril__calloc(((size_t)g->n_values + 1) * sizeof *w.last);
    w.first = aril__calloc(((size_t)g->n_nodes + 1) * sizeof *w.first);
    w.end = aril__calloc(((size_t)g->n_nodes + 1) * sizeof *w.end);
    w.early = aril__calloc((size_t)g->n_nodes + 1);
    bool fits = w.base && w.last && w.first && w.end && w.early;
    if (fits) {
        find_uses(&w);
        find_early(&w);
    }
    if (fits && w.n_all) fits = (w.items = aril__malloc(w.n_all * sizeof *w.items)) != NULL;
    *changed = fits && w.n_all;
    if (!fits) {
        s = aril__fail(ARIL_ERR_MEMORY, "graph: out of memory");
    } else if (w.n_all) {
        place_items(&w);
        s = rewrite(&w);
    }
    free(w.base);
    free(w.last);
    free(w.first);
    free(w.end);
    free(w.early);
    free(w.items);
    return s;
}
