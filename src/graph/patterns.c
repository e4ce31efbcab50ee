/* Passes that replace several nodes by one op which does all of it: `epilogue` (bias, residual and
 * activation as part of a product, convolution or normalization), `batchnorm` (folded into the
 * weights of a convolution in inference), `attention`.
 *
 * A pattern is found at its last node, and the new node takes its place. What it has made
 * superfluous is removed by `dead`. Results may differ from those of the single ops by rounding. */
#include "graph/passes.h"

#include "aril/activation.h"
#include "graph/fuse.h"
#include "graph/prepare.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linalg/matmul.h"
#include "ops/norm/norm.h"
#include "ops/norm/softmax.h"
#include "ops/sequence/attention.h"
#include "ops/shape/view.h"
#include "ops/table/rows.h"
#include "ops/vision/conv.h"

#include <string.h>

typedef struct pass {
    aril__graph *g;
    aril__rewrite r;
    aril__uses uses;
} pass;

/* Tries to replace an old node; *fits: false when out of memory. */
typedef bool rule(pass *p, const aril__graph_node *n, bool *fits);

/* ---- reading ---- */

/* Operand i of a node as it is now; 0: absent. */
static aril__value_id operand(pass *p, const aril__graph_node *n, int i)
{
    return i < n->n_in ? aril__rewrite_now(&p->r, p->g->ids[n->in + (uint32_t)i]) : 0;
}

/* The node that produces a value, old or new; NULL: none. */
static aril__graph_node *producer(pass *p, aril__value_id v)
{
    if (!v || p->g->values[v].kind != ARIL__FROM_NODE) return NULL;
    uint32_t from = p->g->values[v].from;
    return v < p->r.n_values ? &p->r.old[from] : &p->g->nodes[from];
}

/* The node whose first result is operand i, if nothing else needs that; NULL: there is none. */
static aril__graph_node *first_only_for(pass *p, const aril__graph_node *n, int i)
{
    aril__value_id before = i < n->n_in ? p->g->ids[n->in + (uint32_t)i] : 0;
    if (!before || before >= p->r.n_values || p->uses.all[before] != 1) return NULL;
    aril__value_id v = operand(p, n, i);
    aril__graph_node *from = p->g->values[v].index == 0 ? producer(p, v) : NULL;
    return from && from->region == n->region ? from : NULL;
}

/* The same of a node with one result. */
static aril__graph_node *only_for(pass *p, const aril__graph_node *n, int i)
{
    aril__graph_node *from = first_only_for(p, n, i);
    return from && from->n_out == 1 ? from : NULL;
}

static bool is_op(const aril__graph_node *n, const char *name)
{
    return n && strcmp(n->op->name, name) == 0;
}

static int rank(const pass *p, aril__value_id v)
{
    return p->g->values[v].ndim;
}

static int64_t size(const pass *p, aril__value_id v, int d)
{
    return aril__graph_dims(p->g, v)[d < 0 ? d + rank(p, v) : d];
}

static bool constant_of(const pass *p, aril__value_id v, double *value)
{
    if (!v || p->g->values[v].kind != ARIL__FROM_CONSTANT) return false;
    const aril_tensor *t = p->g->constants[p->g->values[v].from];
    if (!(t->flags & ARIL__CONSTANT) || t->numel != 1 || !t->storage) return false;
    aril__dtypes[t->dtype].load[ARIL__C_F64](value, aril__base(t), t->offset, 1, 1);
    return true;
}

/* ---- writing ---- */

static void set_type(pass *p, aril__value_id v, const aril__value *like, uint32_t shape, int ndim)
{
    aril__value *to = &p->g->values[v];
    to->dtype = like->dtype;
    to->device = like->device;
    to->flags = like->flags;
    to->ndim = (uint8_t)ndim;
    to->shape = shape;
}

