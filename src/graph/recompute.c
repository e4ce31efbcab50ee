/* Less memory for more work: values that are needed long after they were computed are computed
 * again instead of kept, those first that cost least for the memory they free. */
#include "graph/executor.h"
#include "ops/table/flops.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 6 };
#define NEVER UINT32_MAX

/* Values that share memory: one that an op computes, and its views. Named by the slot of the
 * first. */
typedef struct family {
    uint32_t first, last;   /* steps: where it is computed, where it is used last */
    uint32_t before, after; /* uses around the step with the most memory in use */
    uint32_t again;         /* the step before which it is computed again; NEVER: it is kept */
    uint32_t views;         /* a list of slots, by w->next_view */
    size_t bytes;           /* in the arena; 0: elsewhere */
    bool pinned;            /* others are computed again from it */
} family;

typedef struct work {
    aril__graph *g;
    const aril__exec *x;
    const aril__instance *n;
    const aril__device *device;
    uint32_t *root;      /* by slot */
    uint32_t *next_view; /* by slot */
    uint32_t *producer;  /* by slot: 1 + its step; 0: a source */
    family *of;          /* by slot, if it is a root */
    double *cost;        /* by step: bytes moved, and products counted as bytes */
    uint32_t most;       /* the step with the most memory in use */
    /* While rewriting: */
    aril__rewrite r;
    aril__node_id *clone; /* by step: the node that computes it again */
    uint32_t *cloned_at;  /* by step: 1 + the step before which that is */
} work;

typedef struct candidate {
    uint32_t root;
    size_t bytes;
    double cost;
} candidate;

/* ---- what is in memory when ---- */

static const aril__graph_node *node_of(const work *w, uint32_t step)
{
    return &w->g->nodes[w->x->steps[step].node];
}

static void find_families(work *w)
{
    const aril__exec *x = w->x;
    for (uint32_t i = 0; i < x->n_steps; i++) {
        const aril__step *s = &x->steps[i];
        const aril__graph_node *n = node_of(w, i);
        for (uint32_t k = 0; k < n->n_out; k++) {
            uint32_t slot = x->slots[s->out + k];
            if (!slot) continue;
            w->producer[slot] = 1 + i;
            bool view = k < n->op->n_out && ARIL__IS_VIEW(n->op->out[k]);
            uint32_t base = view ? x->slots[s->in + n->op->out[k] - 1u] : 0;
            uint32_t root = w->root[slot] = base && w->producer[base] ? w->root[base] : slot;
            if (view && base && !w->producer[base]) w->root[slot] = 0; /* of a source */
            if (root != slot && w->root[slot]) {
                w->next_view[slot] = w->of[root].views;
                w->of[root].views = slot;
            }
            w->of[slot] = (family){ .first = i, .last = i, .again = NEVER, .after = NEVER };
            uint32_t h = w->n->slot[slot];
            const aril__place *p = h ? &w->n->places[w->n->headers[h].place] : NULL;
            if (p && p->kind == ARIL__IN_ARENA && p->device == w->device && !view)
                w->of[slot].bytes = aril__dtype_bytes((aril_dtype)w->n->headers[h].t->dtype,
                                                      w->n->headers[h].t->numel);
        }
    }
}

/* Calls fn for each step that reads the memory of a family, in order. */
static void each_use(work *w, void (*fn)(work *w, family *f, uint32_t step))
{
    for (uint32_t i = 0; i < w->x->n_steps; i++) {
        const aril__graph_node *n = node_of(w, i);
        for (uint32_t k = 0; k < n->n_in; k++) {
            uint32_t slot = w->x->slots[w->x->steps[i].in + k];
            if (slot && w->root[slot] && !(k < 31 && n->op->shape_only >> k & 1))
                fn(w, &w->of[w->root[slot]], i);
        }
    }
}

static void note_last(work *w, family *f, uint32_t step)
{
    (void)w;
    if (step > f->last) f->last = step;
}

static void note_around(work *w, family *f, uint32_t step)
{
    if (step <= w->most)
        f->before = step;
    else if (f->after == NEVER)
        f->after = step;
}

/* Finds the step with the most memory in use. */
static bool find_most(work *w)
{
    const aril__exec *x = w->x;
    each_use(w, note_last);
    for (uint32_t i = 0; i < x->n_outputs + x->n_effects; i++) {
        uint32_t slot = i < x->n_outputs ? x->outputs[i] : x->effect_slot[i - x->n_outputs];
        if (slot && w->root[slot]) w->of[w->root[slot]].last = NEVER;
    }
    int64_t *change = aril__calloc(((size_t)x->n_steps + 2) * sizeof *change);
    if (!change) return false;
    for (uint32_t s = 1; s < x->n_slots; s++) {
        if (w->root[s] != s || !w->of[s].bytes) continue;
        change[w->of[s].first] += (int64_t)w->of[s].bytes;
        if (w->of[s].last != NEVER) change[w->of[s].last + 1] -= (int64_t)w->of[s].bytes;
    }
    for (uint32_t i = 0; i < w->n->n_actions; i++) { /* scratch memory */
        const aril__action *a = &w->n->actions[i];
        if (!a->workspace || w->n->places[a->workspace].device != w->device) continue;
        change[a->step] += (int64_t)w->n->places[a->workspace].bytes;
        change[a->step + 1] -= (int64_t)w->n->places[a->workspace].bytes;
    }
    int64_t now = 0, most = -1;
    for (uint32_t i = 0; i < x->n_steps; i++) {
        now += change[i];
        if (now > most) {
            most = now;
            w->most = i;
        }
    }
    free(change);
    for (uint32_t s = 1; s < x->n_slots; s++) w->of[s].before = w->of[s].first;
    each_use(w, note_around);
    return true;
}

