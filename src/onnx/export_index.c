/* Rows of indexing. */
#include "onnx/export_rules.h"
#include "ops/index/embedding_bag.h"
#include "ops/index/gather.h"
#include "ops/index/index.h"
#include "ops/index/indexing.h"
#include "ops/index/masked.h"

#include <math.h>
#include <string.h>

static const int64_t all[] = { -1 };

/* ---- along one axis ---- */

static aril_status gather_along(export_call *c, int64_t axis)
{
    return set_out(c, 0,
                   put(c, "Gather",
                       VALUES(aril__export_in(c, 0), aril__export_in_as(c, 1, ARIL_I64)),
                       ATTRIBUTES(attr_int("axis", axis))));
}

static aril_status index_select(export_call *c)
{
    return gather_along(c, ((const struct index_select_attrs *)c->attrs)->axis[0]);
}

static aril_status embedding(export_call *c)
{
    return gather_along(c, 0);
}

static export_value *scalar_as_line(export_call *c, export_value *x, int i)
{
    static const int64_t one[] = { 1 };
    return ndim_in(c, i) ? x : aril__export_reshape(c, x, 1, one);
}

static aril_status give_back(export_call *c, export_value *y)
{
    return set_out(c, 0, ndim_out(c, 0) ? y : aril__export_reshape(c, y, 0, NULL));
}

static aril_status gather(export_call *c)
{
    const struct gather_attrs *a = c->attrs;
    export_value *x = scalar_as_line(c, aril__export_in(c, 0), 0);
    export_value *at = scalar_as_line(c, aril__export_in_as(c, 1, ARIL_I64), 1);
    return give_back(c, put(c, "GatherElements", VALUES(x, at),
                            ATTRIBUTES(attr_int("axis", a->axis[0]))));
}

/* How elements at the same position are combined. */
static const char *reduction_of(const aril__op *op)
{
    static const char *const name[][2] = { { "scatter_add", "add" },
                                           { "scatter_mul", "mul" },
                                           { "scatter_max", "max" },
                                           { "scatter_min", "min" } };
    for (int i = 0; i < 4; i++)
        if (strcmp(op->name, name[i][0]) == 0) return name[i][1];
    return NULL;
}

/* The number that changes nothing. */
static export_value *neutral(export_call *c, const char *how, aril_dtype dtype)
{
    bool real = aril__is_float(dtype);
    double most = real ? INFINITY : dtype == ARIL_I64 ? 9e18 : 2e9;
    double value = strcmp(how, "add") == 0   ? 0
                   : strcmp(how, "mul") == 0 ? 1
                   : strcmp(how, "min") == 0 ? most
                                             : -most;
    return aril__export_number(c, value, dtype);
}

static aril_status scatter(export_call *c)
{
    const struct scatter_attrs *a = c->attrs;
    const char *how = reduction_of(c->op);
    aril_dtype type = dtype_in(c, 0), wide = how && type == ARIL_BOOL ? ARIL_I32 : type;
    export_value *x = scalar_as_line(c, aril__export_in_as(c, 0, wide), 0);
    export_value *at = aril__export_in_as(c, 1, ARIL_I64), *src = aril__export_in_as(c, 2, wide);
    at = scalar_as_line(c, at, 1);
    if (!ndim_in(c, 2) && ndim_in(c, 1)) /* one value for all */
        src = put(c, "Expand", VALUES(src, aril__export_shape_of(c, 1)), NO_ATTRS);
    else
        src = scalar_as_line(c, src, 2);
    export_attr attr[2] = { attr_int("axis", a->axis[0]),
                            attr_text("reduction", how ? how : "none") };
    if (a->alone[0] && how) /* what was there before does not count */
        x = put(c, "ScatterElements",
                VALUES(x, at,
                       put(c, "Expand", VALUES(neutral(c, how, wide), aril__export_shape_of(c, 1)),
                           NO_ATTRS)),
                (export_attrs){ 1, attr });
    export_value *y =
        put(c, "ScatterElements", VALUES(x, at, src), (export_attrs){ how ? 2 : 1, attr });
    return give_back(c, aril__export_cast(c, y, wide, type));
}

