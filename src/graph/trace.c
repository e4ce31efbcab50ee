#include "graph/tracing.h"

#include "ops/shape/as_strided.h"
#include "ops/shape/copy.h"
#include "ops/shape/like.h"
#include "ops/shape/view.h"
#include "ops/shape/view_write.h"
#include "ops/table/rows.h"

#include <stdlib.h>
#include <string.h>

static aril__cold aril_status no_memory(void)
{
    return aril__fail(ARIL_ERR_MEMORY, "trace: out of memory");
}

/* ---- cells ---- */

static aril__cell *root_of(aril__cell *c)
{
    return c->root ? c->root : c;
}

static aril__cell *view_cell(aril__tracing *t, aril__cell *base, aril__node_id node)
{
    aril__cell *c = aril__cell_new(t, t->g->nodes[node].out);
    if (!c) return NULL;
    c->base = base;
    c->root = root_of(base);
    c->view = node;
    c->symbol.writes = &root_of(base)->version;
    c->seen = root_of(base)->version;
    return c;
}

/* ---- nodes ---- */

/* The module and the source line that applied a node. */
static void locate(aril__tracing *t, aril__node_id id)
{
    aril__graph *g = t->g;
    const aril__frame *frame = aril__self()->frame;
    const void *what = frame ? frame->what : NULL;
    const void *within = frame && frame->up ? frame->up->what : NULL;
    char text[256];
    const char *path = aril__self()->path;
    if (frame != t->frame || what != t->what || within != t->within || path != t->path) {
        t->frame = frame; /* frames are reused */
        t->path = path;
        t->what = what;
        t->within = within;
        t->scope = 0;
        size_t n = 0;
        if (frame && aril__hook.where) {
            text[0] = '\0';
            aril__hook.where(frame, text, sizeof text);
            n = strcspn(text, " ");
            if (n && text[n - 1] == ':') n--; /* of a module that has no path */
            text[n] = '\0';
        }
        if (path && *path) snprintf(text + n, sizeof text - n, n ? ".%s" : "%s", path);
        if (n || path) t->scope = aril__graph_text(g, text);
    }
    aril__tracer *self = aril__tracing_tracer(t);
    if (self->label && !self->label_text) self->label_text = aril__graph_text(g, self->label);
    g->nodes[id].scope = t->scope;
    g->nodes[id].label = self->label_text;
    aril__graph_locate(g, id);
}

static aril__node_id add_node(aril__tracing *t, const aril__op *op, int n_in,
                              const aril__value_id *in, const void *attrs)
{
    aril__node_id id = aril__graph_node_add(t->g, op, n_in, in, attrs);
    if (!id) return 0;
    t->g->nodes[id].region = aril__recomputation;
    locate(t, id);
    return id;
}

/* A node with one output like `like`; returns the value. */
static aril__value_id add_value(aril__tracing *t, const aril__op *op, int n_in,
                                const aril__value_id *in, const void *attrs, aril__value_id like)
{
    aril__node_id id = add_node(t, op, n_in, in, attrs);
    if (!id) return 0;
    aril__value_id v = t->g->nodes[id].out;
    aril__value *to = &t->g->values[v], *from = &t->g->values[like];
    aril__value made = *from;
    made.kind = ARIL__FROM_NODE;
    made.from = to->from;
    made.index = to->index;
    *to = made;
    return v;
}

/* ---- views ---- */

static aril_status unknown_order(const aril__op *op)
{
    return aril__fail(ARIL_ERR_STATE,
                      "a write to a tensor and %s of it in a trace: only the run decides whether "
                      "the result is a view or a copy; write to a copy (aril_copy)",
                      op->name);
}

/* Repeats the view op on the present value of the base. */
static bool view_again(aril__tracing *t, aril__cell *c)
{
    aril__graph *g = t->g;
    aril__graph_node n = g->nodes[c->view];
    if (g->values[n.out].flags & ARIL__VALUE_OPEN) return unknown_order(n.op) == ARIL_OK;
    aril__value_id in[4], old = n.out;
    memcpy(in, aril__graph_in(g, &n), n.n_in * sizeof *in);
    in[0] = c->base->value;
    int64_t attrs[64];
    if (n.has_attrs) memcpy(attrs, aril__graph_attrs(g, &n), n.op->attr_size);
    aril__value_id v = add_value(t, n.op, n.n_in, in, n.has_attrs ? attrs : NULL, old);
    if (!v) return false;
    c->value = v;
    c->seen = root_of(c)->version;
    return true;
}

/* The present value of a cell; 0 with an error. */
static aril__value_id value_of(aril__tracing *t, aril__cell *c)
{
    unsigned version = root_of(c)->version;
    if (!c->base || c->seen == version) return c->value;
    size_t n = 0;
    for (const aril__cell *v = c; v->base && v->seen != version; v = v->base) n++;
    aril__cell **stale = aril__malloc(n * sizeof *stale);
    if (!stale) return no_memory() == ARIL_OK;
    for (size_t i = n; i-- > 0; c = c->base) stale[i] = c;
    bool fits = true;
    for (size_t i = 0; i < n && fits; i++) fits = view_again(t, stale[i]); /* from the base on */
    aril__value_id value = fits ? stale[n - 1]->value : 0;
    free(stale);
    return value;
}

/* ---- writes ---- */

