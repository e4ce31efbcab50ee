/* Rows of ops that create, move and rearrange elements. */
#include "onnx/export_rules.h"
#include "ops/shape/as_strided.h"
#include "ops/shape/concat.h"
#include "ops/shape/create.h"
#include "ops/shape/like.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"
#include "ops/shape/view_write.h"

#include <string.h>

/* ---- creation ---- */

static aril_tensor *filled_with(double real, const int64_t *integer, aril_dtype dtype)
{
    return integer[1] ? aril_full(ARIL_SHAPE(1), integer[0], dtype, aril_cpu())
                      : aril_full(ARIL_SHAPE(1), real, dtype, aril_cpu());
}

static aril_status fill(export_call *c, export_value *sizes, double real, const int64_t *integer)
{
    ARIL_SCOPE;
    aril_tensor *value = filled_with(real, integer, dtype_out(c, 0));
    return set_out(
        c, 0, put(c, "ConstantOfShape", VALUES(sizes), ATTRIBUTES(attr_tensor("value", value))));
}

/* Small ones are constants. */
static bool is_large(const export_call *c)
{
    int64_t n = 1;
    for (int d = 0; d < ndim_out(c, 0); d++) {
        if (dims_out(c, 0)[d] < 0) return true;
        n *= dims_out(c, 0)[d];
    }
    return n > 16;
}

/* A size that only the run knows, as the value of elements. */
static aril_status full_of_size(export_call *c, int64_t size)
{
    int n = ndim_out(c, 0);
    bool one = n == 1 && dims_out(c, 0)[0] == 1;
    export_value *v =
        aril__export_cast(c, aril__export_sizes(c, 1, &size), ARIL_I64, dtype_out(c, 0));
    if (!n) v = aril__export_reshape(c, v, 0, NULL);
    if (n && !one)
        v = put(c, "Expand", VALUES(v, aril__export_sizes(c, n, dims_out(c, 0))), NO_ATTRS);
    return set_out(c, 0, v);
}

static aril_status full(export_call *c)
{
    const struct create_attrs *a = c->attrs;
    if (a->integer[1] && aril__size_is_named(a->integer[0])) return full_of_size(c, a->integer[0]);
    if (!is_large(c)) return ARIL__EXPORT_DECLINED; /* a constant */
    return fill(c, aril__export_sizes(c, (int)a->ndim[0], a->dim), a->value[0], a->integer);
}

static aril_status full_like(export_call *c)
{
    const struct full_like_attrs *a = c->attrs;
    if (!is_large(c)) {
        ARIL_SCOPE;
        aril_shape shape = { .ndim = ndim_out(c, 0) };
        memcpy(shape.dim, dims_out(c, 0), (size_t)shape.ndim * sizeof *shape.dim);
        aril_tensor *one = filled_with(a->value[0], a->integer, dtype_out(c, 0));
        return set_out(c, 0,
                       aril__export_constant(c->model,
                                             aril_expand(aril_reshape(one, ARIL_SHAPE()), shape)));
    }
    return fill(c, aril__export_shape_of(c, 0), a->value[0], a->integer);
}

/* start + step * (0, 1, ..., n - 1), for a size that only the run knows. */
static aril_status arange(export_call *c)
{
    const struct create_attrs *a = c->attrs;
    if (a->dim[0] >= 0) return ARIL__EXPORT_DECLINED; /* a constant */
    aril_dtype dtype = dtype_out(c, 0);
    export_value *n = aril__export_sizes(c, 1, a->dim);
    n = aril__export_reshape(c, n, 0, NULL);
    export_value *k =
        put(c, "Range",
            VALUES(aril__export_number(c, 0, ARIL_I64), n, aril__export_number(c, 1, ARIL_I64)),
            NO_ATTRS);
    k = aril__export_cast(c, k, ARIL_I64, dtype);
    bool whole = a->integer[1] != 0;
    double start = whole ? (double)a->integer[0] : a->value[0];
    double step = whole ? (double)a->integer[2] : a->value[2];
    if (step != 1) k = put(c, "Mul", VALUES(k, aril__export_number(c, step, dtype)), NO_ATTRS);
    if (start != 0) k = put(c, "Add", VALUES(k, aril__export_number(c, start, dtype)), NO_ATTRS);
    return set_out(c, 0, k);
}

