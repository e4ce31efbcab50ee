#include "graph/replay.h"

#include "aril/parallel.h"
#include "aril/profile.h"
#include "core/clock.h"
#include "core/environment.h"
#include "core/log.h"
#include "core/profile.h"
#include "core/queues.h"
#include "graph/control.h"
#include "graph/executor.h"
#include "graph/prepare.h"

#include <stdlib.h>
#include <string.h>

enum {
    RECORDINGS = 4,    /* of one trace at most, */
    BOUND = 3,         /* and made for inputs at fixed addresses */
    BOUND_AFTER = 4,   /* runs in a row with inputs at the same addresses */
    SEEN = 8,          /* keys that are remembered until they occur again */
    NUMBER_BYTES = 64, /* for each number on the device */
    FEWEST_NODES = 2
};

/* What happens with an output of the program: where it is among the results of a part. */
typedef struct source {
    bool on_host;
    uint32_t index;
} source;

/* One recording, and the tensors that it uses. Its inputs are tensors of its own, or, if it is
 * bound, those at the addresses of its key. */
typedef struct recorded {
    struct recorded *next; /* less recently used */
    pthread_mutex_t lock;  /* of the thread that queues a run */
    int64_t *key;
    bool bound;
    aril__exec *x;    /* of the device's part: its memory is the recording's */
    aril_tensor **in; /* of the device's part: inputs, then numbers */
    aril_tensor **out;
    aril_tensor *numbers; /* their memory */
    aril_recording *recording;
} recorded;

struct aril__replay {
    const aril__graph *g;
    aril__device *device;
    aril__graph part; /* of the device: shares all but values, inputs, outputs and effects with g */
    aril__exec *on_host;
    aril__value_id *given; /* values of the host that the device's part uses: its last inputs */
    uint32_t n_given;
    aril__value_id *host_out; /* results of the host's part: given values, then outputs */
    uint32_t n_host_out, n_device_out;
    source *outputs;
    bool *copied;  /* by input: it is on the device, and used there */
    bool *changed; /* by input: it is changed there */
    uint32_t *host_effects, n_host_effects;
    size_t key_words, n_copied; /* the last words of a key are for as many inputs */
    pthread_mutex_t lock;       /* guards the list and all below */
    recorded *list;
    int n_recorded;
    uint64_t seen[SEEN];
    unsigned n_seen;
    uint64_t latest; /* a hash of the latest key with addresses, */
    int repeated;    /* how often it occurred in a row, */
    int n_bound;     /* and recordings that were made for addresses */
    int runs;        /* until it was measured */
    bool measured;   /* whether recording pays off */
    bool refused;    /* a recording failed */
};

static const char *name_of(const aril__graph *g)
{
    return g->name ? g->name : "graph";
}

static bool is_host(const aril__value *v)
{
    return v->device == aril__cpu_device;
}

/* ---- dividing a graph ---- */

/* While a graph is divided. */
typedef struct divider {
    aril__replay *r;
    const aril__graph *g;
    bool *needed; /* by node */
    bool *given;  /* by value */
    uint32_t n_device_nodes;
    const char *why; /* it cannot be divided */
    const char *who; /* the op */
} divider;

static bool refuse(divider *d, const char *why, const char *who)
{
    if (!d->why) d->why = why;
    if (!d->who) d->who = who;
    return false;
}

static void need(divider *d, aril__value_id v)
{
    if (v && d->g->values[v].kind == ARIL__FROM_NODE) d->needed[d->g->values[v].from] = true;
}

static void find_needed(divider *d)
{
    const aril__graph *g = d->g;
    for (uint32_t i = 0; i < g->n_outputs; i++) need(d, g->outputs[i]);
    for (uint32_t i = 0; i < g->n_effects; i++) need(d, g->effects[i].value);
    for (aril__node_id n = g->n_nodes; n-- > 1;) {
        d->needed[n] |= aril__control_is_kept(g, &g->nodes[n]);
        for (int i = 0; i < g->nodes[n].n_in && d->needed[n]; i++)
            need(d, aril__graph_in(g, &g->nodes[n])[i]);
    }
}

