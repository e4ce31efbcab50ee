#include "graph/inspect.h"

#include "graph/prepare.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/device.h"
#include "autograd/node.h"
#include "core/clock.h"
#include "graph/control.h"
#include "graph/executor.h"
#include "ops/shape/copy.h"
#include "ops/table/apply.h"

#include <stdlib.h>
#include <string.h>

/* A copy with the flags of a number, if it is one. */
static aril_tensor *copied(aril_tensor *t)
{
    aril_tensor *copy = aril_copy(aril_detach(t));
    if (!(copy->flags & ARIL__POISON)) copy->flags |= t->flags & (ARIL__WEAK | ARIL__NUMBER);
    return copy;
}

static aril_tensor *key_of(const aril__graph *g, const aril__key *k)
{
    aril__thread *th = aril__self();
    const aril_generator *of = g->draws[k->generator].generator;
    if (!of) of = &th->generator;
    int64_t two = 2;
    aril_tensor *t = aril__tensor_new(th, ARIL_U64, 1, &two, aril__cpu_device);
    if (!t) return aril__poison();
    memcpy(t->storage->data, (uint64_t[]){ of->seed, of->calls + k->offset }, 16);
    t->flags |= ARIL__KEY;
    return aril__give(th, t);
}

/* The tensor of a value that no node computes; NULL: not there. */
static aril_tensor *source(const aril__graph *g, const aril__value *v, aril_list in)
{
    switch (v->kind) {
    case ARIL__FROM_INPUT:
        return (int)v->from < in.n && in.at[v->from] ? copied(in.at[v->from]) : NULL;
    case ARIL__FROM_STATE:
        return g->states[v->from].tensor ? copied(g->states[v->from].tensor) : NULL;
    case ARIL__FROM_GRAD:
        return g->grads[v->from].leaf->grad[0] ? copied(g->grads[v->from].leaf->grad[0]) : NULL;
    case ARIL__FROM_CONSTANT: return g->constants[v->from];
    case ARIL__FROM_KEY: return key_of(g, &g->keys[v->from]);
    default: return NULL;
    }
}

static void want_gradient(aril_tensor *t)
{
    if (!t->storage || !aril_dtype_is_float((aril_dtype)t->dtype) || aril__is_number(t)) return;
    if (t->node && !(t->node->flags & ARIL__NODE_LEAF))
        aril_retain_grad(t);
    else
        aril_set_requires_grad(t, true);
}

/* A run as far as unknown sizes are concerned. */
static aril__exec_state sizes_of(const aril__graph *g, const aril__inspection *r)
{
    return (
        aril__exec_state){ .g = g, .th = aril__self(), .size = r->size, .n_sizes = g->sizes->n };
}

const void *aril__inspection_attrs(const aril__graph *g, const aril__inspection *r,
                                   const aril__graph_node *n, void *room)
{
    aril__exec_state state = sizes_of(g, r);
    const void *attrs = NULL;
    if (n->has_attrs) aril__exec_attrs(&state, n, room, &attrs);
    return attrs;
}

/* Checks the shape of a value, and learns unknown sizes from it. */
static aril_status learn(const aril__graph *g, aril__inspection *r, aril__value_id v)
{
    const aril_tensor *t = r->value[v];
    aril__exec_state state = sizes_of(g, r);
    return t ? aril__exec_bind(&state, v, t->ndim, t->dim) : ARIL_OK;
}