/* ---- the same elements ---- */

static aril_status identity(export_call *c)
{
    return set_out(c, 0, put(c, "Identity", VALUES(aril__export_in(c, 0)), NO_ATTRS));
}

static aril_status transpose(export_call *c)
{
    const struct permute_attrs *a = c->attrs;
    int perm[ARIL_MAX_DIMS];
    for (int d = 0; d < ndim_in(c, 0); d++) perm[d] = (int)a->axes[d];
    export_value *x = aril__export_in(c, 0);
    export_value *y = aril__export_transpose(c, x, ndim_in(c, 0), perm);
    return y == x ? identity(c) : set_out(c, 0, y);
}

/* To the sizes of the result, of which one may be unknown without computing it. */
static aril_status reshape(export_call *c)
{
    bool empty = false;
    for (int d = 0; d < ndim_out(c, 0); d++) empty |= dims_out(c, 0)[d] == 0;
    if (empty && c->opset < 14) /* a size of 0 would be copied from the input */
        return set_out(c, 0,
                       aril__export_zeros(c, ndim_out(c, 0), dims_out(c, 0), dtype_out(c, 0)));
    return set_out(c, 0,
                   aril__export_reshape(c, aril__export_in(c, 0), ndim_out(c, 0), dims_out(c, 0)));
}

static aril_status expand(export_call *c)
{
    export_value *sizes = c->n_in == 2 ? aril__export_shape_of(c, 1)
                                       : aril__export_sizes(c, ndim_out(c, 0), dims_out(c, 0));
    return set_out(c, 0, put(c, "Expand", VALUES(aril__export_in(c, 0), sizes), NO_ATTRS));
}

/* aril_copy_ broadcasts. */
static aril_status copy(export_call *c)
{
    int n = ndim_out(c, 0);
    bool same = ndim_in(c, 0) == n;
    for (int d = 0; d < n && same; d++) same = dims_in(c, 0)[d] == dims_out(c, 0)[d];
    if (same) return identity(c);
    export_value *sizes = aril__export_sizes(c, n, dims_out(c, 0));
    return set_out(c, 0, put(c, "Expand", VALUES(aril__export_in(c, 0), sizes), NO_ATTRS));
}

static int axes_of(int64_t mask, int64_t *axes)
{
    int n = 0;
    for (int d = 0; d < ARIL_MAX_DIMS; d++)
        if (mask >> d & 1) axes[n++] = d;
    return n;
}

static aril_status unsqueeze(export_call *c)
{
    int64_t axes[ARIL_MAX_DIMS];
    int n = axes_of(((const struct unsqueeze_attrs *)c->attrs)->mask[0], axes);
    return n ? set_out(c, 0, aril__export_unsqueeze(c, aril__export_in(c, 0), n, axes))
             : identity(c);
}

static aril_status squeeze(export_call *c)
{
    int64_t axes[ARIL_MAX_DIMS];
    int n = axes_of(((const struct unsqueeze_attrs *)c->attrs)->mask[0], axes);
    return n ? set_out(c, 0, aril__export_squeeze(c, aril__export_in(c, 0), n, axes)) : identity(c);
}

static aril_status slice(export_call *c)
{
    const struct slice_attrs *a = c->attrs;
    return set_out(c, 0,
                   aril__export_slice(c, aril__export_in(c, 0), (int)a->axis[0], a->start[0],
                                      a->stop[0], a->step[0]));
}

static aril_status select_write(export_call *c)
{
    const struct select_attrs *a = c->attrs;
    ARIL_SCOPE;
    export_value *at =
        aril__export_constant(c->model, aril_full(ARIL_SHAPE(), a->index[0], ARIL_I64, aril_cpu()));
    return set_out(c, 0,
                   put(c, "Gather", VALUES(aril__export_in(c, 0), at),
                       ATTRIBUTES(attr_int("axis", a->axis[0]))));
}

static aril_status concat(export_call *c)
{
    export_value **in = aril__onnx_alloc(&c->model->arena, (size_t)c->n_in, sizeof *in);
    if (!in) return ARIL_ERR_MEMORY;
    for (int i = 0; i < c->n_in; i++) in[i] = aril__export_in_as(c, i, dtype_out(c, 0));
    return set_out(
        c, 0,
        put(c, "Concat", (export_values){ c->n_in, in },
            ATTRIBUTES(attr_int("axis", ((const struct cat_attrs *)c->attrs)->axis[0]))));
}

