#include "aril/create.h"
#include "autograd/node.h"
#include "core/foreign.h"
#include "core/log.h"
#include "core/profile.h"
#include "core/queues.h"
#include "graph/control.h"
#include "graph/executor.h"
#include "graph/prepare.h"
#include "ops/shape/copy.h"
#include "ops/table/apply.h"

#include <stdlib.h>
#include <string.h>

bool aril__plan_poisons;

/* Arenas up to this size stay allocated between runs. */
enum { KEPT_ARENA = 16 << 20 };

/* ---- sources ---- */

/* Gives all headers of a place a storage whose first element of the place is at `offset`. */
static void bind_place(aril__instance *n, const aril__place *p, aril__storage *s, int64_t offset)
{
    for (uint32_t h = p->header; h; h = n->headers[h].next) {
        n->headers[h].t->storage = s;
        n->headers[h].t->offset = offset + n->headers[h].offset;
    }
}

static void fill_key(const aril__exec_state *r, const aril__source *s)
{
    const aril__key *k = &r->g->keys[s->index];
    const aril_generator *of = r->g->draws[k->generator].generator;
    if (!of) of = &r->th->generator;
    memcpy(r->n->headers[s->header].t->storage->data,
           (uint64_t[]){ of->seed, of->calls + k->offset }, 16);
}

static aril_status bind_sources(aril__exec_state *r)
{
    aril__instance *n = r->n;
    for (uint32_t i = 0; i < n->n_sources; i++) {
        aril__source *s = &n->sources[i];
        if (s->kind == ARIL__FROM_KEY) {
            fill_key(r, s);
            continue;
        }
        s->t = aril__exec_source(r, s->kind, s->index, s->slot);
        if (!s->t) return aril__latest_status();
        aril_tensor *h = n->headers[s->header].t;
        /* Kernels keep no form of a weight that changes before its next use. */
        h->node = s->written ? s->t->node : NULL;
        bind_place(n, &n->places[n->headers[s->header].place], s->t->storage, s->t->offset);
    }
    return ARIL_OK;
}

/* NULL if a source is as the plan knows it. */
static const char *source_differs(const aril__instance *n, const aril__source *s,
                                  const aril_tensor *t)
{
    const aril_tensor *h = n->headers[s->header].t;
    if (t->dtype != h->dtype || (t->flags ^ h->flags) & ARIL__SOURCE_FLAGS ||
        aril__tensor_device(t) != n->places[n->headers[s->header].place].device)
        return "dtype or device of a tensor";
    if (!aril__same_dims(t->ndim, t->dim, h->ndim, h->dim)) return "sizes of a tensor";
    if (!aril__same_dims(t->ndim, t->stride, h->ndim, h->stride) ||
        (t->offset != h->offset && aril__dtypes[t->dtype].bits < 8))
        return "the memory order of a tensor";
    return NULL;
}

const char *aril__instance_differs(const aril__instance *n, const aril__exec_state *r)
{
    aril__surroundings now = aril__surroundings_now();
    if (memcmp(&now, &n->around, sizeof now) != 0) return "kernels, threads or settings";
    if (n->n_sizes != r->n_sizes || memcmp(n->given, r->size, n->n_sizes * sizeof *n->given) != 0)
        return "sizes";
    for (uint32_t i = 0; i < n->n_sources; i++) {
        const aril__source *s = &n->sources[i];
        if (s->kind == ARIL__FROM_KEY) continue;
        const aril_tensor *t = aril__exec_find(r, s->kind, s->index);
        if (!t) return "a tensor that is missing";
        const char *why = source_differs(n, s, t);
        if (why) return why;
    }
    return NULL;
}

/* ---- memory ---- */

void aril__instance_trim(aril__instance *n)
{
    for (int i = 0; i < n->n_arenas; i++) {
        aril__arena_part *a = &n->arena[i];
        if (a->data) aril__device_free(a->device, a->data, a->bytes);
        a->data = NULL;
    }
}

