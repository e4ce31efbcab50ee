/* The pass `algebra`: nodes whose result is a value that exists already, and nodes that undo
 * others. Only rules that keep every bit, also of NaN and -0. */
#include "graph/fuse.h"
#include "graph/passes.h"

#include "ops/shape/copy.h"
#include "ops/shape/like.h"
#include "ops/shape/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The node that produces a value; NULL: none. */
static const aril__graph_node *producer(const aril__graph *g, aril__value_id v)
{
    return v && g->values[v].kind == ARIL__FROM_NODE ? &g->nodes[g->values[v].from] : NULL;
}

static aril__value_id input(const aril__graph *g, const aril__graph_node *n, int i)
{
    return aril__graph_in(g, n)[i];
}

static bool is_op(const aril__graph_node *n, const char *name)
{
    return n && strcmp(n->op->name, name) == 0;
}

static bool is_any_op(const aril__graph_node *n, const char *const *names)
{
    for (; n && *names; names++)
        if (is_op(n, *names)) return true;
    return false;
}

/* Whether `by` can stand for v. */
static bool can_replace(const aril__graph *g, aril__value_id v, aril__value_id by)
{
    return by && aril__graph_alike(g, v, by) &&
           g->values[v].tensor_flags == g->values[by].tensor_flags;
}

/* ---- neutral elements ---- */

static bool constant_of(const aril__graph *g, aril__value_id v, double *value)
{
    if (!v || g->values[v].kind != ARIL__FROM_CONSTANT) return false;
    const aril_tensor *t = g->constants[g->values[v].from];
    if (!t->storage || t->numel != 1 || !t->storage->device->host_memory || t->flags & ARIL__KEY ||
        !aril__dtypes[t->dtype].computes)
        return false;
    aril__dtypes[t->dtype].load[ARIL__C_F64](value, aril__base(t), t->offset, 1, 1);
    return true;
}

/* Whether operand i of the node changes nothing. -0 + 0 is 0, but x + -0 and x - 0 are x. */
static bool is_neutral(const aril__graph *g, const aril__graph_node *n, int i)
{
    double c;
    if (!constant_of(g, input(g, n, i), &c)) return false;
    bool real = aril__is_float((aril_dtype)g->values[n->out].dtype);
    if (is_op(n, "mul")) return c == 1;
    if (is_op(n, "div")) return i == 1 && c == 1;
    if (is_op(n, "add")) return c == 0 && (!real || signbit(c));
    if (is_op(n, "sub")) return i == 1 && c == 0 && (!real || !signbit(c));
    return false;
}

static aril__value_id without_neutral(const aril__graph *g, const aril__graph_node *n)
{
    if (n->n_in != 2 || !n->op->formula) return 0;
    for (int i = 0; i < 2; i++)
        if (is_neutral(g, n, i)) return input(g, n, 1 - i);
    return 0;
}

/* ---- ops applied twice ---- */

static aril__value_id without_twice(const aril__graph *g, const aril__graph_node *n)
{
    static const char *const undoes_itself[] = { "neg", "bitwise_not", NULL };
    static const char *const changes_once[] = { "relu",  "relu6", "abs",  "floor", "ceil",
                                                "round", "trunc", "sign", NULL };
    if (n->n_in != 1) return 0;
    const aril__graph_node *inner = producer(g, input(g, n, 0));
    if (!inner || inner->op != n->op) return 0;
    if (is_any_op(n, undoes_itself)) return input(g, inner, 0);
    if (is_any_op(n, changes_once)) return inner->out;
    /* Of a number, the first application makes it boolean. */
    if (is_op(n, "logical_not") && g->values[input(g, inner, 0)].dtype == ARIL_BOOL)
        return input(g, inner, 0);
    return 0;
}

/* ---- shapes ---- */

static bool only_reshapes(const aril__graph_node *n)
{
    static const char *const names[] = { "reshape", "reshape_like", "flatten",
                                         "squeeze", "unsqueeze",    NULL };
    return is_any_op(n, names);
}

/* The first value of a chain of reshapes that has the shape of its last. */
static aril__value_id without_reshapes(const aril__graph *g, const aril__graph_node *n)
{
    enum { MOST = 16 };
    aril__value_id found = 0, v = n->out;
    for (int i = 0; i < MOST && only_reshapes(producer(g, v)); i++) {
        v = input(g, producer(g, v), 0);
        if (can_replace(g, n->out, v)) found = v;
    }
    return found;
}

