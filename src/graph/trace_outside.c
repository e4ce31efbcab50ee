/* What a trace touches outside the graph: generators, gradients of leaves, memory of the host. */
#include "graph/exec.h"
#include "graph/tracing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static aril__cold aril_status no_memory(void)
{
    return aril__fail(ARIL_ERR_MEMORY, "trace: out of memory");
}

/* ---- random keys ---- */

/* Keys are equal if they are the same call of the same seed: a recomputation draws them again. */
static aril__value_id key_value(aril__tracing *t, aril_tensor *key, uint32_t draws, uint64_t offset)
{
    aril__graph *g = t->g;
    aril__draw_start *of = &t->starts[draws];
    for (uint32_t i = offset < of->next ? g->n_keys : 0; i-- > 0;)
        if (g->keys[i].generator == draws && g->keys[i].offset == offset) return g->keys[i].value;
    if (!ARIL__GROW(g, keys)) return 0;
    aril__value_id v = aril__graph_value(g, ARIL__FROM_KEY, g->n_keys, key);
    if (v) g->keys[g->n_keys++] = (aril__key){ draws, offset, v };
    if (v && offset >= of->next) of->next = offset + 1;
    return v;
}

static int draws_of(const aril__tracing *t, const aril_generator *g)
{
    for (uint32_t i = 0; i < t->g->n_draws; i++)
        if (t->g->draws[i].generator == g && !t->starts[i].freed) return (int)i;
    return -1;
}

static int new_draws(aril__tracing *t, aril_generator *of, aril_rng_state state)
{
    aril__graph *g = t->g;
    if (!ARIL__GROW(g, draws) ||
        !aril__graph_grow(&t->starts, g->n_draws, &t->cap_starts, sizeof *t->starts))
        return -1;
    t->starts[g->n_draws] = (aril__draw_start){ .state = state };
    g->draws[g->n_draws] = (aril__draws){ .generator = of };
    return (int)g->n_draws++;
}

/* Whether a generator is in state `now` in each run, wherever it was before. */
static bool is_reset(const aril__draw_start *start, aril_rng_state now)
{
    return (start->seeded && now.seed == start->seed) || now.seed != start->state.seed ||
           now.calls < start->state.calls;
}

void aril__trace_drew(aril__tracer *self, aril_generator *of, aril_rng_state before,
                      aril_tensor *key)
{
    aril__tracing *t = (aril__tracing *)self;
    int d = draws_of(t, of);
    if (d < 0) d = new_draws(t, of, before);
    if (d < 0) { /* the trace fails, and the end of it does not know this generator */
        aril__rng_put(of ? of : aril__default_generator(), before);
        return;
    }
    if (is_reset(&t->starts[d], before)) return; /* a constant */
    aril_rng_state from = t->starts[d].state;
    aril__value_id v = key_value(t, key, (uint32_t)d, before.calls - from.calls);
    aril__cell *c = v ? aril__cell_new(t, v) : NULL;
    if (c && aril__map_put(&t->tensors, key, c)) { /* kept, so that the address stays its own */
        if (aril__graph_grow(&t->kept, t->n_kept, &t->cap_kept, sizeof *t->kept))
            t->kept[t->n_kept++] = aril__tensor_keep(key);
    }
}

/* A state that is no seed may be one that the traced code has read before: then it counts from
 * where a run begins, if it can. */
void aril__trace_set(aril__tracer *self, aril_generator *of, const uint64_t *seed)
{
    aril__tracing *t = (aril__tracing *)self;
    aril_generator *known = of == aril__default_generator() ? NULL : of;
    int d = draws_of(t, known);
    if (d < 0) d = new_draws(t, known, aril_generator_state(of));
    if (d < 0) return;
    t->starts[d].seeded = seed != NULL;
    if (seed) t->starts[d].seed = *seed;
}