static aril_status run_node(const aril__graph *g, const aril__graph_node *n, aril__inspection *r,
                            bool gradients)
{
    const aril__value_id *id = aril__graph_in(g, n);
    aril_tensor *out[ARIL__MAX_OUT] = { NULL };
    if (n->n_bodies && !g->bodies[n->body]->exec)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "values cannot be shown for a graph with branches or loops");
    aril_tensor **in = aril__calloc(((size_t)n->n_in + 1) * sizeof *in);
    void *room = aril__malloc((size_t)n->op->attr_size + 1);
    if (!in || !room) {
        free(in);
        free(room);
        return aril__fail(ARIL_ERR_MEMORY, "inspect: out of memory");
    }
    for (int i = 0; i < n->n_in; i++) in[i] = id[i] ? r->value[id[i]] : NULL;
    for (int k = 0; k < n->n_out; k++) {
        int i = aril__graph_changed(g, n, k);
        if (i >= 0 && in[i]) in[i] = copied(in[i]);
    }
    if (ARIL__IS_VIEW(n->op->out[0]) && n->n_in && in[0]) in[0] = aril_contiguous(in[0]);
    aril__drawing drawing = { 0 };
    aril_status s =
        n->n_bodies ? aril__control_run(g, n, in, r->size, out, &drawing)
                    : aril__apply(n->op, n->n_in, in, aril__inspection_attrs(g, r, n, room), out);
    for (int k = 0; k < n->n_out && s == ARIL_OK; k++) {
        int i = aril__graph_changed(g, n, k);
        aril_tensor *t = i >= 0 ? in[i] : k < n->op->n_out ? out[k] : NULL;
        if (t && n->n_bodies) t = aril__give(aril__self(), t);
        r->value[n->out + (uint32_t)k] = t;
        if (t && gradients) want_gradient(t);
        if (t) s = learn(g, r, n->out + (uint32_t)k);
    }
    free(in);
    free(room);
    return s;
}

/* Inputs have the dtypes of the graph; those that it does not need may be NULL. */
static aril_status check_inputs(const aril__graph *g, aril_list in)
{
    const char *name = g->name ? g->name : "graph";
    if ((uint32_t)in.n != g->n_inputs)
        return aril__fail(ARIL_ERR_ARG, "%s takes %u inputs, got %d", name, g->n_inputs, in.n);
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < g->n_inputs && s == ARIL_OK; i++) {
        const aril_tensor *t = in.at[i];
        const aril__value *v = &g->values[g->inputs[i].value];
        if (t) s = aril__check_value(name, t);
        if (t && s == ARIL_OK && t->dtype != v->dtype)
            s = aril__fail(ARIL_ERR_DTYPE, "%s: input %u is %s, expected %s", name, i,
                           aril__dtypes[t->dtype].name, aril__dtypes[v->dtype].name);
    }
    return s;
}

aril_status aril__graph_inspect(const aril__graph *g, aril_list in, bool gradients,
                                aril__inspection *r)
{
    aril_status checked = check_inputs(g, in);
    if (checked < 0) return checked;
    *r = (aril__inspection){ .value = aril__calloc(g->n_values * sizeof *r->value),
                             .seconds = aril__calloc(g->n_nodes * sizeof *r->seconds),
                             .size = aril__malloc((g->sizes->n + 1) * sizeof *r->size) };
    aril_status s = aril__prepared_update(g->prepared);
    for (size_t k = 0; r->size && k < g->sizes->n; k++) r->size[k] = -1;
    if (!r->value || !r->seconds || !r->size)
        s = aril__fail(ARIL_ERR_MEMORY, "inspect: out of memory");
    aril_guard mode = gradients ? aril_enable_grad_begin() : aril_no_grad_begin();
    for (uint32_t v = 1; v < g->n_values && s == ARIL_OK; v++) {
        if (g->values[v].kind == ARIL__FROM_NODE || g->values[v].kind == ARIL__NO_VALUE) continue;
        r->value[v] = source(g, &g->values[v], in);
        if (r->value[v]) s = aril_tensor_status(r->value[v]);
        if (s == ARIL_OK) s = learn(g, r, v);
        if (r->value[v] && gradients && g->values[v].kind != ARIL__FROM_CONSTANT)
            want_gradient(r->value[v]);
    }
    for (aril__node_id id = 1; id < g->n_nodes && s == ARIL_OK; id++) {
        double begin = aril__seconds();
        const aril__graph_node *n = &g->nodes[id];
        s = run_node(g, n, r, gradients);
        aril__device *on = g->values[n->out].device;
        if (s == ARIL_OK && on && on != aril__cpu_device) s = aril_synchronize(on->id);
        r->seconds[id] = aril__seconds() - begin;
    }
    aril_guard_end(&mode);
    return s;
}

void aril__inspection_free(aril__inspection *r)
{
    free(r->value);
    free(r->seconds);
    free(r->size);
    *r = (aril__inspection){ 0 };
}
