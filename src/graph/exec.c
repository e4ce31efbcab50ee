#include "graph/exec.h"

#include "aril/create.h"
#include "autograd/node.h"
#include "core/log.h"
#include "graph/control.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "ops/table/apply.h"

#include <stdlib.h>
#include <string.h>

/* What happens to the value of an operand after a step. */
enum { RELEASE, SHAPE_ONLY };
typedef struct ended {
    uint32_t slot;
    uint8_t how;
} ended;

/* A node that a run executes. Its operands are slots: values are numbered anew, without gaps. */
typedef struct step {
    aril__node_id node;
    uint32_t in, out;     /* x->slots[in ...], x->slots[out ...]; slot 0: none */
    uint32_t end, n_ends; /* x->ends[end ...]: values that are not used after it */
    uint32_t home;        /* 1 + the effect into whose tensor result 0 is written; 0: none */
    bool reshapes;        /* a view that may need a copy, depending on the order of its input */
} step;

struct aril__exec {
    const aril__graph *g;
    step *steps;
    uint32_t *slots;
    int32_t *changed; /* for each slot of a result: the input that it is a new value of, or -1 */
    ended *ends;
    aril__value_id *value; /* of each slot */
    uint32_t *source;      /* slots of values that no node produces */
    uint32_t *outputs;     /* slots */
    uint32_t *effects;     /* numbers of effects, */
    uint32_t *effect_slot; /* and the slots of their values */
    bool *stored;          /* whether the value is in its tensor when the last step ends */
    bool *in_place;        /* by slot: the op changes its input where it is */
    uint32_t *slot_of;     /* of each value of the graph; 0: not used */
    uint32_t n_steps, n_slots, n_ends, n_sources, n_outputs, n_effects, n_values;
};

/* ---- which nodes are needed ---- */

/* While an executor is made. */
typedef struct maker {
    aril__exec *x;
    const aril__graph *g;
    bool *needed;    /* by node */
    uint32_t *last;  /* by slot: 1 + the last step that uses the value, */
    uint32_t *shape; /* and the last that uses its shape only */
    uint32_t *home;  /* by slot: 1 + the source slot whose memory it is in; 0: its own */
    uint32_t *read;  /* by source slot: 1 + the last step that reads its memory, */
    bool *returned;  /* and whether an output or an effect is in it */
    uint32_t *uses;  /* by slot: how many outputs and effects it is */
    uint32_t n_ids;
} maker;

static bool is_shape_only(const aril__op *op, int i)
{
    return i < 31 && op->shape_only >> i & 1;
}

static void need(maker *m, aril__value_id v)
{
    if (v && m->g->values[v].kind == ARIL__FROM_NODE) m->needed[m->g->values[v].from] = true;
}

static void find_needed(maker *m)
{
    const aril__graph *g = m->g;
    const aril__exec *x = m->x;
    for (uint32_t i = 0; i < x->n_effects; i++) need(m, g->effects[x->effects[i]].value);
    for (aril__node_id n = g->n_nodes; n-- > 1;) {
        if (!m->needed[n]) continue;
        const aril__graph_node *node = &g->nodes[n];
        for (int i = 0; i < node->n_in; i++) need(m, aril__graph_in(g, node)[i]);
        m->n_ids += node->n_in + node->n_out;
        m->x->n_steps++;
    }
}

/* ---- slots and steps ---- */

static uint32_t slot_for(maker *m, aril__value_id v)
{
    aril__exec *x = m->x;
    if (!v || m->g->values[v].kind == ARIL__NO_VALUE) return 0;
    if (x->slot_of[v]) return x->slot_of[v];
    uint32_t s = x->slot_of[v] = x->n_slots++;
    x->value[s] = v;
    if (m->g->values[v].kind != ARIL__FROM_NODE) {
        x->source[x->n_sources++] = s;
        m->home[s] = 1 + s;
    }
    return s;
}

static bool is_reshape(const aril__op *op)
{
    return op == &aril__op_reshape || strcmp(op->name, "reshape_like") == 0 ||
           strcmp(op->name, "flatten") == 0;
}

/* aril__graph_changed for results in order. */
static int32_t changed_input(const aril__graph_node *n, const aril__value_id *in, uint32_t k,
                             int *next)
{
    const aril__op *op = n->op;
    if (k < op->n_out) return ARIL__IS_WRITE(op->out[k]) ? op->out[k] - 32 : -1;
    while (*next < n->n_in && !(in[*next] && aril__changes(op, *next))) ++*next;
    return (*next)++;
}

