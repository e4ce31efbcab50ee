/* Linear algebra ops computed by LAPACK, with their gradients. In the gradient rules X' is the
 * transpose. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/linalg/lapack.h"
#include "ops/shape/like.h"
#include "ops/linalg/linalg.h"
#include "ops/table/sample.h"
#include "ops/linalg/matmul.h"

#include <string.h>

enum { TYPES = DT(ARIL_F32) | DT(ARIL_F64) };

/* ---- shapes ---- */

aril_status aril__matrix_check(const aril__call *c, int i, bool square)
{
    const aril_tensor *t = c->in[i];
    char text[ARIL__SHAPE_TEXT];
    if (t->ndim < 2)
        return aril__fail(ARIL_ERR_SHAPE, "%s: needs a matrix, got %s", c->op->name,
                          aril__text(text, t));
    int64_t m = t->dim[t->ndim - 2], n = t->dim[t->ndim - 1];
    if (square && m >= 0 && n >= 0 && m != n)
        return aril__fail(ARIL_ERR_SHAPE, "%s: needs square matrices, got %s", c->op->name,
                          aril__text(text, t));
    return ARIL_OK;
}

void aril__matrix_out(aril__call *c, int i, int n, const int64_t *dim)
{
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[i];
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim - 2 + n;
    memcpy(o->dim, x->dim, (size_t)(x->ndim - 2) * sizeof *x->dim);
    for (int k = 0; k < n; k++) o->dim[x->ndim - 2 + k] = dim[k];
}

/* Output i: the batch dimensions of input 0 and `own` more, of m and n. */
static void set_out(aril__call *c, int i, int own, int64_t m, int64_t n)
{
    const int64_t dim[2] = { m, n };
    aril__matrix_out(c, i, own, dim + 2 - own);
}

int64_t aril__matrix_side(const aril_tensor *x)
{
    int64_t m = x->dim[x->ndim - 2], n = x->dim[x->ndim - 1];
    return m < 0 ? n : m;
}

int64_t aril__matrix_smaller(const aril_tensor *x)
{
    int64_t m = x->dim[x->ndim - 2], n = x->dim[x->ndim - 1];
    return m < 0 || n < 0 ? (m == 0 || n == 0 ? 0 : -1) : m < n ? m : n;
}

static aril_status square_infer(aril__call *c)
{
    aril_status s = aril__matrix_check(c, 0, true);
    if (s == ARIL_OK) set_out(c, 0, 2, aril__matrix_side(c->in[0]), aril__matrix_side(c->in[0]));
    return s;
}

/* ---- helpers of the gradient rules ---- */

static aril_tensor *tr(aril_tensor *x)
{
    return aril_transpose(x, -2, -1);
}

static aril_tensor *mm(aril_tensor *a, aril_tensor *b)
{
    return aril__op(&aril__op_matmul, a, b);
}

static aril_tensor *column(aril_tensor *x) /* [...,n] -> [...,n,1] */
{
    return aril_unsqueeze(x, -1);
}

static aril_tensor *row(aril_tensor *x) /* [...,n] -> [...,1,n] */
{
    return aril_unsqueeze(x, -2);
}

static aril_tensor *half_sum_with_transpose(aril_tensor *x)
{
    return aril_mul_scalar(aril_add(x, tr(x)), 0.5);
}

/* The sum of two tensors, either of which may be NULL. */
static aril_tensor *plus(aril_tensor *a, aril_tensor *b)
{
    return !a ? b : !b ? a : aril_add(a, b);
}

aril_tensor *aril__sizes_unknown(const aril__op *op)
{
    aril__fail(ARIL_ERR_UNSUPPORTED, "%s: the gradient needs matrices of known sizes", op->name);
    return aril__poison();
}

aril_tensor *aril__eye_like(aril_tensor *x)
{
    return aril_tril(aril_triu(aril_ones_like(x), 0), 0);
}

/* x [...,n,n] / (s_j - s_i), 0 on the diagonal. */
static aril_tensor *over_gaps(aril_tensor *x, aril_tensor *s)
{
    aril_tensor *gap = aril_sub(row(s), column(s)), *eye = aril__eye_like(gap);
    /* Add 1 on the diagonal to avoid dividing by 0, then clear the diagonal. */
    aril_tensor *y = aril_div(x, aril_add(gap, eye));
    return aril_sub(y, aril_mul(y, eye));
}