static aril__value_id without_copy(const aril__graph *g, const aril__graph_node *n)
{
    static const char *const names[] = { "copy", "expand", "expand_like", "cast", NULL };
    return is_any_op(n, names) ? input(g, n, 0) : 0;
}

/* The first dtype holds no value that the second cannot. */
static bool is_exact(aril_dtype from, aril_dtype to)
{
    const aril__dtype_row *a = &aril__dtypes[from], *b = &aril__dtypes[to];
    if (!a->computes || !b->computes) return false;
    if (from == to || a->kind == ARIL__KIND_BOOL) return true;
    bool real = a->kind == ARIL__KIND_FLOAT;
    if (b->kind == ARIL__KIND_FLOAT) {
        if (real) return a->bits < b->bits; /* f16 and bf16 do not hold each other */
        return to == ARIL_F64 ? a->bits <= 32 : to == ARIL_F32 && a->bits <= 16;
    }
    if (real || b->kind == ARIL__KIND_BOOL) return false;
    return a->bits < b->bits && (a->kind == ARIL__KIND_UINT || b->kind == ARIL__KIND_INT);
}

/* A cast of a cast that loses nothing is a cast of what that had. */
static aril__value_id before_cast(const aril__graph *g, const aril__graph_node *n)
{
    const aril__graph_node *inner = n->op == &aril__op_cast ? producer(g, input(g, n, 0)) : NULL;
    if (!inner || inner->op != &aril__op_cast) return 0;
    aril__value_id x = input(g, inner, 0);
    bool exact = is_exact((aril_dtype)g->values[x].dtype, (aril_dtype)g->values[inner->out].dtype);
    return exact && !g->values[x].tensor_flags ? x : 0;
}

/* A reshape of a reshape needs only the last shape. */
static aril__value_id before_reshape(const aril__graph *g, const aril__graph_node *n)
{
    if (!is_op(n, "reshape") && !is_op(n, "reshape_like")) return 0;
    const aril__graph_node *inner = producer(g, input(g, n, 0));
    return only_reshapes(inner) ? input(g, inner, 0) : 0;
}

/* A reshape copies by itself where the order in memory requires it, which only a run knows. */
static aril__value_id before_contiguous(const aril__graph *g, const aril__graph_node *n)
{
    static const char *const names[] = { "reshape", "reshape_like", "flatten", NULL };
    const aril__graph_node *inner = is_any_op(n, names) ? producer(g, input(g, n, 0)) : NULL;
    return is_op(inner, "contiguous") ? input(g, inner, 0) : 0;
}

/* A permutation of a permutation is one; its axes are put into the node. */
static aril__value_id before_permute(aril__graph *g, const aril__graph_node *n)
{
    if (!is_op(n, "permute") || !n->has_attrs) return 0;
    const aril__graph_node *inner = producer(g, input(g, n, 0));
    if (!is_op(inner, "permute") || !inner->has_attrs) return 0;
    struct permute_attrs *outer = (void *)(g->words + n->attrs);
    const struct permute_attrs *first = aril__graph_attrs(g, inner);
    for (int d = 0; d < g->values[n->out].ndim; d++) outer->axes[d] = first->axes[outer->axes[d]];
    return input(g, inner, 0);
}

static aril__value_id without_permute(const aril__graph *g, const aril__graph_node *n)
{
    if (!is_op(n, "permute") || !n->has_attrs) return 0;
    const struct permute_attrs *a = aril__graph_attrs(g, n);
    for (int d = 0; d < g->values[n->out].ndim; d++)
        if (a->axes[d] != d) return 0;
    return input(g, n, 0);
}

/* The earliest value with the shape and dtype of v, by nodes that keep them. */
static aril__value_id origin_of_shape(const aril__graph *g, aril__value_id v)
{
    static const char *const names[] = { "contiguous", "copy", NULL };
    for (const aril__graph_node *n; (n = producer(g, v));) {
        if (!n->op->formula && !is_any_op(n, names)) break;
        if (!input(g, n, 0) || !aril__graph_alike(g, v, input(g, n, 0))) break;
        v = input(g, n, 0);
    }
    return v;
}

