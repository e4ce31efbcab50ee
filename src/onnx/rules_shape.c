/* Constants, sizes, and operators that rearrange elements. */
#include "onnx/rules.h"

#include <inttypes.h>
#include <math.h>

/* ---- constants ---- */

static aril_status constant_text(onnx_call *c, const aril__message *a, const char *field, size_t n,
                                 aril_shape shape)
{
    onnx_text *t = aril__onnx_alloc(&c->run->arena, 1, sizeof *t);
    if (!t || !(t->at = aril__onnx_alloc(&c->run->arena, n, sizeof *t->at))) return ARIL_ERR_MEMORY;
    t->shape = shape;
    t->n = n;
    for (size_t i = 0; i < n; i++)
        t->at[i] = strcmp(field, "s") == 0 ? aril__message_bytes(a, "s")
                                           : aril__message_bytes_at(a, field, i);
    return give_value(c, 0, (onnx_value){ .kind = ONNX_TEXT, .text = t });
}

static aril_status constant(onnx_call *c)
{
    const aril__message *a;
    onnx_value v;
    if ((a = aril__onnx_attribute(c, "value"))) {
        aril_status s =
            aril__onnx_tensor(&c->run->arena, aril__message_sub(a, "t"), c->run->model->folder, &v);
        return s < 0 ? s : give_value(c, 0, v);
    }
    if ((a = aril__onnx_attribute(c, "sparse_value"))) {
        aril_status s = aril__onnx_sparse(&c->run->arena, aril__message_sub(a, "sparse_tensor"),
                                          c->run->model->folder, &v);
        return s < 0 ? s : give_value(c, 0, v);
    }
    if (has_attr(c, "value_float")) {
        float x = (float)aril__onnx_attr_float(c, "value_float", 0);
        return give(c, 0, aril_from(&x, ARIL_SHAPE(), ARIL_F32, aril_cpu()));
    }
    if (has_attr(c, "value_int")) {
        int64_t x = aril__onnx_attr_int(c, "value_int", 0);
        return give(c, 0, aril_from(&x, ARIL_SHAPE(), ARIL_I64, aril_cpu()));
    }
    if (has_attr(c, "value_ints")) {
        onnx_ints x = aril__onnx_attr_ints(c, "value_ints");
        return give(c, 0, aril__onnx_from_ints(x.at, x.n));
    }
    if (has_attr(c, "value_floats")) {
        onnx_floats x = aril__onnx_attr_floats(c, "value_floats");
        return give(c, 0, aril__onnx_numbers(c, x.at, x.n, ARIL_F32));
    }
    if ((a = aril__onnx_attribute(c, "value_string")))
        return constant_text(c, a, "s", 1, ARIL_SHAPE());
    if ((a = aril__onnx_attribute(c, "value_strings"))) {
        size_t n = aril__message_count(a, "strings");
        return constant_text(c, a, "strings", n, ARIL_SHAPE((int64_t)n));
    }
    return aril__onnx_fail(c, ARIL_ERR_FORMAT, "a constant without a value");
}

/* Refuses results that cannot be meant. */
static aril_status check_size(onnx_call *c, aril_shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; i++)
        if (aril__size_is_named(shape.dim[i]))
            continue;
        else if (shape.dim[i] < 0 || __builtin_mul_overflow(n, shape.dim[i], &n) ||
                 n > INT64_MAX / 16)
            return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                                   "the sizes of the result are negative or too large");
    return ARIL_OK;
}

static aril_status constant_of_shape(onnx_call *c)
{
    onnx_ints sizes;
    aril_shape shape;
    aril_status s = aril__onnx_ints(c, 0, &sizes);
    if (s == ARIL_OK) s = aril__onnx_shape(c, sizes, &shape);
    if (s == ARIL_OK) s = check_size(c, shape);
    if (s != ARIL_OK) return s;
    const aril__message *a = aril__onnx_attribute(c, "value");
    if (!a) return give(c, 0, aril_zeros(shape, ARIL_F32, aril__onnx_device(c)));
    onnx_value v;
    s = aril__onnx_tensor(&c->run->arena, aril__message_sub(a, "t"), NULL, &v);
    if (s < 0) return s;
    if (v.kind != ONNX_TENSOR || aril_numel(v.tensor) != 1)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT, "the value must be one number");
    aril_tensor *one = aril_reshape(v.tensor, ARIL_SHAPE());
    return give(c, 0, aril_contiguous(aril_expand(one, shape)));
}