/* Its keys are the same in every run: the traced code creates the generator, too. */
void aril__trace_freed(aril__tracer *self, aril_generator *of)
{
    aril__tracing *t = (aril__tracing *)self;
    int d = draws_of(t, of);
    if (d >= 0) t->starts[d].freed = true;
}

/* The key that is drawn again; NULL: it is another one. */
static aril__cell *drawn_before(const aril__tracing *t, const uint64_t key[2])
{
    for (uint32_t i = aril__redrawn - 1; aril__redrawn && i < t->tracer.keys; i++)
        if (t->drawn[i].seed == key[0] && t->drawn[i].call == key[1]) return t->drawn[i].cell;
    return NULL;
}

/* A new key of a defined graph: the next call of the generator of the run. */
static aril__cell *next_key(aril__tracing *t, aril_tensor *key, const uint64_t data[2])
{
    int d = draws_of(t, NULL);
    if (d < 0) d = new_draws(t, NULL, (aril_rng_state){ 0, 0 });
    if (d < 0 || !aril__graph_grow(&t->drawn, t->tracer.keys, &t->cap_drawn, sizeof *t->drawn))
        return NULL;
    aril__value_id v = key_value(t, key, (uint32_t)d, t->g->draws[d].calls++);
    aril__cell *c = v ? aril__cell_new(t, v) : NULL;
    if (c) t->drawn[t->tracer.keys++] = (aril__drawn_key){ data[0], data[1], c };
    return c;
}

aril__value_id aril__trace_defined_key(aril__tracing *t, aril_tensor *key)
{
    uint64_t data[2];
    aril__cell *c = aril__map_find(&t->tensors, key);
    if (c) return c->value;
    memcpy(data, aril__ptr(key), sizeof data);
    if (!(c = drawn_before(t, data)) && !(c = next_key(t, key, data))) return 0;
    if (!aril__graph_grow(&t->kept, t->n_kept, &t->cap_kept, sizeof *t->kept)) return 0;
    if (!aril__map_put(&t->tensors, key, c)) return 0;
    t->kept[t->n_kept++] = aril__tensor_keep(key);
    return c->value;
}

/* ---- gradients of leaves ---- */

/* Takes the gradient that the leaf has away, and puts a symbolic one in its place. */
aril_status aril__trace_leaf(aril__tracer *self, aril__node *n)
{
    aril__tracing *t = (aril__tracing *)self;
    aril__graph *g = t->g;
    if (t->defines || aril__map_find(&t->leaves, n)) return ARIL_OK;
    if (!ARIL__GROW(g, grads) ||
        !aril__graph_grow(&t->leaf, g->n_grads, &t->cap_leaf, sizeof *t->leaf))
        return ARIL_ERR_MEMORY;
    aril_tensor *had = n->grad[0], *now = NULL;
    if (had && had->flags & ARIL__SYMBOLIC) had = NULL; /* of a leaf inside the trace */
    aril__value_id v = had ? aril__graph_value(g, ARIL__FROM_GRAD, g->n_grads, had) : 0;
    aril__cell *c = had && v ? aril__cell_outside(t, v, ARIL__CELL_FROM_GRAD, g->n_grads)
                             : aril__cell_new(t, 1); /* only marks the leaf as known */
    if (!c || !aril__map_put(&t->leaves, n, c)) return ARIL_ERR_MEMORY;
    if (had && !(now = aril__symbolic_like(aril__self(), had, had->dim, c))) return ARIL_ERR_MEMORY;
    g->grads[g->n_grads] =
        (aril__grad_state){ .leaf = aril__node_keep(n), .had = had != NULL, .value = v };
    t->leaf[g->n_grads++] = (aril__leaf_entry){ had };
    if (had) n->grad[0] = now;
    return ARIL_OK;
}