/* A new node whose first result has the type and shape of a value; 0: out of memory. */
static aril__node_id add_like(pass *p, const aril__graph_node *from, const aril__op *op, int n_in,
                              const aril__value_id *in, const void *attrs, aril__value_id like)
{
    aril__node_id id = aril__graph_node_add(p->g, op, n_in, in, attrs);
    if (!id) return 0;
    aril__value x = p->g->values[like];
    set_type(p, p->g->nodes[id].out, &x, x.shape, x.ndim);
    p->g->nodes[id].region = from->region;
    p->g->nodes[id].scope = from->scope;
    p->g->nodes[id].label = from->label;
    p->g->nodes[id].where = from->where;
    return id;
}

/* The same with other sizes. */
static aril__value_id add_shaped(pass *p, const aril__graph_node *from, const char *op, int n_in,
                                 const aril__value_id *in, const void *attrs, aril__value_id like,
                                 int ndim, const int64_t *dim)
{
    aril__node_id id = add_like(p, from, aril__op_find(op), n_in, in, attrs, like);
    if (!id || !aril__graph_sizes(p->g, p->g->nodes[id].out, ndim, dim)) return 0;
    return p->g->nodes[id].out;
}

/* Puts a new node in place of an old one. */
static bool replace(pass *p, const aril__graph_node *n, aril__node_id with)
{
    if (with) aril__rewrite_value(&p->r, n->out, p->g->nodes[with].out);
    return with != 0;
}

/* ---- activations ---- */

/* Whether a node limits its first input to the range from 0 to 6. */
static bool is_clamp_to_6(pass *p, const aril__graph_node *n)
{
    double low, high;
    const struct ew_attrs *a = aril__graph_attrs(p->g, n);
    if (is_op(n, "hardtanh")) return a && a->p[0] == 0 && a->p[1] == 6;
    return is_op(n, "clamp") && constant_of(p, operand(p, n, 1), &low) && low == 0 &&
           constant_of(p, operand(p, n, 2), &high) && high == 6;
}

/* The activation that a node computes of its first input. */
static int64_t activation_of(pass *p, const aril__graph_node *n)
{
    static const struct {
        const char *op;
        int64_t activation;
    } known[] = { { "relu", ARIL_RELU },
                  { "relu6", ARIL_RELU6 },
                  { "sigmoid", ARIL_SIGMOID },
                  { "tanh", ARIL_TANH } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_op(n, known[i].op)) return known[i].activation;
    const struct ew_attrs *a = aril__graph_attrs(p->g, n);
    if (is_clamp_to_6(p, n)) return ARIL_RELU6;
    bool leaky = is_op(n, "leaky_relu") && a && a->p[0] == ARIL__LEAKY_SLOPE;
    return leaky ? ARIL_LEAKY_RELU : ARIL_NO_ACTIVATION;
}

static int64_t *activation_in(const pass *p, const aril__graph_node *n)
{
    if (!n->op->activation || !n->has_attrs) return NULL;
    return (int64_t *)(void *)((char *)(p->g->words + n->attrs) + n->op->activation - 1);
}

/* act(f(x)) is f with an activation. In 16 bits, f rounds before others than relu see it. */
static bool join_activation(pass *p, const aril__graph_node *n, bool *fits)
{
    (void)fits;
    int64_t act = activation_of(p, n);
    aril__graph_node *f = act ? first_only_for(p, n, 0) : NULL;
    int64_t *in = f ? activation_in(p, f) : NULL;
    if (!in || *in != ARIL_NO_ACTIVATION || !aril__graph_alike(p->g, n->out, f->out)) return false;
    bool wide = aril__dtypes[p->g->values[n->out].dtype].bits >= 32;
    if (!wide && act != ARIL_RELU && act != ARIL_RELU6) return false;
    *in = act;
    aril__rewrite_value(&p->r, n->out, f->out);
    return true;
}

/* ---- bias ---- */

