/* Linear algebra: the public functions, and composite ones. */
#include "aril/create.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/autocast.h"
#include "ops/linalg/lapack.h"
#include "ops/linalg/linalg.h"
#include "ops/shape/view.h"

/* Returns poison if x is NULL or poisoned; NULL: continue. */
static aril_tensor *refuse(const char *what, aril_tensor *x)
{
    if (!x) return aril__null_tensor(what);
    return aril__is_poison(x) ? aril__pass_on(x) : NULL;
}

static aril_tensor *refuse_two(const char *what, aril_tensor *a, aril_tensor *b)
{
    aril_tensor *bad = refuse(what, a);
    return bad ? bad : refuse(what, b);
}

static aril_tensor *fail_shape(const char *what, const char *needs, const aril_tensor *x)
{
    char text[ARIL__SHAPE_TEXT];
    aril__fail(ARIL_ERR_SHAPE, "%s: needs %s, got %s", what, needs, aril__text(text, x));
    return aril__poison();
}

/* ---- results of table ops ---- */

static aril_tensor *several(const aril__op *op, aril_tensor *x, aril_tensor **second,
                            aril_tensor **third)
{
    aril_tensor *out[ARIL__MAX_OUT];
    aril__apply(op, 1, &x, NULL, out);
    if (second) *second = out[1];
    if (third) *third = out[2];
    return out[0];
}

aril_tensor *aril_inverse(aril_tensor *a)
{
    return aril__op(&aril__op_inverse, a);
}

aril_tensor *aril_det(aril_tensor *a)
{
    return aril__op(&aril__op_det, a);
}

aril_tensor *aril_slogdet(aril_tensor *a, aril_tensor **logabsdet)
{
    return several(&aril__op_slogdet, a, logabsdet, NULL);
}

aril_tensor *aril_cholesky(aril_tensor *a, bool upper)
{
    struct cholesky_attrs at = { { upper } };
    return aril__op_with(&at, &aril__op_cholesky, a);
}

aril_tensor *aril_qr(aril_tensor *a, aril_tensor **r)
{
    return several(&aril__op_qr, a, r, NULL);
}

aril_tensor *aril_svd(aril_tensor *a, aril_tensor **s, aril_tensor **vh)
{
    return several(&aril__op_svd, a, s, vh);
}

aril_tensor *aril_svdvals(aril_tensor *a)
{
    ARIL_SCOPE;
    aril_tensor *s;
    several(&aril__op_svd, a, &s, NULL);
    return aril_escape(s);
}

aril_tensor *aril_eigh(aril_tensor *a, aril_tensor **vectors)
{
    return several(&aril__op_eigh, a, vectors, NULL);
}

aril_tensor *aril_pinv(aril_tensor *a, double rcond)
{
    struct pinv_attrs at = { { rcond > 0 ? rcond : -1 } };
    return aril__op_with(&at, &aril__op_pinv, a);
}

/* ---- systems of equations ---- */

aril_tensor *aril_solve(aril_tensor *a, aril_tensor *b)
{
    aril_tensor *bad = refuse_two("solve", a, b);
    if (bad) return bad;
    /* As in PyTorch, b is a batch of vectors if its shape is a's without the last dimension. */
    bool vector = b->ndim == 1 ||
                  (b->ndim == a->ndim - 1 && aril__same_dims(b->ndim, b->dim, a->ndim - 1, a->dim));
    if (!vector) return aril__op(&aril__op_solve, a, b);
    ARIL_SCOPE;
    aril_tensor *x = aril__op(&aril__op_solve, a, aril_unsqueeze(b, -1));
    if (aril__is_poison(x)) return aril_escape(aril__pass_on(x));
    struct unsqueeze_attrs last = { { 1 << (x->ndim - 1) } };
    return aril_escape(aril__op_with(&last, &aril__op_squeeze, x));
}

aril_tensor *aril_triangular_solve(aril_tensor *a, aril_tensor *b, aril_triangular_opts opts)
{
    aril_tensor *bad = refuse_two("triangular_solve", a, b);
    if (bad) return bad;
    struct triangular_solve_attrs at = { { opts.upper },
                                         { opts.transpose != opts.right },
                                         { opts.unitriangular } };
    if (!opts.right) return aril__op_with(&at, &aril__op_triangular_solve, a, b);
    if (b->ndim < 2) return fail_shape("triangular_solve", "a matrix on the right", b);
    ARIL_SCOPE; /* X A = B is A' X' = B' */
    aril_tensor *x = aril__op_with(&at, &aril__op_triangular_solve, a, aril_transpose(b, -2, -1));
    return aril_escape(aril__is_poison(x) ? aril__pass_on(x) : aril_transpose(x, -2, -1));
}

aril_tensor *aril_cholesky_solve(aril_tensor *b, aril_tensor *l, bool upper)
{
    ARIL_SCOPE;
    aril_triangular_opts first = { .upper = upper, .transpose = upper };
    aril_triangular_opts second = { .upper = upper, .transpose = !upper };
    return aril_escape(aril_triangular_solve(l, aril_triangular_solve(l, b, first), second));
}

