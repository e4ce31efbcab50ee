/* Writing graphs as models of ONNX.
 *
 * A graph is walked node by node. A row of a table says which operator of ONNX an op is, in which
 * versions, and a function builds the node where names and attributes do not simply correspond. An
 * op without an operator of its own is computed by other ops: its decomposition is traced, and that
 * graph is walked in its place. */
#ifndef ARIL_ONNX_EXPORT_H
#define ARIL_ONNX_EXPORT_H

#include "graph/graph.h"
#include "onnx/onnx.h"
#include "ops/table/apply.h"

/* ---- the model as it is built ---- */

/* A value of the model. Its name is chosen when the model is written. */
typedef struct export_value {
    const char *name; /* given, or NULL */
    const struct export_node *from;
    const struct export_port *type; /* NULL: not known */
    int number;                     /* of its dtype in ONNX; 0: not known */
    bool used;
} export_value;

typedef struct export_attr {
    const char *name;
    enum {
        EXPORT_INT,
        EXPORT_INTS,
        EXPORT_FLOAT,
        EXPORT_TEXT,
        EXPORT_TEXTS,
        EXPORT_TENSOR,
        EXPORT_GRAPH
    } kind;
    int n;
    int64_t i;
    double f;
    const int64_t *ints;
    const char *text;
    aril_tensor *tensor;
    struct export_body *body;
} export_attr;

typedef struct export_attrs {
    int n;
    const export_attr *at;
} export_attrs;

typedef struct export_values {
    int n;
    export_value *const *at; /* NULL: an input that is not given */
} export_values;

typedef struct export_node {
    struct export_node *next;
    const char *type;
    const char *scope; /* of the module, or NULL */
    const char *name;
    export_value **in, **out;
    int n_in, n_out;
    export_attr *attr;
    int n_attrs;
} export_node;

/* An input or output: a value with its type. Negative sizes are unknown. */
typedef struct export_port {
    export_value *value;
    aril_dtype dtype;
    int ndim;
    int64_t dim[ARIL_MAX_DIMS];
    const char *dim_name[ARIL_MAX_DIMS]; /* NULL: none */
} export_port;

/* The main graph, or that of a branch or loop. */
typedef struct export_body {
    export_node *first, **last;
    export_port *in, *out;
    int n_in, n_out, cap_in, cap_out;
    const char *name;
} export_body;

/* A tensor in the file. */
typedef struct export_weight {
    struct export_weight *next;
    export_value *value;
    aril_tensor *tensor; /* contiguous, on the CPU */
} export_weight;

typedef struct export_constant {
    struct export_constant *next;
    uint64_t hash;
    aril_tensor *tensor;
    export_value *value;
} export_constant;

typedef struct export_model {
    onnx_arena arena;
    int opset;
    const char *what; /* of errors: "module_export" */
    export_body main;
    export_weight *weights, **last_weight;
    export_constant *constants;
    int depth;                /* of decompositions */
    const aril__sizes *sizes; /* of the main graph: those that have names */
    const char **size_names;
    int n_size_names;
    const aril__message *source;       /* a model that this one was loaded from, or NULL */
    const struct export_graph *walked; /* with the node that is being written, or NULL */
    aril_status status;                /* of the first failure */
} export_model;

/* ---- a graph as it is walked ---- */

typedef struct export_size {
    int64_t unknown;
    export_value *value; /* one element, i64 */
} export_size;

typedef struct export_graph {
    export_model *model;
    export_body *to;
    const aril__graph *g;
    export_value **value; /* of each value of g; NULL: not there yet */
    export_size *sizes;   /* unknown sizes that were computed */
    int n_sizes, cap_sizes;
    const char *scope; /* of nodes that have none: of the node that is decomposed */
    uint32_t node;     /* that is written now */
} export_graph;

/* One node of the graph, for a row. */
typedef struct export_call {
    export_graph *graph;
    export_model *model;
    int opset;
    const aril__graph_node *node;
    const aril__op *op;
    const void *attrs;
    const struct export_rule *rule;
    int n_in, n_out;
    const aril__value_id *id; /* of the inputs; 0: absent */
    export_value **in;        /* NULL: absent, or a number that is not written yet */
    export_value **out;       /* to be set */
} export_call;

typedef aril_status export_fn(export_call *c);
typedef void export_lower(aril__call *c, aril_tensor **out);

