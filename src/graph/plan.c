#include "core/log.h"
#include "graph/planner.h"
#include "ops/elementwise/formula.h"
#include "ops/shape/copy.h"
#include "ops/vision/pool.h"

#include <stdlib.h>
#include <string.h>

/* Memory that lives as long as the instance. */
typedef struct aril__plan_block {
    struct aril__plan_block *next;
    size_t used, size;
    _Alignas(16) char data[];
} plan_block;

typedef aril__planner planner;
typedef aril__planned_call call;

/* ---- memory of the instance ---- */

static bool fail(planner *p)
{
    if (p->status == ARIL_OK) p->status = aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
    return false;
}

/* NULL, with p->status set, when out of memory. */
static void *keep(planner *p, size_t bytes)
{
    enum { BLOCK = 8192 };
    plan_block *b = p->n->memory;
    bytes = (bytes + 15) / 16 * 16;
    if (!b || b->size - b->used < bytes) {
        size_t size = bytes > BLOCK ? bytes : BLOCK;
        if (!(b = aril__malloc(sizeof *b + size))) {
            fail(p);
            return NULL;
        }
        *b = (plan_block){ .next = p->n->memory, .size = size };
        p->n->memory = b;
    }
    void *at = b->data + b->used;
    b->used += bytes;
    return at;
}

/* Room for one more element of a list. */
static bool grow(planner *p, void **list, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap) return true;
    uint32_t more = *cap ? *cap * 2 : 64;
    void *larger = aril__realloc(*list, more * size);
    if (!larger) return fail(p);
    *list = larger;
    *cap = more;
    return true;
}

#define GROW(p, list, count, cap) \
    grow((p), (void **)&(p)->n->list, (p)->n->count, &(p)->cap, sizeof *(p)->n->list)

/* ---- places and headers ---- */

/* The address of values until a run has memory for them: kernels that are prepared meanwhile see
 * that they exist, and that they are aligned. */
static void *const unplaced = (void *)(uintptr_t)65536;

/* A storage whose memory the instance gives it. Kernels cache nothing that they derive from it. */
static aril__storage *new_storage(planner *p, aril__device *device, size_t bytes, bool within)
{
    aril__storage *s = aril__slab_alloc(&p->r->th->slab, sizeof *s);
    if (!s) {
        fail(p);
        return NULL;
    }
    memset(s, 0, sizeof *s);
    atomic_init(&s->refs, 1);
    s->device = device;
    s->bytes = bytes;
    s->deleter = aril__keep_memory;
    atomic_init(&s->lent, true);
    atomic_init(&s->contents, ARIL__IN_MEMORY);
    s->data = within ? s->small : unplaced;
    return s;
}

/* 0 on failure. */
uint32_t aril__plan_place(aril__planner *p, int kind, aril__device *device, size_t bytes)
{
    aril__instance *n = p->n;
    if (!GROW(p, places, n_places, cap_places) || !GROW(p, results, n_results, cap_results))
        return 0;
    bool within = kind == ARIL__IN_HEADER ||
                  (kind == ARIL__IN_ARENA && bytes <= sizeof((aril__storage *)0)->small &&
                   device->host_memory && !aril__plan_poisons);
    aril__place *at = &n->places[n->n_places];
    *at = (aril__place){ .kind = (uint8_t)(within ? ARIL__IN_HEADER : kind),
                         .first = UINT32_MAX,
                         .bytes = bytes,
                         .device = device };
    if (kind != ARIL__IN_SOURCE && !(at->storage = new_storage(p, device, bytes, within))) return 0;
    if (kind == ARIL__IN_RESULT) n->results[n->n_results++] = n->n_places;
    return n->n_places++;
}

/* Puts a header, of which it takes the reference, into a place. 0 on failure. */
uint32_t aril__plan_header(aril__planner *p, aril_tensor *t, uint32_t place, int64_t offset)
{
    aril__instance *n = p->n;
    if (!t || !place || !GROW(p, headers, n_headers, cap_headers)) {
        if (t) aril__tensor_release(p->r->th, t);
        if (p->status == ARIL_OK) p->status = aril__latest_status();
        return 0;
    }
    aril__place *at = &n->places[place];
    n->headers[n->n_headers] = (aril__planned_header){ t, place, at->header, offset, 0, 0 };
    at->header = n->n_headers;
    if (at->storage) {
        atomic_fetch_add_explicit(&at->storage->refs, 1, memory_order_relaxed);
        t->storage = at->storage;
        t->offset = offset;
    }
    return n->n_headers++;
}

/* A header in a place of its own. */
uint32_t aril__plan_value(aril__planner *p, aril_tensor *t, int kind, aril__device *device)
{
    return aril__plan_header(p, t, t ? aril__plan_place(p, kind, device, aril__bytes_of(t)) : 0, 0);
}

static void set_slot(planner *p, uint32_t slot, uint32_t h)
{
    if (!slot || !h) return;
    p->n->slot[slot] = h;
    aril__place_of(p, h)->live++;
}

/* The action uses the memory of a header. */
static void use(planner *p, uint32_t h, uint32_t action)
{
    if (!h) return;
    aril__place *at = aril__place_of(p, h);
    if (at->first == UINT32_MAX) at->first = action;
    if (at->last < action) at->last = action;
    at->plain = true;
}

