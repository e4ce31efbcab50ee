#include "graph/part.h"

#include "graph/control.h"
#include "graph/passes.h"
#include "graph/replay.h"
#include "ops/shape/copy.h"

#include <stdlib.h>
#include <string.h>

struct aril__part {
    aril__graph *g;
    aril__exec *x;
    aril__replay *replay; /* or NULL */
    aril__request of;
    aril__device *device;
    uint32_t n_inputs;
    uint64_t calls; /* of the generator, by all random nodes of the graph */
    bool *needs;    /* by input */
};

static uint64_t calls_of(const aril__graph *g)
{
    return g->n_draws ? g->draws[0].calls : 0;
}

void aril__part_free(aril__part *p)
{
    if (!p) return;
    aril__replay_free(p->replay);
    aril__exec_free(p->x);
    aril__graph_free(p->g);
    free(p->of.out);
    free(p->of.effects);
    free(p->needs);
    free(p);
}

const aril__graph *aril__part_graph(const aril__part *p)
{
    return p->g;
}

bool aril__part_needs(const aril__part *p, uint32_t i)
{
    return i < p->n_inputs && p->needs[i];
}

bool aril__part_is_for(const aril__part *p, const aril__graph *of, const aril__request *q,
                       const aril__device *device)
{
    return p->device == device && p->calls == calls_of(of) && p->of.n_out == q->n_out &&
           p->of.n_effects == q->n_effects &&
           memcmp(p->of.out, q->out, q->n_out * sizeof *q->out) == 0 &&
           memcmp(p->of.effects, q->effects, q->n_effects * sizeof *q->effects) == 0;
}

/* ---- devices ----
 *
 * A graph is defined on the CPU, except for what ARIL_DEVICE places elsewhere. */

/* Whether input i of a node has to be on the node's device. */
static bool is_operand(const aril__graph *g, const aril__graph_node *n, int i)
{
    aril__value_id v = aril__graph_in(g, n)[i];
    const aril__value *x = &g->values[v];
    return v && x->kind != ARIL__NO_VALUE && x->kind != ARIL__FROM_KEY &&
           !(x->tensor_flags & ARIL__NUMBER) && !(i < 31 && n->op->shape_only >> i & 1);
}

static aril__device *device_of(aril__rewrite *r, const aril__graph_node *n, int i)
{
    return r->g->values[aril__rewrite_now(r, aril__graph_in(r->g, n)[i])].device;
}

/* Where a node runs: on the device of the session if an operand is there. NULL: it is not moved. */
static aril__device *device_of_node(aril__rewrite *r, const aril__graph_node *n,
                                    aril__device *device)
{
    aril__device *first = NULL, *like = NULL;
    for (int i = 0; i < n->n_in; i++) {
        if (!aril__graph_in(r->g, n)[i]) continue;
        aril__device *at = device_of(r, n, i);
        if (is_operand(r->g, n, i)) {
            if (!first || at == device) first = at;
        } else if (!like) {
            like = at;
        }
    }
    return first ? first : like;
}

/* A value on another device: a new node before the one that uses it. 0 with an error. */
static aril__value_id moved(aril__graph *g, aril__value_id v, const aril__device *to)
{
    aril_device from = g->values[v].device->id;
    struct to_device_attrs a = { .device = { to->id.kind, to->id.index },
                                 .from = { from.kind, from.index } };
    aril__node_id id = aril__graph_node_add(g, &aril__op_to_device, 1, &v, &a);
    if (!id) return 0;
    aril__value made = g->values[v];
    made.kind = ARIL__FROM_NODE;
    made.from = id;
    made.index = 0;
    made.device = (aril__device *)(uintptr_t)to;
    g->values[g->nodes[id].out] = made;
    return g->nodes[id].out;
}

static bool place_nodes(aril__graph *g, aril__device *device);

