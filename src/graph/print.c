/* The text form of a graph. */
#include "graph/control.h"
#include "graph/graph.h"

#include "aril/activation.h"
#include "aril/dtype.h"
#include "graph/inspect.h"
#include "graph/prepare.h"
#include "ops/shape/copy.h"
#include "ops/update/rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Values are shown by name, or by number. */
static void print_name(const aril__graph *g, aril__value_id v, FILE *to)
{
    const aril__value *x = &g->values[v];
    const char *name = x->kind == ARIL__FROM_INPUT   ? g->inputs[x->from].name
                       : x->kind == ARIL__FROM_STATE ? g->states[x->from].name
                                                     : NULL;
    if (!v)
        fputs("-", to);
    else if (name)
        fprintf(to, "%%%s", name);
    else
        fprintf(to, "%%%u", v);
}

/* "f32[64,?]". */
static void print_type(const aril__graph *g, aril__value_id v, FILE *to)
{
    const aril__value *x = &g->values[v];
    const int64_t *dim = aril__graph_dims(g, v);
    fprintf(to, "%s[", aril__dtypes[x->dtype].name);
    for (int d = 0; d < x->ndim; d++) {
        if (dim[d] >= 0)
            fprintf(to, "%s%" PRId64, d ? "," : "", dim[d]);
        else
            fprintf(to, "%s%s", d ? "," : "", aril__size_name(g->sizes, dim[d]));
    }
    fputs("]", to);
}

static void print_typed(const aril__graph *g, aril__value_id v, FILE *to)
{
    print_name(g, v, to);
    fputs(": ", to);
    print_type(g, v, to);
}

/* Whether a value is a constant with one element, which is shown as that. */
static bool is_shown_constant(const aril__graph *g, aril__value_id v)
{
    const aril__value *x = &g->values[v];
    const aril_tensor *t = x->kind == ARIL__FROM_CONSTANT ? g->constants[x->from] : NULL;
    return t && t->storage && t->numel == 1 && t->storage->device->host_memory &&
           !(t->flags & ARIL__KEY);
}

static bool print_constant(const aril__graph *g, aril__value_id v, FILE *to)
{
    if (!is_shown_constant(g, v)) return false;
    const aril_tensor *t = g->constants[g->values[v].from];
    double value;
    aril__dtypes[t->dtype].load[ARIL__C_F64](&value, aril__base(t), t->offset, 1, 1);
    fprintf(to, "%.9g", value);
    return true;
}

static void print_operand(const aril__graph *g, aril__value_id v, FILE *to)
{
    const aril__value *x = &g->values[v];
    if (v && print_constant(g, v, to)) return;
    if (v && x->kind == ARIL__FROM_KEY)
        fprintf(to, "key(%" PRIu64 ")", g->keys[x->from].offset);
    else
        print_name(g, v, to);
}

/* ---- attributes ---- */

const char *aril__activation_name(int64_t act)
{
    static const char *const names[] = { [ARIL_RELU] = "relu",
                                         [ARIL_RELU6] = "relu6",
                                         [ARIL_LEAKY_RELU] = "leaky_relu",
                                         [ARIL_SIGMOID] = "sigmoid",
                                         [ARIL_TANH] = "tanh" };
    return act > 0 && act < (int64_t)(sizeof names / sizeof *names) ? names[act] : NULL;
}

static bool is_default(const aril__attr *a, const void *attrs)
{
    for (int k = 0; k < a->count; k++) {
        const char *at = (const char *)attrs + a->offset + (size_t)k * 8;
        double value = a->type == ARIL__I64 ? (double)*(const int64_t *)(const void *)at
                                            : *(const double *)(const void *)at;
        if (value != a->initial) return false;
    }
    return true;
}

static const char *dtype_name(int64_t v)
{
    return aril_dtype_name((aril_dtype)v);
}

static const char *rule_name(int64_t v)
{
    return v >= 0 && v < ARIL__RULES ? aril__rules[v].name : NULL;
}

/* Attributes whose numbers stand for names; NULL: the number has none. */
static const struct {
    const char *attr;
    const char *(*name)(int64_t v);
} named_values[] = {
    { "dtype", dtype_name },
    { "activation", aril__activation_name },
    { "rule", rule_name },
};

static const char *name_of_value(const aril__attr *a, int64_t v)
{
    for (size_t i = 0; i < sizeof named_values / sizeof *named_values; i++)
        if (a->count == 1 && strcmp(named_values[i].attr, a->name) == 0)
            return named_values[i].name(v);
    return NULL;
}

