#include "graph/gradient.h"

#include "aril/create.h"
#include "aril/view.h"
#include "autograd/backward.h"
#include "graph/control.h"
#include "graph/passes.h"
#include "graph/replay.h"
#include "graph/tracing.h"

#include <stdlib.h>
#include <string.h>

/* Where an input of the backward part comes from. */
enum source_kind {
    OF_RESULT,   /* result `index` of the function */
    OF_KEPT,     /* result n_out + index of the forward part */
    OF_STATE,    /* a tensor outside the program, which it does not change */
    OF_INPUT,    /* an input of the function */
    OF_SIZES,    /* the sizes of an input */
    OF_KEY,      /* a key of a random op */
    OF_GRADIENT, /* the gradient of result `index` */
};

typedef struct source {
    uint8_t kind;
    uint32_t index;
} source;

/* A leaf whose gradient the backward part computes. */
typedef struct target {
    int input;        /* the leaf is that of an input of the function; -1: it is */
    aril__node *leaf; /* this one: a reference */
} target;

struct aril__gradient {
    atomic_int refs;
    char *name;
    int n_in, n_out, n_targets;
    target *targets;
    bool *has; /* by result: it has a gradient */
    aril__graph *g;
    aril__exec *x;
    aril__replay *replay; /* or NULL */
    source *sources;      /* by input of g */
    uint32_t n_sources, cap_sources, n_kept;
};

static aril__cold aril_status no_memory(const char *name)
{
    return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for its gradient", name);
}

void aril__gradient_release(aril__gradient *q)
{
    if (!q || atomic_fetch_sub(&q->refs, 1) != 1) return;
    aril__replay_free(q->replay);
    aril__exec_free(q->x);
    aril__graph_free(q->g);
    for (int i = 0; i < q->n_targets; i++)
        if (q->targets[i].leaf) aril__node_release(aril__self(), q->targets[i].leaf);
    free(q->targets);
    free(q->sources);
    free(q->has);
    free(q->name);
    free(q);
}

uint32_t aril__gradient_kept(const aril__gradient *q)
{
    return q->n_kept;
}

/* ---- the trace ---- */

/* Nodes of autograd, each once. */
typedef struct node_list {
    aril__node **at;
    uint32_t n, cap;
    aril__map seen;
} node_list;

static bool list_node(node_list *l, aril__node *n)
{
    static aril__cell marker;
    if (!n || aril__map_find(&l->seen, n)) return true;
    if (!aril__map_put(&l->seen, n, &marker) ||
        !aril__graph_grow(&l->at, l->n, &l->cap, sizeof *l->at))
        return false;
    l->at[l->n++] = n;
    return true;
}

/* All nodes that lead to the results: the list is the queue, too. */
static bool list_nodes(node_list *l, int n_out, aril_tensor *const *out)
{
    bool fits = true;
    for (int i = 0; i < n_out && fits; i++) fits = list_node(l, out[i]->node);
    for (uint32_t at = 0; at < l->n && fits; at++)
        for (int i = 0; i < l->at[at]->n_in && fits; i++)
            fits = list_node(l, l->at[at]->edge[i].node);
    return fits;
}

/* Whether a leaf belongs to a tensor outside the trace. */
static bool is_outside(const aril__tracing *t, const aril__node *leaf)
{
    for (uint32_t i = 0; i < t->n_met; i++)
        if (t->met[i].node == leaf) return true;
    return false;
}

static aril_status list_targets(aril__gradient *q, aril__tracing *t, aril_tensor *const *in,
                                const node_list *l)
{
    q->targets = aril__calloc(((size_t)l->n + 1) * sizeof *q->targets);
    if (!q->targets) return no_memory(q->name);
    for (uint32_t i = 0; i < l->n; i++) {
        aril__node *n = l->at[i];
        if (!(n->flags & ARIL__NODE_LEAF)) continue;
        int input = q->n_in;
        while (--input >= 0 && in[input]->node != n) continue;
        if (input >= 0 || is_outside(t, n))
            q->targets[q->n_targets++] = (target){ input, aril__node_keep(n) };
    }
    return ARIL_OK;
}