/* A value of the host that a node of the device uses. */
static bool give(divider *d, aril__value_id v, const aril__graph_node *n)
{
    const aril__value *x = &d->g->values[v];
    if (x->kind == ARIL__FROM_CONSTANT && x->tensor_flags & ARIL__NUMBER)
        return true; /* by value */
    if (x->kind != ARIL__FROM_KEY && !(x->tensor_flags & ARIL__NUMBER))
        return refuse(d, "copies a tensor from the host", n->op->name);
    if (!d->given[v]) d->r->n_given++;
    d->given[v] = true;
    return true;
}

static bool is_host_node(const aril__graph *g, const aril__graph_node *n)
{
    for (int k = 0; k < n->n_out; k++)
        if (g->values[n->out + (uint32_t)k].kind == ARIL__FROM_NODE)
            return is_host(&g->values[n->out + (uint32_t)k]);
    return false;
}

static bool use(divider *d, const aril__graph_node *n, aril__value_id v, bool on_host)
{
    const aril__value *x = &d->g->values[v];
    if (x->kind == ARIL__NO_VALUE) return true;
    if (x->kind == ARIL__FROM_GRAD) return refuse(d, "uses a gradient of before the run", NULL);
    if (on_host) return is_host(x) || refuse(d, "reads a value on the host", n->op->name);
    if (is_host(x)) return give(d, v, n);
    if (x->device != d->r->device) return refuse(d, "uses two devices", n->op->name);
    if (x->kind == ARIL__FROM_INPUT) d->r->copied[x->from] = true;
    return true;
}

static bool add_node(divider *d, const aril__graph_node *n)
{
    const aril__graph *g = d->g;
    bool on_host = is_host_node(g, n);
    if (!on_host) {
        aril__device *at = g->values[n->out].device;
        if (!d->r->device) d->r->device = at;
        if (at != d->r->device) return refuse(d, "uses two devices", n->op->name);
        if (n->n_bodies) return refuse(d, "is control flow", n->op->name);
        if (n->op->flags & DYNAMIC)
            return refuse(d, "has sizes that depend on values", n->op->name);
        d->n_device_nodes++;
    }
    for (int i = 0; i < n->n_in; i++) {
        aril__value_id v = aril__graph_in(g, n)[i];
        if (v && !use(d, n, v, on_host)) return false;
    }
    return true;
}

static bool add_effect(divider *d, uint32_t i)
{
    const aril__graph *g = d->g;
    const aril__effect *e = &g->effects[i];
    if (e->kind == ARIL__WRITE_GRAD) {
        if (e->value || g->grads[e->to].had) return refuse(d, "leaves or takes gradients", NULL);
        return true;
    }
    const aril__value *to =
        &g->values[e->kind == ARIL__WRITE_STATE ? g->states[e->to].value : g->inputs[e->to].value];
    if (is_host(to) != is_host(&g->values[e->value]))
        return refuse(d, "moves a value between the host and the device", NULL);
    if (is_host(to)) {
        d->r->host_effects[d->r->n_host_effects++] = i;
        return true;
    }
    if (to->device != d->r->device) return refuse(d, "uses two devices", NULL);
    if (e->kind == ARIL__WRITE_INPUT) d->r->copied[e->to] = d->r->changed[e->to] = true;
    if (g->values[e->value].kind == ARIL__FROM_INPUT) d->r->copied[g->values[e->value].from] = true;
    d->r->part.effects[d->r->part.n_effects++] = *e;
    return true;
}

static bool add_output(divider *d, uint32_t i)
{
    aril__replay *r = d->r;
    aril__value_id v = d->g->outputs[i];
    const aril__value *x = &d->g->values[v];
    if (x->kind == ARIL__FROM_GRAD) return refuse(d, "uses a gradient of before the run", NULL);
    if (is_host(x)) {
        r->outputs[i] = (source){ true, r->n_host_out };
        r->host_out[r->n_host_out++] = v;
        return true;
    }
    if (x->device != r->device) return refuse(d, "uses two devices", NULL);
    if (x->kind == ARIL__FROM_INPUT) r->copied[x->from] = true;
    r->outputs[i] = (source){ false, r->n_device_out };
    r->part.outputs[r->n_device_out++] = v;
    return true;
}

