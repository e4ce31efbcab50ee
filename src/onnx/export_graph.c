/* Walking a graph: each node by its row, by its decomposition, or not at all. */
#include "autograd/node.h"
#include "graph/control.h"
#include "graph/trace.h"
#include "onnx/export.h"
#include "ops/elementwise/elementwise.h"
#include "ops/shape/as_strided.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is needed ---- */

static void need_inputs(const aril__graph *g, const aril__graph_node *n, bool *needed)
{
    const aril__value_id *in = aril__graph_in(g, n);
    for (int i = 0; i < n->n_in; i++) needed[in[i]] = true;
}

static bool is_needed(const aril__graph_node *n, const bool *needed)
{
    for (uint32_t k = 0; k < n->n_out; k++)
        if (needed[n->out + k]) return true;
    return false;
}

/* Marks the values that results and effects depend on. */
static bool *find_needed(const aril__graph *g)
{
    bool *needed = aril__calloc(g->n_values);
    if (!needed) return NULL;
    for (uint32_t i = 0; i < g->n_outputs; i++) needed[g->outputs[i]] = true;
    for (uint32_t i = 0; i < g->n_effects; i++) needed[g->effects[i].value] = true;
    for (aril__node_id id = g->n_nodes - 1; id > 0; id--)
        if (is_needed(&g->nodes[id], needed)) need_inputs(g, &g->nodes[id], needed);
    return needed;
}

/* ---- states ---- */

static bool is_written(const aril__graph *g, uint32_t state)
{
    for (uint32_t i = 0; i < g->n_effects; i++)
        if (g->effects[i].kind == ARIL__WRITE_STATE && g->effects[i].to == state) return true;
    return false;
}

/* A tensor from outside that is only read: a weight if it has a name or is trained, otherwise a
 * constant. */
static export_value *outside(export_graph *g, const aril__state *from, aril_tensor *t)
{
    export_model *m = g->model;
    bool trained = from->tensor->node && from->tensor->node->flags & ARIL__NODE_LEAF;
    if (g->to != &m->main || (!from->name && !trained)) {
        ARIL_SCOPE;
        return aril__export_constant(m, t);
    }
    export_weight *w = aril__onnx_alloc(&m->arena, 1, sizeof *w);
    export_value *v = aril__export_value(m, from->name);
    aril_tensor *host = aril_contiguous(aril_to(aril_detach(t), aril_cpu()));
    aril_status s = aril_tensor_status(host);
    if (!w || !v || s < 0 || !aril__onnx_keep(&m->arena, host)) {
        if (m->status == ARIL_OK) m->status = s < 0 ? s : ARIL_ERR_MEMORY;
        return NULL;
    }
    v->number = aril__onnx_dtype_number((aril_dtype)host->dtype);
    if (!v->name) v->name = aril__export_text(m, "param.%ld", (long)(from - g->g->states));
    *w = (export_weight){ .value = v, .tensor = host };
    *m->last_weight = w;
    m->last_weight = &w->next;
    return v;
}

/* Memory in an order of its own is a state as a whole, of which the program reads a view. */
static bool write_view_of_state(export_graph *g, const aril__graph_node *n)
{
    if (n->op != &aril__op_as_strided) return false;
    const aril__value *x = &g->g->values[aril__graph_in(g->g, n)[0]];
    if (x->kind != ARIL__FROM_STATE) return false;
    const aril__state *state = &g->g->states[x->from];
    if (is_written(g->g, x->from)) return false;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *view = aril__op_with(aril__graph_attrs(g->g, n), n->op, state->tensor);
    g->value[n->out] = outside(g, state, view);
    return true;
}

/* ---- types ---- */

void aril__export_describe(const export_model *m, const aril__graph *g, aril__value_id v,
                           export_port *to)
{
    const int64_t *dim = aril__graph_dims(g, v);
    to->dtype = (aril_dtype)g->values[v].dtype;
    to->ndim = g->values[v].ndim;
    for (int d = 0; d < to->ndim; d++) {
        bool named = dim[d] < 0 && aril__size_is_named(dim[d]) && g->sizes == m->sizes;
        size_t k = named ? aril__size_index(dim[d]) : SIZE_MAX;
        to->dim[d] = dim[d];
        to->dim_name[d] = k < (size_t)m->n_size_names ? m->size_names[k] : NULL;
    }
}

/* Notes the types of a node's results, for readers of the file. */
static void note_types(export_graph *g, const aril__graph_node *n)
{
    for (uint32_t k = 0; k < n->n_out; k++) {
        export_value *x = g->value[n->out + k];
        if (!x || !x->from || x->type) continue;
        export_port *p = aril__onnx_alloc(&g->model->arena, 1, sizeof *p);
        if (!p) {
            g->model->status = ARIL_ERR_MEMORY;
            return;
        }
        p->value = x;
        aril__export_describe(g->model, g->g, n->out + k, p);
        x->number = aril__onnx_dtype_number(p->dtype);
        x->type = p;
    }
}

