/* Rows of reductions, scans and sorting. */
#include "onnx/export_rules.h"
#include "ops/reduce/counting.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/scan.h"
#include "ops/reduce/sort.h"
#include "ops/reduce/stats.h"
#include "ops/shape/like.h"

#include <math.h>
#include <string.h>

#define REDUCED (DT_FLOAT | DT(ARIL_U32) | DT(ARIL_U64) | DT(ARIL_I32) | DT(ARIL_I64))
#define ORDERED (REDUCED | DT(ARIL_U8) | DT(ARIL_I8))

/* ---- reductions ---- */

/* The result has the dtype that the sum is computed in. */
static aril_status total(export_call *c)
{
    const struct reduce_attrs *a = c->attrs;
    aril_dtype wide = aril__export_wide(dtype_out(c, 0), REDUCED);
    export_value *y = aril__export_reduce(c, c->rule->onnx, aril__export_in_as(c, 0, wide),
                                          a->mask[0], a->keep[0]);
    return set_out(c, 0, aril__export_cast(c, y, wide, dtype_out(c, 0)));
}

static aril_status extreme(export_call *c)
{
    const struct reduce_attrs *a = c->attrs;
    aril_dtype wide = aril__export_wide(dtype_in(c, 0), ORDERED);
    export_value *y = aril__export_reduce(c, c->rule->onnx, aril__export_in_as(c, 0, wide),
                                          a->mask[0], a->keep[0]);
    return set_out(c, 0, aril__export_cast(c, y, wide, dtype_out(c, 0)));
}

/* The position along the axes of a mask, in the order of memory. */
static export_value *arg(export_call *c, const char *onnx, export_value *x)
{
    const struct reduce_attrs *a = c->attrs;
    int64_t mask = a->mask[0];
    int n = ndim_in(c, 0), axis = mask ? __builtin_ctzll((unsigned long long)mask) : 0, perm[8],
        k = 0;
    bool keep = a->keep[0];
    if (!n) return aril__export_number(c, 0, ARIL_I64);
    if (mask & (mask - 1)) { /* several: they are moved to the end and merged */
        int64_t flat[8];
        for (int d = 0; d < n; d++)
            if (!(mask >> d & 1)) {
                flat[k] = dims_in(c, 0)[d];
                perm[k++] = d;
            }
        int rest = k;
        for (int d = 0; d < n; d++)
            if (mask >> d & 1) perm[k++] = d;
        flat[rest] = -1;
        x = aril__export_reshape(c, aril__export_transpose(c, x, n, perm), rest + 1, flat);
        export_value *y =
            put(c, onnx, VALUES(x), ATTRIBUTES(attr_int("axis", rest), attr_int("keepdims", 0)));
        return keep ? aril__export_reshape(c, y, ndim_out(c, c->n_out - 1),
                                           dims_out(c, c->n_out - 1))
                    : y;
    }
    return put(c, onnx, VALUES(x), ATTRIBUTES(attr_int("axis", axis), attr_int("keepdims", keep)));
}

static aril_status arg_write(export_call *c)
{
    aril_dtype wide = aril__export_wide(dtype_in(c, 0), DT_FLOAT | DT_INT);
    return set_out(c, 0, arg(c, c->rule->onnx, aril__export_in_as(c, 0, wide)));
}

static aril_status best(export_call *c)
{
    bool max = strcmp(c->op->name, "max") == 0;
    const struct reduce_attrs *a = c->attrs;
    aril_dtype wide = aril__export_wide(dtype_in(c, 0), ORDERED);
    export_value *x = aril__export_in_as(c, 0, wide);
    export_value *y =
        aril__export_reduce(c, max ? "ReduceMax" : "ReduceMin", x, a->mask[0], a->keep[0]);
    aril_status s = set_out(c, 0, aril__export_cast(c, y, wide, dtype_out(c, 0)));
    return s == ARIL_OK ? set_out(c, 1, arg(c, max ? "ArgMax" : "ArgMin", x)) : s;
}

static aril_status logsumexp(export_call *c)
{
    const struct reduce_attrs *a = c->attrs;
    return set_out(c, 0,
                   aril__export_reduce(c, "ReduceLogSumExp", aril__export_in(c, 0), a->mask[0],
                                       a->keep[0]));
}

