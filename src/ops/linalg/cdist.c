#include "ops/linalg/cdist.h"

#include "aril/create.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "core/parallel.h"
#include "ops/elementwise/elementwise.h"
#include "ops/shape/like.h"
#include "ops/table/apply.h"
#include "ops/table/autocast.h"
#include "ops/table/sample.h"

#include <math.h>
#include <string.h>

/* Named ahead of its row. */
extern const aril__op aril__op_cdist_grad;

ATTR_LIST(cdist, CDIST_ATTRS)

enum { GRAIN = 32 * 1024 }; /* differences of elements */

/* ---- cdist: a [...,P,M], b [...,R,M] of the same leading dimensions -> [...,P,R] ---- */

static aril_status check_rows(aril__call *c, const aril_tensor *a, const aril_tensor *b)
{
    bool fits = a->ndim >= 2 && a->ndim == b->ndim;
    for (int d = 0; d < a->ndim && fits; d++)
        fits = d == a->ndim - 2 || a->dim[d] == b->dim[d] || a->dim[d] < 0 || b->dim[d] < 0;
    if (fits && a->dtype == b->dtype) return ARIL_OK;
    char p[ARIL__SHAPE_TEXT], q[ARIL__SHAPE_TEXT];
    return aril__fail(
        ARIL_ERR_SHAPE,
        "%s: needs rows of the same size and dtype, [...,P,M] and [...,R,M], got %s %s "
        "and %s %s",
        c->op->name, aril__dtypes[a->dtype].name, aril__text(p, a), aril__dtypes[b->dtype].name,
        aril__text(q, b));
}

static aril_status cdist_infer(aril__call *c)
{
    const aril_tensor *a = c->in[0], *b = c->in[1];
    aril__meta *o = &c->out[0];
    aril_status s = check_rows(c, a, b);
    if (s < 0) return s;
    o->dtype = (aril_dtype)a->dtype;
    o->ndim = a->ndim;
    for (int d = 0; d < a->ndim - 1; d++)
        o->dim[d] = d < a->ndim - 2 && a->dim[d] < 0 ? b->dim[d] : a->dim[d];
    o->dim[o->ndim - 1] = b->dim[b->ndim - 2];
    return ARIL_OK;
}

/* Two matrices of rows, in f32 or f64. */
typedef struct rows {
    const void *a, *b;
    int64_t rows_a, rows_b, size;
    bool wide;
    double p;
} rows;

static rows rows_of(const aril_tensor *a, const aril_tensor *b, const void *attrs)
{
    return (rows){ .a = aril__ptr(a),
                   .b = aril__ptr(b),
                   .rows_a = a->dim[a->ndim - 2],
                   .rows_b = b->dim[b->ndim - 2],
                   .size = a->dim[a->ndim - 1],
                   .wide = a->dtype == ARIL_F64,
                   .p = ((const struct cdist_attrs *)attrs)->p[0] };
}

static double number(const void *data, bool wide, int64_t i)
{
    return wide ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void store(void *data, bool wide, int64_t i, double v)
{
    if (wide)
        ((double *)data)[i] = v;
    else
        ((float *)data)[i] = (float)v;
}

/* Element k of row i of a (over all matrices) less that of row j of b (of the same matrix). */
static double difference(const rows *m, int64_t i, int64_t j, int64_t k)
{
    int64_t of_b = (i / m->rows_a) * m->rows_b + j;
    double d = number(m->a, m->wide, i * m->size + k) - number(m->b, m->wide, of_b * m->size + k);
    return m->wide ? d : (double)(float)d; /* as exact as the distances it is compared with */
}

/* What a difference adds to the number of differences: NaN stays NaN, as for other p. */
static double count(double d)
{
    return d != d ? d : d != 0;
}

static double distance(const rows *m, int64_t i, int64_t j)
{
    double sum = 0, p = m->p;
    for (int64_t k = 0; k < m->size; k++) {
        double d = fabs(difference(m, i, j, k));
        if (p == INFINITY)
            sum = d > sum || d != d ? d : sum;
        else
            sum += p == 2 ? d * d : p == 1 ? d : p == 0 ? count(d) : pow(d, p);
    }
    if (p == 2) return sqrt(sum);
    return p == 0 || p == 1 || p == INFINITY ? sum : pow(sum, 1 / p);
}

typedef struct cdist_job {
    rows m;
    void *out;
} cdist_job;

static void cdist_range(void *ctx, int64_t begin, int64_t end)
{
    const cdist_job *job = ctx;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < job->m.rows_b; j++)
            store(job->out, job->m.wide, i * job->m.rows_b + j, distance(&job->m, i, j));
}

static int64_t rows_at_once(const rows *m)
{
    return 1 + GRAIN / (m->rows_b * m->size + 1);
}