/* Gives places and workspaces their addresses in the arena. */
static void bind_arena(aril__instance *n, int arena)
{
    char *base = n->arena[arena].data;
    for (uint32_t i = 1; i < n->n_places; i++) {
        aril__place *p = &n->places[i];
        if (p->kind == ARIL__IN_ARENA && p->arena == arena) p->storage->data = base + p->offset;
    }
    for (uint32_t i = 0; i < n->n_actions; i++) {
        aril__action *a = &n->actions[i];
        if (a->workspace) a->run.workspace = n->places[a->workspace].storage->data;
    }
    n->arena[arena].bound = base;
}

aril_status aril__instance_take(aril__instance *n)
{
    for (int i = 0; i < n->n_arenas; i++) {
        aril__arena_part *a = &n->arena[i];
        int queue = aril__one_queue() ? 0 : aril__queue_number(a->device);
        if (!a->bytes) continue;
        if (a->data && a->queue != queue) {
            aril_status s = aril__queue_after(a->device, queue, a->queue);
            if (s < 0) return s;
        }
        a->queue = queue;
        if (!a->data && !(a->data = aril__device_alloc(a->device, a->bytes)))
            return aril__latest_status();
        if (a->data != a->bound) bind_arena(n, i);
    }
    return ARIL_OK;
}

static aril_status take_results_memory(aril__exec_state *r)
{
    aril__instance *n = r->n;
    for (uint32_t i = 0; i < n->n_results; i++) {
        aril__place *p = &n->places[n->results[i]];
        aril__storage *s = aril__storage_new(r->th, p->device, p->bytes);
        if (!s) return aril__latest_status();
        bind_place(n, p, s, 0);
    }
    return ARIL_OK;
}

/* The header of a place that is the whole of it. */
static aril_tensor *whole_of(const aril__instance *n, const aril__place *p)
{
    uint32_t h = p->header;
    while (n->headers[h].next) h = n->headers[h].next;
    return n->headers[h].t;
}

/* Results that nobody took, and tensors of steps that were not planned. */
static void release_memory(aril__exec_state *r)
{
    aril__instance *n = r->n;
    for (uint32_t i = 0; i < n->n_results; i++) {
        const aril__place *p = &n->places[n->results[i]];
        aril__storage *now = whole_of(n, p)->storage;
        if (now == p->storage) continue;
        bind_place(n, p, p->storage, 0);
        aril__storage_release(r->th, now);
    }
    for (uint32_t i = 1; i < n->n_places && n->n_unplanned; i++)
        if (n->places[i].kind == ARIL__IN_TENSOR)
            bind_place(n, &n->places[i], n->places[i].storage, 0);
    for (uint32_t i = 0; i < r->x->n_slots && n->n_unplanned; i++) {
        if (n->loose[i]) aril__tensor_release(r->th, n->loose[i]);
        n->loose[i] = NULL;
    }
    size_t bytes = 0;
    for (int i = 0; i < n->n_arenas; i++) bytes += n->arena[i].bytes;
    if (bytes > KEPT_ARENA || r->x->trims) aril__instance_trim(n);
}

/* ---- poison ---- */

static void poison(const aril__place *p)
{
    unsigned char nan[4096];
    memset(nan, 0xff, sizeof nan);
    for (size_t at = 0; at < p->bytes; at += sizeof nan) {
        size_t n = p->bytes - at < sizeof nan ? p->bytes - at : sizeof nan;
        aril__device_write(p->device, (char *)p->storage->data + at, nan, n);
    }
}

/* Before an action: memory whose use begins; after it: memory whose use ends. */
static aril__cold void poison_places(const aril__instance *n, uint32_t action, bool after)
{
    for (uint32_t i = 1; i < n->n_places; i++) {
        const aril__place *p = &n->places[i];
        if (p->kind == ARIL__IN_ARENA && (after ? p->last : p->first) == action) poison(p);
    }
}