static aril_status triangle(export_call *c)
{
    const struct triangle_attrs *a = c->attrs;
    bool upper = strcmp(c->op->name, "triu") == 0;
    return set_out(c, 0,
                   put(c, "Trilu",
                       VALUES(aril__export_in(c, 0),
                              aril__export_number(c, (double)a->diagonal[0], ARIL_I64)),
                       ATTRIBUTES(attr_int("upper", upper))));
}

static bool is_sized(const export_call *c)
{
    return known_in(c, 0) && aril__export_known(ndim_out(c, 0), dims_out(c, 0)) && !c->node->sized;
}

/* Selected by a mask, as a constant. */
static void by_mask(aril__call *c, aril_tensor **out)
{
    int64_t m = c->in[0]->dim[c->in[0]->ndim - 2], n = c->in[0]->dim[c->in[0]->ndim - 1];
    aril__pause p = aril__trace_pause();
    aril_tensor *ones = aril_ones(ARIL_SHAPE(m, n), ARIL_U8, aril_cpu());
    aril_tensor *mask = aril_cast(aril__op_with(c->attrs, c->op, ones), ARIL_BOOL);
    aril__trace_resume(p);
    out[0] = aril_where(mask, c->in[0], aril_zeros_like(c->in[0]));
}

/* ---- by positions ----
 *
 * An op that only moves elements is applied to the numbers of all elements: its result says where
 * each element comes from. */

static aril_tensor *numbered(int n, const int64_t *dim)
{
    int64_t count = 1;
    aril_shape shape = { .ndim = n };
    for (int d = 0; d < n; d++) count *= shape.dim[d] = dim[d];
    return aril_reshape(aril_arange(0, count, 1, ARIL_I64, aril_cpu()), shape);
}

static aril_status by_position(export_call *c)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    static const int64_t all[] = { -1 };
    aril_tensor *in[4] = { numbered(ndim_in(c, 0), dims_in(c, 0)) }, *out[ARIL__MAX_OUT];
    aril_status s = aril__apply(c->op, c->n_in, in, c->attrs, out);
    if (s < 0) return s;
    export_value *flat = aril__export_reshape(c, aril__export_in(c, 0), 1, all);
    return set_out(c, 0,
                   put(c, "Gather", VALUES(flat, aril__export_constant(c->model, out[0])),
                       ATTRIBUTES(attr_int("axis", 0))));
}

/* The elements that a path of views covers, by their numbers. */
static aril_tensor *covered(export_call *c, const struct view_write_attrs *a)
{
    aril_tensor *at = numbered(ndim_in(c, 0), dims_in(c, 0));
    const int64_t *p = a->path;
    aril_shape like = { .ndim = ndim_in(c, 1) };
    memcpy(like.dim, dims_in(c, 1), (size_t)like.ndim * sizeof *like.dim);
    for (int64_t i = 0; i < a->n[0]; i++) {
        const aril__op *view = aril__op_numbered((int)p[0]);
        aril_tensor *in[2] = { at, aril_zeros(like, ARIL_I64, aril_cpu()) };
        at = aril__apply1(view, view->min_in, in, view->attr_size ? p + 1 : NULL);
        p += 1 + view->attr_size / sizeof *p;
    }
    return at;
}

static aril_status write_at(export_call *c)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    static const int64_t all[] = { -1 };
    aril_tensor *at = aril_reshape(covered(c, c->attrs), ARIL_SHAPE(-1));
    export_value *base = aril__export_reshape(c, aril__export_in(c, 0), 1, all);
    export_value *part = aril__export_reshape(c, aril__export_in_as(c, 1, dtype_in(c, 0)), 1, all);
    export_value *y =
        put(c, "ScatterElements", VALUES(base, aril__export_constant(c->model, at), part),
            ATTRIBUTES(attr_int("axis", 0)));
    return set_out(c, 0, aril__export_reshape(c, y, ndim_out(c, 0), dims_out(c, 0)));
}

