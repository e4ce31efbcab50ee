/* Operators of ai.onnx.ml. */
#include "onnx/rules.h"

#include <inttypes.h>
#include <math.h>

/* ---- LabelEncoder ---- */

/* The keys or values of a mapping: strings or numbers. */
typedef struct labels {
    size_t n;
    const aril__message *list; /* the attribute with a list */
    const char *field;         /* "strings", "ints" or "floats" */
    onnx_value tensor;         /* or a tensor */
    const double *number;
} labels;

static aril_status read_labels(onnx_call *c, const char *prefix, labels *to)
{
    static const char *const kinds[][2] = { { "strings", "strings" },
                                            { "int64s", "ints" },
                                            { "floats", "floats" } };
    char name[64];
    *to = (labels){ 0 };
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s_%s", prefix, kinds[i][0]);
        if (!(to->list = aril__onnx_attribute(c, name))) continue;
        to->field = kinds[i][1];
        to->n = aril__message_count(to->list, to->field);
        return ARIL_OK;
    }
    snprintf(name, sizeof name, "%s_tensor", prefix);
    const aril__message *a = aril__onnx_attribute(c, name);
    if (!a) return aril__onnx_fail(c, ARIL_ERR_FORMAT, "%s are missing", prefix);
    aril_status s = aril__onnx_tensor(&c->run->arena, aril__message_sub(a, "t"), NULL, &to->tensor);
    if (s < 0) return s;
    if (to->tensor.kind == ONNX_TEXT) {
        to->n = to->tensor.text->n;
        return ARIL_OK;
    }
    to->n = (size_t)aril_numel(to->tensor.tensor);
    const void *at;
    s = aril__onnx_host(c, to->tensor.tensor, ARIL_F64, &at);
    to->number = at;
    return s;
}

static bool is_text(const labels *l)
{
    return l->list ? strcmp(l->field, "strings") == 0 : l->tensor.kind == ONNX_TEXT;
}

static aril__slice label_text(const labels *l, size_t i)
{
    return l->list ? aril__message_bytes_at(l->list, l->field, i) : l->tensor.text->at[i];
}

static double label_number(const labels *l, size_t i)
{
    if (!l->list) return l->number[i];
    return strcmp(l->field, "ints") == 0 ? (double)aril__message_int_at(l->list, l->field, i)
                                         : aril__message_number_at(l->list, l->field, i);
}

static aril_dtype label_dtype(const labels *l)
{
    if (!l->list) return aril_dtype_of(l->tensor.tensor);
    return strcmp(l->field, "ints") == 0 ? ARIL_I64 : ARIL_F32;
}

/* The position of an input's key; n: there is none. */
static size_t find_label(const labels *keys, aril__slice text, double number)
{
    for (size_t k = 0; k < keys->n; k++) {
        if (is_text(keys)) {
            aril__slice s = label_text(keys, k);
            if (s.n == text.n && memcmp(s.at, text.at, s.n) == 0) return k;
        } else {
            double v = label_number(keys, k);
            if (v == number || (isnan(v) && isnan(number))) return k;
        }
    }
    return keys->n;
}

/* What a key without a value gives. */
static aril_status read_default(onnx_call *c, const labels *values, aril__slice *text,
                                double *number)
{
    const aril__message *a = aril__onnx_attribute(c, "default_tensor");
    *text = (aril__slice){ "_Unused", 7 };
    *number = label_dtype(values) == ARIL_I64 ? -1 : 0;
    if (a) {
        onnx_value v;
        const void *at;
        aril_status s = aril__onnx_tensor(&c->run->arena, aril__message_sub(a, "t"), NULL, &v);
        if (s < 0) return s;
        if (v.kind == ONNX_TEXT && v.text->n) *text = v.text->at[0];
        if (v.kind == ONNX_TENSOR && aril_numel(v.tensor) > 0) {
            if ((s = aril__onnx_host(c, v.tensor, ARIL_F64, &at)) != ARIL_OK) return s;
            *number = *(const double *)at;
        }
    }
    if (has_attr(c, "default_string"))
        *text = aril__message_bytes(aril__onnx_attribute(c, "default_string"), "s");
    *number = label_dtype(values) == ARIL_I64
                  ? (double)aril__onnx_attr_int(c, "default_int64", (int64_t)*number)
                  : aril__onnx_attr_float(c, "default_float", *number);
    return ARIL_OK;
}