/* A write that autograd records would connect a tensor outside with the graph of the trace. */
static aril_status check_outside(const aril__gradient *q, const aril__tracing *t)
{
    for (uint32_t i = 0; i < t->n_met; i++)
        if (t->met[i].tensor->node != t->met[i].node)
            return aril__fail(ARIL_ERR_UNSUPPORTED,
                              "%s: writes to a tensor from outside in a way that autograd records, "
                              "which a program cannot repeat; write under ARIL_NO_GRAD",
                              q->name);
    return ARIL_OK;
}

/* Walks back from the results. got[] gets references, or NULL. */
static aril_status differentiate(aril__gradient *q, aril__tracing *t, aril_tensor *const *out,
                                 aril_tensor **got)
{
    aril_tensor *root[ARIL__MAX_OUT], *start[ARIL__MAX_OUT];
    aril__target *to = aril__malloc(((size_t)q->n_targets + 1) * sizeof *to);
    aril_status s = to ? ARIL_OK : no_memory(q->name);
    int n = 0;
    for (int i = 0; i < q->n_out && s == ARIL_OK; i++) {
        q->has[i] = out[i]->node && aril__is_float((aril_dtype)out[i]->dtype);
        if (!q->has[i]) continue;
        root[n] = out[i];
        start[n] = aril__give(aril__self(), aril__tracing_input(t, out[i], out[i]->dim, NULL));
        s = aril_tensor_status(start[n++]);
    }
    for (int i = 0; i < q->n_targets && s == ARIL_OK; i++)
        to[i] = (aril__target){ q->targets[i].leaf, 0 };
    if (s == ARIL_OK && n && q->n_targets)
        s = aril__backward_capture(n, root, start, q->n_targets, to, got);
    free(to);
    return s;
}

/* Lists results and gradients, without targets that no gradient arrives at. */
static void list_results(aril__gradient *q, aril_tensor *const *out, aril_tensor **got,
                         aril_tensor **list, int *n_list)
{
    aril__thread *th = aril__self();
    int n = 0;
    for (int i = 0; i < q->n_out; i++) list[i] = out[i];
    for (int i = 0; i < q->n_targets; i++) {
        if (!got[i]) {
            aril__node_release(th, q->targets[i].leaf);
            continue;
        }
        list[q->n_out + n] = aril__give(th, got[i]);
        q->targets[n++] = q->targets[i];
    }
    q->n_targets = n;
    *n_list = q->n_out + n;
}

static aril_status trace_gradient(aril__gradient *q, aril__tracing *t, aril_tensor *const *in,
                                  aril_tensor *const *out, aril_tensor ***list, int *n_list)
{
    node_list l = { 0 };
    aril_status s = check_outside(q, t);
    if (s == ARIL_OK && !list_nodes(&l, q->n_out, out)) s = no_memory(q->name);
    if (s == ARIL_OK) s = list_targets(q, t, in, &l);
    free(l.at);
    aril__map_free(&l.seen);
    if (s < 0) return s;
    size_t room = (size_t)q->n_targets + 1;
    aril_tensor **got = aril__calloc(room * sizeof *got);
    *list = aril__malloc(((size_t)q->n_out + room) * sizeof **list);
    s = got && *list ? differentiate(q, t, out, got) : no_memory(q->name);
    if (s == ARIL_OK)
        list_results(q, out, got, *list, n_list);
    else
        for (int i = 0; got && i < q->n_targets; i++)
            if (got[i]) aril__tensor_release(aril__self(), got[i]);
    free(got);
    return s;
}

aril__gradient *aril__gradient_trace(aril__tracing *t, const char *name, int n_in,
                                     aril_tensor *const *in, int n_out, aril_tensor *const *out,
                                     aril_tensor ***list, int *n_list)
{
    aril__gradient *q = aril__calloc(sizeof *q);
    *list = NULL;
    *n_list = 0;
    if (q) {
        atomic_init(&q->refs, 1);
        q->n_in = n_in;
        q->n_out = n_out;
        q->name = aril__strdup(name);
        q->has = aril__calloc((size_t)n_out + 1);
    }
    aril_status s = q && q->name && q->has ? ARIL_OK : no_memory(name);
    if (s == ARIL_OK && n_out > ARIL__MAX_OUT)
        s = aril__fail(ARIL_ERR_UNSUPPORTED, "%s: gradients of more than %d results", name,
                       ARIL__MAX_OUT);
    if (s == ARIL_OK) s = trace_gradient(q, t, in, out, list, n_list);
    if (s == ARIL_OK) return q;
    free(*list);
    *list = NULL;
    aril__gradient_release(q);
    return NULL;
}