/* ---- steps that are not planned ---- */

static bool is_ours(const aril_tensor *t)
{
    return atomic_load_explicit(&t->refs, memory_order_relaxed) == 1 && t->storage &&
           atomic_load_explicit(&t->storage->refs, memory_order_relaxed) == 1 &&
           !t->storage->deleter && !(t->flags & ARIL__IMMORTAL);
}

static bool ends_at(const aril__exec *x, const aril__step *s, uint32_t slot)
{
    for (uint32_t i = 0; i < s->n_ends; i++)
        if (x->ends[s->end + i].slot == slot) return true;
    return false;
}

/* The value of a slot: a header of the plan, or a tensor of the run. */
static aril_tensor *value_of(const aril__exec_state *r, uint32_t slot)
{
    uint32_t h = r->n->slot[slot];
    return h ? r->n->headers[h].t : r->n->loose[slot];
}

/* A tensor that the step may change in place of input i: itself, or a copy. */
static aril_tensor *changeable(const aril__exec_state *r, const aril__step *s,
                               const aril__graph_node *n, int i, int k)
{
    const aril__exec *x = r->x;
    uint32_t slot = x->slots[s->in + (uint32_t)i];
    aril_tensor *t = value_of(r, slot);
    if (x->in_place[x->slots[s->out + (uint32_t)k]]) return t;
    int uses = 0;
    for (int u = 0; u < n->n_in; u++) uses += x->slots[s->in + (uint32_t)u] == slot;
    if (!r->n->slot[slot] && uses == 1 && ends_at(x, s, slot) && is_ours(t)) return t;
    aril_tensor *copy = aril_copy(t);
    if (!(copy->flags & ARIL__POISON)) copy->flags |= t->flags & (ARIL__WEAK | ARIL__NUMBER);
    return copy;
}

static aril_tensor *target_of(const aril__exec_state *r, const aril__effect *e)
{
    return e->kind == ARIL__WRITE_STATE ? r->g->states[e->to].tensor : r->in[e->to];
}

/* Makes a result of control flow the memory of its place. */
static aril_status adopt(aril__exec_state *r, uint32_t slot, aril_tensor *t)
{
    aril__instance *n = r->n;
    uint32_t at = n->slot[slot];
    const aril_tensor *h = n->headers[at].t;
    const aril__place *p = &n->places[n->headers[at].place];
    aril_status s = aril__exec_bind(r, r->x->value[slot], t->ndim, t->dim);
    if (s == ARIL_OK && !aril__same_dims(t->ndim, t->dim, h->ndim, h->dim))
        s = aril__fail(ARIL_ERR_INTERNAL, "run: a result of control flow has another shape");
    if (s == ARIL_OK && t->storage->device != p->device) t = aril_to(t, p->device->id);
    if (s == ARIL_OK) s = aril_tensor_status(t);
    if (s == ARIL_OK && !aril__is_dense(t)) t = aril_contiguous(t);
    if (s == ARIL_OK) s = aril_tensor_status(t);
    if (s < 0) return s;
    n->loose[slot] = aril__tensor_keep(t);
    bind_place(n, p, t->storage, t->offset);
    return ARIL_OK;
}

/* Puts the results of a step into their slots. */
static aril_status take_results(aril__exec_state *r, const aril__step *s, const aril__graph_node *n,
                                aril_tensor *const *in, aril_tensor **out)
{
    aril_status status = ARIL_OK;
    for (int k = 0; k < n->n_out && status == ARIL_OK; k++) {
        uint32_t slot = r->x->slots[s->out + (uint32_t)k];
        int changed = r->x->changed[s->out + (uint32_t)k];
        aril_tensor *t = changed >= 0 ? in[changed] : out[k];
        if (!slot || !t) continue;
        if (r->n->slot[slot]) {
            status = adopt(r, slot, t);
            continue;
        }
        aril__value_id v = r->x->value[slot];
        const aril__value *value = &r->g->values[v];
        r->n->loose[slot] = aril__tensor_keep(t);
        if (value->tensor_flags && !s->home && changed < 0) t->flags |= value->tensor_flags;
        if (value->flags & ARIL__VALUE_UNKNOWN) status = aril__exec_bind(r, v, t->ndim, t->dim);
    }
    return status;
}

