#include "graph/graph.h"

#include "autograd/node.h"
#include "core/error.h"
#include "graph/exec.h"
#include "graph/prepare.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- arrays ---- */

static aril__cold bool no_memory(void)
{
    aril__fail(ARIL_ERR_MEMORY, "graph: out of memory");
    return false;
}

/* Room for `needed` elements. */
static bool reserve(void *at, uint64_t needed, uint32_t *cap, size_t size)
{
    if (aril__likely(needed <= *cap)) return true;
    uint64_t to = *cap ? *cap : 16;
    while (to < needed) to *= 2;
    void *old, *grown;
    memcpy(&old, at, sizeof old);
    if (to > UINT32_MAX || !(grown = aril__realloc(old, to * size))) return no_memory();
    memcpy(at, &grown, sizeof grown);
    *cap = (uint32_t)to;
    return true;
}

bool aril__graph_grow(void *at, uint32_t n, uint32_t *cap, size_t size)
{
    return reserve(at, (uint64_t)n + 1, cap, size);
}

#define RESERVE(g, list, more) \
    reserve(&(g)->list, (uint64_t)(g)->n_##list + (more), &(g)->cap_##list, sizeof *(g)->list)

/* ---- lifetime ---- */

aril__graph *aril__graph_new(const char *name)
{
    aril__graph *g = aril__calloc(sizeof *g);
    if (!g) {
        no_memory();
        return NULL;
    }
    g->sizes = &g->own_sizes;
    /* Number 0 is none, in each list that is referred to by number. */
    if (!ARIL__GROW(g, nodes) || !ARIL__GROW(g, values) || !RESERVE(g, text, 1) ||
        !RESERVE(g, words, 1) || (name && !(g->name = aril__strdup(name)))) {
        aril__graph_free(g);
        return NULL;
    }
    g->nodes[0] = (aril__graph_node){ 0 };
    g->values[0] = (aril__value){ .kind = ARIL__NO_VALUE };
    g->text[0] = '\0';
    g->words[0] = 0;
    g->n_nodes = g->n_values = g->n_text = g->n_words = 1;
    return g;
}

void aril__graph_free(aril__graph *g)
{
    if (!g) return;
    aril__thread *th = aril__self();
    for (uint32_t i = 0; i < g->n_constants; i++) aril__tensor_release(th, g->constants[i]);
    for (uint32_t i = 0; i < g->n_inputs; i++) free(g->inputs[i].name);
    for (uint32_t i = 0; i < g->n_states; i++) {
        if (g->states[i].tensor) aril__tensor_release(th, g->states[i].tensor);
        free(g->states[i].name);
    }
    for (uint32_t i = 0; i < g->n_grads; i++) aril__node_release(th, g->grads[i].leaf);
    for (uint32_t i = 0; i < g->n_epilogues; i++) free(g->epilogues[i].data);
    for (uint32_t i = 0; i < g->n_bodies; i++) aril__graph_free(g->bodies[i]);
    for (uint32_t i = 0; i < g->n_recipes; i++) aril__recipe_release(g->recipes[i]);
    aril__exec_free(g->exec);
    aril__prepared_free(g->prepared);
    aril__sizes_free(&g->own_sizes);
    void *const lists[] = { g->nodes,  g->values, g->ids,    g->words, g->text,
                            g->inputs, g->states, g->grads,  g->keys,  g->draws,
                            g->name,   g->bodies, g->effects };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]);
    free(g->recipes);
    free(g->constants);
    free(g->outputs);
    free(g->epilogues);
    free(g->requirements);
    free(g->frames);
    free(g);
}

/* ---- building ---- */

bool aril__graph_sizes(aril__graph *g, aril__value_id v, int ndim, const int64_t *dim)
{
    aril__value *to = &g->values[v];
    if (!RESERVE(g, words, (uint32_t)ndim)) return false;
    to->ndim = (uint8_t)ndim;
    to->shape = g->n_words;
    to->flags &= (uint8_t)~ARIL__VALUE_UNKNOWN;
    for (int d = 0; d < ndim; d++) {
        g->words[g->n_words++] = dim[d];
        if (dim[d] < 0) to->flags |= ARIL__VALUE_UNKNOWN;
    }
    return true;
}

bool aril__graph_describe(aril__graph *g, aril__value_id v, const aril_tensor *like)
{
    aril__value *to = &g->values[v];
    to->dtype = like->dtype;
    to->tensor_flags = like->flags & (ARIL__WEAK | ARIL__NUMBER);
    to->device = aril__tensor_device(like);
    return aril__graph_sizes(g, v, like->ndim, like->dim);
}