/* The bias as [channels] if it is added to that axis of y; 0: it is not. */
static aril__value_id bias_of(pass *p, const aril__graph_node *n, aril__value_id bias,
                              aril__value_id y, int axis, bool *fits)
{
    const aril__graph *g = p->g;
    if (!bias || g->values[bias].dtype != g->values[y].dtype || g->values[bias].tensor_flags)
        return 0;
    int from_end = rank(p, y) - axis, ndim = rank(p, bias);
    if (ndim < from_end || ndim > rank(p, y)) return 0;
    for (int d = 0; d < ndim; d++) {
        bool channels = d == ndim - from_end;
        int64_t want = channels ? size(p, y, axis) : 1;
        if (size(p, bias, d) != want || want < 0) return 0;
    }
    if (ndim == 1) return bias;
    int64_t channels = size(p, y, axis);
    struct reshape_attrs a = { .ndim = { 1 }, .dim = { channels } };
    aril__value_id flat = add_shaped(p, n, "reshape", 1, &bias, &a, bias, 1, &channels);
    *fits = flat != 0;
    return flat;
}

static bool has_bias(pass *p, const aril__graph_node *n)
{
    return operand(p, n, 2) != 0;
}

/* f without bias or activation, for which the new node must not be added before `f` is found. */
static bool takes_bias(pass *p, const aril__graph_node *f)
{
    const int64_t *act = f ? activation_in(p, f) : NULL;
    bool known = is_op(f, "linear") || is_op(f, "conv") || is_op(f, "conv_transpose");
    return known && act && *act == ARIL_NO_ACTIVATION && !has_bias(p, f);
}

/* conv(x, w) + b, linear(x, w) + b. */
static bool join_bias(pass *p, const aril__graph_node *n, bool *fits)
{
    for (int i = 0; i < 2 && is_op(n, "add"); i++) {
        const aril__graph_node *f = only_for(p, n, i);
        if (!takes_bias(p, f) || !aril__graph_alike(p->g, n->out, f->out)) continue;
        aril__graph_node copy = *f; /* the list of nodes may move */
        int axis = is_op(f, "linear") ? rank(p, f->out) - 1 : 1;
        aril__value_id b = bias_of(p, n, operand(p, n, 1 - i), f->out, axis, fits);
        if (!b) return false;
        aril__value_id in[3] = { operand(p, &copy, 0), operand(p, &copy, 1), b };
        const void *attrs = aril__graph_attrs(p->g, &copy);
        int64_t words[64];
        if (copy.op->attr_size > sizeof words) return false;
        memcpy(words, attrs, copy.op->attr_size); /* the list of attributes may move */
        *fits = replace(p, n, add_like(p, n, copy.op, 3, in, words, n->out));
        return *fits;
    }
    return false;
}

/* Whether a node swaps the last two axes, and only those. */
static bool is_transpose(pass *p, const aril__graph_node *n)
{
    if (!is_op(n, "permute") || !n->has_attrs) return false;
    const struct permute_attrs *a = aril__graph_attrs(p->g, n);
    int last = rank(p, n->out) - 1;
    for (int d = 0; d <= last; d++) {
        int want = d == last ? last - 1 : d == last - 1 ? last : d;
        if (a->axes[d] != want) return false;
    }
    return last >= 1;
}

/* matmul(x, w) + b, with a matrix w. */
static bool join_product(pass *p, const aril__graph_node *n, bool *fits)
{
    for (int i = 0; i < 2 && is_op(n, "add"); i++) {
        const aril__graph_node *f = only_for(p, n, i);
        if (!is_op(f, "matmul") || !aril__graph_alike(p->g, n->out, f->out)) continue;
        aril__value_id x = operand(p, f, 0), w = operand(p, f, 1), y = f->out;
        if (rank(p, w) != 2 || !aril__is_float((aril_dtype)p->g->values[y].dtype)) return false;
        aril__value_id b = bias_of(p, n, operand(p, n, 1 - i), y, rank(p, y) - 1, fits);
        if (!b) return false;
        const aril__graph_node *turned = producer(p, w);
        aril__value_id plain = is_transpose(p, turned) ? operand(p, turned, 0) : 0;
        if (!plain) {
            struct permute_attrs a = { { 1, 0, 2, 3, 4, 5, 6, 7 } };
            int64_t dim[2] = { size(p, w, 1), size(p, w, 0) };
            plain = add_shaped(p, n, "permute", 1, &w, &a, w, 2, dim);
            if (!(*fits = plain != 0)) return false;
        }
        struct linear_attrs a = { { ARIL_NO_ACTIVATION } };
        aril__value_id in[3] = { x, plain, b };
        *fits = replace(p, n, add_like(p, n, aril__op_find("linear"), 3, in, &a, n->out));
        return *fits;
    }
    return false;
}