/* Views in which several elements may be the same one of their base. */
static bool may_overlap(const aril__op *op)
{
    return op == &aril__op_as_strided || op == &aril__op_expand_like ||
           strcmp(op->name, "expand") == 0 || strcmp(op->name, "unfold_view") == 0;
}

/* Gives a cell a new value, and its bases the values in which its part is replaced. The part of a
 * view whose elements may overlap is replaced in the base of that: only there each is one element.
 * What is between them is computed anew when it is used. */
static aril_status store(aril__tracing *t, aril__cell *c, aril__value_id v)
{
    aril__graph *g = t->g;
    unsigned version = root_of(c)->version + 1;
    while (c->base) {
        aril__graph_node n = g->nodes[c->view];
        if (g->values[n.out].flags & ARIL__VALUE_OPEN) return unknown_order(n.op);
        struct view_write_attrs a = aril__view_write_attrs(n.op, aril__graph_attrs(g, &n));
        aril__cell *to = c->base;
        for (; to->base && may_overlap(g->nodes[to->view].op); to = to->base) {
            n = g->nodes[to->view];
            aril_status s = aril__view_write_extend(&a, n.op, aril__graph_attrs(g, &n));
            if (s < 0) return s;
        }
        aril__value_id base = value_of(t, to);
        if (!base) return aril__latest_status();
        c->value = v;
        c->seen = version;
        v = add_value(t, &aril__op_view_write, 2, (aril__value_id[]){ base, v }, &a, base);
        if (!v) return ARIL_ERR_MEMORY;
        c = to;
    }
    c->value = v;
    c->version = version;
    return ARIL_OK;
}

/* ---- tensors from outside ---- */

/* Whether t covers its whole storage in row-major order, so that its elements are the memory. */
static bool covers(const aril_tensor *t)
{
    return t->offset == 0 && aril__is_dense(t) &&
           aril__dtype_bytes((aril_dtype)t->dtype, t->numel) == t->storage->bytes;
}

static bool same_geometry(const aril_tensor *a, const aril_tensor *b)
{
    return a->dtype == b->dtype && a->offset == b->offset &&
           aril__same_dims(a->ndim, a->dim, b->ndim, b->dim) &&
           aril__same_dims(a->ndim, a->stride, b->ndim, b->stride);
}

/* A view of a cell whose value is row-major, as the strides of `like` say. */
static aril__cell *strided_cell(aril__tracing *t, aril__cell *base, const aril_tensor *like)
{
    struct as_strided_attrs a = { .ndim = { like->ndim }, .offset = { like->offset } };
    memcpy(a.dim, like->dim, (size_t)like->ndim * sizeof *a.dim); /* the rest is not set */
    memcpy(a.stride, like->stride, (size_t)like->ndim * sizeof *a.stride);
    aril__value_id in[1] = { value_of(t, base) };
    aril__node_id id = in[0] ? add_node(t, &aril__op_as_strided, 1, in, &a) : 0;
    if (!id || !aril__graph_describe(t->g, t->g->nodes[id].out, like)) return NULL;
    return view_cell(t, base, id);
}

/* A header over a whole storage, as one row of elements. */
static aril_tensor *whole(const aril_tensor *of)
{
    aril__thread *th = aril__self();
    size_t size = aril__dtype_bytes((aril_dtype)of->dtype, 1);
    int64_t n = size ? (int64_t)(of->storage->bytes / size) : 0;
    aril_tensor *t = aril__tensor_header(th, (aril_dtype)of->dtype, 1, &n);
    if (!t) return NULL;
    atomic_fetch_add_explicit(&of->storage->refs, 1, memory_order_relaxed);
    t->storage = of->storage;
    return t;
}

static aril__cell *state_cell(aril__tracing *t, aril_tensor *x)
{
    aril__value_id v = aril__graph_state(t->g, x, aril__trace_name_of(t, x));
    return v ? aril__cell_outside(t, v, ARIL__CELL_FROM_STATE, t->g->n_states - 1) : NULL;
}

/* The cell of memory that was not met before. */
static aril__cell *first_cell(aril__tracing *t, aril_tensor *x)
{
    bool all =
        x->offset == 0 && aril__dtype_bytes((aril_dtype)x->dtype, x->numel) == x->storage->bytes;
    if (aril__is_number(x) || (all && aril__is_packed(x))) {
        aril__cell *c = state_cell(t, x);
        return c && aril__map_put(&t->storages, x->storage, c) ? c : NULL;
    }
    aril_tensor *memory = whole(x);
    aril__cell *base = memory ? state_cell(t, memory) : NULL;
    if (memory) aril__tensor_release(aril__self(), memory);
    return base && aril__map_put(&t->storages, x->storage, base) ? strided_cell(t, base, x) : NULL;
}

/* The tensor that a cell from outside stands for. */
static const aril_tensor *tensor_of(aril__tracing *t, const aril__cell *c)
{
    return c->origin == ARIL__CELL_FROM_STATE ? t->g->states[c->index].tensor : c->of;
}

static aril__cell *shared_cell(aril__tracing *t, aril__cell *root, aril_tensor *x)
{
    const aril_tensor *first = tensor_of(t, root);
    if (first && same_geometry(first, x)) return root;
    if (first && first->dtype == x->dtype && covers(first)) return strided_cell(t, root, x);
    aril__fail(ARIL_ERR_UNSUPPORTED,
               "trace: two tensors share memory in a way that a program cannot keep apart (another "
               "dtype, or a memory format other than row-major); use a copy of one of them");
    return NULL;
}