/* ---- sizes ---- */

static aril_status shape_of(onnx_call *c)
{
    aril_shape s;
    if (given(c, 0) && c->in[0].kind == ONNX_TEXT)
        s = c->in[0].text->shape;
    else if (given(c, 0) && c->in[0].kind == ONNX_TENSOR)
        s = aril_shape_of(c->in[0].tensor);
    else
        return aril__onnx_fail(c, ARIL_ERR_ARG, "the input is not a tensor");
    int64_t start = aril__onnx_attr_int(c, "start", 0), end = aril__onnx_attr_int(c, "end", s.ndim);
    if (start < 0) start += s.ndim;
    if (end < 0) end += s.ndim;
    start = start < 0 ? 0 : start > s.ndim ? s.ndim : start;
    end = end < start ? start : end > s.ndim ? s.ndim : end;
    return give(c, 0, aril__onnx_from_ints(s.dim + start, end - start));
}

static aril_status size_of(onnx_call *c)
{
    int64_t n = given(c, 0) && c->in[0].kind == ONNX_TEXT ? (int64_t)c->in[0].text->n
                                                          : aril_numel(c->in[0].tensor);
    if (n < 0) { /* a size of its own */
        aril_shape s = aril_shape_of(c->in[0].tensor);
        n = aril__size_product(aril__self()->sizes, s.ndim, s.dim);
    }
    if (n < 0 && !aril__size_is_named(n)) return ARIL__ONNX_DYNAMIC;
    return give(c, 0, aril_from(&n, ARIL_SHAPE(), ARIL_I64, aril_cpu()));
}

/* ---- shapes ---- */

/* A tensor or strings in another shape of the same number of elements. */
static aril_status give_shaped(onnx_call *c, aril_shape to)
{
    if (c->in[0].kind != ONNX_TEXT) return give(c, 0, aril_reshape(in(c, 0), to));
    onnx_text *t = aril__onnx_alloc(&c->run->arena, 1, sizeof *t);
    if (!t) return ARIL_ERR_MEMORY;
    *t = *c->in[0].text;
    int64_t known = 1, n = (int64_t)t->n;
    int inferred = -1;
    bool fits = true;
    for (int i = 0; i < to.ndim && fits; i++) {
        fits = to.dim[i] >= 0 ? !__builtin_mul_overflow(known, to.dim[i], &known)
                              : to.dim[i] == -1 && inferred < 0;
        if (to.dim[i] < 0) inferred = i;
    }
    if (fits && inferred >= 0 && known > 0) to.dim[inferred] = n / known;
    if (!fits || (inferred >= 0 ? known == 0 || n % known : known != n)) {
        char text[ARIL__SHAPE_TEXT];
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "%zu strings cannot have the sizes %s", t->n,
                               aril__shape_text(text, to.ndim, to.dim));
    }
    t->shape = to;
    return give_value(c, 0, (onnx_value){ .kind = ONNX_TEXT, .text = t });
}

static aril_shape sizes_in(onnx_call *c, int i)
{
    if (given(c, i) && c->in[i].kind == ONNX_TEXT) return c->in[i].text->shape;
    aril_tensor *t = in(c, i);
    return t ? aril_shape_of(t) : ARIL_SHAPE();
}

static aril_status reshape(onnx_call *c)
{
    onnx_ints sizes;
    aril_shape shape, from = sizes_in(c, 0);
    aril_status s = aril__onnx_ints_of(c, "shape", 1, &sizes);
    if (s == ARIL_OK) s = aril__onnx_shape(c, sizes, &shape);
    if (s != ARIL_OK) return s;
    bool zeros = aril__onnx_attr_int(c, "allowzero", 0) != 0;
    for (int i = 0; i < shape.ndim; i++)
        if (shape.dim[i] == 0 && !zeros && i < from.ndim) shape.dim[i] = from.dim[i];
    int64_t batch = c->run->batch; /* where the model says another, */
    if (batch && !c->host && shape.ndim && from.ndim && from.dim[0] == batch &&
        shape.dim[0] == c->run->model->batch) /* which the weights do not have */
        shape.dim[0] = batch;
    return give_shaped(c, shape);
}