static void *copy_of(const void *from, size_t n, size_t room, size_t size)
{
    void *to = aril__calloc((room + 1) * size);
    return to && n ? memcpy(to, from, n * size) : to;
}

/* Values that are given become inputs of the device's part. */
static void add_given(divider *d)
{
    aril__replay *r = d->r;
    aril__graph *p = &r->part;
    uint32_t k = 0;
    for (aril__value_id v = 1; v < d->g->n_values; v++) {
        if (!d->given[v]) continue;
        aril__value *x = &p->values[v];
        x->kind = ARIL__FROM_INPUT;
        x->from = p->n_inputs;
        x->device = r->device;
        x->tensor_flags &= (uint16_t)~ARIL__NUMBER;
        p->inputs[p->n_inputs++] = (aril__input){ v, NULL };
        r->given[k] = r->host_out[k] = v;
        k++;
    }
    r->n_host_out = k;
}

static bool divide(divider *d)
{
    const aril__graph *g = d->g;
    aril__replay *r = d->r;
    find_needed(d);
    for (aril__node_id n = 1; n < g->n_nodes; n++)
        if (d->needed[n] && !add_node(d, &g->nodes[n])) return false;
    if (!r->device || !r->device->ops.capture_begin || !r->device->queue)
        return refuse(d, "has no device that records", NULL);
    if (d->n_device_nodes < FEWEST_NODES) return refuse(d, "is too short", NULL);
    r->part = *g;
    r->part.n_draws = r->part.n_epilogues = r->part.n_grads = 0;
    r->part.n_outputs = r->part.n_effects = 0;
    r->part.values = copy_of(g->values, g->n_values, g->n_values, sizeof *g->values);
    r->part.inputs = copy_of(g->inputs, g->n_inputs, g->n_inputs + r->n_given, sizeof *g->inputs);
    r->part.outputs = copy_of(NULL, 0, g->n_outputs, sizeof *g->outputs);
    r->part.effects = copy_of(NULL, 0, g->n_effects, sizeof *g->effects);
    r->given = copy_of(NULL, 0, r->n_given, sizeof *r->given);
    r->host_out = copy_of(NULL, 0, r->n_given + g->n_outputs, sizeof *r->host_out);
    r->outputs = copy_of(NULL, 0, g->n_outputs, sizeof *r->outputs);
    r->host_effects = copy_of(NULL, 0, g->n_effects, sizeof *r->host_effects);
    if (!r->part.values || !r->part.inputs || !r->part.outputs || !r->part.effects || !r->given ||
        !r->host_out || !r->outputs || !r->host_effects)
        return refuse(d, "needs more memory than there is", NULL);
    add_given(d);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (!add_output(d, i)) return false;
    for (uint32_t i = 0; i < g->n_effects; i++)
        if (!add_effect(d, i)) return false;
    r->part.n_outputs = r->n_device_out;
    return true;
}

/* The words of a key: modes, addresses of states, sizes and strides of inputs; then, for bound
 * recordings, addresses of inputs. */
static size_t key_words(const aril__replay *r)
{
    size_t n = 2 + r->g->n_states;
    for (uint32_t i = 0; i < r->g->n_inputs; i++)
        if (r->copied[i]) n += 2 * (size_t)r->g->values[r->g->inputs[i].value].ndim + 1;
    return n;
}

/* ---- lifetime ---- */

/* 0: never record; 1: always ("serial": one operation after the other); 2: where it pays. */
static int setting(void)
{
    const char *given = getenv("ARIL_CUDA_GRAPHS");
    if (given && strcmp(given, "serial") == 0) return 1;
    return aril__env_switch_or("ARIL_CUDA_GRAPHS", 2, ", or serial");
}