/* Lists what the trace left in leaves, and puts their gradients back. */
aril_status aril__trace_finish_leaves(aril__tracing *t, aril_status s)
{
    aril__thread *th = aril__self();
    aril__graph *g = t->g;
    for (uint32_t i = 0; i < g->n_grads; i++) {
        aril__grad_state *of = &g->grads[i];
        aril_tensor *now = of->leaf->grad[0];
        aril__value_id v = now && s == ARIL_OK ? aril__tracing_value(t, now) : 0;
        if (now && s == ARIL_OK && !v) s = aril__latest_status();
        /* Leaves that only the trace refers to end with it. */
        bool lives = atomic_load(&of->leaf->refs) > 1;
        if (s == ARIL_OK && lives && v != of->value &&
            !aril__graph_effect(g, ARIL__WRITE_GRAD, i, v))
            s = ARIL_ERR_MEMORY;
        if (now != t->leaf[i].grad) {
            if (now) aril__tensor_release(th, now);
            of->leaf->grad[0] = t->leaf[i].grad;
        }
    }
    return s;
}

/* What users call a leaf. */
static void describe_leaf(const aril__tracing *t, const aril__node *leaf, char *text, size_t size)
{
    char shape[ARIL__SHAPE_TEXT];
    snprintf(text, size, "an input");
    for (uint32_t i = 0; i < t->n_met; i++) {
        if (t->met[i].node != leaf) continue;
        const char *name = aril__trace_name_of(t, t->met[i].tensor);
        snprintf(text, size, "%s%s%sa tensor %s from outside%s", name ? "'" : "", name ? name : "",
                 name ? "', " : "", aril__text(shape, t->met[i].tensor), name ? "," : "");
    }
}

aril_status aril__trace_reached(aril__tracer *self, aril__node *n)
{
    aril__tracing *t = (aril__tracing *)self;
    aril__watches *w = &t->watches;
    char text[256];
    if (n->extra && n->extra->hooks) {
        describe_leaf(t, n, text, sizeof text);
        return aril__fail(ARIL_ERR_STATE,
                          "backward: a hook (aril_hook) of %s is C code that runs do not call; "
                          "remove it, or call the function without aril_jit",
                          text);
    }
    for (uint32_t i = 0; i < w->n_unhooked; i++)
        if (w->unhooked[i] == n) return ARIL_OK;
    if (!aril__graph_grow(&w->unhooked, w->n_unhooked, &w->cap_unhooked, sizeof *w->unhooked))
        return ARIL_ERR_MEMORY;
    w->unhooked[w->n_unhooked++] = aril__node_keep(n);
    return ARIL_OK;
}

bool aril__watches_unhooked(const aril__watches *w)
{
    for (uint32_t i = 0; i < w->n_unhooked; i++)
        if (w->unhooked[i]->extra && w->unhooked[i]->extra->hooks) return false;
    return true;
}

/* ---- tensors ---- */

bool aril__trace_meet(aril__tracing *t, aril_tensor *x)
{
    if (t->defines || t->outer) return true;
    if (!aril__graph_grow(&t->met, t->n_met, &t->cap_met, sizeof *t->met)) return false;
    t->met[t->n_met++] =
        (aril__met_tensor){ aril__tensor_keep(x), x->node ? aril__node_keep(x->node) : NULL,
                            x->node_out };
    return true;
}

/* A recorded write binds its tensor to a node of the trace, which ends. */
void aril__trace_restore_nodes(aril__tracing *t)
{
    aril__thread *th = aril__self();
    for (uint32_t i = 0; i < t->n_met; i++) {
        const aril__met_tensor *m = &t->met[i];
        if (m->tensor->node != m->node) aril__bind(th, m->tensor, m->node, m->node_out);
        if (m->node) aril__node_release(th, m->node);
        aril__tensor_release(th, m->tensor);
    }
    free(t->met);
    t->met = NULL;
    t->n_met = t->cap_met = 0;
}

/* ---- kept tensors ---- */