/* A key that was drawn from call `from` on. */
static void move_key(aril_tensor *key, uint64_t seed, uint64_t from, int64_t more)
{
    uint64_t *at = aril__ptr(key);
    if (at[0] == seed && at[1] >= from) at[1] += (uint64_t)more;
}

/* Numbers that the run draws after a loop are those after the last trip. */
static void move_keys(aril__exec_state *r, const aril__graph_node *n, aril_tensor *const *in,
                      int64_t more)
{
    const struct control_attrs *a = aril__graph_attrs(r->g, n);
    uint64_t seed = r->th->generator.seed, from = 0; /* the first call after it */
    for (int i = 0; i < n->n_in; i++) {
        const uint64_t *at = in[i] && in[i]->flags & ARIL__KEY ? aril__ptr(in[i]) : NULL;
        if (at && at[0] == seed && at[1] >= from) from = at[1] + 1;
    }
    if (r->drawing.known)
        from = (uint64_t)(a->calls[0] + a->draws[0] + r->drawing.shift + r->drawing.more);
    else if (!from)
        return;
    for (uint32_t i = 0; i < r->n->n_sources; i++) {
        const aril__source *s = &r->n->sources[i];
        aril_tensor *t = s->kind == ARIL__FROM_KEY     ? r->n->headers[s->header].t
                         : s->kind == ARIL__FROM_INPUT ? s->t
                                                       : NULL;
        if (t && t->flags & ARIL__KEY) move_key(t, seed, from, more);
    }
    r->drawing.more += more;
}

/* The results belong to the scope, as those of an op. */
static aril_status run_control(aril__exec_state *r, const aril__graph_node *n,
                               aril_tensor *const *in, aril_tensor **out)
{
    aril__drawing inside = { r->drawing.known, r->drawing.shift + r->drawing.more, 0 };
    aril_status s = aril__control_run(r->g, n, in, r->size, out, &inside);
    if (s == ARIL_OK && inside.more) move_keys(r, n, in, inside.more);
    for (int k = 0; k < n->n_out && s == ARIL_OK; k++) out[k] = aril__give(r->th, out[k]);
    return s;
}

static aril_status run_op(aril__exec_state *r, const aril__step *s, const aril__graph_node *n,
                          aril_tensor **in)
{
    enum { WORDS = 64 };
    int64_t few[WORDS], *room = few;
    const void *attrs = NULL;
    aril_tensor *out[ARIL__MAX_OUT] = { NULL };
    aril_tensor *home = s->home ? target_of(r, &r->g->effects[r->x->effects[s->home - 1]]) : NULL;
    if (n->has_attrs && n->op->attr_size > sizeof few && !(room = aril__malloc(n->op->attr_size)))
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", n->op->name);
    bool known = !n->has_attrs || aril__exec_attrs(r, n, room, &attrs);
    aril_status status;
    if (!known) {
        status =
            aril__fail(ARIL_ERR_SHAPE, "%s: needs a size that this run does not know", n->op->name);
    } else if (n->n_bodies) {
        status = run_control(r, n, in, out);
    } else if (home) {
        out[0] = aril__apply_to(home, n->op, n->n_in, in, attrs);
        status = aril_tensor_status(out[0]);
    } else {
        status = aril__apply(n->op, n->n_in, in, attrs, out);
    }
    if (room != few) free(room);
    return status < 0 ? status : take_results(r, s, n, in, out);
}