/* A number of the host joins other devices by its flags, so each header has its own cell. */
static aril__cell *cell_of_tensor(aril__tracing *t, aril_tensor *x)
{
    aril__cell *c = aril__map_find(&t->tensors, x);
    if (c) return c;
    if (x->node && !(x->node->flags & ARIL__NODE_LEAF) && !aril__self()->mode.no_grad) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_STATE,
                   "trace: a tensor %s that was computed outside the traced function carries its "
                   "gradient graph in; compute it inside, or pass aril_detach of it",
                   aril__text(text, x));
        return NULL;
    }
    aril__cell *root = aril__map_find(&t->storages, x->storage);
    c = root ? shared_cell(t, root, x) : first_cell(t, x);
    if (c && c->origin != ARIL__CELL_FROM_STATE) { /* keep the header: its address is the key */
        if (!aril__graph_state(t->g, x, NULL)) return NULL;
    }
    return c && aril__trace_meet(t, x) && aril__map_put(&t->tensors, x, c) ? c : NULL;
}

/* The cell of a captured key that is drawn again; NULL: there is none. */
static aril__cell *captured_before(const aril__tracing *t, const aril_tensor *key)
{
    for (uint32_t i = t->n_captured; aril__redrawn && i-- > 0;)
        if (t->captured[i]->flags & ARIL__KEY &&
            memcmp(aril__ptr(t->captured[i]), aril__ptr(key), 2 * sizeof(uint64_t)) == 0)
            return aril__map_find(&t->tensors, t->captured[i]);
    return NULL;
}

/* A tensor from outside a body becomes an input of it. */
static aril__cell *captured_cell(aril__tracing *t, aril_tensor *x)
{
    aril__cell *c = aril__map_find(&t->tensors, x);
    if (!c && x->flags & ARIL__KEY) c = captured_before(t, x);
    if (c) return c;
    if (!aril__graph_grow(&t->captured, t->n_captured, &t->cap_captured, sizeof *t->captured))
        return NULL;
    aril__value_id v = aril__graph_input(t->g, x, NULL);
    c = v ? aril__cell_outside(t, v, ARIL__CELL_FROM_INPUT, t->g->n_inputs - 1) : NULL;
    if (!c || !aril__map_put(&t->tensors, x, c)) return NULL;
    t->captured[t->n_captured++] = aril__tensor_keep(x);
    return c;
}

static bool is_inner(const aril__tracing *t, const aril_tensor *x)
{
    return x->flags & ARIL__SYMBOLIC &&
           ((aril__cell *)x->u.symbol)->symbol.owner == &t->cells->base;
}

static aril__cell *cell_of(aril__tracing *t, aril_tensor *x)
{
    if (t->outer && !is_inner(t, x)) return captured_cell(t, x);
    if (!(x->flags & ARIL__SYMBOLIC)) return cell_of_tensor(t, x);
    aril__cell *c = x->u.symbol;
    if (c->symbol.owner == &t->cells->base) return c;
    aril__fail(ARIL_ERR_STATE, "a symbolic tensor was used in another graph than its own");
    return NULL;
}

/* ---- operands ---- */

/* Whether only the trace keeps a symbolic tensor: its scope has ended. */
static bool has_ended(const aril__tracing *t, const aril_tensor *x)
{
    return !t->defines && x->flags & ARIL__HELD && x->flags & ARIL__SYMBOLIC &&
           atomic_load_explicit(&x->refs, memory_order_relaxed) == 1;
}

aril__value_id aril__tracing_value(aril__tracing *t, aril_tensor *x)
{
    if (!x) return 0;
    if (aril__unlikely(has_ended(t, x))) return aril__fail_ended(NULL, -1, x) == ARIL_OK;
    if (x->flags & ARIL__SHAPE_ONLY ||
        (x->flags & ARIL__CONSTANT && !aril__map_find(&t->tensors, x)))
        return aril__graph_constant(t->g, x);
    if (x->flags & ARIL__KEY && !t->outer) {
        if (t->defines) return aril__trace_defined_key(t, x);
        aril__cell *key = aril__map_find(&t->tensors, x);
        return key ? key->value : aril__graph_constant(t->g, x);
    }
    aril__cell *c = cell_of(t, x);
    return c ? value_of(t, c) : 0;
}

/* ---- one call ---- */

/* The memory order of a result is a kernel's to decide, or that of such a value. */
static bool is_loose(aril__tracing *t, const aril__call *c, int i, const aril__value_id *in)
{
    const aril__op *op = c->op;
    const aril__value *values = t->g->values;
    if (ARIL__IS_VIEW(op->out[i])) return values[in[op->out[i] - 1]].flags & ARIL__VALUE_LOOSE;
    if (c->out[i].ndim < 2) return false;
    if (!op->number) return true; /* control flow */
    if (c->out[i].ndim > 2 && c->device && !(op->flags & ELEMENTWISE) &&
        aril__rows_prepare(c->device, op, c->type))
        return true;
    for (int k = 0; k < c->n_in && op->flags & (KEEPS_ORDER | KEEPS_CHANNELS); k++)
        if (in[k] && values[in[k]].flags & ARIL__VALUE_LOOSE) return true;
    return false;
}