/* ---- nodes ---- */

static void bind_inputs(export_graph *g, export_call *c)
{
    for (int i = 0; i < c->n_in; i++) {
        aril__value_id v = c->id[i];
        if (v && !g->value[v] && g->g->values[v].kind == ARIL__FROM_STATE) {
            const aril__state *s = &g->g->states[g->g->values[v].from];
            g->value[v] = outside(g, s, s->tensor);
        }
        c->in[i] = v ? g->value[v] : NULL;
    }
}

/* A formula in other ops, computed in the dtype that the op computes in. */
static void by_formula(aril__call *c, aril_tensor **out)
{
    const aril__formula *f = c->op->formula;
    aril__formula_code *code = aril__program_parse(f->text);
    aril_tensor *var[ARIL__VAR_COUNT] = { NULL };
    for (int i = 0; i < f->arity && i < 3; i++) {
        bool choice = f->rule == ARIL__EW_SEL && i == 0;
        bool weak = c->in[i]->flags & ARIL__WEAK;
        var[i] = choice || weak ? c->in[i] : aril_cast(c->in[i], c->type);
    }
    out[0] = code ? aril__program_eval(code, var, c->attrs) : aril__poison();
    if (!code) aril__fail(ARIL_ERR_UNSUPPORTED, "%s: has no form in ONNX", c->op->name);
    aril__program_free(code);
    out[0] = aril_cast(out[0], c->out[0].dtype);
}

/* A formula that is a function of the same name has no other form. */
bool aril__export_has_formula(const aril__op *op)
{
    char own[64];
    if (!op->formula || op->formula->is_grad) return false;
    snprintf(own, sizeof own, "k_%s(", op->name);
    return strncmp(op->formula->text, own, strlen(own)) != 0 && !strpbrk(op->formula->text, "&|^~")
               ? true
               : strstr(op->formula->text, "||") || strstr(op->formula->text, "&&");
}

static aril_status no_form(export_call *c)
{
    const export_rule *newer = NULL;
    for (int t = 0; aril__export_rules(t); t++)
        for (const export_rule *r = aril__export_rules(t); r->op; r++)
            if (strcmp(r->op, c->op->name) == 0 && r->from > c->opset && !newer) newer = r;
    if (newer)
        return aril__export_fail(c->model,
                                 "%s: has no form in operator set %d; from %d on it has one",
                                 c->op->name, c->opset, newer->from);
    return aril__export_fail(c->model, "%s: has no form in ONNX%s", c->op->name,
                             c->op->flags & RANDOM ? ", which draws other random numbers; export "
                                                     "the model in evaluation mode"
                                                   : "");
}

/* Without sizes or inputs that only a run knows, the result is a constant. */
static bool is_constant(const export_call *c)
{
    return c->n_in == 0 && !c->node->sized && !(c->op->flags & RANDOM) && c->op->n_out == 1 &&
           aril__export_known(ndim_out(c, 0), dims_out(c, 0));
}

static aril_status write_constant(export_call *c)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    return set_out(c, 0, aril__export_constant(c->model, aril__apply1(c->op, 0, NULL, c->attrs)));
}

static aril_status write_call(export_call *c)
{
    if (c->node->n_bodies) return aril__export_control(c);
    aril_status s = ARIL__EXPORT_DECLINED;
    for (const export_rule *r = aril__export_rule(c->op, c->opset, NULL);
         r && s == ARIL__EXPORT_DECLINED; r = aril__export_rule(c->op, c->opset, r)) {
        c->rule = r;
        if (r->takes && !r->takes(c)) continue;
        s = r->lower ? aril__export_lowered(c, r->lower) : r->write(c);
        if (s == ARIL_OK && c->model->status != ARIL_OK) s = c->model->status;
    }
    if (s != ARIL__EXPORT_DECLINED) return s;
    if (is_constant(c)) return write_constant(c);
    if (c->op->decompose) return aril__export_lowered(c, c->op->decompose);
    if (aril__export_has_formula(c->op)) return aril__export_lowered(c, by_formula);
    return no_form(c);
}