/* `n` new values without dtype and shape. */
static aril__value_id add_values(aril__graph *g, uint32_t n)
{
    if (!RESERVE(g, values, n)) return 0;
    aril__value_id first = g->n_values;
    memset(&g->values[first], 0, n * sizeof *g->values);
    g->n_values += n;
    return first;
}

aril__value_id aril__graph_value(aril__graph *g, enum aril__value_kind kind, uint32_t from,
                                 const aril_tensor *like)
{
    aril__value_id v = add_values(g, 1);
    if (!v || !aril__graph_describe(g, v, like)) return 0;
    g->values[v].kind = (uint8_t)kind;
    g->values[v].from = from;
    return v;
}

aril__value_id aril__graph_input(aril__graph *g, const aril_tensor *like, const char *name)
{
    if (!ARIL__GROW(g, inputs)) return 0;
    aril__input in = { aril__graph_value(g, ARIL__FROM_INPUT, g->n_inputs, like), NULL };
    if (!in.value) return 0;
    if (name && !(in.name = aril__strdup(name))) return no_memory();
    g->inputs[g->n_inputs++] = in;
    return in.value;
}

aril__value_id aril__graph_constant(aril__graph *g, aril_tensor *t)
{
    if (!ARIL__GROW(g, constants)) return 0;
    aril__value_id v = aril__graph_value(g, ARIL__FROM_CONSTANT, g->n_constants, t);
    if (v) g->constants[g->n_constants++] = aril__tensor_keep(t);
    return v;
}

aril__value_id aril__graph_state(aril__graph *g, aril_tensor *t, const char *name)
{
    if (!ARIL__GROW(g, states)) return 0;
    aril__state s = { .value = aril__graph_value(g, ARIL__FROM_STATE, g->n_states, t) };
    if (!s.value) return 0;
    if (name && !(s.name = aril__strdup(name))) return no_memory();
    s.tensor = aril__tensor_keep(t);
    g->states[g->n_states++] = s;
    return s.value;
}

const aril__recipe *aril__graph_recipe(aril__graph *g, const aril__recipe *r)
{
    if (!ARIL__GROW(g, recipes)) return NULL;
    aril__recipe *shared = aril__recipe_share(r);
    if (shared) g->recipes[g->n_recipes++] = shared;
    return shared;
}

bool aril__graph_output(aril__graph *g, aril__value_id v)
{
    if (!ARIL__GROW(g, outputs)) return false;
    g->outputs[g->n_outputs++] = v;
    return true;
}

bool aril__graph_effect(aril__graph *g, enum aril__effect_kind kind, uint32_t to,
                        aril__value_id value)
{
    if (!ARIL__GROW(g, effects)) return false;
    g->effects[g->n_effects++] = (aril__effect){ (uint8_t)kind, to, value };
    return true;
}

uint32_t aril__graph_text(aril__graph *g, const char *text)
{
    size_t size = strlen(text) + 1;
    if (size == 1) return 0;
    if (g->n_text > size && memcmp(g->text + g->n_text - size, text, size) == 0 &&
        g->text[g->n_text - size - 1] == '\0')
        return g->n_text - (uint32_t)size;
    if (!RESERVE(g, text, size)) return 0;
    memcpy(g->text + g->n_text, text, size);
    g->n_text += (uint32_t)size;
    return g->n_text - (uint32_t)size;
}

/* The stack of the present call; 0 if it is unknown. */
static uint32_t add_stack(aril__graph *g)
{
    enum { MOST = 40 };
    void *frames[MOST];
    int n = aril__location_frames(frames, MOST);
    if (n <= 0 || !RESERVE(g, frames, (uint32_t)n + 2)) return 0;
    if (g->n_frames == 0) g->frames[g->n_frames++] = NULL;
    uint32_t at = g->n_frames;
    memcpy(g->frames + g->n_frames, frames, (size_t)n * sizeof *frames);
    g->n_frames += (uint32_t)n;
    g->frames[g->n_frames++] = NULL;
    return at;
}

void aril__graph_locate(aril__graph *g, aril__node_id id)
{
    if (id < ARIL__LOCATED) g->nodes[id].where = add_stack(g);
}