/* A reshape copies where the memory order of its input does not allow a view. */
static bool is_open(const aril__tracing *t, const aril__call *c, const aril__value_id *in)
{
    if (!aril__is_reshape(c->op)) return false;
    aril__meta o = c->out[0];
    return t->g->values[in[0]].flags & ARIL__VALUE_LOOSE || !aril__view_strides(c->in[0], &o);
}

/* Describes result i of a call and returns its header. */
static aril_tensor *result(aril__tracing *t, const aril__call *c, int i, aril__node_id node,
                           const aril__value_id *in)
{
    aril__graph *g = t->g;
    aril__value_id v = g->nodes[node].out + (uint32_t)i;
    int kind = c->op->out[i];
    aril__cell *to;
    if (ARIL__IS_VIEW(kind)) {
        aril__cell *base = cell_of(t, c->in[kind - 1]);
        to = base ? view_cell(t, base, node) : NULL;
    } else {
        to = aril__cell_new(t, v);
    }
    aril_tensor *x = to ? aril__symbolic_out(aril__self(), c, i, to) : NULL;
    if (!x) return NULL;
    if (!aril__graph_describe(g, v, x)) {
        aril__tensor_release(aril__self(), x);
        return NULL;
    }
    if (is_loose(t, c, i, in)) g->values[v].flags |= ARIL__VALUE_LOOSE;
    if (ARIL__IS_VIEW(kind) && is_open(t, c, in)) g->values[v].flags |= ARIL__VALUE_OPEN;
    return x;
}

/* Input i of the call was changed in place: `v` is its new value. */
static aril_status changed(aril__tracing *t, aril_tensor *x, aril__value_id v)
{
    aril__cell *c = cell_of(t, x);
    if (!c || !aril__graph_describe(t->g, v, x)) return ARIL_ERR_MEMORY;
    return store(t, c, v);
}

/* The result of an in-place form becomes the value of `dest`. */
static aril_status write_to(aril__tracing *t, aril_tensor *dest, aril__value_id v)
{
    aril__graph *g = t->g;
    aril__cell *c = cell_of(t, dest);
    if (!c) return aril__latest_status();
    if (g->values[v].dtype != dest->dtype) {
        struct cast_attrs a = { { dest->dtype } };
        v = add_value(t, &aril__op_cast, 1, &v, &a, v);
        if (!v) return ARIL_ERR_MEMORY;
        g->values[v].dtype = dest->dtype;
    }
    g->values[v].tensor_flags = dest->flags & (ARIL__WEAK | ARIL__NUMBER);
    if (g->values[v].tensor_flags & ARIL__CONSTANT)
        g->values[v].tensor_flags ^= ARIL__CONSTANT | ARIL__STATE;
    return store(t, c, v);
}

/* Symbolic tensors belong to a graph that is defined. Those of other traces are kept to its end,
 * when their nodes are taken from them: a tensor that was written to is saved by nodes before its
 * own, which would keep each other. */
static aril_status keep_symbol(aril__tracing *t, aril_tensor *x)
{
    if (!aril__graph_grow(&t->kept, t->n_kept, &t->cap_kept, sizeof *t->kept))
        return ARIL_ERR_MEMORY;
    t->kept[t->n_kept++] = aril__tensor_keep(x);
    x->flags |= ARIL__HELD;
    return ARIL_OK;
}

static aril_status defined_write(const aril__op *op, const char *suffix)
{
    return aril__fail(ARIL_ERR_STATE,
                      "%s%s: a graph does not change tensors while it is defined; use "
                      "aril_variable and aril_assign",
                      op->name, suffix);
}

/* Whether a tensor stands for something outside the graph: a tensor, a variable, an input. */
static bool is_outside(const aril_tensor *x)
{
    return x->storage || root_of((aril__cell *)x->u.symbol)->origin != ARIL__CELL_INSIDE;
}

/* Whether a call changes an input that stands for something outside the graph. */
static bool changes_outside(const aril__tracing *t, const aril__call *c)
{
    for (int i = 0; i < c->n_in; i++) {
        bool changes = c->op->writes && aril__changes(c->op, i);
        for (int k = 0; k < c->op->n_out; k++) changes |= c->op->out[k] == WRITES(i);
        if (changes && c->in[i] && (!is_inner(t, c->in[i]) || is_outside(c->in[i]))) return true;
    }
    return false;
}

static aril_status body_write(const aril__op *op, bool in_place)
{
    bool fills = in_place && strcmp(op->name, "full_like") == 0; /* aril_fill_ and aril_zero_ */
    return aril__fail(
        ARIL_ERR_STATE,
        "%s%s: a branch or the body of a loop cannot change a tensor from outside it; "
        "return the new value",
        fills ? "fill" : op->name, in_place ? "_" : "");
}

/* An error if a call must not change what it would: a graph that is defined changes nothing, and a
 * body nothing outside it. */
static aril_status check_changes(const aril__tracing *t, const aril__call *c,
                                 const aril_tensor *dest)
{
    if (t->defines && dest && is_outside(dest)) return defined_write(c->op, "_");
    if (t->defines && changes_outside(t, c)) return defined_write(c->op, "");
    if (!t->outer) return ARIL_OK;
    bool changes = dest && (!is_inner(t, dest) || is_outside(dest));
    return changes || changes_outside(t, c) ? body_write(c->op, dest != NULL) : ARIL_OK;
}

