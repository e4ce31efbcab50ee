/* The pass `merge`: what unrolled steps do with a shared weight is done once for all steps.
 *
 *     dw = outer_sum(g1, x1) + outer_sum(g2, x2) + ...   one outer_sum of stacked operands
 *     db = sum_to_like(g1, b) + ...                      one sum of a stack
 *     view_write(0, v1, [0]) + view_write(0, v2, [1])    a stack, or a concatenation
 *     linear(x[0], w), linear(x[1], w), ...              linear(x, w), and views of its result
 *
 * The first three are leaves of a sum, which is replaced as a whole where it is first used: until
 * then, other stacks of the same values may appear, and are used instead of new ones. Values that
 * were selected from one tensor are a slice of that tensor. Results differ by the rounding of
 * another order of additions, and a zero may keep its sign. */
#include "graph/fuse.h"
#include "graph/passes.h"
#include "ops/linalg/matmul.h"
#include "ops/shape/concat.h"
#include "ops/shape/create.h"
#include "ops/shape/like.h"
#include "ops/shape/view.h"
#include "ops/shape/view_write.h"

#include <stdlib.h>
#include <string.h>

enum leaf_kind { OTHER, PRODUCT, SUM, WRITE };

/* A term of a sum. */
typedef struct leaf {
    uint8_t kind;
    uint8_t axis;     /* WRITE: that the part is of */
    aril__value_id v; /* its value */
    aril__value_id a; /* PRODUCT: outer_sum(a, b); SUM: sum_to_like(a, b); WRITE: the part a, ... */
    aril__value_id b; /* ... b: 1 if it was selected, 0 if it is a slice */
    int64_t first, at; /* WRITE: where the part begins and ends; otherwise `at` sorts */
} leaf;

/* A sum of leaves: the tree of additions that ends at a node. */
typedef struct sum {
    aril__node_id root;
    uint32_t first, n; /* leaves */
    bool done;
} sum;

/* Products of parts of one tensor with the same other operands. */
typedef struct group {
    aril__node_id first; /* of its members in the graph */
    uint32_t n;
    int64_t length;       /* of each part */
    aril__value_id whole; /* the product of all parts, when it is there */
    int64_t low, high;    /* the indices of the parts, with the last */
} group;

/* Where a value is found in a tensor: at an index of an axis. */
typedef struct position {
    aril__value_id base; /* 0: nowhere */
    int axis;
    int64_t at;
    int64_t length; /* of a slice, which begins there; 0: the index was selected */
} position;

typedef struct pass {
    aril__graph *g;
    aril__rewrite r;
    aril__uses uses;
    leaf *leaves;
    sum *sums; /* the last of the graph first */
    group *groups;
    uint32_t n_leaves, cap_leaves, n_sums, cap_sums, n_groups, cap_groups;
    uint32_t *sum_of;   /* by node: 1 + the sum that it ends */
    uint32_t *group_of; /* by node: 1 + the group that it is in */
    position *stacked;  /* by value: in which stack it is */
    bool *inner;        /* by node: an addition within a sum */
    bool found;
} pass;

static aril__cold bool no_memory(void)
{
    aril__fail(ARIL_ERR_MEMORY, "merge: out of memory");
    return false;
}

/* ---- reading the old graph ---- */

static const aril__graph_node *producer(const pass *p, aril__value_id v)
{
    if (!v || v >= p->r.n_values || p->g->values[v].kind != ARIL__FROM_NODE) return NULL;
    return &p->r.old[p->g->values[v].from];
}

static aril__value_id input(const pass *p, const aril__graph_node *n, int i)
{
    return i < n->n_in ? p->g->ids[n->in + (uint32_t)i] : 0;
}

static bool is_op(const aril__graph_node *n, const aril__op *op)
{
    return n && n->op == op;
}

static int rank(const pass *p, aril__value_id v)
{
    return p->g->values[v].ndim;
}

static int64_t size(const pass *p, aril__value_id v, int d)
{
    return aril__graph_dims(p->g, v)[d];
}