static aril_status cdist_ref(aril__run *r)
{
    cdist_job job = { rows_of(r->in[0], r->in[1], r->attrs), aril__ptr(r->out[0]) };
    int64_t n = job.m.rows_b ? r->out[0]->numel / job.m.rows_b : 0;
    aril__parallel_for(n, rows_at_once(&job.m), cdist_range, &job);
    return ARIL_OK;
}

VJP(cdist)
{
    if (!c->g[0]) return;
    aril_tensor *g = c->g[0], *y = c->y[0];
    GRAD(0, aril__op_with(c->attrs, &aril__op_cdist_grad, g, c->x[0], c->x[1], y));
    GRAD(1, aril__op_with(c->attrs, &aril__op_cdist_grad, aril_transpose(g, -1, -2), c->x[1],
                          c->x[0], aril_transpose(y, -1, -2)));
}

#define OF_P(value) (&(const struct cdist_attrs){ { value } })
static const aril__sample cdist_samples[] = {
    { .in = { "[3,4]", "[5,4]" }, .attrs = OF_P(2) },
    { .in = { "[2,3,4]", "[2,2,4]" }, .attrs = OF_P(2), .flags = SAMPLE_BATCH },
    { .in = { "[3,4]", "[2,4]" }, .attrs = OF_P(1) },
    { .in = { "[3,4]", "[2,4]" }, .attrs = OF_P(3) },
    { .in = { "[3,4]", "[2,4]" }, .attrs = OF_P(1.5), .flags = SAMPLE_NO_SECOND },
    { .in = { "d[3,4]", "k[2,4]" }, .attrs = OF_P(INFINITY) },
    { .in = { "[3,4]", "[2,4]" }, .attrs = OF_P(0), .flags = SAMPLE_NO_GRAD },
    { .in = { "[20,7]", "[70,7]" }, .attrs = OF_P(2), .flags = SAMPLE_NO_GRAD },
    { .in = { "[0,4]", "[2,4]" }, .attrs = OF_P(2) },
    { .in = { "[3,4]", "[0,4]" }, .attrs = OF_P(2) },
    SAMPLE_END
};
OP(cdist, .doc = "distances between the rows of two matrices", .min_in = 2, .max_in = 2, .n_out = 1,
   .cast = CAST_F32, .types = DT(ARIL_F32) | DT(ARIL_F64), .infer = cdist_infer, .ref = cdist_ref,
   .vjp = cdist_vjp, .saves = { IN(0) | IN(1) | OUT(0), IN(0) | IN(1) | OUT(0) },
   .samples = cdist_samples, WITH_ATTRS(cdist));

/* ---- cdist_grad: g [...,P,R], a, b, the distances -> the gradient of a ---- */

