/* Operations with arguments of their own: slices, splits, padding, choices between values. */
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "models/keras/keras.h"

#include <string.h>

/* An argument by keyword, of the operation itself, or of the call by position. */
static const json *argument(const keras_make *k, const char *key, int position)
{
    const json *v = aril__json_get(k->keywords, key);
    if (!v) v = aril__json_get(k->config, key);
    if (!v) v = aril__json_at(k->node->args, position);
    return aril__json_kind(v) == 'n' ? NULL : v;
}

static aril_status read_axis(const keras_make *k, const json *v, int64_t otherwise, int rank,
                             int *out)
{
    int64_t axis = v ? aril__json_integer(v, INT64_MIN) : otherwise;
    if (axis < -rank || axis >= rank)
        return aril__keras_fail(k, ARIL_ERR_FORMAT, "its axis does not exist in %d dimensions",
                                rank);
    *out = (int)axis;
    return ARIL_OK;
}

/* A module whose data begin with those of `data`, of class->base.size bytes. */
static aril_module *made(keras_make *k, const aril__layer *class, const void *data, aril_status s)
{
    aril_module *m = s == ARIL_OK ? aril__keras_module(k, class) : NULL;
    if (!m) return NULL;
    keras_base base = *(keras_base *)aril_module_data(m);
    memcpy(aril_module_data(m), data, class->base.size);
    *(keras_base *)aril_module_data(m) = base;
    return m;
}

/* ---- x[:, 0, ::2, ..., None] ---- */

enum { MAX_ITEMS = 2 * ARIL_MAX_DIMS };

typedef struct get_item {
    keras_base base;
    int n;
    aril_index_item item[MAX_ITEMS];
} get_item;

ARIL__FORWARD(get_item_forward)
{
    const get_item *g = aril_module_data(self);
    out[0] = aril_index(in[0], (aril_items){ g->n, g->item });
}

static bool read_end(const json *v, int64_t otherwise, int64_t *out)
{
    bool has = aril__json_kind(v) == '0';
    *out = has ? aril__json_integer(v, INT64_MIN) : otherwise;
    return *out != INT64_MIN && (has || !v || v->kind == 'n');
}

static bool read_item(const json *v, aril_index_item *item)
{
    const char *class = aril__json_text(aril__json_get(v, "class_name"), "");
    const json *config = aril__json_get(v, "config");
    int64_t start, stop, step;
    if (aril__json_kind(v) == 'n') {
        *item = ARIL_NEW;
    } else if (aril__json_kind(v) == '0') {
        *item = ARIL_AT(aril__json_integer(v, INT64_MIN));
        return item->start != INT64_MIN;
    } else if (strcmp(class, "__ellipsis__") == 0) {
        *item = ARIL_DOTS;
    } else if (strcmp(class, "__slice__") == 0) {
        if (!read_end(aril__json_get(config, "step"), 1, &step) || step == 0 ||
            !read_end(aril__json_get(config, "start"), step < 0 ? ARIL_END : 0, &start) ||
            !read_end(aril__json_get(config, "stop"), ARIL_END, &stop))
            return false;
        *item = ARIL_STEP(start, stop, step);
    } else {
        return false;
    }
    return true;
}

aril_module *aril__keras_get_item(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(get_item), .type = "GetItem", .forward = get_item_forward }
    };
    const json *key = argument(k, "key", 1);
    bool list = aril__json_kind(key) == '[';
    get_item g = { .n = list ? key->n : 1 };
    bool good = g.n <= MAX_ITEMS;
    for (int i = 0; i < g.n && good; i++)
        good = read_item(list ? aril__json_at(key, i) : key, &g.item[i]);
    aril_status s = good ? ARIL_OK
                         : aril__keras_fail(k, ARIL_ERR_UNSUPPORTED,
                                            "its index is supported only if it consists of "
                                            "integers, slices, None and ...");
    return made(k, &layer, &g, s);
}

/* ---- split and stack ---- */

enum { MAX_PARTS = 256 };

typedef struct split {
    keras_base base;
    int axis, n;             /* parts */
    bool equal;              /* of the same size */
    int64_t from[MAX_PARTS]; /* where each begins */
} split;

ARIL__FORWARD(split_forward)
{
    const split *s = aril_module_data(self);
    int axis = s->axis < 0 ? s->axis + in[0]->ndim : s->axis;
    int64_t size = in[0]->dim[axis], begin = 0;
    for (int i = 0; i < n_out && i < s->n; i++) {
        int64_t end = s->equal ? size / s->n * (i + 1) : i + 1 < s->n ? s->from[i + 1] : size;
        if (end > size) end = size;
        if (begin > end) begin = end;
        out[i] = aril_narrow(in[0], axis, begin, end - begin);
        begin = end;
    }
}

