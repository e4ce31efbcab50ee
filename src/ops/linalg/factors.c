/* LU factorization, and eigenvalues of general matrices: complex numbers are pairs [...,2]. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/linalg/lapack.h"
#include "ops/linalg/linalg.h"
#include "ops/table/apply.h"
#include "ops/table/sample.h"

enum { TYPES = DT(ARIL_F32) | DT(ARIL_F64) };

static aril_tensor *tr(aril_tensor *x)
{
    return aril_transpose(x, -2, -1);
}

/* ---- lu ---- */

static aril_status lu_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    aril_status s = aril__matrix_check(c, 0, false);
    if (s < 0) return s;
    int64_t m = x->dim[x->ndim - 2], n = x->dim[x->ndim - 1], k = aril__matrix_smaller(x);
    aril__matrix_out(c, 0, 2, (int64_t[]){ m, m });
    aril__matrix_out(c, 1, 2, (int64_t[]){ m, k });
    aril__matrix_out(c, 2, 2, (int64_t[]){ k, n });
    return ARIL_OK;
}

/* inverse(L)' X and X inverse(U)' */
static aril_tensor *over_lower(aril_tensor *l, aril_tensor *x)
{
    aril_triangular_opts o = { .transpose = true, .unitriangular = true };
    return aril_triangular_solve(l, x, o);
}

static aril_tensor *over_upper(aril_tensor *x, aril_tensor *u)
{
    aril_triangular_opts o = { .upper = true, .transpose = true, .right = true };
    return aril_triangular_solve(u, x, o);
}

/* The square part: inverse(L)' (lower(L' gL - more_lower) + upper(gU U' - more_upper)) inverse(U)'
 * where lower leaves out the diagonal. */
static aril_tensor *lu_square(aril_tensor *l, aril_tensor *u, aril_tensor *gl, aril_tensor *gu,
                              aril_tensor *more_lower, aril_tensor *more_upper)
{
    aril_tensor *lower = aril_matmul(tr(l), gl), *upper = aril_matmul(gu, tr(u));
    if (more_lower) lower = aril_sub(lower, more_lower);
    if (more_upper) upper = aril_sub(upper, more_upper);
    aril_tensor *both = aril_add(aril_tril(lower, -1), aril_triu(upper, 0));
    return over_upper(over_lower(l, both), u);
}

static aril_tensor *rows(aril_tensor *x, int64_t begin, int64_t end)
{
    return aril_slice(x, -2, begin, end, 1);
}

static aril_tensor *columns(aril_tensor *x, int64_t begin, int64_t end)
{
    return aril_slice(x, -1, begin, end, 1);
}

VJP(lu)
{
    aril_tensor *p = c->y[0], *l = c->y[1], *u = c->y[2], *da;
    if (!c->wants[0] || (!c->g[1] && !c->g[2])) return;
    int64_t m = l->dim[l->ndim - 2], k = l->dim[l->ndim - 1], n = u->dim[u->ndim - 1];
    if (m < 0 || n < 0) {
        c->dx[0] = aril__sizes_unknown(c->op);
        return;
    }
    aril_tensor *gl = c->g[1] ? c->g[1] : aril_zeros_like(l);
    aril_tensor *gu = c->g[2] ? c->g[2] : aril_zeros_like(u);
    if (m < n) { /* A = P L [U1 U2] */
        aril_tensor *u1 = columns(u, 0, k), *u2 = columns(u, k, n), *g2 = columns(gu, k, n);
        aril_tensor *more = aril_matmul(g2, tr(u2));
        da = lu_square(l, u1, gl, columns(gu, 0, k), more, NULL);
        da = aril_cat(ARIL_LIST(da, over_lower(l, g2)), -1);
    } else if (m > n) { /* A = P [L1; L2] U */
        aril_tensor *l1 = rows(l, 0, k), *l2 = rows(l, k, m), *g2 = rows(gl, k, m);
        aril_tensor *more = aril_matmul(tr(l2), g2);
        da = lu_square(l1, u, rows(gl, 0, k), gu, NULL, more);
        da = aril_cat(ARIL_LIST(da, over_upper(g2, u)), -2);
    } else {
        da = lu_square(l, u, gl, gu, NULL, NULL);
    }
    c->dx[0] = aril_matmul(p, da);
}

static const aril__sample lu_samples[] = { { .in = { "s[3,3]" } },
                                           { .in = { "s[2,3,3]" }, .flags = SAMPLE_BATCH },
                                           { .in = { "d[4,2]" } },
                                           { .in = { "d[2,4]" } },
                                           { .in = { "z[1,1]" } },
                                           { .in = { "[3,0]" }, .flags = SAMPLE_NO_GRAD },
                                           { .in = { "[0,2]" }, .flags = SAMPLE_NO_GRAD },
                                           SAMPLE_END };