/* The same by a kernel that keeps a form of the value. */
static void use_packed(planner *p, uint32_t h, uint32_t action)
{
    bool plain = aril__place_of(p, h)->plain;
    use(p, h, action);
    aril__place_of(p, h)->plain = plain;
}

/* ---- sources ---- */

static bool is_written(const planner *p, uint8_t kind, uint32_t index)
{
    if (kind != ARIL__FROM_STATE && kind != ARIL__FROM_INPUT) return false;
    int effect = kind == ARIL__FROM_STATE ? ARIL__WRITE_STATE : ARIL__WRITE_INPUT;
    for (uint32_t i = 0; i < p->x->n_effects; i++) {
        const aril__effect *e = &p->r->g->effects[p->x->effects[i]];
        if (e->kind == effect && e->to == index) return true;
    }
    return false;
}

/* The header of a key, which a run fills in. */
static uint32_t add_key(planner *p)
{
    int64_t two = 2;
    aril_tensor *t = aril__tensor_header(p->r->th, ARIL_U64, 1, &two);
    if (t) t->flags |= ARIL__KEY;
    return aril__plan_value(p, t, ARIL__IN_HEADER, aril__cpu_device);
}

static uint32_t add_source(planner *p, uint8_t kind, uint32_t index, uint32_t slot)
{
    aril__instance *n = p->n;
    for (uint32_t i = 0; i < n->n_sources && !slot; i++)
        if (n->sources[i].kind == kind && n->sources[i].index == index) return n->sources[i].header;
    if (!GROW(p, sources, n_sources, cap_sources)) return 0;
    uint32_t h = 0;
    bool written = is_written(p, kind, index);
    if (kind == ARIL__FROM_KEY) {
        h = add_key(p);
    } else {
        aril_tensor *t = aril__exec_source(p->r, kind, index, slot);
        if (!t) {
            p->status = aril__latest_status();
            return 0;
        }
        aril_tensor *own = aril__tensor_header_like(p->r->th, t, (aril_dtype)t->dtype);
        h = aril__plan_value(p, own, ARIL__IN_SOURCE, aril__tensor_device(t));
        if (!h) return 0;
        own->storage = t->storage;
        own->offset = t->offset;
        own->flags = t->flags & ARIL__SOURCE_FLAGS;
        if (written || (t->node && !p->r->th->mode.no_grad)) own->flags |= ARIL__TRAINED;
        if (t->flags & ARIL__SHAPE_ONLY) own->u.device = t->u.device;
        aril__place_of(p, h)->source = 1 + n->n_sources;
    }
    n->sources[n->n_sources++] = (aril__source){
        .kind = kind, .written = written, .index = index, .header = h, .slot = slot
    };
    return h;
}

/* ---- actions ---- */

static aril__action *add_action(planner *p, int kind)
{
    aril__instance *n = p->n;
    if (!GROW(p, actions, n_actions, cap_actions)) return NULL;
    aril__action *a = &n->actions[n->n_actions++];
    *a = (aril__action){ .kind = (uint8_t)kind, .step = (uint32_t)(p->step - p->x->steps) };
    return a;
}

static uint32_t last_action(const planner *p)
{
    return p->n->n_actions - 1;
}

bool aril__plan_copy(aril__planner *p, uint32_t from, uint32_t to)
{
    aril_tensor **operand = keep(p, 2 * sizeof *operand);
    aril__action *a = operand ? add_action(p, ARIL__RUN_COPY) : NULL;
    if (!a) return false;
    operand[0] = aril__header_of(p, from);
    operand[1] = aril__header_of(p, to);
    a->run = (aril__run){ .op = &aril__op_copy,
                          .n_in = 1,
                          .n_out = 1,
                          .in = operand,
                          .out = operand + 1,
                          .type = (aril_dtype)operand[0]->dtype,
                          .device = operand[1]->storage->device };
    use(p, from, last_action(p));
    use(p, to, last_action(p));
    return true;
}

/* A header for a copy; 0 on failure. */
static uint32_t add_like(planner *p, const aril_tensor *like, aril_dtype dtype, int order, int kind)
{
    aril_tensor *t = aril__tensor_header(p->r->th, dtype, like->ndim, like->dim);
    if (!t) return aril__plan_header(p, NULL, 0, 0);
    if (order == ARIL_ORDER_ANY && aril__is_packed(like)) {
        aril__strides_like(like, t->ndim, t->dim, t->stride);
        t->flags |= like->flags & ARIL__CHANNELS_LAST;
    }
    aril__set_order(t, order);
    return aril__plan_value(p, t, kind, like->storage->device);
}

/* A copy of a value with this dtype and order, in a place of that kind. */
static uint32_t copy_to(planner *p, uint32_t h, aril_dtype dtype, int order, int kind)
{
    uint32_t to = add_like(p, aril__header_of(p, h), dtype, order, kind);
    return to && aril__plan_copy(p, h, to) ? to : 0;
}

static uint32_t copy_as(planner *p, uint32_t h, aril_dtype dtype, int order)
{
    return copy_to(p, h, dtype, order, ARIL__IN_ARENA);
}

/* A value in the form that a kernel asks for: copied once for all kernels that ask for it. */
static uint32_t stage(planner *p, uint32_t h, aril_dtype dtype, int order)
{
    aril__planned_header *at = p->n->headers;
    for (uint32_t form = at[h].form; form; form = at[form].form)
        if (at[form].t->dtype == dtype && at[form].order == order) return form;
    uint32_t copy = copy_as(p, h, dtype, order);
    if (!copy) return 0;
    at = p->n->headers; /* which have grown */
    at[copy].order = order;
    at[copy].form = at[h].form;
    at[h].form = copy;
    return copy;
}