/* Bodies have the inputs of their node; a condition comes before those. */
static bool place_bodies(aril__rewrite *r, const aril__graph_node *n, aril__device *device)
{
    aril__graph *g = r->g;
    const struct control_attrs *a = aril__graph_attrs(g, n);
    uint32_t first = a->kind[0] == ARIL__COND;
    bool fits = true;
    for (uint32_t b = 0; b < n->n_bodies && fits; b++) {
        aril__graph *body = g->bodies[n->body + b];
        for (uint32_t i = 0; i < body->n_inputs && first + i < n->n_in; i++)
            body->values[body->inputs[i].value].device = device_of(r, n, (int)(first + i));
        fits = place_nodes(body, device);
    }
    const aril__graph *last = g->bodies[n->body + n->n_bodies - 1];
    for (uint32_t k = 0; k < n->n_out && k < last->n_outputs; k++)
        g->values[n->out + k].device = last->values[last->outputs[k]].device;
    return fits;
}

/* A node that moves a value: left out where that is there already. */
static bool place_move(aril__rewrite *r, aril__node_id id, aril__device *device)
{
    aril__graph *g = r->g;
    const aril__graph_node *n = &r->old[id];
    struct to_device_attrs *a = (struct to_device_attrs *)(void *)(g->words + n->attrs);
    if (a->device[0] == ARIL__SESSION_DEVICE) {
        a->device[0] = device->id.kind;
        a->device[1] = device->id.index;
    }
    aril__device *to =
        aril__device_find((aril_device){ (int16_t)a->device[0], (int16_t)a->device[1] });
    aril__value_id v = aril__rewrite_now(r, aril__graph_in(g, n)[0]);
    if (to == g->values[v].device) {
        aril__rewrite_value(r, n->out, v);
        return true;
    }
    if (to) g->values[n->out].device = to;
    return aril__rewrite_keep(r, id);
}

static bool place_node(aril__rewrite *r, aril__node_id id, aril__device *device)
{
    enum { FEW = 32 };
    aril__graph *g = r->g;
    const aril__graph_node *n = &r->old[id];
    aril__value_id in[FEW] = { 0 };
    aril__device *at = device_of_node(r, n, device);
    for (int i = 0; i < n->n_in && i < FEW && at; i++)
        if (is_operand(g, n, i) && device_of(r, n, i) != at &&
            !(in[i] = moved(g, aril__rewrite_now(r, aril__graph_in(g, n)[i]), at)))
            return false;
    for (uint32_t k = 0; k < n->n_out && at; k++) g->values[n->out + k].device = at;
    if (!aril__rewrite_keep(r, id)) return false;
    for (int i = 0; i < n->n_in && i < FEW; i++)
        if (in[i]) g->ids[g->nodes[g->n_nodes - 1].in + (uint32_t)i] = in[i];
    return true;
}

static bool place_nodes(aril__graph *g, aril__device *device)
{
    aril__rewrite r;
    if (!aril__rewrite_begin(&r, g)) return false;
    bool fits = true;
    for (aril__node_id id = 1; id < r.n_old && fits; id++) {
        if (r.old[id].n_bodies)
            fits = place_bodies(&r, &r.old[id], device) && aril__rewrite_keep(&r, id);
        else if (r.old[id].op == &aril__op_to_device)
            fits = place_move(&r, id, device);
        else
            fits = place_node(&r, id, device);
    }
    return aril__rewrite_end(&r, fits) == ARIL_OK;
}

static aril_status place(aril__graph *g, aril__device *device, const bool *placed)
{
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (!placed[i]) g->values[g->inputs[i].value].device = device;
    for (uint32_t i = 0; i < g->n_states; i++) {
        const aril_tensor *t = g->states[i].tensor;
        if (t && t->storage) g->values[g->states[i].value].device = t->storage->device;
    }
    return place_nodes(g, device) ? ARIL_OK : ARIL_ERR_MEMORY;
}

/* ---- making it ---- */

static void *copy_of(const void *from, size_t bytes)
{
    void *to = aril__malloc(bytes + 1);
    return to && bytes ? memcpy(to, from, bytes) : to;
}

