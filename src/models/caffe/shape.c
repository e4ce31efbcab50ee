/* Layers that rearrange their bottoms. */
#include "models/caffe/layer.h"

#define FORWARD(name) \
    static void name(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)

/* ---- Concat and Slice ---- */

/* `axis`, or its older name. */
static aril_status axis_of(const caffe_layer *l, const aril_tensor *x, const char *older, int *axis)
{
    const char *name = aril__message_has(l->param, older) ? older : "axis";
    return aril__caffe_axis(name, x, aril__message_int(l->param, name), false, axis);
}

static aril_status concat_check(aril_module *m, caffe_layer *l)
{
    const char *older = l->row->param[0] == 'c' ? "concat_dim" : "slice_dim";
    (void)m;
    if (aril__message_has(l->param, older) && aril__message_has(l->param, "axis"))
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "use axis or %s, not both", older);
    return ARIL_OK;
}

FORWARD(concat)
{
    int axis;
    (void)m;
    if (axis_of(l, in[0], "concat_dim", &axis) < 0)
        out[0] = aril__poison();
    else
        out[0] = l->n_bottoms == 1 ? in[0] : aril_cat((aril_list){ l->n_bottoms, in }, axis);
}

static aril_status slice_check(aril_module *m, caffe_layer *l)
{
    size_t points = aril__message_count(l->param, "slice_point");
    int64_t last = 0;
    if (points && points + 1 != (size_t)l->n_tops)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "%d tops need %d values of slice_point, got %zu",
                               l->n_tops, l->n_tops - 1, points);
    for (size_t i = 0; i < points; i++) {
        int64_t point = aril__message_int_at(l->param, "slice_point", i);
        if (point <= last)
            return aril__caffe_bad(l, ARIL_ERR_FORMAT, "slice_point %lld must be above %lld",
                                   (long long)point, (long long)last);
        last = point;
    }
    return concat_check(m, l);
}

FORWARD(slice)
{
    int axis;
    char text[ARIL__SHAPE_TEXT];
    (void)m;
    aril_status s = axis_of(l, in[0], "slice_dim", &axis);
    bool given = aril__message_count(l->param, "slice_point") > 0;
    int64_t size = s == ARIL_OK ? in[0]->dim[axis] : 1, start = 0;
    if (s == ARIL_OK && !given && size % l->n_tops)
        s = aril__fail(ARIL_ERR_SHAPE, "axis %d of %s cannot be split into %d equal parts", axis,
                       aril__text(text, in[0]), l->n_tops);
    for (int i = 0; i < l->n_tops && s == ARIL_OK; i++) {
        int64_t end = i == l->n_tops - 1 ? size
                      : given            ? aril__message_int_at(l->param, "slice_point", (size_t)i)
                                         : size / l->n_tops * (i + 1);
        if (end <= start || end > size)
            s = aril__fail(ARIL_ERR_SHAPE, "axis %d of %s does not reach slice_point %lld", axis,
                           aril__text(text, in[0]), (long long)(end > size ? end : start));
        else
            out[i] = aril_narrow(in[0], axis, start, end - start);
        start = end;
    }
    if (s < 0) aril__caffe_failed(l, out);
}

/* ---- Split and Silence ---- */

FORWARD(split)
{
    (void)m;
    for (int i = 0; i < l->n_tops; i++) out[i] = in[0];
}

FORWARD(silence)
{
    (void)m, (void)l, (void)in, (void)out;
}

/* ---- Flatten, Reshape, Permute ---- */

FORWARD(flatten)
{
    int first, last;
    (void)m;
    aril_status s =
        aril__caffe_axis("axis", in[0], aril__message_int(l->param, "axis"), false, &first);
    if (s == ARIL_OK)
        s = aril__caffe_axis("end_axis", in[0], aril__message_int(l->param, "end_axis"), false,
                             &last);
    if (s == ARIL_OK && last < first)
        s = aril__fail(ARIL_ERR_SHAPE, "end_axis %d is before axis %d", last, first);
    out[0] = s == ARIL_OK ? aril_flatten(in[0], first, last) : aril__poison();
}

