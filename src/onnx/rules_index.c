/* Gathering, scattering, sorting. */
#include "onnx/rules.h"

#include <inttypes.h>

static aril_status gather(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 0), aril_ndim(x));
    return axis < 0 ? ARIL_ERR_ARG : give(c, 0, aril_index_select(x, in(c, 1), axis));
}

static aril_status gather_elements(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 0), aril_ndim(x));
    return axis < 0 ? ARIL_ERR_ARG : give(c, 0, aril_gather(x, in(c, 1), axis));
}

/* Indices [...,k] of the first k axes of `sizes` (after `from`) as positions in them. */
static aril_tensor *flat_index(const onnx_call *c, aril_tensor *index, const int64_t *sizes,
                               int64_t k)
{
    aril_tensor *flat = NULL;
    index = aril_cast(index, ARIL_I64);
    for (int64_t j = 0; j < k; j++) {
        aril_tensor *i = aril_select(index, -1, j);
        aril_tensor *size = sizes[j] < 0 ? aril__onnx_size(aril__onnx_device(c), sizes[j]) : NULL;
        aril_tensor *from_end = size ? aril_add(i, size) : aril_add_scalar(i, sizes[j]);
        i = aril_where(aril_lt_scalar(i, 0), from_end, i);
        if (flat) flat = size ? aril_mul(flat, size) : aril_mul_scalar(flat, sizes[j]);
        flat = flat ? aril_add(flat, i) : i;
    }
    return flat;
}

static aril_status check_depth(onnx_call *c, int64_t k, int batch, int n)
{
    if (k < 0) return aril__onnx_open_error(c);
    if (k >= 1 && batch >= 0 && batch + k <= n) return ARIL_OK;
    return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                           "indices of %" PRId64 " axes for a tensor with %d dimensions", k, n);
}

static aril_status gather_nd(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *index = in(c, 1);
    int64_t declared = aril__onnx_attr_int(c, "batch_dims", 0);
    aril_shape from = aril_shape_of(x), sizes = aril_shape_of(index);
    int64_t k = sizes.ndim ? sizes.dim[sizes.ndim - 1] : 0, batches = 1, inner = 1;
    if (declared < 0 || declared >= sizes.ndim || declared >= from.ndim)
        return aril__onnx_fail(c, ARIL_ERR_ARG,
                               "batch_dims is %" PRId64 " for data with %d dimensions and indices "
                               "with %d",
                               declared, from.ndim, sizes.ndim);
    int batch = (int)declared;
    aril_status s = check_depth(c, k, batch, from.ndim);
    if (s < 0) return s;
    for (int i = 0; i < batch; i++) batches = aril__onnx_times(batches, from.dim[i]);
    for (int64_t i = 0; i < k; i++) inner = aril__onnx_times(inner, from.dim[batch + i]);
    aril_shape to = { 0 }, rows = { .ndim = 1, .dim = { aril__onnx_times(batches, inner) } };
    for (int i = 0; i < sizes.ndim - 1; i++) to.dim[to.ndim++] = sizes.dim[i];
    for (int i = batch + (int)k; i < from.ndim; i++) {
        rows.dim[rows.ndim++] = from.dim[i];
        if (to.ndim == ARIL_MAX_DIMS)
            return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "too many dimensions");
        to.dim[to.ndim++] = from.dim[i];
    }
    aril_tensor *flat = flat_index(c, index, from.dim + batch, k); /* [batch..., more...] */
    if (batch) {
        aril_device dev = aril__onnx_device(c);
        aril_tensor *base = aril_arange(0, batches, 1, ARIL_I64, dev);
        base =
            inner < 0 ? aril_mul(base, aril__onnx_size(dev, inner)) : aril_mul_scalar(base, inner);
        int64_t each =
            aril__size_product(aril__self()->sizes, sizes.ndim - 1 - batch, sizes.dim + batch);
        flat = aril_reshape(flat, ARIL_SHAPE(batches, each));
        flat = aril_add(flat, aril_unsqueeze(base, 1));
    }
    flat = aril_reshape(flat, ARIL_SHAPE(aril__size_product(aril__self()->sizes, sizes.ndim - 1,
                                                            sizes.dim)));
    aril_tensor *y = aril_index_select(aril_reshape(x, rows), flat, 0);
    return give(c, 0, aril_reshape(y, to));
}

/* Writes or combines src at the indices along an axis. */
static aril_tensor *scattered(onnx_call *c, aril_tensor *x, aril_tensor *index, aril_tensor *src,
                              int axis)
{
    const char *how = aril__onnx_attr_text(c, "reduction", "none");
    aril_scatter_opts opts = { 0 };
    if (strcmp(how, "add") == 0) return aril_scatter_add(x, index, src, axis);
    if (strcmp(how, "mul") == 0) return aril_scatter_mul(x, index, src, axis, opts);
    if (strcmp(how, "max") == 0) return aril_scatter_max(x, index, src, axis, opts);
    if (strcmp(how, "min") == 0) return aril_scatter_min(x, index, src, axis, opts);
    return aril_scatter(x, index, src, axis);
}