/* Results and writes of node `id`. out[] gets references. */
static aril_status finish_call(aril__tracing *t, const aril__call *c, aril_tensor *dest,
                               aril__node_id id, const aril__value_id *in, aril_tensor **out)
{
    const aril__op *op = c->op;
    aril_status s = ARIL_OK;
    aril__value_id first = t->g->nodes[id].out;
    for (int i = 0; i < op->n_out && s == ARIL_OK; i++) {
        int kind = op->out[i];
        out[i] = NULL;
        if (ARIL__IS_WRITE(kind)) {
            aril_tensor *x = c->in[kind - 32];
            if (!x) {
                t->g->values[first + (uint32_t)i].kind = ARIL__NO_VALUE;
                continue;
            }
            s = changed(t, x, first + (uint32_t)i);
            if (s == ARIL_OK) out[i] = aril__tensor_keep(x);
            continue;
        }
        aril_tensor *x = result(t, c, i, id, in);
        if (!x) return aril__latest_status();
        if (i == 0 && dest) {
            aril__tensor_release(aril__self(), x);
            s = write_to(t, dest, first);
            if (s == ARIL_OK) out[0] = aril__tensor_keep(dest);
        } else {
            out[i] = x;
            s = keep_symbol(t, x);
        }
    }
    for (int k = op->n_out; k < t->g->nodes[id].n_out && s == ARIL_OK; k++) {
        int i = aril__graph_changed(t->g, &t->g->nodes[id], k);
        s = changed(t, c->in[i], first + (uint32_t)k);
    }
    return s;
}

/* An error if an attribute is a size of another graph. */
static aril_status check_sizes(const aril__tracing *t, const aril__call *c)
{
    for (int i = 0; i < c->op->n_attrs && c->attrs; i++) {
        const aril__attr *a = &c->op->attrs[i];
        const int64_t *at = (const void *)((const char *)c->attrs + a->offset);
        for (int k = 0; k < a->count && a->type == ARIL__I64; k++) {
            if (!aril__size_is_named(at[k])) continue;
            if (!aril__size_is_of(t->g->sizes, at[k]))
                return aril__fail(ARIL_ERR_STATE,
                                  "%s: '%s' is a size that only a run of another graph knows",
                                  c->op->name, a->name);
            aril__size_passed_on(t->g->sizes, at[k]);
        }
    }
    if (!t->defines) return ARIL_OK;
    aril_status s = t->g->sizes->asked ? aril__symbolic_roots_computed(c) : ARIL_OK;
    return s < 0 ? s : aril__symbolic_attrs_computed(c->op, c->attrs);
}

static aril_status add_call(aril__tracer *self, const aril__call *c, aril_tensor *dest,
                            aril_tensor **out)
{
    aril__tracing *t = (aril__tracing *)self;
    enum { FEW = 32 };
    aril__value_id few[FEW], *in = few;
    aril_status s = ARIL_OK;
    if ((s = check_changes(t, c, dest)) < 0 || (s = check_sizes(t, c)) < 0) return s;
    if (c->n_in > FEW && !(in = aril__malloc((size_t)c->n_in * sizeof *in))) return no_memory();
    for (int i = 0; i < c->n_in && s == ARIL_OK; i++) {
        in[i] = aril__tracing_value(t, c->in[i]);
        if (c->in[i] && !in[i]) s = aril__latest_status();
    }
    if (s == ARIL_OK && dest && !cell_of(t, dest)) s = aril__latest_status();
    aril__node_id id = s == ARIL_OK ? add_node(t, c->op, c->n_in, in, c->attrs) : 0;
    if (s == ARIL_OK) s = id ? finish_call(t, c, dest, id, in, out) : ARIL_ERR_MEMORY;
    for (int i = 0; i < c->op->n_out && s < 0; i++)
        if (out[i]) aril__tensor_release(aril__self(), out[i]);
    if (in != few) free(in);
    return s;
}

/* Once memory is out, a trace is of no use: its function is to end soon. */
static aril_status apply(aril__tracer *self, const aril__call *c, aril_tensor *dest,
                         aril_tensor **out)
{
    aril__tracing *t = (aril__tracing *)self, *whole = t;
    while (whole->outer) whole = whole->outer;
    for (int i = 0; i < c->op->n_out; i++) out[i] = NULL;
    if (aril__unlikely(whole->no_memory)) return ARIL_ERR_MEMORY;
    aril_status s = add_call(self, c, dest, out);
    if (s == ARIL_ERR_MEMORY && !whole->defines) whole->no_memory = true;
    return s;
}

static aril_status require(aril__tracer *self, const aril__requirement *q)
{
    return aril__graph_require(((aril__tracing *)self)->g, q) ? ARIL_OK : ARIL_ERR_MEMORY;
}

/* ---- states ---- */

/* Whether only the trace refers to a tensor: the traced code created it, and in each run anew.
 * Borrowed memory is outside. */
static bool is_private(const aril_tensor *x)
{
    return atomic_load(&x->refs) == 1 && x->storage && atomic_load(&x->storage->refs) == 1 &&
           !x->storage->deleter;
}

static int by_target(const void *x, const void *y)
{
    const aril__effect *a = x, *b = y;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    return a->to < b->to ? -1 : a->to > b->to;
}

