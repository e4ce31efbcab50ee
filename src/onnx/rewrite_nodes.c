/* Nodes of one operator set in another: what changed between the versions of an operator, as steps
 * from one version to the next. */
#include "onnx/rewrite.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A graph or function whose nodes are rewritten. */
typedef struct rewritten {
    rewriting *r;
    aril__message *graph;
    size_t *order; /* of its nodes, with those that are added */
    size_t n, n_old, n_added, capacity;
    size_t *after; /* to follow the node that is being rewritten */
    size_t n_after, cap_after;
    bool function;
} rewritten;

/* One node. */
typedef struct change {
    rewritten *in;
    aril__message *node;
    const onnx_node *n;
    const char *op; /* now */
    int from, to;   /* versions of the operator set */
} change;

static aril__cold aril_status refuse(const change *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static aril_status refuse(const change *c, const char *fmt, ...)
{
    char text[300];
    const char *name = aril__message_text(c->node, "name");
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: node %.100s%s%s-%d: %s", c->in->r->to->what, name,
                      *name ? " " : "", c->op, c->from, text);
}

/* ---- attributes ---- */

static aril__message *attribute(const change *c, const char *name)
{
    for (size_t i = 0; i < aril__message_count(c->node, "attribute"); i++) {
        aril__message *a = aril__message_sub_at(c->node, "attribute", i);
        if (strcmp(aril__message_text(a, "name"), name) == 0) return a;
    }
    return NULL;
}

static void drop_attribute(const change *c, const char *name)
{
    for (size_t i = aril__message_count(c->node, "attribute"); i-- > 0;)
        if (strcmp(aril__message_text(aril__message_sub_at(c->node, "attribute", i), "name"),
                   name) == 0)
            aril__message_remove(c->node, "attribute", i);
}

static aril__message *new_attribute(const change *c, const char *name, int type)
{
    drop_attribute(c, name);
    aril__message *a = aril__message_add_sub(c->node, "attribute");
    aril__message_set_text(a, "name", name);
    aril__message_set_int(a, "type", type);
    return a;
}

enum { FLOAT_ATTRIBUTE = 1, INT_ATTRIBUTE, TEXT_ATTRIBUTE, TENSOR_ATTRIBUTE, INTS_ATTRIBUTE = 7 };

static void set_int(const change *c, const char *name, int64_t value)
{
    aril__message_set_int(new_attribute(c, name, INT_ATTRIBUTE), "i", value);
}

static void set_text(const change *c, const char *name, const char *text)
{
    aril__message_set_bytes(new_attribute(c, name, TEXT_ATTRIBUTE), "s", text, strlen(text));
}

static int64_t int_of(const change *c, const char *name, int64_t otherwise)
{
    const aril__message *a = attribute(c, name);
    return a ? aril__message_int(a, "i") : otherwise;
}

static bool text_is(const aril__message *a, const char *text)
{
    aril__slice s = aril__message_bytes(a, "s");
    return s.n == strlen(text) && memcmp(s.at, text, s.n) == 0;
}

/* ---- inputs ---- */

static size_t inputs(const change *c)
{
    return aril__message_count(c->node, "input");
}

static bool has_input(const change *c, size_t i)
{
    return i < inputs(c) && *aril__message_text_at(c->node, "input", i);
}

/* Sets one name of a list, which grows where it is too short. */
static void set_name(aril__message *node, const char *list, size_t at, const char *name)
{
    size_t n = aril__message_count(node, list), all = n > at + 1 ? n : at + 1;
    const char **old = aril__calloc(all * sizeof *old);
    if (!old) {
        aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
        return;
    }
    for (size_t i = 0; i < all; i++)
        old[i] = i == at ? name : i < n ? aril__message_text_at(node, list, i) : "";
    aril__message_clear(node, list);
    for (size_t i = 0; i < all; i++) aril__message_add_text(node, list, old[i]);
    free(old);
}

static void set_input(const change *c, size_t i, const char *name)
{
    set_name(c->node, "input", i, name);
}

static void drop_input(const change *c, size_t i)
{
    set_input(c, i, "");
    while (inputs(c) && !has_input(c, inputs(c) - 1))
        aril__message_remove(c->node, "input", inputs(c) - 1);
}

/* What is known of the type of input or output i of the node as it was. */
static const onnx_type *type_of(const change *c, bool output, size_t i)
{
    static const onnx_type unknown;
    size_t n = output ? c->n->n_out : c->n->n_in;
    onnx_slot slot = i < n ? (output ? c->n->out : c->n->in)[i] : 0;
    const onnx_type *t = slot && !c->in->function ? &c->in->r->types.of[slot] : &unknown;
    return t->missing ? &unknown : t;
}

/* ---- new nodes ---- */

static bool add_order(size_t **list, size_t *n, size_t *capacity, size_t index)
{
    if (*n == *capacity) {
        size_t more = 2 * *capacity + 64;
        size_t *grown = aril__realloc(*list, more * sizeof *grown);
        if (!grown) return aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory") == ARIL_OK;
        *list = grown;
        *capacity = more;
    }
    (*list)[(*n)++] = index;
    return true;
}