static void add_step(maker *m, aril__node_id id, uint32_t at, uint32_t *n_ids)
{
    aril__exec *x = m->x;
    const aril__graph_node *n = &m->g->nodes[id];
    const aril__value_id *in = aril__graph_in(m->g, n);
    step *s = &x->steps[at];
    *s = (step){ .node = id, .in = *n_ids, .out = *n_ids + n->n_in };
    s->reshapes = ARIL__IS_VIEW(n->op->out[0]) && is_reshape(n->op);
    for (int i = 0; i < n->n_in; i++) {
        uint32_t slot = slot_for(m, in[i]);
        x->slots[(*n_ids)++] = slot;
        if (is_shape_only(n->op, i))
            m->shape[slot] = 1 + at;
        else
            m->last[slot] = 1 + at;
    }
    int next = 0; /* the next input that may be changed in place */
    for (uint32_t k = 0; k < n->n_out; k++) {
        uint32_t slot = slot_for(m, n->out + k);
        x->changed[*n_ids] = changed_input(n, in, k, &next);
        x->slots[(*n_ids)++] = slot;
        m->last[slot] = 1 + at;
        if (k < n->op->n_out && ARIL__IS_VIEW(n->op->out[k]))
            m->home[slot] = m->home[x->slots[s->in + n->op->out[k] - 1u]];
    }
}

/* ---- values computed in the memory of their tensor ---- */

/* Who reads the memory of each source, and until when. */
static void find_readers(maker *m)
{
    const aril__exec *x = m->x;
    for (uint32_t s = 1; s < x->n_slots; s++) {
        uint32_t source = m->home[s];
        if (source && m->last[s] > m->read[source - 1]) m->read[source - 1] = m->last[s];
    }
    for (uint32_t i = 0; i < x->n_outputs + x->n_effects; i++) {
        uint32_t s = i < x->n_outputs ? x->outputs[i] : x->effect_slot[i - x->n_outputs];
        m->uses[s]++;
        if (m->home[s]) m->returned[m->home[s] - 1] = true;
    }
}

/* The step that produces a slot; NULL for sources. Steps are in the order of nodes. */
static step *producer(const maker *m, uint32_t slot)
{
    const aril__value *v = &m->g->values[m->x->value[slot]];
    if (v->kind != ARIL__FROM_NODE) return NULL;
    uint32_t low = 0, high = m->x->n_steps;
    while (low + 1 < high) {
        uint32_t mid = (low + high) / 2;
        if (m->x->steps[mid].node <= v->from)
            low = mid;
        else
            high = mid;
    }
    return &m->x->steps[low];
}

/* Whether result 0 of a step can be written to a tensor like the value `like`. */
static bool fits_home(const maker *m, const step *s, aril__value_id like)
{
    const aril__graph *g = m->g;
    const aril__graph_node *n = &g->nodes[s->node];
    const aril__value *a = &g->values[n->out], *b = &g->values[like];
    return n->op->out[0] == FRESH && !(n->op->flags & DYNAMIC) && n->op->n_out == 1 &&
           !n->op->reserve_out && !n->n_bodies && n->n_in <= 8 && a->dtype == b->dtype &&
           a->device == b->device &&
           aril__same_dims(a->ndim, aril__graph_dims(g, n->out), b->ndim,
                           aril__graph_dims(g, like));
}

/* The source slot of the tensor that an effect writes to; 0: none, or not read. */
static uint32_t source_of_effect(const maker *m, const aril__effect *e)
{
    const aril__graph *g = m->g;
    if (e->kind == ARIL__WRITE_GRAD) return 0;
    return m->x
        ->slot_of[e->kind == ARIL__WRITE_STATE ? g->states[e->to].value : g->inputs[e->to].value];
}