/* ---- dividing the graph ---- */

typedef struct divider {
    aril__gradient *q;
    aril__graph *g;       /* the whole, which becomes the backward part */
    aril__graph *forward; /* a copy, which becomes the forward part */
    bool *ahead, *back;   /* by node: it is in that part */
    bool *written;        /* by state */
    aril__value_id *to;   /* by value: the input of the backward part that stands for it, */
    aril__value_id *like; /* and the constant that has its sizes */
    uint32_t n_values;    /* before */
    uint32_t n_inputs;
} divider;

static bool reads_shape(const aril__graph_node *n, int i)
{
    return i < 31 && n->op->shape_only >> i & 1;
}

static void need(const aril__graph *g, bool *needed, aril__value_id v)
{
    if (g->values[v].kind == ARIL__FROM_NODE) needed[g->values[v].from] = true;
}

static aril_status find_forward(divider *d)
{
    const aril__graph *g = d->g;
    for (int i = 0; i < d->q->n_out; i++) need(g, d->ahead, g->outputs[i]);
    for (uint32_t i = 0; i < g->n_effects; i++) need(g, d->ahead, g->effects[i].value);
    for (aril__node_id id = g->n_nodes; id-- > 1;) {
        const aril__graph_node *n = &g->nodes[id];
        for (int i = 0; i < n->n_in && d->ahead[id]; i++) {
            aril__value_id v = aril__graph_in(g, n)[i];
            const aril__value *x = &g->values[v];
            if (v && x->kind == ARIL__FROM_INPUT && x->from >= (uint32_t)d->q->n_in)
                return aril__fail(ARIL_ERR_UNSUPPORTED,
                                  "%s: what it changes depends on its gradient", d->q->name);
            need(g, d->ahead, v);
        }
    }
    return ARIL_OK;
}

/* Whether a use of a value by the backward part needs its sizes only, which are known now. */
static bool is_like(const divider *d, const aril__graph_node *n, int i, aril__value_id v)
{
    return reads_shape(n, i) && !(d->g->values[v].flags & ARIL__VALUE_UNKNOWN);
}

/* Views are computed again: only what they are views of is kept. */
static void need_back(const divider *d, aril__value_id v)
{
    const aril__value *x = &d->g->values[v];
    if (x->kind != ARIL__FROM_NODE) return;
    if (!d->ahead[x->from] || ARIL__IS_VIEW(d->g->nodes[x->from].op->out[0]))
        d->back[x->from] = true;
}

static void find_backward(const divider *d)
{
    const aril__graph *g = d->g;
    for (uint32_t i = (uint32_t)d->q->n_out; i < g->n_outputs; i++) need_back(d, g->outputs[i]);
    for (aril__node_id id = g->n_nodes; id-- > 1;) {
        const aril__graph_node *n = &g->nodes[id];
        for (int i = 0; i < n->n_in && d->back[id]; i++) {
            aril__value_id v = aril__graph_in(g, n)[i];
            if (v && !is_like(d, n, i, v)) need_back(d, v);
        }
    }
}

/* The position of a value among the results of the forward part; it becomes one. */
static bool keep_result(divider *d, aril__value_id v, source *to)
{
    const aril__graph *f = d->forward;
    uint32_t n_out = (uint32_t)d->q->n_out, i = 0;
    while (i < f->n_outputs && f->outputs[i] != v) i++;
    *to = i < n_out ? (source){ OF_RESULT, i } : (source){ OF_KEPT, i - n_out };
    return i < f->n_outputs || aril__graph_output(d->forward, v);
}