static void print_number(const aril__graph *g, const aril__attr *a, const void *attrs, int k,
                         FILE *to)
{
    const char *at = (const char *)attrs + a->offset + (size_t)k * 8;
    if (a->type == ARIL__F64) {
        fprintf(to, "%.9g", *(const double *)(const void *)at);
        return;
    }
    int64_t value = *(const int64_t *)(const void *)at;
    const char *name = name_of_value(a, value);
    if (name)
        fputs(name, to);
    else if (aril__size_is_named(value))
        fputs(aril__size_name(g->sizes, value), to);
    else if (value == INT64_MAX)
        fputs("end", to);
    else
        fprintf(to, "%" PRId64, value);
}

/* Whether element k of an attribute is about a dimension that a result does not have: what a
 * permutation says of those is that they stay. */
static bool is_beyond(const aril__graph *g, const aril__graph_node *n, const aril__attr *a, int k)
{
    const char *at = (const char *)aril__graph_attrs(g, n) + a->offset + (size_t)k * 8;
    return a->type == ARIL__I64 && a->count == ARIL_MAX_DIMS && k >= g->values[n->out].ndim &&
           *(const int64_t *)(const void *)at == k;
}

/* A set of axes, of which an attribute has the bits. */
static bool print_mask(const aril__attr *a, const void *attrs, bool first, FILE *to)
{
    if (a->count != 1 || a->type != ARIL__I64 || strcmp(a->name, "mask") != 0) return false;
    int64_t mask;
    bool next = false;
    memcpy(&mask, (const char *)attrs + a->offset, sizeof mask);
    fprintf(to, "%saxes=[", first ? "" : ", ");
    for (int d = 0; d < ARIL_MAX_DIMS; d++) {
        if (!(mask >> d & 1)) continue;
        fprintf(to, "%s%d", next ? "," : "", d);
        next = true;
    }
    fputs("]", to);
    return true;
}

/* ", stride=[2,2,1]": those that are not the defaults. Trailing elements that are, are left out. */
static void print_attrs(const aril__graph *g, const aril__graph_node *n, bool first, FILE *to)
{
    const void *attrs = aril__graph_attrs(g, n);
    for (int i = 0; attrs && i < n->op->n_attrs; i++) {
        const aril__attr *a = &n->op->attrs[i];
        if (is_default(a, attrs)) continue;
        if (print_mask(a, attrs, first, to)) {
            first = false;
            continue;
        }
        fprintf(to, "%s%s=%s", first ? "" : ", ", a->name, a->count > 1 ? "[" : "");
        first = false;
        int last = a->count;
        for (; last > 1; last--) {
            aril__attr one = *a;
            one.offset = (uint16_t)(a->offset + (last - 1) * 8);
            one.count = 1;
            if (!is_default(&one, attrs) && !is_beyond(g, n, a, last - 1)) break;
        }
        if (a->count == ARIL_MAX_DIMS && last < g->values[n->out].ndim)
            last = g->values[n->out].ndim; /* one for each dimension */
        for (int k = 0; k < last; k++) {
            if (k) fputs(",", to);
            print_number(g, a, attrs, k, to);
        }
        if (a->count > 1) fputs("]", to);
    }
}

/* ---- fused ops ----
 *
 *     %9: f32[2,3], %10: f32[3] = fused_2(%1, %2) {
 *       t1 = mul(%1, %2)
 *       %9 = tanh(t1)
 *       %10 = sum(%9, axes=[0])
 *     }
 */

static void indent(int depth, FILE *to)
{
    for (int i = 0; i < depth; i++) fputs("  ", to);
}

/* Whether a result is the value of a step as it is. */
static bool is_step_value(const aril_fused_output *o)
{
    return o->reduce == ARIL_FUSED_EACH || o->reduce == ARIL_FUSED_EACH_ROW;
}

/* The result that step s is; -1: none. */
static int result_of(const aril__recipe *r, int s)
{
    for (int k = 0; k < r->n_out; k++)
        if (r->out[k].step == s && is_step_value(&r->out[k])) return k;
    return -1;
}

static void print_step_name(const aril__graph *g, const aril__graph_node *n, const aril__recipe *r,
                            int s, FILE *to)
{
    int k = result_of(r, s);
    if (k >= 0)
        print_name(g, n->out + (uint32_t)k, to);
    else
        fprintf(to, "t%d", s + 1);
}