static void end_values(aril__exec_state *r, const aril__step *s)
{
    for (uint32_t i = 0; i < s->n_ends; i++) {
        const aril__ended_value *e = &r->x->ends[s->end + i];
        aril_tensor *t = r->n->loose[e->slot];
        if (!t || r->n->slot[e->slot]) continue;
        r->n->loose[e->slot] =
            e->how == ARIL__KEEP_SHAPE ? aril__tensor_shape_only(r->th, t) : NULL;
        aril__tensor_release(r->th, t);
    }
}

static aril_status run_step(aril__exec_state *r, const aril__step *s)
{
    enum { FEW = 16 };
    const aril__graph_node *n = &r->g->nodes[s->node];
    aril_tensor *few[FEW], **in = few;
    ARIL_SCOPE;
    ARIL_INFERENCE;
    if (n->n_in > FEW && !(in = aril__malloc(n->n_in * sizeof *in)))
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", n->op->name);
    for (int i = 0; i < n->n_in; i++) in[i] = value_of(r, r->x->slots[s->in + (uint32_t)i]);
    if (s->reshapes && !aril__exec_viewable(r, in[0], n->out)) in[0] = aril_contiguous(in[0]);
    for (int k = 0; k < n->n_out; k++) {
        int i = r->x->changed[s->out + (uint32_t)k];
        if (i >= 0 && in[i]) in[i] = changeable(r, s, n, i, k);
    }
    aril__recorded before = aril__location_set_recorded(aril__graph_stack(r->g, n->where));
    aril_status status = run_op(r, s, n, in);
    aril__location_set_recorded(before);
    if (in != few) free(in);
    if (status == ARIL_OK) end_values(r, s);
    return status;
}

/* ---- actions ---- */

static inline aril_status run_kernel(const aril__action *a)
{
    aril__run run = a->run;
    if (a->small) {
        bool recorded = false;
        aril_status s = run.device->ops.record_small(run.device->self, &run, &recorded);
        if (s < 0 || recorded) return s;
    }
    aril_status s = aril__run_ready(&a->kernel, &run);
    if (aril__likely(s == ARIL_OK) || !a->choice->row) return s;
    return aril__foreign_error(s, run.op->name, a->choice->row->name);
}

static aril_status run_copy(const aril__action *a)
{
    return aril__copy_across(a->run.out[0], a->run.in[0]);
}

static aril_status run_dispatch(const aril__action *a)
{
    aril__run run = a->run;
    return aril__dispatch(&run);
}

static inline aril_status run_action(aril__exec_state *r, const aril__action *a)
{
    switch (a->kind) {
    case ARIL__RUN_KERNEL: return run_kernel(a);
    case ARIL__RUN_COPY: return run_copy(a);
    case ARIL__RUN_DISPATCH: return run_dispatch(a);
    default: return run_step(r, &r->x->steps[a->step]);
    }
}

/* The node that an action is for; NULL: none, it is a copy for the caller. */
static const aril__graph_node *node_of(const aril__exec_state *r, const aril__action *a)
{
    return r->x->n_steps ? &r->g->nodes[r->x->steps[a->step].node] : NULL;
}

/* Copies are planned where a kernel asks for another order or dtype, a reshape has no view, or a
 * result is in memory that is not the caller's. */
static aril__cold void log_copy(const aril__exec_state *r, const aril__action *a)
{
    char shape[ARIL__SHAPE_TEXT];
    const aril_tensor *from = a->run.in[0], *to = a->run.out[0];
    const aril__graph_node *n = node_of(r, a);
    aril__log(ARIL__LOG_DISPATCH, "copy %s %s: to %s %s for %s", aril__dtypes[from->dtype].name,
              aril__text(shape, from), aril__dtypes[to->dtype].name,
              aril__is_dense(to) ? "contiguous" : "in another order",
              n ? n->op->name : "the caller");
}