aril__replay *aril__replay_new(const aril__graph *g)
{
    if (setting() == 0) return NULL;
    aril__replay *r = aril__calloc(sizeof *r);
    divider d = { .r = r, .g = g };
    d.needed = aril__calloc((size_t)g->n_nodes + 1);
    d.given = aril__calloc((size_t)g->n_values + 1);
    bool fits = r && d.needed && d.given;
    if (fits) {
        r->g = g;
        pthread_mutex_init(&r->lock, NULL);
        r->copied = aril__calloc((size_t)g->n_inputs + 1);
        r->changed = aril__calloc((size_t)g->n_inputs + 1);
        fits = r->copied && r->changed && divide(&d);
    }
    if (fits) {
        r->key_words = key_words(r);
        for (uint32_t i = 0; i < g->n_inputs; i++) r->n_copied += r->copied[i];
        r->on_host =
            aril__exec_new(g, r->n_host_out, r->host_out, r->n_host_effects, r->host_effects);
        fits = r->on_host != NULL;
    }
    if (d.why && d.n_device_nodes && r->device != aril__cpu_device)
        aril__log(ARIL__LOG_TRACE, "%s: not recorded: %s %s", name_of(g), d.who ? d.who : "it",
                  d.why);
    free(d.needed);
    free(d.given);
    if (fits) return r;
    aril__replay_free(r);
    return NULL;
}

static void release_all(aril_tensor **t, uint32_t n)
{
    for (uint32_t i = 0; t && i < n; i++)
        if (t[i]) aril__tensor_release(aril__self(), t[i]);
}

static void recorded_free(aril__replay *r, recorded *c)
{
    if (!c) return;
    release_all(c->out, r->n_device_out);
    release_all(c->in, r->part.n_inputs);
    if (c->numbers) aril__tensor_release(aril__self(), c->numbers);
    aril__exec_free(c->x);
    if (c->recording) r->device->ops.recording_free(r->device->self, c->recording);
    pthread_mutex_destroy(&c->lock);
    free(c->in);
    free(c->out);
    free(c->key);
    free(c);
}

void aril__replay_free(aril__replay *r)
{
    if (!r) return;
    for (recorded *next; r->list; r->list = next) {
        next = r->list->next;
        recorded_free(r, r->list);
    }
    aril__exec_free(r->on_host);
    free(r->part.values);
    free(r->part.inputs);
    free(r->part.outputs);
    free(r->part.effects);
    free(r->given);
    free(r->host_out);
    free(r->outputs);
    free(r->host_effects);
    free(r->copied);
    free(r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---- keys ---- */

/* False if an input has gaps. */
static bool describe_run(const aril__replay *r, aril_tensor *const *in, int64_t *key)
{
    const aril__graph *g = r->g;
    size_t n = 0, at = r->key_words - r->n_copied;
    key[n++] = aril_tf32_allowed();
    key[n++] = aril_deterministic();
    for (uint32_t i = 0; i < g->n_states; i++) {
        const aril_tensor *t = g->states[i].tensor;
        bool there = t && t->storage && t->storage->device == r->device;
        key[n++] = there ? (int64_t)(intptr_t)aril__ptr(t) : 0;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        if (!r->copied[i]) continue;
        const aril_tensor *t = in[i];
        if (!t || !t->storage || t->ndim != g->values[g->inputs[i].value].ndim ||
            !aril__is_packed(t))
            return false;
        memcpy(key + n, t->dim, (size_t)t->ndim * sizeof *key);
        memcpy(key + n + t->ndim, t->stride, (size_t)t->ndim * sizeof *key);
        n += 2 * (size_t)t->ndim;
        key[at++] = (int64_t)(intptr_t)aril__ptr(t);
    }
    return true;
}

/* Not 0. */
static uint64_t hash_of(const int64_t *key, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint64_t)key[i]) * 0x100000001b3u;
    return h | 1;
}

/* Whether the inputs of several runs in a row were at the same addresses. With the lock held. */
static bool is_repeated(aril__replay *r, const int64_t *key)
{
    uint64_t h = hash_of(key, r->key_words);
    r->repeated = h == r->latest ? r->repeated + 1 : 1;
    r->latest = h;
    return r->n_copied && r->repeated > BOUND_AFTER;
}

/* Whether the key occurred before, with any addresses of inputs; remembers it. With the lock
 * held. */
static bool was_seen(aril__replay *r, const int64_t *key)
{
    uint64_t h = hash_of(key, r->key_words - r->n_copied);
    for (int i = 0; i < SEEN; i++)
        if (r->seen[i] == h) return true;
    r->seen[r->n_seen++ % SEEN] = h;
    return false;
}

