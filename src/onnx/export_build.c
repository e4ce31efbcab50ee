/* Nodes, constants and sizes of a model that is being built. */
#include "core/dtype.h"
#include "onnx/export.h"
#include "onnx/rules.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- memory and errors ---- */

const char *aril__export_scope(const export_model *m)
{
    const export_graph *g = m->walked;
    const aril__graph_node *n = g && g->node ? &g->g->nodes[g->node] : NULL;
    return n && n->scope ? g->g->text + n->scope : g ? g->scope : NULL;
}

aril_status aril__export_fail(export_model *m, const char *fmt, ...)
{
    char text[512];
    const char *scope = aril__export_scope(m);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (m->status == ARIL_OK)
        m->status = aril__fail(ARIL_ERR_UNSUPPORTED, "%s: %s%s%s%s", m->what, scope ? "node " : "",
                               scope ? scope : "", scope ? ": " : "", text);
    return m->status;
}

static void *allocate(export_model *m, size_t n, size_t size)
{
    void *at = aril__onnx_alloc(&m->arena, n, size);
    if (!at && m->status == ARIL_OK) m->status = ARIL_ERR_MEMORY;
    return at;
}

const char *aril__export_text(export_model *m, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = allocate(m, (size_t)(n < 0 ? 0 : n) + 1, 1);
    if (!text) return "";
    va_start(args, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    return text;
}

export_value *aril__export_value(export_model *m, const char *name)
{
    export_value *v = allocate(m, 1, sizeof *v);
    if (v && name) v->name = aril__export_text(m, "%s", name);
    return v;
}

export_port *aril__export_port(export_model *m, export_body *b, bool out)
{
    export_port **list = out ? &b->out : &b->in;
    int *n = out ? &b->n_out : &b->n_in, *cap = out ? &b->cap_out : &b->cap_in;
    if (*n == *cap) {
        int more = 2 * *cap + 8;
        export_port *grown = allocate(m, (size_t)more, sizeof *grown);
        if (!grown) return NULL;
        if (*n) memcpy(grown, *list, (size_t)*n * sizeof *grown);
        *list = grown;
        *cap = more;
    }
    return &(*list)[(*n)++];
}

/* ---- nodes ---- */

static void copy_attr(export_model *m, export_attr *to, const export_attr *from)
{
    *to = *from;
    if (from->kind == EXPORT_INTS && from->n) {
        int64_t *copy = allocate(m, (size_t)from->n, sizeof *copy);
        if (copy) memcpy(copy, from->ints, (size_t)from->n * sizeof *copy);
        to->ints = copy;
        if (!copy) to->n = 0;
    }
    if (from->kind == EXPORT_TEXT || from->kind == EXPORT_TEXTS)
        to->text = aril__export_text(m, "%s", from->text);
    if (from->kind == EXPORT_TENSOR && !aril__onnx_keep(&m->arena, from->tensor))
        m->status = ARIL_ERR_MEMORY;
}

static void append(export_model *m, export_body *to, const char *scope, const char *type,
                   export_values in, export_attrs attrs, int n_out, export_value **out)
{
    for (int i = 0; i < n_out; i++) out[i] = NULL;
    if (m->status != ARIL_OK) return;
    export_node *n = allocate(m, 1, sizeof *n);
    export_value **lists = allocate(m, (size_t)(in.n + n_out), sizeof *lists);
    export_attr *attr = allocate(m, (size_t)attrs.n, sizeof *attr);
    if (!n || !lists || !attr) return;
    *n = (export_node){ .type = type,
                        .scope = scope,
                        .in = lists,
                        .out = lists + in.n,
                        .n_in = in.n,
                        .n_out = n_out,
                        .attr = attr,
                        .n_attrs = attrs.n };
    for (int i = 0; i < in.n; i++)
        if ((lists[i] = in.at[i])) lists[i]->used = true;
    while (n->n_in && !lists[n->n_in - 1]) n->n_in--; /* inputs that are not given, at the end */
    for (int i = 0; i < attrs.n; i++) copy_attr(m, &attr[i], &attrs.at[i]);
    for (int i = 0; i < n_out; i++) {
        export_value *v = aril__export_value(m, NULL);
        if (!v) return;
        v->from = n;
        n->out[i] = out[i] = v;
    }
    *to->last = n;
    to->last = &n->next;
}

/* ---- numbers that stand for unknown sizes ----
 *
 * In a trace, the size of an open axis is a number that names it. Such a number, or what code has
 * computed from it, must not be written as if it were a value. */

enum { CHECKED = 64 }; /* elements: larger constants are not made of sizes */

static const aril__sizes *sizes_of(const export_model *m)
{
    return m->walked ? m->walked->g->sizes : NULL;
}

static void refuse_size(export_model *m, const char *what)
{
    aril__export_fail(m,
                      "%s: computes with a size that is left open, in a way that has no form in "
                      "ONNX; export with known sizes",
                      what);
}

static bool holds_size(const aril__sizes *s, aril_tensor *t)
{
    aril_dtype dtype = (aril_dtype)t->dtype;
    bool exact = dtype == ARIL_I64 || dtype == ARIL_U64 || dtype == ARIL_F64;
    if (!s || !s->n || t->numel < 1 || t->numel > CHECKED || (!exact && dtype != ARIL_F32))
        return false;
    ARIL_SCOPE;
    const double *at = aril__ptr_or_null(aril_cast(t, ARIL_F64));
    bool derives = false;
    for (int64_t i = 0; at && i < t->numel; i++)
        derives |= aril__size_derives(s, at[i], dtype == ARIL_F32);
    return derives;
}

static void check_attrs(export_model *m, const char *type, export_attrs attrs)
{
    const aril__sizes *s = sizes_of(m);
    for (int i = 0; i < attrs.n; i++) {
        const export_attr *a = &attrs.at[i];
        bool derives = (a->kind == EXPORT_FLOAT && aril__size_derives(s, a->f, false)) ||
                       (a->kind == EXPORT_INT && aril__size_derives(s, (double)a->i, false));
        for (int k = 0; a->kind == EXPORT_INTS && k < a->n; k++)
            derives |= aril__size_derives(s, (double)a->ints[k], false);
        if (a->kind == EXPORT_TENSOR) derives |= holds_size(s, a->tensor);
        if (derives) refuse_size(m, type);
    }
}

void aril__export_node(export_graph *g, const char *type, export_values in, export_attrs attrs,
                       int n_out, export_value **out)
{
    for (int i = 0; i < n_out; i++) out[i] = NULL;
    if (g->model->status == ARIL_OK) aril__export_typed_node(g, type, in, attrs, n_out, out);
}

void aril__export_append(export_graph *g, const char *type, export_values in, export_attrs attrs,
                         int n_out, export_value **out)
{
    const aril__graph_node *n = g->node ? &g->g->nodes[g->node] : NULL;
    const char *scope =
        n && n->scope ? aril__export_text(g->model, "%s", g->g->text + n->scope) : g->scope;
    check_attrs(g->model, type, attrs);
    append(g->model, g->to, scope, type, in, attrs, n_out, out);
}

/* ---- constants ---- */

enum { SHARED_BYTES = 256 }; /* larger constants are not compared with others */

static size_t bytes_of(const aril_tensor *t)
{
    return aril__dtype_bytes((aril_dtype)t->dtype, t->numel);
}

static uint64_t hash_of(const aril_tensor *t)
{
    const unsigned char *at = aril__ptr_or_null(t);
    uint64_t hash = 0xcbf29ce484222325u ^ t->dtype;
    for (int d = 0; d < t->ndim; d++) hash = (hash ^ (uint64_t)t->dim[d]) * 0x100000001b3u;
    for (size_t i = 0; at && i < bytes_of(t); i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

static bool same_constant(const aril_tensor *a, const aril_tensor *b)
{
    return a->dtype == b->dtype && aril__same_dims(a->ndim, a->dim, b->ndim, b->dim) &&
           (!a->numel || memcmp(aril__ptr(a), aril__ptr(b), bytes_of(a)) == 0);
}

export_value *aril__export_constant(export_model *m, aril_tensor *t)
{
    if (m->status != ARIL_OK) return NULL;
    t = aril_contiguous(aril_to(aril_detach(t), aril_cpu()));
    aril_status s = aril_tensor_status(t);
    if (s < 0) {
        m->status = s;
        return NULL;
    }
    if (holds_size(sizes_of(m), t)) {
        refuse_size(m,
                    m->walked->node ? m->walked->g->nodes[m->walked->node].op->name : "a result");
        return NULL;
    }
    uint64_t hash = bytes_of(t) <= SHARED_BYTES ? hash_of(t) : 0;
    for (export_constant *c = m->constants; c && hash; c = c->next)
        if (c->hash == hash && same_constant(c->tensor, t)) return c->value;
    export_value *v;
    append(m, &m->main, NULL, "Constant", (export_values){ 0 }, ATTRIBUTES(attr_tensor("value", t)),
           1, &v);
    if (v) v->number = aril__onnx_dtype_number((aril_dtype)t->dtype);
    export_constant *c = v && hash ? allocate(m, 1, sizeof *c) : NULL;
    if (!c) return v;
    *c = (export_constant){ m->constants, hash, t, v }; /* the node has a reference */
    m->constants = c;
    return v;
}

export_value *aril__export_ints(export_call *c, int n, const int64_t *at)
{
    ARIL_SCOPE;
    return aril__export_constant(c->model, aril__onnx_from_ints(at, n));
}

export_value *aril__export_int1(export_call *c, int64_t i)
{
    return aril__export_ints(c, 1, &i);
}

export_value *aril__export_number(export_call *c, double value, aril_dtype dtype)
{
    ARIL_SCOPE;
    return aril__export_constant(c->model, aril_full(ARIL_SHAPE(), value, dtype, aril_cpu()));
}

/* ---- sizes ---- */

bool aril__export_known(int n, const int64_t *dim)
{
    for (int d = 0; d < n; d++)
        if (dim[d] < 0) return false;
    return true;
}

/* The size of x along an axis, as one element. */
static export_value *size_along(export_call *c, export_value *x, int axis)
{
    if (c->opset >= 15)
        return put(c, "Shape", VALUES(x),
                   ATTRIBUTES(attr_int("start", axis), attr_int("end", axis + 1)));
    return put(c, "Gather",
               VALUES(put(c, "Shape", VALUES(x), NO_ATTRS), aril__export_int1(c, axis)),
               ATTRIBUTES(attr_int("axis", 0)));
}

/* The first value in sight that has this size. */
static export_value *measured(export_call *c, int64_t unknown)
{
    export_graph *g = c->graph;
    for (aril__value_id v = 1; v < g->g->n_values; v++) {
        const int64_t *dim = aril__graph_dims(g->g, v);
        for (int d = 0; g->value[v] && d < g->g->values[v].ndim; d++)
            if (dim[d] == unknown) return size_along(c, g->value[v], d);
    }
    return NULL;
}

static export_value *size_of(export_call *c, int64_t size);

/* A derived size that is a product. */
static export_value *product(export_call *c, int64_t unknown)
{
    const aril__sizes *s = c->graph->g->sizes;
    const aril__size_entry *e = &s->entries[aril__size_index(unknown)];
    if (!e->n_key || s->words[e->at] != ARIL__SIZE_PRODUCT) return NULL;
    export_value *y = NULL;
    for (int k = 1; k < e->n_key; k++) {
        int64_t factor = s->words[e->at + (size_t)k];
        if (factor == 1) continue;
        export_value *x = size_of(c, factor);
        if (!x) return NULL;
        y = y ? put(c, "Mul", VALUES(y, x), NO_ATTRS) : x;
    }
    return y;
}

/* A derived size to which two others broadcast: the one that is not 1. */
static export_value *broadcast(export_call *c, int64_t unknown)
{
    const aril__sizes *s = c->graph->g->sizes;
    const aril__size_entry *e = &s->entries[aril__size_index(unknown)];
    if (!e->n_key || s->words[e->at] != ARIL__SIZE_BROADCAST) return NULL;
    export_value *x = size_of(c, s->words[e->at + 1]),
                 *y = x ? size_of(c, s->words[e->at + 2]) : NULL;
    if (!y) return NULL;
    export_value *one = put(c, "Equal", VALUES(y, aril__export_int1(c, 1)), NO_ATTRS);
    return put(c, "Where", VALUES(one, x, y), NO_ATTRS);
}

/* One element: a known size, or an unknown one, which is computed once. */
static export_value *size_of(export_call *c, int64_t size)
{
    export_graph *g = c->graph;
    if (size >= 0) return aril__export_int1(c, size);
    for (int i = 0; i < g->n_sizes; i++)
        if (g->sizes[i].unknown == size) return g->sizes[i].value;
    export_value *v = aril__size_is_named(size) ? measured(c, size) : NULL;
    if (!v && aril__size_is_named(size)) v = product(c, size);
    if (!v && aril__size_is_named(size)) v = broadcast(c, size);
    if (!v) {
        aril__export_fail(c->model,
                          "%s: a size is not known before the model runs, and cannot be "
                          "computed from those of its inputs; export with known sizes",
                          c->op->name);
        return NULL;
    }
    if (g->n_sizes == g->cap_sizes) {
        int more = 2 * g->cap_sizes + 8;
        export_size *grown = allocate(g->model, (size_t)more, sizeof *grown);
        if (!grown) return v;
        if (g->n_sizes) memcpy(grown, g->sizes, (size_t)g->n_sizes * sizeof *grown);
        g->sizes = grown;
        g->cap_sizes = more;
    }
    g->sizes[g->n_sizes++] = (export_size){ size, v };
    return v;
}

export_value *aril__export_sizes(export_call *c, int n, const int64_t *dim)
{
    if (aril__export_known(n, dim)) return aril__export_ints(c, n, dim);
    export_value *part[ARIL_MAX_DIMS];
    for (int d = 0; d < n; d++) part[d] = size_of(c, dim[d]);
    if (n == 1) return part[0];
    return put(c, "Concat", (export_values){ n, part }, ATTRIBUTES(attr_int("axis", 0)));
}

export_value *aril__export_shape_of(export_call *c, int i)
{
    if (known_in(c, i)) return aril__export_ints(c, ndim_in(c, i), dims_in(c, i));
    return put(c, "Shape", VALUES(aril__export_in(c, i)), NO_ATTRS);
}

/* ---- inputs ---- */

aril_tensor *aril__export_constant_in(const export_call *c, int i)
{
    const aril__value *v = has(c, i) ? value_in(c, i) : NULL;
    return v && v->kind == ARIL__FROM_CONSTANT ? c->graph->g->constants[v->from] : NULL;
}

export_value *aril__export_in(export_call *c, int i)
{
    if (!has(c, i) || c->model->status != ARIL_OK) return NULL;
    if (!c->in[i]) {
        aril_tensor *t = aril__export_constant_in(c, i);
        const aril__value *v = value_in(c, i);
        if (v->kind == ARIL__FROM_INPUT) { /* of a graph that is exported in part */
            const char *name = c->graph->g->inputs[v->from].name;
            c->model->status =
                aril__fail(ARIL_ERR_ARG,
                           "%s: %s: the outputs depend on the placeholder '%s', which is not among "
                           "the inputs",
                           c->model->what, c->op->name, name ? name : "?");
            return NULL;
        }
        if (!t || t->flags & ARIL__KEY) {
            aril__export_fail(c->model, "%s: draws random numbers, which cannot be exported",
                              c->op->name);
            return NULL;
        }
        ARIL_SCOPE;
        c->in[i] = aril__export_constant(c->model, t);
    }
    return c->in[i];
}

export_value *aril__export_in_as(export_call *c, int i, aril_dtype dtype)
{
    aril_tensor *t = aril__export_constant_in(c, i);
    if (!has(c, i) || dtype_in(c, i) == dtype) return aril__export_in(c, i);
    if (!t || t->numel > 1)
        return aril__export_cast(c, aril__export_in(c, i), dtype_in(c, i), dtype);
    ARIL_SCOPE;
    return aril__export_constant(c->model, aril_cast(t, dtype));
}

export_value *aril__export_cast(export_call *c, export_value *x, aril_dtype from, aril_dtype to)
{
    if (from == to || !x) return x;
    export_attr type = attr_int("to", aril__onnx_dtype_number(to));
    /* what is too large is infinity or NaN, and e8m0 rounds to nearest */
    if (to == ARIL_F8E4M3FNUZ || to == ARIL_F8E5M2 || to == ARIL_F8E5M2FNUZ)
        return put(c, "Cast", VALUES(x), ATTRIBUTES(type, attr_int("saturate", 0)));
    if (to == ARIL_F8E8M0)
        return put(c, "Cast", VALUES(x),
                   ATTRIBUTES(type, attr_int("saturate", 0), attr_text("round_mode", "nearest")));
    return put(c, "Cast", VALUES(x), ATTRIBUTES(type));
}

bool aril__export_wanted(const export_call *c, int i)
{
    const aril__graph *g = c->graph->g;
    aril__value_id v = c->node->out + (uint32_t)i;
    for (aril__node_id id = c->graph->node + 1; id < g->n_nodes; id++) {
        const aril__value_id *in = aril__graph_in(g, &g->nodes[id]);
        for (int k = 0; k < g->nodes[id].n_in; k++)
            if (in[k] == v) return true;
    }
    for (uint32_t k = 0; k < g->n_outputs; k++)
        if (g->outputs[k] == v) return true;
    for (uint32_t k = 0; k < g->n_effects; k++)
        if (g->effects[k].value == v) return true;
    return false;
}

/* ---- common nodes ---- */

/* Axes of a mask. */
static int axes_of(int64_t mask, int64_t *axes)
{
    int n = 0;
    for (int d = 0; d < ARIL_MAX_DIMS; d++)
        if (mask >> d & 1) axes[n++] = d;
    return n;
}

export_value *aril__export_reduce(export_call *c, const char *type, export_value *x, int64_t mask,
                                  bool keep)
{
    int64_t axes[ARIL_MAX_DIMS];
    int n = axes_of(mask, axes);
    if (!n) return put(c, "Identity", VALUES(x), NO_ATTRS); /* no axes would be all of them */
    if (c->opset >= 18 || strcmp(type, "ReduceSum") == 0)
        return put(c, type, VALUES(x, aril__export_ints(c, n, axes)),
                   ATTRIBUTES(attr_int("keepdims", keep)));
    return put(c, type, VALUES(x),
               ATTRIBUTES(attr_ints("axes", n, axes), attr_int("keepdims", keep)));
}

export_value *aril__export_reshape(export_call *c, export_value *x, int n, const int64_t *dim)
{
    int unknown = 0;
    int64_t given[ARIL_MAX_DIMS];
    bool empty = false;
    for (int d = 0; d < n; d++) {
        given[d] = dim[d] < 0 ? -1 : dim[d];
        unknown += dim[d] < 0;
        empty |= dim[d] == 0;
    }
    export_value *sizes = unknown <= 1 && !(unknown && empty) ? aril__export_ints(c, n, given)
                                                              : aril__export_sizes(c, n, dim);
    if (c->opset >= 14 && empty)
        return put(c, "Reshape", VALUES(x, sizes), ATTRIBUTES(attr_int("allowzero", 1)));
    return put(c, "Reshape", VALUES(x, sizes), NO_ATTRS);
}

export_value *aril__export_transpose(export_call *c, export_value *x, int n, const int *perm)
{
    int64_t axes[ARIL_MAX_DIMS];
    bool same = true;
    for (int d = 0; d < n; d++) {
        axes[d] = perm[d];
        same &= perm[d] == d;
    }
    return same ? x : put(c, "Transpose", VALUES(x), ATTRIBUTES(attr_ints("perm", n, axes)));
}

export_value *aril__export_unsqueeze(export_call *c, export_value *x, int n, const int64_t *axes)
{
    return put(c, "Unsqueeze", VALUES(x, aril__export_ints(c, n, axes)), NO_ATTRS);
}

export_value *aril__export_squeeze(export_call *c, export_value *x, int n, const int64_t *axes)
{
    return put(c, "Squeeze", VALUES(x, aril__export_ints(c, n, axes)), NO_ATTRS);
}

/* A position may be an unknown size, too. */
static export_value *position(export_call *c, int64_t at)
{
    return aril__size_is_named(at) ? aril__export_sizes(c, 1, &at) : aril__export_int1(c, at);
}

export_value *aril__export_slice(export_call *c, export_value *x, int axis, int64_t start,
                                 int64_t stop, int64_t step)
{
    export_value *first = position(c, start), *last = position(c, stop);
    export_value *at = aril__export_int1(c, axis);
    if (step == 1) return put(c, "Slice", VALUES(x, first, last, at), NO_ATTRS);
    return put(c, "Slice", VALUES(x, first, last, at, aril__export_int1(c, step)), NO_ATTRS);
}

export_value *aril__export_zeros(export_call *c, int n, const int64_t *dim, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *zero = aril_zeros(ARIL_SHAPE(1), dtype, aril_cpu());
    return put(c, "ConstantOfShape", VALUES(aril__export_sizes(c, n, dim)),
               ATTRIBUTES(attr_tensor("value", zero)));
}

export_value *aril__export_activation(export_call *c, export_value *x, int64_t activation)
{
    aril_dtype dtype = dtype_out(c, 0);
    switch (activation) {
    case ARIL_NO_ACTIVATION: return x;
    case ARIL_RELU: return put(c, "Relu", VALUES(x), NO_ATTRS);
    case ARIL_RELU6:
        return put(c, "Clip",
                   VALUES(x, aril__export_number(c, 0, dtype), aril__export_number(c, 6, dtype)),
                   NO_ATTRS);
    case ARIL_LEAKY_RELU:
        return put(c, "LeakyRelu", VALUES(x), ATTRIBUTES(attr_float("alpha", 0.01)));
    case ARIL_SIGMOID: return put(c, "Sigmoid", VALUES(x), NO_ATTRS);
    default: return put(c, "Tanh", VALUES(x), NO_ATTRS);
    }
}
