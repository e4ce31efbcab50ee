/* Models as text, in the form of the listings that exporters print:
 *
 *     graph main (
 *       %x[FLOAT, Nx4]
 *     ) initializers (
 *       %w[FLOAT, 3x4]
 *     ) {
 *       %y[FLOAT, Nx3] = Gemm[transB=1](%x, %w)
 *       return %y
 *     }
 *
 * The types of values inside are inferred; what cannot be is as the file declares it. */
#include "formats/describe.h"
#include "formats/schemas.h"
#include "onnx/rules.h"

#include <inttypes.h>
#include <stdlib.h>

/* A graph as it is printed. */
typedef struct listed {
    const aril__message *graph;
    const onnx_body *body;          /* NULL: nothing is known of its values */
    const aril__message **declared; /* value_info and outputs, sorted by name */
    size_t n_declared;
} listed;

typedef struct listing {
    FILE *out;
    const onnx_model *model; /* NULL: it could not be loaded */
    onnx_types types;
    bool inferred;
    aril_status status;
} listing;

static void put(const listing *l, const char *text)
{
    aril__put_text(l->out, text, strlen(text));
}

/* ---- types ---- */

/* ONNX's name of a dtype: "FLOAT". */
static void put_dtype(const listing *l, int64_t number)
{
    const aril__proto_value *v =
        aril__proto_value_numbered(&aril__onnx_TensorProto_DataType, (int32_t)number);
    if (v)
        fputs(v->name, l->out);
    else
        fprintf(l->out, "type %" PRId64, number);
}

static void put_dim(const listing *l, const aril__message *dim)
{
    int64_t size;
    if (aril__onnx_declared_size(dim, &size))
        fprintf(l->out, "%" PRId64, size);
    else if (*aril__message_text(dim, "dim_param"))
        put(l, aril__message_text(dim, "dim_param"));
    else
        fputc('?', l->out);
}

static void put_before_dim(const listing *l, size_t d)
{
    fputs(d ? "x" : ", ", l->out);
}

/* "FLOAT, Nx3x224x224" of a TypeProto.Tensor or TypeProto.SparseTensor. */
static void put_tensor_type(const listing *l, const aril__message *tensor)
{
    const aril__message *shape = aril__message_sub(tensor, "shape");
    put_dtype(l, aril__message_int(tensor, "elem_type"));
    if (!aril__message_has(tensor, "shape")) return;
    size_t n = aril__message_count(shape, "dim");
    if (!n) fputs(", scalar", l->out);
    for (size_t d = 0; d < n; d++) {
        put_before_dim(l, d);
        put_dim(l, aril__message_sub_at(shape, "dim", d));
    }
}

static void put_type(const listing *l, const aril__message *type)
{
    static const char *const nested[][2] = { { "sequence_type", "sequence of " },
                                             { "optional_type", "optional " } };
    for (int i = 0; i < 2; i++) {
        if (!aril__message_has(type, nested[i][0])) continue;
        fputs(nested[i][1], l->out);
        put_type(l, aril__message_sub(aril__message_sub(type, nested[i][0]), "elem_type"));
        return;
    }
    if (aril__message_has(type, "map_type")) {
        const aril__message *map = aril__message_sub(type, "map_type");
        fputs("map of ", l->out);
        put_dtype(l, aril__message_int(map, "key_type"));
        fputs(" to ", l->out);
        put_type(l, aril__message_sub(map, "value_type"));
    } else if (aril__message_has(type, "sparse_tensor_type")) {
        fputs("sparse ", l->out);
        put_tensor_type(l, aril__message_sub(type, "sparse_tensor_type"));
    } else if (aril__message_has(type, "tensor_type")) {
        put_tensor_type(l, aril__message_sub(type, "tensor_type"));
    }
}

/* "FLOAT, 64x3x7x7" of a TensorProto. */
static void put_tensor(const listing *l, const aril__message *tensor, const aril__message *sizes)
{
    size_t n = aril__message_count(sizes, "dims");
    put_dtype(l, aril__message_int(tensor, "data_type"));
    if (!n) fputs(", scalar", l->out);
    for (size_t d = 0; d < n; d++) {
        put_before_dim(l, d);
        fprintf(l->out, "%" PRId64, aril__message_int_at(sizes, "dims", d));
    }
}