aril_module *aril__keras_split(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(split), .type = "Split", .forward = split_forward }
    };
    split p = { .n = 0 };
    const json *v = argument(k, "indices_or_sections", 1);
    bool list = aril__json_kind(v) == '[';
    int64_t n = list ? v->n + 1 : aril__json_integer(v, 0);
    aril_status s = read_axis(k, argument(k, "axis", 2), 0, k->rank, &p.axis);
    if (s < 0) return NULL;
    int64_t size = k->in[0].tensor->dim[p.axis < 0 ? p.axis + k->rank : p.axis];
    bool good = n >= 1 && n <= MAX_PARTS && size >= 0 && (list || size % n == 0);
    for (int i = 0; list && i < v->n && good; i++) {
        p.from[i + 1] = aril__json_integer(aril__json_at(v, i), -1);
        good = p.from[i + 1] >= p.from[i];
    }
    p.n = (int)n;
    p.equal = !list;
    if (!good)
        s = aril__keras_fail(k, ARIL_ERR_UNSUPPORTED,
                             "its parts must be at most %d, of a size that is known and divides "
                             "that of the axis, or at increasing positions",
                             MAX_PARTS);
    aril_module *m = made(k, &layer, &p, s);
    if (m) m->made.outputs = p.n;
    return m;
}

typedef struct stack {
    keras_base base;
    int axis;
} stack;

ARIL__FORWARD(stack_forward)
{
    out[0] = aril_stack((aril_list){ n_in, in }, ((const stack *)aril_module_data(self))->axis);
}

aril_module *aril__keras_stack(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(stack), .type = "Stack", .forward = stack_forward, .inputs = -1 }
    };
    stack t = { .axis = 0 };
    return made(k, &layer, &t, read_axis(k, argument(k, "axis", 1), 0, k->rank + 1, &t.axis));
}

/* ---- where, clip, cast ---- */

typedef struct where {
    keras_base base;
    bool is_number[3];
    double number[3];
} where;

ARIL__FORWARD(where_forward)
{
    const where *w = aril_module_data(self);
    aril_tensor *x[3];
    for (int i = 0, at = 0; i < 3; i++) {
        x[i] = w->is_number[i] ? aril_scalar(w->number[i]) : at < n_in ? in[at++] : NULL;
        if (x[i]) continue;
        aril__fail(ARIL_ERR_ARG, "expected 3 inputs");
        out[0] = aril__poison();
        return;
    }
    if (aril_dtype_of(x[0]) != ARIL_BOOL) x[0] = aril_cast(x[0], ARIL_BOOL);
    out[0] = aril_where(x[0], x[1], x[2]);
}

aril_module *aril__keras_where(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(where), .type = "Where", .forward = where_forward, .inputs = -1 }
    };
    where w = { .number = { 0 } };
    int n = 0;
    for (int i = 0; i < k->node->n_in && n < 3; i++) {
        const keras_argument *a = &k->node->in[i];
        w.is_number[n] = !a->ref.layer;
        if (w.is_number[n]) w.number[n] = aril__json_real(a->constant, 0);
        if (w.is_number[n] && aril__json_kind(a->constant) != '0') n = 3;
        n++;
    }
    aril_status s = n == 3 ? ARIL_OK
                           : aril__keras_fail(k, ARIL_ERR_UNSUPPORTED,
                                              "its operands are supported only if they are values "
                                              "of the network and numbers");
    return made(k, &layer, &w, s);
}

typedef struct clip {
    keras_base base;
    double low, high;
} clip;

ARIL__FORWARD(clip_forward)
{
    const clip *c = aril_module_data(self);
    out[0] = aril_clamp(in[0], c->low, c->high);
}

aril_module *aril__keras_clip(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(clip), .type = "Clip", .forward = clip_forward }
    };
    const json *low = argument(k, "x_min", 1), *high = argument(k, "x_max", 2);
    clip c = { .low = aril__json_real(low, 0), .high = aril__json_real(high, 0) };
    aril_status s = ARIL_OK;
    if (aril__json_kind(low) != '0' || aril__json_kind(high) != '0')
        s = aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "its limits are supported only as numbers");
    return made(k, &layer, &c, s);
}

typedef struct cast {
    keras_base base;
    aril_dtype dtype;
} cast;

ARIL__FORWARD(cast_forward)
{
    out[0] = aril_cast(in[0], ((const cast *)aril_module_data(self))->dtype);
}

aril_module *aril__keras_cast(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(cast), .type = "Cast", .forward = cast_forward }
    };
    cast c = { .dtype = ARIL_F32 };
    const char *name = aril__json_text(argument(k, "dtype", 1), "");
    aril_status s = aril_dtype_from_name(name, &c.dtype);
    return made(k, &layer, &c, s);
}

/* ---- pad ---- */

typedef struct pad {
    keras_base base;
    aril_pads pads;
    aril_pad_opts opts;
} pad;

ARIL__FORWARD(pad_forward)
{
    const pad *p = aril_module_data(self);
    out[0] = aril_pad(in[0], p->pads, p->opts);
}