static aril_tensor *undo_batch(aril_tensor *g, aril_tensor *like)
{
    if (aril__same_dims(g->ndim, g->dim, like->ndim, like->dim)) return g;
    return aril__sum_to_like(g, like);
}

/* ---- inverse ---- */

VJP(inverse) /* dA = -Y' G Y' */
{
    aril_tensor *t = tr(c->y[0]);
    if (c->g[0]) GRAD(0, aril_neg(mm(t, mm(c->g[0], t))));
}

static const aril__sample inverse_samples[] = { { .in = { "s[3,3]" } },
                                                { .in = { "s[2,3,3]" }, .flags = SAMPLE_BATCH },
                                                { .in = { "z[1,1]" } },
                                                { .in = { "[0,0]" } },
                                                SAMPLE_END };
OP(inverse, .doc = "inverse of square matrices", .min_in = 1, .max_in = 1, .n_out = 1,
   .cast = CAST_F32, .types = TYPES, .infer = square_infer, .ref = aril__lapack_inverse,
   .workspace = aril__lapack_inverse_scratch, .vjp = inverse_vjp, .saves = { OUT(0) },
   .samples = inverse_samples);

/* ---- det and slogdet ---- */

static aril_status det_infer(aril__call *c)
{
    aril_status s = aril__matrix_check(c, 0, true);
    for (int i = 0; s == ARIL_OK && i < c->op->n_out; i++) set_out(c, i, 0, 0, 0);
    return s;
}

VJP(det) /* dA = g det inverse(A)' */
{
    if (c->g[0])
        GRAD(0, aril_mul(column(column(aril_mul(c->g[0], c->y[0]))), tr(aril_inverse(c->x[0]))));
}

static const aril__sample det_samples[] = { { .in = { "s[3,3]" } },
                                            { .in = { "s[2,3,3]" }, .flags = SAMPLE_BATCH },
                                            { .in = { "[1,1]" } },
                                            SAMPLE_END };
OP(det, .doc = "determinant of square matrices", .onnx = "Det", .min_in = 1, .max_in = 1,
   .n_out = 1, .cast = CAST_F32, .types = TYPES, .infer = det_infer, .ref = aril__lapack_det,
   .workspace = aril__lapack_det_scratch, .vjp = det_vjp, .saves = { IN(0) | OUT(0) },
   .samples = det_samples);

VJP(slogdet) /* dA = g inverse(A)'; the sign is constant */
{
    if (c->g[1]) GRAD(0, aril_mul(column(column(c->g[1])), tr(aril_inverse(c->x[0]))));
}

OP(slogdet, .doc = "sign and log of the absolute value of the determinant", .min_in = 1,
   .max_in = 1, .n_out = 2, .cast = CAST_F32, .types = TYPES, .infer = det_infer,
   .ref = aril__lapack_slogdet, .workspace = aril__lapack_slogdet_scratch, .vjp = slogdet_vjp,
   .saves = { IN(0) }, .samples = det_samples);

/* ---- solve ---- */

static aril_status solve_infer(aril__call *c)
{
    const aril_tensor *a = c->in[0], *b = c->in[1];
    aril__meta *o = &c->out[0];
    char ta[ARIL__SHAPE_TEXT], tb[ARIL__SHAPE_TEXT];
    aril_status s = aril__matrix_check(c, 0, true);
    if (s == ARIL_OK) s = aril__matrix_check(c, 1, false);
    if (s < 0) return s;
    if (a->dtype != b->dtype)
        return aril__fail(ARIL_ERR_DTYPE,
                          "%s: dtypes %s and %s differ; cast one of them with aril_cast",
                          c->op->name, aril__dtypes[a->dtype].name, aril__dtypes[b->dtype].name);
    int64_t n = aril__matrix_side(a), rows = b->dim[b->ndim - 2];
    o->ndim = a->ndim - 2;
    memcpy(o->dim, a->dim, (size_t)o->ndim * sizeof *o->dim);
    if ((n >= 0 && rows >= 0 && n != rows) ||
        !aril__broadcast(&o->ndim, o->dim, b->ndim - 2, b->dim))
        return aril__fail(ARIL_ERR_SHAPE, "%s: shapes %s and %s do not match", c->op->name,
                          aril__text(ta, a), aril__text(tb, b));
    o->dtype = (aril_dtype)a->dtype;
    o->dim[o->ndim++] = rows < 0 ? n : rows;
    o->dim[o->ndim++] = b->dim[b->ndim - 1];
    return ARIL_OK;
}