/* ---- calls ---- */

static bool same_geometry(const aril_tensor *a, const aril_tensor *b)
{
    return a->dtype == b->dtype && aril__same_dims(a->ndim, a->dim, b->ndim, b->dim) &&
           aril__same_dims(a->ndim, a->stride, b->ndim, b->stride);
}

/* Whether every input in the memory of t has the same elements in the same positions, and the op
 * reads each of them before it writes it. */
static bool is_overwritable(const call *q, const aril_tensor *t)
{
    if (!(q->op->flags & ELEMENTWISE)) return false;
    if (!aril__is_float(q->c.type) && aril__formula_may_fail(q->op)) return false;
    for (int i = 0; i < q->n_in; i++) {
        const aril_tensor *x = q->tensor[i];
        if (x && x->storage == t->storage && (x->offset != t->offset || !same_geometry(x, t)))
            return false;
    }
    return true;
}

/* Whether no input is in the memory of t. */
static bool is_apart(const call *q, const aril_tensor *t)
{
    for (int i = 0; i < q->n_in; i++)
        if (q->tensor[i] && q->tensor[i]->storage == t->storage) return false;
    return true;
}

/* Whether result 0 can be written to q->dest. */
static bool fits_dest(const planner *p, const call *q)
{
    const aril_tensor *to = aril__header_of(p, q->dest);
    const aril__meta *o = &q->c.out[0];
    return o->dtype == to->dtype && q->c.device == to->storage->device &&
           aril__same_dims(o->ndim, o->dim, to->ndim, to->dim) &&
           (aril__is_packed(to) || !aril__overlaps(to)) &&
           (is_apart(q, to) || is_overwritable(q, to));
}

/* How many values in a place end with the step. */
static uint32_t ending(const planner *p, uint32_t place)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->step->n_ends; i++) {
        const aril__ended_value *e = &p->x->ends[p->step->end + i];
        uint32_t h = p->n->slot[e->slot];
        n += h && p->n->headers[h].place == place && !p->ended[e->slot];
    }
    return n;
}

/* Whether the memory of a header is not needed after the step. */
static bool is_last_use(const planner *p, uint32_t h)
{
    const aril__place *at = aril__place_of(p, h);
    return at->kind == ARIL__IN_ARENA && at->live && at->live == ending(p, p->n->headers[h].place);
}

/* An input whose memory result 0 can have; 0: none. */
static uint32_t find_overlay(const planner *p, const call *q, const aril_tensor *t)
{
    for (int i = 0; i < q->n_in && !q->to_caller[0]; i++) {
        uint32_t h = q->in[i];
        bool shape_only = i < 31 && q->op->shape_only >> i & 1;
        if (!h || shape_only || !same_geometry(aril__header_of(p, h), t) || !is_last_use(p, h))
            continue;
        if (is_overwritable(q, aril__header_of(p, h))) return h;
    }
    return 0;
}

/* A view needs no memory and no action. */
static bool plan_view(planner *p, call *q, int i)
{
    const aril__meta *o = &q->c.out[i];
    uint32_t base = q->in[q->op->out[i] - 1];
    const aril_tensor *of = aril__header_of(p, base);
    uint8_t kind = aril__place_of(p, base)->kind;
    if (of->dtype != o->dtype && aril__dtypes[of->dtype].bits != aril__dtypes[o->dtype].bits &&
        (kind == ARIL__IN_SOURCE || kind == ARIL__IN_TENSOR))
        return false; /* its offset is not that of its base plus a constant */
    aril_tensor *t = aril__tensor_header(p->r->th, o->dtype, o->ndim, o->dim);
    if (!t) {
        aril__plan_header(p, NULL, 0, 0);
        return false;
    }
    memcpy(t->stride, o->stride, (size_t)o->ndim * sizeof *o->stride);
    int64_t offset = p->n->headers[base].offset + (o->offset - of->offset);
    aril__storage *storage = of->storage;
    q->out[i] = aril__plan_header(p, t, p->n->headers[base].place, offset);
    if (q->out[i] && kind == ARIL__IN_SOURCE) {
        t->storage = storage;
        t->offset = o->offset;
    }
    return q->out[i] != 0;
}

static uint32_t place_result(planner *p, const call *q, int i, aril_tensor *t)
{
    return aril__plan_value(p, t, q->to_caller[i] ? ARIL__IN_RESULT : ARIL__IN_ARENA, q->c.device);
}

/* Headers of results. Those of a `late` call, to which a row may give another order, have no memory
 * yet, and no number in q->out. */