/* The recording for a key that no thread uses, locked and moved to the front; NULL: there is none.
 * *busy: others for the key are in use. With the lock held. */
static recorded *find_recorded(aril__replay *r, const int64_t *key, bool bound, bool *busy)
{
    size_t n = r->key_words - (bound ? 0 : r->n_copied);
    *busy = false;
    for (recorded **at = &r->list, *c; (c = *at); at = &c->next) {
        if (c->bound != bound || memcmp(c->key, key, n * sizeof *key) != 0) continue;
        *busy = pthread_mutex_trylock(&c->lock) != 0;
        if (*busy) continue;
        *at = c->next;
        c->next = r->list;
        r->list = c;
        return c;
    }
    return NULL;
}

/* Puts a new recording into the list, and takes the least recently used one out that no thread
 * uses, if there are too many. */
static void keep_recorded(aril__replay *r, recorded *c)
{
    recorded *dropped = NULL;
    pthread_mutex_lock(&r->lock);
    c->next = r->list;
    r->list = c;
    if (++r->n_recorded > RECORDINGS) {
        recorded **last = NULL;
        for (recorded **at = &c->next; *at; at = &(*at)->next) {
            if (pthread_mutex_trylock(&(*at)->lock) != 0) continue;
            if (last) pthread_mutex_unlock(&(*last)->lock);
            last = at;
        }
        if (last) {
            dropped = *last;
            *last = dropped->next;
            r->n_recorded--;
        }
    }
    pthread_mutex_unlock(&r->lock);
    if (dropped) pthread_mutex_unlock(&dropped->lock);
    recorded_free(r, dropped);
}

/* ---- the tensors of a recording ---- */

static aril_tensor *new_input(const aril_tensor *like)
{
    aril_tensor *t = aril__tensor_new_like(aril__self(), like, (aril_dtype)like->dtype);
    if (t) t->flags |= like->flags & (ARIL__WEAK | ARIL__CHANNELS_LAST);
    return t;
}

/* Number k: a tensor over its part of the memory of all. */
static aril_tensor *new_number(const aril__replay *r, aril_tensor *memory, uint32_t k)
{
    const aril__value *v = &r->part.values[r->given[k]];
    aril_tensor *t = aril__tensor_header(aril__self(), (aril_dtype)v->dtype, v->ndim,
                                         aril__graph_dims(r->g, r->given[k]));
    if (!t) return NULL;
    atomic_fetch_add_explicit(&memory->storage->refs, 1, memory_order_relaxed);
    t->storage = memory->storage;
    t->offset = (int64_t)k * NUMBER_BYTES / (int64_t)aril__dtype_bytes((aril_dtype)v->dtype, 1);
    t->flags |= v->tensor_flags & ARIL__WEAK;
    return t;
}

static recorded *new_recorded(const aril__replay *r, aril_tensor *const *in, const int64_t *key,
                              bool bound)
{
    const aril__graph *g = r->g;
    int64_t bytes = (int64_t)r->n_given * NUMBER_BYTES;
    recorded *c = aril__calloc(sizeof *c);
    if (!c) return NULL;
    pthread_mutex_init(&c->lock, NULL);
    c->bound = bound;
    c->x = aril__exec_whole(&r->part);
    if (c->x) {
        aril__exec_keep_apart(c->x);
        aril__exec_keep_nothing(c->x); /* a recording that fails takes its memory with it */
    }
    c->key = copy_of(key, r->key_words, r->key_words, sizeof *key);
    c->in = aril__calloc((r->part.n_inputs + (size_t)1) * sizeof *c->in);
    c->out = aril__calloc((r->n_device_out + (size_t)1) * sizeof *c->out);
    bool fits = c->x && c->key && c->in && c->out;
    if (fits && bytes) {
        c->numbers = aril__tensor_new(aril__self(), ARIL_U8, 1, &bytes, r->device);
        fits = c->numbers != NULL;
    }
    for (uint32_t i = 0; i < g->n_inputs && fits; i++) {
        if (!in[i]) continue;
        c->in[i] = r->copied[i] && !bound ? new_input(in[i]) : aril__tensor_keep(in[i]);
        fits = c->in[i] != NULL;
    }
    for (uint32_t k = 0; k < r->n_given && fits; k++) {
        c->in[g->n_inputs + k] = new_number(r, c->numbers, k);
        fits = c->in[g->n_inputs + k] != NULL;
    }
    if (fits) return c;
    recorded_free((aril__replay *)(uintptr_t)r, c);
    return NULL;
}