void aril__trace_replaced(aril_tensor *before, aril_tensor *now)
{
    aril__tracing *t = aril__tracing_now(0, NULL);
    while (t && t->outer) t = t->outer;
    if (!t || t->defines) return; /* its symbolic tensors last as long as the graph */
    for (uint32_t i = t->n_replaced; i-- > 0 && before->flags & ARIL__SYMBOLIC;)
        if (t->replaced[i].now == before) before = t->replaced[i].before;
    if (before->flags & ARIL__SYMBOLIC) return; /* the traced code kept that, too */
    if (!aril__graph_grow(&t->replaced, t->n_replaced, &t->cap_replaced, sizeof *t->replaced))
        return;
    t->replaced[t->n_replaced++] =
        (aril__replaced){ aril__tensor_keep(before), aril__tensor_keep(now) };
}

/* The op that computes a symbolic tensor, and where it was called. */
static const char *origin_of(const aril__tracing *t, const aril_tensor *x, char *text, size_t size)
{
    const aril__value *v = &t->g->values[((const aril__cell *)x->u.symbol)->value];
    char where[256];
    text[0] = '\0';
    if (v->kind != ARIL__FROM_NODE) return text;
    const aril__graph_node *n = &t->g->nodes[v->from];
    aril__graph_where(t->g, n, where, sizeof where);
    snprintf(text, size, " of %s%s%s%s", n->op->name, where[0] ? " (called at " : "", where,
             where[0] ? ")" : "");
    return text;
}

/* Makes a header one over the memory of another tensor. */
static void become(aril__thread *th, aril_tensor *to, const aril_tensor *from)
{
    aril__storage *had = to->storage;
    if (to->flags & ARIL__SYMBOLIC) aril__hook.release_symbol(to->u.symbol);
    if (to->view) aril__hook.release_view(th, to->view);
    to->view = NULL;
    to->dtype = from->dtype;
    to->ndim = from->ndim;
    to->flags = from->flags & (uint16_t)~ARIL__IMMORTAL;
    to->numel = from->numel;
    to->offset = from->offset;
    to->storage = from->storage;
    if (to->storage) atomic_fetch_add_explicit(&to->storage->refs, 1, memory_order_relaxed);
    if (had) aril__storage_release(th, had);
    memcpy(to->dim, from->dim, sizeof to->dim);
    memcpy(to->stride, from->stride, sizeof to->stride);
    aril__bind(th, to, from->node, from->node_out);
}

static aril_status replaced_outside(const aril__tracing *t, const aril_tensor *now)
{
    char origin[320];
    return aril__fail(ARIL_ERR_STATE,
                      "set: a tensor that is kept outside the traced function was replaced by a "
                      "result%s, which exists only inside; write to it with aril_copy_, or return "
                      "the result and call aril_set with it after the run",
                      origin_of(t, now, origin, sizeof origin));
}

/* Removes an entry that only the list refers to. */
static bool drop_unkept(aril__tracing *t)
{
    aril__thread *th = aril__self();
    for (uint32_t i = t->n_replaced; i-- > 0;) {
        aril__replaced r = t->replaced[i];
        int listed = 0;
        for (uint32_t k = 0; k < t->n_replaced; k++) listed += t->replaced[k].now == r.now;
        if (atomic_load(&r.now->refs) > listed) continue;
        t->replaced[i] = t->replaced[--t->n_replaced];
        aril__tensor_release(th, r.now);
        aril__tensor_release(th, r.before);
        return true;
    }
    return false;
}

aril_status aril__trace_restore_replaced(aril__tracing *t, aril_status s)
{
    aril__thread *th = aril__self();
    while (drop_unkept(t)) continue;
    for (uint32_t i = 0; i < t->n_replaced; i++) {
        aril__replaced r = t->replaced[i];
        if (s == ARIL_OK) s = replaced_outside(t, r.now);
        if (r.now->flags & ARIL__SYMBOLIC && !(r.before->flags & (ARIL__POISON | ARIL__SHAPE_ONLY)))
            become(th, r.now, r.before);
        aril__tensor_release(th, r.now);
        aril__tensor_release(th, r.before);
    }
    free(t->replaced);
    t->replaced = NULL;
    t->n_replaced = t->cap_replaced = 0;
    return s;
}