static aril_status flatten(onnx_call *c)
{
    aril_shape from = sizes_in(c, 0);
    int64_t axis = aril__onnx_attr_int(c, "axis", 1), rows, columns;
    if (axis < 0) axis += from.ndim;
    if (axis < 0 || axis > from.ndim) return aril__onnx_fail(c, ARIL_ERR_ARG, "axis out of range");
    aril__sizes *sizes = aril__self()->sizes;
    rows = aril__size_product(sizes, (int)axis, from.dim);
    columns = aril__size_product(sizes, from.ndim - (int)axis, from.dim + axis);
    return give_shaped(c, ARIL_SHAPE(rows, columns));
}

static aril_status squeeze(onnx_call *c)
{
    onnx_ints from;
    aril_axes axes;
    aril_shape sizes = sizes_in(c, 0), to = { 0 };
    aril_status s = aril__onnx_ints_of(c, "axes", 1, &from);
    if (s == ARIL_OK) s = aril__onnx_axes(c, from, sizes.ndim, &axes);
    if (s != ARIL_OK) return s;
    for (int i = 0; i < sizes.ndim && from.n < 0; i++) /* only the run knows which are 1 */
        if (sizes.dim[i] < 0) return aril__onnx_open_error(c);
    for (int i = 0; i < sizes.ndim; i++) {
        bool drop = from.n < 0 && sizes.dim[i] == 1;
        for (int k = 0; k < axes.n; k++) drop |= axes.axis[k] == i;
        if (drop && sizes.dim[i] < 0) return aril__onnx_open_error(c);
        if (drop && sizes.dim[i] != 1)
            return aril__onnx_fail(c, ARIL_ERR_SHAPE, "axis %d has size %" PRId64 ", not 1", i,
                                   sizes.dim[i]);
        if (!drop) to.dim[to.ndim++] = sizes.dim[i];
    }
    return give_shaped(c, to);
}

static aril_status unsqueeze(onnx_call *c)
{
    onnx_ints from;
    aril_axes axes;
    aril_shape sizes = sizes_in(c, 0), to = { 0 };
    aril_status s = aril__onnx_ints_of(c, "axes", 1, &from);
    if (s != ARIL_OK) return s;
    if (from.n < 0 || sizes.ndim + from.n > ARIL_MAX_DIMS)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "axes are missing, or too many");
    to.ndim = sizes.ndim + (int)from.n;
    s = aril__onnx_axes(c, from, to.ndim, &axes);
    if (s != ARIL_OK) return s;
    int next = 0;
    for (int i = 0; i < to.ndim; i++) {
        bool is_new = false;
        for (int k = 0; k < axes.n; k++) is_new |= axes.axis[k] == i;
        if (!is_new && next >= sizes.ndim)
            return aril__onnx_fail(c, ARIL_ERR_ARG, "an axis is given twice");
        to.dim[i] = is_new ? 1 : sizes.dim[next++];
    }
    return give_shaped(c, to);
}

static aril_status transpose(onnx_call *c)
{
    onnx_ints perm = aril__onnx_attr_ints(c, "perm");
    aril_tensor *x = in(c, 0);
    aril_axes axes = { .n = aril_ndim(x) };
    if (perm.n >= 0 && perm.n != axes.n)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "perm has %" PRId64 " axes, the input %d", perm.n,
                               axes.n);
    for (int i = 0; i < axes.n; i++) axes.axis[i] = perm.n < 0 ? axes.n - 1 - i : (int)perm.at[i];
    return give(c, 0, axes.n ? aril_permute(x, axes) : x);
}

static aril_status expand(onnx_call *c)
{
    onnx_ints sizes;
    aril_shape to;
    aril_tensor *x = in(c, 0);
    aril_status s = aril__onnx_ints(c, 1, &sizes);
    if (s == ARIL_OK) s = aril__onnx_shape(c, sizes, &to);
    if (s != ARIL_OK) return s;
    aril_shape from = aril_shape_of(x);
    if (to.ndim < from.ndim) { /* both are broadcast */
        int more = from.ndim - to.ndim;
        memmove(to.dim + more, to.dim, (size_t)to.ndim * sizeof *to.dim);
        for (int i = 0; i < more; i++) to.dim[i] = 1;
        to.ndim = from.ndim;
    }
    for (int i = 0; i < from.ndim; i++) {
        int64_t *d = &to.dim[to.ndim - from.ndim + i];
        if (*d == 1) *d = from.dim[i];
    }
    s = check_size(c, to);
    return s < 0 ? s : give(c, 0, aril_expand(x, to));
}