static aril_status finish_states(aril__tracing *t)
{
    aril__graph *g = t->g;
    for (size_t i = 0; i < t->storages.slots; i++) {
        aril__cell *c = t->storages.at[i];
        if (!c || c->value == c->initial) continue;
        if (c->origin == ARIL__CELL_FROM_STATE && is_private(g->states[c->index].tensor)) continue;
        enum aril__effect_kind kind =
            c->origin == ARIL__CELL_FROM_INPUT ? ARIL__WRITE_INPUT : ARIL__WRITE_STATE;
        if (!aril__graph_effect(g, kind, c->index, c->value)) return ARIL_ERR_MEMORY;
    }
    if (g->n_effects) qsort(g->effects, g->n_effects, sizeof *g->effects, by_target);
    return ARIL_OK;
}

/* ---- inputs ---- */

/* The unknown size that a negative number stands for. */
static int64_t named_unknown(aril__tracing *t, int64_t given)
{
    if (given == -1) return aril__size_new(t->g->sizes, NULL);
    aril__size_passed_on(t->g->sizes, given);
    if (aril__size_is_of(t->g->sizes, given)) return given;
    for (uint32_t i = 0; i < t->n_named; i++)
        if (t->named[i].given == given) return t->named[i].unknown;
    if (!aril__graph_grow(&t->named, t->n_named, &t->cap_named, sizeof *t->named)) return -1;
    int64_t unknown = aril__size_new(t->g->sizes, NULL);
    t->named[t->n_named++] = (aril__named_size){ given, unknown };
    return unknown;
}

static aril_tensor *symbol_for(aril__tracing *t, const aril_tensor *like, const int64_t *dim,
                               aril__cell *c)
{
    aril__thread *th = aril__self();
    aril__sizes *before = th->sizes;
    th->sizes = t->g->sizes;
    aril_tensor *x = aril__symbolic_like(th, like, dim, c);
    th->sizes = before;
    if (x) x->flags |= like->flags & ARIL__WEAK;
    if (x && keep_symbol(t, x) < 0) {
        aril__tensor_release(aril__self(), x);
        return NULL;
    }
    return x;
}

aril_tensor *aril__tracing_snapshot(aril__tracing *t, aril_tensor *x)
{
    aril__thread *th = aril__self();
    if (aril__is_number(x) || x->flags & ARIL__SHAPE_ONLY || aril__tracing_defines(t)) return x;
    if (!th->mode.no_grad && aril__tape_hook.refresh(th, x) < 0) return aril__poison();
    aril__cell *c = aril__cell_new(t, aril__tracing_value(t, x));
    aril_tensor *now = c ? aril__give(th, symbol_for(t, x, x->dim, c)) : aril__poison();
    if (x->node && aril_tensor_status(now) == ARIL_OK) aril__bind(th, now, x->node, x->node_out);
    return now;
}

/* A header that describes an input. */
static bool sized_like(aril__tracing *t, const aril_tensor *like, const int64_t *dim,
                       aril_tensor *to)
{
    *to = *like;
    to->flags &= (uint16_t) ~(ARIL__WEAK | ARIL__NUMBER);
    for (int d = 0; d < like->ndim; d++) {
        to->dim[d] = dim[d] < 0 ? named_unknown(t, dim[d]) : dim[d];
        if (to->dim[d] == -1) return no_memory() == ARIL_OK;
        if (dim[d] < 0 && like->dim[d] >= 0)
            aril__size_set_traced(t->g->sizes, to->dim[d], like->dim[d]);
    }
    return true;
}

aril_tensor *aril__tracing_input(aril__tracing *t, const aril_tensor *like, const int64_t *dim,
                                 const char *name)
{
    aril_tensor sized;
    aril__graph *g = t->g;
    if (!sized_like(t, like, dim, &sized)) return NULL;
    aril__value_id v = aril__graph_input(g, &sized, name);
    aril__cell *c = v ? aril__cell_outside(t, v, ARIL__CELL_FROM_INPUT, g->n_inputs - 1) : NULL;
    if (!c || (like->storage && !aril__map_put(&t->storages, like->storage, c))) return NULL;
    c->of = like;
    return symbol_for(t, like, sized.dim, c);
}

aril_tensor *aril__tracing_shared(aril__tracing *t, const aril_tensor *like, aril_tensor *all)
{
    aril__graph *g = t->g;
    aril__cell *root = aril__map_find(&t->storages, like->storage);
    aril__value_id v = aril__graph_input(g, root ? like : all, NULL);
    if (!v) return NULL;
    if (!root) {
        root = aril__cell_outside(t, v, ARIL__CELL_FROM_INPUT, g->n_inputs - 1);
        if (!root || !aril__map_put(&t->storages, like->storage, root)) return NULL;
        root->of = all;
    }
    aril__cell *c = strided_cell(t, root, like);
    return c ? symbol_for(t, like, like->dim, c) : NULL;
}

aril_tensor *aril__whole_storage(const aril_tensor *of)
{
    return whole(of);
}

aril_tensor *aril__tracing_variable(aril__tracing *t, aril_tensor *state, const char *name)
{
    aril__value_id v = aril__graph_state(t->g, state, name);
    aril__cell *c = v ? aril__cell_outside(t, v, ARIL__CELL_FROM_STATE, t->g->n_states - 1) : NULL;
    return c ? symbol_for(t, state, state->dim, c) : NULL;
}

/* ---- lifetime ---- */