/* The same while a profile, a log of calls, a meter or anomaly mode is on. */
static aril__cold aril_status run_noted(aril__exec_state *r, const aril__action *a)
{
    const aril__op *op =
        a->kind == ARIL__RUN_STEP ? r->g->nodes[r->x->steps[a->step].node].op : a->run.op;
    bool spans = aril__profiling() && a->kind != ARIL__RUN_STEP; /* those have a span already */
    aril__span span = { .depth = -1 };
    if (spans) span = aril__span_begin(op->name, op->name);
    if (a->choice) aril__choice_note(&a->run, a->choice);
    if (a->kind == ARIL__RUN_COPY && aril__log_on(ARIL__LOG_DISPATCH)) log_copy(r, a);
    aril_status s = run_action(r, a);
    if (s == ARIL_OK && r->th->mode.anomaly && a->kind != ARIL__RUN_STEP)
        s = aril__check_results(op, a->run.n_in, a->run.in, a->run.out);
    aril__span_end(span);
    return s;
}

static void note_written(const aril__exec_state *r, const aril__action *a, aril_status s)
{
    /* Kernels of the CPU check before they write; others may have stopped midway. */
    if (s < 0 && a->run.device == aril__cpu_device) return;
    for (uint32_t i = 0; i < a->n_written; i++) aril__bump_version(r->n->sources[a->written[i]].t);
}

/* Names the node in the log: the error has the source location of the run. */
static aril__cold void log_failure(const aril__exec_state *r, const aril__action *a)
{
    char where[256];
    const aril__graph_node *n = node_of(r, a);
    if (n)
        aril__log(ARIL__LOG_TRACE, "%s, called at %s, failed", n->op->name,
                  aril__graph_where(r->g, n, where, sizeof where));
}

/* Frees prepared values that were used for the last time, if kernels have forms of them now. */
static aril__cold void drop_packed(aril__exec_state *r, uint32_t action)
{
    const aril__instance *n = r->n;
    for (uint32_t i = 0; i < n->n_sources; i++) {
        const aril__source *s = &n->sources[i];
        const aril__place *p = &n->places[n->headers[s->header].place];
        if (s->kind == ARIL__FROM_STATE && r->g->states[s->index].prepared && !p->plain &&
            p->last == action && p->first != UINT32_MAX)
            aril__prepared_drop(r->g->prepared, s->t);
    }
}

static aril_status run_actions(aril__exec_state *r)
{
    const aril__instance *n = r->n;
    bool was_ok = aril_ok();
    bool noted = r->th->mode.anomaly ||
                 aril__log_on(ARIL__LOG_DISPATCH | ARIL__LOG_PROFILE | ARIL__LOG_METER);
    for (uint32_t i = 0; i < n->n_actions; i++) {
        const aril__action *a = &n->actions[i];
        if (aril__unlikely(aril__plan_poisons)) poison_places(n, i, false);
        aril_status s = aril__unlikely(noted) ? run_noted(r, a) : run_action(r, a);
        if (a->n_written) note_written(r, a, s);
        if (aril__unlikely(s < 0)) {
            if (aril__log_on(ARIL__LOG_TRACE)) log_failure(r, a);
            uint32_t label = node_of(r, a) ? node_of(r, a)->label : 0;
            return label && was_ok ? aril__fail_about(s, r->g->text + label) : s;
        }
        if (aril__unlikely(aril__plan_poisons)) poison_places(n, i, true);
        if (aril__unlikely(r->packs)) drop_packed(r, i);
    }
    return ARIL_OK;
}

/* ---- results ---- */

/* A tensor over the memory of a result, which is the caller's. */
static aril_tensor *take_result(aril__exec_state *r, uint32_t header)
{
    const aril_tensor *h = r->n->headers[header].t;
    aril_tensor *t = aril__tensor_header_like(r->th, h, (aril_dtype)h->dtype);
    if (!t) return NULL;
    t->flags = h->flags & ARIL__CHANNELS_LAST;
    t->storage = h->storage;
    atomic_fetch_add_explicit(&t->storage->refs, 1, memory_order_relaxed);
    return t;
}