static bool make_results(planner *p, call *q, bool late, aril_tensor **out)
{
    memset(out, 0, q->op->n_out * sizeof *out);
    for (int i = 0; i < q->op->n_out && p->status == ARIL_OK; i++) {
        int kind = q->op->out[i];
        if (i == 0 && q->dest) {
            q->out[i] = q->dest;
        } else if (ARIL__IS_WRITE(kind)) {
            q->out[i] = q->in[kind - 32];
        } else if (q->unused[i] && i == aril__pool_indices(q->op) &&
                   q->c.device == aril__cpu_device) {
            continue; /* its kernels leave them out */
        } else if (i + 1 != q->op->reserve_out) {
            aril_tensor *t = aril__call_result(p->r->th, &q->c, i);
            uint32_t over = t && i == 0 && !late ? find_overlay(p, q, t) : 0;
            if (!t)
                aril__plan_header(p, NULL, 0, 0);
            else if (late)
                out[i] = t;
            else if (over)
                q->out[i] =
                    aril__plan_header(p, t, p->n->headers[over].place, p->n->headers[over].offset);
            else
                q->out[i] = place_result(p, q, i, t);
        }
        if (q->out[i]) out[i] = aril__header_of(p, q->out[i]);
    }
    return p->status == ARIL_OK;
}

/* An input in whose memory the kernel can compute result 0; 0: none. */
static uint32_t find_planned_overlay(const planner *p, const call *q, const aril__plan *plan,
                                     const aril_tensor *t)
{
    for (int i = 0; i < q->n_in && i < ARIL_PLAN_INPUTS && !q->to_caller[0]; i++) {
        uint32_t h = plan->overlay >> i & 1 ? q->in[i] : 0;
        if (!h || !same_geometry(aril__header_of(p, h), t) || !is_last_use(p, h)) continue;
        bool alone = true; /* no other input is in that memory */
        for (int k = 0; k < q->n_in; k++)
            alone =
                alone && (k == i || !q->in[k] ||
                          aril__header_of(p, q->in[k])->storage != aril__header_of(p, h)->storage);
        if (alone) return h;
    }
    return 0;
}

/* Gives results of a late call their order and memory; without `fits`, frees them. */
static bool place_results(planner *p, call *q, const aril__plan *plan, bool fits, aril_tensor **out)
{
    for (int i = 0; i < q->op->n_out; i++) {
        aril_tensor *t = out[i];
        if (!t || q->out[i]) continue;
        if (fits && plan) aril__set_order(t, plan->out[i].order);
        uint32_t over = fits && plan && i == 0 ? find_planned_overlay(p, q, plan, t) : 0;
        if (over)
            q->out[i] =
                aril__plan_header(p, t, p->n->headers[over].place, p->n->headers[over].offset);
        else if (fits)
            q->out[i] = place_result(p, q, i, t);
        else
            aril__tensor_release(p->r->th, t);
        fits = fits && q->out[i];
    }
    return fits;
}

static bool add_reserve(planner *p, call *q, const aril__choice *choice, aril_tensor **out)
{
    int i = q->op->reserve_out - 1;
    int64_t bytes = choice->row ? (int64_t)choice->plan.reserve : 0;
    aril_tensor *t = aril__tensor_header(p->r->th, ARIL_U8, 1, &bytes);
    q->out[i] = place_result(p, q, i, t);
    out[i] = aril__header_of(p, q->out[i]);
    return q->out[i] != 0;
}

/* Lists the sources that the results of a call are in, and forgets copies of what was changed. */
static bool note_written(planner *p, const call *q)
{
    uint32_t *list = NULL;
    uint32_t n = 0;
    for (int i = 0; i < q->op->n_out; i++) p->n->headers[q->out[i]].form = 0;
    for (int i = 0; i < q->n_in; i++)
        if (aril__changes(q->op, i)) p->n->headers[q->in[i]].form = 0;
    for (int i = 0; i < q->op->n_out + q->n_in; i++) {
        int k = i - q->op->n_out;
        uint32_t h = k < 0 ? q->out[i] : aril__changes(q->op, k) ? q->in[k] : 0;
        if (k < 0 && !(i == 0 && q->dest) && !ARIL__IS_WRITE(q->op->out[i])) continue;
        uint32_t source = h ? aril__place_of(p, h)->source : 0;
        if (!source) continue;
        if (!list && !(list = keep(p, (size_t)(q->op->n_out + q->n_in) * sizeof *list)))
            return false;
        list[n++] = source - 1;
    }
    aril__action *a = &p->n->actions[last_action(p)];
    a->written = list;
    a->n_written = n;
    return true;
}

/* ---- kernels ---- */

/* Whether result i is the staged form of an input. */
static int staged_input(const call *q, int i)
{
    if (ARIL__IS_WRITE(q->op->out[i])) return q->op->out[i] - 32;
    return i == 0 && q->op->flags & INPLACE && q->n_in && q->out[0] == q->in[0] ? 0 : -1;
}

/* Whether the call changes input i where it is. */
static bool is_changed(const call *q, int i)
{
    for (int k = 0; k < q->op->n_out; k++)
        if (q->in[i] == q->out[k]) return true;
    return aril__changes(q->op, i);
}

static bool stage_operands(planner *p, const call *q, const aril__kernel *k, const aril__run *r,
                           uint32_t *in, uint32_t *out)
{
    for (int i = 0; i < q->n_in; i++) {
        aril__asked a = q->in[i] ? aril__asked_in(k, r, i) : (aril__asked){ .as_is = true };
        in[i] = a.as_is            ? q->in[i]
                : is_changed(q, i) ? copy_as(p, q->in[i], a.dtype, a.order)
                                   : stage(p, q->in[i], a.dtype, a.order);
        if (!a.as_is && !in[i]) return false;
    }
    for (int i = 0; i < q->op->n_out; i++) {
        aril__asked a = q->out[i] ? aril__asked_out(k, r, i) : (aril__asked){ .as_is = true };
        int from = a.as_is ? -1 : staged_input(q, i);
        out[i] = a.as_is ? q->out[i]
                 : from >= 0
                     ? in[from]
                     : add_like(p, aril__header_of(p, q->out[i]), a.dtype, a.order, ARIL__IN_ARENA);
        if (!a.as_is && !out[i]) return false;
    }
    return true;
}