/* ---- tensors that the traced code keeps ---- */

/* How often the list has a tensor as a replacement. */
static int replacements(const aril__tracing *t, const aril_tensor *x)
{
    int n = 0;
    for (uint32_t i = 0; i < t->n_replaced; i++) n += t->replaced[i].now == x;
    return n;
}

static void forget_replacements(aril__tracing *t, const aril_tensor *x)
{
    for (uint32_t i = t->n_replaced; i-- > 0;) {
        aril__replaced r = t->replaced[i];
        if (r.now != x) continue;
        t->replaced[i] = t->replaced[--t->n_replaced];
        aril__tensor_release(aril__self(), r.now);
        aril__tensor_release(aril__self(), r.before);
    }
}

/* Releases what only the trace refers to: a view is after its base. */
void aril__trace_find_left(aril__tracing *t)
{
    aril__thread *th = aril__self();
    if (t->defines || t->outer || t->left || !t->n_kept) return;
    uint32_t n = 0, before;
    do {
        before = t->n_kept;
        n = before;
        for (uint32_t i = before; i-- > 0;) {
            aril_tensor *x = t->kept[i];
            if (atomic_load(&x->refs) > 1 + replacements(t, x)) {
                t->kept[--n] = x;
                continue;
            }
            forget_replacements(t, x);
            aril__tensor_release(th, x);
        }
        memmove(t->kept, t->kept + n, (before - n) * sizeof *t->kept);
        t->n_kept = before - n;
    } while (t->n_kept < before);
    if (!t->n_kept) return;
    t->left = aril__malloc(((size_t)t->n_kept + 1) * sizeof *t->left);
    for (uint32_t i = 0; i < t->n_kept && t->left; i++) {
        aril_tensor *x = t->kept[i];
        if (x->flags & ARIL__SYMBOLIC && x->u.symbol && !replacements(t, x))
            t->left[t->n_left++] = aril__tensor_keep(x);
    }
}

aril_status aril__trace_check_left(const aril__tracing *t)
{
    char origin[320];
    if (!t->n_left) return ARIL_OK;
    return aril__fail(
        ARIL_ERR_STATE,
        "a traced function still keeps a result%s when it ends, which a program would "
        "compute anew in each run; create tensors that last from call to call before "
        "the first call, and write to them with aril_copy_",
        origin_of(t, t->left[0], origin, sizeof origin));
}

void aril__trace_drop_left(aril__tracing *t)
{
    for (uint32_t i = 0; i < t->n_left; i++) aril__tensor_release(aril__self(), t->left[i]);
    free(t->left);
    t->left = NULL;
    t->n_left = 0;
}

static aril_status compute_left(const aril__tracing *t, const aril__value_id *of,
                                aril_tensor *const *in, aril_tensor **value)
{
    aril__exec *x = aril__exec_new(t->g, t->n_left, of, 0, NULL);
    aril_status s = x ? aril__exec_run(x, in, value) : ARIL_ERR_MEMORY;
    aril__exec_free(x);
    return s;
}

void aril__tracing_settle(aril__tracing *t, aril_tensor *const *in)
{
    aril__thread *th = aril__self();
    if (!t->n_left) return;
    aril__value_id *of = aril__malloc(t->n_left * sizeof *of);
    aril_tensor **value = aril__calloc(t->n_left * sizeof *value);
    bool fits = of && value;
    for (uint32_t i = 0; i < t->n_left && fits; i++) {
        const aril__cell *c = t->left[i]->u.symbol;
        fits = (of[i] = c->initial) != 0;
    }
    aril__saved_errors before = aril__errors_begin_quiet(); /* then they are not usable */
    if (fits && compute_left(t, of, in, value) == ARIL_OK)
        for (uint32_t i = 0; i < t->n_left; i++) {
            become(th, t->left[i], value[i]);
            aril__tensor_release(th, value[i]);
        }
    aril__error_release(aril__errors_end(&before));
    free(of);
    free(value);
}