/* ---- in other ops ---- */

static aril_tensor *reduced(const aril__op *op, aril_tensor *x, int64_t mask, bool keep)
{
    struct reduce_attrs a = { { mask }, { keep } };
    return aril__op_with(&a, op, x);
}

static aril_tensor *nonzero(aril_tensor *x)
{
    return aril_cast(aril_cast(x, ARIL_BOOL), ARIL_I32);
}

static void any_of(aril__call *c, aril_tensor **out)
{
    const struct reduce_attrs *a = c->attrs;
    out[0] = aril_cast(reduced(aril__op_find("sum"), nonzero(c->in[0]), a->mask[0], a->keep[0]),
                       ARIL_BOOL);
}

static void all_of(aril__call *c, aril_tensor **out)
{
    const struct reduce_attrs *a = c->attrs;
    aril_tensor *zero = aril_rsub_scalar(nonzero(c->in[0]), 1);
    out[0] = aril_eq_scalar(reduced(aril__op_find("sum"), zero, a->mask[0], a->keep[0]), 0);
}

static void count_nonzero_of(aril__call *c, aril_tensor **out)
{
    const struct reduce_attrs *a = c->attrs;
    out[0] = reduced(aril__op_find("sum"), aril_cast(aril_cast(c->in[0], ARIL_BOOL), ARIL_I64),
                     a->mask[0], a->keep[0]);
}

static void variance_of(aril__call *c, aril_tensor **out)
{
    const struct stats_attrs *a = c->attrs;
    aril_tensor *x = c->in[0];
    aril_tensor *mean = reduced(&aril__op_mean, x, a->mask[0], true);
    aril_tensor *square = aril_square(aril_sub(x, mean));
    aril_tensor *sum = reduced(&aril__op_sum, square, a->mask[0], a->keep[0]);
    aril_tensor *count = aril_cast(aril__count_like(x, mean), c->out[0].dtype);
    aril_tensor *by = aril_clamp_min(aril_add_scalar(count, -a->p[0]), 0.0);
    aril_tensor *y = aril_div(sum, by);
    out[0] = strncmp(c->op->name, "std", 3) == 0 ? aril_sqrt(y) : y;
    if (c->op->n_out > 1)
        out[1] = a->keep[0] ? mean : reduced(&aril__op_mean, x, a->mask[0], false);
}

static void norm_of(aril__call *c, aril_tensor **out)
{
    const struct stats_attrs *a = c->attrs;
    aril_tensor *x = aril_abs(aril_cast(c->in[0], c->out[0].dtype));
    double p = a->p[0];
    if (isinf(p)) {
        out[0] = reduced(aril__op_find(p > 0 ? "amax" : "amin"), x, a->mask[0], a->keep[0]);
        return;
    }
    aril_tensor *each = p == 0   ? aril_cast(aril_ne_scalar(x, 0), c->out[0].dtype)
                        : p == 1 ? x
                        : p == 2 ? aril_square(x)
                                 : aril_pow_scalar(x, p);
    aril_tensor *sum = reduced(&aril__op_sum, each, a->mask[0], a->keep[0]);
    out[0] = p == 0 || p == 1 ? sum : p == 2 ? aril_sqrt(sum) : aril_pow_scalar(sum, 1 / p);
}

/* ---- scans ---- */

static bool is_one_axis(const export_call *c)
{
    int64_t mask = ((const struct scan_attrs *)c->attrs)->mask[0];
    return mask && !(mask & (mask - 1));
}

static aril_status cumulate(export_call *c)
{
    const struct scan_attrs *a = c->attrs;
    int axis = __builtin_ctzll((unsigned long long)a->mask[0]);
    aril_dtype type = dtype_out(c, 0), wide = aril__export_wide(type, REDUCED);
    export_value *y =
        put(c, c->rule->onnx,
            VALUES(aril__export_in_as(c, 0, wide), aril__export_number(c, axis, ARIL_I64)),
            ATTRIBUTES(attr_int("reverse", a->reverse[0] != 0)));
    return set_out(c, 0, aril__export_cast(c, y, wide, type));
}