static const char *new_name(rewriting *r)
{
    char text[80];
    snprintf(text, sizeof text, "%s%d", r->prefix, r->n_new++);
    char *name = aril__onnx_alloc(&r->m->arena, strlen(text) + 1, 1);
    return name ? strcpy(name, text) : "";
}

/* A node before the one that is rewritten, or after it. */
static aril__message *add_node(const change *c, const char *op, bool after)
{
    rewritten *in = c->in;
    size_t index = in->n_old + in->n_added++;
    aril__message *node = aril__message_add_sub(in->graph, "node");
    const char *name = aril__message_text(c->node, "name");
    char text[300];
    snprintf(text, sizeof text, "%.200s%s%s%d", name, *name ? "_" : in->r->prefix, op,
             in->r->n_new++);
    aril__message_set_text(node, "op_type", op);
    aril__message_set_text(node, "name", text);
    if (after)
        add_order(&in->after, &in->n_after, &in->cap_after, index);
    else
        add_order(&in->order, &in->n, &in->capacity, index);
    return node;
}

/* A constant of one dimension, or of none for n < 0; elements of ONNX's type `elem`. */
static const char *new_constant(const change *c, int elem, int64_t n, const void *at, size_t size)
{
    aril__message *node = add_node(c, "Constant", false);
    const char *name = new_name(c->in->r);
    aril__message *a = aril__message_add_sub(node, "attribute");
    aril__message_set_text(a, "name", "value");
    aril__message_set_int(a, "type", TENSOR_ATTRIBUTE);
    aril__message *t = aril__message_set_sub(a, "t");
    if (n >= 0) aril__message_add_int(t, "dims", n);
    aril__message_set_int(t, "data_type", elem);
    aril__message_set_bytes(t, "raw_data", at, (size_t)(n < 0 ? 1 : n) * size);
    aril__message_add_text(node, "output", name);
    return name;
}

enum { FLOAT = 1, INT64 = 7 };

static const char *int_constant(const change *c, int64_t value, bool scalar)
{
    return new_constant(c, INT64, scalar ? -1 : 1, &value, sizeof value);
}

/* An attribute that became an input: integers, of which the node has a list or one. */
static aril_status ints_to_input(const change *c, const char *name, size_t input)
{
    const aril__message *a = attribute(c, name);
    if (!a) return ARIL_OK;
    size_t n = aril__message_count(a, "ints");
    int64_t *value = aril__calloc((n + 1) * sizeof *value);
    if (!value) return aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
    for (size_t i = 0; i < n; i++) value[i] = aril__message_int_at(a, "ints", i);
    set_input(c, input, new_constant(c, INT64, (int64_t)n, value, sizeof *value));
    free(value);
    drop_attribute(c, name);
    return ARIL_OK;
}

/* The same of a number, which has the type of input 0. */
static aril_status float_to_input(const change *c, const char *name, size_t input)
{
    const aril__message *a = attribute(c, name);
    if (!a) return ARIL_OK;
    float value = (float)aril__message_number(a, "f");
    int elem = c->in->function || !c->n->n_in ? 0 : c->in->r->elem[c->n->in[0]];
    const char *made = new_constant(c, FLOAT, -1, &value, sizeof value);
    if (elem != FLOAT) { /* CastLike is newer than some operator sets */
        if (!elem) return refuse(c, "the type of its input is not known");
        aril__message *cast = add_node(c, "Cast", false);
        aril__message_add_text(cast, "input", made);
        aril__message_add_text(cast, "output", made = new_name(c->in->r));
        aril__message *to = aril__message_add_sub(cast, "attribute");
        aril__message_set_text(to, "name", "to");
        aril__message_set_int(to, "type", INT_ATTRIBUTE);
        aril__message_set_int(to, "i", elem);
    }
    set_input(c, input, made);
    drop_attribute(c, name);
    return ARIL_OK;
}

/* The integers of an input that is an initializer or a constant; false: they are not known. */
static bool known_ints(const change *c, size_t i, int64_t *to, size_t most, size_t *n)
{
    onnx_slot slot = i < c->n->n_in ? c->n->in[i] : 0;
    const onnx_value *v = slot ? &c->in->r->m->initial[slot] : NULL;
    aril_tensor *t = v && v->kind == ONNX_TENSOR ? v->tensor : NULL;
    const char *name = has_input(c, i) ? aril__message_text_at(c->node, "input", i) : "";
    onnx_value made = { 0 };
    ARIL_SCOPE;
    for (size_t k = 0; !t && k < c->in->n_old; k++) {
        const aril__message *node = aril__message_sub_at(c->in->graph, "node", k);
        if (strcmp(aril__message_text(node, "op_type"), "Constant") != 0 ||
            strcmp(aril__message_text_at(node, "output", 0), name) != 0)
            continue;
        const aril__message *a = aril__message_sub_at(node, "attribute", 0);
        if (a && aril__message_has(a, "t") &&
            aril__onnx_tensor(&c->in->r->m->arena, aril__message_sub(a, "t"), NULL, &made) ==
                ARIL_OK &&
            made.kind == ONNX_TENSOR)
            t = made.tensor;
    }
    if (!t || aril_dtype_of(t) != ARIL_I64 || (size_t)aril_numel(t) > most) return false;
    *n = (size_t)aril_numel(t);
    return aril_read(t, to) == ARIL_OK;
}