/* ---- residuals ---- */

/* Whether the device of a value has kernels for a convolution that adds a tensor. */
static bool has_conv_add(const pass *p, aril__value_id v)
{
    int n = 0;
    aril__rows_of(p->g->values[v].device->id.kind, &aril__op_conv_add, 0, NULL, &n);
    return n > 0;
}

/* conv(x, w, b) + r. */
static bool join_sum(pass *p, const aril__graph_node *n, bool *fits)
{
    for (int i = 0; i < 2 && is_op(n, "add"); i++) {
        const aril__graph_node *f = only_for(p, n, i);
        aril__value_id r = operand(p, n, 1 - i);
        if (!is_op(f, "conv") || *activation_in(p, f) || !r || p->g->values[r].tensor_flags ||
            !aril__graph_alike(p->g, n->out, f->out) || !aril__graph_alike(p->g, r, f->out) ||
            !has_conv_add(p, r))
            continue;
        aril__value_id in[4] = { operand(p, f, 0), operand(p, f, 1), operand(p, f, 2), r };
        struct conv_attrs a = *(const struct conv_attrs *)aril__graph_attrs(p->g, f);
        *fits = replace(p, n, add_like(p, n, &aril__op_conv_add, 4, in, &a, n->out));
        return *fits;
    }
    return false;
}

/* batch_norm_eval(x) + r: the normalization takes a residual. */
static bool join_residual(pass *p, const aril__graph_node *n, bool *fits)
{
    enum { RESIDUAL = 5, INPUTS = 6 };
    for (int i = 0; i < 2 && is_op(n, "add"); i++) {
        const aril__graph_node *f = only_for(p, n, i);
        if (!is_op(f, "batch_norm_eval") || *activation_in(p, f) || operand(p, f, RESIDUAL))
            continue;
        aril__value_id r = operand(p, n, 1 - i), in[INPUTS];
        if (!r || !aril__graph_alike(p->g, r, f->out) || p->g->values[r].tensor_flags) return false;
        for (int k = 0; k < INPUTS; k++) in[k] = k == RESIDUAL ? r : operand(p, f, k);
        struct batch_norm_eval_attrs a =
            *(const struct batch_norm_eval_attrs *)aril__graph_attrs(p->g, f);
        *fits = replace(p, n, add_like(p, n, f->op, INPUTS, in, &a, n->out));
        return *fits;
    }
    return false;
}

/* Whether a gradient of a convolution is a matrix product. */
static bool is_product(pass *p, const aril__graph_node *f)
{
    const struct conv_attrs *a = aril__graph_attrs(p->g, f);
    aril__value_id g = operand(p, f, 0), w = operand(p, f, 1);
    uint8_t dtype = p->g->values[f->out].dtype;
    if (!a || a->groups[0] != 1 || !aril__is_float((aril_dtype)dtype)) return false;
    for (int d = 2; d < rank(p, w); d++)
        if (size(p, w, d) != 1 || size(p, g, d) != size(p, f->out, d)) return false;
    return true;
}

/* conv_dgrad(...) + h, where the device adds to a product. */
static bool join_gradient(pass *p, const aril__graph_node *n, bool *fits)
{
    const aril__op *op = &aril__op_conv_dgrad_add;
    for (int i = 0; i < 2 && is_op(n, "add"); i++) {
        const aril__graph_node *f = only_for(p, n, i);
        if (!is_op(f, "conv_dgrad") || !is_product(p, f)) continue;
        aril__value_id h = operand(p, n, 1 - i);
        int rows = 0;
        aril__rows_of(p->g->values[f->out].device->id.kind, op, 0, NULL, &rows);
        if (!rows || !h || !aril__graph_alike(p->g, h, f->out) || p->g->values[h].tensor_flags)
            continue;
        aril__value_id in[4] = { operand(p, f, 0), operand(p, f, 1), operand(p, f, 2), h };
        struct conv_attrs a = *(const struct conv_attrs *)aril__graph_attrs(p->g, f);
        *fits = replace(p, n, add_like(p, n, op, 4, in, &a, n->out));
        return *fits;
    }
    return false;
}