/* One step of a scan by doubling: x[k] with x[k - by], and `first` before the beginning. */
static aril_tensor *shifted(aril_tensor *x, int axis, int64_t by, bool reverse, double first)
{
    int64_t n = x->dim[axis];
    aril_tensor *rest =
        reverse ? aril_slice(x, axis, by, INT64_MAX, 1) : aril_slice(x, axis, 0, n - by, 1);
    aril_tensor *pad = aril_full_like(aril_slice(x, axis, 0, by, 1), first);
    return reverse ? aril_cat(ARIL_LIST(rest, pad), axis) : aril_cat(ARIL_LIST(pad, rest), axis);
}

static int scan_axis(const aril__call *c)
{
    int64_t mask = ((const struct scan_attrs *)c->attrs)->mask[0];
    if (mask & (mask - 1))
        aril__fail(ARIL_ERR_UNSUPPORTED, "%s: has no form in ONNX for several axes", c->op->name);
    return mask ? __builtin_ctzll((unsigned long long)mask) : -1;
}

static bool is_unknown(aril__call *c, aril_tensor **out)
{
    int64_t mask = ((const struct scan_attrs *)c->attrs)->mask[0];
    bool unknown = false;
    for (int d = 0; d < c->in[0]->ndim; d++) unknown |= mask >> d & 1 && c->in[0]->dim[d] < 0;
    if (!unknown) return false;
    aril__fail(ARIL_ERR_UNSUPPORTED, "%s: has no form in ONNX along an axis of unknown size",
               c->op->name);
    for (int i = 0; i < c->op->n_out; i++) out[i] = aril__poison();
    return true;
}

/* Several axes are not exported; a scalar is its own scan. */
static bool is_refused(aril__call *c, aril_tensor **out)
{
    int64_t mask = ((const struct scan_attrs *)c->attrs)->mask[0];
    if (is_unknown(c, out)) return true;
    if (!(mask & (mask - 1))) return false;
    scan_axis(c);
    for (int i = 0; i < c->op->n_out; i++) out[i] = aril__poison();
    return true;
}

/* Of a scalar, which is its own sum. */
static void cumsum_of(aril__call *c, aril_tensor **out)
{
    if (!is_refused(c, out)) out[0] = aril_cast(c->in[0], c->out[0].dtype);
}

static void cumprod_of(aril__call *c, aril_tensor **out)
{
    const struct scan_attrs *a = c->attrs;
    aril_tensor *x = aril_cast(c->in[0], c->out[0].dtype);
    if (is_refused(c, out)) return;
    int axis = scan_axis(c);
    for (int64_t by = 1; axis >= 0 && by < x->dim[axis]; by *= 2)
        x = aril_mul(x, shifted(x, axis, by, a->reverse[0], 1));
    out[0] = x;
}

static void logcumsumexp_of(aril__call *c, aril_tensor **out)
{
    const struct scan_attrs *a = c->attrs;
    aril_tensor *x = c->in[0];
    if (is_refused(c, out)) return;
    int axis = scan_axis(c);
    for (int64_t by = 1; axis >= 0 && by < x->dim[axis]; by *= 2)
        x = aril_logaddexp(x, shifted(x, axis, by, a->reverse[0], -1e30));
    out[0] = x;
}

/* The last of equal elements wins. */
static void cumbest_of(aril__call *c, aril_tensor **out)
{
    const struct scan_attrs *a = c->attrs;
    bool max = strcmp(c->op->name, "cummax") == 0;
    aril_tensor *x = c->in[0];
    if (is_refused(c, out)) return;
    int axis = scan_axis(c);
    aril__pause p = aril__trace_pause();
    aril_shape line = { .ndim = x->ndim };
    for (int d = 0; d < x->ndim; d++) line.dim[d] = d == axis ? x->dim[d] : 1;
    aril_tensor *at =
        aril_reshape(aril_arange(0, axis < 0 ? 1 : x->dim[axis], 1, ARIL_I64, aril_cpu()), line);
    aril__trace_resume(p);
    at = aril_add(aril_zeros_like(aril_cast(x, ARIL_I64)), at);
    for (int64_t by = 1; axis >= 0 && by < x->dim[axis]; by *= 2) {
        aril_tensor *other = shifted(x, axis, by, a->reverse[0], 0);
        aril_tensor *other_at = shifted(at, axis, by, a->reverse[0], -1);
        aril_tensor *better = max ? aril_gt(other, x) : aril_lt(other, x);
        better = aril_logical_and(better, aril_ge_scalar(other_at, 0));
        x = aril_where(better, other, x);
        at = aril_where(better, other_at, at);
    }
    out[0] = x;
    out[1] = at;
}