static aril_status scatter_elements(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 0), aril_ndim(x));
    return axis < 0 ? ARIL_ERR_ARG : give(c, 0, scattered(c, x, in(c, 1), in(c, 2), axis));
}

static aril_status scatter_nd(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *index = in(c, 1), *src = in(c, 2);
    aril_shape from = aril_shape_of(x), sizes = aril_shape_of(index);
    int64_t k = sizes.ndim ? sizes.dim[sizes.ndim - 1] : 0, rows = 1, rest = 1, n = 1;
    aril_status s = check_depth(c, k, 0, from.ndim);
    if (s < 0) return s;
    for (int i = 0; i < from.ndim; i++) {
        int64_t *all = i < k ? &rows : &rest;
        *all = aril__onnx_times(*all, from.dim[i]);
    }
    for (int i = 0; i < sizes.ndim - 1; i++) n = aril__onnx_times(n, sizes.dim[i]);
    aril_tensor *flat = aril_reshape(flat_index(c, index, from.dim, k), ARIL_SHAPE(n, 1));
    flat = aril_contiguous(aril_expand(flat, ARIL_SHAPE(n, rest)));
    aril_tensor *y = scattered(c, aril_reshape(x, ARIL_SHAPE(rows, rest)), flat,
                               aril_reshape(src, ARIL_SHAPE(n, rest)), 0);
    return give(c, 0, aril_reshape(y, from));
}

/* Writes rows into a cache, each sample at its position. */
static aril_status tensor_scatter(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *src = in(c, 1), *at = in(c, 2);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", -2), aril_ndim(x));
    if (axis < 1)
        return aril__onnx_fail(c, ARIL_ERR_ARG,
                               "the axis of the sequence must follow that of the batch");
    int64_t n = aril_size(src, axis), size = aril_size(x, axis);
    aril_tensor *index = aril_arange(0, n, 1, ARIL_I64, aril__onnx_device(c));
    for (int i = axis + 1; i < aril_ndim(x); i++) index = aril_unsqueeze(index, -1);
    if (at) {
        at = aril_cast(at, ARIL_I64);
        for (int i = 1; i < aril_ndim(x); i++) at = aril_unsqueeze(at, -1);
        index = aril_add(index, at);
    }
    if (attr_is(c, "mode", "linear", "circular"))
        index = size < 0 ? aril_remainder(index, aril__onnx_size(aril__onnx_device(c), size))
                         : aril_remainder_scalar(index, size);
    index = aril_contiguous(aril_expand(index, aril_shape_of(src)));
    return give(c, 0, aril_scatter(x, index, src, axis));
}

/* ---- selection by values ---- */

static aril_status compress(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *mask = in(c, 1);
    int axis = 0;
    if (has_attr(c, "axis")) {
        axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 0), aril_ndim(x));
        if (axis < 0) return ARIL_ERR_ARG;
    } else {
        x = aril_reshape(x, ARIL_SHAPE(-1));
    }
    aril_tensor *at = aril_nonzero(mask); /* [k,1] */
    return give(c, 0, aril_index_select(x, aril_select(at, 1, 0), axis));
}

static aril_status nonzero(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    if (!aril_ndim(x)) x = aril_reshape(x, ARIL_SHAPE(1));
    return give(c, 0, aril_t(aril_nonzero(x)));
}

static aril_status top_k(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *indices;
    int64_t k = aril__onnx_attr_int(c, "k", 1);
    aril_status s = c->version < 10 ? ARIL_OK : aril__onnx_int_in(c, 1, 1, &k);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", -1), aril_ndim(x));
    if (s != ARIL_OK || axis < 0) return s != ARIL_OK ? s : ARIL_ERR_ARG;
    aril_topk_opts opts = { .smallest = !aril__onnx_attr_int(c, "largest", 1) };
    s = give(c, 0, aril_topk(x, k, axis, opts, &indices));
    return s < 0 ? s : give(c, 1, indices);
}

