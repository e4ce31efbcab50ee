/* The exponential of a matrix: scaling and squaring of a Taylor polynomial. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/view.h"
#include "ops/linalg/linalg.h"
#include "ops/linalg/matrix_exp.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/table/sample.h"

#include <math.h>
#include <stdlib.h>

enum { DEGREE = 20 };

static aril_status matrix_exp_infer(aril__call *c)
{
    aril_status s = aril__matrix_check(c, 0, true);
    if (s < 0) return s;
    int64_t n = aril__matrix_side(c->in[0]);
    aril__matrix_out(c, 0, 2, (int64_t[]){ n, n });
    return ARIL_OK;
}

/* ---- the algorithm ---- */

/* 1 / k! */
static double coefficient(int k)
{
    double c = 1;
    for (int i = 2; i <= k; i++) c /= i;
    return c;
}

/* The largest sum of a column's absolute values; NaN if there is one. */
static double norm_of(int64_t n, const double *x)
{
    double max = 0;
    for (int64_t c = 0; c < n; c++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += fabs(x[i * n + c]);
        if (!(sum <= max)) max = sum;
    }
    return max;
}

/* How many times halving brings the norm down to 1. */
static int halvings(double norm)
{
    int exponent;
    if (!isfinite(norm) || norm <= 1) return 0;
    return frexp(norm, &exponent) == 0.5 ? exponent - 1 : exponent;
}

/* The Taylor polynomial of degree 20 in blocks of four powers, so that it takes 8 products:
 *     (block 0) + X^4 ((block 1) + X^4 (... + X^4 ((block 4) + X^4 / 20!)))
 * For a norm up to 1 the first term left out is below 1e-19. power: X and room for X^2, X^3,
 * X^4. */
static void taylor(int64_t n, double *const power[4], double *y, double *next,
                   aril__multiply_fn *multiply)
{
    size_t all = (size_t)(n * n);
    for (int i = 1; i < 4; i++) multiply(n, power[i - 1], power[0], power[i]);
    for (size_t k = 0; k < all; k++) y[k] = 0;
    for (int64_t i = 0; i < n; i++) y[i * n + i] = coefficient(DEGREE);
    for (int block = DEGREE / 4 - 1; block >= 0; block--) {
        multiply(n, y, power[3], next);
        for (size_t k = 0; k < all; k++)
            y[k] = next[k] + coefficient(4 * block + 1) * power[0][k] +
                   coefficient(4 * block + 2) * power[1][k] +
                   coefficient(4 * block + 3) * power[2][k];
        for (int64_t i = 0; i < n; i++) y[i * n + i] += coefficient(4 * block);
    }
}

/* exp(X) = exp(X / 2^s)^(2^s) */
static void exponential(int64_t n, double *const power[4], double **y, double **next,
                        aril__multiply_fn *multiply)
{
    int squarings = halvings(norm_of(n, power[0]));
    for (int64_t k = 0; k < n * n; k++) power[0][k] = ldexp(power[0][k], -squarings);
    taylor(n, power, *y, *next, multiply);
    for (int i = 0; i < squarings; i++) {
        double *square = *next;
        multiply(n, *y, *y, square);
        *next = *y;
        *y = square;
    }
}

aril_status aril__matrix_exp(aril__run *r, aril__multiply_fn *multiply)
{
    const aril_tensor *x = r->in[0];
    if (x->numel == 0) return ARIL_OK;
    int64_t n = x->dim[x->ndim - 1], all = n * n;
    double *scratch = r->workspace;
    double *const power[4] = { scratch, scratch + all, scratch + 2 * all, scratch + 3 * all };
    double *y = scratch + 4 * all, *next = scratch + 5 * all;
    for (int64_t at = 0; at < x->numel; at += all) {
        for (int64_t k = 0; k < all; k++) power[0][k] = aril__get(x, at + k);
        exponential(n, power, &y, &next, multiply);
        for (int64_t k = 0; k < all; k++) aril__put(r->out[0], at + k, y[k]);
    }
    return ARIL_OK;
}

size_t aril__matrix_exp_scratch(const aril__run *r)
{
    int64_t n = r->in[0]->dim[r->in[0]->ndim - 1];
    return 6 * (size_t)(n * n) * sizeof(double);
}

static void multiply_plainly(int64_t n, const double *a, const double *b, double *c)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}

static aril_status matrix_exp_ref(aril__run *r)
{
    return aril__matrix_exp(r, multiply_plainly);
}

/* ---- the op ---- */

/* exp([[A' G] [0 A']]) = [[exp(A') dA] [0 exp(A')]] */
VJP(matrix_exp)
{
    aril_tensor *g = c->g[0];
    if (!g || !c->wants[0]) return;
    int64_t n = aril__matrix_side(c->x[0]);
    if (n < 0) {
        c->dx[0] = aril__sizes_unknown(c->op);
        return;
    }
    aril_tensor *a = aril_transpose(c->x[0], -2, -1);
    aril_tensor *upper = aril_cat(ARIL_LIST(a, g), -1);
    aril_tensor *lower = aril_cat(ARIL_LIST(aril_zeros_like(a), a), -1);
    aril_tensor *e = aril_matrix_exp(aril_cat(ARIL_LIST(upper, lower), -2));
    c->dx[0] = aril_slice(aril_slice(e, -2, 0, n, 1), -1, n, 2 * n, 1);
}

static const aril__sample matrix_exp_samples[] = { { .in = { "[3,3]" } },
                                                   { .in = { "[2,3,3]" }, .flags = SAMPLE_BATCH },
                                                   { .in = { "[1,1]" } },
                                                   { .in = { "[0,0]" } },
                                                   SAMPLE_END };
OP(matrix_exp, .doc = "matrix exponential of square matrices", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED, .types = DT_FLOAT, .infer = matrix_exp_infer, .ref = matrix_exp_ref,
   .workspace = aril__matrix_exp_scratch, .vjp = matrix_exp_vjp, .saves = { IN(0) },
   .samples = matrix_exp_samples);

aril_tensor *aril_matrix_exp(aril_tensor *a)
{
    return aril__op(&aril__op_matrix_exp, a);
}