static aril_status label_encoder(onnx_call *c)
{
    labels keys, values;
    onnx_floats x = { 0 };
    aril__slice none = { 0 };
    double otherwise = 0;
    aril_status s = read_labels(c, "keys", &keys);
    if (s == ARIL_OK) s = read_labels(c, "values", &values);
    if (s != ARIL_OK) return s;
    if (keys.n != values.n)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT, "%zu keys for %zu values", keys.n, values.n);
    bool text = c->n_in > 0 && c->in[0].kind == ONNX_TEXT;
    if (!given(c, 0) || text != is_text(&keys))
        return aril__onnx_fail(c, ARIL_ERR_DTYPE, "the input is not of the type of the keys");
    if (!text && (s = aril__onnx_floats(c, 0, &x)) != ARIL_OK) return s;
    aril__slice default_text = { "_Unused", 7 };
    if (is_text(&values)) {
        if (has_attr(c, "default_string"))
            default_text = aril__message_bytes(aril__onnx_attribute(c, "default_string"), "s");
    } else if ((s = read_default(c, &values, &default_text, &otherwise)) != ARIL_OK) {
        return s;
    }
    aril_shape shape = text ? c->in[0].text->shape : aril_shape_of(c->in[0].tensor);
    size_t n = text ? c->in[0].text->n : (size_t)x.n;
    onnx_text *to = aril__onnx_alloc(&c->run->arena, 1, sizeof *to);
    double *number = aril__onnx_alloc(&c->run->arena, n, sizeof *number);
    if (!to || !number || !(to->at = aril__onnx_alloc(&c->run->arena, n, sizeof *to->at)))
        return ARIL_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        size_t k = find_label(&keys, text ? c->in[0].text->at[i] : none, text ? 0 : x.at[i]);
        if (is_text(&values))
            to->at[i] = k < keys.n ? label_text(&values, k) : default_text;
        else
            number[i] = k < keys.n ? label_number(&values, k) : otherwise;
    }
    to->n = n;
    to->shape = shape;
    if (is_text(&values)) return give_value(c, 0, (onnx_value){ .kind = ONNX_TEXT, .text = to });
    return give(
        c, 0, aril_reshape(aril__onnx_numbers(c, number, (int64_t)n, label_dtype(&values)), shape));
}

/* ---- features ---- */

static aril_status array_feature_extractor(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *index = aril_reshape(in(c, 1), ARIL_SHAPE(-1));
    aril_tensor *y = aril_index_select(x, index, aril_ndim(x) - 1);
    return give(c, 0, aril_ndim(x) == 1 ? aril_unsqueeze(y, 0) : y);
}

static aril_status binarizer(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    return give(c, 0, like(aril_gt_scalar(x, aril__onnx_attr_float(c, "threshold", 0)), x));
}

/* ---- TreeEnsemble ---- */

enum tree_mode { LEQ, LT, GTE, GT, EQ, NEQ, MEMBER };
enum aggregate { AVERAGE, SUM, MIN, MAX };

typedef struct trees {
    onnx_ints roots, feature, truth, falsity, truth_leaf, falsity_leaf, missing, target;
    const double *split, *weight, *members;
    const int64_t *mode;
    int64_t nodes, leaves, n_members, targets;
} trees;

/* Numbers of an attribute that is a tensor; *n is 0 if it is not there. */
static aril_status read_tensor(onnx_call *c, const char *name, aril_dtype as, const void **at,
                               int64_t *n)
{
    const aril__message *a = aril__onnx_attribute(c, name);
    onnx_value v;
    *n = 0;
    *at = NULL;
    if (!a) return ARIL_OK;
    aril_status s = aril__onnx_tensor(&c->run->arena, aril__message_sub(a, "t"), NULL, &v);
    if (s < 0) return s;
    if (v.kind != ONNX_TENSOR)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT, "%s is not a tensor of numbers", name);
    *n = aril_numel(v.tensor);
    return aril__onnx_host(c, v.tensor, as, at);
}