/* ---- a run ---- */

static size_t bytes_of(const aril_tensor *t)
{
    return aril__dtype_bytes((aril_dtype)t->dtype, t->numel);
}

/* Copies between tensors of the device with the same strides, without gaps. */
static aril_status copy_bytes(aril__device *d, aril_tensor *to, aril_tensor *from)
{
    aril_status s = aril__before_use(from->storage, false);
    if (s == ARIL_OK) s = aril__before_use(to->storage, true);
    if (s < 0 || !from->numel) return s;
    return aril__device_move(d, aril__ptr(to), aril__ptr(from), bytes_of(from));
}

/* Sets the inputs and numbers of a recording. */
static aril_status set_inputs(const aril__replay *r, recorded *c, aril_tensor *const *in,
                              aril_tensor *const *from_host)
{
    enum { FEW = 16 };
    char few[FEW * NUMBER_BYTES], *number = few;
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < r->g->n_inputs && s == ARIL_OK; i++)
        if (r->copied[i])
            s = c->bound ? aril__before_use(in[i]->storage, r->changed[i])
                         : copy_bytes(r->device, c->in[i], in[i]);
    if (!r->n_given || s < 0) return s;
    size_t bytes = (size_t)r->n_given * NUMBER_BYTES;
    if (r->n_given > FEW && !(number = aril__malloc(bytes)))
        return aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
    for (uint32_t k = 0; k < r->n_given; k++)
        memcpy(number + (size_t)k * NUMBER_BYTES, aril__ptr(from_host[k]), bytes_of(from_host[k]));
    s = aril__before_use(c->numbers->storage, true);
    if (s == ARIL_OK) s = aril__device_write(r->device, aril__ptr(c->numbers), number, bytes);
    if (number != few) free(number);
    return s;
}

/* The queue waits for what other queues do with the tensors that a recording uses. */
static aril_status order_states(const aril__replay *r, const recorded *c)
{
    const aril__graph *g = r->g;
    aril_status s = ARIL_OK;
    if (aril__one_queue()) return ARIL_OK;
    for (uint32_t i = 0; i < g->n_constants && s == ARIL_OK; i++)
        if (g->constants[i]->storage && g->constants[i]->storage->device == r->device)
            s = aril__order_use(g->constants[i]->storage, false);
    for (uint32_t i = 0; i < g->n_states && s == ARIL_OK; i++)
        if (c->key[2 + i]) s = aril__order_use(g->states[i].tensor->storage, true);
    for (uint32_t i = 0; i < r->n_device_out && s == ARIL_OK; i++)
        if (c->out[i]) s = aril__order_use(c->out[i]->storage, true);
    return s;
}

/* A recording changes tensors without the functions that count that. */
static void note_changes(const aril__replay *r, aril_tensor *const *in)
{
    for (uint32_t i = 0; i < r->part.n_effects; i++) {
        const aril__effect *e = &r->part.effects[i];
        aril__bump_version(e->kind == ARIL__WRITE_STATE ? r->g->states[e->to].tensor : in[e->to]);
    }
}

static aril_status copy_back(const aril__replay *r, const recorded *c, aril_tensor *const *in)
{
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < r->g->n_inputs && s == ARIL_OK; i++)
        if (r->changed[i] && !c->bound) s = copy_bytes(r->device, in[i], c->in[i]);
    return s;
}

/* The results of a run for the caller: copies of those of the device, and those of the host, whose
 * references are taken out of from_host. */