static aril_status tile(onnx_call *c)
{
    onnx_ints repeats;
    aril_shape times;
    aril_status s = aril__onnx_ints(c, 1, &repeats);
    if (s == ARIL_OK && c->version < 6) { /* tiles, axis */
        int64_t tiles, axis;
        s = aril__onnx_int_in(c, 1, 1, &tiles);
        if (s == ARIL_OK) s = aril__onnx_int_in(c, 2, 0, &axis);
        int at = s == ARIL_OK ? aril__onnx_axis(c, axis, aril_ndim(in(c, 0))) : -1;
        if (at < 0) return s == ARIL_OK ? ARIL_ERR_ARG : s;
        times = (aril_shape){ .ndim = aril_ndim(in(c, 0)) };
        for (int i = 0; i < times.ndim; i++) times.dim[i] = i == at ? tiles : 1;
    } else if (s == ARIL_OK) {
        s = aril__onnx_shape(c, repeats, &times);
    }
    return s != ARIL_OK ? s : give(c, 0, aril_tile(in(c, 0), times));
}

/* ---- parts ---- */

static aril_status concat(onnx_call *c)
{
    aril_tensor **part = aril__onnx_alloc(&c->run->arena, (size_t)c->n_in, sizeof *part);
    if (!part) return ARIL_ERR_MEMORY;
    if (!c->n_in) return aril__onnx_fail(c, ARIL_ERR_ARG, "nothing to concatenate");
    for (int i = 0; i < c->n_in; i++)
        if (!(part[i] = in(c, i)))
            return aril__onnx_fail(c, ARIL_ERR_ARG, "input %d is missing", i);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 1), aril_ndim(part[0]));
    if (axis < 0) return ARIL_ERR_ARG;
    return give(c, 0, aril_cat((aril_list){ c->n_in, part }, axis));
}

static aril_status split(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    onnx_ints sizes;
    aril_status s = aril__onnx_ints_of(c, "split", 1, &sizes);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 0), aril_ndim(x));
    if (s != ARIL_OK || axis < 0) return s == ARIL_OK ? ARIL_ERR_ARG : s;
    int64_t n = aril_size(x, axis), parts = aril__onnx_attr_int(c, "num_outputs", c->n_out);
    if (parts < c->n_out || (sizes.n >= 0 && sizes.n < c->n_out))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "more outputs than parts");
    if (sizes.n < 0 && n < 0) return aril__onnx_open_error(c);
    int64_t size = parts ? (n + parts - 1) / parts : n, start = 0;
    for (int i = 0; i < c->n_out && s == ARIL_OK; i++) {
        int64_t here = sizes.n >= 0 ? sizes.at[i] : size;
        if (sizes.n < 0 && here > n - start) here = n - start;
        if (here < 0 || (n >= 0 && here > n - start))
            return aril__onnx_fail(c, ARIL_ERR_SHAPE, "the parts are larger than the axis");
        s = give(c, i, aril_narrow(x, axis, start, here));
        start += here;
    }
    return s;
}

static aril_status slice(onnx_call *c)
{
    onnx_ints starts, ends, axes, steps = { .n = -1 };
    aril_tensor *x = in(c, 0);
    aril_status s = aril__onnx_ints_of(c, "starts", 1, &starts);
    if (s == ARIL_OK) s = aril__onnx_ints_of(c, "ends", 2, &ends);
    if (s == ARIL_OK) s = aril__onnx_ints_of(c, "axes", 3, &axes);
    if (s == ARIL_OK) s = aril__onnx_ints(c, 4, &steps);
    if (s != ARIL_OK) return s;
    if (starts.n != ends.n || (axes.n >= 0 && axes.n != starts.n) ||
        (steps.n >= 0 && steps.n != starts.n))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "starts, ends, axes and steps differ in length");
    for (int64_t i = 0; i < starts.n; i++) {
        int axis = aril__onnx_axis(c, axes.n >= 0 ? axes.at[i] : i, aril_ndim(x));
        if (axis < 0) return ARIL_ERR_ARG;
        int64_t n = aril_size(x, axis), step = steps.n >= 0 ? steps.at[i] : 1;
        int64_t start = starts.at[i], end = ends.at[i];
        if (!step) return aril__onnx_fail(c, ARIL_ERR_ARG, "a step is 0");
        if (n < 0) { /* clamped when it runs */
            if (step > 0 && end >= INT32_MAX) end = ARIL_END;
            x = aril_slice(x, axis, start, end, step);
            continue;
        }
        if (start < 0) start = start < -n ? -1 : start + n;
        if (end < 0) end = end < -n ? -1 : end + n;
        if (step > 0) {
            start = start < 0 ? 0 : start > n ? n : start;
            end = end < start ? start : end > n ? n : end;
            x = aril_slice(x, axis, start, end, step);
        } else {
            start = start > n - 1 ? n - 1 : start;
            if (end > start) end = start;
            if (end == start || start < 0)
                x = aril_narrow(x, axis, 0, 0);
            else
                x = aril_slice(x, axis, start, end < 0 ? ARIL_END : end, step);
        }
    }
    return give(c, 0, x);
}