/* Sums of rows by index. */
static void embedding_grad(aril__call *c, aril_tensor **out)
{
    const struct embedding_attrs *a = c->attrs;
    const aril_tensor *w = c->in[2];
    aril_dtype dtype = (aril_dtype)c->in[0]->dtype;
    aril_tensor *index = aril_reshape(aril_cast(c->in[1], ARIL_I64), ARIL_SHAPE(-1));
    aril_tensor *g = aril_reshape(c->in[0], ARIL_SHAPE(-1, w->dim[1]));
    if (a->padding[0] >= 0) {
        aril_tensor *is_pad = aril_unsqueeze(aril_eq_scalar(index, a->padding[0]), -1);
        g = aril_where(is_pad, aril_zeros_like(g), g);
    }
    aril_tensor *rows = aril_cast(aril_one_hot(index, w->dim[0]), dtype); /* [n, rows] */
    out[0] = aril_matmul(aril_t(rows), g);
}

static aril_status embedding_grad_scattered(export_call *c)
{
    const struct embedding_attrs *a = c->attrs;
    if (a->padding[0] >= 0 || !aril__export_known(2, dims_in(c, 2))) return ARIL__EXPORT_DECLINED;
    int64_t one[] = { -1, 1 }, rows[] = { -1, dims_in(c, 2)[1] };
    export_value *at = aril__export_reshape(c, aril__export_in_as(c, 1, ARIL_I64), 2, one);
    export_value *g = aril__export_reshape(c, aril__export_in(c, 0), 2, rows);
    return set_out(c, 0,
                   put(c, "ScatterND",
                       VALUES(aril__export_zeros(c, 2, dims_in(c, 2), dtype_out(c, 0)), at, g),
                       ATTRIBUTES(attr_text("reduction", "add"))));
}

/* ---- by several index tensors ---- */

typedef struct several {
    int64_t mask;
    int n, nb, at;              /* index tensors; their dimensions, and where they come */
    int perm[ARIL_MAX_DIMS];    /* indexed axes first */
    int64_t dim[ARIL_MAX_DIMS]; /* of the index tensors, broadcast */
    int rank;                   /* of the data */
} several;

/* The indices of a call, from input `first` on. */
static aril_status describe(const export_call *c, int first, several *s)
{
    aril_tensor like[ARIL_MAX_DIMS + 1], *index[ARIL_MAX_DIMS];
    *s = (several){ .mask = ((const struct index_attrs *)c->attrs)->mask[0],
                    .n = c->n_in - first,
                    .rank = ndim_in(c, 0) };
    memset(like, 0, sizeof like);
    for (int i = 0; i <= s->n; i++) {
        int in = i ? first + i - 1 : 0;
        like[i].dtype = (uint8_t)dtype_in(c, in);
        like[i].ndim = (uint8_t)ndim_in(c, in);
        memcpy(like[i].dim, dims_in(c, in), (size_t)like[i].ndim * sizeof *like[i].dim);
        if (i) index[i - 1] = &like[i];
    }
    aril__indexing p;
    aril_status status = aril__indexing_shape(c->op->name, &like[0], s->mask, s->n, index, &p);
    s->at = p.at;
    s->nb = p.nb;
    memcpy(s->dim, p.dim + p.at, (size_t)p.nb * sizeof *s->dim);
    int k = 0;
    for (int d = 0; d < s->rank; d++)
        if (s->mask >> d & 1) s->perm[k++] = d;
    for (int d = 0; d < s->rank; d++)
        if (!(s->mask >> d & 1)) s->perm[k++] = d;
    return status;
}

/* All of them as one tensor [dims..., n]. */
static export_value *stacked(export_call *c, int first, const several *s)
{
    export_value *part[ARIL_MAX_DIMS];
    int64_t last[] = { s->nb };
    export_value *sizes = aril__export_sizes(c, s->nb, s->dim);
    for (int i = 0; i < s->n; i++) {
        export_value *x = aril__export_in_as(c, first + i, ARIL_I64);
        x = put(c, "Expand", VALUES(x, sizes), NO_ATTRS);
        part[i] = aril__export_unsqueeze(c, x, 1, last);
    }
    return put(c, "Concat", (export_values){ s->n, part }, ATTRIBUTES(attr_int("axis", s->nb)));
}

