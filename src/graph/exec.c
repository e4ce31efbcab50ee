#include "autograd/node.h"
#include "core/log.h"
#include "graph/control.h"
#include "graph/executor.h"
#include "graph/passed_on.h"
#include "graph/prepare.h"
#include "ops/shape/view.h"
#include "ops/table/apply.h"

#include <stdlib.h>
#include <string.h>

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
        const aril__graph_node *node = &g->nodes[n];
        m->needed[n] |= aril__control_is_kept(g, node);
        if (!m->needed[n]) continue;
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
    aril__step *s = &x->steps[at];
    *s = (aril__step){ .node = id, .in = *n_ids, .out = *n_ids + n->n_in };
    s->reshapes = aril__is_reshape(n->op);
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
        if (x->wanted[s] < 2) x->wanted[s]++;
        if (m->home[s]) m->returned[m->home[s] - 1] = true;
    }
}

/* The step that produces a slot; NULL for sources. Steps are in the order of nodes. */
static aril__step *producer(const maker *m, uint32_t slot)
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
static bool fits_home(const maker *m, const aril__step *s, aril__value_id like)
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
    if (e->kind == ARIL__WRITE_GRAD || x->wanted[slot] > 1) return;
    aril__step *s = producer(m, slot);
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
            aril__step *to = &x->steps[last - 1];
            x->ends[to->end + to->n_ends++] =
                (aril__ended_value){ s, later ? ARIL__KEEP_SHAPE : ARIL__RELEASE };
        }
        if (later) {
            aril__step *to = &x->steps[shape - 1];
            x->ends[to->end + to->n_ends++] = (aril__ended_value){ s, ARIL__RELEASE };
        }
    }
    x->n_ends = n;
    free(count);
    return x->ends != NULL;
}

/* ---- instances ---- */

enum { MAX_IDLE = 16 };

static aril__pool *new_pool(void)
{
    aril__pool *p = aril__calloc(sizeof *p);
    if (p) pthread_mutex_init(&p->lock, NULL);
    return p;
}