/* ---- batch normalization in inference ---- */

/* Elements of a value; -1: unknown. */
static int64_t count_of(const pass *p, aril__value_id v)
{
    int64_t n = 1;
    for (int d = 0; d < rank(p, v); d++) {
        if (size(p, v, d) < 0 || __builtin_mul_overflow(n, size(p, v, d), &n)) return -1;
    }
    return n;
}

/* The small nodes that compute folded weights, one after the other. */
typedef struct folding {
    pass *p;
    const aril__graph_node *n;
    aril__value_id like; /* of the shape [channels] */
    bool fits;
} folding;

static aril__value_id fold_op(folding *f, const char *op, aril__value_id a, aril__value_id b)
{
    if (!f->fits || !a) return 0;
    aril__value_id in[2] = { a, b };
    aril__node_id id = add_like(f->p, f->n, aril__op_find(op), b ? 2 : 1, in, NULL, f->like);
    f->fits = id != 0;
    return id ? f->p->g->nodes[id].out : 0;
}

static aril__value_id fold_number(folding *f, double value)
{
    aril_tensor *t = aril__scalar_f64(value);
    aril__value_id v = aril_tensor_status(t) < 0 ? 0 : aril__graph_constant(f->p->g, t);
    f->fits = f->fits && v;
    return v;
}

/* w scaled in each of its output channels: w * s[:,1,1,...]. */
static aril__value_id scaled_weight(folding *f, aril__value_id w, aril__value_id s)
{
    int ndim = rank(f->p, w);
    int64_t dim[ARIL_MAX_DIMS];
    for (int d = 0; d < ndim; d++) dim[d] = d ? 1 : size(f->p, w, 0);
    struct unsqueeze_attrs a = { { ((1 << ndim) - 1) & ~1 } };
    if (!f->fits) return 0;
    aril__value_id tall = add_shaped(f->p, f->n, "unsqueeze", 1, &s, &a, s, ndim, dim);
    if (!(f->fits = tall != 0)) return 0;
    aril__value_id in[2] = { w, tall };
    aril__node_id id = add_like(f->p, f->n, aril__op_find("mul"), 2, in, NULL, w);
    f->fits = id != 0;
    return id ? f->p->g->nodes[id].out : 0;
}

/* batch_norm_eval(conv(x, w, b)) is conv(x, w * s, (b - mean) * s + bias), s = weight / sqrt(var +
 * eps), if the weights are scaled once (see prepare.h), or are so few that scaling them in each run
 * is cheaper than a pass over the result. */