/* How an op is written: rows for the same op are tried in order, and the first that takes it
 * serves. */
typedef struct export_rule {
    const char *op;
    int from, to; /* versions of the operator set; to 0: all later ones */
    const char *onnx;
    uint32_t types;   /* dtypes that the operator takes; 0: all. Others are cast to a wider one */
    export_fn *write; /* NULL: the operator has the same inputs, and attributes by `attrs` */
    export_lower *lower;                 /* in other ops, instead */
    bool (*takes)(const export_call *c); /* NULL: all */
} export_rule;

enum { ARIL__EXPORT_DECLINED = 2 }; /* a row does not take this call after all */

/* The tables of rows; NULL beyond the last. */
const export_rule *aril__export_rules(int table);
/* The row for an op at a version, first to be tried after `last` (NULL: the first). */
const export_rule *aril__export_rule(const aril__op *op, int opset, const export_rule *last);

/* For the page of operators: the ops that an operator is written for; how each op is written. */
void aril__export_list_ops(FILE *to, const char *onnx);
void aril__export_list(FILE *to);
/* Whether an elementwise op has a formula in other ops. */
bool aril__export_has_formula(const aril__op *op);

/* The type of a value of a graph. Sizes have names if the main graph knows them. */
void aril__export_describe(const export_model *m, const aril__graph *g, aril__value_id v,
                           export_port *to);
/* Writes a graph into g->to: inputs have their values already. */
aril_status aril__export_walk(export_graph *g);
/* Writes the decomposition of a node in its place. */
aril_status aril__export_lowered(export_call *c, export_lower *lower);
/* cond, while and scan. */
aril_status aril__export_control(export_call *c);

/* The lowest version of the format that has an operator set. */
int aril__export_ir_version(int opset);
/* A model in the form of its file; weights are referred to. NULL with an error. */
aril__message *aril__export_message(export_model *m, const char *name);

/* A TensorProto of a contiguous tensor on the CPU, whose memory it refers to. */
void aril__export_tensor(aril__message *to, const aril_tensor *t, const char *name);

/* ---- building ----
 *
 * A failure is remembered in the model, and reported at its end: NULL stands for a value that could
 * not be built. */

#define VALUES(...)                                                                              \
    ((export_values){ (int)(sizeof((export_value *[]){ __VA_ARGS__ }) / sizeof(export_value *)), \
                      (export_value *[]){ __VA_ARGS__ } })
#define ATTRIBUTES(...)                                                                   \
    ((export_attrs){ (int)(sizeof((export_attr[]){ __VA_ARGS__ }) / sizeof(export_attr)), \
                     (export_attr[]){ __VA_ARGS__ } })
#define NO_ATTRS ((export_attrs){ 0, NULL })

/* A node; out[n_out] receives its outputs. And one with a single output, which is returned. */
void aril__export_node(export_graph *g, const char *type, export_values in, export_attrs attrs,
                       int n_out, export_value **out);
static inline export_value *put(export_call *c, const char *type, export_values in,
                                export_attrs attrs)
{
    export_value *out = NULL;
    aril__export_node(c->graph, type, in, attrs, 1, &out);
    return out;
}

static inline export_attr attr_int(const char *name, int64_t i)
{
    return (export_attr){ .name = name, .kind = EXPORT_INT, .i = i };
}
static inline export_attr attr_float(const char *name, double f)
{
    return (export_attr){ .name = name, .kind = EXPORT_FLOAT, .f = f };
}
static inline export_attr attr_text(const char *name, const char *text)
{
    return (export_attr){ .name = name, .kind = EXPORT_TEXT, .text = text };
}
static inline export_attr attr_ints(const char *name, int n, const int64_t *at)
{
    return (export_attr){ .name = name, .kind = EXPORT_INTS, .n = n, .ints = at };
}
static inline export_attr attr_tensor(const char *name, aril_tensor *t)
{
    return (export_attr){ .name = name, .kind = EXPORT_TENSOR, .tensor = t };
}
static inline export_attr attr_body(const char *name, struct export_body *body)
{
    return (export_attr){ .name = name, .kind = EXPORT_GRAPH, .body = body };
}

/* export_types.c: a node in types that its operator takes in the operator set, with casts around it
 * where these are not those of its inputs. And the node as it is. */
void aril__export_typed_node(export_graph *g, const char *type, export_values in,
                             export_attrs attrs, int n_out, export_value **out);