/* A tensor that nobody else has, with the value of a slot: that of the plan, or what only the run
 * has, which is taken out if it can be. Effects still read the value there. */
static aril_tensor *own_value(aril__exec_state *r, uint32_t taken, uint32_t slot, bool again)
{
    if (r->n->taken[taken]) return take_result(r, r->n->taken[taken]);
    aril_tensor *t = value_of(r, slot);
    if (!r->n->slot[slot] && !again && is_ours(t) && aril__is_packed(t)) {
        r->n->loose[slot] = NULL;
        t->flags &= (uint16_t) ~(ARIL__INFERENCE | ARIL__LOOSE_VIEW | ARIL__WEAK | ARIL__NUMBER);
        return t;
    }
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_tensor *copy = aril_copy(t);
    copy->flags &= (uint16_t) ~(ARIL__INFERENCE | ARIL__LOOSE_VIEW);
    return aril__tensor_keep(copy);
}

static bool is_wanted_again(const aril__exec *x, uint32_t i, uint32_t slot)
{
    if (x->wanted[slot] == 1) return false;
    for (uint32_t k = i + 1; k < x->n_outputs; k++)
        if (x->outputs[k] == slot) return true;
    for (uint32_t k = 0; k < x->n_effects; k++)
        if (x->effect_slot[k] == slot) return true;
    return false;
}

/* Before the first action changes anything: tensors for the results whose memory is planned. */
static aril_status take_headers(aril__exec_state *r, aril_tensor **got)
{
    const aril__exec *x = r->x;
    for (uint32_t i = 0; i < x->n_outputs; i++) {
        if (!r->n->taken[i]) continue;
        if (!(got[i] = take_result(r, r->n->taken[i]))) return aril__latest_status();
    }
    return aril__own_reserve(r->th, x->n_outputs + 2) ? ARIL_OK : ARIL_ERR_MEMORY;
}

static aril_status take_outputs(aril__exec_state *r, aril_tensor **got)
{
    const aril__exec *x = r->x;
    for (uint32_t i = 0; i < x->n_outputs; i++) {
        if (got[i]) continue;
        got[i] = own_value(r, i, x->outputs[i], is_wanted_again(x, i, x->outputs[i]));
        if (!got[i]) return aril__latest_status();
        if (got[i]->flags & ARIL__POISON) return aril_tensor_status(got[i]);
    }
    return ARIL_OK;
}

/* `copy`: of the value, or NULL. */
static aril_status set_grad(aril__exec_state *r, uint32_t i, aril_tensor *copy)
{
    aril__node *leaf = r->g->grads[r->g->effects[r->x->effects[i]].to].leaf;
    uint32_t slot = r->x->effect_slot[i];
    aril_tensor *t = copy   ? aril__tensor_keep(copy)
                     : slot ? own_value(r, r->x->n_outputs + i, slot, false)
                            : NULL;
    if (copy) t->flags &= (uint16_t)~ARIL__INFERENCE;
    if (slot && !t) return aril__latest_status();
    if (t && aril_tensor_status(t) < 0) {
        aril_status s = aril_tensor_status(t);
        aril__tensor_release(r->th, t);
        return s;
    }
    if (leaf->grad[0]) aril__tensor_release(r->th, leaf->grad[0]);
    leaf->grad[0] = t;
    return ARIL_OK;
}

/* What an effect writes: a copy of the run, one of the plan, or the value itself. */
static aril_tensor *written_value(const aril__exec_state *r, uint32_t i, aril_tensor *const *copy)
{
    uint32_t h = r->n->taken[r->x->n_outputs + i];
    return copy[i] ? copy[i] : h ? r->n->headers[h].t : value_of(r, r->x->effect_slot[i]);
}

/* Effects in order: what is read by one is not yet changed by another, as values are copies or the
 * tensors themselves only where nobody else reads them. */
