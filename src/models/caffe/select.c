/* Layers that combine bottoms, reduce them, or choose parts of them. */
#include "models/caffe/layer.h"

#define FORWARD(name) \
    static void name(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)

/* ---- Eltwise ---- */

static aril_status eltwise_check(aril_module *m, caffe_layer *l)
{
    size_t n = aril__message_count(l->param, "coeff");
    (void)m;
    if (n && n != (size_t)l->n_bottoms)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "%zu values of coeff for %d bottoms", n,
                               l->n_bottoms);
    if (n && strcmp(aril__message_value(l->param, "operation"), "PROD") == 0)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "coeff is for sums");
    return ARIL_OK;
}

/* coeff_i * x_i */
static aril_tensor *weighted(const caffe_layer *l, aril_tensor *x, int i)
{
    if (!aril__message_count(l->param, "coeff")) return x;
    double c = aril__message_number_at(l->param, "coeff", (size_t)i);
    return c == 1 ? x : aril_mul_scalar(x, c);
}

/* Of equal elements the later bottom has the gradient, beyond the second the earlier. */
static aril_tensor *larger(aril_tensor *y, aril_tensor *x, int i)
{
    return i == 1 ? aril_where(aril_gt(y, x), y, x) : aril_where(aril_gt(x, y), x, y);
}

static aril_status same_shapes(const caffe_layer *l, aril_tensor *const *in)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    for (int i = 1; i < l->n_bottoms; i++)
        if (in[i]->ndim != in[0]->ndim ||
            memcmp(in[i]->dim, in[0]->dim, (size_t)in[0]->ndim * sizeof *in[0]->dim) != 0)
            return aril__fail(ARIL_ERR_SHAPE, "bottoms of shapes %s and %s", aril__text(a, in[0]),
                              aril__text(b, in[i]));
    return ARIL_OK;
}