static void print_step_operand(const aril__graph *g, const aril__graph_node *n,
                               const aril__recipe *r, uint8_t operand, FILE *to)
{
    int i = ARIL_FUSED_INDEX(operand);
    if (operand == ARIL_FUSED_NONE) {
        fputs("-", to);
        return;
    }
    switch (ARIL_FUSED_KIND(operand)) {
    case ARIL_FUSED_STEP(0): print_step_name(g, n, r, i, to); break;
    case ARIL_FUSED_INPUT(0): print_operand(g, aril__graph_in(g, n)[i], to); break;
    default:
        if (aril__is_float((aril_dtype)r->constant[i].dtype))
            fprintf(to, "%.9g", r->constant[i].f64);
        else
            fprintf(to, "%" PRId64, r->constant[i].i64);
    }
}

static void print_step(const aril__graph *g, const aril__graph_node *n, const aril__recipe *r,
                       int s, FILE *to)
{
    const aril__recipe_step *step = &r->step[s];
    print_step_name(g, n, r, s, to);
    fprintf(to, " = %s(", step->op->name);
    for (int k = 0; k < step->n_in; k++) {
        if (k) fputs(", ", to);
        print_step_operand(g, n, r, step->in[k], to);
    }
    if (step->op == &aril__op_cast) fprintf(to, ", %s", aril__dtypes[step->dtype].name);
    int params = 0; /* up to the last that is not 0 */
    for (int k = 0; k < 3; k++)
        if (step->p[k] != 0) params = k + 1;
    for (int k = 0; k < params; k++)
        fprintf(to, "%s%.9g", k ? "," : params > 1 ? ", p=[" : ", p=", step->p[k]);
    fputs(params > 1 ? "])" : ")", to);
}

static void print_reduction(const aril__graph *g, const aril__graph_node *n, const aril__recipe *r,
                            int k, FILE *to)
{
    static const char *const name[] = {
        [ARIL_FUSED_SUM] = "sum", [ARIL_FUSED_MEAN] = "mean", [ARIL_FUSED_MAX] = "amax"
    };
    const aril_fused_output *o = &r->out[k];
    print_name(g, n->out + (uint32_t)k, to);
    fprintf(to, " = %s(", name[o->reduce]);
    print_step_name(g, n, r, o->step, to);
    const char *before = ", axes=[";
    for (int d = 0; d < ARIL_MAX_DIMS; d++) {
        if (!(o->axes >> d & 1)) continue;
        fprintf(to, "%s%d", before, d);
        before = ",";
    }
    fputs("])", to);
}

static void print_recipe(const aril__graph *g, const aril__graph_node *n, int depth, FILE *to)
{
    const aril__recipe *r = aril__fused_recipe(aril__graph_attrs(g, n));
    fputs("\n", to);
    for (int s = 0; s < r->n_steps; s++) {
        indent(depth + 1, to);
        print_step(g, n, r, s, to);
        fputs("\n", to);
    }
    for (int k = 0; k < r->n_out; k++) {
        if (is_step_value(&r->out[k])) continue;
        indent(depth + 1, to);
        print_reduction(g, n, r, k, to);
        fputs("\n", to);
    }
    indent(depth, to);
    fputs("}", to);
}

/* ---- nodes ---- */

static void print_graph(const aril__graph *g, const char *body, int depth, FILE *to);

/* What a graph inside a node is. */
static const char *name_of_body(const aril__graph *g, const aril__graph_node *n, uint32_t b)
{
    const struct control_attrs *a = aril__graph_attrs(g, n);
    if (a->kind[0] == ARIL__COND) return b ? "else" : "then";
    return a->kind[0] == ARIL__WHILE && b == 0 ? "condition" : "body";
}

/* A list op on many tensors shows the first ones. */
enum { SHOWN = 24 };