bool aril__graph_require(aril__graph *g, const aril__requirement *q)
{
    const aril__graph_requirement *last =
        g->n_requirements ? &g->requirements[g->n_requirements - 1] : NULL;
    if (last && last->node == g->n_nodes && memcmp(&last->is, q, sizeof *q) == 0) return true;
    if (!ARIL__GROW(g, requirements)) return false;
    uint32_t where = g->n_requirements < ARIL__LOCATED ? add_stack(g) : 0;
    g->requirements[g->n_requirements++] = (aril__graph_requirement){ *q, g->n_nodes, where };
    return true;
}

aril__recorded aril__graph_stack(const aril__graph *g, uint32_t where)
{
    int n = 0;
    while (where && g->frames[where + (uint32_t)n]) n++;
    return (aril__recorded){ g->frames + where, n };
}

const char *aril__graph_where(const aril__graph *g, const aril__graph_node *n, char *buf,
                              size_t size)
{
    aril__recorded at = aril__graph_stack(g, n->where);
    if (size) buf[0] = '\0';
    if (at.n) aril__location_in(at.frames, at.n, buf, size);
    return buf;
}

int aril__graph_outputs_of(const aril__op *op, int n_in, const aril__value_id *in)
{
    int n = op->n_out;
    for (int i = 0; i < n_in && op->writes; i++) n += in[i] && aril__changes(op, i);
    return n;
}

int aril__graph_changed(const aril__graph *g, const aril__graph_node *n, int k)
{
    const aril__op *op = n->op;
    if (k < op->n_out) return ARIL__IS_WRITE(op->out[k]) ? op->out[k] - 32 : -1;
    const aril__value_id *in = aril__graph_in(g, n);
    k -= op->n_out;
    for (int i = 0; i < n->n_in; i++)
        if (in[i] && aril__changes(op, i) && k-- == 0) return i;
    return -1;
}

bool aril__is_reshape(const aril__op *op)
{
    return ARIL__IS_VIEW(op->out[0]) && op->saves[0] == LIKE(0) && !op->index_in &&
           (strcmp(op->name, "reshape") == 0 || strcmp(op->name, "reshape_like") == 0 ||
            strcmp(op->name, "flatten") == 0);
}

bool aril__graph_has_unknown(const aril__op *op, const void *attrs)
{
    for (int i = 0; i < op->n_attrs; i++) {
        const aril__attr *a = &op->attrs[i];
        const int64_t *at = (const int64_t *)(const void *)((const char *)attrs + a->offset);
        for (int k = 0; a->type == ARIL__I64 && k < a->count; k++)
            if (aril__size_is_named(at[k])) return true;
    }
    return false;
}

aril__node_id aril__graph_node_add(aril__graph *g, const aril__op *op, int n_in,
                                   const aril__value_id *in, const void *attrs)
{
    uint32_t words = attrs ? op->attr_size / (uint32_t)sizeof *g->words : 0;
    uint32_t n_out = (uint32_t)aril__graph_outputs_of(op, n_in, in);
    if (!ARIL__GROW(g, nodes) || !RESERVE(g, ids, (uint32_t)n_in) || !RESERVE(g, words, words))
        return 0;
    aril__node_id id = g->n_nodes;
    aril__graph_node n = { .op = op,
                           .attrs = g->n_words,
                           .in = g->n_ids,
                           .n_in = (unsigned)n_in & INT_MAX,
                           .n_out = n_out & INT_MAX,
                           .has_attrs = words > 0,
                           .sized = words > 0 && aril__graph_has_unknown(op, attrs) };
    if (n_out && !(n.out = add_values(g, n_out))) return 0;
    for (uint32_t k = 0; k < n_out; k++) {
        aril__value *v = &g->values[n.out + k];
        v->from = id;
        v->index = k & INT_MAX;
    }
    if (n_in) memcpy(g->ids + g->n_ids, in, (size_t)n_in * sizeof *in);
    if (words) memcpy(g->words + g->n_words, attrs, words * sizeof *g->words);
    g->n_ids += (uint32_t)n_in;
    g->n_words += words;
    g->nodes[g->n_nodes++] = n;
    return id;
}

bool aril__graph_alike(const aril__graph *g, aril__value_id a, aril__value_id b)
{
    const aril__value *x = &g->values[a], *y = &g->values[b];
    return x->dtype == y->dtype && x->device == y->device &&
           aril__same_dims(x->ndim, aril__graph_dims(g, a), y->ndim, aril__graph_dims(g, b));
}

/* ---- checking ---- */