FORWARD(eltwise)
{
    const char *operation = aril__message_value(l->param, "operation");
    (void)m;
    if (same_shapes(l, in) < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    bool sum = strcmp(operation, "SUM") == 0, prod = strcmp(operation, "PROD") == 0;
    aril_tensor *y = sum ? weighted(l, in[0], 0) : in[0];
    for (int i = 1; i < l->n_bottoms; i++)
        y = sum    ? aril_add(y, weighted(l, in[i], i))
            : prod ? aril_mul(y, in[i])
                   : larger(y, in[i], i);
    out[0] = y;
}

/* ---- Reduction ---- */

FORWARD(reduction)
{
    int axis;
    (void)m;
    const char *operation = aril__message_value(l->param, "operation");
    double coeff = aril__message_number(l->param, "coeff");
    aril_tensor *x = in[0];
    if (aril__caffe_axis("axis", x, aril__message_int(l->param, "axis"), false, &axis) < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    aril_axes axes = { .n = aril_ndim(x) - axis };
    for (int i = 0; i < axes.n; i++) axes.axis[i] = axis + i;
    if (strcmp(operation, "ASUM") == 0) x = aril_abs(x);
    if (strcmp(operation, "SUMSQ") == 0) x = aril_square(x);
    x = strcmp(operation, "MEAN") == 0 ? aril_mean(x, axes) : aril_sum(x, axes);
    out[0] = coeff == 1 ? x : aril_mul_scalar(x, coeff);
}

/* ---- BatchReindex and Filter ---- */

FORWARD(batch_reindex)
{
    (void)m, (void)l;
    aril_tensor *at = aril__caffe_integers(aril_flatten(in[1], 0, -1));
    out[0] = aril_index_select(in[0], at, 0);
}

/* The samples whose selector, the last bottom, is not zero. Their number depends on values. */
FORWARD(filter)
{
    aril_tensor *selector = in[l->n_bottoms - 1];
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    (void)m;
    for (int i = 0; i < l->n_tops; i++)
        if (aril_size(in[i], 0) != aril_numel(selector)) {
            aril__fail(ARIL_ERR_SHAPE, "the selector %s must have an element for each sample of %s",
                       aril__text(a, selector), aril__text(b, in[i]));
            aril__caffe_failed(l, out);
            return;
        }
    aril_tensor *at = aril_nonzero(aril_flatten(selector, 0, -1)); /* [k,1] */
    at = aril_squeeze(at, ARIL_AXES(1));
    for (int i = 0; i < l->n_tops; i++) out[i] = aril_index_select(in[i], at, 0);
}

static aril_status filter_check(aril_module *m, caffe_layer *l)
{
    (void)m;
    return l->n_tops == l->n_bottoms - 1
               ? ARIL_OK
               : aril__caffe_bad(l, ARIL_ERR_FORMAT,
                                 "%d bottoms, the last of which selects, need %d tops",
                                 l->n_bottoms, l->n_bottoms - 1);
}

/* ---- ArgMax ---- */

static aril_status argmax_check(aril_module *m, caffe_layer *l)
{
    (void)m;
    return aril__message_int(l->param, "top_k") >= 1
               ? ARIL_OK
               : aril__caffe_bad(l, ARIL_ERR_FORMAT, "top_k must be at least 1");
}

/* The k largest elements along an axis, and their indices as numbers. Of equal elements the last
 * comes first, as in Caffe, which sorts pairs. */
static aril_tensor *largest(aril_tensor *x, int64_t k, int axis, aril_tensor **indices)
{
    aril_tensor *at,
        *y = aril_topk(aril_flip(x, ARIL_AXES(axis)), k, axis, (aril_topk_opts){ 0 }, &at);
    aril_tensor *last = aril_full_like(at, aril_size(x, axis) - 1);
    *indices = aril_cast(aril_sub(last, at), aril_dtype_of(x));
    return y;
}

FORWARD(argmax)
{
    int64_t k = aril__message_int(l->param, "top_k");
    bool values = aril__message_int(l->param, "out_max_val") != 0,
         along = aril__message_has(l->param, "axis");
    aril_tensor *x = in[0], *indices;
    int axis = 1;
    (void)m;
    aril_status s = ARIL_OK;
    if (along)
        s = aril__caffe_axis("axis", x, aril__message_int(l->param, "axis"), false, &axis);
    else
        x = aril_ndim(x) > 1 ? aril_flatten(x, 1, -1) : aril_unsqueeze(x, 1); /* [N,D] */
    if (s == ARIL_OK && k > aril_size(x, axis))
        s = aril__fail(ARIL_ERR_ARG, "top_k %lld of %lld elements", (long long)k,
                       (long long)aril_size(x, axis));
    if (s < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    aril_tensor *y = largest(aril_detach(x), k, axis, &indices);
    if (along) {
        out[0] = values ? y : indices;
        return;
    }
    /* [N,1,k], or [N,2,k] with the values; as many axes as the bottom has. */
    y = values ? aril_stack(ARIL_LIST(indices, y), 1) : aril_unsqueeze(indices, 1);
    for (int i = 3; i < aril_ndim(in[0]); i++) y = aril_unsqueeze(y, -1);
    out[0] = y;
}

const caffe_row aril__caffe_select_rows[] = {
    { CAFFE_ROW("Eltwise", caffe_layer), CAFFE_COUNTS(2, CAFFE_ANY, 1, 1), .param = "eltwise_param",
      .check = eltwise_check, .forward = eltwise },
    { CAFFE_ROW("Reduction", caffe_layer), CAFFE_COUNTS(1, 1, 1, 1), .param = "reduction_param",
      .forward = reduction },
    { CAFFE_ROW("BatchReindex", caffe_layer), CAFFE_COUNTS(2, 2, 1, 1), .forward = batch_reindex },
    { CAFFE_ROW("Filter", caffe_layer), CAFFE_COUNTS(2, CAFFE_ANY, 1, CAFFE_ANY),
      .check = filter_check, .forward = filter },
    { CAFFE_ROW("ArgMax", caffe_layer), CAFFE_COUNTS(1, 1, 1, 1), .param = "argmax_param",
      .check = argmax_check, .forward = argmax },
    { .param = NULL },
};