/* ---- steps ---- */

static aril_status no_rewriting(const change *c)
{
    return refuse(c, "operator set %d computes it otherwise", c->to);
}

static aril_status spatial_norm(const change *c)
{
    if (!int_of(c, "spatial", 1)) return no_rewriting(c);
    drop_attribute(c, "spatial");
    return ARIL_OK;
}

/* With statistics among the outputs it trains. */
static aril_status one_output(const change *c)
{
    for (size_t i = 1; i < c->n->n_out; i++)
        if (c->n->out[i]) return no_rewriting(c);
    while (aril__message_count(c->node, "output") > 1)
        aril__message_remove(c->node, "output", aril__message_count(c->node, "output") - 1);
    return ARIL_OK;
}

static aril_status upsample(const change *c)
{
    aril__message *a = attribute(c, "scales"), *mode = attribute(c, "mode");
    const char *scales = has_input(c, 1) ? aril__message_text_at(c->node, "input", 1) : "";
    if (a) {
        size_t n = aril__message_count(a, "floats");
        float value[ARIL_MAX_DIMS];
        if (n > ARIL_MAX_DIMS) return no_rewriting(c);
        for (size_t i = 0; i < n; i++) value[i] = (float)aril__message_number_at(a, "floats", i);
        scales = new_constant(c, FLOAT, (int64_t)n, value, sizeof *value);
    }
    if (!*scales || (mode && !text_is(mode, "nearest") && !text_is(mode, "linear")))
        return no_rewriting(c);
    char *copy = aril__onnx_alloc(&c->in->r->m->arena, strlen(scales) + 1, 1);
    if (!copy) return ARIL_ERR_MEMORY;
    set_input(c, 1, strcpy(copy, scales));
    drop_attribute(c, "scales");
    aril__message_set_text(c->node, "op_type", "Resize");
    return ARIL_OK;
}

static aril_status resize(const change *c)
{
    if (inputs(c) > 2) return ARIL_OK; /* of version 11 */
    char *scales = aril__onnx_alloc(&c->in->r->m->arena,
                                    strlen(aril__message_text_at(c->node, "input", 1)) + 1, 1);
    if (!scales) return ARIL_ERR_MEMORY;
    strcpy(scales, aril__message_text_at(c->node, "input", 1));
    set_input(c, 1, "");
    set_input(c, 2, scales);
    set_text(c, "coordinate_transformation_mode", "asymmetric");
    set_text(c, "nearest_mode", "floor");
    return ARIL_OK;
}

static aril_status resize_13(const change *c)
{
    const aril__message *a = attribute(c, "coordinate_transformation_mode");
    return a && text_is(a, "tf_half_pixel_for_nn") ? no_rewriting(c) : ARIL_OK;
}

static aril_status dropout_12(const change *c)
{
    return float_to_input(c, "ratio", 1);
}

static aril_status topk(const change *c)
{
    if (!attribute(c, "k")) return ARIL_OK;
    set_input(c, 1, int_constant(c, int_of(c, "k", 0), false));
    drop_attribute(c, "k");
    return ARIL_OK;
}

static aril_status slice(const change *c)
{
    aril_status s = ints_to_input(c, "starts", 1);
    if (s == ARIL_OK) s = ints_to_input(c, "ends", 2);
    return s == ARIL_OK ? ints_to_input(c, "axes", 3) : s;
}

static aril_status clip(const change *c)
{
    aril_status s = float_to_input(c, "min", 1);
    return s == ARIL_OK ? float_to_input(c, "max", 2) : s;
}

static aril_status pad(const change *c)
{
    aril_status s = ints_to_input(c, "pads", 1);
    return s == ARIL_OK ? float_to_input(c, "value", 2) : s;
}

static aril_status scatter(const change *c)
{
    aril__message_set_text(c->node, "op_type", "ScatterElements");
    return ARIL_OK;
}

