/* TreeEnsembleClassifier and TreeEnsembleRegressor: nodes named by their tree and number. */
#include "onnx/ml.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum mode { LEAF, LEQ, LT, GTE, GT, EQ, NEQ };
enum aggregate { SUM, AVERAGE, MIN, MAX };

/* A node, found by its tree and number. */
typedef struct node {
    int64_t tree, number, feature;
    double value;
    enum mode mode;
    bool missing;          /* NaN goes to the true side */
    int64_t yes, no;       /* nodes, by position */
    int64_t weight, count; /* of a leaf: a range of the weights */
} node;

/* What a leaf adds to a target. */
typedef struct weight {
    int64_t tree, number, target;
    double value;
} weight;

typedef struct forest {
    node *node;
    weight *weight;
    int64_t nodes, weights, targets, trees;
    int64_t *root;
    onnx_floats base;
} forest;

static int by_number(const void *a, const void *b)
{
    const node *x = a, *y = b;
    if (x->tree != y->tree) return x->tree < y->tree ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int by_leaf(const void *a, const void *b)
{
    const weight *x = a, *y = b;
    if (x->tree != y->tree) return x->tree < y->tree ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int64_t find_node(const forest *f, int64_t tree, int64_t number)
{
    node key = { .tree = tree, .number = number };
    const node *at =
        f->nodes ? bsearch(&key, f->node, (size_t)f->nodes, sizeof key, by_number) : NULL;
    return at ? at - f->node : -1;
}

static aril_status read_mode(onnx_call *c, aril__slice name, enum mode *to)
{
    static const char *const names[] = { "LEAF",      "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                         "BRANCH_GT", "BRANCH_EQ",  "BRANCH_NEQ" };
    for (int i = 0; i < 7; i++)
        if (strlen(names[i]) == name.n && memcmp(names[i], name.at, name.n) == 0) {
            *to = (enum mode)i;
            return ARIL_OK;
        }
    return aril__onnx_fail(c, ARIL_ERR_FORMAT, "a mode of a node is none of ONNX's");
}

/* The roots: of each tree the one node that is no node's child. Nodes may share a child, but must
 * not form a cycle. */
static aril_status find_roots(onnx_call *c, forest *f)
{
    int64_t n = f->nodes, done = 0, next = 0;
    int64_t *parents = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *parents);
    int64_t *queue = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *queue);
    if (!parents || !queue) return ARIL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        if (f->node[i].mode != LEAF) {
            parents[f->node[i].yes]++;
            parents[f->node[i].no]++;
        }
    for (int64_t i = 0; i < n; i++) {
        if (parents[i]) continue;
        if (f->trees && f->node[f->root[f->trees - 1]].tree == f->node[i].tree)
            return aril__onnx_fail(c, ARIL_ERR_FORMAT, "tree %" PRId64 " has more than one root",
                                   f->node[i].tree);
        queue[next++] = f->root[f->trees++] = i;
    }
    for (; done < next; done++) {
        const node *at = &f->node[queue[done]];
        for (int side = 0; side < 2 && at->mode != LEAF; side++) {
            int64_t child = side ? at->no : at->yes;
            if (--parents[child] == 0) queue[next++] = child;
        }
    }
    return done == n ? ARIL_OK : aril__onnx_fail(c, ARIL_ERR_FORMAT, "a tree has a cycle");
}

/* The nodes in the order of their names, with children by position. */
static aril_status read_nodes(onnx_call *c, forest *f)
{
    onnx_ints tree = aril__onnx_attr_ints(c, "nodes_treeids"),
              number = aril__onnx_attr_ints(c, "nodes_nodeids"),
              feature = aril__onnx_attr_ints(c, "nodes_featureids"),
              yes = aril__onnx_attr_ints(c, "nodes_truenodeids"),
              no = aril__onnx_attr_ints(c, "nodes_falsenodeids"),
              missing = aril__onnx_attr_ints(c, "nodes_missing_value_tracks_true");
    const aril__message *modes = aril__onnx_attribute(c, "nodes_modes");
    onnx_floats value;
    aril_status s = aril__ml_numbers(c, "nodes_values", &value);
    if (s != ARIL_OK) return s;
    int64_t n = f->nodes = tree.n;
    if (n < 1 || number.n != n || feature.n != n || yes.n != n || no.n != n || value.n != n ||
        !modes || aril__message_count(modes, "strings") != (size_t)n)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT, "the lists of nodes do not fit each other");
    f->node = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *f->node);
    f->root = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *f->root);
    if (!f->node || !f->root) return ARIL_ERR_MEMORY;
    for (int64_t i = 0; i < n && s == ARIL_OK; i++) {
        f->node[i] = (node){ .tree = tree.at[i],
                             .number = number.at[i],
                             .feature = feature.at[i],
                             .value = value.at[i],
                             .missing = missing.n > i && missing.at[i],
                             .yes = yes.at[i],
                             .no = no.at[i] };
        s = read_mode(c, aril__message_bytes_at(modes, "strings", (size_t)i), &f->node[i].mode);
    }
    if (s != ARIL_OK) return s;
    qsort(f->node, (size_t)n, sizeof *f->node, by_number);
    for (int64_t i = 0; i < n; i++) {
        node *at = &f->node[i];
        if (at->mode == LEAF) continue;
        at->yes = find_node(f, at->tree, at->yes);
        at->no = find_node(f, at->tree, at->no);
        if (at->yes < 0 || at->no < 0 || at->feature < 0)
            return aril__onnx_fail(c, ARIL_ERR_FORMAT, "a child of a node is missing");
    }
    return find_roots(c, f);
}