static aril_status read_trees(onnx_call *c, trees *t)
{
    int64_t splits, weights, modes;
    const void *split, *weight, *mode, *members;
    *t = (trees){ .roots = aril__onnx_attr_ints(c, "tree_roots"),
                  .feature = aril__onnx_attr_ints(c, "nodes_featureids"),
                  .truth = aril__onnx_attr_ints(c, "nodes_truenodeids"),
                  .falsity = aril__onnx_attr_ints(c, "nodes_falsenodeids"),
                  .truth_leaf = aril__onnx_attr_ints(c, "nodes_trueleafs"),
                  .falsity_leaf = aril__onnx_attr_ints(c, "nodes_falseleafs"),
                  .missing = aril__onnx_attr_ints(c, "nodes_missing_value_tracks_true"),
                  .target = aril__onnx_attr_ints(c, "leaf_targetids"),
                  .targets = aril__onnx_attr_int(c, "n_targets", 1) };
    aril_status s = read_tensor(c, "nodes_splits", ARIL_F64, &split, &splits);
    if (s == ARIL_OK) s = read_tensor(c, "leaf_weights", ARIL_F64, &weight, &weights);
    if (s == ARIL_OK) s = read_tensor(c, "nodes_modes", ARIL_I64, &mode, &modes);
    if (s == ARIL_OK) s = read_tensor(c, "membership_values", ARIL_F64, &members, &t->n_members);
    if (s != ARIL_OK) return s;
    t->split = split;
    t->weight = weight;
    t->mode = mode;
    t->members = members;
    t->nodes = t->feature.n;
    t->leaves = t->target.n;
    bool fits = splits == t->nodes && modes == t->nodes && t->truth.n == t->nodes &&
                t->falsity.n == t->nodes && t->truth_leaf.n == t->nodes &&
                t->falsity_leaf.n == t->nodes && weights == t->leaves && t->roots.n > 0 &&
                t->targets > 0 && t->targets < 1 << 24;
    for (int64_t i = 0; i < t->roots.n && fits; i++)
        fits = t->roots.at[i] >= 0 && t->roots.at[i] < t->nodes;
    for (int64_t i = 0; i < t->leaves && fits; i++)
        fits = t->target.at[i] >= 0 && t->target.at[i] < t->targets;
    for (int64_t i = 0; i < t->nodes && fits; i++)
        fits = t->truth.at[i] >= 0 &&
               t->truth.at[i] < (t->truth_leaf.at[i] ? t->leaves : t->nodes) &&
               t->falsity.at[i] >= 0 &&
               t->falsity.at[i] < (t->falsity_leaf.at[i] ? t->leaves : t->nodes) &&
               t->feature.at[i] >= 0;
    return fits ? ARIL_OK
                : aril__onnx_fail(c, ARIL_ERR_FORMAT,
                                  "the lists of the trees do not fit each other");
}

/* Whether x is in the set of a node: sets are in the order of the nodes, separated by NaN. */
static bool is_member(const trees *t, int64_t node, double x)
{
    int64_t set = 0, i = 0;
    for (int64_t k = 0; k < node; k++) set += t->mode[k] == MEMBER;
    for (; set > 0 && i < t->n_members; i++) set -= isnan(t->members[i]);
    for (; i < t->n_members && !isnan(t->members[i]); i++)
        if (t->members[i] == x) return true;
    return false;
}

static bool goes_true(const trees *t, int64_t node, double x)
{
    double split = t->split[node];
    if (isnan(x)) /* it differs from any value */
        return (t->missing.n > node && t->missing.at[node]) || t->mode[node] == NEQ;
    switch (t->mode[node]) {
    case LEQ: return x <= split;
    case LT: return x < split;
    case GTE: return x >= split;
    case GT: return x > split;
    case EQ: return x == split;
    case NEQ: return x != split;
    default: return is_member(t, node, x);
    }
}

/* The leaf of a tree; -1 if the nodes form a cycle. */
static int64_t leaf_of(const trees *t, int64_t node, const double *x, int64_t features)
{
    for (int64_t steps = 0; steps <= t->nodes; steps++) {
        int64_t f = t->feature.at[node];
        if (f >= features) return -1;
        bool yes = goes_true(t, node, x[f]);
        int64_t next = yes ? t->truth.at[node] : t->falsity.at[node];
        if (yes ? t->truth_leaf.at[node] : t->falsity_leaf.at[node]) return next;
        node = next;
    }
    return -1;
}