/* Results in the order of their first occurrence, unless sorted. */
static aril_status unique(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *inverse, *counts, *y;
    bool by_axis = has_attr(c, "axis");
    int axis = by_axis ? aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 0), aril_ndim(x)) : 0;
    if (axis < 0) return ARIL_ERR_ARG;
    if (c->run->tracing && !c->host) return ARIL__ONNX_DYNAMIC;
    if (by_axis)
        y = aril_unique_axis(x, axis, &inverse, &counts);
    else
        y = aril_unique(aril_reshape(x, ARIL_SHAPE(-1)), &inverse, &counts);
    inverse = aril_reshape(inverse, ARIL_SHAPE(-1));
    int64_t n = aril_numel(inverse), k = aril_size(y, axis);
    aril_device dev = aril__onnx_device(c);
    aril_tensor *first = aril_full(ARIL_SHAPE(k), n, ARIL_I64, dev);
    first = aril_scatter_min(first, inverse, aril_arange(0, n, 1, ARIL_I64, dev), 0,
                             (aril_scatter_opts){ 0 });
    if (!aril__onnx_attr_int(c, "sorted", 1)) {
        aril_tensor *order = aril_argsort(first, 0, (aril_sort_opts){ 0 });
        aril_tensor *rank = aril_argsort(order, 0, (aril_sort_opts){ 0 });
        y = aril_index_select(y, order, axis);
        first = aril_index_select(first, order, 0);
        counts = aril_index_select(counts, order, 0);
        inverse = aril_index_select(rank, inverse, 0);
    }
    aril_status s = give(c, 0, y);
    if (s == ARIL_OK) s = give(c, 1, first);
    if (s == ARIL_OK) s = give(c, 2, inverse);
    return s == ARIL_OK ? give(c, 3, counts) : s;
}

/* `on` at the index, `off` elsewhere, along a new axis. */
static aril_status one_hot(onnx_call *c)
{
    int64_t depth;
    aril_status s = aril__onnx_int_in(c, 1, 1, &depth);
    if (s != ARIL_OK) return s;
    aril_tensor *index = aril_cast(in(c, 0), ARIL_I64), *values = in(c, 2);
    int64_t axis = aril__onnx_attr_int(c, "axis", -1);
    int at = aril__onnx_axis(c, axis, aril_ndim(index) + 1);
    if (at < 0 || depth < 1) return aril__onnx_fail(c, ARIL_ERR_ARG, "axis or depth out of range");
    index = aril_where(aril_lt_scalar(index, 0), aril_add_scalar(index, depth), index);
    aril_tensor *class = aril_arange(0, depth, 1, ARIL_I64, aril__onnx_device(c));
    for (int i = at; i < aril_ndim(index); i++) class = aril_unsqueeze(class, -1);
    aril_tensor *hit = aril_eq(aril_unsqueeze(index, at), class);
    return give(c, 0, aril_where(hit, aril_select(values, 0, 1), aril_select(values, 0, 0)));
}

/* Reverses the first elements of each sequence. */
static aril_status reverse_sequence(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *length = aril_cast(in(c, 1), ARIL_I64);
    int batch = (int)aril__onnx_attr_int(c, "batch_axis", 1),
        time = (int)aril__onnx_attr_int(c, "time_axis", 0);
    if (batch + time != 1 || aril_ndim(x) < 2)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "the axes of batch and time are 0 and 1");
    aril_tensor *t = aril_arange(0, aril_size(x, time), 1, ARIL_I64, aril__onnx_device(c));
    t = aril_unsqueeze(t, batch);
    length = aril_unsqueeze(length, time);
    aril_tensor *from = aril_where(aril_lt(t, length), aril_sub(aril_sub_scalar(length, 1), t), t);
    for (int i = 2; i < aril_ndim(x); i++) from = aril_unsqueeze(from, -1);
    from = aril_contiguous(aril_expand(from, aril_shape_of(x)));
    return give(c, 0, aril_gather(x, from, time));
}

const onnx_rule aril__onnx_index_rules[] = {
    RULE_FLAGS("Gather", 1, gather, ONNX_MOVES | ONNX_OPEN_0),
    RULE_FLAGS("GatherElements", 11, gather_elements, ONNX_MOVES | ONNX_OPEN_0),
    RULE_FLAGS("GatherND", 11, gather_nd, ONNX_MOVES | ONNX_OPEN_0),
    RULE_FLAGS("Scatter", 9, scatter_elements, ONNX_MOVES),
    RULE_FLAGS("ScatterElements", 11, scatter_elements, ONNX_MOVES),
    RULE_FLAGS("ScatterND", 11, scatter_nd, ONNX_MOVES),
    RULE_FLAGS("TensorScatter", 24, tensor_scatter, ONNX_MOVES),
    RULE_FLAGS("Compress", 9, compress, ONNX_MOVES),
    RULE("NonZero", 9, nonzero),
    RULE("TopK", 1, top_k),
    RULE_FLAGS("Unique", 11, unique, ONNX_MOVES | ONNX_MOVES_FIRST),
    RULE_FLAGS("OneHot", 9, one_hot, ONNX_MOVES),
    RULE_FLAGS("ReverseSequence", 10, reverse_sequence, ONNX_MOVES),
    { 0 },
};