static aril_status take_outputs(const aril__replay *r, const recorded *c, aril_tensor **from_host,
                                aril_tensor **out)
{
    aril__thread *th = aril__self();
    uint32_t n = r->g->n_outputs;
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < n; i++) {
        const source *o = &r->outputs[i];
        out[i] = NULL;
        if (o->on_host) {
            out[i] = from_host[o->index];
            from_host[o->index] = NULL;
        } else if (s == ARIL_OK) {
            aril_tensor *t = c->out[o->index];
            out[i] = aril__tensor_new_like(th, t, (aril_dtype)t->dtype);
            if (out[i]) out[i]->flags |= t->flags & ARIL__CHANNELS_LAST;
            s = out[i] ? copy_bytes(r->device, out[i], t) : ARIL_ERR_MEMORY;
        }
    }
    if (s < 0) release_all(out, n);
    return s;
}

/* Records the device's part. On failure c->recording is NULL, with an error. */
static void record(const aril__replay *r, recorded *c)
{
    aril__device *d = r->device;
    aril_queue *queue = aril__queue(d);
    if (order_states(r, c) < 0 || d->ops.capture_begin(d->self, queue) < 0) return;
    aril_status s = aril__exec_run(c->x, c->in, c->out);
    c->recording = d->ops.capture_end(d->self, queue);
    for (uint32_t i = 0; i < r->g->n_inputs && c->recording; i++)
        if (c->in[i] && (!r->copied[i] || c->bound)) { /* the caller's */
            aril__tensor_release(aril__self(), c->in[i]);
            c->in[i] = NULL;
        }
    if (s == ARIL_OK && c->recording) return;
    if (s == ARIL_OK) release_all(c->out, r->n_device_out);
    memset(c->out, 0, r->n_device_out * sizeof *c->out);
    if (c->recording) d->ops.recording_free(d->self, c->recording);
    c->recording = NULL;
}

/* Does the device's part of a run by a recording whose inputs are set. */
static aril_status replay(const aril__replay *r, recorded *c, aril_tensor *const *in,
                          aril_tensor **from_host, aril_tensor **out)
{
    aril__device *d = r->device;
    aril_status s = order_states(r, c);
    if (s == ARIL_OK) s = d->ops.replay(d->self, aril__queue(d), c->recording);
    if (s < 0) return s;
    note_changes(r, in);
    s = copy_back(r, c, in);
    return s == ARIL_OK ? take_outputs(r, c, from_host, out) : s;
}

/* The device's part as it is, in as little memory as that takes: the recording may have failed for
 * want of it. */
static aril_status run_plainly(const aril__replay *r, recorded *c, aril_tensor *const *in,
                               aril_tensor **from_host, aril_tensor **out)
{
    aril__exec *x = aril__exec_whole(&r->part);
    if (!x) return aril__latest_status();
    aril__exec_keep_nothing(x);
    aril_status s = aril__exec_run(x, c->in, c->out);
    aril__exec_free(x);
    if (s == ARIL_OK) s = copy_back(r, c, in);
    return s == ARIL_OK ? take_outputs(r, c, from_host, out) : s;
}

/* Records a run, replays it once, and keeps the recording. If it cannot be recorded, it is run, and
 * later runs do not try again. */
static aril_status run_new(aril__replay *r, const aril__exec *x, const int64_t *key, bool bound,
                           aril_tensor *const *in, aril_tensor **from_host, aril_tensor **out)
{
    bool was_ok = aril_ok();
    recorded *c = new_recorded(r, in, key, bound);
    if (!c) return aril__latest_status();
    aril_status s = set_inputs(r, c, in, from_host);
    aril__exec_trim(x); /* from now on, the recording runs */
    if (s == ARIL_OK && aril__exec_fits(c->x, c->in) == ARIL_OK) record(r, c);
    if (s == ARIL_OK && c->recording) {
        aril__log(ARIL__LOG_TRACE, "%s: recorded%s", name_of(r->g),
                  bound ? " for inputs at fixed addresses" : "");
        s = replay(r, c, in, from_host, out);
        keep_recorded(r, c);
        return s;
    }
    if (s == ARIL_OK) {
        aril__log(ARIL__LOG_TRACE, "%s: not recorded: %s", name_of(r->g), aril_error());
        if (was_ok) aril_clear_error();
        pthread_mutex_lock(&r->lock);
        r->refused = true;
        pthread_mutex_unlock(&r->lock);
        s = run_plainly(r, c, in, from_host, out);
    }
    recorded_free(r, c);
    return s;
}

/* ---- whether to record ---- */