/* Lets the value of an effect be computed in place, if nobody reads the old one afterwards. */
static void find_home(maker *m, uint32_t i)
{
    aril__exec *x = m->x;
    const aril__effect *e = &m->g->effects[x->effects[i]];
    uint32_t source = source_of_effect(m, e), slot = x->effect_slot[i];
    if (e->kind == ARIL__WRITE_GRAD || m->uses[slot] > 1) return;
    step *s = producer(m, slot);
    if (!s || m->home[slot]) return;
    uint32_t at = (uint32_t)(s - x->steps);
    if (source && (m->returned[source] || m->read[source] > at + 1)) return;
    int k = m->g->values[x->value[slot]].index;
    int input = x->changed[s->out + (uint32_t)k];
    if (input >= 0) { /* the op changes its input: that has to be the tensor itself */
        if (x->slots[s->in + (uint32_t)input] != source || !source) return;
        m->home[slot] = 1 + source;
        x->stored[i] = x->in_place[slot] = true;
        return;
    }
    aril__value_id like =
        e->kind == ARIL__WRITE_STATE ? m->g->states[e->to].value : m->g->inputs[e->to].value;
    if (k != 0 || !fits_home(m, s, like)) return;
    s->home = 1 + i;
    if (source) m->home[slot] = 1 + source;
    x->stored[i] = true;
}

/* ---- lifetimes ---- */

/* Lists, for each step, the values that end with it. */
static bool find_ends(maker *m)
{
    aril__exec *x = m->x;
    uint32_t *count = aril__calloc(((size_t)x->n_steps + 1) * sizeof *count);
    if (!count) return false;
    for (uint32_t i = 0; i < x->n_outputs; i++) m->last[x->outputs[i]] = UINT32_MAX;
    for (uint32_t i = 0; i < x->n_effects; i++)
        if (x->effect_slot[i]) m->last[x->effect_slot[i]] = UINT32_MAX;
    uint32_t n = 0;
    for (uint32_t s = 1; s < x->n_slots; s++) {
        uint32_t last = m->last[s], shape = m->shape[s];
        if (last == UINT32_MAX) continue;
        if (last) count[last]++;
        if (shape > last) count[shape]++;
        n += (uint32_t)(last > 0) + (shape > last);
    }
    x->ends = aril__malloc(((size_t)n + 1) * sizeof *x->ends);
    uint32_t at = 0;
    for (uint32_t i = 0; i < x->n_steps && x->ends; i++) {
        x->steps[i].end = at;
        at += count[i + 1];
    }
    for (uint32_t s = 1; s < x->n_slots && x->ends; s++) {
        uint32_t last = m->last[s], shape = m->shape[s];
        if (last == UINT32_MAX) continue;
        bool later = shape > last;
        if (last) {
            step *to = &x->steps[last - 1];
            x->ends[to->end + to->n_ends++] = (ended){ s, later ? SHAPE_ONLY : RELEASE };
        }
        if (later) {
            step *to = &x->steps[shape - 1];
            x->ends[to->end + to->n_ends++] = (ended){ s, RELEASE };
        }
    }
    x->n_ends = n;
    free(count);
    return x->ends != NULL;
}

/* ---- lifetime ---- */

static bool allocate(maker *m, uint32_t n_out, uint32_t n_effects)
{
    aril__exec *x = m->x;
    size_t values = m->g->n_values, slots = m->n_ids + (size_t)n_out + n_effects + 1;
    /* Sources that only effects name have no use, and no slot. */
    x->steps = aril__malloc(((size_t)x->n_steps + 1) * sizeof *x->steps);
    x->slots = aril__malloc((m->n_ids + 1) * sizeof *x->slots);
    x->changed = aril__malloc((m->n_ids + 1) * sizeof *x->changed);
    x->in_place = aril__calloc(slots);
    x->slot_of = aril__calloc(values * sizeof *x->slot_of);
    x->value = aril__calloc(slots * sizeof *x->value);
    x->source = aril__malloc(slots * sizeof *x->source);
    x->effect_slot = aril__calloc(((size_t)n_effects + 1) * sizeof *x->effect_slot);
    x->stored = aril__calloc((size_t)n_effects + 1);
    m->last = aril__calloc(slots * sizeof *m->last);
    m->shape = aril__calloc(slots * sizeof *m->shape);
    m->home = aril__calloc(slots * sizeof *m->home);
    m->read = aril__calloc(slots * sizeof *m->read);
    m->uses = aril__calloc(slots * sizeof *m->uses);
    m->returned = aril__calloc(slots);
    return m->read && m->uses && m->returned && x->changed && x->in_place && x->steps && x->slots &&
           x->slot_of && x->value && x->source && x->effect_slot && x->stored && m->last &&
           m->shape && m->home;
}

/* Bodies of needed nodes get executors of their own. */
static bool make_bodies(const aril__graph *g, const bool *needed)
{
    for (aril__node_id n = 1; n < g->n_nodes && g->n_bodies; n++) {
        if (!needed[n]) continue;
        for (uint32_t b = 0; b < g->nodes[n].n_bodies; b++) {
            aril__graph *body = g->bodies[g->nodes[n].body + b];
            if (!body->exec && !(body->exec = aril__exec_whole(body))) return false;
        }
    }
    return true;
}

