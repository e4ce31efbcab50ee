/* The pass `fuse`: neighbouring nodes of one shape become one node: elementwise ones, ops along the
 * last axis, and reductions at the end.
 *
 * Nodes are visited in order. A node joins the groups of its producers, which thereby become one
 * group, unless that would make a cycle: a group runs as a whole, so nothing outside may both
 * depend on it and be needed by it. To know that, each node has the set of groups that it depends
 * on, and each group the same. Sets are bits of a word: when the word is full, all groups are
 * closed, and a new window begins.
 *
 * Then the nodes are listed anew, a group as soon as its inputs are there. */
#include "graph/fuse.h"
#include "graph/control.h"

#include "graph/passes.h"
#include "ops/table/rows.h"

#include <stdlib.h>
#include <string.h>

typedef uint64_t set; /* of groups, by slot */
enum { SLOTS = 64 };

/* A group; its number is its slot while it is open. */
typedef struct group {
    aril__node_id first, last; /* members, linked by `next` */
    int n;
    aril__value_id loop; /* a value of the shape of its loop */
    set needs;           /* the groups that it depends on */
    int merged_into; /* the slot of the group that it is part of now; its own: it is there itself */
} group;

typedef struct pass {
    aril__graph *g;
    aril__uses uses;
    aril__node_id *next;  /* the next member of the same group */
    aril__node_id *head;  /* the first member of the node's group; 0: in no group */
    aril__value_id *loop; /* of first members: the loop of the group */
    uint8_t *slot;        /* of the open group that a node belongs to */
    set *needs;           /* of nodes in no group */
    aril__node_id window; /* the first node of the window */
    group groups[SLOTS];
    int n_groups;
} pass;

/* ---- sets ---- */

static set bit(int slot)
{
    return (set)1 << slot;
}

static int current(const pass *p, int slot)
{
    while (p->groups[slot].merged_into != slot) slot = p->groups[slot].merged_into;
    return slot;
}

/* With all groups that those of a set depend on. */
static set closure(const pass *p, set s)
{
    set all = 0;
    for (; s; s &= s - 1) {
        int slot = current(p, __builtin_ctzll(s));
        all |= bit(slot) | p->groups[slot].needs;
    }
    return all;
}

static bool is_open(const pass *p, aril__node_id id)
{
    return id >= p->window && p->head[id];
}

/* ---- groups ---- */

/* What a node depends on: groups that produce its inputs, and those needed by its other inputs. */
typedef struct inputs {
    set direct, others;
} inputs;

static inputs inputs_of(const pass *p, const aril__graph_node *n)
{
    inputs in = { 0 };
    for (int i = 0; i < n->n_in; i++) {
        const aril__value *v = &p->g->values[aril__graph_in(p->g, n)[i]];
        if (v->kind != ARIL__FROM_NODE || v->from < p->window) continue;
        if (is_open(p, v->from))
            in.direct |= bit(current(p, p->slot[v->from]));
        else
            in.others |= closure(p, p->needs[v->from]);
    }
    return in;
}

static bool same_shape(const aril__graph *g, aril__value_id a, aril__value_id b)
{
    return aril__same_dims(g->values[a].ndim, aril__graph_dims(g, a), g->values[b].ndim,
                           aril__graph_dims(g, b));
}

/* Whether value v has one element for each row of a loop. */
static bool is_by_row(const aril__graph *g, aril__value_id loop, aril__value_id v)
{
    int ndim = g->values[loop].ndim;
    const int64_t *row = aril__graph_dims(g, loop), *dim = aril__graph_dims(g, v);
    return ndim && g->values[v].ndim == ndim && dim[ndim - 1] == 1 &&
           aril__is_row_length(row[ndim - 1]) && aril__same_dims(ndim - 1, row, ndim - 1, dim);
}

/* A value of the shape of the loop that a node needs. */
static aril__value_id loop_of(const aril__graph *g, const aril__graph_node *n)
{
    if (aril__is_fusible(g, n)) return n->out;
    return aril__is_row_op(g, n) ? aril__row_loop(g, n) : aril__graph_in(g, n)[0];
}