static bool return_results(planner *p, const call *q, const uint32_t *in, const uint32_t *out)
{
    for (int i = 0; i < q->op->n_out; i++)
        if (out[i] != q->out[i] && !aril__plan_copy(p, out[i], q->out[i])) return false;
    for (int i = 0; i < q->n_in && q->op->writes; i++)
        if (in[i] != q->in[i] && aril__changes(q->op, i) && !aril__plan_copy(p, in[i], q->in[i]))
            return false;
    return true;
}

static bool is_packed(const aril__plan *plan, int i)
{
    return plan && i < ARIL_PLAN_INPUTS && plan->packs >> i & 1;
}

static void use_operands(planner *p, const call *q, const aril__plan *plan, const uint32_t *in,
                         const uint32_t *out)
{
    for (int i = 0; i < q->n_in; i++) {
        if (!in[i] || (i < 31 && q->op->shape_only >> i & 1)) continue;
        (is_packed(plan, i) ? use_packed : use)(p, in[i], last_action(p));
    }
    for (int i = 0; i < q->op->n_out; i++) use(p, out[i], last_action(p));
}

static bool add_workspace(planner *p, const aril__kernel *k, uint32_t action)
{
    const aril__run *r = &p->n->actions[action].run;
    size_t bytes = k->plan ? k->plan->workspace : k->workspace ? k->workspace(r) : 0;
    if (!bytes) return true;
    uint32_t place = aril__plan_place(p, ARIL__IN_ARENA, r->device, bytes);
    if (!place) return false;
    p->n->places[place].first = p->n->places[place].last = action;
    p->n->actions[action].workspace = place;
    p->n->actions[action].run.workspace = p->n->places[place].storage->data; /* of a few bytes */
    p->n->actions[action].run.workspace_bytes = bytes;
    return true;
}

static bool add_kernel(planner *p, const call *q, const aril__kernel *k, aril__run *r,
                       const aril__choice *choice)
{
    uint32_t *in = keep(p, ((size_t)q->n_in + 1) * sizeof *in), out[ARIL__MAX_OUT];
    aril_tensor **operand = keep(p, (size_t)(q->n_in + q->op->n_out + 1) * sizeof *operand);
    if (!in || !operand || !stage_operands(p, q, k, r, in, out)) return false;
    aril__action *a = add_action(p, ARIL__RUN_KERNEL);
    if (!a) return false;
    for (int i = 0; i < q->n_in; i++) operand[i] = aril__header_of(p, in[i]);
    for (int i = 0; i < q->op->n_out; i++) operand[q->n_in + i] = aril__header_of(p, out[i]);
    a->run = *r;
    a->run.in = operand;
    a->run.out = operand + q->n_in;
    a->run.type = aril__asked_type(k, r);
    a->run.prepared = k->plan ? k->plan->prepared : NULL;
    a->run.alike = aril__call_is_alike(q->op, q->n_in, a->run.in, a->run.out[0]);
    a->kernel = *k;
    a->choice = choice;
    use_operands(p, q, k->plan, in, out);
    return add_workspace(p, k, last_action(p)) && return_results(p, q, in, out);
}

/* An op without a kernel on its device. */
static bool add_dispatch(planner *p, const call *q, const aril__run *r)
{
    aril__action *a = add_action(p, ARIL__RUN_DISPATCH);
    if (!a) return false;
    a->run = *r;
    a->run.late = false;
    use_operands(p, q, NULL, q->in, q->out);
    return true;
}

/* Plans a call. False if it cannot be: p->status tells whether that is an error. */
static bool plan_call(planner *p, call *q)
{
    q->tensor = keep(p, (size_t)(q->n_in + ARIL__MAX_OUT) * sizeof *q->tensor);
    if (!q->tensor) return false;
    for (int i = 0; i < q->n_in; i++) q->tensor[i] = aril__header_of(p, q->in[i]);
    q->c.op = q->op;
    q->c.attrs = q->attrs;
    q->c.n_in = q->n_in;
    q->c.in = q->tensor;
    if (q->op->flags & DYNAMIC || !aril__call_infer(&q->c, aril__header_of(p, q->dest)))
        return false;
    if (ARIL__IS_VIEW(q->op->out[0])) {
        for (int i = 0; i < q->op->n_out; i++)
            if (!plan_view(p, q, i)) return false;
        return true;
    }
    if (q->dest && !fits_dest(p, q)) q->dest = 0;
    if (aril__concat_plan(p, q) || p->status < 0) return p->status == ARIL_OK;

    aril_tensor **out = q->tensor + q->n_in;
    bool late = aril__call_is_late(&q->c);
    if (!make_results(p, q, late, out)) return place_results(p, q, NULL, false, out);
    aril__run r = { .op = q->op,
                    .attrs = q->attrs,
                    .n_in = q->n_in,
                    .n_out = q->op->n_out,
                    .in = q->tensor,
                    .out = out,
                    .late = late,
                    .type = q->c.type,
                    .device = q->c.device };
    aril__kernel k;
    const aril__choice *choice = aril__choice_hold(&r);
    bool planned = choice && aril__choice_kernel(&r, choice, &k);
    if (!choice && p->status == ARIL_OK) p->status = aril__latest_status();
    bool fits = place_results(p, q, planned ? k.plan : NULL, choice != NULL, out);
    bool possible = planned || (choice && !choice->wrong && !q->op->reserve_out);
    if (fits && planned && q->op->reserve_out) fits = add_reserve(p, q, choice, out);
    uint32_t before = p->n->n_actions;
    if (fits && possible)
        fits = planned ? add_kernel(p, q, &k, &r, choice) : add_dispatch(p, q, &r);
    bool held = false; /* by the action */
    for (uint32_t i = before; i < p->n->n_actions; i++) held |= p->n->actions[i].choice != NULL;
    if (!held) aril__choice_release(choice);
    return fits && possible && note_written(p, q);
}