/* ---- padding ---- */

/* Where the elements of a padded axis come from. */
static int64_t padded_from(int64_t i, int64_t n, char mode)
{
    if (mode == 'e') return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (mode == 'w') return ((i % n) + n) % n;
    int64_t period = 2 * (n - 1);
    if (!period) return 0;
    i = ((i % period) + period) % period;
    return i < n ? i : period - i;
}

static aril_status pad_axis(onnx_call *c, aril_tensor **x, int axis, int64_t before, int64_t after,
                            char mode)
{
    int64_t n = aril_size(*x, axis), to;
    if (n < 0) return aril__onnx_open_error(c);
    if (__builtin_add_overflow(n, before, &to) || __builtin_add_overflow(to, after, &to) ||
        to < 0 || (n == 0 && to > 0))
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "the padding of axis %d does not fit", axis);
    int64_t *from = aril__onnx_alloc(&c->run->arena, (size_t)to, sizeof *from);
    if (!from) return ARIL_ERR_MEMORY;
    for (int64_t i = 0; i < to; i++) from[i] = padded_from(i - before, n, mode);
    *x = aril_index_select(*x, aril__onnx_index(c, from, to), axis);
    return ARIL_OK;
}

/* Axes of an open size are padded by the op, which takes no negative padding in these modes. */
static bool pads_open(const aril_tensor *x, const int64_t *before, const int64_t *after)
{
    bool open = false, crops = false;
    for (int i = 0; i < aril_ndim(x); i++) {
        open |= x->dim[i] < 0 && (before[i] || after[i]);
        crops |= before[i] < 0 || after[i] < 0;
    }
    return open && !crops;
}

static aril_tensor *padded_open(aril_tensor *x, const int64_t *before, const int64_t *after,
                                char mode)
{
    aril_pads pads = { .n = 2 * aril_ndim(x) };
    for (int i = 0; i < aril_ndim(x); i++) {
        pads.at[2 * i] = before[aril_ndim(x) - 1 - i];
        pads.at[2 * i + 1] = after[aril_ndim(x) - 1 - i];
    }
    return aril_pad(x, pads,
                    (aril_pad_opts){ .mode = mode == 'e'   ? ARIL_PAD_REPLICATE
                                             : mode == 'w' ? ARIL_PAD_CIRCULAR
                                                           : ARIL_PAD_REFLECT });
}

/* Integers of 64 bits that no double is equal to are put where padding is. */
static aril_tensor *padded(onnx_call *c, aril_tensor *x, aril_pads pads, double value)
{
    aril_tensor *y = aril_pad(x, pads, (aril_pad_opts){ .value = value });
    aril_dtype dtype = aril_dtype_of(x);
    if ((dtype != ARIL_I64 && dtype != ARIL_U64) || fabs(value) < 0x1p53 || !given(c, 2)) return y;
    aril_tensor *inside = aril_pad(aril_full_like(x, 1), pads, (aril_pad_opts){ 0 });
    return aril_where(aril_eq_scalar(inside, 1), y, aril_reshape(in(c, 2), ARIL_SHAPE()));
}