static bool fold_norm(pass *p, const aril__graph_node *n, bool *fits)
{
    enum { MUCH_LARGER = 8 };
    const aril__graph_node *from = is_op(n, "batch_norm_eval") ? only_for(p, n, 0) : NULL;
    aril__value_id r = operand(p, n, 5);
    if (!is_op(from, "conv") || *activation_in(p, from) || (r && !has_conv_add(p, r))) return false;
    aril__graph_node conv = *from;
    aril__value_id x = operand(p, &conv, 0), w = operand(p, &conv, 1), b = operand(p, &conv, 2);
    aril__value_id weight = operand(p, n, 1), bias = operand(p, n, 2), mean = operand(p, n, 3),
                   var = operand(p, n, 4);
    bool fixed = aril__is_fixed(p->g, w) && aril__pass_is_on("prepare");
    for (int i = 1; i < 5; i++)
        fixed = fixed && (!operand(p, n, i) || aril__is_fixed(p->g, operand(p, n, i)));
    int64_t few = count_of(p, w), many = count_of(p, conv.out);
    if (few < 0 || (!fixed && (many < 0 || many / MUCH_LARGER < few))) return false;
    for (int i = 1; i < 5; i++) {
        aril__value_id v = operand(p, n, i);
        if (v && p->g->values[v].dtype != p->g->values[w].dtype) return false;
    }
    struct batch_norm_eval_attrs norm =
        *(const struct batch_norm_eval_attrs *)aril__graph_attrs(p->g, n);
    struct conv_attrs attrs = *(const struct conv_attrs *)aril__graph_attrs(p->g, &conv);
    attrs.activation[0] = norm.activation[0];
    folding f = { .p = p, .n = n, .like = mean, .fits = true };
    aril__value_id s =
        fold_op(&f, "rsqrt", fold_op(&f, "add", var, fold_number(&f, norm.eps[0])), 0);
    if (weight) s = fold_op(&f, "mul", s, weight);
    aril__value_id shift = b ? fold_op(&f, "sub", b, mean) : fold_op(&f, "neg", mean, 0);
    shift = fold_op(&f, "mul", shift, s);
    if (bias) shift = fold_op(&f, "add", shift, bias);
    aril__value_id in[4] = { x, scaled_weight(&f, w, s), shift, r };
    const aril__op *op = r ? &aril__op_conv_add : conv.op;
    *fits = f.fits && replace(p, n, add_like(p, n, op, r ? 4 : 3, in, &attrs, n->out));
    return *fits;
}

/* ---- attention ---- */

/* What softmax(scores) consists of. */
typedef struct scores {
    aril__value_id q, k, mask;
    const aril__graph_node *turned; /* gives k^T */
    double scale;
} scores;

/* Takes a constant factor off: scores * c, scores / c. */
static const aril__graph_node *without_scale(pass *p, const aril__graph_node *n, double *scale)
{
    double c;
    bool divides = is_op(n, "div");
    *scale = 1;
    for (int i = 0; i < 2 && (divides || is_op(n, "mul")); i++) {
        if (!constant_of(p, operand(p, n, 1 - i), &c) || (divides && i == 1) || c == 0) continue;
        *scale = divides ? 1 / c : c;
        return only_for(p, n, i);
    }
    return n;
}

/* q k^T: k is transposed by a node, and has the leading sizes of q. */
static bool take_product(pass *p, const aril__graph_node *n, scores *to)
{
    if (!is_op(n, "matmul")) return false;
    const aril__graph_node *turned = producer(p, operand(p, n, 1));
    if (!is_op(turned, "permute") || !turned->has_attrs) return false;
    to->q = operand(p, n, 0);
    to->k = is_transpose(p, turned) ? operand(p, turned, 0) : 0;
    to->turned = turned;
    int ndim = rank(p, to->q);
    if (rank(p, turned->out) != ndim || ndim < 2) return false;
    for (int d = 0; d < ndim - 2; d++)
        if (size(p, to->q, d) != size(p, turned->out, d)) return false;
    return true;
}

/* k of k^T that one permutation makes of something else. */
static aril__value_id turned_back(pass *p, const aril__graph_node *n,
                                  const aril__graph_node *turned)
{
    struct permute_attrs a = *(const struct permute_attrs *)aril__graph_attrs(p->g, turned);
    aril__value_id x = operand(p, turned, 0);
    int64_t dim[ARIL_MAX_DIMS];
    int last = rank(p, turned->out) - 1;
    for (int d = 0; d <= last; d++) dim[d] = size(p, turned->out, d);
    int64_t axis = a.axes[last], of = dim[last];
    a.axes[last] = a.axes[last - 1];
    a.axes[last - 1] = axis;
    dim[last] = dim[last - 1];
    dim[last - 1] = of;
    return add_shaped(p, n, "permute", 1, &x, &a, x, last + 1, dim);
}

static bool take_scores(pass *p, const aril__graph_node *n, scores *to)
{
    const aril__graph_node *s = without_scale(p, n, &to->scale);
    to->mask = 0;
    if (s && take_product(p, s, to)) return true;
    for (int i = 0; i < 2 && is_op(n, "add"); i++) {
        const aril__graph_node *inner = only_for(p, n, i);
        s = inner ? without_scale(p, inner, &to->scale) : NULL;
        to->mask = operand(p, n, 1 - i);
        if (s && to->mask && aril__graph_alike(p->g, n->out, inner->out) &&
            !p->g->values[to->mask].tensor_flags && take_product(p, s, to))
            return p->g->values[to->mask].dtype == p->g->values[to->q].dtype;
    }
    return false;
}