/* ---- steps ---- */

/* A value that the step may change in place of input i: itself, or a copy. */
static uint32_t changeable(planner *p, const call *q, int i, uint32_t result)
{
    const aril__exec *x = p->x;
    uint32_t slot = x->slots[p->step->in + (uint32_t)i], h = q->in[i];
    if (x->in_place[result]) return h;
    int uses = 0;
    for (int u = 0; u < q->n_in; u++) {
        bool shape_only = u < 31 && q->op->shape_only >> u & 1;
        uses += q->in[u] && !shape_only &&
                aril__header_of(p, q->in[u])->storage == aril__header_of(p, h)->storage;
    }
    bool inside = p->r->g->values[x->value[slot]].kind == ARIL__FROM_NODE;
    if (inside && uses == 1 && is_last_use(p, h)) return h;
    const aril_tensor *t = aril__header_of(p, h);
    uint32_t copy = copy_as(p, h, (aril_dtype)t->dtype, ARIL_ORDER_ANY);
    if (copy)
        aril__header_of(p, copy)->flags |=
            aril__header_of(p, h)->flags & (ARIL__WEAK | ARIL__NUMBER);
    return copy;
}

/* Whether the caller of a run gets the memory of a value: it is an output or a gradient. Other
 * outputs and gradients that it is are copies, as are tensors outside. */
static bool goes_to_caller(const planner *p, uint32_t slot)
{
    const aril__exec *x = p->x;
    if (!slot || !x->wanted[slot]) return false;
    for (uint32_t i = 0; i < x->n_outputs; i++)
        if (x->outputs[i] == slot) return true;
    for (uint32_t i = 0; i < x->n_effects; i++)
        if (x->effect_slot[i] == slot && p->r->g->effects[x->effects[i]].kind == ARIL__WRITE_GRAD)
            return true;
    return false;
}

/* Whether nothing but the step that computes it knows a value. */
static bool is_unused(const planner *p, uint32_t slot)
{
    for (uint32_t i = 0; i < p->step->n_ends; i++) {
        const aril__ended_value *e = &p->x->ends[p->step->end + i];
        if (e->slot == slot) return e->how == ARIL__RELEASE;
    }
    return slot == 0;
}

static uint32_t home_of(planner *p, const aril__step *s)
{
    if (!s->home) return 0;
    const aril__effect *e = &p->r->g->effects[p->x->effects[s->home - 1]];
    return add_source(p, e->kind == ARIL__WRITE_STATE ? ARIL__FROM_STATE : ARIL__FROM_INPUT, e->to,
                      0);
}

/* Puts the results of a step into their slots. */
static bool take_results(planner *p, const aril__graph_node *n, const call *q)
{
    const aril__exec *x = p->x;
    for (int k = 0; k < n->n_out; k++) {
        uint32_t slot = x->slots[p->step->out + (uint32_t)k];
        int changed = x->changed[p->step->out + (uint32_t)k];
        uint32_t h = changed >= 0 ? q->in[changed] : q->out[k];
        if (!slot || !h) continue;
        aril__value_id v = x->value[slot];
        const aril__value *value = &p->r->g->values[v];
        aril_tensor *t = aril__header_of(p, h);
        if (value->tensor_flags && h != q->dest && changed < 0) t->flags |= value->tensor_flags;
        if (value->flags & ARIL__VALUE_UNKNOWN) {
            aril_status s = aril__exec_bind(p->r, v, t->ndim, t->dim);
            if (s < 0) p->status = s;
            if (s < 0) return false;
        }
        set_slot(p, slot, h);
    }
    return true;
}