/* From [index dims, rest] to where the index dimensions belong, or back. */
static export_value *moved(export_call *c, export_value *x, const several *s, bool back)
{
    int n = s->nb + s->rank - s->n, perm[2 * ARIL_MAX_DIMS], k = 0;
    for (int d = 0; d < s->at; d++) perm[k++] = s->nb + d;
    for (int d = 0; d < s->nb; d++) perm[k++] = d;
    for (int d = s->nb + s->at; d < n; d++) perm[k++] = d;
    int inverse[2 * ARIL_MAX_DIMS];
    for (int d = 0; d < n; d++) inverse[perm[d]] = d;
    return aril__export_transpose(c, x, n, back ? inverse : perm);
}

static aril_status index_write(export_call *c)
{
    several s;
    aril_status status = describe(c, 1, &s);
    if (status < 0) return status;
    if (s.n == 1) return gather_along(c, s.perm[0]);
    export_value *x = aril__export_transpose(c, aril__export_in(c, 0), s.rank, s.perm);
    export_value *y = put(c, "GatherND", VALUES(x, stacked(c, 1, &s)), NO_ATTRS);
    return set_out(c, 0, moved(c, y, &s, false));
}

static aril_status index_put(export_call *c)
{
    several s;
    bool add = strcmp(c->op->name, "index_put_add") == 0;
    aril_status status = describe(c, 2, &s);
    if (status < 0) return status;
    int n = s.nb + s.rank - s.n, inverse[ARIL_MAX_DIMS];
    int64_t like[2 * ARIL_MAX_DIMS];
    int k = 0; /* the shape of what the indices select */
    int rest[ARIL_MAX_DIMS], n_rest = 0;
    for (int d = 0; d < s.rank; d++)
        if (!(s.mask >> d & 1)) rest[n_rest++] = d;
    for (int d = 0; d < s.at; d++) like[k++] = dims_in(c, 0)[rest[d]];
    for (int d = 0; d < s.nb; d++) like[k++] = s.dim[d];
    for (int d = s.at; d < n_rest; d++) like[k++] = dims_in(c, 0)[rest[d]];
    aril_dtype type = dtype_in(c, 0);
    aril_dtype wide = add && type == ARIL_BOOL ? ARIL_I32 : type;
    export_value *x = aril__export_transpose(c, aril__export_in_as(c, 0, wide), s.rank, s.perm);
    export_value *value =
        put(c, "Expand", VALUES(aril__export_in_as(c, 1, wide), aril__export_sizes(c, n, like)),
            NO_ATTRS);
    export_attr attr[1] = { attr_text("reduction", "add") };
    export_value *y = put(c, "ScatterND", VALUES(x, stacked(c, 2, &s), moved(c, value, &s, true)),
                          (export_attrs){ add ? 1 : 0, attr });
    for (int d = 0; d < s.rank; d++) inverse[s.perm[d]] = d;
    y = aril__export_transpose(c, y, s.rank, inverse);
    return set_out(c, 0, aril__export_cast(c, y, wide, type));
}

/* ---- masks ---- */

static aril_status nonzero(export_call *c)
{
    int swap[] = { 1, 0 };
    aril_dtype wide = aril__export_wide(dtype_in(c, 0), DT_FLOAT | DT(ARIL_BOOL) | DT(ARIL_U8) |
                                                            DT(ARIL_I32) | DT(ARIL_I64));
    export_value *x = scalar_as_line(c, aril__export_in_as(c, 0, wide), 0);
    export_value *y = put(c, "NonZero", VALUES(x), NO_ATTRS);
    if (!ndim_in(c, 0)) y = aril__export_slice(c, y, 0, 0, 0, 1); /* no dimensions */
    return set_out(c, 0, aril__export_transpose(c, y, 2, swap));
}