static bool writes_known(const export_call *c)
{
    return is_sized(c) && known_in(c, 1);
}

/* A part of one axis: what is before it, the part, and what is after it. */
static bool writes_slice(const export_call *c)
{
    const struct view_write_attrs *a = c->attrs;
    const struct slice_attrs *s = (const void *)(a->path + 1);
    return a->n[0] == 1 && aril__op_numbered((int)a->path[0]) == &aril__op_slice &&
           s->step[0] == 1 && dims_in(c, 0)[s->axis[0]] >= 0;
}

static aril_status write_slice(export_call *c)
{
    const struct view_write_attrs *a = c->attrs;
    const struct slice_attrs *s = (const void *)(a->path + 1);
    int axis = (int)s->axis[0], n = 0;
    int64_t size = dims_in(c, 0)[axis], start = s->start[0];
    int64_t part = dims_in(c, 1)[axis];
    if (start < 0) start += size;
    start = start < 0 ? 0 : start > size ? size : start;
    export_value *x = aril__export_in(c, 0), *all[3];
    if (start > 0) all[n++] = aril__export_slice(c, x, axis, 0, start, 1);
    all[n++] = aril__export_in_as(c, 1, dtype_in(c, 0));
    if (start + part < size) all[n++] = aril__export_slice(c, x, axis, start + part, size, 1);
    return set_out(c, 0,
                   put(c, "Concat", (export_values){ n, all }, ATTRIBUTES(attr_int("axis", axis))));
}

/* Adds elements up at their positions: the gradient of what by_position does. */
static aril_status add_by_position(export_call *c, const aril__op *forward)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    static const int64_t all[] = { -1 };
    aril_tensor *in[1] = { numbered(ndim_out(c, 0), dims_out(c, 0)) };
    aril_tensor *at = aril_reshape(aril__apply1(forward, 1, in, c->attrs), ARIL_SHAPE(-1));
    int64_t count = 1;
    for (int d = 0; d < ndim_out(c, 0); d++) count *= dims_out(c, 0)[d];
    export_value *y = put(c, "ScatterElements",
                          VALUES(aril__export_zeros(c, 1, &count, dtype_out(c, 0)),
                                 aril__export_constant(c->model, at),
                                 aril__export_reshape(c, aril__export_in(c, 0), 1, all)),
                          ATTRIBUTES(attr_int("axis", 0), attr_text("reduction", "add")));
    return set_out(c, 0, aril__export_reshape(c, y, ndim_out(c, 0), dims_out(c, 0)));
}

static aril_status unfold_view_grad(export_call *c)
{
    return add_by_position(c, aril__op_find("unfold_view"));
}

/* ---- padding ---- */

static aril_status pad(export_call *c)
{
    static const char *const mode[] = { [ARIL_PAD_CONSTANT] = "constant",
                                        [ARIL_PAD_REFLECT] = "reflect",
                                        [ARIL_PAD_REPLICATE] = "edge",
                                        [ARIL_PAD_CIRCULAR] = "wrap" };
    const struct pad_attrs *a = c->attrs;
    int n = ndim_in(c, 0);
    int64_t by[2 * ARIL_MAX_DIMS];
    if (a->mode[0] == ARIL_PAD_CIRCULAR && c->opset < 19) return ARIL__EXPORT_DECLINED;
    for (int d = 0; d < n; d++) {
        by[d] = a->before[d];
        by[n + d] = a->after[d];
    }
    bool constant = a->mode[0] == ARIL_PAD_CONSTANT;
    return set_out(c, 0,
                   put(c, "Pad",
                       VALUES(aril__export_in(c, 0), aril__export_ints(c, 2 * n, by),
                              constant ? aril__export_number(c, a->value[0], dtype_in(c, 0))
                                       : NULL),
                       ATTRIBUTES(attr_text("mode", mode[a->mode[0]]))));
}

static bool pads_constant(const export_call *c)
{
    return ((const struct pad_attrs *)c->attrs)->mode[0] == ARIL_PAD_CONSTANT;
}

static aril_status pad_grad_added(export_call *c)
{
    return add_by_position(c, aril__op_find("pad"));
}