static aril_status bad(const aril__graph *g, const char *what, uint32_t at)
{
    return aril__fail(ARIL_ERR_INTERNAL, "graph %s: %s %u", g->name ? g->name : "", what, at);
}

/* Sources by kind: how many there are. */
static uint32_t sources(const aril__graph *g, int kind)
{
    switch (kind) {
    case ARIL__FROM_INPUT: return g->n_inputs;
    case ARIL__FROM_STATE: return g->n_states;
    case ARIL__FROM_GRAD: return g->n_grads;
    case ARIL__FROM_CONSTANT: return g->n_constants;
    case ARIL__FROM_KEY: return g->n_keys;
    default: return 0;
    }
}

static aril_status check_value(const aril__graph *g, aril__value_id id)
{
    const aril__value *v = &g->values[id];
    if (v->kind == ARIL__NO_VALUE) return ARIL_OK;
    if (v->ndim > ARIL_MAX_DIMS || (uint64_t)v->shape + v->ndim > g->n_words)
        return bad(g, "wrong shape of value", id);
    if (v->kind != ARIL__FROM_NODE)
        return v->from < sources(g, v->kind) ? ARIL_OK : bad(g, "wrong source of value", id);
    if (v->from == 0 || v->from >= g->n_nodes) return bad(g, "wrong node of value", id);
    const aril__graph_node *n = &g->nodes[v->from];
    return v->index < n->n_out && n->out + v->index == id ? ARIL_OK
                                                          : bad(g, "wrong output of value", id);
}

/* Whether a value exists when node `at` runs. */
static bool is_ready(const aril__graph *g, aril__value_id id, aril__node_id at)
{
    if (id == 0) return true;
    if (id >= g->n_values || g->values[id].kind == ARIL__NO_VALUE) return false;
    return g->values[id].kind != ARIL__FROM_NODE || g->values[id].from < at;
}

static aril_status check_node(const aril__graph *g, aril__node_id id)
{
    const aril__graph_node *n = &g->nodes[id];
    const aril__value_id *in = aril__graph_in(g, n);
    if (!n->op || (uint64_t)n->in + n->n_in > g->n_ids) return bad(g, "wrong inputs of node", id);
    if (n->out + (uint64_t)n->n_out > g->n_values) return bad(g, "wrong outputs of node", id);
    for (int i = 0; i < n->n_in; i++) {
        if (!is_ready(g, in[i], id)) return bad(g, "a value is used before it exists in node", id);
        if (!in[i] && !(n->op->optional >> aril__role(n->op, i) & 1))
            return bad(g, "an input is absent in node", id);
    }
    for (int k = 0; k < n->n_out; k++) {
        const aril__value *v = &g->values[n->out + (uint32_t)k];
        if (v->kind == ARIL__NO_VALUE) continue;
        if (v->kind != ARIL__FROM_NODE || v->from != id || v->index != k)
            return bad(g, "an output belongs to another node than", id);
    }
    return (uint64_t)n->body + n->n_bodies <= g->n_bodies ? ARIL_OK
                                                          : bad(g, "wrong bodies of node", id);
}

aril_status aril__graph_check(const aril__graph *g)
{
    aril_status s = ARIL_OK;
    for (aril__node_id i = 1; i < g->n_nodes && s == ARIL_OK; i++) s = check_node(g, i);
    for (aril__value_id v = 1; v < g->n_values && s == ARIL_OK; v++) s = check_value(g, v);
    for (uint32_t i = 0; i < g->n_outputs && s == ARIL_OK; i++)
        if (!g->outputs[i] || !is_ready(g, g->outputs[i], g->n_nodes))
            s = bad(g, "no value for output", i);
    for (uint32_t i = 0; i < g->n_effects && s == ARIL_OK; i++) {
        const aril__effect *e = &g->effects[i];
        static const uint8_t kind[] = { [ARIL__WRITE_STATE] = ARIL__FROM_STATE,
                                        [ARIL__WRITE_INPUT] = ARIL__FROM_INPUT,
                                        [ARIL__WRITE_GRAD] = ARIL__FROM_GRAD };
        if (e->to >= sources(g, kind[e->kind]) || !is_ready(g, e->value, g->n_nodes) ||
            (!e->value && e->kind != ARIL__WRITE_GRAD))
            s = bad(g, "wrong effect", i);
    }
    for (uint32_t i = 0; i < g->n_bodies && s == ARIL_OK; i++) s = aril__graph_check(g->bodies[i]);
    return s;
}