aril_tensor *aril_lstsq(aril_tensor *a, aril_tensor *b)
{
    aril_tensor *bad = refuse_two("lstsq", a, b);
    if (bad) return bad;
    if (a->ndim < 2 || b->ndim < 2) return fail_shape("lstsq", "matrices", a->ndim < 2 ? a : b);
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_F32, &a, &b);
    int64_t m = a->dim[a->ndim - 2], n = a->dim[a->ndim - 1];
    bool wide = m >= 0 && n >= 0 && m < n;
    aril_tensor *r, *q = aril_qr(wide ? aril_transpose(a, -2, -1) : a, &r);
    if (aril__is_poison(q)) return aril_escape(aril__pass_on(q));
    if (wide) { /* the minimum-norm solution: A' = Q R, X = Q inverse(R') B */
        aril_triangular_opts o = { .upper = true, .transpose = true };
        return aril_escape(aril_matmul(q, aril_triangular_solve(r, b, o)));
    }
    return aril_escape(aril_triangular_solve(r, aril_matmul(aril_transpose(q, -2, -1), b),
                                             (aril_triangular_opts){ .upper = true }));
}

/* ---- composed of products ---- */

aril_tensor *aril_trace(aril_tensor *x)
{
    aril_tensor *bad = refuse("trace", x);
    if (bad) return bad;
    if (x->ndim != 2) return fail_shape("trace", "a matrix", x);
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_F32, &x);
    return aril_escape(aril_sum(aril_diagonal(x, 0, 0, 1), ARIL_AXES(0)));
}

aril_tensor *aril_matrix_power(aril_tensor *x, int64_t n)
{
    aril_tensor *bad = refuse("matrix_power", x);
    if (bad) return bad;
    if (x->ndim < 2 || x->dim[x->ndim - 2] != x->dim[x->ndim - 1])
        return fail_shape("matrix_power", "square matrices", x);
    if (n == INT64_MIN) {
        aril__fail(ARIL_ERR_ARG, "matrix_power: unsupported power %lld", (long long)n);
        return aril__poison();
    }
    ARIL_SCOPE;
    if (n == 0) return aril_escape(aril__eye_like(x));
    aril_tensor *power = n < 0 ? aril_inverse(x) : x, *y = NULL;
    for (uint64_t left = (uint64_t)(n < 0 ? -n : n); left; left /= 2) {
        if (left & 1) y = y ? aril_matmul(y, power) : power;
        if (left > 1) power = aril_matmul(power, power);
    }
    return aril_escape(y == x ? aril_copy(x) : y);
}

aril_tensor *aril_tensordot(aril_tensor *a, aril_tensor *b, aril_axes a_axes, aril_axes b_axes)
{
    aril_tensor *bad = refuse_two("tensordot", a, b);
    if (bad) return bad;
    if (a_axes.n != b_axes.n) {
        aril__fail(ARIL_ERR_ARG, "tensordot: got %d axes of a and %d of b", a_axes.n, b_axes.n);
        return aril__poison();
    }
    char text[64], *t = text, name[2][ARIL_MAX_DIMS] = { { 0 } };
    for (int i = 0; i < a_axes.n; i++) {
        int p = aril__axis("tensordot", a_axes.axis[i], a->ndim);
        int q = p < 0 ? -1 : aril__axis("tensordot", b_axes.axis[i], b->ndim);
        if (q < 0) return aril__poison();
        if (a->ndim == 0 || b->ndim == 0 || name[0][p] || name[1][q]) {
            aril__fail(ARIL_ERR_ARG, "tensordot: an axis appears twice");
            return aril__poison();
        }
        name[0][p] = name[1][q] = (char)('a' + i);
    }
    for (int d = 0; d < a->ndim; d++) *t++ = name[0][d] ? name[0][d] : (char)('A' + d);
    *t++ = ',';
    for (int d = 0; d < b->ndim; d++)
        *t++ = name[1][d] ? name[1][d] : (char)('A' + ARIL_MAX_DIMS + d);
    *t++ = '-';
    *t++ = '>';
    for (int d = 0; d < a->ndim; d++)
        if (!name[0][d]) *t++ = (char)('A' + d);
    for (int d = 0; d < b->ndim; d++)
        if (!name[1][d]) *t++ = (char)('A' + ARIL_MAX_DIMS + d);
    *t = 0;
    return aril_einsum(text, ARIL_LIST(a, b));
}

aril_tensor *aril_kron(aril_tensor *a, aril_tensor *b)
{
    aril_tensor *bad = refuse_two("kron", a, b);
    if (bad) return bad;
    int n = a->ndim > b->ndim ? a->ndim : b->ndim;
    if (2 * n > ARIL_MAX_DIMS)
        return fail_shape("kron", "at most 4 dimensions", a->ndim > b->ndim ? a : b);
    ARIL_SCOPE;
    /* Interleave the axes of a and b, multiply, then flatten each pair. */
    for (int i = a->ndim; i < n; i++) a = aril_unsqueeze(a, 0);
    for (int i = b->ndim; i < n; i++) b = aril_unsqueeze(b, 0);
    for (int d = 0; d < n; d++) {
        a = aril_unsqueeze(a, 2 * d + 1);
        b = aril_unsqueeze(b, 2 * d);
    }
    aril_tensor *y = aril_mul(a, b);
    for (int d = 0; d < n; d++) y = aril_flatten(y, d, d + 1);
    return aril_escape(y);
}