/* The weights in the order of their leaves; `prefix` is "class" or "target". */
static aril_status read_weights(onnx_call *c, const char *prefix, forest *f)
{
    char name[4][32];
    static const char *const parts[] = { "treeids", "nodeids", "ids", "weights" };
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "%s_%s", prefix, parts[i]);
    onnx_ints tree = aril__onnx_attr_ints(c, name[0]), number = aril__onnx_attr_ints(c, name[1]),
              target = aril__onnx_attr_ints(c, name[2]);
    onnx_floats value;
    aril_status s = aril__ml_numbers(c, name[3], &value);
    if (s != ARIL_OK) return s;
    int64_t n = f->weights = tree.n;
    if (n < 1 || number.n != n || target.n != n || value.n != n)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT, "the lists of leaves do not fit each other");
    f->weight = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *f->weight);
    if (!f->weight) return ARIL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        if (target.at[i] < 0 || target.at[i] >= f->targets)
            return aril__onnx_fail(c, ARIL_ERR_FORMAT,
                                   "%" PRId64 " is none of the %" PRId64 " targets", target.at[i],
                                   f->targets);
        f->weight[i] = (weight){ tree.at[i], number.at[i], target.at[i], value.at[i] };
    }
    qsort(f->weight, (size_t)n, sizeof *f->weight, by_leaf);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = find_node(f, f->weight[i].tree, f->weight[i].number);
        if (at < 0) return aril__onnx_fail(c, ARIL_ERR_FORMAT, "a leaf is missing");
        if (!f->node[at].count++) f->node[at].weight = i;
    }
    s = aril__ml_numbers(c, "base_values", &f->base);
    /* One number may stand for the second of two classes. */
    if (s == ARIL_OK && f->base.n > 0 && f->base.n != f->targets &&
        !(f->base.n == 1 && f->targets == 2))
        return aril__onnx_fail(c, ARIL_ERR_FORMAT,
                               "%" PRId64 " base_values for %" PRId64 " targets", f->base.n,
                               f->targets);
    return s;
}

static bool goes_true(const node *n, double x)
{
    if (isnan(x)) return n->missing || n->mode == NEQ; /* NaN differs from any value */
    switch (n->mode) {
    case LEQ: return x <= n->value;
    case LT: return x < n->value;
    case GTE: return x >= n->value;
    case GT: return x > n->value;
    case EQ: return x == n->value;
    default: return x != n->value;
    }
}

/* The leaf of a tree; NULL if the nodes form a cycle, or a feature is not there. */
static const node *leaf_of(const forest *f, int64_t at, const double *x, int64_t features)
{
    for (int64_t steps = 0; steps <= f->nodes; steps++) {
        const node *n = &f->node[at];
        if (n->mode == LEAF) return n;
        if (n->feature >= features) return NULL;
        at = goes_true(n, x[n->feature]) ? n->yes : n->no;
    }
    return NULL;
}

/* Adds up the trees' weights for a row; seen[k]: some leaf has a weight for target k. */
static aril_status evaluate(onnx_call *c, const forest *f, enum aggregate how, const double *x,
                            int64_t features, double *y, bool *seen)
{
    memset(y, 0, (size_t)f->targets * sizeof *y);
    memset(seen, 0, (size_t)f->targets);
    for (int64_t t = 0; t < f->trees; t++) {
        const node *leaf = leaf_of(f, f->root[t], x, features);
        if (!leaf)
            return aril__onnx_fail(c, ARIL_ERR_FORMAT,
                                   "a tree has a cycle, or a feature that the input does not have");
        for (int64_t i = leaf->weight; i < leaf->weight + leaf->count; i++) {
            const weight *w = &f->weight[i];
            double *to = &y[w->target];
            *to = !seen[w->target] ? w->value
                  : how == MIN     ? fmin(*to, w->value)
                  : how == MAX     ? fmax(*to, w->value)
                                   : *to + w->value;
            seen[w->target] = true;
        }
    }
    for (int64_t k = 0; k < f->targets && how == AVERAGE; k++) y[k] /= (double)f->trees;
    return ARIL_OK;
}

static aril_status read_forest(onnx_call *c, const char *prefix, forest *f)
{
    aril_status s = read_nodes(c, f);
    return s == ARIL_OK ? read_weights(c, prefix, f) : s;
}

/* ---- classes ---- */