static const char *name_of(const aril__message *value)
{
    return aril__message_text(value, "name");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(name_of(*(const aril__message *const *)a),
                  name_of(*(const aril__message *const *)b));
}

static int to_name(const void *name, const void *b)
{
    return strcmp(name, name_of(*(const aril__message *const *)b));
}

/* The named messages of some fields, sorted. NULL without memory. */
static const aril__message **sorted(const aril__message *graph, const char *const *fields,
                                    size_t *n)
{
    size_t room = 1;
    *n = 0;
    for (int f = 0; fields[f]; f++) room += aril__message_count(graph, fields[f]);
    const aril__message **at = aril__malloc(room * sizeof *at);
    for (int f = 0; at && fields[f]; f++)
        for (size_t i = 0; i < aril__message_count(graph, fields[f]); i++)
            at[(*n)++] = aril__message_sub_at(graph, fields[f], i);
    if (at && *n) qsort(at, *n, sizeof *at, by_name);
    return at;
}

static const aril__message *find(const aril__message *const *at, size_t n, const char *name)
{
    const aril__message *const *found = n ? bsearch(name, at, n, sizeof *at, to_name) : NULL;
    return found ? *found : NULL;
}

/* The type of an inferred tensor. Where a size is not known, it is that of the declaration, if
 * there is one. */
static void put_inferred(const listing *l, const onnx_type *t, const aril__message *declared)
{
    const aril__message *tensor = declared ? aril__message_sub(declared, "tensor_type") : NULL,
                        *shape = tensor ? aril__message_sub(tensor, "shape") : NULL;
    bool same = shape && aril__message_count(shape, "dim") == (size_t)t->ndim;
    put_dtype(l, t->elem);
    if (!t->ndim) fputs(", scalar", l->out);
    for (int d = 0; d < t->ndim; d++) {
        const char *name = t->dim[d] < 0 ? aril__onnx_size_name(&l->types, t->dim[d]) : NULL;
        put_before_dim(l, (size_t)d);
        if (t->dim[d] >= 0)
            fprintf(l->out, "%" PRId64, t->dim[d]);
        else if (name)
            put(l, name);
        else if (same)
            put_dim(l, aril__message_sub_at(shape, "dim", (size_t)d));
        else
            fputc('?', l->out);
    }
}

/* ---- nodes ---- */

/* Text in quotes, cut where it is long. */
static void put_quoted(const listing *l, aril__slice s)
{
    enum { LONGEST = 64 };
    size_t n = s.n < LONGEST ? s.n : LONGEST;
    fputc('\'', l->out);
    aril__put_text(l->out, s.at, n);
    if (n < s.n) fprintf(l->out, "...<+len=%zu>", s.n - n);
    fputc('\'', l->out);
}

/* A number with as few digits as tell it from other floats. */
static void put_number(const listing *l, double x)
{
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if ((float)strtod(text, NULL) == (float)x) break;
    }
    fputs(text, l->out);
}

/* A tensor in an attribute: a scalar with its value. */
static void put_constant(const listing *l, const aril__message *tensor)
{
    ARIL_SCOPE;
    onnx_arena arena = { 0 };
    onnx_value v = { 0 };
    bool scalar = !aril__message_count(tensor, "dims") && aril_ok();
    if (scalar && aril__onnx_tensor(&arena, tensor, NULL, &v) != ARIL_OK) aril_clear_error();
    if (v.kind == ONNX_TENSOR) {
        aril_dtype dtype = aril_dtype_of(v.tensor);
        fputs("<Scalar Tensor [", l->out);
        if (aril_dtype_is_float(dtype))
            put_number(l, aril_item(v.tensor));
        else
            fprintf(l->out, "%" PRId64, aril_item_int(v.tensor));
        fputs("]>", l->out);
    } else {
        fputs("<Tensor [", l->out);
        put_tensor(l, tensor, tensor);
        fputs("]>", l->out);
    }
    aril__onnx_arena_free(&arena);
}