/* Before version 13, all axes from `axis` on are one. */
static aril_status softmax(const change *c)
{
    const onnx_type *x = type_of(c, false, 0);
    int64_t axis = int_of(c, "axis", 1);
    bool known = x->kind == ONNX_TENSOR;
    if (axis == -1 || (known && axis == x->ndim - 1)) {
        set_int(c, "axis", -1);
        return ARIL_OK;
    }
    const char *shape = new_name(c->in->r), *flat = new_name(c->in->r), *y = new_name(c->in->r);
    aril__message *node = add_node(c, "Shape", false);
    aril__message_add_text(node, "input", aril__message_text_at(c->node, "input", 0));
    aril__message_add_text(node, "output", shape);
    node = add_node(c, "Flatten", false);
    aril__message_add_text(node, "input", aril__message_text_at(c->node, "input", 0));
    aril__message_add_text(node, "output", flat);
    aril__message *a = aril__message_add_sub(node, "attribute");
    aril__message_set_text(a, "name", "axis");
    aril__message_set_int(a, "type", INT_ATTRIBUTE);
    aril__message_set_int(a, "i", axis);
    node = add_node(c, "Reshape", true);
    aril__message_add_text(node, "input", y);
    aril__message_add_text(node, "input", shape);
    aril__message_add_text(node, "output", aril__message_text_at(c->node, "output", 0));
    set_input(c, 0, flat);
    set_name(c->node, "output", 0, y);
    set_int(c, "axis", -1);
    return ARIL_OK;
}

static aril_status axes_to_input(const change *c)
{
    return ints_to_input(c, "axes", 1);
}

static aril_status axes_to_attribute(const change *c)
{
    int64_t axes[ARIL_MAX_DIMS];
    size_t n = 0;
    if (!has_input(c, 1)) {
        if (int_of(c, "noop_with_empty_axes", 0)) return no_rewriting(c);
        drop_attribute(c, "noop_with_empty_axes");
        return ARIL_OK;
    }
    if (!known_ints(c, 1, axes, ARIL_MAX_DIMS, &n) || !n) return no_rewriting(c);
    aril__message_set_ints(new_attribute(c, "axes", INTS_ATTRIBUTE), "ints", axes, n);
    drop_attribute(c, "noop_with_empty_axes");
    drop_input(c, 1);
    return ARIL_OK;
}

static aril_status split_13(const change *c)
{
    return ints_to_input(c, "split", 1);
}

static aril_status split_18(const change *c)
{
    if (!has_input(c, 1))
        set_int(c, "num_outputs", (int64_t)aril__message_count(c->node, "output"));
    return ARIL_OK;
}

/* Into parts of equal size, which the axis must be a multiple of. */
static aril_status split_before_18(const change *c)
{
    const onnx_type *x = type_of(c, false, 0);
    int64_t n = int_of(c, "num_outputs", 0), axis = int_of(c, "axis", 0);
    if (!attribute(c, "num_outputs")) return ARIL_OK;
    axis += axis < 0 ? x->ndim : 0;
    bool known = x->kind == ONNX_TENSOR && axis >= 0 && axis < x->ndim && x->dim[axis] >= 0;
    if (!known || n < 1 || x->dim[axis] % n) return no_rewriting(c);
    drop_attribute(c, "num_outputs");
    return ARIL_OK;
}

static aril_status roi_align(const change *c)
{
    if (!attribute(c, "coordinate_transformation_mode"))
        set_text(c, "coordinate_transformation_mode", "output_half_pixel");
    return ARIL_OK;
}

static aril_status roi_align_before_16(const change *c)
{
    const aril__message *a = attribute(c, "coordinate_transformation_mode");
    if (!a || !text_is(a, "output_half_pixel")) return no_rewriting(c);
    drop_attribute(c, "coordinate_transformation_mode");
    return ARIL_OK;
}

static aril_status dft(const change *c)
{
    set_input(c, 2, int_constant(c, int_of(c, "axis", 1), true));
    drop_attribute(c, "axis");
    return ARIL_OK;
}

static aril_status dft_before_20(const change *c)
{
    int64_t axis = -2;
    size_t n = 1;
    if (has_input(c, 2) && (!known_ints(c, 2, &axis, 1, &n) || n != 1)) return no_rewriting(c);
    if (axis < 0 && type_of(c, false, 0)->kind != ONNX_TENSOR) return no_rewriting(c);
    if (axis < 0) axis += type_of(c, false, 0)->ndim;
    if (has_input(c, 2)) drop_input(c, 2);
    set_int(c, "axis", axis);
    return ARIL_OK;
}

static aril_status rename_mode(const change *c, const char *const from[2], const char *const to[2])
{
    const aril__message *a = attribute(c, "mode");
    for (int k = 0; a && k < 2; k++)
        if (text_is(a, from[k])) {
            set_text(c, "mode", to[k]);
            break;
        }
    return ARIL_OK;
}

static const char *const old_modes[] = { "bilinear", "bicubic" }, *const new_modes[] = { "linear",
                                                                                         "cubic" };

static aril_status grid_sample(const change *c)
{
    return rename_mode(c, old_modes, new_modes);
}

/* It has only images; its default has another name. */
static aril_status grid_sample_before_20(const change *c)
{
    const onnx_type *x = type_of(c, false, 0);
    if (x->kind != ONNX_TENSOR || x->ndim != 4) return no_rewriting(c);
    return rename_mode(c, new_modes, old_modes);
}

typedef aril_status step_fn(const change *c);

/* What a version of an operator changed: how a node of the version before becomes one of it, and
 * the other way. NULL: it stays as it is, without what that version does not have. */
