#include "graph/prepare.h"

#include "aril/create.h"
#include "core/derived.h"
#include "core/log.h"
#include "graph/control.h"
#include "graph/exec.h"
#include "graph/passes.h"
#include "ops/shape/copy.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A weight as it was when the values were computed. */
typedef struct seen {
    const aril__storage *storage;
    unsigned version;
} seen;

struct aril__prepared {
    aril__graph *g; /* its first n_weights states are weights, the others its results */
    aril__exec *x;
    /* Runs share it; who computes or packs values has it alone. It guards what follows. */
    pthread_rwlock_t lock;
    uint32_t n_weights;
    seen *weights;
    bool computed, frozen;
    bool dropped;   /* the memory of some values is freed */
    unsigned epoch; /* counts changes of the values */
};

/* ---- values ---- */

/* Whether somebody can write to the memory without being noticed. */
static bool is_open(const aril__storage *s)
{
    return s->deleter || atomic_load_explicit(&s->lent, memory_order_relaxed);
}

static bool is_current(const aril__prepared *p)
{
    if (!p->computed) return false;
    for (uint32_t i = 0; i < p->n_weights && !p->frozen; i++) {
        const aril_tensor *t = p->g->states[i].tensor;
        if (t->storage != p->weights[i].storage || aril__version(t) != p->weights[i].version ||
            is_open(t->storage))
            return false;
    }
    return true;
}

/* Other threads may use the values at once, on queues of their own. */
static aril_status wait_for_devices(const aril__prepared *p)
{
    aril_status s = ARIL_OK;
    for (uint32_t i = p->n_weights; i < p->g->n_states && s == ARIL_OK; i++) {
        const aril__device *d = p->g->states[i].tensor->storage->device;
        bool known = i > p->n_weights && p->g->states[i - 1].tensor->storage->device == d;
        if (!d->host_memory && !known) s = aril_synchronize(d->id);
    }
    return s;
}

static aril_status allocate(const aril__prepared *p)
{
    for (uint32_t i = p->n_weights; i < p->g->n_states; i++) {
        aril__storage *s = p->g->states[i].tensor->storage;
        if (!s->data && !(s->data = aril__device_alloc(s->device, s->bytes)))
            return aril__latest_status();
    }
    return ARIL_OK;
}

static aril_status run(aril__prepared *p)
{
    aril_status s = p->dropped ? allocate(p) : ARIL_OK;
    if (s == ARIL_OK) s = aril__exec_run(p->x, NULL, NULL);
    if (s == ARIL_OK) s = wait_for_devices(p);
    if (s == ARIL_OK) p->dropped = false;
    return s;
}

static aril_status compute(aril__prepared *p)
{
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const aril_tensor *t = p->g->states[i].tensor;
        p->weights[i] = (seen){ t->storage, aril__version(t) };
    }
    aril__log(ARIL__LOG_TRACE, "%s: %u values are prepared, because %s", p->g->name,
              p->g->n_states - p->n_weights, p->epoch ? "a weight changed" : "of the first run");
    if (++p->epoch == 0) p->epoch = 1;
    aril_status s = run(p);
    p->computed = s == ARIL_OK;
    return s;
}

/* Computes the same values once more: forms of them stay valid. */
static aril_status restore(aril__prepared *p)
{
    typedef struct kept {
        aril__derived *forms;
        unsigned version;
    } kept;
    uint32_t n = p->g->n_states - p->n_weights;
    kept *of = aril__malloc((n + 1) * sizeof *of);
    if (!of) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", p->g->name);
    for (uint32_t i = 0; i < n; i++) {
        aril__storage *s = p->g->states[p->n_weights + i].tensor->storage;
        of[i] = (kept){ atomic_exchange(&s->derived, NULL), atomic_load(&s->version) };
    }
    aril__log(ARIL__LOG_TRACE, "%s: values are prepared again for another plan", p->g->name);
    aril_status status = run(p);
    for (uint32_t i = 0; i < n; i++) {
        aril__storage *s = p->g->states[p->n_weights + i].tensor->storage;
        atomic_store(&s->version, of[i].version);
        atomic_store(&s->derived, of[i].forms);
    }
    free(of);
    return status;
}