/* softmax(q k^T * scale + mask) v. */
static bool find_attention(pass *p, const aril__graph_node *n, bool *fits)
{
    const aril__graph_node *soft = is_op(n, "matmul") ? only_for(p, n, 0) : NULL;
    if (!is_op(soft, "softmax")) return false;
    const struct softmax_attrs *axis = aril__graph_attrs(p->g, soft);
    const aril__graph_node *inner = only_for(p, soft, 0);
    scores s;
    if (!inner || !axis || axis->axis[0] != rank(p, soft->out) - 1 || !take_scores(p, inner, &s))
        return false;
    aril__value_id v = operand(p, n, 1);
    int ndim = rank(p, s.q);
    if (rank(p, v) != ndim || p->g->values[v].dtype != p->g->values[s.q].dtype ||
        p->g->values[s.turned->out].dtype != p->g->values[s.q].dtype ||
        !aril__is_float((aril_dtype)p->g->values[s.q].dtype))
        return false;
    for (int d = 0; d < ndim - 2; d++)
        if (size(p, v, d) != size(p, s.q, d)) return false;
    if (!s.k && !(s.k = turned_back(p, n, s.turned))) {
        *fits = false;
        return false;
    }
    struct attention_attrs a = { .scale = { s.scale } };
    aril__value_id in[4] = { s.q, s.k, v, s.mask };
    aril__node_id id = add_like(p, n, &aril__op_attention, 4, in, &a, n->out);
    *fits = id != 0;
    if (!id) return false;
    aril__value q = p->g->values[s.q];
    set_type(p, p->g->nodes[id].out + 1, &q, q.shape, ndim - 1); /* logsumexp: [...,L] */
    p->g->values[p->g->nodes[id].out + 1].dtype = q.dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
    return replace(p, n, id);
}

/* ---- passes ---- */

/* *found: one of the rules has matched. */
static aril_status run(aril__graph *g, int n_rules, rule *const *rules, bool *found)
{
    pass p = { .g = g };
    bool fits = true;
    *found = false;
    if (!aril__uses_count(g, &p.uses)) return aril__fail(ARIL_ERR_MEMORY, "passes: out of memory");
    if (!aril__rewrite_begin(&p.r, g)) {
        aril__uses_free(&p.uses);
        return ARIL_ERR_MEMORY;
    }
    for (aril__node_id id = 1; id < p.r.n_old && fits; id++) {
        bool replaced = false;
        const aril__graph_node *n = &p.r.old[id];
        for (int k = 0; k < n_rules && !replaced && fits && n->n_out == 1; k++)
            replaced = rules[k](&p, n, &fits);
        if (!replaced && fits) fits = aril__rewrite_keep(&p.r, id);
        *found = *found || replaced;
    }
    aril_status s = aril__rewrite_end(&p.r, fits);
    aril__uses_free(&p.uses);
    return s == ARIL_OK && *found ? aril__pass_dead(g) : s;
}

aril_status aril__pass_epilogue(aril__graph *g)
{
    static rule *const rules[] = { join_activation, join_bias,     join_product,
                                   join_sum,        join_residual, join_gradient };
    bool found;
    return run(g, sizeof rules / sizeof *rules, rules, &found);
}

aril_status aril__pass_batchnorm(aril__graph *g)
{
    ARIL_SCOPE; /* of constants */
    static rule *const rules[] = { fold_norm };
    bool found;
    aril_status s = run(g, 1, rules, &found);
    return s == ARIL_OK && found && aril__pass_is_on("fold") ? aril__pass_fold(g) : s;
}

aril_status aril__pass_attention(aril__graph *g)
{
    static rule *const rules[] = { find_attention };
    bool found;
    return run(g, 1, rules, &found);
}