static bool source_of(divider *d, aril__value_id v, source *to)
{
    const aril__value x = d->g->values[v];
    switch (x.kind) {
    case ARIL__FROM_STATE:
        if (d->written[x.from]) return keep_result(d, v, to);
        *to = (source){ OF_STATE, x.from };
        return true;
    case ARIL__FROM_KEY: *to = (source){ OF_KEY, x.from }; return true;
    case ARIL__FROM_INPUT:
        if (x.from < (uint32_t)d->q->n_in) {
            *to = (source){ OF_INPUT, x.from };
            return true;
        }
        *to = (source){ OF_GRADIENT, 0 };
        for (uint32_t left = x.from - (uint32_t)d->q->n_in;; to->index++)
            if (d->q->has[to->index] && left-- == 0) return true;
    default: return keep_result(d, v, to);
    }
}

/* A new input of the backward part like value v. 0 with an error. */
static aril__value_id add_input(divider *d, aril__value_id v, source from)
{
    aril__gradient *q = d->q;
    aril__graph *g = d->g;
    if (!ARIL__GROW(g, values) || !ARIL__GROW(g, inputs) ||
        !aril__graph_grow(&q->sources, q->n_sources, &q->cap_sources, sizeof *q->sources))
        return 0;
    aril__value_id made = g->n_values++;
    g->values[made] = g->values[v];
    g->values[made].kind = ARIL__FROM_INPUT;
    g->values[made].from = q->n_sources;
    g->values[made].index = 0;
    if (from.kind == OF_KEY) g->values[made].tensor_flags = ARIL__KEY;
    g->inputs[g->n_inputs++] = (aril__input){ made, NULL };
    q->sources[q->n_sources++] = from;
    return made;
}

/* A constant with the sizes of value v. */
static aril__value_id sizes_of(divider *d, aril__value_id v)
{
    if (d->like[v]) return d->like[v];
    aril__graph *g = d->g;
    aril__thread *th = aril__self();
    const aril__value *x = &g->values[v];
    aril_tensor *t = aril__tensor_header(th, (aril_dtype)x->dtype, x->ndim, aril__graph_dims(g, v));
    if (!t) return 0;
    t->flags |= ARIL__SHAPE_ONLY;
    t->u.device = x->device;
    d->like[v] = aril__graph_constant(g, t);
    aril__tensor_release(th, t);
    return d->like[v];
}

/* What the backward part uses instead of a value; 0 with an error. */
static aril__value_id value_back(divider *d, aril__value_id v, bool like)
{
    const aril__value *x = &d->g->values[v];
    if (x->kind == ARIL__FROM_CONSTANT || x->kind == ARIL__NO_VALUE ||
        (x->kind == ARIL__FROM_NODE && d->back[x->from]))
        return v;
    if (like) return sizes_of(d, v);
    source from;
    if (!d->to[v] && source_of(d, v, &from)) d->to[v] = add_input(d, v, from);
    return d->to[v];
}

static bool connect_backward(divider *d)
{
    aril__graph *g = d->g;
    for (aril__node_id id = 1; id < g->n_nodes; id++) {
        aril__graph_node n = g->nodes[id];
        for (int i = 0; i < n.n_in && d->back[id]; i++) {
            aril__value_id v = g->ids[n.in + (uint32_t)i], now;
            if (!v) continue;
            if (!(now = value_back(d, v, is_like(d, &n, i, v)))) return false;
            g->ids[n.in + (uint32_t)i] = now;
        }
    }
    for (uint32_t i = (uint32_t)d->q->n_out; i < g->n_outputs; i++)
        if (!(g->outputs[i] = value_back(d, g->outputs[i], false))) return false;
    /* Unknown sizes are learned from inputs. */
    for (uint32_t i = 0; i < (uint32_t)d->q->n_in; i++) {
        aril__value_id v = g->inputs[i].value;
        if (g->values[v].flags & ARIL__VALUE_UNKNOWN && !d->to[v] &&
            !add_input(d, v, (source){ OF_SIZES, i }))
            return false;
    }
    return true;
}