/* The mask in the shape of x, as one line. */
static export_value *flat_mask(export_call *c, int x, int mask)
{
    export_value *wide =
        put(c, "Expand",
            VALUES(aril__export_in_as(c, mask, ARIL_BOOL), aril__export_shape_of(c, x)), NO_ATTRS);
    return aril__export_reshape(c, wide, 1, all);
}

static aril_status masked_select(export_call *c)
{
    export_value *x = aril__export_reshape(c, aril__export_in(c, 0), 1, all);
    return set_out(
        c, 0, put(c, "Compress", VALUES(x, flat_mask(c, 0, 1)), ATTRIBUTES(attr_int("axis", 0))));
}

/* Element k of the source goes to the k-th place where the mask is true. */
static aril_status masked_scatter(export_call *c)
{
    static const int64_t zero[] = { 0 };
    export_value *mask = flat_mask(c, 0, 1);
    export_value *x = aril__export_reshape(c, aril__export_in(c, 0), 1, all);
    export_value *src = aril__export_reshape(c, aril__export_in(c, 2), 1, all);
    export_value *at = put(c, "NonZero", VALUES(mask), NO_ATTRS); /* [1,n] */
    int swap[] = { 1, 0 };
    at = aril__export_transpose(c, at, 2, swap);
    export_value *n =
        c->opset >= 15
            ? put(c, "Shape", VALUES(at), ATTRIBUTES(attr_int("start", 0), attr_int("end", 1)))
            : put(c, "Gather",
                  VALUES(put(c, "Shape", VALUES(at), NO_ATTRS), aril__export_ints(c, 1, zero)),
                  NO_ATTRS);
    src =
        put(c, "Slice",
            VALUES(src, aril__export_ints(c, 1, zero), n, aril__export_ints(c, 1, zero)), NO_ATTRS);
    export_value *y = put(c, "ScatterND", VALUES(x, at, src), NO_ATTRS);
    return set_out(c, 0, aril__export_reshape(c, y, ndim_out(c, 0), dims_out(c, 0)));
}

/* g where the mask is true, then zeros. */
static aril_status masked_scatter_grad(export_call *c)
{
    static const int64_t zero[] = { 0 };
    int64_t count = 1;
    if (!known_in(c, 2)) return ARIL__EXPORT_DECLINED;
    for (int d = 0; d < ndim_in(c, 2); d++) count *= dims_in(c, 2)[d];
    export_value *g = aril__export_reshape(c, aril__export_in(c, 0), 1, all);
    export_value *part =
        put(c, "Compress", VALUES(g, flat_mask(c, 0, 1)), ATTRIBUTES(attr_int("axis", 0)));
    export_value *zeros = aril__export_zeros(c, 1, &count, dtype_out(c, 0));
    export_value *y = put(c, "Concat", VALUES(part, zeros), ATTRIBUTES(attr_int("axis", 0)));
    y = put(c, "Slice",
            VALUES(y, aril__export_ints(c, 1, zero), aril__export_int1(c, count),
                   aril__export_ints(c, 1, zero)),
            NO_ATTRS);
    return set_out(c, 0, aril__export_reshape(c, y, ndim_out(c, 0), dims_out(c, 0)));
}

static aril_status one_hot(export_call *c)
{
    ARIL_SCOPE;
    const struct one_hot_attrs *a = c->attrs;
    aril_tensor *values = aril_arange(0, 2, 1, dtype_out(c, 0), aril_cpu());
    static const int64_t one[] = { 1 };
    bool scalar = ndim_in(c, 0) == 0; /* the operator takes tensors of one dimension or more */
    export_value *at = aril__export_in_as(c, 0, ARIL_I64);
    if (scalar) at = aril__export_reshape(c, at, 1, one);
    export_value *y = put(c, "OneHot",
                          VALUES(at, aril__export_number(c, (double)a->classes[0], ARIL_I64),
                                 aril__export_constant(c->model, values)),
                          ATTRIBUTES(attr_int("axis", -1)));
    if (scalar) y = aril__export_reshape(c, y, ndim_out(c, 0), dims_out(c, 0));
    return set_out(c, 0, y);
}