static aril_status pad(onnx_call *c)
{
    onnx_ints pads, axes;
    double value = aril__onnx_attr_float(c, "value", 0);
    aril_tensor *x = in(c, 0);
    aril_status s = aril__onnx_ints_of(c, c->version < 2 ? "paddings" : "pads", 1, &pads);
    if (s == ARIL_OK) s = aril__onnx_ints(c, 3, &axes);
    if (s == ARIL_OK && c->version >= 11 && given(c, 2)) s = aril__onnx_float_in(c, 2, 0, &value);
    if (s != ARIL_OK) return s;
    int64_t n = axes.n >= 0 ? axes.n : aril_ndim(x);
    if (pads.n != 2 * n)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "expected %" PRId64 " pads, got %" PRId64, 2 * n,
                               pads.n);
    const char *mode = aril__onnx_attr_text(c, "mode", "constant");
    int64_t before[ARIL_MAX_DIMS] = { 0 }, after[ARIL_MAX_DIMS] = { 0 };
    for (int64_t i = 0; i < n; i++) {
        int axis = aril__onnx_axis(c, axes.n >= 0 ? axes.at[i] : i, aril_ndim(x));
        if (axis < 0) return ARIL_ERR_ARG;
        before[axis] = pads.at[i];
        after[axis] = pads.at[n + i];
    }
    if (strcmp(mode, "constant") == 0) {
        aril_pads to = { .n = 2 * aril_ndim(x) };
        for (int i = 0; i < aril_ndim(x); i++) {
            to.at[2 * i] = before[aril_ndim(x) - 1 - i];
            to.at[2 * i + 1] = after[aril_ndim(x) - 1 - i];
        }
        return give(c, 0, to.n ? padded(c, x, to, value) : x);
    }
    if (strcmp(mode, "reflect") != 0 && strcmp(mode, "edge") != 0 && strcmp(mode, "wrap") != 0)
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "mode %s", mode);
    if (pads_open(x, before, after)) return give(c, 0, padded_open(x, before, after, *mode));
    for (int i = 0; i < aril_ndim(x) && s == ARIL_OK; i++)
        if (before[i] || after[i]) s = pad_axis(c, &x, i, before[i], after[i], *mode);
    return s != ARIL_OK ? s : give(c, 0, x);
}

aril_tensor *aril__onnx_window(onnx_call *c, aril_tensor *x, int axis, aril_tensor *start,
                               int64_t n)
{
    aril_device dev = aril__onnx_device(c);
    aril_tensor *at = aril_add(aril_arange(0, n, 1, ARIL_I64, dev), start); /* [n] */
    aril_tensor *last = aril_add_scalar(aril__onnx_size(dev, aril_size(x, axis)), -1);
    aril_tensor *inside = aril_logical_and(aril_ge_scalar(at, 0), aril_le(at, last));
    at = aril_maximum(aril_minimum(at, last), aril_zeros_like(at));
    for (int i = axis + 1; i < aril_ndim(x); i++) inside = aril_unsqueeze(inside, -1);
    aril_tensor *y = aril_index_select(x, at, axis);
    return aril_where(inside, y, aril_zeros_like(y));
}

/* The same n elements in the middle of an axis whose size is open. */
static aril_tensor *centered(onnx_call *c, aril_tensor *x, int axis, int64_t n)
{
    aril_tensor *size = aril__onnx_size(aril__onnx_device(c), aril_size(x, axis));
    aril_tensor *more = aril_add_scalar(size, -n); /* half of it, towards 0 */
    aril_tensor *half = aril_floor_div_scalar(aril_abs(more), 2);
    return aril__onnx_window(c, x, axis, aril_mul(half, aril_sign(more)), n);
}

/* Crops or pads axes in their middle. */
static aril_status center_crop_pad(onnx_call *c)
{
    onnx_ints sizes, axes = aril__onnx_attr_ints(c, "axes");
    aril_tensor *x = in(c, 0);
    aril_status s = aril__onnx_ints(c, 1, &sizes);
    if (s != ARIL_OK) return s;
    if (sizes.n != (axes.n >= 0 ? axes.n : aril_ndim(x)))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "expected a size for each axis");
    aril_pads pads = { .n = 2 * aril_ndim(x) };
    for (int64_t i = 0; i < sizes.n; i++) {
        int axis = aril__onnx_axis(c, axes.n >= 0 ? axes.at[i] : i, aril_ndim(x));
        if (axis < 0) return ARIL_ERR_ARG;
        int64_t n = aril_size(x, axis), more = sizes.at[i] - n;
        if (sizes.at[i] < 0) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "a size is negative");
        if (n < 0) {
            x = centered(c, x, axis, sizes.at[i]);
            continue;
        }
        if (more < 0) x = aril_narrow(x, axis, -more / 2, sizes.at[i]);
        if (more <= 0) continue;
        pads.at[2 * (aril_ndim(x) - 1 - axis)] = more / 2;
        pads.at[2 * (aril_ndim(x) - 1 - axis) + 1] = more - more / 2;
    }
    return give(c, 0, pads.n ? aril_pad(x, pads, (aril_pad_opts){ 0 }) : x);
}