/* ---- runs ---- */

static aril_status update(aril__prepared *p)
{
    if (!is_current(p)) return compute(p);
    return p->dropped ? restore(p) : ARIL_OK;
}

aril_status aril__prepared_begin(aril__prepared *p, unsigned epoch, bool *packs)
{
    *packs = false;
    if (!p) return ARIL_OK;
    pthread_rwlock_rdlock(&p->lock);
    if (epoch == p->epoch && is_current(p)) return ARIL_OK;
    pthread_rwlock_unlock(&p->lock);
    pthread_rwlock_wrlock(&p->lock);
    *packs = true;
    aril_status s = update(p);
    if (s < 0) pthread_rwlock_unlock(&p->lock);
    return s;
}

unsigned aril__prepared_end(aril__prepared *p, bool packed, unsigned epoch)
{
    if (!p) return 0;
    if (packed) epoch = p->epoch;
    pthread_rwlock_unlock(&p->lock);
    return epoch;
}

void aril__prepared_drop(aril__prepared *p, aril_tensor *t)
{
    aril__storage *s = t->storage;
    if (!s->data || s->data == s->small || !s->device->host_memory || !atomic_load(&s->derived))
        return;
    aril__device_free(s->device, s->data, s->bytes);
    s->data = NULL;
    p->dropped = true;
}

aril_status aril__prepared_update(aril__prepared *p)
{
    if (!p) return ARIL_OK;
    pthread_rwlock_wrlock(&p->lock);
    aril_status s = update(p);
    pthread_rwlock_unlock(&p->lock);
    return s;
}

void aril__prepared_freeze(aril__prepared *p)
{
    if (p) p->frozen = true;
}

const aril__graph *aril__prepared_graph(const aril__prepared *p)
{
    return p->g;
}

void aril__prepared_free(aril__prepared *p)
{
    if (!p) return;
    aril__exec_free(p->x);
    aril__graph_free(p->g);
    pthread_rwlock_destroy(&p->lock);
    free(p->weights);
    free(p);
}

/* ---- which nodes ---- */

enum {
    MAX_GROWTH = 2,      /* results may take as many times the memory of what they depend on, */
    ALLOWANCE = 1 << 16, /* and so many bytes */
};

bool aril__is_fixed(const aril__graph *g, aril__value_id v)
{
    const aril__value *x = &g->values[v];
    if (x->kind == ARIL__FROM_CONSTANT) return g->constants[x->from]->storage != NULL;
    return x->kind == ARIL__FROM_STATE && g->n_effects == 0;
}

/* Bytes of a value; -1: unknown. */
static int64_t bytes_of(const aril__graph *g, aril__value_id v)
{
    int64_t n = 1;
    for (int d = 0; d < g->values[v].ndim; d++) {
        int64_t size = aril__graph_dims(g, v)[d];
        if (size < 0 || __builtin_mul_overflow(n, size, &n)) return -1;
    }
    return n > INT64_MAX / 64 ? -1 : (int64_t)aril__dtype_bytes((aril_dtype)g->values[v].dtype, n);
}

static bool is_view(const aril__graph_node *n)
{
    return ARIL__IS_VIEW(n->op->out[0]);
}

/* The pass over one graph. */
typedef struct preparing {
    aril__graph *g;
    aril__graph *to;         /* that computes the values */
    bool *fixed;             /* by node: computed from weights alone */
    bool *needed, *moved;    /* by node: in the program, in the other graph */
    aril__value_id *value;   /* of each value in the other graph; 0: none */
    aril__value_id *results; /* values that the program gets from it */
    uint32_t n_results;
} preparing;

static bool can_prepare(const preparing *p, const aril__graph_node *n)
{
    const aril__graph *g = p->g;
    if (!aril__is_plain(n) || n->n_bodies || n->sized || n->n_out != 1 || n->n_in == 0 ||
        n->region || n->op->flags & RANDOM || g->values[n->out].flags & ARIL__VALUE_UNKNOWN)
        return false;
    int64_t from = 0, bytes = bytes_of(g, n->out);
    for (int i = 0; i < n->n_in; i++) {
        aril__value_id v = aril__graph_in(g, n)[i];
        if (!v) continue;
        bool inside = g->values[v].kind == ARIL__FROM_NODE && p->fixed[g->values[v].from];
        if (!inside && !aril__is_fixed(g, v)) return false;
        from += bytes_of(g, v);
    }
    return bytes >= 0 && (is_view(n) || bytes <= MAX_GROWTH * from + ALLOWANCE);
}