static aril_status pad_grad(export_call *c)
{
    const struct pad_attrs *a = c->attrs;
    int n = ndim_in(c, 0);
    int64_t by[2 * ARIL_MAX_DIMS] = { 0 };
    export_value *y = aril__export_in(c, 0);
    bool wider = false; /* where the padding cropped */
    for (int d = 0; d < n; d++) {
        int64_t before = a->before[d], after = a->after[d];
        if (before > 0 || after > 0)
            y = aril__export_slice(c, y, d, before > 0 ? before : 0, after > 0 ? -after : INT64_MAX,
                                   1);
        if (before < 0) by[d] = -before;
        if (after < 0) by[n + d] = -after;
        wider |= before < 0 || after < 0;
    }
    if (wider) y = put(c, "Pad", VALUES(y, aril__export_ints(c, 2 * n, by)), NO_ATTRS);
    return y == c->in[0] ? identity(c) : set_out(c, 0, y);
}

static bool axis_known(const export_call *c)
{
    int axis = (int)((const struct narrow_like_attrs *)c->attrs)->axis[0];
    return dims_in(c, 0)[axis] >= 0 && dims_in(c, 1)[axis] >= 0;
}

static aril_status narrow_like(export_call *c)
{
    const struct narrow_like_attrs *a = c->attrs;
    int axis = (int)a->axis[0];
    int64_t n = dims_in(c, 1)[axis], size = dims_in(c, 0)[axis];
    int64_t start = a->part[0] == ARIL__FIRST ? 0 : a->part[0] == ARIL__AFTER ? n : size - n;
    int64_t stop = a->part[0] == ARIL__FIRST ? n : size;
    return set_out(c, 0, aril__export_slice(c, aril__export_in(c, 0), axis, start, stop, 1));
}

static aril_status pad_like(export_call *c)
{
    const struct narrow_like_attrs *a = c->attrs;
    int axis = (int)a->axis[0], n = ndim_in(c, 0);
    int64_t by[2 * ARIL_MAX_DIMS] = { 0 }, more = dims_in(c, 1)[axis] - dims_in(c, 0)[axis];
    by[a->part[0] == ARIL__FIRST ? n + axis : axis] = more;
    return set_out(c, 0,
                   put(c, "Pad", VALUES(aril__export_in(c, 0), aril__export_ints(c, 2 * n, by)),
                       NO_ATTRS));
}

/* ---- in other ops ---- */

static void repeat_of(aril__call *c, aril_tensor **out)
{
    const struct repeat_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    int axis = (int)a->axis[0];
    aril_shape wide = { .ndim = x->ndim + 1 }, flat = { .ndim = x->ndim };
    int at = a->each[0] ? axis + 1 : axis;
    for (int d = 0; d < x->ndim; d++) {
        wide.dim[d < at ? d : d + 1] = x->dim[d];
        flat.dim[d] = x->dim[d];
    }
    wide.dim[at] = a->times[0];
    bool known = x->dim[axis] >= 0 && a->times[0] >= 0;
    flat.dim[axis] = known ? x->dim[axis] * a->times[0] : -1;
    out[0] = aril_reshape(aril_expand(aril_unsqueeze(c->in[0], at), wide), flat);
}

static void repeat_grad_of(aril__call *c, aril_tensor **out)
{
    const struct repeat_attrs *a = c->attrs;
    const aril_tensor *x = c->in[1];
    int axis = (int)a->axis[0], at = a->each[0] ? axis + 1 : axis;
    aril_shape wide = { .ndim = x->ndim + 1 };
    for (int d = 0; d < x->ndim; d++) wide.dim[d < at ? d : d + 1] = x->dim[d];
    wide.dim[at] = a->times[0];
    out[0] = aril_sum(aril_reshape(c->in[0], wide), ARIL_AXES(at));
}

static void roll_of(aril__call *c, aril_tensor **out)
{
    const struct roll_attrs *a = c->attrs;
    aril_tensor *y = c->in[0];
    for (int d = 0; d < y->ndim; d++) {
        if (!a->shift[d]) continue;
        int64_t n = y->dim[d], by = n > 0 ? (a->shift[d] % n + n) % n : a->shift[d];
        aril_tensor *last = aril_slice(y, d, -by, INT64_MAX, 1),
                    *first = aril_slice(y, d, 0, -by, 1);
        if (by) y = aril_cat(ARIL_LIST(last, first), d);
    }
    out[0] = y;
}