static const struct step {
    const char *op;
    int version;
    step_fn *up, *down;
} steps[] = {
    { "Scan", 9, no_rewriting, NULL },
    { "BatchNormalization", 9, spatial_norm, NULL },
    { "Upsample", 9, upsample, NULL },
    { "Upsample", 10, upsample, NULL },
    { "Dropout", 10, one_output, NULL },
    { "TopK", 10, topk, NULL },
    { "Slice", 10, slice, NULL },
    { "Clip", 11, clip, NULL },
    { "Pad", 11, pad, NULL },
    { "Resize", 11, resize, NULL },
    { "Scatter", 11, scatter, NULL },
    { "Dropout", 12, dropout_12, NULL },
    { "Resize", 13, resize_13, NULL },
    { "Softmax", 13, softmax, NULL },
    { "LogSoftmax", 13, softmax, NULL },
    { "Hardmax", 13, softmax, NULL },
    { "Squeeze", 13, axes_to_input, NULL },
    { "Unsqueeze", 13, axes_to_input, NULL },
    { "ReduceSum", 13, axes_to_input, NULL },
    { "Split", 13, split_13, NULL },
    { "BatchNormalization", 14, one_output, one_output },
    { "RoiAlign", 16, roi_align, roi_align_before_16 },
    { "ReduceL1", 18, axes_to_input, axes_to_attribute },
    { "ReduceL2", 18, axes_to_input, axes_to_attribute },
    { "ReduceLogSum", 18, axes_to_input, axes_to_attribute },
    { "ReduceLogSumExp", 18, axes_to_input, axes_to_attribute },
    { "ReduceMax", 18, axes_to_input, axes_to_attribute },
    { "ReduceMean", 18, axes_to_input, axes_to_attribute },
    { "ReduceMin", 18, axes_to_input, axes_to_attribute },
    { "ReduceProd", 18, axes_to_input, axes_to_attribute },
    { "ReduceSumSquare", 18, axes_to_input, axes_to_attribute },
    { "Split", 18, split_18, split_before_18 },
    { "DFT", 20, dft, dft_before_20 },
    { "GridSample", 20, grid_sample, grid_sample_before_20 },
    { "GroupNormalization", 21, no_rewriting, no_rewriting },
    { "Attention", 24, no_rewriting, no_rewriting },
    { "Attention", 25, no_rewriting, no_rewriting },
};
enum { STEPS = sizeof steps / sizeof *steps };

static aril_status take_steps(change *c)
{
    aril_status s = ARIL_OK;
    for (int version = c->from + 1; version <= c->to && s == ARIL_OK; version++)
        for (int k = 0; k < STEPS && s == ARIL_OK; k++) {
            c->op = aril__message_text(c->node, "op_type");
            if (steps[k].version == version && steps[k].up && strcmp(steps[k].op, c->op) == 0)
                s = steps[k].up(c);
        }
    for (int version = c->from; version > c->to && s == ARIL_OK; version--)
        for (int k = 0; k < STEPS && s == ARIL_OK; k++)
            if (steps[k].version == version && steps[k].down && strcmp(steps[k].op, c->op) == 0)
                s = steps[k].down(c);
    c->op = aril__message_text(c->node, "op_type");
    return s;
}

/* ---- types without sizes ---- */

static void note_elems(rewriting *r, const onnx_body *body);

/* Values that a body has from the node around it, and the node from the body. */
static void copy_elems(rewriting *r, const onnx_slot *to, size_t n_to, const onnx_slot *from,
                       size_t n_from)
{
    for (size_t i = 0; i < n_to && i < n_from; i++)
        if (to[i] && !r->elem[to[i]]) r->elem[to[i]] = r->elem[from[i]];
}

static void note_bodies(rewriting *r, const onnx_node *n)
{
    enum { BOOL = 9 };
    for (size_t k = 0; k < n->n_bodies; k++) {
        const onnx_body *b = &n->body[k];
        bool loop = n->rule && strcmp(n->rule->name, "Loop") == 0;
        if (loop && b->n_in > 1) {
            r->elem[b->in[0]] = INT64;
            r->elem[b->in[1]] = BOOL;
            copy_elems(r, b->in + 2, b->n_in - 2, n->in + 2, n->n_in > 2 ? n->n_in - 2 : 0);
        } else {
            copy_elems(r, b->in, b->n_in, n->in, n->n_in);
        }
        note_elems(r, b);
        if (loop && b->n_out)
            copy_elems(r, n->out, n->n_out, b->out + 1, b->n_out - 1);
        else
            copy_elems(r, n->out, n->n_out, b->out, b->n_out);
    }
}