/* Runs the pass, and removes requirements of nodes that it removed. */
static aril_status remove_dead(aril__graph *g)
{
    aril__graph_requirement *q = g->requirements;
    aril__value_id *of = aril__malloc(((size_t)g->n_requirements + 1) * sizeof *of);
    if (!of) return aril__fail(ARIL_ERR_MEMORY, "graph: out of memory");
    for (uint32_t i = 0; i < g->n_requirements; i++)
        of[i] = q[i].node < g->n_nodes ? g->nodes[q[i].node].out : 0;
    aril_status s = aril__pass_dead(g);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_requirements && s == ARIL_OK; i++)
        if (of[i] && g->values[of[i]].kind != ARIL__NO_VALUE) q[n++] = q[i];
    if (s == ARIL_OK) g->n_requirements = n;
    free(of);
    return s;
}

/* Leaves what the request wants. */
static aril_status cut(aril__graph *g, const aril__request *q)
{
    g->n_outputs = 0;
    for (uint32_t i = 0; i < q->n_out; i++)
        if (!aril__graph_output(g, q->out[i])) return ARIL_ERR_MEMORY;
    aril__effect *kept = aril__malloc(((size_t)q->n_effects + 1) * sizeof *kept);
    if (!kept) return aril__fail(ARIL_ERR_MEMORY, "graph: out of memory");
    for (uint32_t i = 0; i < q->n_effects; i++) kept[i] = g->effects[q->effects[i]];
    free(g->effects);
    g->effects = kept;
    g->n_effects = q->n_effects;
    g->cap_effects = q->n_effects;
    return remove_dead(g);
}

aril__graph *aril__part_plain(const aril__graph *of, const aril__request *q)
{
    aril__graph *g = aril__graph_copy(of);
    if (!g || cut(g, q) == ARIL_OK) return g;
    aril__graph_free(g);
    return NULL;
}

static void note_need(aril__part *p, aril__value_id v)
{
    if (v && p->g->values[v].kind == ARIL__FROM_INPUT) p->needs[p->g->values[v].from] = true;
}

/* Before passes, which may find that a value does not matter. */
static void find_needs(aril__part *p)
{
    const aril__graph *g = p->g;
    for (aril__node_id id = 1; id < g->n_nodes; id++)
        for (int i = 0; i < g->nodes[id].n_in; i++)
            note_need(p, aril__graph_in(g, &g->nodes[id])[i]);
    for (uint32_t i = 0; i < g->n_outputs; i++) note_need(p, g->outputs[i]);
    for (uint32_t i = 0; i < g->n_effects; i++) note_need(p, g->effects[i].value);
}

aril__part *aril__part_new(const aril__graph *of, const aril__request *q, aril__device *device,
                           const bool *placed)
{
    aril__part *p = aril__calloc(sizeof *p);
    if (p) {
        p->device = device;
        p->calls = calls_of(of);
        p->n_inputs = of->n_inputs;
        p->of = (aril__request){ q->n_out, q->n_effects, copy_of(q->out, q->n_out * sizeof *q->out),
                                 copy_of(q->effects, q->n_effects * sizeof *q->effects) };
        p->needs = aril__calloc((size_t)of->n_inputs + 1);
    }
    aril_status s = p && p->of.out && p->of.effects && p->needs
                        ? ARIL_OK
                        : aril__fail(ARIL_ERR_MEMORY, "graph: out of memory");
    if (s == ARIL_OK && !(p->g = aril__graph_copy(of))) s = ARIL_ERR_MEMORY;
    if (s == ARIL_OK) s = cut(p->g, q);
    if (s == ARIL_OK) {
        find_needs(p);
        s = place(p->g, device, placed);
        if (s == ARIL_OK) s = aril__passes(p->g);
    }
    if (s == ARIL_OK && !(p->x = aril__exec_whole(p->g))) s = ARIL_ERR_MEMORY;
    if (s == ARIL_OK) {
        p->replay = aril__replay_new(p->g);
        return p;
    }
    aril__part_free(p);
    return NULL;
}

aril_status aril__part_run(const aril__part *p, aril_tensor *const *in, aril_tensor **out)
{
    return aril__replay_run(p->replay, p->x, in, out);
}

aril_memory_plan aril__part_memory(const aril__part *p, const aril__device *device)
{
    return aril__exec_memory(p->x, device);
}