VJP(solve) /* dB = inverse(A)' g, dA = -dB X' */
{
    if (!c->g[0]) return;
    aril_tensor *db = aril__op(&aril__op_solve, tr(c->x[0]), c->g[0]);
    GRAD(0, undo_batch(aril_neg(mm(db, tr(c->y[0]))), c->x[0]));
    GRAD(1, undo_batch(db, c->x[1]));
}

static const aril__sample solve_samples[] = {
    { .in = { "s[3,3]", "[3,2]" } },   { .in = { "s[2,3,3]", "[2,3,2]" }, .flags = SAMPLE_BATCH },
    { .in = { "s[3,3]", "[2,3,1]" } }, { .in = { "s[2,2,2]", "[2,3]" } },
    { .in = { "s[2,2]", "[2,0]" } },   SAMPLE_END
};
OP(solve, .doc = "solves A X = B for X", .min_in = 2, .max_in = 2, .n_out = 1, .cast = CAST_F32,
   .types = TYPES, .infer = solve_infer, .ref = aril__lapack_solve,
   .workspace = aril__lapack_solve_scratch, .vjp = solve_vjp,
   .saves = { IN(0) | OUT(0), IN(0) | LIKE(1) }, .samples = solve_samples);

/* ---- triangular_solve ---- */

ATTR_LIST(triangular_solve, TRIANGULAR_SOLVE_ATTRS)

static aril_tensor *tri_solve(aril_tensor *a, aril_tensor *b, bool upper, bool transpose, bool unit)
{
    struct triangular_solve_attrs at = { { upper }, { transpose }, { unit } };
    return aril__op_with(&at, &aril__op_triangular_solve, a, b);
}

VJP(triangular_solve) /* like solve, but only of the triangle */
{
    const struct triangular_solve_attrs *a = c->attrs;
    if (!c->g[0]) return;
    bool upper = a->upper[0], transpose = a->transpose[0], unit = a->unit[0];
    aril_tensor *db = tri_solve(c->x[0], c->g[0], upper, !transpose, unit);
    if (c->wants[0]) {
        aril_tensor *x = c->y[0], *da = transpose ? mm(x, tr(db)) : mm(db, tr(x));
        da = upper ? aril_triu(da, unit ? 1 : 0) : aril_tril(da, unit ? -1 : 0);
        c->dx[0] = undo_batch(aril_neg(da), c->x[0]);
    }
    GRAD(1, undo_batch(db, c->x[1]));
}

#define TRI_SAMPLE(...)                    \
    &(const struct triangular_solve_attrs) \
    {                                      \
        __VA_ARGS__                        \
    }
static const aril__sample triangular_solve_samples[] = {
    { .in = { "s[3,3]", "[3,2]" }, .attrs = TRI_SAMPLE({ 0 }, { 0 }, { 0 }) },
    { .in = { "s[2,3,3]", "[2,3,2]" },
      .attrs = TRI_SAMPLE({ 1 }, { 0 }, { 0 }),
      .flags = SAMPLE_BATCH },
    { .in = { "s[3,3]", "[2,3,1]" }, .attrs = TRI_SAMPLE({ 0 }, { 1 }, { 0 }) },
    { .in = { "u[3,3]", "[3,2]" }, .attrs = TRI_SAMPLE({ 1 }, { 1 }, { 1 }) },
    { .in = { "u[3,3]", "[3,2]" }, .attrs = TRI_SAMPLE({ 0 }, { 0 }, { 1 }) },
    SAMPLE_END
};
OP(triangular_solve, .doc = "solves A X = B for X, with triangular A", .min_in = 2, .max_in = 2,
   .n_out = 1, .cast = CAST_F32, .types = TYPES, .infer = solve_infer,
   .ref = aril__lapack_triangular_solve, .workspace = aril__lapack_triangular_solve_scratch,
   .vjp = triangular_solve_vjp, .saves = { IN(0) | OUT(0), IN(0) | LIKE(1) },
   .samples = triangular_solve_samples, WITH_ATTRS(triangular_solve));

