#include "graph/fuse.h"

#include "graph/fuse_maker.h"
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

/* Whether a reduction on a GPU goes over all axes but the last, or over all, of rows that a kernel
 * holds. */
static bool is_over_rows(const aril__graph *g, const aril__graph_node *n)
{
    aril__value_id x = aril__graph_in(g, n)[0];
    int ndim = g->values[x].ndim;
    int64_t row = ndim ? aril__graph_dims(g, x)[ndim - 1] : -1;
    if (ndim < 2 || !aril__is_row_length(row) || !aril__has_many_rows(g, x)) return false;
    if (n->op == &aril__op_sum_to_like) {
        int to = g->values[n->out].ndim;
        const int64_t *dims = aril__graph_dims(g, n->out);
        bool rows = to >= 1 && dims[to - 1] == row;
        for (int d = 0; d < to - 1; d++) rows = rows && dims[d] == 1;
        return rows || count_of(g, n->out) == 1;
    }
    const struct reduce_attrs *a = aril__graph_attrs(g, n);
    int64_t leading = ((int64_t)1 << (ndim - 1)) - 1;
    return (a->mask[0] & leading) == leading;
}

/* Reductions of many elements to few at the end of a loop. By the CPU, each thread has its own
 * partial results: what fits into a cache gains nothing, nor does an operand that is written
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
    if (n->sized || !aril__is_float((aril_dtype)from->dtype) || !computes(g, x) ||
        from->dtype != to->dtype || to->tensor_flags)
        return false;
    if (to->device != aril__cpu_device) return is_over_rows(g, n);
    return before >= (only ? LARGE : VERY_LARGE) && after >= 0 && after <= (only ? MANY : FEW);
}

/* ---- the recipe ---- */

/* The result that a value is; NULL: none. */
static aril__made *made_of(aril__maker *m, aril__value_id v)
{
    for (int i = 0; i < m->n_made; i++)
        if (m->made[i].value == v) return &m->made[i];
    return NULL;
}

static const aril_tensor *number_of(const aril__graph *g, aril__value_id v)
{
    if (g->values[v].kind != ARIL__FROM_CONSTANT) return NULL;
    const aril_tensor *t = g->constants[g->values[v].from];
    bool plain =
        t->flags & ARIL__CONSTANT && t->ndim == 0 && t->storage && aril__dtypes[t->dtype].computes;
    return plain ? t : NULL;
}

uint8_t aril__make_constant(aril__maker *m, const aril_fused_constant *c)
{
    aril__recipe *r = &m->to->recipe;
    int k = 0;
    while (k < r->n_constants && memcmp(&r->constant[k], c, sizeof *c) != 0) k++;
    if (k == ARIL_FUSED_CONSTANTS) m->failed = true;
    if (m->failed) return ARIL_FUSED_NONE;
    if (k == r->n_constants) memcpy(&r->constant[r->n_constants++], c, sizeof *c);
    return (uint8_t)ARIL_FUSED_CONSTANT(k);
}

static uint8_t make_number(aril__maker *m, const aril_tensor *t)
{
    aril_fused_constant c;
    memset(&c, 0, sizeof c);
    c.dtype = t->dtype;
    c.weak = t->flags & ARIL__WEAK;
    if (aril__is_float((aril_dtype)t->dtype))
        aril__dtypes[t->dtype].load[ARIL__C_F64](&c.f64, aril__base(t), t->offset, 1, 1);
    else
        aril__dtypes[t->dtype].load[ARIL__C_I64](&c.i64, aril__base(t), t->offset, 1, 1);
    return aril__make_constant(m, &c);
}

static uint8_t make_input(aril__maker *m, aril__value_id v)
{
    aril__recipe *r = &m->to->recipe;
    int i = 0;
    while (i < r->n_in && m->to->in[i] != v) i++;
    if (i == ARIL_FUSED_INPUTS) m->failed = true;
    if (m->failed) return ARIL_FUSED_NONE;
    if (i == r->n_in) m->to->in[r->n_in++] = v;
    return (uint8_t)ARIL_FUSED_INPUT(i);
}

uint8_t aril__make_operand(aril__maker *m, aril__value_id v)
{
    if (!v) return ARIL_FUSED_NONE;
    aril__made *made = made_of(m, v);
    if (made) {
        made->inside++;
        if (made->reduce || made->dropped) m->failed = true; /* it is there after the loop */
        return made->step;
    }
    const aril_tensor *number = number_of(m->g, v);
    return number ? make_number(m, number) : make_input(m, v);
}

aril__recipe_step *aril__make_step(aril__maker *m, const aril__op *op, int n_in, const uint8_t *in,
                                   uint8_t *result)
{
    static aril__recipe_step none; /* written to, never read */
    aril__recipe *r = &m->to->recipe;
    *result = ARIL_FUSED_NONE;
    if (m->failed || r->n_steps == ARIL_FUSED_STEPS) {
        m->failed = true;
        return &none;
    }
    aril__recipe_step *s = &r->step[r->n_steps];
    s->op = op;
    s->n_in = (uint8_t)n_in;
    memcpy(s->in, in, (size_t)n_in);
    *result = r->n_steps++;
    return s;
}