static void free_pool(aril__pool *p)
{
    if (!p) return;
    for (aril__instance *next; p->idle; p->idle = next) {
        next = p->idle->next;
        aril__instance_free(p->idle);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Takes an instance for the run out of the pool; NULL if there is none, and *why then tells how the
 * latest differs. */
static aril__instance *take_instance(const aril__exec_state *r, const char **why)
{
    aril__pool *p = r->x->pool;
    *why = NULL;
    pthread_mutex_lock(&p->lock);
    aril__instance **at = &p->idle, *found = NULL;
    for (; *at && !found; at = &(*at)->next) {
        const char *differs = aril__instance_differs(*at, r);
        if (!*why) *why = differs;
        if (differs) continue;
        found = *at;
        *at = found->next;
        p->n_idle--;
        break;
    }
    if (!found && !*why) *why = p->made ? "another run at the same time" : "its first run";
    p->made += !found;
    pthread_mutex_unlock(&p->lock);
    return found;
}

/* Puts an instance back; the one that was not used for longest is freed beyond a limit. */
static void return_instance(const aril__exec *x, aril__instance *n)
{
    aril__pool *p = x->pool;
    aril__instance *dropped = NULL;
    pthread_mutex_lock(&p->lock);
    n->next = p->idle;
    p->idle = n;
    if (++p->n_idle > MAX_IDLE) {
        aril__instance **last = &p->idle;
        while ((*last)->next) last = &(*last)->next;
        dropped = *last;
        *last = NULL;
        p->n_idle--;
    }
    pthread_mutex_unlock(&p->lock);
    aril__instance_free(dropped);
}

aril_memory_plan aril__exec_memory(const aril__exec *x, const aril__device *device)
{
    aril_memory_plan m = { 0 };
    pthread_mutex_lock(&x->pool->lock);
    if (x->pool->idle) m = aril__instance_memory(x->pool->idle, device);
    pthread_mutex_unlock(&x->pool->lock);
    for (uint32_t i = 0; i < x->g->n_constants; i++) {
        const aril_tensor *t = x->g->constants[i];
        if (t->storage && t->storage->device == device && !(t->flags & ARIL__CONSTANT))
            m.constants += (int64_t)t->storage->bytes;
    }
    return m;
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
    x->wanted = aril__calloc(slots);
    x->slot_of = aril__calloc(values * sizeof *x->slot_of);
    x->value = aril__calloc(slots * sizeof *x->value);
    x->source = aril__malloc(slots * sizeof *x->source);
    x->effect_slot = aril__calloc(((size_t)n_effects + 1) * sizeof *x->effect_slot);
    x->stored = aril__calloc((size_t)n_effects + 1);
    m->last = aril__calloc(slots * sizeof *m->last);
    m->shape = aril__calloc(slots * sizeof *m->shape);
    m->home = aril__calloc(slots * sizeof *m->home);
    m->read = aril__calloc(slots * sizeof *m->read);
    m->returned = aril__calloc(slots);
    return m->read && x->wanted && m->returned && x->changed && x->in_place && x->steps &&
           x->slots && x->slot_of && x->value && x->source && x->effect_slot && x->stored &&
           m->last && m->shape && m->home;
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
        x->pool = new_pool();
        fits = x->outputs && x->effects && x->pool && make(&m, n_out, out, n_effects);
    }
    free(m.needed);
    free(m.last);
    free(m.shape);
    free(m.home);
    free(m.read);
    free(m.returned);
    if (fits) return x;
    aril__exec_free(x);
    aril__fail(ARIL_ERR_MEMORY, "graph: out of memory for its execution");
    return NULL;
}

void aril__exec_free(aril__exec *x)
{
    if (!x) return;
    free_pool(x->pool);
    void *const lists[] = { x->steps,   x->slots,    x->ends,        x->value,  x->source,
                            x->outputs, x->effects,  x->effect_slot, x->stored, x->slot_of,
                            x->changed, x->in_place, x->wanted };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]);
    free(x);
}

void aril__exec_keep_apart(aril__exec *x)
{
    x->apart = true;
}

bool aril__exec_needs(const aril__exec *x, aril__value_id v)
{
    return v < x->n_values && x->slot_of[v];
}

uint32_t aril__exec_results(const aril__exec *x)
{
    return x->n_outputs;
}

void aril__exec_keep_nothing(aril__exec *x)
{
    x->trims = true;
}

uint32_t aril__exec_steps(const aril__exec *x)
{
    return x->n_steps;
}

/* ---- unknown sizes ---- */