/* Whether the other graph computes a node whose value the program needs: views are cheaper than
 * memory, and stay. */
static bool is_result(const preparing *p, aril__node_id id)
{
    return p->fixed[id] && !is_view(&p->g->nodes[id]);
}

static void need(const preparing *p, aril__value_id v)
{
    if (v && p->g->values[v].kind == ARIL__FROM_NODE) p->needed[p->g->values[v].from] = true;
}

static void find_nodes(preparing *p)
{
    const aril__graph *g = p->g;
    for (aril__node_id id = 1; id < g->n_nodes; id++) p->fixed[id] = can_prepare(p, &g->nodes[id]);
    for (uint32_t i = 0; i < g->n_outputs; i++) need(p, g->outputs[i]);
    for (aril__node_id id = g->n_nodes; id-- > 1;) {
        const aril__graph_node *n = &g->nodes[id];
        p->needed[id] |= aril__control_is_kept(g, n);
        bool result = p->needed[id] && is_result(p, id);
        p->moved[id] = p->moved[id] || result;
        if (result) p->results[p->n_results++] = n->out;
        for (int i = 0; i < n->n_in; i++) {
            aril__value_id v = aril__graph_in(g, n)[i];
            if (p->needed[id] && !result) need(p, v);
            if (p->moved[id] && v && g->values[v].kind == ARIL__FROM_NODE)
                p->moved[g->values[v].from] = true;
        }
    }
}

/* ---- the other graph ---- */

/* A source of the program in the other graph. */
static aril__value_id take_source(preparing *p, aril__value_id v)
{
    const aril__value *x = &p->g->values[v];
    if (x->kind == ARIL__FROM_CONSTANT)
        return aril__graph_constant(p->to, p->g->constants[x->from]);
    const aril__state *s = &p->g->states[x->from];
    return aril__graph_state(p->to, s->tensor, s->name);
}

static bool copy_node(preparing *p, const aril__graph_node *n)
{
    enum { MOST = 64 };
    aril__value_id in[MOST];
    if (n->n_in > MOST) return false;
    for (int i = 0; i < n->n_in; i++) {
        aril__value_id v = aril__graph_in(p->g, n)[i];
        if (v && !p->value[v] && !(p->value[v] = take_source(p, v))) return false;
        in[i] = v ? p->value[v] : 0;
    }
    aril__node_id id = aril__graph_node_add(p->to, n->op, n->n_in, in, aril__graph_attrs(p->g, n));
    if (!id) return false;
    const aril__value *from = &p->g->values[n->out];
    aril__value *to = &p->to->values[p->to->nodes[id].out];
    to->dtype = from->dtype;
    to->flags = from->flags;
    to->device = from->device;
    to->tensor_flags = from->tensor_flags;
    p->value[n->out] = p->to->nodes[id].out;
    return aril__graph_sizes(p->to, p->to->nodes[id].out, from->ndim,
                             aril__graph_dims(p->g, n->out));
}

/* The tensor for a result: in the order of an operand of its shape, as elementwise results are. */
static aril_tensor *make_tensor(const preparing *p, aril__value_id v)
{
    const aril__graph *g = p->g;
    const aril__value *x = &g->values[v];
    const aril__graph_node *n = &g->nodes[x->from];
    aril_shape shape = { .ndim = x->ndim };
    memcpy(shape.dim, aril__graph_dims(g, v), x->ndim * sizeof *shape.dim);
    aril_tensor *t = aril_empty(shape, (aril_dtype)x->dtype, x->device->id);
    for (int i = 0; i < n->n_in && n->op->flags & ELEMENTWISE; i++) {
        aril__value_id from = aril__graph_in(g, n)[i];
        if (!from || g->values[from].kind != ARIL__FROM_STATE) continue;
        const aril_tensor *w = g->states[g->values[from].from].tensor;
        if (w->flags & ARIL__CHANNELS_LAST && aril__same_dims(w->ndim, w->dim, t->ndim, t->dim))
            return aril_channels_last(t);
    }
    return t;
}