/* The type of an output, as the operator's types and the attributes say. */
static int elem_of(const rewriting *r, const onnx_node *n, size_t output)
{
    const onnx_type_row *row = n->types;
    char letter = row ? aril__onnx_type_letter(row->out, (int)output) : '.';
    for (size_t i = 0; i < n->n_attributes; i++) {
        const aril__message *a = n->attribute[i].value;
        const char *name = n->attribute[i].name;
        if (strcmp(name, "to") == 0) return (int)aril__message_int(a, "i");
        if (strcmp(name, "value") == 0 && aril__message_has(a, "t"))
            return (int)aril__message_int(aril__message_sub(a, "t"), "data_type");
    }
    for (size_t i = 0; i < n->n_in && letter != '.'; i++)
        if (aril__onnx_type_letter(row->in, (int)i) == letter && r->elem[n->in[i]])
            return r->elem[n->in[i]];
    uint32_t types = letter == '.' ? 0 : row->types[letter - 'A'];
    return types && !(types & (types - 1)) ? __builtin_ctz(types) : 0;
}

static void note_elems(rewriting *r, const onnx_body *body)
{
    for (size_t i = 0; i < body->n_nodes; i++) {
        const onnx_node *n = &body->node[i];
        note_bodies(r, n);
        for (size_t k = 0; k < n->n_out; k++)
            if (n->out[k] && !r->elem[n->out[k]]) r->elem[n->out[k]] = elem_of(r, n, k);
    }
}

static aril_status find_elems(rewriting *r)
{
    enum { STRING = 8 };
    const onnx_model *m = r->m;
    if (!(r->elem = aril__onnx_alloc(&r->m->arena, m->n_slots, sizeof *r->elem)))
        return ARIL_ERR_MEMORY;
    for (size_t i = 1; i < m->n_slots; i++) {
        const onnx_value *v = &m->initial[i];
        if (v->kind == ONNX_TENSOR)
            r->elem[i] = aril__onnx_dtype_number(aril_dtype_of(v->tensor));
        else if (v->kind == ONNX_TEXT)
            r->elem[i] = STRING;
        else if (!r->types.of[i].missing)
            r->elem[i] = r->types.of[i].elem;
    }
    for (int i = 0; i < m->n_in; i++)
        if (!r->elem[m->in[i].slot])
            r->elem[m->in[i].slot] =
                (int)aril__message_int(aril__message_sub(m->in[i].type, "tensor_type"),
                                       "elem_type");
    note_elems(r, &m->main);
    return ARIL_OK;
}

/* Zeros, or empty strings, of an input's type, with 1 for sizes that are not known. */
static onnx_value sample_of(rewriting *r, const onnx_port *port)
{
    enum { STRING = 8 };
    const aril__message *type = aril__message_sub(port->type, "tensor_type"),
                        *sizes = aril__message_sub(type, "shape");
    size_t n = aril__message_count(sizes, "dim");
    aril_shape shape = { 0 };
    aril_dtype dtype;
    int64_t all = 1, elem = aril__message_int(type, "elem_type");
    for (size_t d = 0; d < n && n <= ARIL_MAX_DIMS; d++) {
        int64_t size = aril__message_int(aril__message_sub_at(sizes, "dim", d), "dim_value");
        shape.dim[shape.ndim++] = size > 0 ? size : 1;
        if (__builtin_mul_overflow(all, shape.dim[d], &all)) return (onnx_value){ 0 };
    }
    if (elem == STRING && all < INT32_MAX) {
        onnx_text *text = aril__onnx_alloc(&r->m->arena, 1, sizeof *text);
        aril__slice *at = aril__onnx_alloc(&r->m->arena, (size_t)all, sizeof *at);
        if (!text || !at) return (onnx_value){ 0 };
        for (int64_t i = 0; i < all; i++) at[i].at = "";
        *text = (onnx_text){ shape, (size_t)all, at };
        return (onnx_value){ .kind = ONNX_TEXT, .text = text };
    }
    if (!aril__onnx_dtype(elem, &dtype)) return (onnx_value){ 0 };
    aril_tensor *zeros = aril_zeros(shape, dtype, r->from->device);
    return (onnx_value){ .kind = aril_tensor_status(zeros) < 0 ? ONNX_NONE : ONNX_TENSOR,
                         .tensor = zeros };
}

/* A run on zeros tells the types of what it computes, once. */
static void run_for_types(rewriting *r)
{
    onnx_model *m = (onnx_model *)(uintptr_t)r->from;
    onnx_types types = { .of = aril__onnx_alloc(&r->m->arena, m->n_slots, sizeof *types.of) };
    onnx_value *in = aril__onnx_alloc(&r->m->arena, (size_t)m->n_required, sizeof *in);
    if (r->ran || !types.of || !in) return;
    r->ran = true;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril__saved_errors before = aril__errors_begin_quiet();
    for (int i = 0; i < m->n_required; i++) in[i] = sample_of(r, &r->m->in[i]);
    aril__onnx_infer_run(m, &types, in, false);
    aril__error_release(aril__errors_end(&before));
    for (size_t i = 1; i < m->n_slots; i++) {
        const onnx_type *t = &types.of[i];
        if (!r->elem[i]) r->elem[i] = t->missing ? 0 : t->elem;
        if (t->kind > ONNX_TEXT && r->types.of[i].kind == ONNX_NONE)
            r->types.of[i] = (onnx_type){ .kind = t->kind };
    }
    note_elems(r, &r->m->main);
}