/* ---- the host ---- */

static bool grow_copies(aril__watches *w, size_t bytes)
{
    if (w->bytes + bytes <= w->cap_bytes) return true;
    size_t cap = 2 * (w->bytes + bytes);
    char *grown = aril__realloc(w->copies, cap);
    if (!grown) return false;
    w->copies = grown;
    w->cap_bytes = cap;
    return true;
}

static aril_status watch(aril__watches *w, void *at, size_t bytes, bool fixed)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->at[i].at == at && w->at[i].bytes == bytes) return ARIL_OK;
    if (!aril__graph_grow(&w->at, w->n, &w->cap, sizeof *w->at) || !grow_copies(w, bytes))
        return no_memory();
    w->at[w->n++] = (aril__watched){ at, bytes, w->bytes, fixed };
    memcpy(w->copies + w->bytes, at, bytes);
    w->bytes += bytes;
    return ARIL_OK;
}

aril_status aril__trace_watched(aril__tracer *self, void *at, size_t bytes)
{
    return watch(&((aril__tracing *)self)->watches, at, bytes, false);
}

aril_status aril__trace_depends(aril__tracer *self, const void *at, size_t bytes)
{
    return watch(&((aril__tracing *)self)->watches, (void *)(uintptr_t)at, bytes, true);
}

static bool holds(const aril__watches *w, const aril__watched *of)
{
    return memcmp(of->at, w->copies + of->copy, of->bytes) == 0;
}

aril_status aril__trace_reads_object(aril__tracer *self, aril__lifetime *of)
{
    aril__watches *w = &((aril__tracing *)self)->watches;
    for (uint32_t i = 0; i < w->n_lives; i++)
        if (w->lives[i] == of) return ARIL_OK;
    if (!aril__graph_grow(&w->lives, w->n_lives, &w->cap_lives, sizeof *w->lives))
        return ARIL_ERR_MEMORY;
    atomic_fetch_add(&of->refs, 1);
    w->lives[w->n_lives++] = of;
    return ARIL_OK;
}

const char *aril__watches_ended(const aril__watches *w)
{
    for (uint32_t i = 0; i < w->n_lives; i++)
        if (atomic_load(&w->lives[i]->ended)) return w->lives[i]->what;
    return NULL;
}

bool aril__watches_hold(const aril__watches *w)
{
    if (aril__watches_ended(w)) return false; /* the memory may be gone */
    for (uint32_t i = 0; i < w->n; i++)
        if (!holds(w, &w->at[i])) return false;
    return true;
}

aril_status aril__trace_check_host(const aril__tracing *t)
{
    const aril__watches *w = &t->watches;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->at[i].fixed && !holds(w, &w->at[i]))
            return aril__fail(ARIL_ERR_STATE,
                              "a traced function changed the data of a module or a metric, which "
                              "a program would not do in later runs; keep what changes in a "
                              "buffer or a state, and create modules and metrics before the "
                              "first call");
    return ARIL_OK;
}

void aril__watches_free(aril__watches *w)
{
    for (uint32_t i = 0; i < w->n_unhooked; i++) aril__node_release(aril__self(), w->unhooked[i]);
    for (uint32_t i = 0; i < w->n_lives; i++) aril__lifetime_release(w->lives[i]);
    free(w->unhooked);
    free(w->lives);
    free(w->at);
    free(w->copies);
    *w = (aril__watches){ 0 };
}

void aril__trace_restore_host(aril__tracing *t)
{
    const aril__watches *w = &t->watches;
    for (uint32_t i = 0; i < w->n; i++)
        if (!w->at[i].fixed) memcpy(w->at[i].at, w->copies + w->at[i].copy, w->at[i].bytes);
}