static aril_status cdist_grad_infer(aril__call *c)
{
    const aril_tensor *a = c->in[1];
    aril__meta *o = &c->out[0];
    aril_status s = check_rows(c, a, c->in[2]);
    if (s < 0) return s;
    o->dtype = (aril_dtype)a->dtype;
    o->ndim = a->ndim;
    memcpy(o->dim, a->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

/* The derivative of a distance y by one difference d of elements. */
static double slope(double p, double d, double y)
{
    double sign = (d > 0) - (d < 0);
    if (p == 1) return sign;
    if (p == INFINITY) return fabs(d) == y ? sign : 0;
    if (p == 0 || y == 0 || d == 0) return 0;
    return p == 2 ? d / y : sign * pow(fabs(d) / y, p - 1);
}

typedef struct cdist_grad_job {
    rows m;
    const void *g, *y;
    void *out;
} cdist_grad_job;

static void cdist_grad_range(void *ctx, int64_t begin, int64_t end)
{
    const cdist_grad_job *job = ctx;
    const rows *m = &job->m;
    for (int64_t i = begin; i < end; i++) {
        for (int64_t k = 0; k < m->size; k++) {
            double sum = 0;
            for (int64_t j = 0; j < m->rows_b; j++) {
                double y = number(job->y, m->wide, i * m->rows_b + j);
                sum += number(job->g, m->wide, i * m->rows_b + j) *
                       slope(m->p, difference(m, i, j, k), y);
            }
            store(job->out, m->wide, i * m->size + k, sum);
        }
    }
}

static aril_status cdist_grad_ref(aril__run *r)
{
    cdist_grad_job job = { rows_of(r->in[1], r->in[2], r->attrs), aril__ptr(r->in[0]),
                           aril__ptr(r->in[3]), aril__ptr(r->out[0]) };
    int64_t n = job.m.size ? r->out[0]->numel / job.m.size : 0;
    aril__parallel_for(n, rows_at_once(&job.m), cdist_grad_range, &job);
    return ARIL_OK;
}

/* The slopes [...,P,R,M] in public ops. */
static aril_tensor *slopes(double p, aril_tensor *d, aril_tensor *y)
{
    aril_tensor *sign = aril_sign(d), *size = aril_abs(d), *zero = aril_scalar(0);
    if (p == 1) return sign;
    if (p == INFINITY) return aril_where(aril_eq(size, y), sign, zero);
    if (p == 0) return aril_mul_scalar(sign, 0);
    aril_tensor *none = aril_logical_or(aril_eq_scalar(d, 0), aril_eq_scalar(y, 0));
    aril_tensor *over = aril_where(none, aril_scalar(1), y);
    if (p == 2) return aril_where(none, zero, aril_div(d, over));
    aril_tensor *ratio = aril_div(aril_where(none, aril_scalar(1), size), over);
    return aril_where(none, zero, aril_mul(sign, aril_pow_scalar(ratio, p - 1)));
}

static void cdist_grad_decompose(aril__call *c, aril_tensor **out)
{
    double p = ((const struct cdist_attrs *)c->attrs)->p[0];
    aril_tensor *d = aril_sub(aril_unsqueeze(c->in[1], -2), aril_unsqueeze(c->in[2], -3));
    aril_tensor *by = slopes(p, d, aril_unsqueeze(c->in[3], -1));
    out[0] = aril_sum(aril_mul(aril_unsqueeze(c->in[0], -1), by), ARIL_AXES(-2));
}

static const aril__sample cdist_grad_samples[] = {
    { .in = { "[3,5]", "[3,4]", "[5,4]", "1[3,5]" }, .attrs = OF_P(2) },
    { .in = { "[2,3,2]", "[2,3,4]", "[2,2,4]", "1[2,3,2]" }, .attrs = OF_P(3) },
    { .in = { "[3,2]", "[3,4]", "[2,4]", "1[3,2]" }, .attrs = OF_P(1) },
    { .in = { "[0,2]", "[0,4]", "[2,4]", "1[0,2]" }, .attrs = OF_P(2) },
    SAMPLE_END
};
OP(cdist_grad, .doc = "gradient of cdist by its first input", .min_in = 4, .max_in = 4, .n_out = 1,
   .types = DT(ARIL_F32) | DT(ARIL_F64), .flags = GRADIENT, .infer = cdist_grad_infer,
   .ref = cdist_grad_ref, .decompose = cdist_grad_decompose, .samples = cdist_grad_samples,
   WITH_ATTRS(cdist));

/* ---- public ---- */

/* x with its leading dimensions broadcast to those of a shape. */
static aril_tensor *with_leading(aril_tensor *x, aril_shape lead)
{
    int n = lead.ndim;
    lead.dim[lead.ndim++] = x->dim[x->ndim - 2];
    lead.dim[lead.ndim++] = x->dim[x->ndim - 1];
    bool same = x->ndim == n + 2;
    for (int d = 0; d < n && same; d++) same = x->dim[d] == lead.dim[d];
    return same ? x : aril_broadcast_to(x, lead);
}

aril_tensor *aril_cdist(aril_tensor *a, aril_tensor *b, double p)
{
    if (!a || !b) return aril__null_tensor("cdist");
    if (aril__is_poison(a)) return aril__pass_on(a);
    if (aril__is_poison(b)) return aril__pass_on(b);
    char s[ARIL__SHAPE_TEXT], t[ARIL__SHAPE_TEXT];
    if (!(p >= 0)) {
        aril__fail(ARIL_ERR_ARG, "cdist: p must not be negative, got %g", p);
        return aril__poison();
    }
    aril_shape lead = { 0 };
    if (a->ndim < 2 || b->ndim < 2 || !aril__broadcast(&lead.ndim, lead.dim, a->ndim - 2, a->dim) ||
        !aril__broadcast(&lead.ndim, lead.dim, b->ndim - 2, b->dim)) {
        aril__fail(ARIL_ERR_SHAPE,
                   "cdist: needs [...,P,M] and [...,R,M], whose leading dimensions broadcast, got "
                   "%s and %s",
                   aril__text(s, a), aril__text(t, b));
        return aril__poison();
    }
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_F32, &a, &b);
    aril_dtype type = aril__result_type(2, (aril_tensor *[]){ a, b });
    /* f16 and bf16 in f32: the gradient compares differences with distances. */
    aril_dtype by = type == ARIL_F16 || type == ARIL_BF16 ? ARIL_F32 : type;
    struct cdist_attrs attrs = { { p } };
    aril_tensor *y = aril__op_with(&attrs, &aril__op_cdist, with_leading(aril_cast(a, by), lead),
                                   with_leading(aril_cast(b, by), lead));
    return aril_escape(aril_cast(y, type));
}