int64_t aril__exec_size(void *ctx, int64_t unknown)
{
    const aril__exec_state *r = ctx;
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

static aril_status wrong_size(const aril__exec_state *r, aril__value_id v, int ndim,
                              const int64_t *dim)
{
    char name[160], want[ARIL__SHAPE_TEXT], got[ARIL__SHAPE_TEXT];
    struct aril__sizes *before = r->th->sizes;
    r->th->sizes = r->g->sizes; /* for the names of unknown sizes */
    aril__shape_text(want, r->g->values[v].ndim, aril__graph_dims(r->g, v));
    r->th->sizes = before;
    char other[512] = "";
    const int64_t *built = aril__graph_dims(r->g, v);
    for (int d = 0; d < ndim && ndim == r->g->values[v].ndim && !*other; d++) {
        char origin[400];
        int64_t known = built[d] < 0 ? aril__size_value(r->g->sizes, built[d], aril__exec_size,
                                                        (void *)(uintptr_t)r)
                                     : dim[d];
        if (known == dim[d] || known < 0 ||
            !aril__size_origin(r->g, built[d], origin, sizeof origin))
            continue;
        snprintf(other, sizeof other, ": %s has %lld, and axis %d here %lld", origin,
                 (long long)known, d, (long long)dim[d]);
    }
    bool unknown = r->g->values[v].flags & ARIL__VALUE_UNKNOWN;
    return aril__fail(ARIL_ERR_SHAPE, "run: %s has shape %s, but the graph was built for %s%s%s%s",
                      name_of(r->g, v, name, sizeof name), aril__shape_text(got, ndim, dim), want,
                      unknown ? " (the same unknown size must be equal everywhere" : "",
                      unknown ? other : "", unknown ? ")" : "");
}

aril_status aril__exec_bind(aril__exec_state *r, aril__value_id v, int ndim, const int64_t *dim)
{
    const int64_t *want = aril__graph_dims(r->g, v);
    bool fits = ndim == r->g->values[v].ndim;
    for (int d = 0; d < ndim && fits; d++) {
        if (want[d] >= 0) {
            fits = want[d] == dim[d];
            continue;
        }
        size_t k = aril__size_index(want[d]);
        if (k >= r->n_sizes) continue;
        fits = r->size[k] < 0 || r->size[k] == dim[d];
        if (fits) r->size[k] = dim[d];
    }
    return fits ? ARIL_OK : wrong_size(r, v, ndim, dim);
}

bool aril__exec_viewable(aril__exec_state *r, const aril_tensor *t, aril__value_id v)
{
    aril__meta o = { .ndim = r->g->values[v].ndim };
    const int64_t *dim = aril__graph_dims(r->g, v);
    int64_t n = 1;
    for (int d = 0; d < o.ndim; d++) {
        o.dim[d] = dim[d] < 0 ? aril__size_value(r->g->sizes, dim[d], aril__exec_size, r) : dim[d];
        if (o.dim[d] < 0) return false;
        n *= o.dim[d];
    }
    return n == t->numel && aril__view_strides(t, &o);
}

bool aril__exec_attrs(aril__exec_state *r, const aril__graph_node *n, void *room,
                      const void **attrs)
{
    *attrs = room;
    memcpy(room, aril__graph_attrs(r->g, n), n->op->attr_size);
    if (!n->sized) return true;
    aril__symbolic_attrs(r->g->sizes, n->op, room, aril__exec_size, r);
    return !aril__graph_has_unknown(n->op, room) || aril__exec_follow(r, n->op, room);
}

/* ---- sources ---- */

static aril_tensor *lacks(const aril__exec_state *r, aril__value_id v, const char *what)
{
    char name[160];
    aril__fail(ARIL_ERR_ARG, "run: %s %s", name_of(r->g, v, name, sizeof name), what);
    return NULL;
}

aril_tensor *aril__exec_find(const aril__exec_state *r, uint8_t kind, uint32_t index)
{
    switch (kind) {
    case ARIL__FROM_INPUT: return r->in[index];
    case ARIL__FROM_STATE: return r->g->states[index].tensor;
    case ARIL__FROM_GRAD: return r->g->grads[index].leaf->grad[0];
    default: return r->g->constants[index];
    }
}

aril_tensor *aril__exec_source(const aril__exec_state *r, uint8_t kind, uint32_t index,
                               uint32_t slot)
{
    aril_tensor *t = aril__exec_find(r, kind, index);
    aril__value_id v = r->x->value[slot];
    if (t) return t;
    return lacks(r, v,
                 kind == ARIL__FROM_INPUT   ? "was not given a value"
                 : kind == ARIL__FROM_STATE ? "is not initialized"
                                            : "is the gradient of a leaf that has none");
}

/* Sizes may be needed of inputs whose values are not. */
static aril_status bind_inputs(aril__exec_state *r)
{
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < r->g->n_inputs && s == ARIL_OK; i++)
        if (r->in[i]) s = aril__exec_bind(r, r->g->inputs[i].value, r->in[i]->ndim, r->in[i]->dim);
    return s;
}

/* ---- a run ---- */

static const char *graph_name(const aril__graph *g)
{
    return g->name ? g->name : "graph";
}