/* ---- cholesky ---- */

ATTR_LIST(cholesky, CHOLESKY_ATTRS)

VJP(cholesky) /* S = inverse(L)' phi(L' G) inverse(L), phi: the lower triangle, diagonal halved */
{
    const struct cholesky_attrs *a = c->attrs;
    if (!c->g[0] || !c->wants[0]) return;
    bool upper = a->upper[0];
    aril_tensor *l = upper ? tr(c->y[0]) : c->y[0], *g = upper ? tr(c->g[0]) : c->g[0];
    aril_tensor *p = mm(tr(l), aril_tril(g, 0));
    p = aril_mul_scalar(aril_add(aril_tril(p, 0), aril_tril(p, -1)), 0.5);
    aril_tensor *s = tri_solve(l, p, false, true, false); /* inverse(L)' P */
    s = tr(tri_solve(l, tr(s), false, true, false));      /* times inverse(L) */
    c->dx[0] = half_sum_with_transpose(s);
}

static const aril__sample cholesky_samples[] = {
    { .in = { "s[3,3]" }, .attrs = &(const struct cholesky_attrs){ { 0 } } },
    { .in = { "s[2,3,3]" },
      .attrs = &(const struct cholesky_attrs){ { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "+[1,1]" }, .attrs = &(const struct cholesky_attrs){ { 0 } } },
    { .in = { "[0,0]" }, .attrs = &(const struct cholesky_attrs){ { 0 } } },
    SAMPLE_END
};
OP(cholesky, .doc = "Cholesky factor L of positive definite A = L L'", .min_in = 1, .max_in = 1,
   .n_out = 1, .cast = CAST_F32, .types = TYPES, .infer = square_infer,
   .ref = aril__lapack_cholesky, .workspace = aril__lapack_cholesky_scratch, .vjp = cholesky_vjp,
   .saves = { OUT(0) }, .samples = cholesky_samples, WITH_ATTRS(cholesky));

/* ---- qr ---- */

static aril_status qr_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    aril_status s = aril__matrix_check(c, 0, false);
    if (s < 0) return s;
    int64_t k = aril__matrix_smaller(x);
    set_out(c, 0, 2, x->dim[x->ndim - 2], k);
    set_out(c, 1, 2, k, x->dim[x->ndim - 1]);
    return ARIL_OK;
}

/* For a square R: dA = (gQ + Q sym(M)) inverse(R)' with M = R gR' - gQ' Q, where sym mirrors the
 * lower triangle. */
static aril_tensor *qr_square(aril_tensor *q, aril_tensor *r, aril_tensor *gq, aril_tensor *gr)
{
    aril_tensor *m = gr ? mm(r, tr(gr)) : NULL;
    if (gq) m = plus(m, aril_neg(mm(tr(gq), q)));
    m = aril_add(aril_tril(m, 0), tr(aril_tril(m, -1)));
    aril_tensor *s = plus(gq, mm(q, m));
    return tr(tri_solve(r, tr(s), true, false, false));
}