/* ---- blocks ---- */

static aril_status check_block(const onnx_call *c, const aril_tensor *x, int64_t b)
{
    if (aril_ndim(x) != 4)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "expected [N,C,H,W], got %d dimensions",
                               aril_ndim(x));
    if (b >= 1 && b <= INT32_MAX) return ARIL_OK; /* the square has a number too */
    return aril__onnx_fail(c, ARIL_ERR_ARG, "blocksize %" PRId64 ", expected 1 to %d", b,
                           INT32_MAX);
}

static aril_status depth_to_space(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    int64_t b = aril__onnx_attr_int(c, "blocksize", 1);
    aril_status s = check_block(c, x, b);
    if (s < 0) return s;
    if (aril_size(x, 1) >= 0 && aril_size(x, 1) % (b * b))
        return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                               "the square of blocksize %" PRId64
                               " does not divide the number of channels, %" PRId64,
                               b, aril_size(x, 1));
    int64_t n = aril_size(x, 0), ch = aril__onnx_over(aril_size(x, 1), b * b), h = aril_size(x, 2),
            w = aril_size(x, 3);
    bool crd = attr_is(c, "mode", "DCR", "CRD");
    if (crd) {
        x = aril_permute(aril_reshape(x, ARIL_SHAPE(n, ch, b, b, h, w)),
                         ARIL_AXES(0, 1, 4, 2, 5, 3));
    } else {
        x = aril_permute(aril_reshape(x, ARIL_SHAPE(n, b, b, ch, h, w)),
                         ARIL_AXES(0, 3, 4, 1, 5, 2));
    }
    return give(c, 0,
                aril_reshape(x, ARIL_SHAPE(n, ch, aril__onnx_times(h, b), aril__onnx_times(w, b))));
}

static aril_status space_to_depth(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    int64_t b = aril__onnx_attr_int(c, "blocksize", 1);
    aril_status s = check_block(c, x, b);
    if (s < 0) return s;
    for (int i = 2; i < 4; i++)
        if (aril_size(x, i) >= 0 && aril_size(x, i) % b)
            return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                                   "blocksize %" PRId64 " does not divide size %" PRId64
                                   " of dimension %d",
                                   b, aril_size(x, i), i);
    int64_t n = aril_size(x, 0), ch = aril_size(x, 1), h = aril__onnx_over(aril_size(x, 2), b),
            w = aril__onnx_over(aril_size(x, 3), b);
    if (h < 0 && w < 0 && !aril__size_is_named(h) && !aril__size_is_named(w))
        return aril__onnx_open_error(c);
    bool crd = attr_is(c, "mode", "DCR", "CRD");
    x = aril_reshape(x, ARIL_SHAPE(n, ch, h, b, w, b));
    x = aril_permute(x, crd ? ARIL_AXES(0, 1, 3, 5, 2, 4) : ARIL_AXES(0, 3, 5, 1, 2, 4));
    return give(c, 0, aril_reshape(x, ARIL_SHAPE(n, aril__onnx_times(ch, b * b), h, w)));
}

/* ---- ranges and matrices ---- */

/* Integers from start to limit, exactly: a double has 53 bits. */
static aril_status integer_range(onnx_call *c, aril_dtype dtype)
{
    int64_t start, limit, delta, most = INT64_C(1) << 40;
    aril_status s = aril__onnx_int_in(c, 0, 0, &start);
    if (s == ARIL_OK) s = aril__onnx_int_in(c, 1, 0, &limit);
    if (s == ARIL_OK) s = aril__onnx_int_in(c, 2, 1, &delta);
    if (s != ARIL_OK) return s;
    bool empty = delta > 0 ? start >= limit : start <= limit;
    uint64_t span =
        delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
    uint64_t step = delta > 0 ? (uint64_t)delta : 0 - (uint64_t)delta;
    if (!delta || (!empty && (span - 1) / step >= (uint64_t)most))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "the range does not end");
    aril_device dev = aril__onnx_device(c);
    if (empty) return give(c, 0, aril_zeros(ARIL_SHAPE(0), dtype, dev));
    int64_t n = (int64_t)((span - 1) / step) + 1;
    aril_tensor *count = aril_arange(0, n, 1, ARIL_I64, dev);
    count = aril_add_scalar(aril_mul_scalar(count, delta), start);
    return give(c, 0, aril_cast(count, dtype));
}