static aril_status perform_effects(aril__exec_state *r, aril_tensor *const *copy)
{
    const aril__exec *x = r->x;
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < x->n_effects && s == ARIL_OK; i++) {
        const aril__effect *e = &r->g->effects[x->effects[i]];
        if (e->kind == ARIL__WRITE_GRAD) {
            s = set_grad(r, i, copy[i]);
        } else if (!r->n->stored[i]) {
            ARIL_SCOPE;
            ARIL_INFERENCE;
            s = aril_tensor_status(aril_copy_(target_of(r, e), written_value(r, i, copy)));
        }
    }
    return s;
}

/* Whether the memory of a value is the run's. */
static bool is_inside(const aril__exec_state *r, uint32_t slot)
{
    const aril_tensor *t = r->n->loose[slot]; /* of a step that is not planned: */
    return t ? is_ours(t) : r->n->slot[slot] != 0;
}

/* Values that only the run has and effects write, but that are the memory of a tensor that another
 * effect may change, are copied first: to copy[], for the innermost scope. */
static aril_status unshare_effects(aril__exec_state *r, aril_tensor **copy)
{
    const aril__exec *x = r->x;
    for (uint32_t i = 0; i < x->n_effects && x->n_effects > 1; i++) {
        uint32_t slot = x->effect_slot[i];
        if (!slot || r->n->stored[i] || r->n->taken[x->n_outputs + i] || is_inside(r, slot))
            continue;
        ARIL_INFERENCE;
        copy[i] = aril_copy(value_of(r, slot));
        if (aril_tensor_status(copy[i]) < 0) return aril_tensor_status(copy[i]);
    }
    return ARIL_OK;
}

static aril_status finish_effects(aril__exec_state *r)
{
    enum { FEW = 64 };
    aril_tensor *few[FEW] = { NULL }, **copy = few;
    uint32_t n = r->x->n_effects;
    ARIL_SCOPE;
    if (n > FEW && !(copy = aril__calloc(n * sizeof *copy)))
        return aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
    aril_status s = unshare_effects(r, copy);
    if (s == ARIL_OK) s = perform_effects(r, copy);
    if (copy != few) free(copy);
    return s;
}

static void advance_generators(aril__exec_state *r)
{
    for (uint32_t i = 0; i < r->g->n_draws; i++) {
        const aril__draws *d = &r->g->draws[i];
        if (d->ended) continue;
        aril_generator *of = d->generator ? d->generator : &r->th->generator;
        if (d->reset)
            aril__rng_put(of, d->end);
        else
            of->calls += d->calls + (d->generator ? 0 : (uint64_t)r->drawing.more);
    }
}

/* Requirements on sizes that only this run knows. */
static aril__cold aril_status check_late(const aril__exec_state *r)
{
    bool all, *met = aril__malloc((size_t)r->g->n_requirements + 1);
    if (!met) return aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
    memcpy(met, r->n->met, r->g->n_requirements);
    aril_status s = aril__exec_require(r, met, &all);
    free(met);
    return s;
}

aril_status aril__instance_run(aril__exec_state *r, aril_tensor **got)
{
    aril__instance *n = r->n;
    memcpy(r->size, n->size, n->n_sizes * sizeof *n->size);
    aril_status s = bind_sources(r);
    if (s == ARIL_OK) s = aril__instance_take(n);
    if (s == ARIL_OK) s = take_results_memory(r);
    if (s == ARIL_OK) s = take_headers(r, got);
    if (s == ARIL_OK) s = run_actions(r);
    if (s == ARIL_OK && aril__unlikely(n->met)) s = check_late(r);
    if (s == ARIL_OK) s = take_outputs(r, got);
    if (s == ARIL_OK && r->x->n_effects) s = finish_effects(r);
    if (s == ARIL_OK) advance_generators(r);
    release_memory(r);
    return s;
}