/* The device on which an instance exceeds a limit by most, and by how much; 0: on none. */
static int64_t excess(const aril__instance *n, int64_t max, const aril__device **device,
                      aril_memory_plan *of)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < (uint32_t)n->n_arenas + n->n_results && max > 0; i++) {
        uint32_t k = i - (uint32_t)n->n_arenas;
        const aril__device *d =
            i < (uint32_t)n->n_arenas ? n->arena[i].device : n->places[n->results[k]].device;
        if (i > 0 && d == *device) continue;
        aril_memory_plan m = aril__instance_memory(n, d);
        *device = most ? *device : d;
        if (m.peak - max <= most) continue;
        most = m.peak - max;
        *device = d;
        *of = m;
    }
    return most;
}

static aril_status too_large(const aril__graph *g, int64_t more, const aril__device *device,
                             const aril_memory_plan *m)
{
    char name[48];
    return aril__fail(ARIL_ERR_MEMORY,
                      "%s: a run allocates %lld bytes on %s, %lld more than .max_memory",
                      graph_name(g), (long long)m->peak,
                      aril_device_name(device->id, name, sizeof name), (long long)more);
}

/* Finds or makes the instance for a run. */
static aril_status find_instance(aril__exec_state *r)
{
    const char *why;
    aril_status s = bind_inputs(r);
    if (s < 0) return s;
    r->n = take_instance(r, &why);
    if (aril__likely(r->n != NULL)) return ARIL_OK;
    r->n = aril__instance_new(r);
    aril__log(ARIL__LOG_TRACE, "%s: %s, because of %s", graph_name(r->g),
              r->n ? "planned" : "planning failed", why);
    if (!r->n) return aril__latest_status();
    const aril__device *device = NULL;
    aril_memory_plan m;
    int64_t more = excess(r->n, r->x->max_memory, &device, &m);
    if (more <= 0) return ARIL_OK;
    aril__instance_free(r->n);
    return too_large(r->g, more, device, &m);
}

static aril_status run_instance(aril__exec_state *r, aril_tensor **got)
{
    aril_status s = find_instance(r);
    if (s < 0) return s;
    s = aril__prepared_begin(r->g->prepared, r->n->epoch, &r->packs);
    if (s == ARIL_OK) {
        s = aril__instance_run(r, got);
        r->n->epoch = aril__prepared_end(r->g->prepared, r->packs && s == ARIL_OK, r->n->epoch);
    }
    return_instance(r->x, r->n);
    return s;
}

void aril__exec_trim(const aril__exec *x)
{
    pthread_mutex_lock(&x->pool->lock);
    for (aril__instance *n = x->pool->idle; n; n = n->next) aril__instance_trim(n);
    pthread_mutex_unlock(&x->pool->lock);
}

/* The instance for these inputs, without a run. */
static aril_status plan_for(const aril__exec *x, aril_tensor *const *in, aril__instance **n)
{
    const aril__graph *g = x->g;
    aril__exec_state r = { .x = x, .g = g, .th = aril__self(), .n_sizes = g->sizes->n, .in = in };
    r.size = aril__malloc((r.n_sizes + 1) * sizeof *r.size);
    if (!r.size) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", graph_name(g));
    for (size_t i = 0; i < r.n_sizes; i++) r.size[i] = -1;
    aril_status s = find_instance(&r);
    free(r.size);
    *n = r.n;
    return s;
}

aril_status aril__exec_fits(const aril__exec *x, aril_tensor *const *in)
{
    aril__instance *n;
    aril_status s = plan_for(x, in, &n);
    if (s < 0) return s;
    s = aril__instance_take(n);
    aril__instance_trim(n);
    return_instance(x, n);
    return s;
}

/* ---- within a limit of memory ---- */

/* Plans for these inputs. Returns by how much that exceeds the limit, after changing the graph if
 * that can help; -1 with an error. */