/* Whether a node can be in a group: also, nothing joins what a checkpoint computes again. */
static bool same_loop(const aril__graph *g, const group *x, aril__node_id id)
{
    const aril__graph_node *n = &g->nodes[id];
    aril__value_id loop = loop_of(g, n);
    return g->values[x->loop].device == g->values[loop].device &&
           g->nodes[x->first].region == n->region &&
           (same_shape(g, x->loop, loop) ||
            (aril__is_fusible(g, n) && is_by_row(g, x->loop, n->out)));
}

/* The members of some groups in the order of the graph, and a node after them; -1: too many. */
static int list_members(const pass *p, set of, aril__node_id last, aril__node_id *to)
{
    int n = 0;
    for (; of; of &= of - 1) {
        const group *x = &p->groups[__builtin_ctzll(of)];
        if (n + x->n >= ARIL__FUSED_MEMBERS) return -1;
        for (aril__node_id id = x->first; id; id = p->next[id]) {
            int at = n++;
            for (; at > 0 && to[at - 1] > id; at--) to[at] = to[at - 1];
            to[at] = id;
        }
    }
    to[n++] = last;
    return n;
}

/* Whether these groups and a node can be one fused op. */
static bool can_join(const pass *p, set groups, aril__node_id id)
{
    aril__node_id members[ARIL__FUSED_MEMBERS];
    aril__fusion f;
    aril__value_id loop = p->groups[__builtin_ctzll(groups)].loop;
    int n = list_members(p, groups, id, members);
    return n > 0 && aril__fusion_of(p->g, &p->uses, loop, n, members, &f);
}

/* The groups that a node joins: of one loop, independent of each other and of its other inputs. */
static set groups_to_join(const pass *p, aril__node_id id, inputs in)
{
    set join = 0;
    for (set left = in.direct; left; left &= left - 1) {
        int slot = __builtin_ctzll(left);
        const group *x = &p->groups[slot];
        set needed = in.others;
        for (set q = in.direct & ~bit(slot); q; q &= q - 1)
            needed |= p->groups[__builtin_ctzll(q)].needs;
        if (needed & bit(slot) || !same_loop(p->g, x, id)) continue;
        if (join && !same_shape(p->g, p->groups[__builtin_ctzll(join)].loop, x->loop)) continue;
        if (can_join(p, join | bit(slot), id)) join |= bit(slot);
    }
    return join;
}

static void append(pass *p, group *to, aril__node_id first, aril__node_id last, int n)
{
    if (to->n)
        p->next[to->last] = first;
    else
        to->first = first;
    to->last = last;
    to->n += n;
}

/* Merges groups and a node into the first of the groups, or into a new one. */
static void join(pass *p, set groups, aril__node_id id, inputs in)
{
    int slot = groups ? __builtin_ctzll(groups) : p->n_groups++;
    group *to = &p->groups[slot];
    set needs = in.others | closure(p, in.direct & ~groups);
    if (!groups) *to = (group){ .merged_into = slot, .loop = loop_of(p->g, &p->g->nodes[id]) };
    for (set left = groups & ~bit(slot); left; left &= left - 1) {
        group *from = &p->groups[__builtin_ctzll(left)];
        append(p, to, from->first, from->last, from->n);
        from->merged_into = slot;
        needs |= from->needs;
    }
    append(p, to, id, id, 1);
    to->needs = (to->needs | needs) & ~(groups | bit(slot));
    p->slot[id] = (uint8_t)slot;
    p->head[id] = id;                       /* corrected when the window closes */
    for (int i = 0; i < p->n_groups; i++) { /* who needs one of them needs all of it */
        group *x = &p->groups[i];
        if (i != slot && x->needs & (groups | bit(slot)))
            x->needs = (x->needs & ~groups) | bit(slot) | to->needs;
    }
}

/* Closes all groups: those of one node are none. Returns how many there are. */
static int close_window(pass *p, aril__node_id next)
{
    int n = 0;
    for (int i = 0; i < p->n_groups; i++) {
        const group *x = &p->groups[i];
        if (x->merged_into != i) continue;
        n += x->n > 1;
        p->loop[x->first] = x->loop;
        for (aril__node_id id = x->first; id; id = p->next[id])
            p->head[id] = x->n > 1 ? x->first : 0;
    }
    p->n_groups = 0;
    p->window = next;
    return n;
}