void aril__export_append(export_graph *g, const char *type, export_values in, export_attrs attrs,
                         int n_out, export_value **out);

/* The same, stopped with an error. */
aril__cold aril_status aril__export_fail(export_model *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The scope of the node that is being written: of a loaded model, the node that it comes from. */
const char *aril__export_scope(const export_model *m);

/* A new value without a node: an input. */
export_value *aril__export_value(export_model *m, const char *name);
/* Text that lives as long as the model. */
const char *aril__export_text(export_model *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
export_port *aril__export_port(export_model *m, export_body *b, bool out);

/* A constant; equal small ones are one. */
export_value *aril__export_constant(export_model *m, aril_tensor *t);
export_value *aril__export_ints(export_call *c, int n, const int64_t *at);
export_value *aril__export_number(export_call *c, double value, aril_dtype dtype);
/* A number of one dimension with one element. */
export_value *aril__export_int1(export_call *c, int64_t i);

/* Sizes, of which some may be unknown, as a tensor of one dimension. */
export_value *aril__export_sizes(export_call *c, int n, const int64_t *dim);
export_value *aril__export_shape_of(export_call *c, int i);
bool aril__export_known(int n, const int64_t *dim);

/* ---- inputs and outputs ---- */

static inline const aril__value *value_in(const export_call *c, int i)
{
    return &c->graph->g->values[c->id[i]];
}
static inline bool has(const export_call *c, int i)
{
    return i < c->n_in && c->id[i];
}
static inline aril_dtype dtype_in(const export_call *c, int i)
{
    return (aril_dtype)value_in(c, i)->dtype;
}
static inline int ndim_in(const export_call *c, int i)
{
    return value_in(c, i)->ndim;
}
static inline const int64_t *dims_in(const export_call *c, int i)
{
    return aril__graph_dims(c->graph->g, c->id[i]);
}
static inline const aril__value *value_out(const export_call *c, int i)
{
    return &c->graph->g->values[c->node->out + (uint32_t)i];
}
static inline aril_dtype dtype_out(const export_call *c, int i)
{
    return (aril_dtype)value_out(c, i)->dtype;
}
static inline int ndim_out(const export_call *c, int i)
{
    return value_out(c, i)->ndim;
}
static inline const int64_t *dims_out(const export_call *c, int i)
{
    return aril__graph_dims(c->graph->g, c->node->out + (uint32_t)i);
}
static inline bool known_in(const export_call *c, int i)
{
    return aril__export_known(ndim_in(c, i), dims_in(c, i));
}

/* Whether a later node, a result or an effect uses output i. */
bool aril__export_wanted(const export_call *c, int i);

/* Input i as a value of the model; of a number, a constant of its dtype. */
export_value *aril__export_in(export_call *c, int i);
/* The same in another dtype. */
export_value *aril__export_in_as(export_call *c, int i, aril_dtype dtype);
export_value *aril__export_cast(export_call *c, export_value *x, aril_dtype from, aril_dtype to);
/* The tensor of a constant input; NULL if it is none. */
aril_tensor *aril__export_constant_in(const export_call *c, int i);

/* Sets an output; ARIL_ERR_MEMORY if the value could not be built. */
static inline aril_status set_out(export_call *c, int i, export_value *v)
{
    c->out[i] = v;
    return v ? ARIL_OK : c->model->status;
}

/* ---- helpers of rules ---- */

/* A reduction over the axes of a mask. The axes are an attribute before version `input_from`. */
export_value *aril__export_reduce(export_call *c, const char *type, export_value *x, int64_t mask,
                                  bool keep);
export_value *aril__export_reshape(export_call *c, export_value *x, int n, const int64_t *dim);
export_value *aril__export_transpose(export_call *c, export_value *x, int n, const int *perm);
export_value *aril__export_unsqueeze(export_call *c, export_value *x, int n, const int64_t *axes);
export_value *aril__export_squeeze(export_call *c, export_value *x, int n, const int64_t *axes);
export_value *aril__export_slice(export_call *c, export_value *x, int axis, int64_t start,
                                 int64_t stop, int64_t step);
/* The activation that an op applies to its result. */
export_value *aril__export_activation(export_call *c, export_value *x, int64_t activation);
/* Zeros of the sizes of a value. */
export_value *aril__export_zeros(export_call *c, int n, const int64_t *dim, aril_dtype dtype);

#endif