static aril_status write_node(export_graph *g, aril__node_id id)
{
    const aril__graph_node *n = &g->g->nodes[id];
    export_call c = { .graph = g,
                      .model = g->model,
                      .opset = g->model->opset,
                      .node = n,
                      .op = n->op,
                      .attrs = aril__graph_attrs(g->g, n),
                      .n_in = n->n_in,
                      .n_out = n->n_out,
                      .id = aril__graph_in(g->g, n) };
    c.in = aril__onnx_alloc(&g->model->arena, (size_t)n->n_in + n->n_out, sizeof *c.in);
    if (!c.in) return ARIL_ERR_MEMORY;
    c.out = c.in + n->n_in;
    if (n->op->reserve_in) { /* what a kernel kept for its gradient is not there */
        aril__value_id *own = aril__onnx_alloc(&g->model->arena, n->n_in, sizeof *own);
        if (!own) return ARIL_ERR_MEMORY;
        memcpy(own, c.id, n->n_in * sizeof *own);
        own[n->op->reserve_in - 1] = 0;
        c.id = own;
    }
    g->node = id;
    if (write_view_of_state(g, n)) return g->model->status;
    bind_inputs(g, &c);
    aril_status s = write_call(&c);
    for (uint32_t k = 0; k < n->n_out; k++) g->value[n->out + k] = c.out[k];
    if (s == ARIL_OK) note_types(g, n);
    return s == ARIL_OK ? g->model->status : s;
}

/* Results may be inputs, states or constants themselves. */
static aril_status bind_results(export_graph *g)
{
    export_call c = { .graph = g, .model = g->model, .opset = g->model->opset };
    for (uint32_t i = 0; i < g->g->n_outputs + g->g->n_effects; i++) {
        bool result = i < g->g->n_outputs;
        aril__value_id v = result ? g->g->outputs[i] : g->g->effects[i - g->g->n_outputs].value;
        if (!v || g->value[v]) continue;
        const aril__value *x = &g->g->values[v];
        export_value *in = NULL;
        c.id = &v;
        c.in = &in;
        c.n_in = 1;
        c.op = &aril__op_as_strided; /* any name, for errors */
        bind_inputs(g, &c);
        if (!in && x->kind == ARIL__FROM_CONSTANT) in = aril__export_in(&c, 0);
        if (!in && g->model->status == ARIL_OK)
            return aril__export_fail(g->model, "result %u is not computed by the model", i);
        g->value[v] = in;
    }
    return g->model->status;
}

aril_status aril__export_walk(export_graph *g)
{
    const export_graph *outer = g->model->walked;
    bool *needed = find_needed(g->g);
    if (!needed) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", g->model->what);
    g->model->walked = g;
    aril_status s = g->model->status;
    for (aril__node_id id = 1; id < g->g->n_nodes && s == ARIL_OK; id++)
        if (is_needed(&g->g->nodes[id], needed)) s = write_node(g, id);
    free(needed);
    g->node = 0;
    if (s == ARIL_OK) s = bind_results(g);
    if (s < 0 && g->model->status == ARIL_OK) g->model->status = s;
    g->model->walked = outer;
    return s;
}

/* ---- decompositions ---- */

enum { MAX_DEPTH = 24, MAX_UNKNOWN = 64 };

/* The sizes of a value, in which unknown ones have small numbers, as inputs of a trace take
 * them. */
static void own_sizes(const int64_t *dim, int n, int64_t *seen, int *n_seen, int64_t *to)
{
    for (int d = 0; d < n; d++) {
        int k = 0;
        if (dim[d] >= 0) {
            to[d] = dim[d];
            continue;
        }
        while (k < *n_seen && seen[k] != dim[d]) k++;
        if (k == *n_seen && k < MAX_UNKNOWN) seen[(*n_seen)++] = dim[d];
        to[d] = k < MAX_UNKNOWN ? -2 - k : -1;
    }
}

/* A symbolic tensor for an input of the node; a number is itself. */
static aril_tensor *symbol_of(export_call *c, aril__tracing *t, int i, int64_t *seen, int *n_seen)
{
    const aril__value *v = value_in(c, i);
    aril_tensor *number = aril__export_constant_in(c, i);
    if (number) return number;
    int64_t dim[ARIL_MAX_DIMS];
    own_sizes(dims_in(c, i), v->ndim, seen, n_seen, dim);
    aril__thread *th = aril__self();
    int64_t one[ARIL_MAX_DIMS] = { 0 };
    aril_tensor *like =
        aril__give(th, aril__tensor_new(th, (aril_dtype)v->dtype, v->ndim, one, aril__cpu_device));
    if (aril_tensor_status(like) < 0) return like;
    memcpy(like->dim, dim, sizeof dim);
    like->flags |= v->tensor_flags & ARIL__WEAK;
    aril_tensor *x = aril__give(th, aril__tracing_input(t, like, dim, NULL));
    memset(like->dim, 0, sizeof like->dim);
    return x;
}