/* False if the step has to be run by itself. */
static bool plan_step(planner *p, const aril__graph_node *n)
{
    const aril__exec *x = p->x;
    const aril__step *s = p->step;
    if (n->n_bodies) return false;
    call q;
    memset(&q, 0, offsetof(call, c));
    q.op = n->op;
    q.n_in = n->n_in;
    void *attrs = n->has_attrs ? keep(p, n->op->attr_size) : NULL;
    q.in = keep(p, ((size_t)n->n_in + 1) * sizeof *q.in);
    if (!q.in || (n->has_attrs && !attrs)) return false;
    if (n->has_attrs && !aril__exec_attrs(p->r, n, attrs, &q.attrs)) return false;
    for (int i = 0; i < n->n_in; i++) {
        uint32_t slot = x->slots[s->in + (uint32_t)i];
        q.in[i] = p->n->slot[slot];
        if (slot && !q.in[i]) return false;
    }
    if (s->reshapes && !aril__exec_viewable(p->r, aril__header_of(p, q.in[0]), n->out)) {
        uint8_t dtype = aril__header_of(p, q.in[0])->dtype;
        q.in[0] = copy_as(p, q.in[0], (aril_dtype)dtype, ARIL_ORDER_CONTIGUOUS);
        if (!q.in[0]) return false;
    }
    for (int k = 0; k < n->n_out; k++) {
        uint32_t result = x->slots[s->out + (uint32_t)k];
        int i = x->changed[s->out + (uint32_t)k];
        if (k < n->op->n_out) q.to_caller[k] = goes_to_caller(p, result);
        if (k < n->op->n_out) q.unused[k] = is_unused(p, result);
        if (i < 0 || !q.in[i]) continue;
        if (!(q.in[i] = changeable(p, &q, i, result))) return false;
    }
    q.dest = home_of(p, s);
    if (p->status < 0) return false;
    uint32_t wanted = q.dest;
    if (!plan_call(p, &q)) return false;
    if (wanted && !q.dest) p->n->stored[s->home - 1] = false;
    return take_results(p, n, &q);
}

/* The header of a result of control flow, which is contiguous; 0 if its sizes are not known. */
static uint32_t describe_result(planner *p, aril__value_id v)
{
    const aril__graph *g = p->r->g;
    int64_t dim[ARIL_MAX_DIMS];
    const int64_t *given = aril__graph_dims(g, v);
    for (int d = 0; d < g->values[v].ndim; d++) {
        dim[d] =
            given[d] < 0 ? aril__size_value(g->sizes, given[d], aril__exec_size, p->r) : given[d];
        if (dim[d] < 0) return 0;
    }
    aril_tensor *t =
        aril__tensor_header(p->r->th, (aril_dtype)g->values[v].dtype, g->values[v].ndim, dim);
    if (t) t->flags |= g->values[v].tensor_flags;
    return aril__plan_value(p, t, ARIL__IN_TENSOR, g->values[v].device);
}

/* A step that a run executes by itself. What it reads stays as it is until the run ends, since
 * results may be views of it. */
static bool add_unplanned(planner *p, const aril__graph_node *n)
{
    aril__action *a = add_action(p, ARIL__RUN_STEP);
    if (!a) return false;
    p->n->n_unplanned++;
    for (int i = 0; i < n->n_in; i++) {
        uint32_t h = p->n->slot[p->x->slots[p->step->in + (uint32_t)i]];
        if (!h) continue;
        aril__place_of(p, h)->live++;
        use(p, h, UINT32_MAX);
    }
    for (int k = 0; k < n->n_out && n->n_bodies; k++) {
        uint32_t slot = p->x->slots[p->step->out + (uint32_t)k];
        if (slot) set_slot(p, slot, describe_result(p, p->x->value[slot]));
    }
    return p->status == ARIL_OK;
}

static void end_values(planner *p)
{
    for (uint32_t i = 0; i < p->step->n_ends; i++) {
        uint32_t slot = p->x->ends[p->step->end + i].slot, h = p->n->slot[slot];
        if (p->ended[slot]) continue;
        p->ended[slot] = true;
        if (h) aril__place_of(p, h)->live--;
    }
}

static bool plan_steps(planner *p)
{
    const aril__exec *x = p->x;
    if (!aril__concat_find(p)) return false;
    for (uint32_t i = 0; i < x->n_steps && p->status == ARIL_OK; i++) {
        p->step = &x->steps[i];
        const aril__graph_node *n = &p->r->g->nodes[p->step->node];
        aril__recorded before = aril__location_set_recorded(aril__graph_stack(p->r->g, n->where));
        bool fits = plan_step(p, n) || (p->status == ARIL_OK && add_unplanned(p, n));
        aril__location_set_recorded(before);
        if (!fits) return false;
        end_values(p);
    }
    for (uint32_t i = 0; i < x->n_outputs + x->n_effects; i++) {
        uint32_t slot = i < x->n_outputs ? x->outputs[i] : x->effect_slot[i - x->n_outputs];
        use(p, p->n->slot[slot], UINT32_MAX);
    }
    return p->status == ARIL_OK;
}

/* ---- results ---- */

/* The caller gets the memory of a value where it is a result's, for one output or gradient; else a
 * copy in memory of its own. Values that only the run has are left to it. */
static bool plan_taken(planner *p, uint32_t slot, uint32_t *taken)
{
    uint32_t h = p->n->slot[slot];
    if (!h || aril__header_of(p, h)->flags & ARIL__SHAPE_ONLY) return true;
    aril__place *at = aril__place_of(p, h);
    bool whole = !p->n->headers[h].next;
    if (at->kind == ARIL__IN_RESULT && whole && !at->taken) {
        at->taken = true;
        *taken = h;
    } else {
        *taken = copy_to(p, h, (aril_dtype)aril__header_of(p, h)->dtype, ARIL_ORDER_ANY,
                         ARIL__IN_RESULT);
    }
    return *taken != 0;
}

/* A value that an effect writes to a tensor, but that is in the memory of one that it, or another
 * effect, changes, is copied first. */