static void sum_to_like_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *x = c->in[0], *like = c->in[1];
    aril_axes axes = { 0 };
    int more = x->ndim - like->ndim;
    for (int d = 0; d < x->ndim; d++)
        if (d < more || (like->dim[d - more] == 1 && x->dim[d] != 1)) axes.axis[axes.n++] = d;
    aril_dtype dtype = (aril_dtype)x->dtype;
    out[0] = axes.n ? aril_cast(aril_sum(x, axes), dtype) : x;
    out[0] = aril__reshape_like(out[0], like);
}

static aril_status count_like(export_call *c)
{
    aril_dtype dtype = dtype_out(c, 0);
    if (known_in(c, 0) && known_in(c, 1)) {
        int64_t n = 1, by = 1;
        for (int d = 0; d < ndim_in(c, 0); d++) n *= dims_in(c, 0)[d];
        for (int d = 0; d < ndim_in(c, 1); d++) by *= dims_in(c, 1)[d];
        return set_out(c, 0, aril__export_number(c, by ? (double)(n / by) : 0, dtype));
    }
    export_value *n = put(c, "Size", VALUES(aril__export_in(c, 0)), NO_ATTRS);
    export_value *by = put(c, "Size", VALUES(aril__export_in(c, 1)), NO_ATTRS);
    return set_out(c, 0,
                   aril__export_cast(c, put(c, "Div", VALUES(n, by), NO_ATTRS), ARIL_I64, dtype));
}

/* ---- rows ---- */

#define KNOWN(op_, from_, onnx_, fn, test)                                  \
    {                                                                       \
        .op = op_, .from = from_, .onnx = onnx_, .write = fn, .takes = test \
    }

const export_rule aril__export_shape_rules[] = {
    WRITE("full", 13, "ConstantOfShape", full),
    WRITE("full_like", 13, "ConstantOfShape", full_like),
    WRITE("arange", 13, "Range", arange),
    WRITE("copy", 13, "Identity", copy),
    WRITE("contiguous", 13, "Identity", identity),
    WRITE("to_device", 13, "Identity", identity),
    WRITE("permute", 13, "Transpose", transpose),
    WRITE("reshape", 13, "Reshape", reshape),
    WRITE("flatten", 13, "Reshape", reshape),
    WRITE("reshape_like", 13, "Reshape", reshape),
    WRITE("expand", 13, "Expand", expand),
    WRITE("expand_like", 13, "Expand", expand),
    WRITE("unsqueeze", 13, "Unsqueeze", unsqueeze),
    WRITE("squeeze", 13, "Squeeze", squeeze),
    WRITE("slice", 13, "Slice", slice),
    WRITE("select", 13, "Gather", select_write),
    WRITE("cat", 13, "Concat", concat),
    WRITE("tril", 14, "Trilu", triangle),
    WRITE("triu", 14, "Trilu", triangle),
    LOWER("tril", by_mask),
    LOWER("triu", by_mask),
    KNOWN("diagonal", 13, "Gather", by_position, is_sized),
    KNOWN("as_strided", 13, "Gather", by_position, is_sized),
    KNOWN("unfold_view", 13, "Gather", by_position, is_sized),
    KNOWN("unfold_view_grad", 16, "ScatterElements", unfold_view_grad, is_sized),
    KNOWN("view_write", 13, "Concat", write_slice, writes_slice),
    KNOWN("view_write", 13, "ScatterElements", write_at, writes_known),
    WRITE("pad", 13, "Pad", pad),
    KNOWN("pad", 13, "Gather", by_position, is_sized),
    KNOWN("pad_grad", 13, "Slice", pad_grad, pads_constant),
    KNOWN("pad_grad", 16, "ScatterElements", pad_grad_added, is_sized),
    KNOWN("narrow_like", 13, "Slice", narrow_like, axis_known),
    KNOWN("pad_like", 13, "Pad", pad_like, axis_known),
    LOWER("repeat", repeat_of),
    LOWER("repeat_grad", repeat_grad_of),
    LOWER("roll", roll_of),
    LOWER("sum_to_like", sum_to_like_of),
    WRITE("count_like", 13, "Size", count_like),
    { .op = NULL },
};