static bool make(maker *m, uint32_t n_out, const aril__value_id *out, uint32_t n_effects)
{
    aril__exec *x = m->x;
    const aril__graph *g = m->g;
    for (uint32_t i = 0; i < n_out; i++) need(m, out[i]);
    find_needed(m);
    if (!allocate(m, n_out, n_effects)) return false;
    uint32_t at = 0, n_ids = 0;
    x->n_slots = 1;
    for (aril__node_id n = 1; n < g->n_nodes; n++)
        if (m->needed[n]) add_step(m, n, at++, &n_ids);
    for (uint32_t i = 0; i < n_out; i++) x->outputs[i] = slot_for(m, out[i]);
    for (uint32_t i = 0; i < n_effects; i++)
        x->effect_slot[i] = slot_for(m, g->effects[x->effects[i]].value);
    find_readers(m);
    for (uint32_t i = 0; i < n_effects; i++) find_home(m, i);
    return make_bodies(g, m->needed) && find_ends(m);
}

aril__exec *aril__exec_whole(const aril__graph *g)
{
    uint32_t *effects = aril__malloc(((size_t)g->n_effects + 1) * sizeof *effects);
    if (!effects) {
        aril__fail(ARIL_ERR_MEMORY, "graph: out of memory for its execution");
        return NULL;
    }
    for (uint32_t i = 0; i < g->n_effects; i++) effects[i] = i;
    aril__exec *x = aril__exec_new(g, g->n_outputs, g->outputs, g->n_effects, effects);
    free(effects);
    return x;
}

static void *copy_of(const void *from, size_t bytes)
{
    void *to = aril__malloc(bytes + 1);
    return to && bytes ? memcpy(to, from, bytes) : to;
}

aril__exec *aril__exec_new(const aril__graph *g, uint32_t n_out, const aril__value_id *out,
                           uint32_t n_effects, const uint32_t *effects)
{
    aril__exec *x = aril__calloc(sizeof *x);
    maker m = { .x = x, .g = g, .needed = aril__calloc(g->n_nodes * sizeof *m.needed) };
    bool fits = x && m.needed;
    if (fits) {
        x->g = g;
        x->n_outputs = n_out;
        x->n_effects = n_effects;
        x->n_values = g->n_values;
        x->outputs = aril__malloc(((size_t)n_out + 1) * sizeof *x->outputs);
        x->effects = copy_of(effects, n_effects * sizeof *effects);
        fits = x->outputs && x->effects && make(&m, n_out, out, n_effects);
    }
    free(m.needed);
    free(m.last);
    free(m.shape);
    free(m.home);
    free(m.read);
    free(m.uses);
    free(m.returned);
    if (fits) return x;
    aril__exec_free(x);
    aril__fail(ARIL_ERR_MEMORY, "graph: out of memory for its execution");
    return NULL;
}

void aril__exec_free(aril__exec *x)
{
    if (!x) return;
    void *const lists[] = { x->steps,  x->slots,   x->ends,    x->value,
                            x->source, x->outputs, x->effects, x->effect_slot,
                            x->stored, x->slot_of, x->changed, x->in_place };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]);
    free(x);
}

bool aril__exec_needs(const aril__exec *x, aril__value_id v)
{
    return v < x->n_values && x->slot_of[v];
}

uint32_t aril__exec_results(const aril__exec *x)
{
    return x->n_outputs;
}

uint32_t aril__exec_steps(const aril__exec *x)
{
    return x->n_steps;
}

/* ---- a run ---- */

typedef struct run {
    const aril__exec *x;
    const aril__graph *g;
    aril__thread *th;
    aril_tensor **slot; /* references */
    int64_t *size;      /* of each unknown; -1: not known yet */
    size_t n_sizes;
    aril_tensor *const *in;
} run;

/* ---- unknown sizes ---- */

static int64_t known_size(void *ctx, int64_t unknown)
{
    const run *r = ctx;
    size_t k = aril__size_index(unknown);
    return k < r->n_sizes && r->size[k] >= 0 ? r->size[k] : unknown;
}