static int64_t count_of(const pass *p, aril__value_id v)
{
    return aril__count(rank(p, v), aril__graph_dims(p->g, v));
}

/* A tensor of floats with known sizes. */
static bool is_plain(const pass *p, aril__value_id v)
{
    const aril__value *x = &p->g->values[v];
    if (!v || x->tensor_flags || !aril__is_float((aril_dtype)x->dtype)) return false;
    for (int d = 0; d < x->ndim; d++)
        if (size(p, v, d) < 0) return false;
    return true;
}

/* Whether a node selects an index, which is then not negative. */
static bool selects(const pass *p, const aril__graph_node *n, position *at)
{
    if (!is_op(n, &aril__op_select) || n->sized || !is_plain(p, input(p, n, 0))) return false;
    const struct select_attrs *a = aril__graph_attrs(p->g, n);
    *at = (position){ input(p, n, 0), (int)a->axis[0], a->index[0], 0 };
    if (at->at < 0) at->at += size(p, at->base, at->axis);
    return true;
}

/* Whether a node is a part of a tensor: an index, or a slice without gaps. */
static bool is_part(const pass *p, const aril__graph_node *n, position *at)
{
    if (!is_op(n, &aril__op_slice)) return selects(p, n, at);
    const struct slice_attrs *a = aril__graph_attrs(p->g, n);
    int axis = (int)a->axis[0];
    if (n->sized || !is_plain(p, input(p, n, 0)) || a->step[0] != 1 || a->start[0] < 0)
        return false;
    *at = (position){ input(p, n, 0), axis, a->start[0], size(p, n->out, axis) };
    return at->length > 0;
}

/* Whether a node transposes a matrix. */
static bool is_transpose(const pass *p, const aril__graph_node *n)
{
    if (!is_op(n, &aril__op_permute) || rank(p, n->out) != 2) return false;
    return ((const struct permute_attrs *)aril__graph_attrs(p->g, n))->axes[0] == 1;
}

/* ---- leaves ---- */

/* Whether a node is one that nothing but its sum needs. */
static bool is_free(const pass *p, const aril__graph_node *n, uint32_t region)
{
    return n && n->region == region && n->n_out == 1 && p->uses.all[n->out] == 1 && !n->sized;
}

/* outer_sum(a, b), in one of its forms. */
static bool is_product(const pass *p, const aril__graph_node *n, uint32_t region, leaf *to)
{
    bool turned = is_transpose(p, n);
    if (turned) n = producer(p, input(p, n, 0));
    if (!is_free(p, n, region)) return false;
    aril__value_id a = input(p, n, 0), b = input(p, n, 1);
    if (is_op(n, &aril__op_matmul) && rank(p, b) == 2 && is_transpose(p, producer(p, a)))
        a = input(p, producer(p, a), 0);
    else if (!is_op(n, &aril__op_outer_sum))
        return false;
    if (!is_plain(p, a) || !is_plain(p, b) || rank(p, a) != rank(p, b)) return false;
    to->kind = PRODUCT;
    to->a = turned ? b : a;
    to->b = turned ? a : b;
    return true;
}

static bool is_zeros(const pass *p, const aril__graph_node *n)
{
    if (!n || strcmp(n->op->name, "full_like") != 0) return false;
    const struct full_like_attrs *a = aril__graph_attrs(p->g, n);
    return a->integer[1] ? a->integer[0] == 0 : a->value[0] == 0;
}

/* view_write(0, part, [index]) or view_write(0, part, [first:last]). */
static bool is_write(const pass *p, const aril__graph_node *n, leaf *to)
{
    if (!is_op(n, &aril__op_view_write) || !is_zeros(p, producer(p, input(p, n, 0)))) return false;
    const struct view_write_attrs *a = aril__graph_attrs(p->g, n);
    const int64_t *path = a->path;
    const aril__op *view = aril__op_numbered((int)path[0]);
    bool selected = view == &aril__op_select;
    if (a->n[0] != 1 || (!selected && view != &aril__op_slice)) return false;
    int64_t n_axis = size(p, n->out, (int)path[1]);
    int64_t first = path[2] < 0 ? path[2] + n_axis : path[2];
    if (!selected && path[4] != 1) return false;
    to->kind = WRITE;
    to->axis = (uint8_t)path[1];
    to->a = input(p, n, 1);
    to->b = selected;
    to->first = first;
    to->at = selected ? first + 1 : first + size(p, to->a, (int)path[1]);
    return is_plain(p, to->a);
}