static aril_status range(onnx_call *c)
{
    aril_dtype dtype = aril_dtype_of(in(c, 0));
    double start, limit, delta;
    if (!aril_dtype_is_float(dtype)) return integer_range(c, dtype);
    aril_status s = aril__onnx_float_in(c, 0, 0, &start);
    if (s == ARIL_OK) s = aril__onnx_float_in(c, 1, 0, &limit);
    if (s == ARIL_OK) s = aril__onnx_float_in(c, 2, 1, &delta);
    if (s != ARIL_OK) return s;
    if (delta == 0 || (limit - start) / delta > 1e12)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "the range does not end");
    if ((limit - start) / delta <= 0)
        return give(c, 0, aril_zeros(ARIL_SHAPE(0), dtype, aril__onnx_device(c)));
    return give(c, 0, aril_arange(start, limit, delta, dtype, aril__onnx_device(c)));
}

static aril_status eye_like(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    aril_dtype dtype = aril_dtype_of(x);
    if (has_attr(c, "dtype")) aril__onnx_dtype(aril__onnx_attr_int(c, "dtype", 1), &dtype);
    int64_t k = aril__onnx_attr_int(c, "k", 0);
    if (aril_ndim(x) != 2) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "expected a matrix");
    aril_device dev = aril__onnx_device(c);
    aril_tensor *row = aril_arange(0, aril_size(x, 0), 1, ARIL_I64, dev);
    aril_tensor *column = aril_arange(0, aril_size(x, 1), 1, ARIL_I64, dev);
    row = aril_add_scalar(aril_unsqueeze(row, 1), k);
    return give(c, 0, aril_cast(aril_eq(row, aril_unsqueeze(column, 0)), dtype));
}

static aril_status trilu(onnx_call *c)
{
    int64_t k;
    aril_status s = aril__onnx_int_in(c, 1, 0, &k);
    if (s != ARIL_OK) return s;
    bool upper = aril__onnx_attr_int(c, "upper", 1) != 0;
    return give(c, 0, upper ? aril_triu(in(c, 0), k) : aril_tril(in(c, 0), k));
}

const onnx_rule aril__onnx_shape_rules[] = {
    RULE("Constant", 1, constant),
    RULE_FLAGS("ConstantOfShape", 9, constant_of_shape, ONNX_SHAPE_0),
    RULE_FLAGS("Shape", 1, shape_of, ONNX_SIZES | ONNX_OPEN_0),
    RULE_FLAGS("Size", 1, size_of, ONNX_SIZES | ONNX_OPEN_0),
    RULE_FLAGS("Reshape", 1, reshape, ONNX_OPEN_0 | ONNX_SHAPE_1),
    RULE_FLAGS("Flatten", 1, flatten, ONNX_MOVES | ONNX_OPEN_0),
    RULE_FLAGS("Squeeze", 1, squeeze, ONNX_MOVES | ONNX_OPEN_0),
    RULE_FLAGS("Unsqueeze", 1, unsqueeze, ONNX_MOVES | ONNX_OPEN_0),
    RULE_FLAGS("Transpose", 1, transpose, ONNX_MOVES | ONNX_OPEN_0),
    RULE_FLAGS("Expand", 8, expand, ONNX_MOVES | ONNX_OPEN_0 | ONNX_SHAPE_1),
    RULE_FLAGS("Tile", 1, tile, ONNX_MOVES),
    RULE_FLAGS("Concat", 1, concat, ONNX_MOVES | ONNX_OPEN_ALL),
    RULE_FLAGS("Split", 1, split, ONNX_MOVES | ONNX_OPEN_0),
    RULE_FLAGS("Slice", 1, slice, ONNX_MOVES | ONNX_OPEN_0),
    RULE("Pad", 1, pad),
    RULE("CenterCropPad", 18, center_crop_pad),
    RULE_FLAGS("DepthToSpace", 1, depth_to_space, ONNX_MOVES),
    RULE_FLAGS("SpaceToDepth", 1, space_to_depth, ONNX_MOVES),
    RULE("Range", 11, range),
    RULE_FLAGS("EyeLike", 9, eye_like, ONNX_SIZES | ONNX_SHAPE_0),
    RULE("Trilu", 14, trilu),
    { 0 },
};
