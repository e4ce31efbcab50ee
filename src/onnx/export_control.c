/* Branches and loops: their bodies are graphs of the model, which see the values around them. */
#include "graph/control.h"
#include "onnx/export.h"

#include <string.h>

static export_body *new_body(export_model *m, const char *name)
{
    export_body *b = aril__onnx_alloc(&m->arena, 1, sizeof *b);
    if (!b) {
        m->status = ARIL_ERR_MEMORY;
        return NULL;
    }
    b->last = &b->first;
    b->name = name;
    return b;
}

/* A graph of a body, whose values are those given: `arg` for its inputs. */
static export_graph body_graph(export_call *c, const aril__graph *of, export_body *to,
                               export_value *const *arg)
{
    export_graph g = { .model = c->model, .to = to, .g = of, .scope = c->graph->scope };
    g.value = aril__onnx_alloc(&c->model->arena, of->n_values, sizeof *g.value);
    if (!g.value) c->model->status = ARIL_ERR_MEMORY;
    for (uint32_t i = 0; g.value && i < of->n_inputs; i++) g.value[of->inputs[i].value] = arg[i];
    return g;
}

static void describe(const aril__graph *g, aril__value_id v, export_port *p)
{
    const int64_t *dim = aril__graph_dims(g, v);
    p->dtype = (aril_dtype)g->values[v].dtype;
    p->ndim = g->values[v].ndim;
    for (int d = 0; d < p->ndim; d++) p->dim[d] = dim[d] < 0 ? -1 : dim[d];
}

static export_value *add_input(export_call *c, export_body *b, const aril__graph *g,
                               aril__value_id v)
{
    export_port *p = aril__export_port(c->model, b, false);
    if (!p) return NULL;
    describe(g, v, p);
    p->value = aril__export_value(c->model, NULL);
    if (p->value) p->value->number = aril__onnx_dtype_number(p->dtype);
    return p->value;
}

/* A result of a body is a value of its own. */
static void add_output(export_call *c, export_graph *g, export_value *x, aril__value_id v)
{
    export_port *p = aril__export_port(c->model, g->to, true);
    if (!p) return;
    describe(g->g, v, p);
    aril__export_node(g, "Identity", VALUES(x), NO_ATTRS, 1, &p->value);
}

static aril_status write_body(export_call *c, const aril__graph *of, export_body *to,
                              export_value *const *arg)
{
    export_graph g = body_graph(c, of, to, arg);
    aril_status s = c->model->status ? c->model->status : aril__export_walk(&g);
    for (uint32_t i = 0; i < of->n_outputs && s == ARIL_OK; i++)
        add_output(c, &g, g.value[of->outputs[i]], of->outputs[i]);
    return s == ARIL_OK ? c->model->status : s;
}

/* All inputs of the node from `first` on. */
static export_value **inputs_from(export_call *c, int first)
{
    export_value **in = aril__onnx_alloc(&c->model->arena, (size_t)c->n_in, sizeof *in);
    if (!in) c->model->status = ARIL_ERR_MEMORY;
    for (int i = first; in && i < c->n_in; i++) in[i - first] = aril__export_in(c, i);
    return in;
}

static export_value *scalar_bool(export_call *c, export_graph *g, export_value *x,
                                 const aril__value *v)
{
    export_call inner = *c;
    inner.graph = g;
    x = aril__export_cast(&inner, x, (aril_dtype)v->dtype, ARIL_BOOL);
    return v->ndim ? aril__export_reshape(&inner, x, 0, NULL) : x;
}

static aril_status write_cond(export_call *c)
{
    static const char *const name[] = { "then_branch", "else_branch" };
    export_value **arg = inputs_from(c, 1);
    export_body *b[2];
    aril_status s = c->model->status;
    for (int k = 0; k < 2 && s == ARIL_OK; k++) {
        b[k] = new_body(c->model, name[k]);
        if (!b[k]) return c->model->status;
        s = write_body(c, c->graph->g->bodies[c->node->body + (uint32_t)k], b[k], arg);
    }
    if (s < 0) return s;
    export_value *yes = scalar_bool(c, c->graph, aril__export_in(c, 0), value_in(c, 0));
    aril__export_node(c->graph, "If", VALUES(yes),
                      ATTRIBUTES(attr_body(name[0], b[0]), attr_body(name[1], b[1])), c->n_out,
                      c->out);
    return c->model->status;
}