/* How errors name a value. */
static const char *name_of(const aril__graph *g, aril__value_id v, char *text, size_t size)
{
    const aril__value *x = &g->values[v];
    const char *name = x->kind == ARIL__FROM_INPUT   ? g->inputs[x->from].name
                       : x->kind == ARIL__FROM_STATE ? g->states[x->from].name
                                                     : NULL;
    if (name)
        snprintf(text, size, "'%s'", name);
    else if (x->kind == ARIL__FROM_INPUT)
        snprintf(text, size, "input %u", x->from);
    else if (x->kind == ARIL__FROM_NODE)
        snprintf(text, size, "the result of %s", g->nodes[x->from].op->name);
    else
        snprintf(text, size, "value %%%u", v);
    return text;
}

static aril_status wrong_size(const run *r, aril__value_id v, const aril_tensor *t)
{
    char name[160], want[ARIL__SHAPE_TEXT], got[ARIL__SHAPE_TEXT];
    struct aril__sizes *before = r->th->sizes;
    r->th->sizes = r->g->sizes; /* for the names of unknown sizes */
    aril__shape_text(want, r->g->values[v].ndim, aril__graph_dims(r->g, v));
    r->th->sizes = before;
    return aril__fail(ARIL_ERR_SHAPE, "run: %s has shape %s, but the graph was built for %s%s",
                      name_of(r->g, v, name, sizeof name), aril__text(got, t), want,
                      r->g->values[v].flags & ARIL__VALUE_UNKNOWN
                          ? " (the same unknown size must be equal everywhere)"
                          : "");
}

/* Learns unknown sizes from a value, and checks the others. */
static aril_status bind(run *r, aril__value_id v, const aril_tensor *t)
{
    const int64_t *dim = aril__graph_dims(r->g, v);
    bool fits = t->ndim == r->g->values[v].ndim;
    for (int d = 0; d < t->ndim && fits; d++) {
        if (dim[d] >= 0) {
            fits = dim[d] == t->dim[d];
            continue;
        }
        size_t k = aril__size_index(dim[d]);
        if (k >= r->n_sizes) continue;
        fits = r->size[k] < 0 || r->size[k] == t->dim[d];
        r->size[k] = t->dim[d];
    }
    return fits ? ARIL_OK : wrong_size(r, v, t);
}

/* ---- sources ---- */

static aril_tensor *new_key(run *r, const aril__key *k)
{
    const aril_generator *of = r->g->draws[k->generator].generator;
    if (!of) of = &r->th->generator;
    int64_t two = 2;
    aril_tensor *t = aril__tensor_new(r->th, ARIL_U64, 1, &two, aril__cpu_device);
    if (!t) return NULL;
    memcpy(t->storage->data, (uint64_t[]){ of->seed, of->calls + k->offset }, 16);
    t->flags |= ARIL__KEY;
    return t;
}

static aril_tensor *lacks(const run *r, aril__value_id v, const char *what)
{
    char name[160];
    aril__fail(ARIL_ERR_ARG, "run: %s %s", name_of(r->g, v, name, sizeof name), what);
    return NULL;
}

/* A reference to the tensor of a source; NULL with an error. */
static aril_tensor *source(run *r, aril__value_id v)
{
    const aril__graph *g = r->g;
    const aril__value *x = &g->values[v];
    aril_tensor *t = NULL;
    switch (x->kind) {
    case ARIL__FROM_INPUT:
        t = r->in[x->from];
        if (!t) return lacks(r, v, "was not given a value");
        break;
    case ARIL__FROM_STATE:
        t = g->states[x->from].tensor;
        if (!t) return lacks(r, v, "is not initialized");
        break;
    case ARIL__FROM_GRAD:
        t = g->grads[x->from].leaf->grad[0];
        if (!t) return lacks(r, v, "is the gradient of a leaf that has none");
        break;
    case ARIL__FROM_KEY: return new_key(r, &g->keys[x->from]);
    default: t = g->constants[x->from]; break;
    }
    return aril__tensor_keep(t);
}

/* Sizes may be needed of inputs whose values are not. */
static aril_status bind_inputs(run *r)
{
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < r->g->n_inputs && s == ARIL_OK; i++)
        if (r->in[i]) s = bind(r, r->g->inputs[i].value, r->in[i]);
    return s;
}

static aril_status load_sources(run *r)
{
    const aril__exec *x = r->x;
    aril_status s = bind_inputs(r);
    for (uint32_t i = 0; i < x->n_sources && s == ARIL_OK; i++) {
        uint32_t slot = x->source[i];
        aril__value_id v = x->value[slot];
        aril_tensor *t = r->slot[slot] = source(r, v);
        if (!t) s = aril__latest_status();
    }
    return s;
}