OP(lu, .doc = "LU decomposition with row pivoting: A = P L U", .min_in = 1, .max_in = 1, .n_out = 3,
   .cast = CAST_F32, .types = TYPES, .infer = lu_infer, .ref = aril__lapack_lu,
   .workspace = aril__lapack_lu_scratch, .vjp = lu_vjp, .saves = { OUT(0) | OUT(1) | OUT(2) },
   .samples = lu_samples);

aril_tensor *aril_lu(aril_tensor *a, aril_tensor **l, aril_tensor **u)
{
    aril_tensor *out[ARIL__MAX_OUT];
    aril__apply(&aril__op_lu, 1, &a, NULL, out);
    if (l) *l = out[1];
    if (u) *u = out[2];
    return out[0];
}

/* ---- complex matrices, for the gradient of eig ---- */

typedef struct complex_tensor {
    aril_tensor *re, *im;
} complex_tensor;

static complex_tensor split(aril_tensor *pairs)
{
    return (complex_tensor){ aril_select(pairs, -1, 0), aril_select(pairs, -1, 1) };
}

static complex_tensor c_mul(complex_tensor a, complex_tensor b)
{
    return (complex_tensor){ aril_sub(aril_mul(a.re, b.re), aril_mul(a.im, b.im)),
                             aril_add(aril_mul(a.re, b.im), aril_mul(a.im, b.re)) };
}

static complex_tensor c_matmul(complex_tensor a, complex_tensor b)
{
    return (complex_tensor){ aril_sub(aril_matmul(a.re, b.re), aril_matmul(a.im, b.im)),
                             aril_add(aril_matmul(a.re, b.im), aril_matmul(a.im, b.re)) };
}

/* The conjugate transpose. */
static complex_tensor c_adjoint(complex_tensor a)
{
    return (complex_tensor){ tr(a.re), aril_neg(tr(a.im)) };
}

/* The real part of inverse(A) B, of A [n,n], by the real system [[re -im] [im re]]. */
static aril_tensor *c_solve_real_part(complex_tensor a, complex_tensor b, int64_t n)
{
    aril_tensor *upper = aril_cat(ARIL_LIST(a.re, aril_neg(a.im)), -1);
    aril_tensor *lower = aril_cat(ARIL_LIST(a.im, a.re), -1);
    aril_tensor *x =
        aril_solve(aril_cat(ARIL_LIST(upper, lower), -2), aril_cat(ARIL_LIST(b.re, b.im), -2));
    return rows(x, 0, n);
}

/* ---- eig ---- */

static aril_status eig_infer(aril__call *c)
{
    aril_status s = aril__matrix_check(c, 0, true);
    if (s < 0) return s;
    if (c->in[0]->ndim + 1 > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE,
                          "eig: the eigenvectors would have %d dimensions, more than %d",
                          c->in[0]->ndim + 1, ARIL_MAX_DIMS);
    int64_t n = aril__matrix_side(c->in[0]);
    aril__matrix_out(c, 0, 2, (int64_t[]){ n, 2 });
    aril__matrix_out(c, 1, 3, (int64_t[]){ n, n, 2 });
    return ARIL_OK;
}

/* V' gV, less what only changes the length of a vector, divided by the conjugate gaps between
 * eigenvalues; 0 on the diagonal. V' is the conjugate transpose. */
static complex_tensor eig_inner(complex_tensor l, complex_tensor v, complex_tensor gv)
{
    complex_tensor vh = c_adjoint(v), x = c_matmul(vh, gv);
    aril_tensor *lengths = aril_unsqueeze(aril_diagonal(x.re, 0, -2, -1), -2);
    complex_tensor scaled = { aril_mul(v.re, lengths), aril_mul(v.im, lengths) };
    complex_tensor along = c_matmul(vh, scaled);
    x = (complex_tensor){ aril_sub(x.re, along.re), aril_sub(x.im, along.im) };
    complex_tensor gap = { aril_sub(aril_unsqueeze(l.re, -2), aril_unsqueeze(l.re, -1)),
                           aril_sub(aril_unsqueeze(l.im, -2), aril_unsqueeze(l.im, -1)) };
    aril_tensor *eye = aril__eye_like(gap.re);
    gap.re = aril_add(gap.re, eye); /* nothing is divided by 0; cleared below */
    aril_tensor *size = aril_add(aril_square(gap.re), aril_square(gap.im));
    x = c_mul(x, gap);
    aril_tensor *off = aril_div(aril_sub(aril_ones_like(eye), eye), size);
    return (complex_tensor){ aril_mul(x.re, off), aril_mul(x.im, off) };
}