/* n; (before, after); one of these for each axis. */
static bool read_widths(const keras_make *k, const json *v, aril_pads *out)
{
    bool list = aril__json_kind(v) == '[', pairs = list && aril__json_kind(v->first) == '[';
    bool good = v && (!pairs || v->n == k->rank || v->n == 1) && (!list || pairs || v->n == 2);
    out->n = 2 * k->rank;
    for (int i = 0; i < k->rank && good; i++) {
        const json *e = pairs ? aril__json_at(v, v->n == 1 ? 0 : i) : v;
        for (int side = 0; side < 2; side++) {
            int64_t size =
                aril__json_integer(aril__json_kind(e) == '[' ? aril__json_at(e, side) : e, -1);
            good &= size >= 0 && size <= 1 << 30;
            out->at[2 * (k->rank - 1 - i) + side] = size;
        }
    }
    while (good && out->n > 2 && !out->at[out->n - 1] && !out->at[out->n - 2]) out->n -= 2;
    return good;
}

aril_module *aril__keras_pad(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(pad), .type = "Pad", .forward = pad_forward }
    };
    pad p = { .opts = { .value = aril__json_real(argument(k, "constant_values", 3), 0) } };
    const char *mode = aril__json_text(argument(k, "mode", 2), "constant");
    aril_status s = ARIL_OK;
    if (strcmp(mode, "reflect") == 0)
        p.opts.mode = ARIL_PAD_REFLECT;
    else if (strcmp(mode, "edge") == 0)
        p.opts.mode = ARIL_PAD_REPLICATE;
    else if (strcmp(mode, "wrap") == 0)
        p.opts.mode = ARIL_PAD_CIRCULAR;
    else if (strcmp(mode, "constant") != 0)
        s = aril__keras_fail(k, ARIL_ERR_UNSUPPORTED,
                             "its mode \"%s\" is not supported; constant, reflect, edge and wrap "
                             "are",
                             mode);
    if (s == ARIL_OK && !read_widths(k, argument(k, "pad_width", 1), &p.pads))
        s = aril__keras_fail(k, ARIL_ERR_FORMAT, "pad_width must be non-negative integers");
    return made(k, &layer, &p, s);
}

/* ---- normalize ---- */

typedef struct normalize {
    keras_base base;
    double order, epsilon;
    aril_axes axes;
} normalize;

ARIL__FORWARD(normalize_forward)
{
    const normalize *n = aril_module_data(self);
    aril_tensor *norm = aril_norm(in[0], n->axes, n->order);
    out[0] = aril_div(in[0], aril_clamp_min(norm, n->epsilon));
}

aril_module *aril__keras_normalize(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(normalize), .type = "Normalize", .forward = normalize_forward }
    };
    const json *order = argument(k, "order", 2);
    normalize n = { .order = aril__json_real(order, 2),
                    .epsilon = aril__json_real(argument(k, "epsilon", 3), 1e-7),
                    .axes = { .n = 1, .keepdim = true } };
    aril_status s = read_axis(k, argument(k, "axis", 1), -1, k->rank, &n.axes.axis[0]);
    if (s == ARIL_OK && order && order->kind != '0')
        s = aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "its order is supported only as a number");
    return made(k, &layer, &n, s);
}

/* ---- einsum, argmax and argmin ---- */

typedef struct einsum {
    keras_base base;
    char equation[256];
} einsum;

ARIL__FORWARD(einsum_forward)
{
    out[0] =
        aril_einsum(((const einsum *)aril_module_data(self))->equation, (aril_list){ n_in, in });
}

aril_module *aril__keras_einsum(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(einsum),
                                                 .type = "Einsum",
                                                 .forward = einsum_forward,
                                                 .inputs = -1 } };
    einsum e = { .equation = "" };
    const char *text = aril__json_text(argument(k, "subscripts", 0), "");
    size_t n = strlen(text);
    aril_status s = ARIL_OK;
    if (n == 0 || n >= sizeof e.equation)
        s = aril__keras_fail(k, ARIL_ERR_FORMAT, "its subscripts are missing or too long");
    else
        memcpy(e.equation, text, n);
    return made(k, &layer, &e, s);
}

typedef struct arg_max {
    keras_base base;
    aril_axes axis;
    bool least;
} arg_max;

ARIL__FORWARD(arg_max_forward)
{
    const arg_max *a = aril_module_data(self);
    aril_tensor *y = a->least ? aril_argmin(in[0], a->axis) : aril_argmax(in[0], a->axis);
    out[0] = aril_cast(y, ARIL_I32); /* as in Keras */
}

aril_module *aril__keras_arg_max(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(arg_max), .type = "ArgMax", .forward = arg_max_forward }
    };
    const json *axis = argument(k, "axis", 1);
    arg_max a = { .axis = { .n = 1, .keepdim = aril__json_bool(argument(k, "keepdims", 2), false) },
                  .least = strcmp(k->layer->kind->name, "op:Argmin") == 0 };
    aril_status s = ARIL_OK;
    if (!axis)
        s = aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "it is supported only with an axis");
    else
        s = read_axis(k, axis, -1, k->rank, &a.axis.axis[0]);
    return made(k, &layer, &a, s);
}