static bool plan_written(planner *p, uint32_t i, uint32_t *from)
{
    uint32_t h = p->n->slot[p->x->effect_slot[i]];
    if (!h || p->n->stored[i] || aril__place_of(p, h)->kind != ARIL__IN_SOURCE) return true;
    const aril__source *s = &p->n->sources[aril__place_of(p, h)->source - 1];
    if (p->x->n_effects == 1 && !s->written) return true;
    *from = copy_as(p, h, (aril_dtype)aril__header_of(p, h)->dtype, ARIL_ORDER_ANY);
    use(p, *from, UINT32_MAX);
    return *from != 0;
}

/* Copies at the end of a run are part of the plan, as is their memory. */
static bool plan_results(planner *p)
{
    const aril__exec *x = p->x;
    bool fits = true;
    p->step = &x->steps[x->n_steps ? x->n_steps - 1 : 0];
    for (uint32_t i = 0; i < x->n_outputs && fits; i++)
        fits = plan_taken(p, x->outputs[i], &p->n->taken[i]);
    for (uint32_t i = 0; i < x->n_effects && fits; i++) {
        bool gradient = p->r->g->effects[x->effects[i]].kind == ARIL__WRITE_GRAD;
        uint32_t *to = &p->n->taken[x->n_outputs + i];
        fits = gradient ? plan_taken(p, x->effect_slot[i], to) : plan_written(p, i, to);
    }
    return fits;
}

static bool plan_sources(planner *p)
{
    const aril__exec *x = p->x;
    for (uint32_t i = 0; i < x->n_sources; i++) {
        const aril__value *v = &p->r->g->values[x->value[x->source[i]]];
        uint32_t h = add_source(p, v->kind, v->from, x->source[i]);
        if (!h) return false;
        set_slot(p, x->source[i], h);
    }
    return true;
}

/* ---- lifetime ---- */

static bool allocate(planner *p)
{
    const aril__exec *x = p->x;
    aril__instance *n = p->n;
    n->n_sizes = p->r->n_sizes;
    n->given = aril__malloc((n->n_sizes + 1) * sizeof *n->given);
    n->size = aril__malloc((n->n_sizes + 1) * sizeof *n->size);
    n->slot = aril__calloc(((size_t)x->n_slots + 1) * sizeof *n->slot);
    n->stored = aril__malloc((size_t)x->n_effects + 1);
    n->loose = aril__calloc(((size_t)x->n_slots + 1) * sizeof *n->loose);
    n->taken = aril__calloc(((size_t)x->n_outputs + x->n_effects + 1) * sizeof *n->taken);
    p->ended = aril__calloc((size_t)x->n_slots + 1);
    if (!n->given || !n->size || !n->slot || !n->stored || !n->loose || !n->taken || !p->ended)
        return fail(p);
    memcpy(n->given, p->r->size, n->n_sizes * sizeof *n->given);
    memcpy(n->stored, x->stored, x->n_effects);
    n->n_headers = n->n_places = 1; /* 0 is none */
    return GROW(p, headers, n_headers, cap_headers) && GROW(p, places, n_places, cap_places);
}

/* With the sizes that are known before the run, the message is that of the function; with those
 * that the steps have told, nothing is left in most programs. */
static bool check_requirements(planner *p, bool last)
{
    bool all;
    uint32_t n = p->r->g->n_requirements;
    if (!n) return true;
    if (!p->n->met && !(p->n->met = aril__calloc(n))) return fail(p);
    p->status = aril__exec_require(p->r, p->n->met, &all);
    if (p->status < 0 || !(last && all)) return p->status == ARIL_OK;
    free(p->n->met);
    p->n->met = NULL;
    return true;
}

aril__instance *aril__instance_new(aril__exec_state *r)
{
    planner p = { .r = r, .x = r->x, .n = aril__calloc(sizeof *p.n) };
    if (!p.n) {
        fail(&p);
        return NULL;
    }
    p.n->around = aril__surroundings_now();
    p.n->apart = r->x->apart;
    bool fits = allocate(&p) && check_requirements(&p, false) && plan_sources(&p) &&
                plan_steps(&p) && plan_results(&p) && check_requirements(&p, true);
    if (fits) aril__mark_small(p.n);
    if (fits && !aril__layout(p.n)) fits = fail(&p);
    if (fits) memcpy(p.n->size, r->size, r->n_sizes * sizeof *r->size);
    free(p.ended);
    free(p.next);
    free(p.full);
    if (fits) return p.n;
    aril__instance_free(p.n);
    return NULL;
}

void aril__instance_free(aril__instance *n)
{
    aril__thread *th = aril__self();
    if (!n) return;
    aril__instance_trim(n);
    for (uint32_t i = 0; i < n->n_actions; i++) aril__choice_release(n->actions[i].choice);
    for (uint32_t i = 1; i < n->n_headers; i++) {
        aril_tensor *t = n->headers[i].t;
        if (n->places[n->headers[i].place].kind == ARIL__IN_SOURCE) t->storage = NULL;
        t->node = NULL;
        aril__tensor_release(th, t);
    }
    for (uint32_t i = 1; i < n->n_places; i++)
        if (n->places[i].storage) aril__storage_release(th, n->places[i].storage);
    for (plan_block *next; n->memory; n->memory = next) {
        next = n->memory->next;
        free(n->memory);
    }
    void *const lists[] = { n->given, n->size,   n->sources, n->headers, n->places, n->actions,
                            n->slot,  n->stored, n->results, n->loose,   n->met,    n->taken };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]);
    free(n);
}