static aril_status tree_ensemble(onnx_call *c)
{
    trees t;
    onnx_floats x;
    aril_status s = read_trees(c, &t);
    if (s == ARIL_OK) s = aril__onnx_floats(c, 0, &x);
    if (s != ARIL_OK) return s;
    aril_tensor *from = c->in[0].tensor;
    int64_t how = aril__onnx_attr_int(c, "aggregate_function", SUM),
            after = aril__onnx_attr_int(c, "post_transform", 0);
    if (aril_ndim(from) != 2 || how < AVERAGE || how > MAX || after < 0 || after > 2)
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED,
                               "the input's shape, or the way of aggregation");
    int64_t rows = aril_size(from, 0), features = aril_size(from, 1);
    double *y = aril__onnx_alloc(&c->run->arena, (size_t)(rows * t.targets), sizeof *y);
    bool *seen = aril__onnx_alloc(&c->run->arena, (size_t)(rows * t.targets), 1);
    if (!y || !seen) return ARIL_ERR_MEMORY;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < t.roots.n; k++) {
            int64_t leaf = leaf_of(&t, t.roots.at[k], x.at + r * features, features);
            if (leaf < 0)
                return aril__onnx_fail(
                    c, ARIL_ERR_FORMAT,
                    "a tree has a cycle, or a feature that the input does not have");
            int64_t at = r * t.targets + t.target.at[leaf];
            double w = t.weight[leaf];
            y[at] = !seen[at]    ? w
                    : how == MIN ? fmin(y[at], w)
                    : how == MAX ? fmax(y[at], w)
                                 : y[at] + w;
            seen[at] = true;
        }
    for (int64_t i = 0; i < rows * t.targets && how == AVERAGE; i++) y[i] /= (double)t.roots.n;
    aril_tensor *all = aril_reshape(aril__onnx_numbers(c, y, rows * t.targets, aril_dtype_of(from)),
                                    ARIL_SHAPE(rows, t.targets));
    if (after == 1) all = aril_softmax(all, 1);
    if (after == 2) all = aril_sigmoid(all);
    return give(c, 0, all);
}

/* ---- maps ---- */

/* The classes of an attribute, strings or integers, as keys of a map. */
static aril_status class_keys(onnx_call *c, const char *strings, const char *numbers,
                              onnx_value *keys, size_t *n)
{
    const aril__message *list = aril__onnx_attribute(c, strings);
    *n = list ? aril__message_count(list, "strings") : 0;
    if (*n) {
        onnx_text *t = aril__onnx_alloc(&c->run->arena, 1, sizeof *t);
        if (!t || !(t->at = aril__onnx_alloc(&c->run->arena, *n, sizeof *t->at)))
            return ARIL_ERR_MEMORY;
        t->n = *n;
        t->shape = ARIL_SHAPE((int64_t)*n);
        for (size_t i = 0; i < *n; i++) t->at[i] = aril__message_bytes_at(list, "strings", i);
        *keys = (onnx_value){ .kind = ONNX_TEXT, .text = t };
        return ARIL_OK;
    }
    onnx_ints of = aril__onnx_attr_ints(c, numbers);
    if (of.n < 1) return aril__onnx_fail(c, ARIL_ERR_FORMAT, "%s are missing", numbers);
    *n = (size_t)of.n;
    aril_tensor *t = aril_from(of.at, ARIL_SHAPE(of.n), ARIL_I64, aril_cpu());
    *keys = (onnx_value){ .kind = ONNX_TENSOR, .tensor = t };
    aril_status s = aril_tensor_status(t);
    if (s == ARIL_OK && !aril__onnx_keep(&c->run->arena, t)) s = ARIL_ERR_MEMORY;
    return s;
}