static void put_graph_name(const listing *l, const aril__message *graph)
{
    fputs("<graph ", l->out);
    put(l, name_of(graph));
    fputc('>', l->out);
}

static void put_element(const listing *l, const aril__message *a, const char *field, size_t i)
{
    if (strcmp(field, "floats") == 0)
        put_number(l, aril__message_number_at(a, field, i));
    else if (strcmp(field, "ints") == 0)
        fprintf(l->out, "%" PRId64, aril__message_int_at(a, field, i));
    else if (strcmp(field, "strings") == 0)
        put_quoted(l, aril__message_bytes_at(a, field, i));
    else if (strcmp(field, "tensors") == 0)
        put_constant(l, aril__message_sub_at(a, field, i));
    else if (strcmp(field, "graphs") == 0)
        put_graph_name(l, aril__message_sub_at(a, field, i));
    else
        put_type(l, aril__message_sub_at(a, field, i));
}

static void put_list(const listing *l, const aril__message *a)
{
    static const char *const fields[] = { "floats",  "ints",   "strings",
                                          "tensors", "graphs", "type_protos" };
    size_t n = 0;
    int f = 0;
    while (f < 5 && !aril__message_count(a, fields[f])) f++;
    n = aril__message_count(a, fields[f]);
    fputc('[', l->out);
    for (size_t i = 0; i < n; i++) {
        if (i) fputs(", ", l->out);
        put_element(l, a, fields[f], i);
    }
    fputc(']', l->out);
}

static void put_attribute(const listing *l, const aril__message *a)
{
    put(l, name_of(a));
    fputc('=', l->out);
    if (*aril__message_text(a, "ref_attr_name")) { /* of the function around it */
        fputc('@', l->out);
        put(l, aril__message_text(a, "ref_attr_name"));
    } else if (aril__message_has(a, "f")) {
        put_number(l, aril__message_number(a, "f"));
    } else if (aril__message_has(a, "i")) {
        fprintf(l->out, "%" PRId64, aril__message_int(a, "i"));
    } else if (aril__message_has(a, "s")) {
        put_quoted(l, aril__message_bytes(a, "s"));
    } else if (aril__message_has(a, "t")) {
        put_constant(l, aril__message_sub(a, "t"));
    } else if (aril__message_has(a, "g")) {
        put_graph_name(l, aril__message_sub(a, "g"));
    } else if (aril__message_has(a, "tp")) {
        put_type(l, aril__message_sub(a, "tp"));
    } else if (aril__message_has(a, "sparse_tensor")) {
        const aril__message *sparse = aril__message_sub(a, "sparse_tensor");
        fputs("<Sparse Tensor [", l->out);
        put_tensor(l, aril__message_sub(sparse, "values"), sparse);
        fputs("]>", l->out);
    } else {
        put_list(l, a);
    }
}

static void put_attributes(const listing *l, const aril__message *node)
{
    size_t n = aril__message_count(node, "attribute");
    if (!n) return;
    fputc('[', l->out);
    for (size_t i = 0; i < n; i++) {
        if (i) fputs(", ", l->out);
        put_attribute(l, aril__message_sub_at(node, "attribute", i));
    }
    fputc(']', l->out);
}

/* The names of a list of values: "%a, %b". */
static void put_names(const listing *l, const aril__message *m, const char *field)
{
    for (size_t i = 0; i < aril__message_count(m, field); i++) {
        fputs(i ? ", %" : "%", l->out);
        put(l, aril__message_text_at(m, field, i));
    }
}

static void put_result(const listing *l, const listed *g, const char *name, const onnx_type *type)
{
    const aril__message *declared = find(g->declared, g->n_declared, name);
    const aril__message *given = declared ? aril__message_sub(declared, "type") : NULL;
    fputc('%', l->out);
    put(l, name);
    bool known = type && (type->kind == ONNX_TENSOR || type->kind == ONNX_TEXT);
    if (!*name || (!known && !given)) return;
    fputc('[', l->out);
    if (known)
        put_inferred(l, type, given);
    else
        put_type(l, given);
    fputc(']', l->out);
}

