/* Copies of graphs, for programs that are made of parts of one. */
#include "aril/create.h"
#include "autograd/node.h"
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

/* A copy of a list; NULL when out of memory. */
static void *copy_list(const void *from, uint32_t n, size_t size, uint32_t *cap)
{
    void *to = aril__malloc(((size_t)n + 1) * size);
    *cap = to ? n + 1 : 0;
    return to && n ? memcpy(to, from, n * size) : to;
}

#define COPY(to, from, list)                                                       \
    (((to)->list = copy_list((from)->list, (from)->n_##list, sizeof *(from)->list, \
                             &(to)->cap_##list)) != NULL)

/* Lists whose elements own nothing. */
static bool copy_plain(aril__graph *to, const aril__graph *g)
{
    bool fits = COPY(to, g, nodes) && COPY(to, g, values) && COPY(to, g, ids) &&
                COPY(to, g, words) && COPY(to, g, text) && COPY(to, g, frames) &&
                COPY(to, g, outputs) && COPY(to, g, keys) && COPY(to, g, draws) &&
                COPY(to, g, effects) && COPY(to, g, requirements);
    if (!fits) return false;
    to->n_nodes = g->n_nodes;
    to->n_values = g->n_values;
    to->n_ids = g->n_ids;
    to->n_words = g->n_words;
    to->n_text = g->n_text;
    to->n_frames = g->n_frames;
    to->n_outputs = g->n_outputs;
    to->n_keys = g->n_keys;
    to->n_draws = g->n_draws;
    to->n_effects = g->n_effects;
    to->n_requirements = g->n_requirements;
    return true;
}

static bool copy_name(char **to, const char *from)
{
    *to = from ? aril__strdup(from) : NULL;
    return !from || *to;
}

/* Lists with references and names. */
static bool copy_owned(aril__graph *to, const aril__graph *g)
{
    bool fits = COPY(to, g, constants) && COPY(to, g, grads) && COPY(to, g, inputs) &&
                COPY(to, g, states) && COPY(to, g, recipes) && copy_name(&to->name, g->name);
    for (; fits && to->n_constants < g->n_constants; to->n_constants++)
        aril__tensor_keep(to->constants[to->n_constants]);
    for (; fits && to->n_grads < g->n_grads; to->n_grads++)
        aril__node_keep(to->grads[to->n_grads].leaf);
    for (; fits && to->n_inputs < g->n_inputs; to->n_inputs++)
        fits = copy_name(&to->inputs[to->n_inputs].name, g->inputs[to->n_inputs].name);
    for (; fits && to->n_states < g->n_states; to->n_states++) {
        aril__state *s = &to->states[to->n_states];
        fits = copy_name(&s->name, s->name);
        if (s->tensor) aril__tensor_keep(s->tensor);
    }
    while (fits && to->n_recipes < g->n_recipes) {
        aril__recipe *r = aril__recipe_share(g->recipes[to->n_recipes]);
        if (r) to->recipes[to->n_recipes++] = r;
        fits = r != NULL;
    }
    return fits;
}

static bool copy_sizes(aril__sizes *to, const aril__sizes *from)
{
    to->entries = aril__malloc((from->n + 1) * sizeof *to->entries);
    to->words = aril__malloc((from->n_words + 1) * sizeof *to->words);
    if (!to->entries || !to->words) return false;
    to->cap = from->n + 1;
    to->cap_words = from->n_words + 1;
    to->n = from->n;
    to->n_words = from->n_words;
    to->id = from->id;
    if (from->n) memcpy(to->entries, from->entries, from->n * sizeof *to->entries);
    if (from->n_words) memcpy(to->words, from->words, from->n_words * sizeof *to->words);
    return true;
}

/* `sizes` of a body are those of the graph around it. */
static aril__graph *copy_graph(const aril__graph *g, aril__sizes *sizes)
{
    aril__graph *to = aril__calloc(sizeof *to);
    if (!to) return NULL;
    to->sizes = sizes ? sizes : &to->own_sizes;
    bool fits = (sizes || copy_sizes(&to->own_sizes, g->sizes)) && copy_plain(to, g) &&
                copy_owned(to, g) && COPY(to, g, bodies);
    while (fits && to->n_bodies < g->n_bodies) {
        aril__graph *body = copy_graph(g->bodies[to->n_bodies], to->sizes);
        if (body) to->bodies[to->n_bodies++] = body;
        fits = body != NULL;
    }
    if (fits) return to;
    aril__graph_free(to);
    return NULL;
}

aril__graph *aril__graph_copy(const aril__graph *g)
{
    aril__graph *to = copy_graph(g, NULL);
    if (!to) aril__fail(ARIL_ERR_MEMORY, "graph: out of memory for a copy");
    return to;
}

aril_status aril__graph_freeze(aril__graph *g, const char *name)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    if (g->n_effects)
        return aril__fail(ARIL_ERR_STATE,
                          "%s: the function changes tensors besides its results, so that it cannot "
                          "be frozen",
                          name);
    for (uint32_t i = 0; i < g->n_states; i++) {
        aril_tensor *t = g->states[i].tensor, *copy = aril_copy(t);
        aril_status s = aril_tensor_status(copy);
        if (s < 0) return s;
        copy->flags |= t->flags & (ARIL__WEAK | ARIL__NUMBER);
        g->states[i].tensor = aril__tensor_keep(copy);
        aril__tensor_release(aril__self(), t);
    }
    return ARIL_OK;
}