static aril_status reshape_check(aril_module *m, caffe_layer *l)
{
    const aril__message *shape = aril__message_sub(l->param, "shape");
    (void)m;
    int inferred = 0;
    if (aril__message_count(shape, "dim") > ARIL_MAX_DIMS)
        return aril__caffe_bad(l, ARIL_ERR_UNSUPPORTED, "shape has %zu dimensions; at most %d",
                               aril__message_count(shape, "dim"), ARIL_MAX_DIMS);
    for (size_t i = 0; i < aril__message_count(shape, "dim"); i++) {
        int64_t dim = aril__message_int_at(shape, "dim", i);
        inferred += dim == -1;
        if (dim < -1 || inferred > 1)
            return aril__caffe_bad(l, ARIL_ERR_FORMAT,
                                   "shape: a dimension is a size, 0 (copied) or, once, -1");
    }
    if (aril__message_int(l->param, "num_axes") < -1)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "num_axes must be at least -1");
    return ARIL_OK;
}

/* The axes start to end (not included) are replaced by `shape`. */
static aril_status reshaped(const caffe_layer *l, const aril_tensor *x, aril_shape *to)
{
    const aril__message *shape = aril__message_sub(l->param, "shape");
    int64_t axis = aril__message_int(l->param, "axis"), n = aril__message_int(l->param, "num_axes"),
            dims = (int64_t)aril__message_count(shape, "dim");
    int64_t start = axis >= 0 ? axis : x->ndim + axis + 1, end = n == -1 ? x->ndim : start + n;
    char text[ARIL__SHAPE_TEXT];
    *to = (aril_shape){ 0 };
    if (start < 0 || start > x->ndim || end > x->ndim)
        return aril__fail(ARIL_ERR_SHAPE,
                          "axis %lld and num_axes %lld are outside of the bottom "
                          "%s",
                          (long long)axis, (long long)n, aril__text(text, x));
    if (start + dims + (x->ndim - end) > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "the top would have more than %d dimensions",
                          ARIL_MAX_DIMS);
    for (int i = 0; i < start; i++) to->dim[to->ndim++] = x->dim[i];
    for (int64_t i = 0; i < dims; i++) {
        int64_t dim = aril__message_int_at(shape, "dim", (size_t)i);
        if (dim == 0 && start + i >= x->ndim)
            return aril__fail(ARIL_ERR_SHAPE, "the bottom %s has no axis %lld to copy",
                              aril__text(text, x), (long long)(start + i));
        to->dim[to->ndim++] = dim == 0 ? x->dim[start + i] : dim;
    }
    for (int64_t i = end; i < x->ndim; i++) to->dim[to->ndim++] = x->dim[i];
    return ARIL_OK;
}

FORWARD(reshape)
{
    aril_shape to;
    (void)m;
    out[0] = reshaped(l, in[0], &to) == ARIL_OK ? aril_reshape(in[0], to) : aril__poison();
}

/* Axes that `order` does not name follow in their order. */
static aril_status permute_axes(const caffe_layer *l, const aril_tensor *x, aril_axes *axes)
{
    bool seen[ARIL_MAX_DIMS] = { 0 };
    *axes = (aril_axes){ 0 };
    for (size_t i = 0; i < aril__message_count(l->param, "order"); i++) {
        int64_t axis = aril__message_int_at(l->param, "order", i);
        if (axis >= x->ndim || seen[axis])
            return aril__fail(ARIL_ERR_SHAPE, "order: axis %lld %s", (long long)axis,
                              axis >= x->ndim ? "does not exist" : "occurs twice");
        seen[axis] = true;
        axes->axis[axes->n++] = (int)axis;
    }
    for (int i = 0; i < x->ndim; i++)
        if (!seen[i]) axes->axis[axes->n++] = i;
    return ARIL_OK;
}

FORWARD(permute)
{
    aril_axes axes;
    (void)m;
    out[0] = permute_axes(l, in[0], &axes) == ARIL_OK ? aril_permute(in[0], axes) : aril__poison();
}