aril__made *aril__make_result(aril__maker *m, aril__value_id v, uint8_t step)
{
    aril__made *made = &m->made[m->n_made++];
    *made = (aril__made){ .value = v, .step = step };
    return made;
}

static void add_step(aril__maker *m, const aril__graph_node *n)
{
    uint8_t in[ARIL_FUSED_OPERANDS], step;
    for (int i = 0; i < n->n_in; i++) in[i] = aril__make_operand(m, aril__graph_in(m->g, n)[i]);
    aril__recipe_step *s = aril__make_step(m, n->op, n->n_in, in, &step);
    if (m->failed) return;
    const void *attrs = aril__graph_attrs(m->g, n);
    if (is_cast(n->op))
        s->dtype = m->g->values[n->out].dtype;
    else if (attrs)
        memcpy(s->p, ((const struct ew_attrs *)attrs)->p, sizeof s->p);
    aril__make_result(m, n->out, step);
}

/* ---- outputs ---- */

/* The axes over which a reduction goes, from the shapes of its operand and its result. */
static void set_axes(const aril__maker *m, const aril__graph_node *n, aril__made *o)
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

/* A reduction at the end is no step: its operand is, and has a use more. */
static void add_tail(aril__maker *m, const aril__graph_node *n)
{
    aril__made *of = made_of(m, aril__graph_in(m->g, n)[0]);
    bool inside = n->n_in > 1 && made_of(m, aril__graph_in(m->g, n)[1]);
    if (!of || of->reduce || of->by_row || inside) {
        m->failed = true;
        return;
    }
    of->inside++;
    aril__made *o = aril__make_result(m, n->out, of->step);
    set_axes(m, n, o);
    if (!o->axes) m->failed = true;
}

static void add_output(aril__maker *m, const aril__made *made)
{
    aril__recipe *r = &m->to->recipe;
    if (r->n_out == ARIL_FUSED_OUTPUTS) m->failed = true;
    if (m->failed) return;
    m->to->out[r->n_out] = made->value;
    r->out[r->n_out++] =
        (aril_fused_output){ .step = made->step,
                             .reduce = made->by_row ? (uint8_t)ARIL_FUSED_EACH_ROW : made->reduce,
                             .axes = made->axes,
                             .dropped = made->dropped };
}

/* A value that is there after fusion and has the shape and dtype of v; 0: none. */
static aril__value_id like_of(const aril__maker *m, aril__value_id v)
{
    const aril__fusion *f = m->to;
    for (int k = 0; k < f->recipe.n_out; k++)
        if (aril__graph_alike(m->g, f->out[k], v)) return f->out[k];
    for (int i = 0; i < f->recipe.n_in; i++)
        if (aril__graph_alike(m->g, f->in[i], v)) return f->in[i];
    return 0;
}

/* How a value is used outside. */
enum use { UNUSED, BY_SHAPE, BY_VALUE };

static enum use use_of(const aril__maker *m, const aril__made *made)
{
    uint32_t n = m->uses->all[made->value] - made->inside;
    return n == 0 ? UNUSED : n == m->uses->shape[made->value] ? BY_SHAPE : BY_VALUE;
}

static bool is_each(const aril__made *made)
{
    return !made->reduce && !made->by_row;
}

/* Values that are used outside come first, since result 0 may be in the memory of an input; then
 * those by rows and reductions; last, values of which only the shape is used: another value can
 * give it. */
static void add_outputs(aril__maker *m)
{
    aril__fusion *f = m->to;
    for (int i = 0; i < m->n_made; i++)
        if (is_each(&m->made[i]) && use_of(m, &m->made[i]) == BY_VALUE) add_output(m, &m->made[i]);
    for (int i = 0; i < m->n_made; i++)
        if (!is_each(&m->made[i]) && use_of(m, &m->made[i]) != UNUSED) add_output(m, &m->made[i]);
    for (int i = 0; i < m->n_made; i++) {
        const aril__made *made = &m->made[i];
        if (!is_each(made) || use_of(m, made) != BY_SHAPE) continue;
        aril__value_id like = like_of(m, made->value);
        if (like) {
            f->shape[f->n_shapes] = made->value;
            f->like[f->n_shapes++] = like;
        } else {
            add_output(m, made);
        }
    }
}

bool aril__fusion_of(const aril__graph *g, const aril__uses *uses, aril__value_id loop, int n,
                     const aril__node_id *members, aril__fusion *to)
{
    aril__maker m = { .g = g, .uses = uses, .to = to, .loop = loop };
    if (n > ARIL__FUSED_MEMBERS) return false;
    memset(to, 0, sizeof *to);
    for (int i = 0; i < n && !m.failed; i++) {
        const aril__graph_node *node = &g->nodes[members[i]];
        if (aril__is_fusible(g, node))
            add_step(&m, node);
        else if (aril__is_row_op(g, node))
            aril__make_rows(&m, node);
        else
            add_tail(&m, node);
        if (!m.failed) aril__note_by_row(&m, node);
    }
    if (!m.failed) add_outputs(&m);
    return !m.failed && to->recipe.n_out > 0 && to->recipe.n_in > 0;
}