/* Scores [N,C] or [C]: for each row a map from classes to scores. */
static aril_status zip_map(onnx_call *c)
{
    onnx_arena *a = &c->run->arena;
    aril_tensor *x = in(c, 0);
    onnx_value keys;
    size_t classes;
    aril_status s = class_keys(c, "classlabels_strings", "classlabels_int64s", &keys, &classes);
    if (s < 0) return s;
    if (aril_ndim(x) == 1) x = aril_unsqueeze(x, 0);
    if (aril_ndim(x) != 2 || aril_size(x, 1) != (int64_t)classes)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "expected scores of %zu classes", classes);
    if (aril_size(x, 0) < 0) return ARIL__ONNX_DYNAMIC;
    onnx_sequence *q = aril__onnx_alloc(a, 1, sizeof *q);
    if (!q) return ARIL_ERR_MEMORY;
    q->n = (size_t)aril_size(x, 0);
    if (!(q->at = aril__onnx_alloc(a, q->n, sizeof *q->at))) return ARIL_ERR_MEMORY;
    for (size_t r = 0; r < q->n; r++) {
        onnx_map *map = aril__onnx_alloc(a, 1, sizeof *map);
        if (!map || !(map->items.at = aril__onnx_alloc(a, classes, sizeof *map->items.at)))
            return ARIL_ERR_MEMORY;
        map->keys = keys;
        map->items.n = classes;
        aril_tensor *row = aril_select(x, 0, (int64_t)r);
        for (size_t k = 0; k < classes; k++) {
            aril_tensor *score = aril_select(row, 0, (int64_t)k);
            s = aril_tensor_status(score);
            if (s == ARIL_OK && !aril__onnx_keep(a, score)) s = ARIL_ERR_MEMORY;
            if (s < 0) return s;
            map->items.at[k] = (onnx_value){ .kind = ONNX_TENSOR, .tensor = score };
        }
        q->at[r] = (onnx_value){ .kind = ONNX_MAP, .map = map };
    }
    return give_value(c, 0, (onnx_value){ .kind = ONNX_SEQUENCE, .sequence = q });
}

/* Whether key `of` of a map is entry i of a vocabulary. */
static bool is_key(const onnx_value *vocabulary, const int64_t *word, size_t i,
                   const onnx_value *keys, const int64_t *number, size_t of)
{
    if (vocabulary->kind == ONNX_TENSOR) return number && word[i] == number[of];
    if (keys->kind != ONNX_TEXT) return false;
    aril__slice a = vocabulary->text->at[i], b = keys->text->at[of];
    return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

/* A map as the row [1,n] of its values, in the order of a vocabulary; 0 where it has none. */
static aril_status dict_vectorizer(onnx_call *c)
{
    onnx_value vocabulary;
    size_t n;
    if (!given(c, 0) || c->in[0].kind != ONNX_MAP)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "input 0 is not a map");
    aril_status s = class_keys(c, "string_vocabulary", "int64_vocabulary", &vocabulary, &n);
    if (s < 0) return s;
    const onnx_map *map = c->in[0].map;
    const int64_t *word = NULL, *number = NULL;
    if (vocabulary.kind == ONNX_TENSOR) word = aril_data(vocabulary.tensor);
    if (map->keys.kind == ONNX_TENSOR) number = aril_data(map->keys.tensor);
    aril_tensor **part = aril__onnx_alloc(&c->run->arena, n, sizeof *part), *zero = NULL;
    if (!part) return ARIL_ERR_MEMORY;
    for (size_t k = 0; k < map->items.n; k++)
        if (map->items.at[k].kind != ONNX_TENSOR)
            return aril__onnx_fail(c, ARIL_ERR_ARG, "the values of the map are not numbers");
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < map->items.n && !part[i]; k++)
            if (is_key(&vocabulary, word, i, &map->keys, number, k))
                part[i] = aril_reshape(map->items.at[k].tensor, ARIL_SHAPE(1));
        if (part[i]) continue;
        if (!zero)
            zero = aril_zeros(ARIL_SHAPE(1),
                              map->items.n ? aril_dtype_of(map->items.at[0].tensor) : ARIL_F32,
                              map->items.n ? aril_device_of(map->items.at[0].tensor)
                                           : aril__onnx_device(c));
        part[i] = zero;
    }
    return give(c, 0, aril_unsqueeze(aril_cat((aril_list){ (int)n, part }, 0), 0));
}

const onnx_rule aril__onnx_ml_rules[] = {
    RULE_OF("ai.onnx.ml", "ZipMap", 1, zip_map),
    RULE_OF("ai.onnx.ml", "DictVectorizer", 1, dict_vectorizer),
    RULE_OF("ai.onnx.ml", "LabelEncoder", 2, label_encoder),
    { "ai.onnx.ml", "ArrayFeatureExtractor", 1, 0, array_feature_extractor, NULL, NULL,
      ONNX_MOVES },
    RULE_OF("ai.onnx.ml", "Binarizer", 1, binarizer),
    RULE_OF("ai.onnx.ml", "TreeEnsemble", 5, tree_ensemble),
    { 0 },
};