/* ---- steps ---- */

static bool is_ours(const aril_tensor *t)
{
    return atomic_load_explicit(&t->refs, memory_order_relaxed) == 1 && t->storage &&
           atomic_load_explicit(&t->storage->refs, memory_order_relaxed) == 1 &&
           !t->storage->deleter && !(t->flags & ARIL__IMMORTAL);
}

static bool ends_at(const run *r, const step *s, uint32_t slot)
{
    for (uint32_t i = 0; i < s->n_ends; i++)
        if (r->x->ends[s->end + i].slot == slot) return true;
    return false;
}

/* A tensor that the step may change in place of input i: itself, or a copy. */
static aril_tensor *changeable(run *r, const step *s, const aril__graph_node *n, int i, int k)
{
    const aril__exec *x = r->x;
    uint32_t slot = x->slots[s->in + (uint32_t)i];
    aril_tensor *t = r->slot[slot];
    if (x->in_place[x->slots[s->out + (uint32_t)k]]) return t;
    int uses = 0;
    for (int u = 0; u < n->n_in; u++) uses += x->slots[s->in + (uint32_t)u] == slot;
    bool inside = r->g->values[x->value[slot]].kind == ARIL__FROM_NODE;
    if (inside && uses == 1 && ends_at(r, s, slot) && is_ours(t)) return t;
    aril_tensor *copy = aril_copy(t);
    if (!(copy->flags & ARIL__POISON)) copy->flags |= t->flags & (ARIL__WEAK | ARIL__NUMBER);
    return copy;
}

/* Whether a reshape of t to the sizes of value v is a view. */
static bool is_viewable(run *r, const aril_tensor *t, aril__value_id v)
{
    aril__meta o = { .ndim = r->g->values[v].ndim };
    const int64_t *dim = aril__graph_dims(r->g, v);
    int64_t n = 1;
    for (int d = 0; d < o.ndim; d++) {
        o.dim[d] = dim[d] < 0 ? aril__size_value(r->g->sizes, dim[d], known_size, r) : dim[d];
        if (o.dim[d] < 0) return false;
        n *= o.dim[d];
    }
    return n == t->numel && aril__view_strides(t, &o);
}

static aril_tensor *home_of(const run *r, const step *s)
{
    if (!s->home) return NULL;
    const aril__effect *e = &r->g->effects[r->x->effects[s->home - 1]];
    return e->kind == ARIL__WRITE_STATE ? r->g->states[e->to].tensor : r->in[e->to];
}

/* Puts the results of a step into their slots. */
static aril_status take_results(run *r, const step *s, const aril__graph_node *n,
                                aril_tensor *const *in, aril_tensor **out)
{
    aril_status status = ARIL_OK;
    for (int k = 0; k < n->n_out; k++) {
        uint32_t slot = r->x->slots[s->out + (uint32_t)k];
        int changed = r->x->changed[s->out + (uint32_t)k];
        aril_tensor *t = changed >= 0 ? in[changed] : out[k];
        if (!slot || !t) continue;
        aril__value_id v = r->x->value[slot];
        const aril__value *value = &r->g->values[v];
        r->slot[slot] = aril__tensor_keep(t);
        if (aril__unlikely(value->tensor_flags) && !s->home && changed < 0)
            t->flags |= value->tensor_flags;
        if (value->flags & ARIL__VALUE_UNKNOWN && status == ARIL_OK) status = bind(r, v, t);
    }
    return status;
}

/* Names the node in the log: the error has the source location of the run. */
static aril_status at_node(aril_status s, const aril__graph *g, const aril__graph_node *n)
{
    char where[256];
    if (aril__unlikely(s < 0) && aril__log_on(ARIL__LOG_TRACE))
        aril__log(ARIL__LOG_TRACE, "%s, called at %s, failed", n->op->name,
                  aril__graph_where(g, n, where, sizeof where));
    return s;
}

/* The results belong to the scope, as those of an op. */
static aril_status run_control(run *r, const aril__graph_node *n, aril_tensor *const *in,
                               aril_tensor **out)
{
    aril_status s = aril__control_run(r->g, n, in, r->size, out);
    for (int k = 0; k < n->n_out && s == ARIL_OK; k++) out[k] = aril__give(r->th, out[k]);
    return s;
}