/* Where only a shape is read, values are not needed; but some ops take the memory order, too. */
static void read_shapes(aril__graph *g, const aril__graph_node *n)
{
    if (n->op->flags & (KEEPS_ORDER | KEEPS_CHANNELS)) return;
    for (uint32_t i = 0; i < n->n_in && i < 31; i++)
        if (n->op->shape_only >> i & 1) g->ids[n->in + i] = origin_of_shape(g, g->ids[n->in + i]);
}

/* ---- ReLU before max pooling ---- */

/* What pooling takes the gradient of a maximum back to is the maximum itself: whether ReLU lets it
 * pass can be asked before, of fewer elements, and the image that was pooled need not be kept. The
 * two nodes change places. */
static void swap_relu_and_pool(aril__graph *g, const aril__uses *uses, aril__graph_node *relu)
{
    static const char *const pools[] = { "max_pool", "adaptive_max_pool", NULL };
    if (!is_op(relu, "relu_grad") || relu->n_in != 3 || input(g, relu, 1)) return;
    aril__value_id between = input(g, relu, 0), y = input(g, relu, 2);
    if (!is_op(producer(g, between), "max_pool_grad") || uses->all[between] != 1) return;
    aril__graph_node *back = &g->nodes[g->values[between].from];
    aril__value_id gradient = input(g, back, 0), places = input(g, back, 1);
    const aril__graph_node *pool = producer(g, places);
    if (!is_any_op(pool, pools) || g->values[places].index != 1 || input(g, pool, 0) != y ||
        relu->region != back->region || !can_replace(g, gradient, pool->out))
        return;
    aril__value *v = &g->values[between], was = *v;
    *v = g->values[gradient];
    v->kind = was.kind;
    v->from = was.from;
    v->index = was.index;
    g->ids[relu->in + 1] = places;
    g->ids[relu->in + 2] = input(g, back, 2);
    g->ids[back->in + 1] = 0;
    g->ids[back->in + 2] = pool->out;
    aril__graph_node to = *back;
    *back = *relu;
    back->in = to.in;
    back->out = to.out;
    to.in = relu->in;
    to.out = relu->out;
    *relu = to;
}

static aril_status swap_gradients(aril__graph *g)
{
    aril__uses uses;
    if (!aril__uses_count(g, &uses)) return aril__fail(ARIL_ERR_MEMORY, "algebra: out of memory");
    for (aril__node_id id = 1; id < g->n_nodes; id++) swap_relu_and_pool(g, &uses, &g->nodes[id]);
    aril__uses_free(&uses);
    return ARIL_OK;
}

/* ---- the pass ---- */

/* Lets the node start from an earlier value, as far back as possible. */
static void shorten(aril__graph *g, const aril__graph_node *n)
{
    for (;;) {
        aril__value_id x = before_cast(g, n);
        if (!x) x = before_reshape(g, n);
        if (!x) x = before_contiguous(g, n);
        if (!x) x = before_permute(g, n);
        if (!x) return;
        g->ids[n->in] = x;
    }
}

/* A value that equals the node's result; 0: none. */
static aril__value_id equal_value(const aril__graph *g, const aril__graph_node *n)
{
    static aril__value_id (*const rules[])(const aril__graph *, const aril__graph_node *) = {
        without_neutral, without_twice, without_reshapes, without_copy, without_permute
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        aril__value_id v = rules[i](g, n);
        if (can_replace(g, n->out, v)) return v;
    }
    return 0;
}

aril_status aril__pass_algebra(aril__graph *g)
{
    aril__value_id *to = aril__calloc(g->n_values * sizeof *to);
    if (!to) return aril__fail(ARIL_ERR_MEMORY, "algebra: out of memory");
    for (aril__node_id id = 1; id < g->n_nodes; id++) {
        const aril__graph_node *n = &g->nodes[id];
        for (uint32_t i = 0; i < n->n_in; i++) {
            aril__value_id v = g->ids[n->in + i];
            if (to[v]) g->ids[n->in + i] = to[v];
        }
        if (n->op->shape_only) read_shapes(g, n);
        if (n->n_out != 1 || n->n_in == 0 || n->n_bodies) continue;
        shorten(g, n);
        to[n->out] = equal_value(g, n);
    }
    aril__graph_replace(g, to);
    free(to);
    aril_status s = swap_gradients(g);
    return s < 0 ? s : aril__pass_dead(g);
}