static void classify(const pass *p, uint32_t region, leaf *to)
{
    const aril__graph_node *n = producer(p, to->v);
    to->kind = OTHER;
    if (!is_free(p, n, region)) return;
    if (is_product(p, n, region, to) || is_write(p, n, to)) return;
    if (!is_op(n, &aril__op_sum_to_like) || !is_plain(p, input(p, n, 0))) return;
    to->kind = SUM;
    to->a = input(p, n, 0);
    to->b = input(p, n, 1);
}

/* ---- sums ---- */

/* Whether a node adds two tensors of its result's shape. */
static bool is_addition(const pass *p, const aril__graph_node *n)
{
    if (!n || strcmp(n->op->name, "add") != 0 || n->sized || !is_plain(p, n->out)) return false;
    for (int i = 0; i < 2; i++)
        if (!is_plain(p, input(p, n, i)) || !aril__graph_alike(p->g, n->out, input(p, n, i)))
            return false;
    return true;
}

/* Lists the leaves of a sum from left to right; false when out of memory. */
static bool list_leaves(pass *p, sum *s)
{
    uint32_t region = p->r.old[s->root].region, n_open = 1, cap_open = 0;
    aril__value_id *open = NULL;
    s->first = p->n_leaves;
    bool fits = aril__graph_grow(&open, 0, &cap_open, sizeof *open);
    if (fits) open[0] = p->r.old[s->root].out;
    while (fits && n_open) {
        aril__value_id v = open[--n_open];
        const aril__graph_node *n = producer(p, v);
        bool root = v == p->r.old[s->root].out;
        if (root || (is_addition(p, n) && is_free(p, n, region))) {
            if (!root) p->inner[p->g->values[v].from] = true;
            for (int i = 1; i >= 0 && fits; i--) {
                fits = aril__graph_grow(&open, n_open, &cap_open, sizeof *open);
                if (fits) open[n_open++] = input(p, n, i);
            }
            continue;
        }
        fits = aril__graph_grow(&p->leaves, p->n_leaves, &p->cap_leaves, sizeof *p->leaves);
        if (!fits) break;
        leaf *to = &p->leaves[p->n_leaves++];
        *to = (leaf){ .v = v };
        classify(p, region, to);
    }
    free(open);
    s->n = p->n_leaves - s->first;
    return fits;
}

/* Whether two leaves can be part of the same merged node. */
static bool go_together(const pass *p, const leaf *a, const leaf *b)
{
    if (a->kind != b->kind || a->kind == OTHER) return false;
    if (a->kind == WRITE) return a->axis == b->axis && a->b == b->b;
    return aril__graph_alike(p->g, a->a, b->a) &&
           (a->kind == SUM || aril__graph_alike(p->g, a->b, b->b));
}

/* The last node of each sum that has two leaves which go together. */
static bool find_sums(pass *p)
{
    for (aril__node_id id = p->r.n_old; id-- > 1;) {
        if (p->inner[id] || !is_addition(p, &p->r.old[id])) continue;
        if (!aril__graph_grow(&p->sums, p->n_sums, &p->cap_sums, sizeof *p->sums)) return false;
        sum *s = &p->sums[p->n_sums];
        *s = (sum){ .root = id };
        if (!list_leaves(p, s)) return false;
        const leaf *at = p->leaves + s->first, *previous = NULL;
        bool together = false;
        for (uint32_t i = 0; i < s->n && !together; i++) {
            if (at[i].kind == OTHER) continue;
            together = previous && go_together(p, previous, &at[i]);
            previous = &at[i];
        }
        if (together)
            p->sum_of[id] = ++p->n_sums;
        else
            p->n_leaves = s->first;
    }
    return true;
}