aril__tracing *aril__tracing_new(const char *name, bool defines)
{
    aril__tracing *t = aril__calloc(sizeof *t);
    aril__cells *c = t ? aril__cells_new(defines ? &t->tracer : NULL) : NULL;
    aril__graph *g = t && c ? aril__graph_new(name) : NULL;
    if (!g) {
        free(t);
        free(c);
        no_memory();
        return NULL;
    }
    t->cells = c;
    t->g = g;
    t->defines = defines;
    t->tracer.apply = apply;
    t->tracer.require = require;
    if (!defines) {
        t->tracer.drew = aril__trace_drew;
        t->tracer.set = aril__trace_set;
        t->tracer.freed = aril__trace_freed;
        t->tracer.leaf = aril__trace_leaf;
        t->tracer.reached = aril__trace_reached;
        t->tracer.watch = aril__trace_watched;
        t->tracer.depend = aril__trace_depends;
        t->tracer.reads = aril__trace_reads_object;
        t->tracer.name = aril__trace_named;
        t->tracer.after = aril__trace_epilogue;
    }
    g->sizes = &t->tracer.sizes;
    if (defines) aril__sizes_open(g->sizes);
    return t;
}

/* ---- bodies ---- */

static aril_status body_leaf(aril__tracer *self, struct aril__node *leaf)
{
    (void)self;
    if (leaf->flags & ARIL__NODE_TRACED) return ARIL_OK;
    return aril__fail(ARIL_ERR_STATE,
                      "backward: a branch or the body of a loop cannot use the .grad of a tensor "
                      "from outside it; return gradients that aril_gradients computes, or call "
                      "aril_backward after the branch or loop");
}

static aril_status body_reached(aril__tracer *self, struct aril__node *leaf)
{
    aril__tracing *outer = ((aril__tracing *)self)->outer;
    return outer->tracer.reached ? outer->tracer.reached(&outer->tracer, leaf) : ARIL_OK;
}

/* Draws count as those of the outermost trace; a loop would repeat them. */
static void body_drew(aril__tracer *self, aril_generator *of, aril_rng_state before,
                      aril_tensor *key)
{
    aril__tracing *t = (aril__tracing *)self;
    while (t->outer) t = t->outer;
    if (t->tracer.drew) t->tracer.drew(&t->tracer, of, before, key);
}

/* The trips of a loop would be seeded alike in plain C, but not in a run. */
static void body_set(aril__tracer *self, aril_generator *of, const uint64_t *seed)
{
    aril__tracing *t = (aril__tracing *)self;
    while (t->outer) t = t->outer;
    if (seed)
        aril__fail(ARIL_ERR_UNSUPPORTED,
                   "seed: a branch or the body of a loop cannot seed a generator in a trace; seed "
                   "it before");
    else if (t->tracer.set)
        t->tracer.set(&t->tracer, of, NULL);
}

static aril_status body_watch(aril__tracer *self, void *at, size_t bytes)
{
    aril__tracing *outer = ((aril__tracing *)self)->outer;
    return outer->tracer.watch ? outer->tracer.watch(&outer->tracer, at, bytes) : ARIL_OK;
}

static aril_status body_depend(aril__tracer *self, const void *at, size_t bytes)
{
    aril__tracing *outer = ((aril__tracing *)self)->outer;
    return outer->tracer.depend ? outer->tracer.depend(&outer->tracer, at, bytes) : ARIL_OK;
}

static aril_status body_reads(aril__tracer *self, aril__lifetime *of)
{
    aril__tracing *outer = ((aril__tracing *)self)->outer;
    return outer->tracer.reads ? outer->tracer.reads(&outer->tracer, of) : ARIL_OK;
}

static aril_status body_after(aril__tracer *self, void (*fn)(void *ctx, const void *data),
                              void *ctx, const void *data, size_t bytes)
{
    (void)self, (void)fn, (void)ctx, (void)data, (void)bytes;
    return aril__fail(ARIL_ERR_STATE,
                      "a branch or the body of a loop cannot step an optimizer or advance a "
                      "schedule: a program does that once, at the end of its run");
}

aril__tracing *aril__tracing_body(aril__tracing *outer, const char *name)
{
    enum { DEEPEST = 64 };
    if (outer->depth == DEEPEST) {
        aril__fail(ARIL_ERR_UNSUPPORTED,
                   "%s: branches and bodies of loops are nested more than %d deep in a trace; a "
                   "function that calls itself has to end by a condition of plain C",
                   name, DEEPEST);
        return NULL;
    }
    aril__tracing *t = aril__tracing_new(name, false);
    if (!t) return NULL;
    t->outer = outer;
    t->depth = outer->depth + 1;
    t->g->sizes = outer->g->sizes;
    t->tracer.leaf = body_leaf;
    t->tracer.reached = body_reached;
    t->tracer.drew = body_drew;
    t->tracer.set = body_set;
    t->tracer.freed = NULL;
    t->tracer.watch = body_watch;
    t->tracer.depend = body_depend;
    t->tracer.reads = body_reads;
    t->tracer.after = body_after;
    return t;
}

int aril__tracing_captures(const aril__tracing *t, aril_tensor *const **of)
{
    *of = t->captured;
    return (int)t->n_captured;
}

bool aril__tracing_capture(aril__tracing *t, aril_tensor *x)
{
    return captured_cell(t, x) != NULL;
}