/* z[k+1] = b[k] + a[k] z[k], by doubling pairs (a, b). */
static aril_tensor *linear_scan(aril_tensor *a, aril_tensor *b, int axis, bool reverse, double init)
{
    a = shifted(a, axis, 1, reverse, 0);
    b = shifted(b, axis, 1, reverse, init);
    for (int64_t by = 1; by < a->dim[axis]; by *= 2) {
        b = aril_add(aril_mul(a, shifted(b, axis, by, reverse, 0)), b);
        a = aril_mul(a, shifted(a, axis, by, reverse, 1));
    }
    return b;
}

/* Several axes are one line, in the order of their elements: they come last, as one axis. */
static void linear_scan_of(aril__call *c, aril_tensor **out)
{
    const struct scan_attrs *s = c->attrs;
    aril_tensor *a = c->in[0], *b = c->in[1] ? c->in[1] : aril_zeros_like(a);
    aril_axes order = { .n = a->ndim }, back = { .n = a->ndim };
    int n = 0, axis;
    if (is_unknown(c, out)) return;
    if (!(s->mask[0] & (s->mask[0] - 1))) {
        axis = scan_axis(c);
        out[0] = axis < 0 ? aril_full_like(a, s->init[0])
                          : linear_scan(a, b, axis, s->reverse[0], s->init[0]);
        return;
    }
    for (int d = 0; d < a->ndim; d++)
        if (!(s->mask[0] >> d & 1)) order.axis[n++] = d;
    axis = n;
    for (int d = 0; d < a->ndim; d++)
        if (s->mask[0] >> d & 1) order.axis[n++] = d;
    for (int i = 0; i < n; i++) back.axis[order.axis[i]] = i;
    aril_tensor *lines = aril_permute(a, order);
    a = aril_flatten(lines, axis, -1);
    b = aril_flatten(aril_permute(b, order), axis, -1);
    b = linear_scan(a, b, axis, s->reverse[0], s->init[0]);
    out[0] = aril_permute(aril__reshape_like(b, lines), back);
}

/* ---- sorting ---- */

/* The k first along an axis, of which there is none in a scalar. */
static void first_k(export_call *c, export_value *k, int axis, bool largest, export_value **to)
{
    static const int64_t one[] = { 1 };
    aril_dtype wide = aril__export_wide(dtype_in(c, 0), REDUCED);
    export_value *x = aril__export_in_as(c, 0, wide);
    if (!ndim_in(c, 0)) x = aril__export_reshape(c, x, 1, one);
    aril__export_node(c->graph, "TopK", VALUES(x, k),
                      ATTRIBUTES(attr_int("axis", axis), attr_int("largest", largest)), 2, to);
    to[0] = aril__export_cast(c, to[0], wide, dtype_in(c, 0));
}

static aril_status give_both(export_call *c, export_value **y)
{
    for (int i = 0; i < 2; i++) {
        if (!ndim_in(c, 0)) y[i] = aril__export_reshape(c, y[i], 0, NULL);
        c->out[i] = y[i];
    }
    return y[0] && y[1] ? ARIL_OK : c->model->status;
}

static export_value *line_length(export_call *c, int axis)
{
    return ndim_in(c, 0) ? aril__export_sizes(c, 1, dims_in(c, 0) + axis) : aril__export_int1(c, 1);
}

static aril_status sort_write(export_call *c)
{
    const struct sort_attrs *a = c->attrs;
    export_value *y[2];
    first_k(c, line_length(c, (int)a->axis[0]), (int)a->axis[0], a->down[0], y);
    return give_both(c, y);
}

static aril_status topk(export_call *c)
{
    const struct sort_attrs *a = c->attrs;
    export_value *y[2];
    first_k(c, aril__export_int1(c, a->k[0]), (int)a->axis[0], a->down[0], y);
    return give_both(c, y);
}