typedef struct classes {
    forest f;
    bool one, positive; /* all weights are of one class of two; none is negative */
    enum ml_transform how;
} classes;

/* Scores and the class of a row from the sums of its leaves. */
static int64_t finish_class(const classes *k, double *y, const bool *seen)
{
    const forest *f = &k->f;
    int64_t best = -1;
    if (k->one) {
        int64_t of = f->weight[0].target;
        double s = y[of];
        if (f->base.n == 2) s += f->base.at[1];
        if (f->base.n == 1) s += f->base.at[0];
        aril__ml_two(k->how, k->positive ? ML_COMPLEMENT : ML_OPPOSITE, s, y);
        return s > (k->positive ? 0.5 : 0);
    }
    for (int64_t i = 0; i < f->targets && f->base.n == f->targets; i++) y[i] += f->base.at[i];
    for (int64_t i = 0; i < f->targets; i++) /* of the classes that leaves have weights for */
        if ((seen[i] || f->base.n == f->targets) && (best < 0 || y[i] > y[best])) best = i;
    aril__ml_transform(k->how, y, f->targets);
    return best < 0 ? 0 : best;
}

static aril_status tree_classifier(onnx_call *c)
{
    ml_labels labels;
    classes k = { 0 };
    onnx_floats x;
    int64_t rows, features;
    aril_status s = aril__ml_labels_of(c, &labels);
    k.f.targets = labels.n;
    if (s == ARIL_OK) s = aril__ml_transform_of(c, &k.how);
    if (s == ARIL_OK) s = read_forest(c, "class", &k.f);
    if (s == ARIL_OK) s = aril__ml_rows(c, &x, &rows, &features);
    if (s != ARIL_OK) return s;
    k.one = labels.n == 2;
    k.positive = true;
    for (int64_t i = 0; i < k.f.weights; i++) {
        k.one &= k.f.weight[i].target == k.f.weight[0].target;
        k.positive &= k.f.weight[i].value >= 0;
    }
    onnx_arena *a = &c->run->arena;
    double *y = aril__onnx_alloc(a, (size_t)(rows * labels.n), sizeof *y);
    bool *seen = aril__onnx_alloc(a, (size_t)labels.n, 1);
    int64_t *at = aril__onnx_alloc(a, (size_t)rows, sizeof *at);
    if (!y || !seen || !at) return ARIL_ERR_MEMORY;
    for (int64_t r = 0; r < rows && s == ARIL_OK; r++) {
        s = evaluate(c, &k.f, SUM, x.at + r * features, features, y + r * labels.n, seen);
        if (s == ARIL_OK) at[r] = finish_class(&k, y + r * labels.n, seen);
    }
    return s == ARIL_OK ? aril__ml_give(c, &labels, at, rows, y, labels.n) : s;
}

/* ---- numbers ---- */

static aril_status tree_regressor(onnx_call *c)
{
    static const char *const ways[] = { "SUM", "AVERAGE", "MIN", "MAX" };
    forest f = { .targets = aril__onnx_attr_int(c, "n_targets", 1) };
    enum ml_transform how;
    enum aggregate way = SUM;
    bool found = false;
    onnx_floats x;
    int64_t rows, features;
    for (int i = 0; i < 4; i++)
        if (attr_is(c, "aggregate_function", "SUM", ways[i])) {
            way = (enum aggregate)i;
            found = true;
        }
    if (!found || f.targets < 1 || f.targets > 1 << 24)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "aggregate_function or n_targets");
    aril_status s = aril__ml_transform_of(c, &how);
    if (s == ARIL_OK) s = read_forest(c, "target", &f);
    if (s == ARIL_OK) s = aril__ml_rows(c, &x, &rows, &features);
    if (s != ARIL_OK) return s;
    double *y = aril__onnx_alloc(&c->run->arena, (size_t)(rows * f.targets), sizeof *y);
    bool *seen = aril__onnx_alloc(&c->run->arena, (size_t)f.targets, 1);
    if (!y || !seen) return ARIL_ERR_MEMORY;
    for (int64_t r = 0; r < rows && s == ARIL_OK; r++) {
        double *to = y + r * f.targets;
        s = evaluate(c, &f, way, x.at + r * features, features, to, seen);
        for (int64_t k = 0; k < f.targets && f.base.n == f.targets; k++) to[k] += f.base.at[k];
        if (s == ARIL_OK) aril__ml_transform(how, to, f.targets);
    }
    if (s != ARIL_OK) return s;
    return give(c, 0,
                aril_reshape(aril__onnx_numbers(c, y, rows * f.targets, ARIL_F32),
                             ARIL_SHAPE(rows, f.targets)));
}

const onnx_rule aril__onnx_ml_trees_rules[] = {
    RULE_OF("ai.onnx.ml", "TreeEnsembleClassifier", 1, tree_classifier),
    RULE_OF("ai.onnx.ml", "TreeEnsembleRegressor", 1, tree_regressor),
    { 0 },
};
