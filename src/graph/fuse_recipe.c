#include "graph/fuse.h"

#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/like.h"

#include <stdlib.h>
#include <string.h>

/* ---- uses ---- */

bool aril__uses_count(const aril__graph *g, aril__uses *u)
{
    u->all = aril__calloc(g->n_values * sizeof *u->all);
    u->shape = aril__calloc(g->n_values * sizeof *u->shape);
    if (!u->all || !u->shape) {
        aril__uses_free(u);
        return false;
    }
    for (aril__node_id id = 1; id < g->n_nodes; id++) {
        const aril__graph_node *n = &g->nodes[id];
        for (int i = 0; i < n->n_in; i++) {
            aril__value_id v = aril__graph_in(g, n)[i];
            u->all[v]++;
            u->shape[v] += i < 31 && n->op->shape_only >> i & 1;
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) u->all[g->outputs[i]]++;
    for (uint32_t i = 0; i < g->n_effects; i++) u->all[g->effects[i].value]++;
    return true;
}

void aril__uses_free(aril__uses *u)
{
    free(u->all);
    free(u->shape);
    *u = (aril__uses){ NULL, NULL };
}

/* ---- which nodes ---- */

static bool is_cast(const aril__op *op)
{
    return op == &aril__op_cast;
}

static bool computes(const aril__graph *g, aril__value_id v)
{
    return aril__dtypes[g->values[v].dtype].computes;
}

/* Integer ops that may fail stay alone, so that an error leaves nothing half done. */
static bool may_fail(const aril__graph *g, const aril__graph_node *n)
{
    return aril__formula_may_fail(n->op) && !aril__is_float((aril_dtype)g->values[n->out].dtype);
}

bool aril__is_fusible(const aril__graph *g, const aril__graph_node *n)
{
    if (!n->op->formula && !is_cast(n->op)) return false;
    if (g->values[n->out].tensor_flags || !computes(g, n->out) || n->sized) return false;
    for (int i = 0; i < n->n_in; i++) {
        aril__value_id v = aril__graph_in(g, n)[i];
        if (v && (!computes(g, v) || g->values[v].kind == ARIL__FROM_KEY)) return false;
    }
    return is_cast(n->op) || !may_fail(g, n);
}

/* Elements of a value; -1: unknown. */
static int64_t count_of(const aril__graph *g, aril__value_id v)
{
    int64_t n = 1;
    for (int d = 0; d < g->values[v].ndim; d++) {
        int64_t size = aril__graph_dims(g, v)[d];
        if (size < 0 || __builtin_mul_overflow(n, size, &n)) return -1;
    }
    return n;
}

/* Reductions of many elements to few, by the CPU, whose kernel knows them: each thread has its own
 * partial results. What fits into a cache gains nothing, nor does an operand that is written
 * anyhow, unless it is very large. */
bool aril__is_fusible_tail(const aril__graph *g, const aril__uses *uses, const aril__graph_node *n)
{
    enum { LARGE = 1 << 21, VERY_LARGE = 1 << 23, MANY = 4096, FEW = 256 };
    if (n->op != &aril__op_sum && n->op != &aril__op_mean && n->op != &aril__op_sum_to_like)
        return false;
    aril__value_id x = aril__graph_in(g, n)[0];
    const aril__value *from = &g->values[x], *to = &g->values[n->out];
    int64_t before = count_of(g, x), after = count_of(g, n->out);
    bool only = uses->all[x] - uses->shape[x] == 1;
    return !n->sized && to->device == aril__cpu_device && aril__is_float((aril_dtype)from->dtype) &&
           computes(g, x) && from->dtype == to->dtype && !to->tensor_flags &&
           before >= (only ? LARGE : VERY_LARGE) && after >= 0 && after <= (only ? MANY : FEW);
}

/* ---- the recipe ---- */

/* While a recipe is made. */
typedef struct maker {
    const aril__graph *g;
    const aril__uses *uses;
    int n;
    const aril__node_id *members;
    aril__fusion *to;
    int n_constants;
    aril__value_id constant[ARIL_FUSED_CONSTANTS];
    uint8_t step[ARIL__FUSED_MEMBERS];    /* of each member */
    uint32_t inside[ARIL__FUSED_MEMBERS]; /* uses of its value by other members */
} maker;

/* The member that produces a value; -1: none. */
static int member_of(const maker *m, aril__value_id v)
{
    if (!v || m->g->values[v].kind != ARIL__FROM_NODE) return -1;
    for (int i = 0; i < m->n; i++)
        if (m->members[i] == m->g->values[v].from) return i;
    return -1;
}

static const aril_tensor *number_of(const aril__graph *g, aril__value_id v)
{
    if (g->values[v].kind != ARIL__FROM_CONSTANT) return NULL;
    const aril_tensor *t = g->constants[g->values[v].from];
    bool plain =
        t->flags & ARIL__CONSTANT && t->ndim == 0 && t->storage && aril__dtypes[t->dtype].computes;
    return plain ? t : NULL;
}

static bool add_constant(maker *m, aril__value_id v, const aril_tensor *t, uint8_t *operand)
{
    aril__recipe *r = &m->to->recipe;
    for (int k = 0; k < m->n_constants; k++)
        if (m->constant[k] == v) {
            *operand = (uint8_t)ARIL_FUSED_CONSTANT(k);
            return true;
        }
    if (m->n_constants == ARIL_FUSED_CONSTANTS) return false;
    aril_fused_constant *c = &r->constant[m->n_constants];
    c->dtype = t->dtype;
    c->weak = t->flags & ARIL__WEAK;
    if (aril__is_float((aril_dtype)t->dtype))
        aril__dtypes[t->dtype].load[ARIL__C_F64](&c->f64, aril__base(t), t->offset, 1, 1);
    else
        aril__dtypes[t->dtype].load[ARIL__C_I64](&c->i64, aril__base(t), t->offset, 1, 1);
    m->constant[m->n_constants] = v;
    *operand = (uint8_t)ARIL_FUSED_CONSTANT(m->n_constants);
    r->n_constants = (uint8_t)++m->n_constants;
    return true;
}

static bool add_input(maker *m, aril__value_id v, uint8_t *operand)
{
    aril__recipe *r = &m->to->recipe;
    int i = 0;
    while (i < r->n_in && m->to->in[i] != v) i++;
    if (i == ARIL_FUSED_INPUTS) return false;
    if (i == r->n_in) m->to->in[r->n_in++] = v;
    *operand = (uint8_t)ARIL_FUSED_INPUT(i);
    return true;
}

static bool add_operand(maker *m, aril__value_id v, uint8_t *operand)
{
    int member = member_of(m, v);
    if (!v) {
        *operand = ARIL_FUSED_NONE;
        return true;
    }
    if (member >= 0) {
        *operand = m->step[member];
        m->inside[member]++;
        return m->step[member] != ARIL_FUSED_NONE; /* not the result of a reduction */
    }
    const aril_tensor *number = number_of(m->g, v);
    return number ? add_constant(m, v, number, operand) : add_input(m, v, operand);
}

static bool add_step(maker *m, int member)
{
    const aril__graph_node *n = &m->g->nodes[m->members[member]];
    aril__recipe *r = &m->to->recipe;
    if (r->n_steps == ARIL_FUSED_STEPS) return false;
    aril__recipe_step *s = &r->step[r->n_steps];
    s->op = n->op;
    s->n_in = (uint8_t)n->n_in;
    for (int i = 0; i < n->n_in; i++)
        if (!add_operand(m, aril__graph_in(m->g, n)[i], &s->in[i])) return false;
    const void *attrs = aril__graph_attrs(m->g, n);
    if (is_cast(n->op))
        s->dtype = m->g->values[n->out].dtype;
    else if (attrs)
        memcpy(s->p, ((const struct ew_attrs *)attrs)->p, sizeof s->p);
    m->step[member] = r->n_steps++;
    return true;
}

/* ---- outputs ---- */

/* The axes over which a reduction goes, from the shapes of its operand and its result. */
static void set_axes(const maker *m, const aril__graph_node *n, aril_fused_output *o)
{
    aril__value_id x = aril__graph_in(m->g, n)[0];
    int ndim = m->g->values[x].ndim;
    if (n->op != &aril__op_sum_to_like) {
        const struct reduce_attrs *a = aril__graph_attrs(m->g, n);
        o->reduce = n->op == &aril__op_mean ? ARIL_FUSED_MEAN : ARIL_FUSED_SUM;
        o->axes = (uint32_t)a->mask[0];
        o->dropped = a->keep[0] ? 0 : o->axes;
        return;
    }
    int lead = ndim - m->g->values[n->out].ndim;
    const int64_t *from = aril__graph_dims(m->g, x), *to = aril__graph_dims(m->g, n->out);
    o->reduce = ARIL_FUSED_SUM;
    for (int d = 0; d < ndim; d++) {
        if (d < lead) o->dropped |= 1u << d;
        if (d < lead || (to[d - lead] == 1 && from[d] != 1)) o->axes |= 1u << d;
    }
}

static bool add_output(maker *m, aril__value_id v, int step)
{
    aril__recipe *r = &m->to->recipe;
    if (r->n_out == ARIL_FUSED_OUTPUTS) return false;
    m->to->out[r->n_out] = v;
    r->out[r->n_out++].step = (uint8_t)step;
    return true;
}

/* A reduction is no step: its operand is, and has a use more. */
static bool note_tail(maker *m, int member)
{
    const aril__graph_node *n = &m->g->nodes[m->members[member]];
    int of = member_of(m, aril__graph_in(m->g, n)[0]);
    m->step[member] = ARIL_FUSED_NONE;
    if (of < 0 || m->step[of] == ARIL_FUSED_NONE) return false;
    m->inside[of]++;
    return n->n_in == 1 || member_of(m, aril__graph_in(m->g, n)[1]) < 0;
}

static bool add_tail(maker *m, int member)
{
    const aril__graph_node *n = &m->g->nodes[m->members[member]];
    int of = member_of(m, aril__graph_in(m->g, n)[0]);
    if (!add_output(m, n->out, m->step[of])) return false;
    aril_fused_output *o = &m->to->recipe.out[m->to->recipe.n_out - 1];
    set_axes(m, n, o);
    return o->axes != 0;
}

/* A value that is there after fusion and has the shape and dtype of v; 0: none. */
static aril__value_id like_of(const maker *m, aril__value_id v)
{
    const aril__fusion *f = m->to;
    for (int k = 0; k < f->recipe.n_out; k++)
        if (aril__graph_alike(m->g, f->out[k], v)) return f->out[k];
    for (int i = 0; i < f->recipe.n_in; i++)
        if (aril__graph_alike(m->g, f->in[i], v)) return f->in[i];
    return 0;
}

/* Uses of the value of a step outside; *shape: all of them need only its shape. */
static uint32_t uses_outside(const maker *m, int member, bool *shape)
{
    aril__value_id v = m->g->nodes[m->members[member]].out;
    uint32_t n = m->uses->all[v] - m->inside[member];
    *shape = n == m->uses->shape[v];
    return m->step[member] == ARIL_FUSED_NONE ? 0 : n;
}

/* Values that are used outside come first, since result 0 may be in the memory of an input; then
 * reductions; last, values of which only the shape is used: another value can give it. */
static bool add_outputs(maker *m)
{
    aril__fusion *f = m->to;
    bool fits = true, shape;
    for (int i = 0; i < m->n && fits; i++)
        if (uses_outside(m, i, &shape) && !shape)
            fits = add_output(m, m->g->nodes[m->members[i]].out, m->step[i]);
    for (int i = 0; i < m->n && fits; i++)
        if (m->step[i] == ARIL_FUSED_NONE) fits = add_tail(m, i);
    for (int i = 0; i < m->n && fits; i++) {
        if (!uses_outside(m, i, &shape) || !shape) continue;
        aril__value_id v = m->g->nodes[m->members[i]].out, like = like_of(m, v);
        if (like) {
            f->shape[f->n_shapes] = v;
            f->like[f->n_shapes++] = like;
        } else {
            fits = add_output(m, v, m->step[i]);
        }
    }
    return fits;
}

bool aril__fusion_of(const aril__graph *g, const aril__uses *uses, int n,
                     const aril__node_id *members, aril__fusion *to)
{
    if (n > ARIL__FUSED_MEMBERS) return false;
    maker m = { .g = g, .uses = uses, .n = n, .members = members, .to = to };
    memset(to, 0, sizeof *to);
    for (int i = 0; i < n; i++) {
        bool step = aril__is_fusible(g, &g->nodes[members[i]]);
        if (!(step ? add_step(&m, i) : note_tail(&m, i))) return false;
    }
    return add_outputs(&m) && to->recipe.n_out > 0 && to->recipe.n_in > 0;
}
