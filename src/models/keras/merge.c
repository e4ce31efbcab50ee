/* Layers of several inputs, and those that change shapes. */
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "models/keras/keras.h"

#include <stdlib.h>
#include <string.h>

/* ---- elementwise ---- */

typedef enum merge_op { ADD, SUBTRACT, MULTIPLY, AVERAGE, MAXIMUM, MINIMUM } merge_op;

typedef struct merge {
    keras_base base;
    merge_op op;
    int rank; /* of the result: inputs of fewer dimensions get axes after the batch */
} merge;

static aril_tensor *raised(aril_tensor *x, int rank)
{
    while (x->ndim < rank) {
        aril_tensor *y = aril_unsqueeze(x, 1);
        if (aril__is_poison(y)) return y;
        x = y;
    }
    return x;
}

ARIL__FORWARD(merge_forward)
{
    const merge *m = aril_module_data(self);
    aril_tensor *sum = raised(in[0], m->rank);
    for (int i = 1; i < n_in; i++) {
        aril_tensor *x = raised(in[i], m->rank), *before = sum;
        sum = m->op == ADD || m->op == AVERAGE ? aril_add(sum, x)
              : m->op == SUBTRACT              ? aril_sub(sum, x)
              : m->op == MULTIPLY              ? aril_mul(sum, x)
              : m->op == MAXIMUM               ? aril_maximum(sum, x)
                                               : aril_minimum(sum, x);
        if (i > 1) aril_drop(before);
    }
    out[0] = m->op == AVERAGE ? aril_div_scalar(sum, (double)n_in) : sum;
}

aril_module *aril__keras_merge(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(merge), .type = "Merge", .forward = merge_forward, .inputs = -1 }
    };
    static const char *const names[] = { "Add",     "Subtract", "Multiply",
                                         "Average", "Maximum",  "Minimum" };
    aril_module *m = aril__keras_module(k, &layer);
    if (!m) return NULL;
    merge *data = aril_module_data(m);
    for (int i = 0; i < 6; i++)
        if (strcmp(k->layer->class, names[i]) == 0) data->op = (merge_op)i;
    for (int i = 0; i < k->n_in; i++)
        if (k->in[i].tensor->ndim > data->rank) data->rank = k->in[i].tensor->ndim;
    return m;
}

/* ---- concatenation ---- */

typedef struct concatenate {
    keras_base base;
    int axis;
} concatenate;

ARIL__FORWARD(concatenate_forward)
{
    out[0] = aril_cat((aril_list){ n_in, in }, ((const concatenate *)aril_module_data(self))->axis);
}

aril_module *aril__keras_concatenate(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(concatenate),
                                                 .type = "Concatenate",
                                                 .forward = concatenate_forward,
                                                 .inputs = -1 } };
    int axis;
    const json *v = aril__json_get(k->config, "axis");
    if (aril__keras_axis(k, aril__json_integer(v, v ? INT64_MIN : -1), &axis) < 0) return NULL;
    aril_module *m = aril__keras_module(k, &layer);
    if (m) ((concatenate *)aril_module_data(m))->axis = axis;
    return m;
}

/* ---- dot ---- */

typedef struct dot {
    keras_base base;
    int axis[2];
    bool normalize, vector; /* the result [N] becomes [N,1] */
    char equation[64];
} dot;

ARIL__FORWARD(dot_forward)
{
    const dot *d = aril_module_data(self);
    if (n_in < 2) {
        aril__fail(ARIL_ERR_ARG, "expected 2 inputs");
        out[0] = aril__poison();
        return;
    }
    aril_tensor *x[2] = { in[0], in[1] };
    for (int i = 0; i < 2 && d->normalize; i++) {
        aril_tensor *square = aril_sum(aril_square(x[i]), ARIL_KEEPDIM(d->axis[i]));
        x[i] = aril_mul(x[i], aril_rsqrt(aril_clamp_min(square, 1e-12)));
    }
    aril_tensor *y = aril_einsum(d->equation, (aril_list){ 2, x });
    out[0] = d->vector ? aril_unsqueeze(y, 1) : y;
}

/* "ab,acb->ac" for axes 1 and 2: the first letter is the batch. */
static void dot_equation(const keras_make *k, dot *d)
{
    char *at = d->equation, result[2 * ARIL_MAX_DIMS + 1], *to = result, letter = 'b';
    *to++ = 'a';
    for (int i = 0; i < 2; i++) {
        *at++ = 'a';
        for (int axis = 1; axis < k->in[i].tensor->ndim; axis++) {
            char c = axis == d->axis[i] ? 'z' : letter++;
            *at++ = c;
            if (c != 'z') *to++ = c;
        }
        if (i == 0) *at++ = ',';
    }
    memcpy(at, "->", 2);
    memcpy(at + 2, result, (size_t)(to - result));
    at[2 + (to - result)] = 0;
    d->vector = to - result == 1;
}