static void print_node(const aril__graph *g, aril__node_id id, int depth, FILE *to)
{
    const aril__graph_node *n = &g->nodes[id];
    const aril__value_id *in = aril__graph_in(g, n);
    indent(depth, to);
    bool first = true;
    for (uint32_t k = 0; k < n->n_out && k < SHOWN; k++) {
        if (g->values[n->out + k].kind == ARIL__NO_VALUE) continue;
        if (!first) fputs(", ", to);
        print_typed(g, n->out + k, to);
        first = false;
    }
    if (n->n_out > SHOWN) fprintf(to, ", ... (%u)", n->n_out);
    fprintf(to, " = %s(", n->op->name);
    for (int i = 0; i < n->n_in && i < SHOWN; i++) {
        if (i) fputs(", ", to);
        print_operand(g, in[i], to);
    }
    if (n->n_in > SHOWN) fprintf(to, ", ... (%u)", n->n_in);
    if (!aril__is_fused(n->op)) print_attrs(g, n, n->n_in == 0, to);
    fputs(aril__is_fused(n->op) ? ") {" : ")", to);
    char where[256];
    aril__graph_where(g, n, where, sizeof where);
    if (n->scope || where[0])
        fprintf(to, "  # %s%s%s", g->text + n->scope, n->scope && where[0] ? " " : "", where);
    if (aril__is_fused(n->op)) print_recipe(g, n, depth, to);
    for (uint32_t b = 0; b < n->n_bodies; b++) {
        fputs(b ? "" : " {\n", to);
        print_graph(g->bodies[n->body + b], name_of_body(g, n, b), depth + 1, to);
        if (b + 1 == n->n_bodies) {
            indent(depth, to);
            fputs("}", to);
        }
    }
    fputs("\n", to);
}

static void print_effect(const aril__graph *g, const aril__effect *e, int depth, FILE *to)
{
    indent(depth, to);
    switch (e->kind) {
    case ARIL__WRITE_STATE: print_name(g, g->states[e->to].value, to); break;
    case ARIL__WRITE_INPUT: print_name(g, g->inputs[e->to].value, to); break;
    default: fprintf(to, "grad(%u)", e->to); break;
    }
    fputs(" <- ", to);
    if (e->value)
        print_operand(g, e->value, to);
    else
        fputs("none", to);
    fputs("\n", to);
}

static void note_used(const aril__graph *g, aril__value_id v, bool *used)
{
    uint8_t kind = g->values[v].kind;
    used[v] =
        v && (kind == ARIL__FROM_CONSTANT || kind == ARIL__NO_VALUE) && !is_shown_constant(g, v);
}

/* Constants with several elements, and tensors of which only the shape is read: those in use. */
static void print_constants(const aril__graph *g, int depth, FILE *to)
{
    bool *used = aril__calloc(g->n_values);
    if (!used) return;
    for (aril__node_id id = 1; id < g->n_nodes; id++)
        for (int i = 0; i < g->nodes[id].n_in; i++)
            note_used(g, aril__graph_in(g, &g->nodes[id])[i], used);
    for (uint32_t i = 0; i < g->n_effects; i++) note_used(g, g->effects[i].value, used);
    for (uint32_t i = 0; i < g->n_outputs; i++) note_used(g, g->outputs[i], used);
    for (aril__value_id v = 1; v < g->n_values; v++) {
        const aril__value *x = &g->values[v];
        if (!used[v]) continue;
        bool constant = x->kind == ARIL__FROM_CONSTANT && g->constants[x->from]->storage;
        indent(depth, to);
        print_typed(g, v, to);
        fputs(constant ? " = constant\n" : " = shape\n", to);
    }
    free(used);
}

/* `body`: what it is inside a node; NULL: a whole graph. */
static void print_graph(const aril__graph *g, const char *body, int depth, FILE *to)
{
    indent(depth, to);
    if (body)
        fprintf(to, "%s(", body);
    else
        fprintf(to, "graph%s%s(", g->name ? " " : "", g->name ? g->name : "");
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        if (i) fputs(", ", to);
        print_typed(g, g->inputs[i].value, to);
    }
    fputs(") {\n", to);
    for (uint32_t i = 0; i < g->n_states; i++) {
        indent(depth + 1, to);
        print_typed(g, g->states[i].value, to);
        fputs(" = state\n", to);
    }
    for (uint32_t i = 0; i < g->n_grads; i++) {
        if (!g->grads[i].had) continue;
        indent(depth + 1, to);
        print_typed(g, g->grads[i].value, to);
        fprintf(to, " = grad(%u)\n", i);
    }
    print_constants(g, depth + 1, to);
    for (aril__node_id i = 1; i < g->n_nodes; i++) print_node(g, i, depth + 1, to);
    for (uint32_t i = 0; i < g->n_effects; i++) print_effect(g, &g->effects[i], depth + 1, to);
    indent(depth + 1, to);
    fputs("return", to);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        fputs(i ? ", " : " ", to);
        print_operand(g, g->outputs[i], to);
    }
    fputs("\n", to);
    indent(depth, to);
    fputs("}\n", to);
}

void aril__graph_print(const aril__graph *g, FILE *to)
{
    if (g->prepared) print_graph(aril__prepared_graph(g->prepared), NULL, 0, to);
    print_graph(g, NULL, 0, to);
}