/* ---- changing ---- */

static aril__value_id final(aril__value_id *to, aril__value_id v)
{
    aril__value_id end = v;
    while (to[end]) end = to[end];
    while (v != end) { /* shorten the chain for the next lookup */
        aril__value_id next = to[v];
        to[v] = end;
        v = next;
    }
    return end;
}

void aril__graph_replace(aril__graph *g, aril__value_id *to)
{
    for (uint32_t i = 0; i < g->n_ids; i++) g->ids[i] = final(to, g->ids[i]);
    for (uint32_t i = 0; i < g->n_outputs; i++) g->outputs[i] = final(to, g->outputs[i]);
    for (uint32_t i = 0; i < g->n_effects; i++)
        g->effects[i].value = final(to, g->effects[i].value);
}

void aril__graph_keep_nodes(aril__graph *g, const bool *keep)
{
    uint32_t n = 1;
    for (aril__node_id i = 1; i < g->n_nodes; i++) {
        const aril__graph_node *node = &g->nodes[i];
        for (uint32_t k = 0; k < node->n_out; k++) {
            aril__value *v = &g->values[node->out + k];
            if (!keep[i])
                v->kind = ARIL__NO_VALUE;
            else
                v->from = n;
        }
        if (keep[i]) g->nodes[n++] = *node;
    }
    g->n_nodes = n;
}

/* ---- rewriting ---- */

bool aril__rewrite_begin(aril__rewrite *r, aril__graph *g)
{
    *r = (aril__rewrite){ .g = g, .n_old = g->n_nodes, .n_values = g->n_values };
    r->old = aril__malloc(g->n_nodes * sizeof *r->old);
    r->to = aril__calloc(g->n_values * sizeof *r->to);
    r->kept = aril__calloc(g->n_nodes);
    if (!r->old || !r->to || !r->kept) {
        free(r->old);
        free(r->to);
        free(r->kept);
        return no_memory();
    }
    memcpy(r->old, g->nodes, g->n_nodes * sizeof *r->old);
    g->n_nodes = 1;
    return true;
}

aril__value_id aril__rewrite_now(aril__rewrite *r, aril__value_id v)
{
    aril__value_id now = v;
    while (now < r->n_values && r->to[now]) now = r->to[now];
    return now;
}

void aril__rewrite_value(aril__rewrite *r, aril__value_id v, aril__value_id with)
{
    r->to[v] = with;
}

bool aril__rewrite_keep(aril__rewrite *r, aril__node_id id)
{
    aril__graph *g = r->g;
    if (!ARIL__GROW(g, nodes) || !RESERVE(g, ids, r->old[id].n_in)) return false;
    aril__graph_node n = r->old[id];
    n.in = g->n_ids; /* a list of its own, so that the old one stays valid */
    for (uint32_t i = 0; i < n.n_in; i++)
        g->ids[g->n_ids++] = aril__rewrite_now(r, g->ids[r->old[id].in + i]);
    g->nodes[g->n_nodes++] = n;
    r->kept[id] = true;
    return true;
}

/* Gives the values of the listed nodes their numbers. */
static void number_outputs(aril__graph *g)
{
    for (aril__node_id id = 1; id < g->n_nodes; id++)
        for (uint32_t k = 0; k < g->nodes[id].n_out; k++) g->values[g->nodes[id].out + k].from = id;
}

aril_status aril__rewrite_end(aril__rewrite *r, bool fits)
{
    aril__graph *g = r->g;
    if (!fits) {
        memcpy(g->nodes, r->old, r->n_old * sizeof *r->old);
        g->n_nodes = r->n_old;
        for (aril__value_id v = r->n_values; v < g->n_values; v++)
            g->values[v].kind = ARIL__NO_VALUE;
    }
    for (aril__node_id id = 1; fits && id < r->n_old; id++)
        for (uint32_t k = 0; k < r->old[id].n_out && !r->kept[id]; k++)
            g->values[r->old[id].out + k].kind = ARIL__NO_VALUE;
    for (uint32_t i = 0; fits && i < g->n_outputs; i++)
        g->outputs[i] = aril__rewrite_now(r, g->outputs[i]);
    for (uint32_t i = 0; fits && i < g->n_effects; i++)
        g->effects[i].value = aril__rewrite_now(r, g->effects[i].value);
    number_outputs(g);
    free(r->old);
    free(r->to);
    free(r->kept);
    return fits ? ARIL_OK : aril__latest_status();
}