static aril_status run_op(run *r, const step *s, const aril__graph_node *n, aril_tensor **in)
{
    enum { WORDS = 64 };
    int64_t few[WORDS], *attrs = few;
    const void *given = aril__graph_attrs(r->g, n);
    aril_tensor *out[ARIL__MAX_OUT] = { NULL }, *home = home_of(r, s);
    if (n->sized) {
        if (n->op->attr_size > sizeof few && !(attrs = aril__malloc(n->op->attr_size)))
            return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", n->op->name);
        memcpy(attrs, given, n->op->attr_size);
        aril__symbolic_attrs(r->g->sizes, n->op, attrs, known_size, r);
        given = attrs;
    }
    aril_status status;
    if (n->n_bodies) {
        status = run_control(r, n, in, out);
    } else if (home) {
        out[0] = aril__apply_to(home, n->op, n->n_in, in, given);
        status = aril_tensor_status(out[0]);
    } else {
        status = aril__apply(n->op, n->n_in, in, given, out);
    }
    if (attrs != few) free(attrs);
    return status < 0 ? status : take_results(r, s, n, in, out);
}

static void end_values(run *r, const step *s)
{
    for (uint32_t i = 0; i < s->n_ends; i++) {
        const ended *e = &r->x->ends[s->end + i];
        aril_tensor *t = r->slot[e->slot];
        if (!t) continue;
        r->slot[e->slot] = e->how == SHAPE_ONLY ? aril__tensor_shape_only(r->th, t) : NULL;
        aril__tensor_release(r->th, t);
    }
}

static aril_status run_step(run *r, const step *s)
{
    enum { FEW = 16 };
    const aril__graph_node *n = &r->g->nodes[s->node];
    aril_tensor *few[FEW], **in = few;
    ARIL_SCOPE;
    if (n->n_in > FEW && !(in = aril__malloc(n->n_in * sizeof *in)))
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", n->op->name);
    for (int i = 0; i < n->n_in; i++) in[i] = r->slot[r->x->slots[s->in + (uint32_t)i]];
    if (s->reshapes && !is_viewable(r, in[0], n->out)) in[0] = aril_contiguous(in[0]);
    for (int k = 0; k < n->n_out; k++) {
        int i = r->x->changed[s->out + (uint32_t)k];
        if (i >= 0 && in[i]) in[i] = changeable(r, s, n, i, k);
    }
    aril_status status = run_op(r, s, n, in);
    if (in != few) free(in);
    if (status == ARIL_OK) end_values(r, s);
    return at_node(status, r->g, n);
}

/* ---- results ---- */

/* A tensor that nobody else has, with the value of a slot: takes it out if it can. */
static aril_tensor *own_value(run *r, uint32_t slot, bool again)
{
    aril_tensor *t = r->slot[slot];
    if (!again && is_ours(t) && aril__is_packed(t)) {
        r->slot[slot] = NULL;
        t->flags &= (uint16_t) ~(ARIL__INFERENCE | ARIL__LOOSE_VIEW | ARIL__WEAK | ARIL__NUMBER);
        return t;
    }
    ARIL_SCOPE;
    aril_tensor *copy = aril_copy(t);
    copy->flags &= (uint16_t) ~(ARIL__INFERENCE | ARIL__LOOSE_VIEW);
    return aril__tensor_keep(copy);
}

static bool is_wanted_again(const aril__exec *x, uint32_t i, uint32_t slot)
{
    for (uint32_t k = i + 1; k < x->n_outputs; k++)
        if (x->outputs[k] == slot) return true;
    for (uint32_t k = 0; k < x->n_effects; k++)
        if (x->effect_slot[k] == slot) return true;
    return false;
}

static aril_status take_outputs(run *r, aril_tensor **got)
{
    const aril__exec *x = r->x;
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < x->n_outputs && s == ARIL_OK; i++) {
        got[i] = own_value(r, x->outputs[i], is_wanted_again(x, i, x->outputs[i]));
        s = aril_tensor_status(got[i]);
    }
    return s;
}

static aril_status set_grad(run *r, const aril__effect *e, uint32_t slot)
{
    aril__node *leaf = r->g->grads[e->to].leaf;
    aril_tensor *t = slot ? own_value(r, slot, false) : NULL;
    if (t && aril_tensor_status(t) < 0) {
        aril_status s = aril_tensor_status(t);
        aril__tensor_release(r->th, t);
        return s;
    }
    if (leaf->grad[0]) aril__tensor_release(r->th, leaf->grad[0]);
    leaf->grad[0] = t;
    return ARIL_OK;
}