aril_module *aril__keras_dot(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(dot), .type = "Dot", .forward = dot_forward, .inputs = -1 }
    };
    dot d = { .normalize = aril__json_bool(aril__json_get(k->config, "normalize"), false) };
    const json *axes = aril__json_get(k->config, "axes");
    bool good = k->n_in == 2;
    for (int i = 0; i < 2 && good; i++) {
        const json *v = aril__json_kind(axes) == '[' ? aril__json_at(axes, i) : axes;
        int rank = k->in[i].tensor->ndim;
        int64_t axis = aril__json_integer(v, 0);
        if (axis < 0) axis += rank;
        good = axis >= 1 && axis < rank;
        d.axis[i] = (int)axis;
    }
    if (!good) {
        aril__keras_fail(k, ARIL_ERR_FORMAT, "expected two inputs, and axes after the batch");
        return NULL;
    }
    dot_equation(k, &d);
    aril_module *m = aril__keras_module(k, &layer);
    if (!m) return NULL;
    d.base = *(keras_base *)aril_module_data(m);
    *(dot *)aril_module_data(m) = d;
    return m;
}

/* ---- shapes ---- */

typedef struct shaped {
    keras_base base;
    aril_shape shape;
    aril_axes axes;
} shaped;

/* Keras flattens channels-first images in the order of channels-last ones. */
ARIL__FORWARD(flatten_forward)
{
    const shaped *f = aril_module_data(self);
    aril_tensor *x = f->axes.n ? aril_permute(in[0], f->axes) : in[0];
    out[0] = x->ndim == 1 ? aril_unsqueeze(x, 1) : aril_flatten(x, 1, -1);
}

aril_module *aril__keras_flatten(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(shaped), .type = "Flatten", .forward = flatten_forward }
    };
    aril_module *m = aril__keras_module(k, &layer);
    if (!m || !aril__keras_channels_first(k->config) || k->rank < 3) return m;
    aril_axes *axes = &((shaped *)aril_module_data(m))->axes;
    axes->n = k->rank;
    for (int i = 1; i < k->rank; i++) axes->axis[i] = i == k->rank - 1 ? 1 : i + 1;
    return m;
}

ARIL__FORWARD(reshape_forward)
{
    aril_shape shape = ((const shaped *)aril_module_data(self))->shape;
    shape.dim[0] = in[0]->dim[0];
    out[0] = aril_reshape(in[0], shape);
}

static aril_status read_shape(const keras_make *k, const char *key, int64_t least, aril_shape *out)
{
    const json *v = aril__json_get(k->config, key);
    bool good = aril__json_kind(v) == '[' && v->n < ARIL_MAX_DIMS;
    out->ndim = good ? v->n + 1 : 0;
    for (int i = 0; good && i < v->n; i++) {
        out->dim[i + 1] = aril__json_integer(aril__json_at(v, i), INT64_MIN);
        good = out->dim[i + 1] >= least && out->dim[i + 1] <= 1 << 30;
    }
    return good ? ARIL_OK
                : aril__keras_fail(k, ARIL_ERR_FORMAT, "%s must be up to %d integers", key,
                                   ARIL_MAX_DIMS - 1);
}

aril_module *aril__keras_reshape(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(shaped), .type = "Reshape", .forward = reshape_forward }
    };
    aril_shape shape = { 0 };
    if (read_shape(k, "target_shape", -1, &shape) < 0) return NULL;
    aril_module *m = aril__keras_module(k, &layer);
    if (m) ((shaped *)aril_module_data(m))->shape = shape;
    return m;
}

ARIL__FORWARD(permute_forward)
{
    out[0] = aril_permute(in[0], ((const shaped *)aril_module_data(self))->axes);
}

aril_module *aril__keras_permute(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(shaped), .type = "Permute", .forward = permute_forward }
    };
    aril_shape dims = { 0 };
    if (read_shape(k, "dims", 1, &dims) < 0) return NULL;
    aril_module *m = aril__keras_module(k, &layer);
    if (!m) return NULL;
    aril_axes *axes = &((shaped *)aril_module_data(m))->axes;
    axes->n = dims.ndim;
    for (int i = 1; i < dims.ndim; i++) axes->axis[i] = (int)dims.dim[i];
    return m;
}

ARIL__FORWARD(repeat_forward)
{
    const shaped *r = aril_module_data(self);
    out[0] = aril_expand(aril_unsqueeze(in[0], 1), ARIL_SHAPE(-1, r->shape.dim[0], -1));
}

aril_module *aril__keras_repeat_vector(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(shaped), .type = "RepeatVector", .forward = repeat_forward }
    };
    int64_t n;
    if (k->rank != 2 || aril__keras_integer(k, "n", 1, 1, &n) < 0) {
        if (k->rank != 2)
            aril__keras_fail(k, ARIL_ERR_FORMAT, "its input has %d dimensions, expected 2",
                             k->rank);
        return NULL;
    }
    aril_module *m = aril__keras_module(k, &layer);
    if (m) ((shaped *)aril_module_data(m))->shape = ARIL_SHAPE(n);
    return m;
}