VJP(eig) /* dA = the real part of inverse(V)' (diag(gL) + inner) V' */
{
    aril_tensor *gl = c->g[0], *gv = c->g[1];
    if (!c->wants[0] || (!gl && !gv)) return;
    int64_t n = c->y[0]->dim[c->y[0]->ndim - 2];
    if (n < 0) {
        c->dx[0] = aril__sizes_unknown(c->op);
        return;
    }
    complex_tensor l = split(c->y[0]), v = split(c->y[1]), x = { NULL, NULL };
    if (gv) x = eig_inner(l, v, split(gv));
    if (gl) {
        complex_tensor g = split(gl);
        aril_tensor *eye = aril__eye_like(v.re);
        aril_tensor *re = aril_mul(eye, aril_unsqueeze(g.re, -1));
        aril_tensor *im = aril_mul(eye, aril_unsqueeze(g.im, -1));
        x = gv ? (complex_tensor){ aril_add(x.re, re), aril_add(x.im, im) }
               : (complex_tensor){ re, im };
    }
    complex_tensor vh = c_adjoint(v);
    c->dx[0] = c_solve_real_part(vh, c_matmul(x, vh), n);
}

static const aril__sample eig_samples[] = { { .in = { "s[3,3]" } },
                                            { .in = { "s[2,3,3]" }, .flags = SAMPLE_BATCH },
                                            { .in = { "z[1,1]" } },
                                            { .in = { "[4,4]" },
                                              .flags = SAMPLE_NO_GRAD | SAMPLE_NO_LOW },
                                            { .in = { "[0,0]" }, .flags = SAMPLE_NO_GRAD },
                                            SAMPLE_END };
OP(eig, .doc = "complex eigenvalues and eigenvectors of square matrices, in pairs [...,2]",
   .min_in = 1, .max_in = 1, .n_out = 2, .cast = CAST_F32, .types = TYPES, .infer = eig_infer,
   .ref = aril__lapack_eig, .workspace = aril__lapack_eig_scratch, .vjp = eig_vjp,
   .saves = { OUT(0) | OUT(1) }, .samples = eig_samples);

aril_tensor *aril_eig(aril_tensor *a, aril_tensor **vectors)
{
    aril_tensor *out[ARIL__MAX_OUT];
    aril__apply(&aril__op_eig, 1, &a, NULL, out);
    if (vectors) *vectors = out[1];
    return out[0];
}

aril_tensor *aril_eigvals(aril_tensor *a)
{
    ARIL_SCOPE;
    return aril_escape(aril_eig(a, NULL));
}

/* ---- rank ---- */

aril_tensor *aril_matrix_rank(aril_tensor *a, aril_rank_opts opts)
{
    if (!a) return aril__null_tensor("matrix_rank");
    if (aril__is_poison(a)) return aril__pass_on(a);
    if (!(opts.atol >= 0) || !(opts.rtol >= 0 || opts.rtol == ARIL_ZERO)) {
        aril__fail(ARIL_ERR_ARG,
                   "matrix_rank: tolerances must not be negative, got atol %g and rtol %g",
                   opts.atol, opts.rtol);
        return aril__poison();
    }
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *s = opts.symmetric ? aril_abs(aril_eigh(a, NULL)) : aril_svdvals(a);
    if (aril__is_poison(s)) return aril_escape(aril__pass_on(s));
    int64_t m = a->dim[a->ndim - 2], n = a->dim[a->ndim - 1];
    double epsilon = a->dtype == ARIL_F64 ? 0x1p-52 : 0x1p-23, rtol = opts.rtol;
    if (rtol == ARIL_ZERO)
        rtol = 0;
    else if (rtol == 0 && opts.atol == 0)
        rtol = (double)(m > n ? m : n) * epsilon;
    if (m == 0 || n == 0) /* no singular values: no largest one */
        return aril_escape(aril_sum(aril_cast(s, ARIL_I64), ARIL_AXES(-1)));
    aril_tensor *limit = aril_mul_scalar(aril_amax(s, ARIL_KEEPDIM(-1)), rtol);
    limit = aril_clamp_min(limit, opts.atol);
    return aril_escape(aril_sum(aril_cast(aril_gt(s, limit), ARIL_I64), ARIL_AXES(-1)));
}
