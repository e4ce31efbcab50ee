/* Scalar weights that nobody changes become numbers of the graph: passes see their values (the
 * scale of attention, the bounds of a clamp), and kernels get them as immediates. */
#include "graph/passes.h"

#include "aril/create.h"
#include "ops/elementwise/elementwise.h"

#include <stdlib.h>

/* The state is a scalar that no run writes to. */
static bool is_number(const aril__graph *g, uint32_t state)
{
    const aril__state *s = &g->states[state];
    if (!s->tensor || s->tensor->ndim != 0 || s->tensor->numel != 1 || !s->tensor->storage ||
        !aril__is_float((aril_dtype)s->tensor->dtype) || !aril__dtypes[s->tensor->dtype].computes)
        return false;
    for (uint32_t i = 0; i < g->n_effects; i++)
        if (g->effects[i].kind == ARIL__WRITE_STATE && g->effects[i].to == state) return false;
    return true;
}

/* An elementwise node with another operand, whose shape and device the result has. */
static bool takes_numbers(const aril__graph *g, const aril__graph_node *n)
{
    if (!n->op->formula) return false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        aril__value_id v = g->ids[n->in + i];
        if (v && g->values[v].ndim > 0 && g->values[v].kind != ARIL__FROM_CONSTANT) return true;
    }
    return false;
}

static aril__value_id number_of(aril__graph *g, uint32_t state)
{
    ARIL_SCOPE;
    aril_tensor *t = g->states[state].tensor;
    double x;
    if (aril_read(aril_cast(t, ARIL_F64), &x) < 0) return 0;
    aril_number value = { .is_float = true, .f = x };
    return aril__graph_constant(g, aril__constant(value, (aril_dtype)t->dtype));
}

aril_status aril__graph_fix_numbers(aril__graph *g)
{
    uint32_t n_values = g->n_values; /* those of numbers come after */
    aril__value_id *to = aril__calloc(n_values * sizeof *to);
    if (!to) return aril__fail(ARIL_ERR_MEMORY, "graph: out of memory");
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < g->n_states && s == ARIL_OK; i++) {
        if (!is_number(g, i)) continue;
        aril__value_id v = number_of(g, i);
        to[g->states[i].value] = v;
        if (!v) s = aril__latest_status();
    }
    for (aril__node_id id = 1; id < g->n_nodes && s == ARIL_OK; id++) {
        const aril__graph_node *n = &g->nodes[id];
        if (!takes_numbers(g, n)) continue;
        for (uint32_t i = 0; i < n->n_in; i++) {
            aril__value_id *v = &g->ids[n->in + i];
            if (*v < n_values && to[*v]) *v = to[*v];
        }
    }
    free(to);
    return s;
}