static void put_node(const listing *l, const listed *g, const aril__message *node,
                     const onnx_node *known)
{
    size_t n = aril__message_count(node, "output");
    const char *domain = aril__message_text(node, "domain");
    fputs("  ", l->out);
    for (size_t k = 0; k < n; k++) {
        bool typed = l->inferred && known && k < known->n_out && known->out[k];
        if (k) fputs(", ", l->out);
        put_result(l, g, aril__message_text_at(node, "output", k),
                   typed ? &l->types.of[known->out[k]] : NULL);
    }
    fputs(n ? " = " : "", l->out);
    if (*domain && strcmp(domain, "ai.onnx") != 0) {
        put(l, domain);
        fputc('.', l->out);
    }
    put(l, aril__message_text(node, "op_type"));
    put_attributes(l, node);
    fputc('(', l->out);
    put_names(l, node, "input");
    fputs(")\n", l->out);
}

/* ---- graphs ---- */

static void put_values(const listing *l, const aril__message *const *at, size_t n, bool tensors)
{
    for (size_t i = 0; i < n; i++) {
        fputs("  %", l->out);
        put(l, name_of(at[i]));
        if (tensors || aril__message_has(at[i], "type")) {
            fputc('[', l->out);
            if (tensors)
                put_tensor(l, at[i], at[i]);
            else
                put_type(l, aril__message_sub(at[i], "type"));
            fputc(']', l->out);
        }
        fputc('\n', l->out);
    }
}

/* Inputs, inputs with defaults and initializers, each in the order of the file. */
static aril_status put_head(const listing *l, const aril__message *graph)
{
    static const char *const initial[] = { "initializer", NULL }, *const inputs[] = { "input",
                                                                                      NULL };
    size_t n_in = aril__message_count(graph, "input"),
           n = aril__message_count(graph, "initializer");
    size_t n_names, n_inputs, count[3] = { 0 };
    const aril__message **names = sorted(graph, initial, &n_names),
                        **input = sorted(graph, inputs, &n_inputs),
                        **list = aril__malloc((2 * n_in + n + 1) * sizeof *list);
    aril_status s = names && input && list ? ARIL_OK : ARIL_ERR_MEMORY;
    fputs(*name_of(graph) ? "graph " : "graph", l->out);
    put(l, name_of(graph));
    if (s == ARIL_OK) {
        for (size_t i = 0; i < n_in; i++) {
            const aril__message *x = aril__message_sub_at(graph, "input", i);
            int kind = find(names, n_names, name_of(x)) != NULL;
            list[(size_t)kind * n_in + count[kind]++] = x;
        }
        for (size_t i = 0; i < n; i++) {
            const aril__message *t = aril__message_sub_at(graph, "initializer", i);
            if (!find(input, n_inputs, name_of(t))) list[2 * n_in + count[2]++] = t;
        }
        fputs(" (", l->out);
        if (count[0]) fputc('\n', l->out);
        put_values(l, list, count[0], false);
        if (count[1]) fputs(") optional inputs with matching initializers (\n", l->out);
        put_values(l, list + n_in, count[1], false);
        if (count[2]) fputs(") initializers (\n", l->out);
        put_values(l, list + 2 * n_in, count[2], true);
        fputs(") {\n", l->out);
    }
    free(names);
    free(input);
    free(list);
    return s < 0 ? aril__fail(s, "out of memory for the names of a graph") : s;
}

static void put_graph(listing *l, const aril__message *graph, const onnx_body *body);