/* The whole without what belongs to the forward part. */
static void cut_backward(divider *d)
{
    aril__graph *g = d->g;
    aril__thread *th = aril__self();
    uint32_t n_out = (uint32_t)d->q->n_out;
    g->n_outputs -= n_out;
    memmove(g->outputs, g->outputs + n_out, g->n_outputs * sizeof *g->outputs);
    for (uint32_t i = 0; i < d->n_inputs; i++) free(g->inputs[i].name);
    g->n_inputs -= d->n_inputs;
    memmove(g->inputs, g->inputs + d->n_inputs, g->n_inputs * sizeof *g->inputs);
    for (uint32_t i = 0; i < g->n_states; i++) {
        if (g->states[i].tensor) aril__tensor_release(th, g->states[i].tensor);
        free(g->states[i].name);
    }
    for (uint32_t i = 0; i < g->n_grads; i++) aril__node_release(th, g->grads[i].leaf);
    g->n_states = g->n_grads = g->n_keys = g->n_draws = g->n_effects = 0;
    g->n_requirements = 0; /* the forward program checks them */
    aril__graph_keep_nodes(g, d->back);
    for (aril__value_id v = 1; v < d->n_values; v++)
        if (g->values[v].kind != ARIL__FROM_NODE && g->values[v].kind != ARIL__FROM_CONSTANT)
            g->values[v].kind = ARIL__NO_VALUE;
}

static void cut_forward(divider *d)
{
    aril__graph *f = d->forward;
    f->epilogues = d->g->epilogues;
    f->n_epilogues = d->g->n_epilogues;
    f->cap_epilogues = d->g->cap_epilogues;
    d->g->epilogues = NULL;
    d->g->n_epilogues = d->g->cap_epilogues = 0;
    aril__graph_keep_nodes(f, d->ahead);
    for (aril__value_id v = 1; v < f->n_values; v++)
        if (f->values[v].kind == ARIL__FROM_INPUT && f->values[v].from >= (uint32_t)d->q->n_in)
            f->values[v].kind = ARIL__NO_VALUE;
    while (f->n_inputs > (uint32_t)d->q->n_in) free(f->inputs[--f->n_inputs].name);
}

/* Keys after a loop depend on how many numbers that draws. */
static aril_status check_loops(const divider *d)
{
    for (aril__node_id id = 1; id < d->g->n_nodes; id++) {
        const aril__graph_node *n = &d->g->nodes[id];
        const struct control_attrs *a = n->n_bodies ? aril__graph_attrs(d->g, n) : NULL;
        if (a && a->kind[0] != ARIL__COND && a->draws[0] && !a->repeats[0])
            return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: draws random numbers in a loop (%s)",
                              d->q->name, n->op->name);
    }
    return ARIL_OK;
}

/* An input that the function changes would have to be connected with its graph. */
static aril_status check_effects(const divider *d)
{
    for (uint32_t i = 0; i < d->g->n_effects; i++) {
        const aril__effect *e = &d->g->effects[i];
        if (e->kind == ARIL__WRITE_STATE) d->written[e->to] = true;
        if (e->kind == ARIL__WRITE_INPUT)
            return aril__fail(ARIL_ERR_UNSUPPORTED,
                              "%s: changes its input %u in place, which autograd records",
                              d->q->name, e->to);
        if (e->kind == ARIL__WRITE_GRAD)
            return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: leaves gradients in parameters",
                              d->q->name);
    }
    return ARIL_OK;
}

static aril_status divide(divider *d)
{
    aril__graph *g = d->g;
    aril_status s = ARIL_OK;
    /* What gradients compute a second time is merged with what is there. */
    static const char *const early[] = { "fold", "algebra", "cse", "dead" };
    for (int i = 0; i < aril__n_passes && s == ARIL_OK; i++)
        for (size_t k = 0; k < sizeof early / sizeof *early && s == ARIL_OK; k++)
            if (strcmp(aril__pass_list[i].name, early[k]) == 0 && aril__pass_is_on(early[k]))
                s = aril__pass_list[i].run(g);
    d->n_values = g->n_values;
    d->n_inputs = g->n_inputs;
    d->ahead = aril__calloc(g->n_nodes);
    d->back = aril__calloc(g->n_nodes);
    d->written = aril__calloc((size_t)g->n_states + 1);
    d->to = aril__calloc(g->n_values * sizeof *d->to);
    d->like = aril__calloc(g->n_values * sizeof *d->like);
    if (s == ARIL_OK && (!d->ahead || !d->back || !d->written || !d->to || !d->like))
        s = no_memory(d->q->name);
    if (s == ARIL_OK) s = check_loops(d);
    if (s == ARIL_OK) s = check_effects(d);
    if (s == ARIL_OK) s = find_forward(d);
    if (s == ARIL_OK && !(d->forward = aril__graph_copy(g))) s = ARIL_ERR_MEMORY;
    if (s < 0) return s;
    find_backward(d);
    d->forward->n_outputs = (uint32_t)d->q->n_out;
    if (!connect_backward(d)) return no_memory(d->q->name);
    d->q->n_kept = d->forward->n_outputs - (uint32_t)d->q->n_out;
    cut_forward(d);
    cut_backward(d);
    return ARIL_OK;
}