/* ---- what the target takes ---- */

/* Attributes that a version does not have may be left out where they say what it does anyway. */
static const struct {
    const char *name;
    int64_t i;
    const char *text;
} harmless[] = {
    { "allowzero", 0, NULL },
    { "layout", 0, NULL },
    { "saturate", 1, NULL },
    { "start", 0, NULL },
    { "block_size", 0, NULL },
    { "output_dtype", 0, NULL },
    { "precision", 0, NULL },
    { "stash_type", 1, NULL },
    { "training_mode", 0, NULL },
    { "antialias", 0, NULL },
    { "ceil_mode", 0, NULL },
    { "noop_with_empty_axes", 0, NULL },
    { "round_mode", 0, "up" },
    { "reduction", 0, "none" },
    { "keep_aspect_ratio_policy", 0, "stretch" },
};
enum { HARMLESS = sizeof harmless / sizeof *harmless };

static bool is_harmless(const aril__message *a)
{
    const char *name = aril__message_text(a, "name");
    bool is = false;
    for (int k = 0; k < HARMLESS; k++)
        if (strcmp(harmless[k].name, name) == 0)
            is |= harmless[k].text ? text_is(a, harmless[k].text)
                                   : aril__message_int(a, "i") == harmless[k].i;
    bool ones = strcmp(name, "dilations") == 0;
    for (size_t i = 0; ones && i < aril__message_count(a, "ints"); i++)
        ones = aril__message_int_at(a, "ints", i) == 1;
    return (is || ones) && !aril__message_has(a, "ref_attr_name");
}

static aril_status check_attributes(const change *c)
{
    for (size_t i = aril__message_count(c->node, "attribute"); i-- > 0;) {
        const aril__message *a = aril__message_sub_at(c->node, "attribute", i);
        const char *name = aril__message_text(a, "name");
        if (aril__onnx_takes_attribute(c->op, c->to, name)) continue;
        if (!is_harmless(a))
            return refuse(c, "operator set %d does not have its attribute %.60s", c->to, name);
        aril__message_remove(c->node, "attribute", i);
    }
    return ARIL_OK;
}

/* Versions may take fewer types than later ones. */
static aril_status check_types(const change *c, bool output)
{
    const onnx_type_row *old = aril__onnx_type_row(c->n->rule->name, c->from),
                        *now = aril__onnx_type_row(c->op, c->to);
    size_t n = output ? c->n->n_out : c->n->n_in;
    for (size_t i = 0; i < n && old && now && c->to < c->from; i++) {
        char was = aril__onnx_type_letter(output ? old->out : old->in, (int)i),
             is = aril__onnx_type_letter(output ? now->out : now->in, (int)i);
        if (was == '.' || is == '.' || !(output ? c->n->out : c->n->in)[i]) continue;
        uint32_t lost = old->types[was - 'A'] & ~now->types[is - 'A'];
        if (!lost) continue;
        onnx_slot slot = (output ? c->n->out : c->n->in)[i];
        const onnx_type *t = type_of(c, output, i);
        int *elem = &c->in->r->elem[c->in->function ? 0 : slot];
        if (slot && !c->in->function && !*elem && t->kind == ONNX_NONE) run_for_types(c->in->r);
        t = type_of(c, output, i);
        bool known = *elem || t->kind != ONNX_NONE;
        if (known && !(lost >> *elem & 1)) continue;
        return refuse(c, "operator set %d does not take %s", c->to,
                      *elem   ? aril__onnx_dtype_name(*elem)
                      : known ? "such a value"
                              : "all types it may have");
    }
    return ARIL_OK;
}

static aril_status check_ports(const change *c)
{
    int in, out, from, until;
    if (!aril__onnx_rule("", c->op, c->to, &from, &until) ||
        !aril__onnx_most_ports(c->op, c->to, &in, &out))
        return refuse(c, "operator set %d does not have the operator", c->to);
    if (in >= 0 && inputs(c) > (size_t)in)
        return refuse(c, "operator set %d takes %d inputs, the node has %zu", c->to, in, inputs(c));
    if (out >= 0 && aril__message_count(c->node, "output") > (size_t)out)
        return refuse(c, "operator set %d has %d outputs, the node has %zu", c->to, out,
                      aril__message_count(c->node, "output"));
    return ARIL_OK;
}

/* Whether a step would read an attribute that the caller of a function gives. */
static bool refers(const aril__message *node)
{
    bool any = false;
    for (size_t i = 0; i < aril__message_count(node, "attribute"); i++)
        any |= aril__message_has(aril__message_sub_at(node, "attribute", i), "ref_attr_name");
    return any;
}

static bool has_step(const change *c)
{
    bool any = false;
    for (int k = 0; k < STEPS; k++)
        any |= strcmp(steps[k].op, c->op) == 0 &&
               ((steps[k].up && c->from < steps[k].version && c->to >= steps[k].version) ||
                (steps[k].down && c->to < steps[k].version && c->from >= steps[k].version));
    return any;
}