/* The graphs in the attributes of its nodes follow a graph: branches and bodies of loops. */
static void put_inner_graphs(listing *l, const listed *g)
{
    for (size_t i = 0; i < aril__message_count(g->graph, "node"); i++) {
        const aril__message *node = aril__message_sub_at(g->graph, "node", i);
        const onnx_node *known = g->body && i < g->body->n_nodes ? &g->body->node[i] : NULL;
        size_t k = 0;
        for (size_t a = 0; a < aril__message_count(node, "attribute"); a++) {
            const aril__message *attribute = aril__message_sub_at(node, "attribute", a);
            for (size_t j = 0; j < aril__message_count(attribute, "graphs"); j++)
                put_graph(l, aril__message_sub_at(attribute, "graphs", j), NULL);
            if (!aril__message_has(attribute, "g")) continue;
            bool has_body = known && known->rule && k < known->n_bodies;
            put_graph(l, aril__message_sub(attribute, "g"), has_body ? &known->body[k] : NULL);
            k++;
        }
    }
}

static void put_graph(listing *l, const aril__message *graph, const onnx_body *body)
{
    static const char *const fields[] = { "value_info", "output", NULL };
    listed g = { .graph = graph, .body = body };
    g.declared = sorted(graph, fields, &g.n_declared);
    fputc('\n', l->out);
    if (!g.declared) l->status = aril__fail(ARIL_ERR_MEMORY, "out of memory for a graph");
    if (l->status == ARIL_OK) l->status = put_head(l, graph);
    for (size_t i = 0; i < aril__message_count(graph, "node") && l->status == ARIL_OK; i++)
        put_node(l, &g, aril__message_sub_at(graph, "node", i),
                 body && i < body->n_nodes ? &body->node[i] : NULL);
    size_t n = aril__message_count(graph, "output");
    fputs(n ? "  return " : "  return", l->out);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ", %" : "%", l->out);
        put(l, name_of(aril__message_sub_at(graph, "output", i)));
    }
    fputs("\n}\n", l->out);
    if (l->status == ARIL_OK) put_inner_graphs(l, &g);
    free(g.declared);
}

/* A function that the file defines: the types of its values are those of its calls. */
static void put_function(listing *l, const aril__message *f)
{
    const char *overload = aril__message_text(f, "overload");
    size_t n = aril__message_count(f, "attribute");
    fputs("\nfunction ", l->out);
    put(l, aril__message_text(f, "domain"));
    fputc('.', l->out);
    put(l, name_of(f));
    fputs(*overload ? ":" : "", l->out);
    put(l, overload);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ", " : "[", l->out);
        put(l, aril__message_text_at(f, "attribute", i));
    }
    fputs(n ? "] (" : " (", l->out);
    put_names(l, f, "input");
    fputs(") {\n", l->out);
    for (size_t i = 0; i < aril__message_count(f, "node"); i++)
        put_node(l, &(listed){ .graph = f }, aril__message_sub_at(f, "node", i), NULL);
    fputs("  return ", l->out);
    put_names(l, f, "output");
    fputs("\n}\n", l->out);
    put_inner_graphs(l, &(listed){ .graph = f });
}

/* ---- models ---- */

static void put_origin(const listing *l, const aril__message *model)
{
    const char *version = aril__message_text(model, "producer_version");
    fprintf(l->out, "ONNX model, IR version %" PRId64, aril__message_int(model, "ir_version"));
    for (size_t i = 0; i < aril__message_count(model, "opset_import"); i++) {
        const aril__message *set = aril__message_sub_at(model, "opset_import", i);
        const char *domain = aril__message_text(set, "domain");
        fprintf(l->out, ", opset %" PRId64, aril__message_int(set, "version"));
        fputs(*domain ? " of " : "", l->out);
        put(l, domain);
    }
    if (*aril__message_text(model, "producer_name")) {
        fputs(", from ", l->out);
        put(l, aril__message_text(model, "producer_name"));
        fputs(*version ? " " : "", l->out);
        put(l, version);
    }
    fputc('\n', l->out);
}

/* The number of elements; 0 if it is not known, as sizes in files can be anything. */
static uint64_t elements_of(const aril__message *tensor)
{
    uint64_t n = 1;
    for (size_t i = 0; i < aril__message_count(tensor, "dims"); i++) {
        int64_t size = aril__message_int_at(tensor, "dims", i);
        if (size <= 0 || n > UINT64_MAX / (uint64_t)size) return 0;
        n *= (uint64_t)size;
    }
    return n;
}