/* "net backward" */
static aril_status rename_backward(aril__gradient *q, aril__graph *g)
{
    size_t size = strlen(q->name) + sizeof " backward";
    char *name = aril__malloc(size);
    if (!name) return no_memory(q->name);
    snprintf(name, size, "%s backward", q->name);
    free(g->name);
    g->name = name;
    return ARIL_OK;
}

aril__graph *aril__gradient_divide(aril__gradient *q, aril__graph *g)
{
    divider d = { .q = q, .g = g };
    aril_status s = divide(&d);
    free(d.ahead);
    free(d.back);
    free(d.written);
    free(d.to);
    free(d.like);
    q->g = g;
    if (s == ARIL_OK) s = rename_backward(q, g);
    if (s == ARIL_OK) s = aril__passes(g);
    if (s == ARIL_OK && !(q->x = aril__exec_whole(g))) s = aril__latest_status();
    if (s == ARIL_OK) {
        q->replay = aril__replay_new(g);
        return d.forward;
    }
    aril__graph_free(d.forward);
    return NULL;
}

/* ---- the node of a call ---- */

struct program_attrs {
    aril__gradient *q;
};

static void drop_program(void *attrs)
{
    aril__gradient_release(((struct program_attrs *)attrs)->q);
}

/* The gradient of result i, zeros if there is none. Copied if it has gaps: its order is part of a
 * plan. */
static aril_tensor *gradient_of(const aril__grad *c, uint32_t i)
{
    if (!c->g[i]) return aril_zeros_like(c->y[i]);
    return aril__is_packed(c->g[i]) ? c->g[i] : aril_contiguous(c->g[i]);
}

static aril_status run_backward(aril__grad *c, const aril__gradient *q, aril_tensor **in,
                                aril_tensor **out)
{
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < q->n_sources && s == ARIL_OK; i++) {
        const source *from = &q->sources[i];
        in[i] = from->kind == OF_GRADIENT ? gradient_of(c, from->index)
                : from->kind == OF_RESULT ? c->y[from->index]
                                          : c->x[(uint32_t)q->n_targets + i];
        s = aril_tensor_status(in[i]);
    }
    if (s == ARIL_OK) s = aril__replay_run(q->replay, q->x, in, out);
    for (int i = 0; i < q->n_targets && s == ARIL_OK; i++)
        c->dx[i] = aril__give(aril__self(), out[i]);
    return s;
}

static void program_vjp(aril__grad *c)
{
    const aril__gradient *q = ((const struct program_attrs *)c->attrs)->q;
    size_t room = (size_t)q->n_sources + (size_t)q->n_targets + 1;
    aril_tensor **in = aril__malloc(room * sizeof *in);
    aril_status s = in ? ARIL_OK : no_memory(q->name);
    if (!aril__self()->mode.no_grad)
        s = aril__fail(ARIL_ERR_UNSUPPORTED,
                       "%s: the gradient of a compiled module cannot be differentiated again "
                       "(create_graph); use a module without aril_module_jit",
                       q->name);
    if (s == ARIL_OK) s = run_backward(c, q, in, in + q->n_sources);
    free(in);
    for (int i = 0; i < c->n_in && s < 0; i++)
        if (c->wants[i]) c->dx[i] = aril__poison();
}

static const aril__op program_op = { .name = "compiled",
                                     .attr_size = sizeof(struct program_attrs),
                                     .vjp = program_vjp };