static int64_t try_within(aril__graph *g, const aril__exec *x, aril_tensor *const *in, int64_t max,
                          bool first, uint32_t *chosen)
{
    aril__instance *n;
    aril_status s = plan_for(x, in, &n);
    if (s < 0) return -1;
    const aril__device *device = NULL;
    aril_memory_plan m;
    int64_t more = excess(n, max, &device, &m);
    bool divided = false;
    *chosen = 0;
    if (more > 0 && first) s = aril__spread_updates(g, &divided);
    if (s == ARIL_OK && more > 0 && !divided)
        s = aril__recompute(g, x, n, device, (size_t)more, chosen);
    if (s == ARIL_OK && more > 0 && !*chosen && !divided) s = too_large(g, more, device, &m);
    return_instance(x, n);
    return s < 0 ? -1 : more;
}

aril__exec *aril__exec_within(aril__graph *g, aril_tensor *const *in, int64_t max_memory)
{
    enum { ROUNDS = 64 };
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t chosen;
        aril__exec *x = aril__exec_whole(g);
        int64_t more = x ? try_within(g, x, in, max_memory, round == 0, &chosen) : -1;
        if (more == 0) {
            x->max_memory = max_memory;
            return x;
        }
        aril__exec_free(x);
        if (more < 0) return NULL;
        aril__log(ARIL__LOG_TRACE, "%s: %lld bytes too many, %u values are recomputed%s",
                  graph_name(g), (long long)more, chosen,
                  chosen ? "" : ", updates follow their gradients");
    }
    aril__fail(ARIL_ERR_MEMORY, "%s: does not fit into .max_memory", graph_name(g));
    return NULL;
}

aril_status aril__exec_run(const aril__exec *x, aril_tensor *const *in, aril_tensor **out)
{
    return aril__exec_run_body(x, in, NULL, out, NULL);
}

aril_status aril__exec_run_body(const aril__exec *x, aril_tensor *const *in, const int64_t *known,
                                aril_tensor **out, aril__drawing *drawing)
{
    enum { FEW = 32 };
    const aril__graph *g = x->g;
    size_t n_sizes = g->sizes->n;
    aril_tensor *few[FEW], **got = few;
    int64_t few_sizes[FEW], *size = few_sizes;
    if (x->n_outputs > FEW) got = aril__malloc(x->n_outputs * sizeof *got);
    if (n_sizes > FEW) size = aril__malloc(n_sizes * sizeof *size);
    if (!got || !size) {
        if (got != few) free(got);
        if (size != few_sizes) free(size);
        return aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
    }
    memset(got, 0, x->n_outputs * sizeof *got);
    for (size_t i = 0; i < n_sizes; i++) size[i] = known ? known[i] : -1;
    aril__exec_state r = {
        .x = x, .g = g, .th = aril__self(), .size = size, .n_sizes = n_sizes, .in = in
    };
    if (drawing) r.drawing = *drawing;
    for (uint32_t i = 0; i < g->n_draws && !drawing; i++)
        if (!g->draws[i].generator && g->draws[i].traced)
            r.drawing =
                (aril__drawing){ .known = true,
                                 .shift = (int64_t)(r.th->generator.calls - g->draws[i].start) };
    aril__tracer *before = aril__trace(NULL);
    aril_status s;
    {
        ARIL_SCOPE;              /* saves the mode, too */
        r.th->mode.autocast = 0; /* casts are part of the graph */
        s = run_instance(&r, got);
    }
    aril__trace(before);
    if (drawing) drawing->more = r.drawing.more;
    for (uint32_t i = 0; i < x->n_outputs; i++) {
        if (s == ARIL_OK)
            out[i] = got[i];
        else if (got[i])
            aril__tensor_release(r.th, got[i]);
    }
    for (uint32_t i = 0; i < g->n_epilogues && s == ARIL_OK; i++)
        g->epilogues[i].fn(g->epilogues[i].ctx, g->epilogues[i].data);
    if (got != few) free(got);
    if (size != few_sizes) free(size);
    return s;
}