/* Measures a run that is queued node by node: recording pays off if that takes the greater part of
 * the time. */
static aril_status run_measured(aril__replay *r, const aril__exec *x, aril_tensor *const *in,
                                aril_tensor **out)
{
    aril__device *d = r->device;
    aril_queue *queue = aril__queue(d);
    aril_status s = d->ops.queue_wait(d->self, queue);
    double begin = aril__seconds();
    if (s == ARIL_OK) s = aril__exec_run(x, in, out);
    double queued = aril__seconds();
    if (s < 0 || d->ops.queue_wait(d->self, queue) < 0) return s;
    double done = aril__seconds();
    pthread_mutex_lock(&r->lock);
    r->measured = queued - begin >= 0.5 * (done - begin);
    pthread_mutex_unlock(&r->lock);
    aril__log(ARIL__LOG_TRACE, "%s: queued in %.0f us, done after %.0f us: %s", name_of(r->g),
              1e6 * (queued - begin), 1e6 * (done - begin),
              r->measured ? "will be recorded" : "not recorded");
    return s;
}

enum choice { PLAIN, MEASURED, RECORD, RECORD_BOUND, REPLAY };

/* What to do with a run; *c: the recording to replay, locked. */
static enum choice choose(aril__replay *r, const int64_t *key, recorded **c)
{
    enum choice what = PLAIN;
    bool always = setting() == 1, busy;
    *c = NULL;
    pthread_mutex_lock(&r->lock);
    if (r->refused) {
        what = PLAIN;
    } else if ((*c = find_recorded(r, key, true, &busy)) ||
               (*c = find_recorded(r, key, false, &busy))) {
        what = REPLAY;
        if (!(*c)->bound && is_repeated(r, key) && r->n_bound < BOUND) {
            pthread_mutex_unlock(&(*c)->lock);
            *c = NULL;
            r->n_bound++;
            what = RECORD_BOUND;
        }
    } else if (busy && r->n_recorded >= RECORDINGS) {
        what = PLAIN;
    } else if (!always && r->runs < 2) { /* the first run prepares kernels */
        was_seen(r, key);
        what = r->runs++ ? MEASURED : PLAIN;
    } else if ((always || r->measured) && was_seen(r, key)) {
        what = RECORD;
    }
    pthread_mutex_unlock(&r->lock);
    return what;
}

static aril_status run_by_parts(aril__replay *r, const aril__exec *x, const int64_t *key,
                                bool bound, recorded *c, aril_tensor *const *in, aril_tensor **out)
{
    enum { FEW = 16 };
    aril_tensor *few[FEW], **from_host = few;
    if (r->n_host_out > FEW && !(from_host = aril__malloc(r->n_host_out * sizeof *from_host)))
        return aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
    aril_status s = aril__exec_run(r->on_host, in, from_host);
    if (s == ARIL_OK) {
        if (c) s = set_inputs(r, c, in, from_host);
        if (s == ARIL_OK)
            s = c ? replay(r, c, in, from_host, out)
                  : run_new(r, x, key, bound, in, from_host, out);
        release_all(from_host, r->n_host_out);
    }
    if (from_host != few) free(from_host);
    return s;
}

aril_status aril__replay_run(aril__replay *r, const aril__exec *x, aril_tensor *const *in,
                             aril_tensor **out)
{
    enum { FEW = 128 };
    int64_t few[FEW], *key = few;
    if (!r || aril__profiling() || aril__self()->mode.anomaly) return aril__exec_run(x, in, out);
    if (r->key_words > FEW && !(key = aril__malloc(r->key_words * sizeof *key)))
        return aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
    recorded *c = NULL;
    enum choice what = describe_run(r, in, key) ? choose(r, key, &c) : PLAIN;
    aril_status s = what == PLAIN ? ARIL_OK : aril__prepared_update(x->g->prepared);
    if (s == ARIL_OK)
        s = what == PLAIN      ? aril__exec_run(x, in, out)
            : what == MEASURED ? run_measured(r, x, in, out)
                               : run_by_parts(r, x, key, what == RECORD_BOUND, c, in, out);
    if (c) pthread_mutex_unlock(&c->lock);
    if (key != few) free(key);
    return s;
}