VJP(qr)
{
    aril_tensor *q = c->y[0], *r = c->y[1], *gq = c->g[0], *gr = c->g[1];
    if (!c->wants[0] || (!gq && !gr)) return;
    int64_t k = r->dim[r->ndim - 2], n = r->dim[r->ndim - 1];
    if (k == n) {
        c->dx[0] = qr_square(q, r, gq, gr);
        return;
    }
    if (k < 0 || n < 0) {
        c->dx[0] = aril__sizes_unknown(c->op);
        return;
    }
    /* A wide matrix [X Y] = Q [U V]: Y = Q V depends on X through Q. */
    aril_tensor *u = aril_slice(r, -1, 0, k, 1), *v = aril_slice(r, -1, k, n, 1);
    aril_tensor *gu = gr ? aril_slice(gr, -1, 0, k, 1) : NULL;
    aril_tensor *gv = gr ? aril_slice(gr, -1, k, n, 1) : NULL;
    if (gv) gq = plus(gq, mm(mm(q, v), tr(gv)));
    aril_tensor *dy = gv ? mm(q, gv) : aril_zeros_like(mm(q, v));
    c->dx[0] = aril_cat(ARIL_LIST(qr_square(q, u, gq, gu), dy), -1);
}

static const aril__sample qr_samples[] = {
    { .in = { "[3,3]" }, .flags = SAMPLE_NO_LOW },   { .in = { "[4,2]" } },
    { .in = { "s[2,3,3]" }, .flags = SAMPLE_BATCH }, { .in = { "[2,4]" } },
    { .in = { "[0,2]" }, .flags = SAMPLE_NO_GRAD },  SAMPLE_END
};
OP(qr, .doc = "QR decomposition A = Q R: orthonormal columns, upper triangular R", .min_in = 1,
   .max_in = 1, .n_out = 2, .cast = CAST_F32, .types = TYPES, .infer = qr_infer,
   .ref = aril__lapack_qr, .workspace = aril__lapack_qr_scratch, .vjp = qr_vjp,
   .saves = { OUT(0) | OUT(1) }, .samples = qr_samples);

/* ---- svd ---- */

static aril_status svd_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    aril_status s = aril__matrix_check(c, 0, false);
    if (s < 0) return s;
    int64_t k = aril__matrix_smaller(x);
    set_out(c, 0, 2, x->dim[x->ndim - 2], k);
    set_out(c, 1, 1, 0, k);
    set_out(c, 2, 2, k, x->dim[x->ndim - 1]);
    return ARIL_OK;
}

/* x minus its projection onto the columns of q. */
static aril_tensor *outside(aril_tensor *x, aril_tensor *q)
{
    return aril_sub(x, mm(q, mm(tr(q), x)));
}

VJP(svd) /* dA = U (skew(U' gU) / E S + S skew(V' gV) / E + gS) V' + the parts outside of U and V */
{
    aril_tensor *u = c->y[0], *s = c->y[1], *vh = c->y[2];
    aril_tensor *gu = c->g[0], *gs = c->g[1], *gvh = c->g[2], *inner = NULL, *sum = NULL;
    if (!c->wants[0]) return;
    aril_tensor *squares = gu || gvh ? aril_square(s) : NULL;
    if (gu) {
        aril_tensor *x = mm(tr(u), gu);
        inner = aril_mul(over_gaps(aril_sub(x, tr(x)), squares), row(s));
    }
    if (gvh) {
        aril_tensor *x = mm(vh, tr(gvh));
        inner = plus(inner, aril_mul(over_gaps(aril_sub(x, tr(x)), squares), column(s)));
    }
    if (inner) sum = mm(u, mm(inner, vh));
    if (gs) sum = plus(sum, mm(aril_mul(u, row(gs)), vh));
    bool square_u = u->dim[u->ndim - 2] == u->dim[u->ndim - 1] && u->dim[u->ndim - 1] >= 0;
    bool square_v = vh->dim[vh->ndim - 2] == vh->dim[vh->ndim - 1] && vh->dim[vh->ndim - 1] >= 0;
    if (gu && !square_u) sum = plus(sum, mm(aril_div(outside(gu, u), row(s)), vh));
    if (gvh && !square_v) sum = plus(sum, mm(u, tr(aril_div(outside(tr(gvh), tr(vh)), row(s)))));
    c->dx[0] = sum;
}

static const aril__sample svd_samples[] = { { .in = { "s[3,3]" } },
                                            { .in = { "[4,2]" } },
                                            { .in = { "[2,4]" } },
                                            { .in = { "s[2,3,3]" }, .flags = SAMPLE_BATCH },
                                            SAMPLE_END };