/* ---- Crop and Tile ---- */

static aril_status crop_axis(const caffe_layer *l, aril_tensor *const *in, int first, int i,
                             int64_t *offset)
{
    size_t given = aril__message_count(l->param, "offset");
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    *offset = given == 0
                  ? 0
                  : aril__message_int_at(l->param, "offset", given == 1 ? 0 : (size_t)(i - first));
    if (*offset > in[0]->dim[i] || in[1]->dim[i] > in[0]->dim[i] - *offset)
        return aril__fail(ARIL_ERR_SHAPE, "%s at offset %lld of axis %d is outside of %s",
                          aril__text(a, in[1]), (long long)*offset, i, aril__text(b, in[0]));
    return ARIL_OK;
}

/* The first bottom, from `axis` on cut to the sizes of the second. */
FORWARD(crop)
{
    int first, n = aril_ndim(in[0]);
    (void)m;
    aril_status s =
        aril__caffe_axis("axis", in[0], aril__message_int(l->param, "axis"), false, &first);
    size_t given = aril__message_count(l->param, "offset");
    if (s == ARIL_OK && (in[1]->ndim != n || (given > 1 && given != (size_t)(n - first))))
        s = aril__fail(ARIL_ERR_SHAPE, "bottoms with %d and %d dimensions, %zu offsets for %d axes",
                       n, in[1]->ndim, given, n - first);
    aril_tensor *y = in[0];
    for (int i = first; i < n && s == ARIL_OK; i++) {
        int64_t offset;
        s = crop_axis(l, in, first, i, &offset);
        if (s == ARIL_OK && in[1]->dim[i] != y->dim[i])
            y = aril_narrow(y, i, offset, in[1]->dim[i]);
    }
    out[0] = s == ARIL_OK ? y : aril__poison();
}

static aril_status tile_check(aril_module *m, caffe_layer *l)
{
    (void)m;
    return aril__message_int(l->param, "tiles") >= 1
               ? ARIL_OK
               : aril__caffe_bad(l, ARIL_ERR_FORMAT, "tiles must be at least 1");
}

FORWARD(tile)
{
    int axis;
    (void)m;
    aril_status s =
        aril__caffe_axis("axis", in[0], aril__message_int(l->param, "axis"), false, &axis);
    aril_shape times = { .ndim = aril_ndim(in[0]) };
    for (int i = 0; i < times.ndim; i++)
        times.dim[i] = i == axis ? aril__message_int(l->param, "tiles") : 1;
    out[0] = s == ARIL_OK ? aril_repeat(in[0], times) : aril__poison();
}

#define PLAIN(name, b, t) CAFFE_ROW(name, caffe_layer), CAFFE_COUNTS(b, b, t, t)

const caffe_row aril__caffe_shape_rows[] = {
    { CAFFE_ROW("Concat", caffe_layer), CAFFE_COUNTS(1, CAFFE_ANY, 1, 1), .param = "concat_param",
      .check = concat_check, .forward = concat },
    { CAFFE_ROW("Slice", caffe_layer), CAFFE_COUNTS(1, 1, 1, CAFFE_ANY), .param = "slice_param",
      .check = slice_check, .forward = slice },
    { CAFFE_ROW("Split", caffe_layer), CAFFE_COUNTS(1, 1, 1, CAFFE_ANY), .forward = split },
    { CAFFE_ROW("Silence", caffe_layer), CAFFE_COUNTS(1, CAFFE_ANY, 0, 0), .forward = silence },
    { PLAIN("Flatten", 1, 1), .param = "flatten_param", .forward = flatten },
    { PLAIN("Reshape", 1, 1), .param = "reshape_param", .check = reshape_check,
      .forward = reshape },
    { PLAIN("Permute", 1, 1), .param = "permute_param", .forward = permute },
    { PLAIN("Crop", 2, 1), .param = "crop_param", .forward = crop },
    { PLAIN("Tile", 1, 1), .param = "tile_param", .check = tile_check, .forward = tile },
    { .param = NULL },
};