/* Key `index` of a run; owned by the scope. */
static aril_tensor *key_of(const aril__graph *g, const aril_rng_state *before, uint32_t index)
{
    const aril__key *k = &g->keys[index];
    aril_rng_state from = before[k->generator];
    int64_t two = 2;
    aril_tensor *t = aril__tensor_new(aril__self(), ARIL_U64, 1, &two, aril__cpu_device);
    if (t) {
        memcpy(t->storage->data, (uint64_t[]){ from.seed, from.calls + k->offset }, 16);
        t->flags |= ARIL__KEY;
    }
    return aril__give(aril__self(), t);
}

static aril_status save(aril__node *n, aril__saved_kind kind, int index, aril_tensor *t)
{
    aril_status s = aril_tensor_status(t);
    if (s == ARIL_OK) s = aril__save(aril__self(), &n->saved[n->n_saved], kind, index, t);
    if (s == ARIL_OK) n->n_saved++;
    return s;
}

static aril_status save_sources(const aril__gradient *q, aril__node *n, const aril__graph *forward,
                                aril_tensor *const *given, const aril_rng_state *before,
                                aril_tensor *const *out)
{
    ARIL_SCOPE;
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < q->n_sources && s == ARIL_OK; i++) {
        const source *from = &q->sources[i];
        int at = q->n_targets + (int)i;
        switch (from->kind) {
        case OF_KEPT: s = save(n, ARIL__SAVED_IN, at, out[(uint32_t)q->n_out + from->index]); break;
        case OF_STATE: s = save(n, ARIL__SAVED_IN, at, forward->states[from->index].tensor); break;
        case OF_INPUT: s = save(n, ARIL__SAVED_IN, at, given[from->index]); break;
        case OF_SIZES: s = save(n, ARIL__SAVED_LIKE, at, given[from->index]); break;
        case OF_KEY: s = save(n, ARIL__SAVED_IN, at, key_of(forward, before, from->index)); break;
        default: break;
        }
    }
    for (int i = 0; i < q->n_out && s == ARIL_OK; i++) {
        bool value = false;
        for (uint32_t k = 0; k < q->n_sources && !value; k++)
            value = q->sources[k].kind == OF_RESULT && q->sources[k].index == (uint32_t)i;
        s = save(n, value ? ARIL__SAVED_OUT : ARIL__SAVED_LIKE_OUT, i, out[i]);
    }
    return s;
}

static void join_edges(const aril__gradient *q, aril__node *n, aril_tensor *const *in)
{
    aril__thread *th = aril__self();
    uint64_t sequence = th->sequence;
    for (int i = 0; i < n->n_in; i++) n->edge[i] = (aril__edge){ 0 };
    for (int i = 0; i < q->n_targets; i++) {
        const target *t = &q->targets[i];
        aril__node *to = t->input >= 0 ? in[t->input]->node : t->leaf;
        if (!to) continue;
        n->edge[i] =
            (aril__edge){ aril__node_keep(to), t->input >= 0 ? in[t->input]->node_out : 0 };
        if (to->sequence > sequence) sequence = to->sequence;
    }
    th->sequence = n->sequence = sequence + 1;
}

aril_status aril__gradient_record(aril__gradient *q, const aril__graph *forward,
                                  aril_tensor *const *in, aril_tensor *const *given,
                                  const aril_rng_state *before, aril_tensor **out)
{
    aril__thread *th = aril__self();
    if (!q->n_targets) return ARIL_OK;
    int n_in = q->n_targets + (int)q->n_sources;
    aril__node *n = aril__node_new(th, &program_op, n_in, q->n_out, (int)q->n_sources + q->n_out,
                                   sizeof(struct program_attrs));
    if (!n) return ARIL_ERR_MEMORY;
    n->n_saved = 0;
    join_edges(q, n, in);
    aril__node_extra *extra = aril__node_extra_of(n);
    aril_status s = extra ? save_sources(q, n, forward, given, before, out) : ARIL_ERR_MEMORY;
    if (s == ARIL_OK) {
        atomic_fetch_add(&q->refs, 1);
        ((struct program_attrs *)n->attrs)->q = q;
        extra->drop = drop_program;
        for (int i = 0; i < q->n_out; i++)
            if (q->has[i]) aril__bind(th, out[i], n, (uint32_t)i);
    }
    aril__node_release(th, n);
    return s;
}