/* Turns a value of the program into a state that the other graph writes. */
static bool add_result(preparing *p, aril__value_id v, uint32_t number)
{
    char name[32];
    aril_tensor *t = make_tensor(p, v);
    if (aril_tensor_status(t) < 0 || !ARIL__GROW(p->g, states)) return false;
    snprintf(name, sizeof name, "prepared.%u", number);
    t->flags |= p->g->values[v].tensor_flags;
    aril__state s = { .value = v, .name = aril__strdup(name), .prepared = true };
    if (!s.name) return false;
    s.tensor = aril__tensor_keep(t);
    t->storage->keeps_forms = true;
    p->g->values[v].kind = ARIL__FROM_STATE;
    p->g->values[v].from = p->g->n_states;
    p->g->values[v].index = 0;
    p->g->states[p->g->n_states++] = s;
    return aril__graph_state(p->to, t, name) &&
           aril__graph_effect(p->to, ARIL__WRITE_STATE, p->to->n_states - 1, p->value[v]);
}

static bool fill(preparing *p, aril__prepared *made)
{
    const aril__graph *g = p->g;
    for (aril__node_id id = 1; id < g->n_nodes; id++)
        if (p->moved[id] && !copy_node(p, &g->nodes[id])) return false;
    made->n_weights = p->to->n_states;
    made->weights = aril__calloc(((size_t)made->n_weights + 1) * sizeof *made->weights);
    if (!made->weights) return false;
    for (uint32_t i = p->n_results; i-- > 0;) /* in the order of nodes */
        if (!add_result(p, p->results[i], p->n_results - 1 - i)) return false;
    return (made->x = aril__exec_whole(p->to)) != NULL;
}

static aril__prepared *new_prepared(const aril__graph *g)
{
    aril__prepared *made = aril__calloc(sizeof *made);
    if (!made) return NULL;
    pthread_rwlockattr_t first; /* who waits to change values is before new runs */
    pthread_rwlockattr_init(&first);
    pthread_rwlockattr_setkind_np(&first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&made->lock, &first);
    pthread_rwlockattr_destroy(&first);
    char name[128];
    snprintf(name, sizeof name, "%s.prepare", g->name ? g->name : "graph");
    made->g = aril__graph_new(name);
    if (made->g) return made;
    aril__prepared_free(made);
    return NULL;
}

/* Removes what the program has as states now. */
static void remove_nodes(preparing *p)
{
    for (aril__node_id id = 1; id < p->g->n_nodes; id++) {
        aril__graph_node *n = &p->g->nodes[id];
        if (!is_result(p, id)) continue;
        p->needed[id] = false;
        if (p->g->values[n->out].kind == ARIL__FROM_STATE) n->n_out = 0; /* not its value now */
    }
    aril__graph_keep_nodes(p->g, p->needed);
}

aril_status aril__pass_prepare(aril__graph *g)
{
    ARIL_SCOPE;
    if (g->n_effects || g->prepared) return ARIL_OK;
    preparing p = { .g = g,
                    .fixed = aril__calloc(g->n_nodes),
                    .needed = aril__calloc(g->n_nodes),
                    .moved = aril__calloc(g->n_nodes),
                    .value = aril__calloc(g->n_values * sizeof *p.value),
                    .results = aril__calloc(g->n_nodes * sizeof *p.results) };
    bool fits = p.fixed && p.needed && p.moved && p.value && p.results;
    if (fits) find_nodes(&p);
    if (fits && p.n_results) {
        aril__prepared *made = new_prepared(g);
        p.to = made ? made->g : NULL;
        fits = made && fill(&p, made);
        if (fits) {
            g->prepared = made;
            remove_nodes(&p);
        } else {
            aril__prepared_free(made);
        }
    }
    free(p.fixed);
    free(p.needed);
    free(p.moved);
    free(p.value);
    free(p.results);
    return fits ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "passes: out of memory");
}