/* ---- products of parts ---- */

static bool same_call(const pass *p, const aril__graph_node *a, const aril__graph_node *b)
{
    if (a->op != b->op || a->region != b->region || a->n_in != b->n_in) return false;
    for (int i = 1; i < a->n_in; i++)
        if (input(p, a, i) != input(p, b, i)) return false;
    return !a->has_attrs ||
           memcmp(aril__graph_attrs(p->g, a), aril__graph_attrs(p->g, b), a->op->attr_size) == 0;
}

/* A product whose rows are those of a part of a tensor: linear(x[i], w, b), matmul(x[i:j], w). */
static bool is_part_product(const pass *p, const aril__graph_node *n, position *at)
{
    if (!is_op(n, &aril__op_linear) && !is_op(n, &aril__op_matmul)) return false;
    if (!is_part(p, producer(p, input(p, n, 0)), at) || n->sized || !is_plain(p, n->out))
        return false;
    if (is_op(n, &aril__op_matmul) && rank(p, input(p, n, 1)) != 2) return false;
    return at->axis < rank(p, at->base) - 1 && rank(p, n->out) == rank(p, input(p, n, 0));
}

static uint64_t hash_of(const pass *p, const aril__graph_node *n, const position *at)
{
    uint64_t h = at->base * 31u + (uint64_t)at->axis;
    for (int i = 1; i < n->n_in; i++) h = (h ^ input(p, n, i)) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* The last index of a part. */
static int64_t last_of(const position *at)
{
    return at->at + (at->length ? at->length - 1 : 0);
}

/* Adds a node to the group of its kind. `table` has the groups by hash: 1 + their number. */
static bool add_to_group(pass *p, aril__node_id id, const position *at, uint32_t *table,
                         size_t slots)
{
    const aril__graph_node *n = &p->r.old[id];
    size_t k = hash_of(p, n, at) & (slots - 1);
    for (; table[k]; k = (k + 1) & (slots - 1)) {
        group *q = &p->groups[table[k] - 1];
        const aril__graph_node *of = &p->r.old[q->first];
        position first;
        is_part_product(p, of, &first);
        if (first.base != at->base || first.axis != at->axis || first.length != at->length ||
            !same_call(p, of, n))
            continue;
        q->n++;
        if (at->at < q->low) q->low = at->at;
        if (last_of(at) > q->high) q->high = last_of(at);
        p->group_of[id] = table[k];
        return true;
    }
    if (!aril__graph_grow(&p->groups, p->n_groups, &p->cap_groups, sizeof *p->groups)) return false;
    p->groups[p->n_groups] =
        (group){ .first = id, .n = 1, .length = at->length, .low = at->at, .high = last_of(at) };
    table[k] = p->group_of[id] = ++p->n_groups;
    return true;
}

static bool find_groups(pass *p)
{
    size_t slots = 64;
    position at;
    while (slots < 2 * (size_t)p->r.n_old) slots *= 2;
    uint32_t *table = aril__calloc(slots * sizeof *table);
    bool fits = table || no_memory();
    for (aril__node_id id = 1; id < p->r.n_old && fits; id++)
        if (is_part_product(p, &p->r.old[id], &at)) fits = add_to_group(p, id, &at, table, slots);
    free(table);
    return fits;
}

/* Whether the members of a group are two or more parts, and all from the first to the last. */
static bool is_worth(const group *q)
{
    return q->n > 1 && q->high - q->low + 1 == (int64_t)q->n * (q->length ? q->length : 1);
}

/* ---- writing ---- */

static aril__value_id now(pass *p, aril__value_id v)
{
    return aril__rewrite_now(&p->r, v);
}

/* A new node with one result of the dtype of `like`, for an old one; 0: out of memory. */
static aril__value_id add(pass *p, aril__node_id for_node, const aril__op *op, int n_in,
                          const aril__value_id *in, const void *attrs, aril__value_id like,
                          int ndim, const int64_t *dim)
{
    aril__node_id id = aril__graph_node_add(p->g, op, n_in, in, attrs);
    if (!id) return 0;
    aril__graph_node *n = &p->g->nodes[id];
    const aril__graph_node *from = &p->r.old[for_node];
    aril__value *v = &p->g->values[n->out];
    v->dtype = p->g->values[like].dtype;
    v->device = p->g->values[like].device;
    v->flags = p->g->values[like].flags & ARIL__VALUE_LOOSE;
    n->region = from->region;
    n->scope = from->scope;
    n->label = from->label;
    n->where = from->where;
    aril__value_id out = n->out;
    return aril__graph_sizes(p->g, out, ndim, dim) ? out : 0;
}

/* The part [low, high] of an axis: the value itself if that is all of it. */
static aril__value_id slice_of(pass *p, aril__node_id for_node, aril__value_id v, int axis,
                               int64_t low, int64_t high)
{
    int64_t dim[ARIL_MAX_DIMS];
    if (low == 0 && high == size(p, v, axis) - 1) return v;
    memcpy(dim, aril__graph_dims(p->g, v), (size_t)rank(p, v) * sizeof *dim);
    dim[axis] = high - low + 1;
    struct slice_attrs a = { { axis }, { low }, { high + 1 }, { 1 } };
    return add(p, for_node, &aril__op_slice, 1, &v, &a, v, rank(p, v), dim);
}

/* ---- stacks ---- */

/* Where a value is found. */
static position find(const pass *p, aril__value_id v)
{
    position at = { 0 };
    if (v >= p->r.n_values) return at;
    if (selects(p, producer(p, v), &at)) return at;
    return p->stacked[v];
}

/* Remembers the values that a concatenation stacks. Takes old and new nodes. */
static void note_stack(pass *p, const aril__graph_node *n)
{
    if (!is_op(n, &aril__op_cat) || !is_plain(p, n->out)) return;
    int axis = (int)((const struct cat_attrs *)aril__graph_attrs(p->g, n))->axis[0];
    for (int i = 0; i < n->n_in; i++)
        if (size(p, input(p, n, i), axis) != 1) return;
    for (int i = 0; i < n->n_in; i++) {
        const aril__graph_node *part = producer(p, input(p, n, i));
        if (!part || part->op != &aril__op_unsqueeze) continue;
        const struct unsqueeze_attrs *a = aril__graph_attrs(p->g, part);
        aril__value_id v = now(p, input(p, part, 0));
        if (a->mask[0] == 1 << axis && v < p->r.n_values)
            p->stacked[v] = (position){ n->out, axis, i, 0 };
    }
}

/* Whether values are in one tensor, one after the other. */
static bool are_neighbours(pass *p, const leaf *l, uint32_t n, bool second, position *first)
{
    for (uint32_t i = 0; i < n; i++) {
        position at = find(p, now(p, second ? l[i].b : l[i].a));
        if (i == 0) *first = at;
        if (!at.base || at.base != first->base || at.axis != first->axis ||
            at.at != first->at + (int64_t)i)
            return false;
    }
    return true;
}

/* Whether values are in one tensor, in any order: then l[i].at says where. */
static bool are_together(pass *p, leaf *l, uint32_t n, bool second, int *axis)
{
    position first = { 0 };
    for (uint32_t i = 0; i < n; i++) {
        position at = find(p, now(p, second ? l[i].b : l[i].a));
        if (i == 0) first = at;
        if (!at.base || at.base != first.base || at.axis != first.axis) return false;
        l[i].at = at.at;
    }
    *axis = first.axis;
    return true;
}

static int by_position(const void *a, const void *b)
{
    const leaf *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Values as one, with a new axis: a slice of the tensor that they are in, or a concatenation. */
static aril__value_id stack(pass *p, aril__node_id for_node, const leaf *l, uint32_t n, bool second,
                            int axis)
{
    position first;
    int64_t dim[ARIL_MAX_DIMS];
    if (are_neighbours(p, l, n, second, &first) && first.axis == axis)
        return slice_of(p, for_node, now(p, first.base), axis, first.at, first.at + (int64_t)n - 1);
    aril__value_id like = now(p, second ? l[0].b : l[0].a), *in = aril__malloc(n * sizeof *in);
    int ndim = rank(p, like) + 1;
    struct unsqueeze_attrs unsqueeze = { { 1 << axis } };
    struct cat_attrs cat = { { axis } };
    for (int d = 0; d < ndim; d++) dim[d] = d == axis ? 1 : size(p, like, d - (d > axis));
    bool fits = in || no_memory();
    for (uint32_t i = 0; i < n && fits; i++) {
        aril__value_id v = now(p, second ? l[i].b : l[i].a);
        in[i] = add(p, for_node, &aril__op_unsqueeze, 1, &v, &unsqueeze, like, ndim, dim);
        fits = in[i] != 0;
    }
    dim[axis] = n;
    aril__value_id y =
        fits ? add(p, for_node, &aril__op_cat, (int)n, in, &cat, like, ndim, dim) : 0;
    for (uint32_t i = 0; i < n && y; i++) {
        aril__value_id v = now(p, second ? l[i].b : l[i].a);
        if (v < p->r.n_values && !p->stacked[v].base) p->stacked[v] = (position){ y, axis, i, 0 };
    }
    free(in);
    return y;
}

/* ---- merged nodes ---- */

/* Copies that are so small that single kernels take longer to start; bytes that may be kept until
 * the end of a sum. */
enum { FEW = 1 << 16, MOST_BYTES = 32 << 20, MOST_LEAVES = 1 << 14 };

/* Whether one product of stacks costs less than single products and the additions. */
static bool pays(const pass *p, const leaf *l, uint32_t n, unsigned copies_a, unsigned copies_b)
{
    int64_t a = (int64_t)n * count_of(p, l->a), b = l->kind == SUM ? 0 : n * count_of(p, l->b);
    int64_t bytes = aril__dtypes[p->g->values[l->a].dtype].bits / 8;
    int64_t copied = (copies_a ? a : 0) + (copies_b ? b : 0);
    if ((a + b) * bytes > MOST_BYTES || n < 1 + copies_a + copies_b) return false;
    if (copied <= FEW) return true;
    return l->kind == PRODUCT && 2 * copied <= 3 * (int64_t)n * count_of(p, l->v);
}

/* One node for leaves that go together; 0: it does not pay, or *fits is false. */
static aril__value_id merge_products(pass *p, const sum *s, leaf *l, uint32_t n, bool *fits)
{
    bool product = l->kind == PRODUCT;
    aril__value_id v = p->r.old[s->root].out;
    int axis = 0;
    if ((product && are_together(p, l, n, true, &axis)) || are_together(p, l, n, false, &axis))
        qsort(l, n, sizeof *l, by_position);
    /* The new axis is one over which is summed. */
    int most = product ? rank(p, l->a) - 1 : rank(p, l->a) - rank(p, v);
    if (axis > most || rank(p, l->a) == ARIL_MAX_DIMS) axis = 0;
    if (rank(p, l->a) == ARIL_MAX_DIMS) return 0;
    position at;
    bool copies_a = !are_neighbours(p, l, n, false, &at) || at.axis != axis;
    bool copies_b = product && (!are_neighbours(p, l, n, true, &at) || at.axis != axis);
    if (!pays(p, l, n, copies_a, copies_b)) return 0;
    aril__value_id in[2] = { stack(p, s->root, l, n, false, axis), 0 };
    if (in[0]) in[1] = product ? stack(p, s->root, l, n, true, axis) : now(p, l->b);
    const aril__op *op = product ? &aril__op_outer_sum : &aril__op_sum_to_like;
    int64_t dim[ARIL_MAX_DIMS];
    memcpy(dim, aril__graph_dims(p->g, v), (size_t)rank(p, v) * sizeof *dim);
    aril__value_id y = in[0] && in[1] ? add(p, s->root, op, 2, in, NULL, v, rank(p, v), dim) : 0;
    *fits = y != 0;
    return y;
}

/* Writes to all parts of an axis are a concatenation of the parts; 0: they are not. */
static aril__value_id merge_writes(pass *p, const sum *s, leaf *l, uint32_t n, bool *fits)
{
    aril__value_id v = p->r.old[s->root].out, y = 0;
    int axis = l->axis;
    int64_t dim[ARIL_MAX_DIMS], end = 0;
    qsort(l, n, sizeof *l, by_position);
    for (uint32_t i = 0; i < n; i++) {
        if (l[i].first != end) return 0;
        end = l[i].at;
    }
    if (end != size(p, v, axis)) return 0;
    if (l->b) {
        y = stack(p, s->root, l, n, false, axis);
    } else {
        aril__value_id *in = aril__malloc(n * sizeof *in);
        struct cat_attrs cat = { { axis } };
        memcpy(dim, aril__graph_dims(p->g, v), (size_t)rank(p, v) * sizeof *dim);
        for (uint32_t i = 0; i < n && in; i++) in[i] = now(p, l[i].a);
        if (!in) no_memory();
        if (in) y = add(p, s->root, &aril__op_cat, (int)n, in, &cat, v, rank(p, v), dim);
        free(in);
    }
    *fits = y != 0;
    return y;
}

/* Replaces the leaves [from, from + n), which go together, by one, if that pays. */
static bool merge_leaves(pass *p, const sum *s, uint32_t from, uint32_t n)
{
    leaf *l = &p->leaves[s->first + from];
    bool fits = true;
    if (n < 2 || n > MOST_LEAVES || l->kind == OTHER) return true;
    aril__value_id y =
        l->kind == WRITE ? merge_writes(p, s, l, n, &fits) : merge_products(p, s, l, n, &fits);
    if (!y) return fits;
    l[0] = (leaf){ .v = y };
    for (uint32_t i = 1; i < n; i++) l[i].v = 0;
    p->found = true;
    return true;
}

/* Leaves that go together, one after the other; those of no use come last. */
static void gather(pass *p, const sum *s)
{
    leaf *l = p->leaves + s->first;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t end = i + 1;
        for (uint32_t k = i + 1; k < s->n && l[i].kind != OTHER; k++) {
            if (!go_together(p, &l[i], &l[k])) continue;
            leaf moved = l[k];
            memmove(&l[end + 1], &l[end], (k - end) * sizeof *l);
            l[end++] = moved;
        }
        i = end - 1;
    }
}

/* Puts a sum, with its leaves merged, into the new graph. */
static bool add_sum(pass *p, sum *s)
{
    aril__value_id v = p->r.old[s->root].out, total = 0;
    bool found = p->found, fits = true;
    p->found = false;
    s->done = true;
    gather(p, s);
    for (uint32_t i = 0, n; i < s->n && fits; i += n) {
        const leaf *l = &p->leaves[s->first + i];
        for (n = 1; i + n < s->n && go_together(p, l, l + n);) n++;
        fits = merge_leaves(p, s, i, n);
    }
    bool merged = p->found;
    p->found = found || merged;
    if (!merged) return fits && aril__rewrite_keep(&p->r, s->root);
    int64_t dim[ARIL_MAX_DIMS];
    memcpy(dim, aril__graph_dims(p->g, v), (size_t)rank(p, v) * sizeof *dim);
    for (uint32_t i = 0; i < s->n && fits; i++) {
        aril__value_id next = p->leaves[s->first + i].v, in[2] = { total, 0 };
        if (!next) continue;
        in[1] = now(p, next);
        total =
            total ? add(p, s->root, p->r.old[s->root].op, 2, in, NULL, v, rank(p, v), dim) : in[1];
        fits = total != 0;
    }
    if (fits) aril__rewrite_value(&p->r, v, total);
    return fits;
}

/* The result of a member of a group: a part of the group's product. */
static bool add_part(pass *p, aril__node_id id)
{
    group *q = &p->groups[p->group_of[id] - 1];
    const aril__graph_node n = p->r.old[id];
    position at;
    int64_t dim[ARIL_MAX_DIMS];
    is_part_product(p, &n, &at);
    if (!q->whole) {
        aril__value_id in[3] = { 0 };
        int64_t words[64];
        in[0] = slice_of(p, id, now(p, at.base), at.axis, q->low, q->high);
        if (!in[0]) return false;
        for (int i = 1; i < n.n_in; i++) in[i] = now(p, input(p, &n, i));
        int ndim = rank(p, in[0]);
        memcpy(dim, aril__graph_dims(p->g, in[0]), (size_t)ndim * sizeof *dim);
        dim[ndim - 1] = size(p, n.out, rank(p, n.out) - 1);
        if (n.has_attrs) memcpy(words, aril__graph_attrs(p->g, &n), n.op->attr_size);
        q->whole = add(p, id, n.op, n.n_in, in, n.has_attrs ? words : NULL, n.out, ndim, dim);
        if (!q->whole) return false;
    }
    aril__value_id y = 0;
    if (at.length) {
        y = slice_of(p, id, q->whole, at.axis, at.at - q->low, last_of(&at) - q->low);
    } else {
        struct select_attrs a = { { at.axis }, { at.at - q->low } };
        memcpy(dim, aril__graph_dims(p->g, n.out), (size_t)rank(p, n.out) * sizeof *dim);
        y = add(p, id, &aril__op_select, 1, &q->whole, &a, n.out, rank(p, n.out), dim);
    }
    if (y) aril__rewrite_value(&p->r, n.out, y);
    p->found = true;
    return y != 0;
}

/* Adds the sums that a node uses. */
static bool add_needed(pass *p, const aril__graph_node *n)
{
    bool fits = true;
    for (int i = 0; i < n->n_in && fits; i++) {
        aril__value_id v = input(p, n, i);
        if (!producer(p, v)) continue;
        uint32_t s = p->sum_of[p->g->values[v].from];
        if (s && !p->sums[s - 1].done) fits = add_sum(p, &p->sums[s - 1]);
    }
    return fits;
}

static bool add_node(pass *p, aril__node_id id)
{
    const aril__graph_node *n = &p->r.old[id];
    bool fits = add_needed(p, n);
    if (p->sum_of[id] || !fits) return fits;
    if (p->group_of[id] && is_worth(&p->groups[p->group_of[id] - 1])) return add_part(p, id);
    fits = aril__rewrite_keep(&p->r, id);
    if (fits) note_stack(p, n);
    return fits;
}

aril_status aril__pass_merge(aril__graph *g)
{
    pass p = { .g = g };
    if (!aril__uses_count(g, &p.uses) || !aril__rewrite_begin(&p.r, g)) {
        aril__uses_free(&p.uses);
        return aril__fail(ARIL_ERR_MEMORY, "merge: out of memory");
    }
    p.sum_of = aril__calloc(p.r.n_old * sizeof *p.sum_of);
    p.group_of = aril__calloc(p.r.n_old * sizeof *p.group_of);
    p.stacked = aril__calloc(p.r.n_values * sizeof *p.stacked);
    p.inner = aril__calloc(p.r.n_old);
    bool fits = (p.sum_of && p.group_of && p.stacked && p.inner) || no_memory();
    fits = fits && find_sums(&p) && find_groups(&p);
    for (aril__node_id id = 1; id < p.r.n_old && fits; id++) fits = add_node(&p, id);
    for (uint32_t i = p.n_sums; i-- > 0 && fits;)
        if (!p.sums[i].done) fits = add_sum(&p, &p.sums[i]);
    aril_status s = aril__rewrite_end(&p.r, fits);
    void *const lists[] = { p.leaves, p.sums, p.groups, p.sum_of, p.group_of, p.stacked, p.inner };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]);
    aril__uses_free(&p.uses);
    return s == ARIL_OK && p.found ? aril__pass_dead(g) : s;
}