static aril_status call_lower(export_call *c, aril__tracing *t, export_lower *lower,
                              aril_tensor **in, aril_tensor **out)
{
    int64_t seen[MAX_UNKNOWN];
    int n_seen = 0;
    for (int i = 0; i < c->n_in; i++) {
        if (!has(c, i)) continue;
        in[i] = symbol_of(c, t, i, seen, &n_seen);
        aril_status s = aril_tensor_status(in[i]);
        if (s < 0) return s;
    }
    if (c->node->sized)
        return aril__export_fail(c->model, "%s: depends on a size that only the run knows",
                                 c->op->name);
    aril__call call = {
        .op = c->op, .attrs = c->attrs, .n_in = c->n_in, .in = in, .device = aril__cpu_device
    };
    call.type = c->n_in && in[0] ? (aril_dtype)in[0]->dtype : ARIL_F32;
    aril_status s = c->op->infer(&call);
    if (s < 0) return s;
    lower(&call, out);
    /* A derivative that is constant is a number: it has the shape that the rule inferred. */
    if (c->op->n_out == 1 && out[0] && aril_tensor_status(out[0]) == ARIL_OK && out[0]->ndim == 0 &&
        call.out[0].ndim > 0) {
        aril_shape shape = { .ndim = call.out[0].ndim };
        memcpy(shape.dim, call.out[0].dim, sizeof shape.dim);
        out[0] = aril_add(aril_zeros(shape, call.out[0].dtype, aril_cpu()), out[0]);
    }
    for (int k = 0; k < c->op->n_out && k < c->n_out; k++) /* a number may be of no dtype */
        if (out[k] && aril_tensor_status(out[k]) == ARIL_OK && out[k]->dtype != call.out[k].dtype)
            out[k] = aril_cast(out[k], call.out[k].dtype);
    for (int k = 0; k < c->n_out; k++) {
        if (out[k] && aril_tensor_status(out[k]) < 0) return aril_tensor_status(out[k]);
        if (!out[k] && aril__export_wanted(c, k))
            return aril__export_fail(c->model, "%s: result %d has no form in ONNX", c->op->name, k);
    }
    return ARIL_OK;
}

/* Writes the traced decomposition with the values of the node's inputs. `at[k]` is the position of
 * result k among those of the trace. */
static aril_status write_lowered(export_call *c, const aril__graph *of, const int *at)
{
    export_graph g = { .model = c->model, .to = c->graph->to, .g = of };
    const aril__graph_node *n = c->node;
    g.value = aril__onnx_alloc(&c->model->arena, of->n_values, sizeof *g.value);
    if (!g.value) return ARIL_ERR_MEMORY;
    g.scope = n->scope ? aril__export_text(c->model, "%s", c->graph->g->text + n->scope)
                       : c->graph->scope;
    uint32_t k = 0;
    for (int i = 0; i < c->n_in; i++)
        if (has(c, i) && !aril__export_constant_in(c, i))
            g.value[of->inputs[k++].value] = aril__export_in(c, i);
    aril_status s = aril__export_walk(&g);
    for (int i = 0; i < c->n_out && s == ARIL_OK; i++)
        if (at[i] >= 0) s = set_out(c, i, g.value[of->outputs[at[i]]]);
    return s;
}

aril_status aril__export_lowered(export_call *c, export_lower *lower)
{
    export_model *m = c->model;
    aril_tensor **list = aril__onnx_alloc(&m->arena, (size_t)c->n_in + (size_t)c->n_out + 8, 8);
    int *at = aril__onnx_alloc(&m->arena, (size_t)c->n_out, sizeof *at);
    if (!list || !at) return ARIL_ERR_MEMORY;
    if (m->depth == MAX_DEPTH)
        return aril__export_fail(m, "%s: its decomposition does not end", c->op->name);
    aril__tracing *t = aril__tracing_new(c->op->name, false);
    if (!t) return ARIL_ERR_MEMORY;
    aril_tensor **out = list + c->n_in;
    ARIL_NO_GRAD;
    aril__traced_call traced = aril__tracing_begin(t);
    aril_status s = call_lower(c, t, lower, list, out);
    int n = 0;
    for (int k = 0; k < c->n_out; k++) {
        at[k] = s == ARIL_OK && out[k] ? n : -1;
        if (at[k] >= 0) out[n++] = out[k];
    }
    s = aril__tracing_end(t, &traced, s, s == ARIL_OK ? n : 0, out);
    aril__watches watches = { 0 };
    aril__graph *g = s == ARIL_OK ? aril__tracing_take(t, &watches) : NULL;
    aril__tracing_free(t);
    m->depth++;
    if (g) s = write_lowered(c, g, at);
    m->depth--;
    aril__graph_free(g);
    aril__watches_free(&watches);
    return s;
}