OP(svd, .doc = "singular value decomposition A = U diag(S) V', S in descending order", .min_in = 1,
   .max_in = 1, .n_out = 3, .cast = CAST_F32, .types = TYPES, .infer = svd_infer,
   .ref = aril__lapack_svd, .workspace = aril__lapack_svd_scratch, .vjp = svd_vjp,
   .saves = { OUT(0) | OUT(1) | OUT(2) }, .samples = svd_samples);

/* ---- eigh ---- */

static aril_status eigh_infer(aril__call *c)
{
    aril_status s = aril__matrix_check(c, 0, true);
    if (s < 0) return s;
    set_out(c, 0, 1, 0, aril__matrix_side(c->in[0]));
    set_out(c, 1, 2, aril__matrix_side(c->in[0]), aril__matrix_side(c->in[0]));
    return ARIL_OK;
}

VJP(eigh) /* dA = V (diag(gL) + V' gV / gaps) V', its symmetric part */
{
    aril_tensor *l = c->y[0], *v = c->y[1], *sum = NULL;
    if (!c->wants[0]) return;
    if (c->g[1]) sum = mm(v, mm(over_gaps(mm(tr(v), c->g[1]), l), tr(v)));
    if (c->g[0]) sum = plus(sum, mm(aril_mul(v, row(c->g[0])), tr(v)));
    c->dx[0] = sum ? half_sum_with_transpose(sum) : NULL;
}

static const aril__sample eigh_samples[] = { { .in = { "s[3,3]" } },
                                             { .in = { "[3,3]" } },
                                             { .in = { "s[2,3,3]" }, .flags = SAMPLE_BATCH },
                                             { .in = { "[1,1]" } },
                                             { .in = { "[0,0]" }, .flags = SAMPLE_NO_GRAD },
                                             SAMPLE_END };
OP(eigh, .doc = "eigenvalues, in ascending order, and eigenvectors of symmetric matrices",
   .min_in = 1, .max_in = 1, .n_out = 2, .cast = CAST_F32, .types = TYPES, .infer = eigh_infer,
   .ref = aril__lapack_eigh, .workspace = aril__lapack_eigh_scratch, .vjp = eigh_vjp,
   .saves = { OUT(0) | OUT(1) }, .samples = eigh_samples);

/* ---- pinv ---- */

ATTR_LIST(pinv, PINV_ATTRS)

static aril_status pinv_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    aril_status s = aril__matrix_check(c, 0, false);
    if (s == ARIL_OK) set_out(c, 0, 2, x->dim[x->ndim - 1], x->dim[x->ndim - 2]);
    return s;
}

VJP(pinv) /* dA = -P' G P' + (I - A P) G' P P' + P' P G' (I - P A) */
{
    aril_tensor *a = c->x[0], *p = c->y[0], *g = c->g[0];
    if (!g || !c->wants[0]) return;
    aril_tensor *left = mm(tr(g), mm(p, tr(p))), *right = mm(mm(tr(p), p), tr(g));
    left = aril_sub(left, mm(a, mm(p, left)));
    right = aril_sub(right, mm(mm(right, p), a));
    c->dx[0] = aril_sub(aril_add(left, right), mm(tr(p), mm(g, tr(p))));
}

static const aril__sample pinv_samples[] = {
    { .in = { "s[3,3]" }, .attrs = &(const struct pinv_attrs){ { -1 } } },
    { .in = { "[4,2]" }, .attrs = &(const struct pinv_attrs){ { 1e-12 } } },
    { .in = { "s[2,3,3]" }, .attrs = &(const struct pinv_attrs){ { -1 } }, .flags = SAMPLE_BATCH },
    { .in = { "[2,4]" }, .attrs = &(const struct pinv_attrs){ { -1 } } },
    SAMPLE_END
};
OP(pinv, .doc = "pseudo-inverse (Moore-Penrose)", .min_in = 1, .max_in = 1, .n_out = 1,
   .cast = CAST_F32, .types = TYPES, .infer = pinv_infer, .ref = aril__lapack_pinv,
   .workspace = aril__lapack_pinv_scratch, .vjp = pinv_vjp, .saves = { IN(0) | OUT(0) },
   .samples = pinv_samples, WITH_ATTRS(pinv));