aril_status aril__trace_epilogue(aril__tracer *self, void (*fn)(void *ctx, const void *data),
                                 void *ctx, const void *data, size_t bytes)
{
    aril__graph *g = ((aril__tracing *)self)->g;
    if (!ARIL__GROW(g, epilogues)) return ARIL_ERR_MEMORY;
    void *copy = bytes ? aril__malloc(bytes) : NULL;
    if (bytes && !copy) return no_memory();
    if (bytes) memcpy(copy, data, bytes);
    g->epilogues[g->n_epilogues++] = (aril__epilogue){ fn, ctx, copy, bytes };
    return ARIL_OK;
}

/* ---- names ---- */

const char *aril__trace_name_of(const aril__tracing *t, const aril_tensor *x)
{
    for (uint32_t i = 0; i < t->n_names && x->storage; i++)
        if (t->names[i].storage == x->storage) return t->names[i].name;
    return NULL;
}

/* Names are for readers only: what does not fit has none. */
void aril__trace_named(aril__tracer *self, const aril_tensor *x, const char *name)
{
    aril__tracing *t = (aril__tracing *)self;
    while (t->outer) t = t->outer;
    if (!x->storage || aril__trace_name_of(t, x)) return;
    char *copy = aril__strdup(name);
    if (!copy) return;
    if (!aril__graph_grow(&t->names, t->n_names, &t->cap_names, sizeof *t->names)) {
        free(copy);
        return;
    }
    t->names[t->n_names++] = (aril__named_memory){ x->storage, copy };
}

const char *aril__trace_label(const char *label)
{
    aril__tracer *t = aril__self()->tracer;
    const char *before = t ? t->label : NULL;
    if (!t) return NULL;
    t->label = label;
    t->label_text = 0;
    return before;
}

/* ---- generators ---- */

/* Notes what a run leaves in generators, and puts them back to where the trace began. */
aril_status aril__trace_finish_generators(aril__tracing *t, aril_status s)
{
    aril__graph *g = t->g;
    for (uint32_t i = 0; i < g->n_draws && !t->defines; i++) {
        aril__draws *d = &g->draws[i];
        d->ended = t->starts[i].freed;
        if (d->ended) continue;
        aril_generator *of = d->generator ? d->generator : aril__default_generator();
        aril_rng_state from = t->starts[i].state, now = aril_generator_state(of);
        d->reset = is_reset(&t->starts[i], now);
        d->end = now;
        d->calls = now.calls - from.calls;
        d->start = from.calls;
        d->traced = true;
        if (!t->tracer.drawn_outside) aril__rng_put(of, from);
        if (d->generator && s == ARIL_OK)
            s = aril__trace_reads(aril__generator_life(of), "generator");
    }
    return s;
}

/* Keys of generators that the traced code created and freed are constants. */
aril_status aril__trace_fix_keys(aril__tracing *t)
{
    aril__graph *g = t->g;
    for (uint32_t i = 0; i < g->n_keys && !t->defines; i++) {
        const aril__key *k = &g->keys[i];
        if (!t->starts[k->generator].freed) continue;
        aril_rng_state from = t->starts[k->generator].state;
        aril__thread *th = aril__self();
        int64_t two = 2;
        aril_tensor *key = aril__tensor_new(th, ARIL_U64, 1, &two, aril__cpu_device);
        if (!key) return ARIL_ERR_MEMORY;
        memcpy(key->storage->data, (uint64_t[]){ from.seed, from.calls + k->offset }, 16);
        key->flags |= ARIL__KEY;
        bool fits = ARIL__GROW(g, constants);
        if (fits) g->constants[g->n_constants] = aril__tensor_keep(key);
        aril__tensor_release(th, key);
        if (!fits) return ARIL_ERR_MEMORY;
        g->values[k->value].kind = ARIL__FROM_CONSTANT;
        g->values[k->value].from = g->n_constants++;
    }
    return ARIL_OK;
}