/* ---- what can be computed again ---- */

static void find_costs(work *w)
{
    const double flops_per_byte = 16; /* a product is worth it last */
    for (uint32_t i = 0; i < w->n->n_actions; i++) {
        const aril__action *a = &w->n->actions[i];
        if (a->kind == ARIL__RUN_STEP)
            w->cost[a->step] = -1; /* cannot be repeated */
        else if (w->cost[a->step] >= 0)
            w->cost[a->step] += aril__bytes_moved(&a->run) + aril__flops(&a->run) / flops_per_byte;
    }
}

/* The slot of input k of a step, whose memory that reads; 0: none. */
static uint32_t read_by(const work *w, uint32_t step, uint32_t k)
{
    bool shape_only = k < 31 && node_of(w, step)->op->shape_only >> k & 1;
    return shape_only ? 0 : w->x->slots[w->x->steps[step].in + k];
}

/* Whether a value is in memory before a step, or is computed again before it anyway. */
static bool is_there(const work *w, uint32_t slot, uint32_t step)
{
    if (!w->producer[slot] || !w->root[slot]) return true;
    const family *f = &w->of[w->root[slot]];
    if (f->again != NEVER) return step >= f->again;
    return f->last >= step;
}

/* The cost of computing a value again before a step; negative: not possible. */
static double cost_of(const work *w, uint32_t slot, uint32_t step, int depth)
{
    uint32_t at = w->producer[slot] - 1;
    const aril__graph_node *n = node_of(w, at);
    if (depth > MAX_DEPTH || w->cost[at] < 0) return -1;
    double cost = 1 + w->cost[at];
    for (uint32_t k = 0; k < n->n_in; k++) {
        uint32_t in = read_by(w, at, k);
        if (!in || is_there(w, in, step)) continue;
        double more = cost_of(w, in, step, depth + 1);
        if (more < 0) return -1;
        cost += more;
    }
    return cost;
}

/* The same of a value with its views, which may need other values, too. */
static double cost_of_family(const work *w, uint32_t root, uint32_t step)
{
    double cost = cost_of(w, root, step, 0);
    for (uint32_t s = w->of[root].views; s && cost >= 0; s = w->next_view[s]) {
        double more = cost_of(w, s, step, 1);
        cost = more < 0 ? more : cost + more;
    }
    return cost;
}

/* Keeps what the value is computed from. */
static void pin_inputs(work *w, uint32_t slot, uint32_t step)
{
    uint32_t at = w->producer[slot] - 1;
    const aril__graph_node *n = node_of(w, at);
    for (uint32_t k = 0; k < n->n_in; k++) {
        uint32_t in = read_by(w, at, k);
        if (!in || !w->producer[in] || !w->root[in]) continue;
        if (is_there(w, in, step))
            w->of[w->root[in]].pinned = true;
        else
            pin_inputs(w, in, step);
    }
}

static void pin_inputs_of_family(work *w, uint32_t root, uint32_t step)
{
    pin_inputs(w, root, step);
    for (uint32_t s = w->of[root].views; s; s = w->next_view[s]) pin_inputs(w, s, step);
}

static int by_worth(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    double p = (double)x->bytes / x->cost, q = (double)y->bytes / y->cost;
    if (p != q) return p > q ? -1 : 1;
    return x->root < y->root ? -1 : x->root > y->root;
}

/* Marks families whose memory is not used at the step with the most until enough is free; returns
 * their number. */
static uint32_t choose(work *w, size_t wanted, candidate *all)
{
    uint32_t n = 0, chosen = 0;
    for (uint32_t s = 1; s < w->x->n_slots; s++) {
        const family *f = &w->of[s];
        bool idle = w->root[s] == s && f->bytes && f->last != NEVER && f->first < w->most &&
                    f->before < w->most && f->after != NEVER;
        double cost = idle ? cost_of_family(w, s, f->after) : -1;
        if (cost >= 0) all[n++] = (candidate){ s, f->bytes, cost };
    }
    qsort(all, n, sizeof *all, by_worth);
    size_t freed = 0;
    for (uint32_t i = 0; i < n && freed < wanted; i++) {
        family *f = &w->of[all[i].root];
        if (f->pinned || cost_of_family(w, all[i].root, f->after) < 0) continue;
        pin_inputs_of_family(w, all[i].root, f->after);
        f->again = f->after;
        freed += f->bytes;
        chosen++;
    }
    return chosen;
}