static bool has_row(const aril__device *d)
{
    int n = 0;
    aril__rows_of(d->id.kind, aril__fused_op(1), 0, NULL, &n);
    return n > 0;
}

/* Whether a node can be a step, or the end, of a fused op on its device. */
static bool is_candidate(const pass *p, const aril__graph_node *n)
{
    const aril__graph *g = p->g;
    if (n->n_bodies || !n->n_out || !has_row(g->values[n->out].device)) return false;
    if (n->n_out == 1 && (aril__is_fusible(g, n) || aril__is_fusible_tail(g, &p->uses, n)))
        return true;
    return aril__is_row_op(g, n);
}

/* Whether a node can begin a group: a reduction at the end of a loop needs one. */
static bool is_first(const aril__graph *g, const aril__graph_node *n)
{
    return aril__is_fusible(g, n) || aril__is_row_op(g, n);
}

/* Returns the number of groups. */
static int find_groups(pass *p)
{
    const aril__graph *g = p->g;
    int n = 0;
    for (aril__node_id id = 1; id < g->n_nodes; id++) {
        const aril__graph_node *node = &g->nodes[id];
        bool candidate = is_candidate(p, node);
        inputs in = inputs_of(p, node);
        set with = candidate ? groups_to_join(p, id, in) : 0;
        if (with || (candidate && is_first(g, node)))
            join(p, with, id, in);
        else
            p->needs[id] = in.others | closure(p, in.direct);
        if (p->n_groups == SLOTS) n += close_window(p, id + 1);
    }
    return n + close_window(p, g->n_nodes);
}

/* ---- the new list of nodes ---- */

/* While nodes are listed: each waits for the first of its inputs that is not listed yet. A group
 * stands for its members by the first of them. */
typedef struct lister {
    pass *p;
    aril__rewrite r;
    bool *listed;           /* by node; of groups: the head */
    aril__node_id *waiting; /* for a node: the first of those that wait, */
    aril__node_id *after;   /* and the next one */
} lister;

static aril__node_id unit_of(const pass *p, aril__node_id id)
{
    return p->head[id] ? p->head[id] : id;
}

/* The unit that a node of a unit waits for; 0: all its inputs are there. */
static aril__node_id missing_for(const lister *l, aril__node_id id, aril__node_id unit)
{
    const aril__graph_node *n = &l->r.old[id];
    for (int i = 0; i < n->n_in; i++) {
        const aril__value *v = &l->p->g->values[l->p->g->ids[n->in + (uint32_t)i]];
        if (v->kind != ARIL__FROM_NODE) continue;
        aril__node_id from = unit_of(l->p, v->from);
        if (from != unit && !l->listed[from]) return from;
    }
    return 0;
}

static aril__node_id missing(const lister *l, aril__node_id unit)
{
    aril__node_id wait = missing_for(l, unit, unit);
    for (aril__node_id id = l->p->next[unit]; id && l->p->head[unit] && !wait; id = l->p->next[id])
        wait = missing_for(l, id, unit);
    return wait;
}

static void describe_output(aril__graph *g, aril__value_id to, aril__value_id like)
{
    aril__value *v = &g->values[to];
    const aril__value *x = &g->values[like];
    v->dtype = x->dtype;
    v->ndim = x->ndim;
    v->device = x->device;
    v->shape = x->shape;
    v->flags = x->flags;
}