/* The condition of a loop for these values, written into a body. */
static export_value *condition(export_call *c, export_body *to, export_value *const *arg)
{
    const aril__graph *of = c->graph->g->bodies[c->node->body];
    export_graph g = body_graph(c, of, to, arg);
    if (c->model->status != ARIL_OK || aril__export_walk(&g) < 0) return NULL;
    return scalar_bool(c, &g, g.value[of->outputs[0]], &of->values[of->outputs[0]]);
}

static aril_status write_while(export_call *c, const struct control_attrs *a)
{
    const aril__graph *trip = c->graph->g->bodies[c->node->body + 1];
    int n = (int)a->n_state[0];
    export_value **in = inputs_from(c, 0), **arg = inputs_from(c, 0);
    export_body *b = new_body(c->model, "body");
    if (!in || !arg || !b) return c->model->status;
    export_value *first = condition(c, c->graph->to, in);
    for (int k = 0; k < 2; k++) { /* the number of the trip, and the condition */
        export_port *p = aril__export_port(c->model, b, false);
        if (!p) return c->model->status;
        *p = (export_port){ .dtype = k ? ARIL_BOOL : ARIL_I64,
                            .value = aril__export_value(c->model, NULL) };
        if (p->value) p->value->number = aril__onnx_dtype_number(p->dtype);
    }
    for (int i = 0; i < n; i++) arg[i] = add_input(c, b, trip, trip->inputs[i].value);
    export_graph g = body_graph(c, trip, b, arg);
    aril_status s = c->model->status ? c->model->status : aril__export_walk(&g);
    for (int i = 0; i < n && s == ARIL_OK; i++) arg[i] = g.value[trip->outputs[i]];
    export_value *go = s == ARIL_OK ? condition(c, b, arg) : NULL;
    export_port *p = aril__export_port(c->model, b, true);
    if (!go || !p) return c->model->status;
    p->dtype = ARIL_BOOL;
    aril__export_node(&g, "Identity", VALUES(go), NO_ATTRS, 1, &p->value);
    for (int i = 0; i < n; i++) add_output(c, &g, arg[i], trip->outputs[i]);
    for (int i = n; i < c->n_out; i++) /* of all trips */
        add_output(c, &g, g.value[trip->outputs[i]], trip->outputs[i]);
    const int64_t reached = (int64_t)1 << 53; /* by no run */
    bool limited = a->max_trips[0] > 0 && a->max_trips[0] < reached;
    export_value *most = limited ? aril__export_number(c, (double)a->max_trips[0], ARIL_I64) : NULL;
    export_value *all[2 + ARIL__MAX_OUT] = { most, first };
    for (int i = 0; i < n; i++) all[2 + i] = in[i];
    aril__export_node(c->graph, "Loop", (export_values){ 2 + n, all },
                      ATTRIBUTES(attr_body("body", b)), c->n_out, c->out);
    return c->model->status;
}

static aril_status write_scan(export_call *c, const struct control_attrs *a)
{
    const aril__graph *trip = c->graph->g->bodies[c->node->body];
    int n_args = (int)a->n_args[0], n_xs = n_args - (int)a->n_state[0], n_ys = (int)a->n_ys[0];
    export_value **in = inputs_from(c, 0), **arg = inputs_from(c, 0);
    export_body *b = new_body(c->model, "body");
    if (!in || !arg || !b) return c->model->status;
    for (int i = 0; i < n_args; i++) arg[i] = add_input(c, b, trip, trip->inputs[i].value);
    aril_status s = write_body(c, trip, b, arg);
    if (s < 0) return s;
    int64_t back[64];
    for (int i = 0; i < 64; i++) back[i] = 1;
    export_attr attr[4] = { attr_body("body", b), attr_int("num_scan_inputs", n_xs),
                            attr_ints("scan_input_directions", n_xs, back),
                            attr_ints("scan_output_directions", n_ys, back) };
    aril__export_node(c->graph, "Scan", (export_values){ n_args, in },
                      (export_attrs){ !a->reverse[0] ? 2
                                      : n_ys         ? 4
                                                     : 3,
                                      attr },
                      c->n_out, c->out);
    return c->model->status;
}

aril_status aril__export_control(export_call *c)
{
    const struct control_attrs *a = c->attrs;
    switch (a->kind[0]) {
    case ARIL__COND: return write_cond(c);
    case ARIL__WHILE: return write_while(c, a);
    default: return write_scan(c, a);
    }
}