/* ---- rewriting ---- */

/* A node like that of a step, of values as they are now. */
static aril__node_id add_clone(work *w, uint32_t step)
{
    aril__graph *g = w->g;
    const aril__graph_node *old = &w->r.old[w->x->steps[step].node];
    aril__value_id *in = aril__malloc((old->n_in + 1u) * sizeof *in);
    if (!in) {
        aril__fail(ARIL_ERR_MEMORY, "graph: out of memory");
        return 0;
    }
    for (uint32_t k = 0; k < old->n_in; k++) in[k] = aril__rewrite_now(&w->r, g->ids[old->in + k]);
    aril__node_id id = aril__graph_node_add(g, old->op, old->n_in, in, NULL);
    free(in);
    if (!id) return 0;
    aril__graph_node *n = &g->nodes[id];
    n->attrs = old->attrs;
    n->has_attrs = old->has_attrs;
    n->sized = old->sized;
    n->scope = old->scope;
    n->label = old->label;
    n->where = old->where;
    for (uint32_t k = 0; k < n->n_out; k++) {
        aril__value v = g->values[old->out + k];
        v.from = id;
        g->values[n->out + k] = v;
    }
    return id;
}

/* Computes a value again before a step, after what it needs. */
static bool emit(work *w, uint32_t slot, uint32_t step)
{
    uint32_t at = w->producer[slot] - 1;
    const aril__graph_node *old = &w->r.old[w->x->steps[at].node];
    for (uint32_t k = 0; k < old->n_in && w->cloned_at[at] != 1 + step; k++) {
        uint32_t in = read_by(w, at, k);
        if (!in || !w->producer[in]) continue;
        uint32_t from = w->producer[in] - 1;
        bool now = w->root[in] && w->of[w->root[in]].again == step;
        if (is_there(w, in, step) && !(now && w->cloned_at[from] != 1 + step)) continue;
        if (!emit(w, in, step)) return false;
    }
    if (w->cloned_at[at] != 1 + step) {
        if (!(w->clone[at] = add_clone(w, at))) return false;
        w->cloned_at[at] = 1 + step;
    }
    aril__value_id v = w->x->value[slot];
    aril__rewrite_value(&w->r, v, w->g->nodes[w->clone[at]].out + (v - old->out));
    return true;
}

static bool emit_family(work *w, uint32_t root, uint32_t step)
{
    if (!emit(w, root, step)) return false;
    /* Views are listed latest first, and may be views of each other: bases come before. */
    uint32_t n = 0;
    for (uint32_t s = w->of[root].views; s; s = w->next_view[s]) n++;
    for (uint32_t i = n; i > 0; i--) {
        uint32_t s = w->of[root].views;
        for (uint32_t k = 1; k < i; k++) s = w->next_view[s];
        if (!emit(w, s, step)) return false;
    }
    return true;
}

static aril_status rewrite(work *w)
{
    const aril__exec *x = w->x;
    if (!aril__rewrite_begin(&w->r, w->g)) return ARIL_ERR_MEMORY;
    bool fits = true;
    uint32_t step = 0;
    for (aril__node_id id = 1; id < w->r.n_old && fits; id++) {
        if (step < x->n_steps && x->steps[step].node == id) {
            for (uint32_t s = 1; s < x->n_slots && fits; s++)
                if (w->root[s] == s && w->of[s].again == step) fits = emit_family(w, s, step);
            step++;
        }
        if (fits) fits = aril__rewrite_keep(&w->r, id);
    }
    return aril__rewrite_end(&w->r, fits);
}

aril_status aril__recompute(aril__graph *g, const aril__exec *x, const aril__instance *n,
                            const aril__device *device, size_t wanted, uint32_t *chosen)
{
    work w = { .g = g, .x = x, .n = n, .device = device };
    size_t slots = (size_t)x->n_slots + 1, steps = (size_t)x->n_steps + 1;
    w.root = aril__calloc(slots * sizeof *w.root);
    w.next_view = aril__calloc(slots * sizeof *w.next_view);
    w.producer = aril__calloc(slots * sizeof *w.producer);
    w.of = aril__calloc(slots * sizeof *w.of);
    w.cost = aril__calloc(steps * sizeof *w.cost);
    w.clone = aril__calloc(steps * sizeof *w.clone);
    w.cloned_at = aril__calloc(steps * sizeof *w.cloned_at);
    candidate *all = aril__malloc(slots * sizeof *all);
    bool fits =
        w.root && w.next_view && w.producer && w.of && w.cost && w.clone && w.cloned_at && all;
    aril_status s = ARIL_OK;
    *chosen = 0;
    if (fits) {
        find_families(&w);
        find_costs(&w);
        fits = find_most(&w);
    }
    if (fits) *chosen = choose(&w, wanted, all);
    if (!fits)
        s = aril__fail(ARIL_ERR_MEMORY, "graph: out of memory");
    else if (*chosen)
        s = rewrite(&w);
    void *const lists[] = {
        w.root, w.next_view, w.producer, w.of, w.cost, w.clone, w.cloned_at, all
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]);
    return s;
}