bool aril__tracing_own(aril__tracing *t, void *memory)
{
    if (!memory || !aril__graph_grow(&t->memory, t->n_memory, &t->cap_memory, sizeof *t->memory)) {
        free(memory);
        return false;
    }
    t->memory[t->n_memory++] = memory;
    return true;
}

aril__tracing *aril__tracing_now(int n, aril_tensor *const *of)
{
    aril__tracer *now = aril__self()->tracer;
    if (now) return now->apply == apply ? (aril__tracing *)now : NULL;
    for (int i = 0; i < n; i++) {
        aril__tracing *t = of[i] ? aril__tracing_of(of[i]) : NULL;
        if (t) return t;
    }
    return NULL;
}

static void release_kept(aril__tracing *t)
{
    aril__thread *th = aril__self();
    for (uint32_t i = 0; i < t->n_kept; i++) {
        if (t->kept[i]->flags & ARIL__SYMBOLIC) aril__bind(th, t->kept[i], NULL, 0);
        t->kept[i]->flags &= (uint16_t)~ARIL__HELD;
    }
    aril__trace_find_left(t);
    for (uint32_t i = t->n_kept; i-- > 0;) aril__tensor_release(th, t->kept[i]);
    t->n_kept = 0;
}

void aril__tracing_free(aril__tracing *t)
{
    if (!t) return;
    t->cells->base.tracer = NULL;
    release_kept(t);
    aril__graph_free(t->g);
    aril__sizes_free(&t->tracer.sizes);
    aril__watches_free(&t->watches);
    aril__symbol_release(&(aril__symbol){ .owner = &t->cells->base });
    aril__map_free(&t->tensors);
    aril__map_free(&t->storages);
    aril__map_free(&t->leaves);
    free(t->leaf);
    free(t->starts);
    free(t->drawn);
    free(t->named);
    free(t->kept);
    aril__trace_drop_left(t);
    aril__trace_restore_replaced(t, ARIL_ERR_STATE);
    for (uint32_t i = 0; i < t->n_captured; i++) aril__tensor_release(aril__self(), t->captured[i]);
    for (uint32_t i = 0; i < t->n_memory; i++) free(t->memory[i]);
    for (uint32_t i = 0; i < t->n_names; i++) free(t->names[i].name);
    free(t->names);
    free(t->captured);
    free(t->memory);
    free(t);
}

aril__tracing *aril__tracing_of(const aril_tensor *x)
{
    if (!(x->flags & ARIL__SYMBOLIC) || !x->u.symbol) return NULL;
    const aril__cells *c = (const aril__cells *)((const aril__cell *)x->u.symbol)->symbol.owner;
    return (aril__tracing *)c->base.tracer;
}

void aril__tracing_set_owner(aril__tracing *t, void *owner)
{
    t->owner = owner;
}

void *aril__tracing_owner(const aril__tracing *t)
{
    return t->owner;
}

aril__tracer *aril__tracing_tracer(aril__tracing *t)
{
    return &t->tracer;
}

aril__graph *aril__tracing_graph(aril__tracing *t)
{
    return t->g;
}

bool aril__tracing_defines(const aril__tracing *t)
{
    while (t->outer) t = t->outer;
    return t->defines;
}

aril__traced_call aril__tracing_begin(aril__tracing *t)
{
    aril__traced_call c = { .scope = aril_scope_begin() };
    c.before = aril__trace(&t->tracer);
    aril__self()->sizes = t->g->sizes; /* of the outermost trace */
    return c;
}

aril_status aril__tracing_end(aril__tracing *t, aril__traced_call *c, aril_status s, int n_out,
                              aril_tensor *const *out)
{
    for (int i = 0; i < n_out && s == ARIL_OK; i++) {
        aril__value_id v = aril__tracing_value(t, out[i]);
        s = v && aril__graph_output(t->g, v) ? ARIL_OK : aril__latest_status();
    }
    s = aril__trace_finish_leaves(t, s);
    aril__trace_restore_nodes(t);
    if (!t->outer) s = aril__trace_finish_generators(t, s);
    if (s == ARIL_OK) s = aril__trace_check_host(t);
    aril__trace_restore_host(t);
    aril__trace(c->before);
    if (t->outer) aril__self()->sizes = c->before ? t->g->sizes : NULL;
    aril_guard_end(&c->scope); /* what the traced code created ends here */
    release_kept(t);
    if (t->outer) return s;
    s = aril__trace_restore_replaced(t, s);
    if (s == ARIL_OK) s = aril__trace_check_left(t);
    if (s == ARIL_OK) s = aril__trace_fix_keys(t);
    return s == ARIL_OK ? finish_states(t) : s;
}

static void share_sizes(aril__graph *g, aril__sizes *sizes)
{
    g->sizes = sizes;
    for (uint32_t i = 0; i < g->n_bodies; i++) share_sizes(g->bodies[i], sizes);
}

aril__graph *aril__tracing_take(aril__tracing *t, aril__watches *watches)
{
    aril__graph *g = t->g;
    if (t->outer) { /* its sizes are those of the whole */
        t->g = NULL;
        return g;
    }
    g->own_sizes = t->tracer.sizes;
    share_sizes(g, &g->own_sizes);
    t->tracer.sizes = (aril__sizes){ 0 };
    *watches = t->watches;
    t->watches = (aril__watches){ 0 };
    t->g = NULL;
    return g;
}