static aril_status rewrite_node(change *c)
{
    if (c->from == c->to) return ARIL_OK;
    if (has_step(c) && refers(c->node)) return refuse(c, "it is part of a function of the file");
    aril_status s = take_steps(c);
    if (s == ARIL_OK) s = check_ports(c);
    if (s == ARIL_OK) s = check_attributes(c);
    if (s == ARIL_OK) s = check_types(c, false);
    return s == ARIL_OK ? check_types(c, true) : s;
}

/* ---- graphs ---- */

static bool visit(rewriting *r, const aril__message *graph)
{
    for (size_t i = 0; i < r->n_visited; i++)
        if (r->visited[i] == graph) return false;
    if (r->n_visited == r->cap_visited) {
        size_t more = 2 * r->cap_visited + 16;
        const aril__message **grown = aril__realloc(r->visited, more * sizeof *grown);
        if (!grown) return aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory") == ARIL_OK;
        r->visited = grown;
        r->cap_visited = more;
    }
    r->visited[r->n_visited++] = graph;
    return true;
}

static aril_status rewrite_body(rewriting *r, aril__message *graph, const onnx_body *body,
                                bool function);

/* The function of the file whose nodes a call has; NULL: it has none. */
static aril__message *function_of(const rewriting *r, const onnx_body *body)
{
    for (size_t i = 0; i < aril__message_count(r->m->file, "functions"); i++) {
        aril__message *f = aril__message_sub_at(r->m->file, "functions", i);
        if (body->n_nodes && aril__message_sub_at(f, "node", 0) == body->node[0].message) return f;
    }
    return NULL;
}

static aril_status rewrite_bodies(rewriting *r, const onnx_node *n, bool function)
{
    aril_status s = ARIL_OK;
    if (!n->rule) {
        aril__message *f = function_of(r, n->body);
        return f && visit(r, f) ? rewrite_body(r, f, n->body, true) : ARIL_OK;
    }
    for (size_t i = 0, k = 0; i < n->n_attributes && k < n->n_bodies && s == ARIL_OK; i++) {
        if (!aril__message_has(n->attribute[i].value, "g")) continue;
        aril__message *g =
            aril__message_set_sub((aril__message *)(uintptr_t)n->attribute[i].value, "g");
        if (visit(r, g)) s = rewrite_body(r, g, &n->body[k], function);
        k++;
    }
    return s;
}

static aril_status rewrite_body(rewriting *r, aril__message *graph, const onnx_body *body,
                                bool function)
{
    rewritten in = {
        .r = r, .graph = graph, .n_old = aril__message_count(graph, "node"), .function = function
    };
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < body->n_nodes && s == ARIL_OK; i++) {
        const onnx_node *n = &body->node[i];
        change c = { .in = &in,
                     .node = (aril__message *)(uintptr_t)n->message,
                     .n = n,
                     .op = aril__message_text(n->message, "op_type"),
                     .from = n->version,
                     .to = r->to->opset };
        in.n_after = 0;
        s = rewrite_bodies(r, n, function);
        if (s == ARIL_OK && n->rule && !*n->rule->domain) s = rewrite_node(&c);
        if (s == ARIL_OK && !add_order(&in.order, &in.n, &in.capacity, i)) s = ARIL_ERR_MEMORY;
        for (size_t k = 0; k < in.n_after && s == ARIL_OK; k++)
            if (!add_order(&in.order, &in.n, &in.capacity, in.after[k])) s = ARIL_ERR_MEMORY;
    }
    if (s == ARIL_OK && in.n_added && in.n == aril__message_count(graph, "node"))
        aril__message_reorder(graph, "node", in.order);
    free(in.order);
    free(in.after);
    return s;
}

/* The imports of a model or function: the default domain's version becomes the new one. */
static void set_import(aril__message *of, int opset)
{
    for (size_t i = aril__message_count(of, "opset_import"); i-- > 0;) {
        aril__message *set = aril__message_sub_at(of, "opset_import", i);
        const char *domain = aril__message_text(set, "domain");
        if (!*domain || strcmp(domain, "ai.onnx") == 0)
            aril__message_set_int(set, "version", opset);
    }
}

/* Functions that nothing calls keep nodes of the old operator set. */
static void set_imports(rewriting *r)
{
    aril__message *file = r->m->file;
    set_import(file, r->to->opset);
    for (size_t i = aril__message_count(file, "functions"); i-- > 0;) {
        aril__message *f = aril__message_sub_at(file, "functions", i);
        bool visited = !aril__message_count(f, "node");
        for (size_t k = 0; k < r->n_visited; k++) visited |= r->visited[k] == f;
        if (visited)
            set_import(f, r->to->opset);
        else
            aril__message_remove(file, "functions", i);
    }
}

aril_status aril__onnx_rewrite_nodes(rewriting *r)
{
    aril_status s = find_elems(r);
    if (s == ARIL_OK)
        s = rewrite_body(r, aril__message_set_sub(r->m->file, "graph"), &r->m->main, false);
    if (s == ARIL_OK) set_imports(r);
    return s;
}