/* Lists the fused op of a group. */
static bool list_group(lister *l, aril__node_id first)
{
    aril__graph *g = l->p->g;
    aril__node_id members[ARIL__FUSED_MEMBERS];
    aril__fusion f;
    int n = 0;
    for (aril__node_id id = first; id; id = l->p->next[id]) {
        int at = n++;
        for (; at > 0 && members[at - 1] > id; at--) members[at] = members[at - 1];
        members[at] = id;
    }
    aril__graph_node *now = g->nodes; /* recipes are made of the old nodes */
    g->nodes = l->r.old;
    bool fits = aril__fusion_of(g, &l->p->uses, l->p->loop[first], n, members, &f);
    g->nodes = now;
    if (!fits) return aril__fail(ARIL_ERR_INTERNAL, "fuse: a group is no fused op") == ARIL_OK;
    const aril__recipe *recipe = aril__graph_recipe(g, &f.recipe);
    if (!recipe) return false;
    for (int i = 0; i < f.recipe.n_in; i++) f.in[i] = aril__rewrite_now(&l->r, f.in[i]);
    struct fused_attrs attrs = aril__fused_attrs(recipe);
    aril__node_id id =
        aril__graph_node_add(g, aril__fused_op(recipe->n_out), recipe->n_in, f.in, &attrs);
    if (!id) return false;
    aril__graph_node *node = &g->nodes[id];
    node->region = l->r.old[members[n - 1]].region;
    node->scope = l->r.old[members[n - 1]].scope;
    node->label = l->r.old[members[n - 1]].label;
    node->where = l->r.old[members[n - 1]].where;
    for (uint32_t k = 0; k < recipe->n_out; k++) {
        describe_output(g, node->out + k, f.out[k]);
        aril__rewrite_value(&l->r, f.out[k], node->out + k);
    }
    for (int i = 0; i < f.n_shapes; i++) aril__rewrite_value(&l->r, f.shape[i], f.like[i]);
    return true;
}

/* Lists a unit, and then those that waited for it and now have all. */
static bool list_unit(lister *l, aril__node_id unit)
{
    aril__node_id ready = unit; /* a stack, linked by `after` */
    bool fits = true;
    l->after[unit] = 0;
    while (ready && fits) {
        unit = ready;
        ready = l->after[unit];
        fits = l->p->head[unit] ? list_group(l, unit) : aril__rewrite_keep(&l->r, unit);
        l->listed[unit] = true;
        for (aril__node_id id = l->waiting[unit], next; id; id = next) {
            next = l->after[id];
            aril__node_id wait = missing(l, id);
            aril__node_id *list = wait ? &l->waiting[wait] : &ready;
            l->after[id] = *list;
            *list = id;
        }
        l->waiting[unit] = 0;
    }
    return fits;
}

static aril_status list_nodes(pass *p)
{
    lister l = { .p = p,
                 .listed = aril__calloc(p->g->n_nodes),
                 .waiting = aril__calloc(p->g->n_nodes * sizeof *l.waiting),
                 .after = aril__calloc(p->g->n_nodes * sizeof *l.after) };
    bool fits = l.listed && l.waiting && l.after;
    aril_status s = fits ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "fuse: out of memory");
    if (fits && aril__rewrite_begin(&l.r, p->g)) {
        for (aril__node_id id = 1; id < l.r.n_old && fits; id++) {
            if (unit_of(p, id) != id) continue;
            aril__node_id wait = missing(&l, id);
            if (!wait) {
                fits = list_unit(&l, id);
                continue;
            }
            l.after[id] = l.waiting[wait];
            l.waiting[wait] = id;
        }
        s = aril__rewrite_end(&l.r, fits);
    } else if (fits) {
        s = ARIL_ERR_MEMORY;
    }
    free(l.listed);
    free(l.waiting);
    free(l.after);
    return s;
}

aril_status aril__pass_fuse(aril__graph *g)
{
    /* Numbers that are drawn after a loop depend on it: nodes stay in their order. */
    for (aril__node_id id = 1; id < g->n_nodes; id++)
        if (aril__control_is_kept(g, &g->nodes[id])) return ARIL_OK;
    size_t n = g->n_nodes;
    pass *p = aril__calloc(sizeof *p);
    aril_status s = ARIL_OK;
    if (!p) return aril__fail(ARIL_ERR_MEMORY, "fuse: out of memory");
    p->g = g;
    p->window = 1;
    p->next = aril__calloc(n * sizeof *p->next);
    p->head = aril__calloc(n * sizeof *p->head);
    p->loop = aril__calloc(n * sizeof *p->loop);
    p->slot = aril__calloc(n);
    p->needs = aril__calloc(n * sizeof *p->needs);
    if (p->next && p->head && p->loop && p->slot && p->needs && aril__uses_count(g, &p->uses)) {
        if (find_groups(p)) s = list_nodes(p);
    } else {
        s = aril__fail(ARIL_ERR_MEMORY, "fuse: out of memory");
    }
    aril__uses_free(&p->uses);
    free(p->next);
    free(p->head);
    free(p->loop);
    free(p->slot);
    free(p->needs);
    free(p);
    return s;
}