/* The last of the first k + 1. */
static aril_status one_of(export_call *c)
{
    const struct sort_attrs *a = c->attrs;
    int axis = (int)a->axis[0];
    bool median = strcmp(c->op->name, "median") == 0;
    int64_t size = ndim_in(c, 0) ? dims_in(c, 0)[axis] : 1, k = median ? (size - 1) / 2 : a->k[0];
    if (size < 0 && median) return ARIL__EXPORT_DECLINED;
    export_value *y[2];
    first_k(c, aril__export_int1(c, k + 1), axis, false, y);
    for (int i = 0; i < 2; i++) {
        y[i] = aril__export_slice(c, y[i], axis, k, k + 1, 1);
        y[i] = aril__export_reshape(c, y[i], ndim_out(c, i), dims_out(c, i));
        c->out[i] = y[i];
    }
    return c->model->status;
}

static aril_status unique(export_call *c)
{
    const struct unique_attrs *a = c->attrs;
    export_value *y[4];
    export_attr attr[2] = { attr_int("sorted", 1), attr_int("axis", a->axis[0]) };
    aril__export_node(c->graph, "Unique", VALUES(aril__export_in(c, 0)),
                      (export_attrs){ a->axis[0] < 0 ? 1 : 2, attr }, 4, y);
    c->out[0] = y[0];
    if (c->n_out > 1)
        c->out[1] = a->axis[0] < 0 && aril__export_known(ndim_out(c, 1), dims_out(c, 1))
                        ? aril__export_reshape(c, y[2], ndim_out(c, 1), dims_out(c, 1))
                        : y[2];
    if (c->n_out > 2) c->out[2] = y[3];
    return c->model->status;
}

/* How many elements of the sequence are before each value. */
static void searchsorted_of(aril__call *c, aril_tensor **out)
{
    const struct search_attrs *a = c->attrs;
    aril_tensor *line = aril_unsqueeze(c->in[0], -2), *x = aril_unsqueeze(c->in[1], -1);
    if (c->in[0]->ndim == 1) line = c->in[0];
    aril_tensor *before = a->right[0] ? aril_le(line, x) : aril_lt(line, x);
    out[0] = aril_sum(aril_cast(before, ARIL_I64), ARIL_AXES(-1));
}

/* ---- rows ---- */

const export_rule aril__export_reduce_rules[] = {
    WRITE("sum", 13, "ReduceSum", total),
    WRITE("mean", 13, "ReduceMean", total),
    WRITE("prod", 13, "ReduceProd", total),
    WRITE("amax", 13, "ReduceMax", extreme),
    WRITE("amin", 13, "ReduceMin", extreme),
    WRITE("argmax", 13, "ArgMax", arg_write),
    WRITE("argmin", 13, "ArgMin", arg_write),
    WRITE("max", 13, "ReduceMax", best),
    WRITE("min", 13, "ReduceMin", best),
    LOWER("any", any_of),
    LOWER("all", all_of),
    LOWER("count_nonzero", count_nonzero_of),
    WRITE("logsumexp", 13, "ReduceLogSumExp", logsumexp),
    LOWER("var", variance_of),
    LOWER("std", variance_of),
    LOWER("var_mean", variance_of),
    LOWER("std_mean", variance_of),
    LOWER("norm", norm_of),
    { .op = "cumsum", .from = 13, .onnx = "CumSum", .write = cumulate, .takes = is_one_axis },
    LOWER("cumsum", cumsum_of),
    { .op = "cumprod", .from = 26, .onnx = "CumProd", .write = cumulate, .takes = is_one_axis },
    LOWER("cumprod", cumprod_of),
    LOWER("logcumsumexp", logcumsumexp_of),
    LOWER("cummax", cumbest_of),
    LOWER("cummin", cumbest_of),
    LOWER("linear_scan", linear_scan_of),
    WRITE("sort", 13, "TopK", sort_write),
    WRITE("topk", 13, "TopK", topk),
    WRITE("kthvalue", 13, "TopK", one_of),
    WRITE("median", 13, "TopK", one_of),
    WRITE("unique", 13, "Unique", unique),
    LOWER("searchsorted", searchsorted_of),
    { .op = NULL },
};