/* ---- bags ---- */

/* weight, index [n] or [bags, each], offsets?, a factor for each entry?: by a matrix that says in
 * which bag each entry is. */
static void embedding_bag(aril__call *c, aril_tensor **out)
{
    const struct bag_attrs *a = c->attrs;
    aril_tensor *index = aril_cast(c->in[1], ARIL_I64), *w = c->in[0], *share = c->in[3];
    aril_dtype dtype = (aril_dtype)w->dtype;
    bool lines = index->ndim == 2;
    if (!lines && !c->in[2]) {
        out[0] = aril__poison();
        return;
    }
    aril_tensor *rows = aril__op(aril__op_find("embedding"), w, index); /* [n,D] or [bags,each,D] */
    aril_tensor *part = aril_ones_like(aril_cast(index, dtype));
    if (a->padding[0] >= 0) part = aril_cast(aril_ne_scalar(index, a->padding[0]), dtype);
    aril_tensor *factor = share ? aril_mul(part, share) : part;
    if (lines) {
        aril_tensor *sum = aril_sum(aril_mul(rows, aril_unsqueeze(factor, -1)), ARIL_AXES(1));
        aril_tensor *count = aril_clamp_min(aril_sum(part, ARIL_KEEPDIM(1)), 1.0);
        out[0] = a->mean[0] ? aril_div(sum, count) : sum;
        return;
    }
    int64_t n = index->dim[0], bags = c->out[0].dim[0];
    aril__pause p = aril__trace_pause();
    aril_tensor *place = aril_arange(0, n, 1, ARIL_I64, aril_cpu());
    aril__trace_resume(p);
    aril_tensor *offsets = aril_unsqueeze(aril_cast(c->in[2], ARIL_I64), -1);
    aril_tensor *begun = aril_cast(aril_ge(place, offsets), dtype); /* [bags,n] */
    if (!a->last[0])
        begun = aril_cat(ARIL_LIST(begun, aril_zeros_like(aril_slice(begun, 0, 0, 1, 1))), 0);
    aril_tensor *inside =
        aril_sub(aril_slice(begun, 0, 0, bags, 1), aril_slice(begun, 0, 1, bags + 1, 1));
    aril_tensor *sum = aril_matmul(aril_mul(inside, factor), rows);
    aril_tensor *count = aril_clamp_min(aril_sum(aril_mul(inside, part), ARIL_KEEPDIM(1)), 1.0);
    out[0] = a->mean[0] ? aril_div(sum, count) : sum;
}

/* ---- rows ---- */

const export_rule aril__export_index_rules[] = {
    WRITE("index_select", 13, "Gather", index_select),
    WRITE("embedding", 13, "Gather", embedding),
    WRITE("embedding_grad", 16, "ScatterND", embedding_grad_scattered),
    LOWER("embedding_grad", embedding_grad),
    WRITE("gather", 13, "GatherElements", gather),
    WRITE("scatter", 13, "ScatterElements", scatter),
    WRITE("scatter_add", 16, "ScatterElements", scatter),
    WRITE("scatter_mul", 16, "ScatterElements", scatter),
    WRITE("scatter_max", 18, "ScatterElements", scatter),
    WRITE("scatter_min", 18, "ScatterElements", scatter),
    WRITE("index", 13, "GatherND", index_write),
    WRITE("index_put", 13, "ScatterND", index_put),
    WRITE("index_put_add", 16, "ScatterND", index_put),
    WRITE("nonzero", 13, "NonZero", nonzero),
    WRITE("masked_select", 13, "Compress", masked_select),
    WRITE("masked_scatter", 13, "ScatterND", masked_scatter),
    WRITE("masked_scatter_grad", 13, "Compress", masked_scatter_grad),
    WRITE("one_hot", 13, "OneHot", one_hot),
    LOWER("embedding_bag", embedding_bag),
    { .op = NULL },
};