/* Effects in order: what is read by one is not yet changed by another, as values are copies or the
 * tensors themselves only where nobody else reads them. */
static aril_status perform_effects(run *r)
{
    const aril__exec *x = r->x;
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < x->n_effects && s == ARIL_OK; i++) {
        const aril__effect *e = &r->g->effects[x->effects[i]];
        uint32_t slot = x->effect_slot[i];
        if (e->kind == ARIL__WRITE_GRAD) {
            s = set_grad(r, e, slot);
        } else if (!x->stored[i]) {
            ARIL_SCOPE;
            aril_tensor *to =
                e->kind == ARIL__WRITE_STATE ? r->g->states[e->to].tensor : r->in[e->to];
            s = aril_tensor_status(aril_copy_(to, r->slot[slot]));
        }
    }
    return s;
}

/* Values that effects write, but that are the memory of a tensor that another effect changes, are
 * copied first. */
static aril_status unshare_effects(run *r)
{
    const aril__exec *x = r->x;
    for (uint32_t i = 0; i < x->n_effects && x->n_effects > 1; i++) {
        uint32_t slot = x->effect_slot[i];
        if (!slot || x->stored[i] || !r->slot[slot]) continue;
        if (r->g->values[x->value[slot]].kind == ARIL__FROM_NODE && is_ours(r->slot[slot]))
            continue;
        ARIL_SCOPE;
        aril_tensor *copy = aril_copy(r->slot[slot]);
        if (aril_tensor_status(copy) < 0) return aril_tensor_status(copy);
        aril__tensor_release(r->th, r->slot[slot]);
        r->slot[slot] = aril__tensor_keep(copy);
    }
    return ARIL_OK;
}

static void advance_generators(run *r)
{
    for (uint32_t i = 0; i < r->g->n_draws; i++) {
        const aril__draws *d = &r->g->draws[i];
        if (d->ended) continue;
        aril_generator *of = d->generator ? d->generator : &r->th->generator;
        if (d->reset)
            aril_generator_set_state(of, d->end);
        else
            of->calls += d->calls;
    }
}

static aril_status run_all(run *r, aril_tensor **got)
{
    const aril__exec *x = r->x;
    aril_status s = load_sources(r);
    for (uint32_t i = 0; i < x->n_steps && s == ARIL_OK; i++) s = run_step(r, &x->steps[i]);
    if (s == ARIL_OK) s = take_outputs(r, got);
    if (s == ARIL_OK) s = unshare_effects(r);
    if (s == ARIL_OK) s = perform_effects(r);
    if (s == ARIL_OK) advance_generators(r);
    return s;
}

aril_status aril__exec_run(const aril__exec *x, aril_tensor *const *in, aril_tensor **out)
{
    return aril__exec_run_body(x, in, NULL, out);
}

aril_status aril__exec_run_body(const aril__exec *x, aril_tensor *const *in, const int64_t *known,
                                aril_tensor **out)
{
    const aril__graph *g = x->g;
    size_t n_sizes = g->sizes->n;
    aril_tensor **slot = aril__calloc((x->n_slots + (size_t)x->n_outputs) * sizeof *slot);
    int64_t *size = aril__malloc((n_sizes + 1) * sizeof *size);
    if (!slot || !size) {
        free(slot);
        free(size);
        return aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
    }
    for (size_t i = 0; i < n_sizes; i++) size[i] = known ? known[i] : -1;
    run r = { x, g, aril__self(), slot, size, n_sizes, in };
    aril_tensor **got = slot + x->n_slots;
    aril__tracer *before = aril__trace(NULL);
    aril_status s;
    {
        ARIL_INFERENCE;
        r.th->mode.autocast = 0; /* casts are part of the graph */
        s = run_all(&r, got);
    }
    aril__trace(before);
    for (uint32_t i = 0; i < x->n_slots; i++)
        if (slot[i]) aril__tensor_release(r.th, slot[i]);
    for (uint32_t i = 0; i < x->n_outputs; i++) {
        if (s == ARIL_OK)
            out[i] = got[i];
        else if (got[i])
            aril__tensor_release(r.th, got[i]);
    }
    for (uint32_t i = 0; i < g->n_epilogues && s == ARIL_OK; i++)
        g->epilogues[i].fn(g->epilogues[i].ctx, g->epilogues[i].data);
    free(slot);
    free(size);
    return s;
}