/* What graphs hold, those of branches and loops included. */
typedef struct counts {
    uint64_t nodes, inner_nodes, initializers, parameters, constants;
} counts;

static void count_graph(const aril__message *graph, int depth, counts *c)
{
    size_t n = aril__message_count(graph, "node"), k = aril__message_count(graph, "initializer");
    *(depth ? &c->inner_nodes : &c->nodes) += n;
    c->initializers += k;
    for (size_t i = 0; i < k; i++)
        c->parameters += elements_of(aril__message_sub_at(graph, "initializer", i));
    for (size_t i = 0; i < n; i++) {
        const aril__message *node = aril__message_sub_at(graph, "node", i);
        for (size_t a = 0; a < aril__message_count(node, "attribute"); a++) {
            const aril__message *at = aril__message_sub_at(node, "attribute", a);
            if (aril__message_has(at, "g")) count_graph(aril__message_sub(at, "g"), depth + 1, c);
            if (aril__message_has(at, "t")) c->constants += elements_of(aril__message_sub(at, "t"));
        }
    }
}

static void put_counts(const listing *l, const aril__message *graph)
{
    counts c = { 0 };
    count_graph(graph, 0, &c);
    aril__put_count(l->out, c.nodes, "node", "nodes");
    if (c.inner_nodes) {
        fputs(" and ", l->out);
        aril__put_count(l->out, c.inner_nodes, "node in its graphs", "nodes in their graphs");
    }
    fputs(", ", l->out);
    aril__put_count(l->out, c.initializers, "initializer", "initializers");
    fputs(", ", l->out);
    aril__put_count(l->out, c.parameters, "parameter", "parameters");
    if (c.constants > c.parameters) {
        fputs(", ", l->out);
        aril__put_count(l->out, c.constants, "number in constants", "numbers in constants");
    }
    fputc('\n', l->out);
}

static void put_model(listing *l, const aril__message *model)
{
    const aril__message *graph = aril__message_sub(model, "graph");
    put_origin(l, model);
    put_counts(l, graph);
    put_graph(l, graph, l->model ? &l->model->main : NULL);
    for (size_t i = 0; i < aril__message_count(model, "functions") && l->status == ARIL_OK; i++)
        put_function(l, aril__message_sub_at(model, "functions", i));
}

/* A model that cannot run is printed with the types that it declares, and the reason. */
static aril_status describe(const char *path, FILE *out)
{
    char why[1024] = "";
    bool was_ok = aril_ok();
    onnx_model *m = was_ok ? aril__onnx_model_outline(path, NULL) : NULL;
    if (!m && was_ok) {
        aril__error_text(why, sizeof why);
        aril_clear_error();
    }
    aril__message *own = m ? NULL : aril__message_load(&aril__onnx_ModelProto, path);
    if (!m && !own) return aril__latest_status();
    listing l = { .out = out, .model = m };
    if (m) {
        aril_status s = aril__onnx_infer(m, &l.types);
        l.inferred = s == ARIL_OK;
        if (s < 0) aril_clear_error(); /* the declared types remain */
    }
    const aril__message *model = m ? m->file : own;
    if (!aril__message_has(model, "graph")) { /* an empty file is an empty message */
        aril_status s =
            aril__fail(ARIL_ERR_FORMAT, "%s has no graph: it is not an ONNX model", path);
        aril__message_free(own);
        aril__onnx_model_free(m);
        return s;
    }
    put_model(&l, model);
    if (*why) {
        fputs("\nTypes are those that the file declares: ", out);
        aril__put_text(out, why, strlen(why));
        fputc('\n', out);
    }
    if (*l.types.why) {
        fputs("\nTypes could not be inferred from here on: ", out);
        aril__put_text(out, l.types.why, strlen(l.types.why));
        fputc('\n', out);
    }
    if (l.status == ARIL_OK) l.status = aril__message_check(model);
    aril__message_free(own);
    aril__onnx_model_free(m);
    return l.status;
}

const aril__describer aril__onnx_describer = { ".onnx", .describe = describe };
