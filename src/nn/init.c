/* Initialization of parameters. */
#include "nn/module.h"

#include "aril/init.h"
#include "aril/create.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Checks a tensor to be filled, which needs at least `least` dimensions. */
static aril_status check(const char *what, const aril_tensor *t, int min)
{
    aril_status s = aril__check_value(what, t);
    if (s == ARIL_OK && t->ndim < min)
        s = aril__fail(ARIL_ERR_SHAPE, "%s: expected a tensor of at least %d dimensions, got %d",
                       what, min, t->ndim);
    return s;
}

/* Copies values, in logical order, into t and frees them; NULL values mean out of memory. */
static aril_tensor *put(const char *what, aril_tensor *t, double *values)
{
    if (!values) {
        aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for %lld numbers", what,
                   (long long)t->numel);
        return aril__poison();
    }
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *from = aril_from(values, aril__shape(t), ARIL_F64, aril_cpu());
    free(values);
    return aril_escape(aril_copy_(t, aril_to(from, aril_device_of(t))));
}

static double *numbers(const aril_tensor *t)
{
    return aril__calloc(((size_t)t->numel + 1) * sizeof(double));
}

/* Draws one random number per element of t, uniform in [0, 1) or normal. NULL with an error. */
static double *draw(const aril_tensor *t, bool normal)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    double *to = numbers(t);
    aril_shape shape = aril__shape(t);
    aril_tensor *r =
        normal ? aril_randn(shape, ARIL_F64, aril_cpu()) : aril_rand(shape, ARIL_F64, aril_cpu());
    if (to && aril_read(r, to) == ARIL_OK) return to;
    free(to);
    return NULL;
}

/* ---- the same distribution for all elements ---- */

aril_tensor *aril_init_uniform(aril_tensor *t, double low, double high)
{
    if (check("init_uniform", t, 0) < 0) return aril__poison();
    if (aril__sketching()) return t;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    return aril_escape(aril_uniform_(t, low, high));
}

aril_tensor *aril_init_normal(aril_tensor *t, double mean, double std)
{
    if (check("init_normal", t, 0) < 0) return aril__poison();
    if (aril__sketching()) return t;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    return aril_escape(aril_normal_(t, mean, std));
}

/* Inverse of the normal CDF: Newton's method, with bisection where a step leaves the bracket. */
static double normal_quantile(double p)
{
    double low = -40, high = 40, x = 0;
    for (int i = 0; i < 100; i++) {
        double error = 0.5 * erfc(-x * M_SQRT1_2) - p;
        double slope = exp(-0.5 * x * x) * 0.39894228040143267794;
        double next = slope > 0 ? x - error / slope : x;
        if (error == 0 || fabs(next - x) <= 1e-15 * fabs(x)) return x;
        *(error > 0 ? &high : &low) = x;
        x = next > low && next < high ? next : 0.5 * (low + high);
    }
    return x;
}

aril_tensor *aril_init_truncated_normal(aril_tensor *t, double mean, double std, double low,
                                        double high)
{
    const char *what = "init_truncated_normal";
    if (check(what, t, 0) < 0) return aril__poison();
    if (!(low < high) || !(std > 0)) {
        aril__fail(ARIL_ERR_ARG, "%s: from %g to %g with deviation %g", what, low, high, std);
        return aril__poison();
    }
    if (aril__sketching()) return t;
    /* So far out that a cut has no effect: less than one in 10^18 numbers is there. */
    if (mean - low > 9 * std && high - mean > 9 * std) return aril_init_normal(t, mean, std);
    /* Sample uniformly between the CDF values of the two bounds. */
    double from = 0.5 * erfc(-(low - mean) / std * M_SQRT1_2);
    double to = 0.5 * erfc(-(high - mean) / std * M_SQRT1_2);
    double *v = draw(t, false);
    for (int64_t i = 0; v && i < t->numel; i++) {
        double x = mean + std * normal_quantile(from + (to - from) * v[i]);
        v[i] = x < low ? low : x > high ? high : x;
    }
    return put(what, t, v);
}

aril_tensor *aril_init_constant(aril_tensor *t, double value)
{
    if (check("init_constant", t, 0) < 0) return aril__poison();
    if (aril__sketching()) return t;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    return aril_escape(aril_fill_(t, value));
}

aril_tensor *aril_init_zeros(aril_tensor *t)
{
    return aril_init_constant(t, 0);
}

aril_tensor *aril_init_ones(aril_tensor *t)
{
    return aril_init_constant(t, 1);
}

/* ---- scaled by fan-in and fan-out ---- */

aril_status aril_init_fans(const aril_tensor *t, int64_t *in, int64_t *out)
{
    aril_status s = check("init_fans", t, 2);
    if (s < 0) return s;
    int64_t field = 1;
    for (int i = 2; i < t->ndim; i++) field *= t->dim[i];
    if (in) *in = t->dim[1] * field;
    if (out) *out = t->dim[0] * field;
    return ARIL_OK;
}

double aril_init_gain(const char *nonlinearity, double a)
{
    static const struct {
        const char *name;
        double gain;
    } known[] = { { "linear", 1 },           { "conv1d", 1 },           { "conv2d", 1 },
                  { "conv3d", 1 },           { "conv_transpose1d", 1 }, { "conv_transpose2d", 1 },
                  { "conv_transpose3d", 1 }, { "sigmoid", 1 },          { "tanh", 5.0 / 3 },
                  { "relu", M_SQRT2 },       { "selu", 0.75 } };
    if (nonlinearity && strcmp(nonlinearity, "leaky_relu") == 0) return sqrt(2 / (1 + a * a));
    for (size_t i = 0; nonlinearity && i < sizeof known / sizeof *known; i++)
        if (strcmp(nonlinearity, known[i].name) == 0) return known[i].gain;
    aril__fail(ARIL_ERR_ARG,
               "init_gain: no \"%s\"; expected linear, conv1d to conv3d, conv_transpose1d to "
               "conv_transpose3d, sigmoid, tanh, relu, leaky_relu, selu",
               nonlinearity ? nonlinearity : "NULL");
    return NAN;
}

static aril_tensor *xavier(aril_tensor *t, double gain, bool normal)
{
    int64_t in, out;
    if (aril_init_fans(t, &in, &out) < 0) return aril__poison();
    double sum = (double)(in + out), std = sum > 0 ? (gain != 0 ? gain : 1) * sqrt(2 / sum) : 0;
    return normal ? aril_init_normal(t, 0, std)
                  : aril_init_uniform(t, -sqrt(3.0) * std, sqrt(3.0) * std);
}

aril_tensor *aril_init_xavier_uniform(aril_tensor *t, double gain)
{
    return xavier(t, gain, false);
}

aril_tensor *aril_init_xavier_normal(aril_tensor *t, double gain)
{
    return xavier(t, gain, true);
}

static aril_tensor *kaiming(aril_tensor *t, aril_kaiming_opts opts, bool normal)
{
    int64_t in, out;
    if (aril_init_fans(t, &in, &out) < 0) return aril__poison();
    double gain = aril_init_gain(opts.nonlinearity ? opts.nonlinearity : "leaky_relu", opts.a);
    if (isnan(gain)) return aril__poison();
    double fan = (double)(opts.fan_out ? out : in), std = fan > 0 ? gain / sqrt(fan) : 0;
    return normal ? aril_init_normal(t, 0, std)
                  : aril_init_uniform(t, -sqrt(3.0) * std, sqrt(3.0) * std);
}

aril_tensor *aril_init_kaiming_uniform(aril_tensor *t, aril_kaiming_opts opts)
{
    return kaiming(t, opts, false);
}

aril_tensor *aril_init_kaiming_normal(aril_tensor *t, aril_kaiming_opts opts)
{
    return kaiming(t, opts, true);
}

/* ---- matrices ---- */

#if ARIL_HAVE_LAPACK

/* Orthonormalizes the columns of the n x m matrix v (n >= m) in place, as QR with a positive
 * diagonal of R does. */
static aril_status orthonormal(double *v, int64_t n, int64_t m)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *r, *q = aril_qr(aril_from(v, ARIL_SHAPE(n, m), ARIL_F64, aril_cpu()), &r);
    q = aril_mul(q, aril_sign(aril_diagonal(r, 0, 0, 1)));
    return aril_read(q, v);
}

#else

/* The same by Gram-Schmidt; each column twice, to remove rounding errors. */
static aril_status orthonormal(double *v, int64_t n, int64_t m)
{
    for (int64_t j = 0; j < m; j++) {
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t k = 0; k < j; k++) {
                double dot = 0;
                for (int64_t i = 0; i < n; i++) dot += v[i * m + k] * v[i * m + j];
                for (int64_t i = 0; i < n; i++) v[i * m + j] -= dot * v[i * m + k];
            }
            double norm = 0;
            for (int64_t i = 0; i < n; i++) norm += v[i * m + j] * v[i * m + j];
            norm = sqrt(norm);
            for (int64_t i = 0; i < n && norm > 0; i++) v[i * m + j] /= norm;
        }
    }
    return ARIL_OK;
}

#endif

/* to[j][i] = from[i][j] * by */
static void transpose(const double *from, int64_t n, int64_t m, double by, double *to)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) to[j * n + i] = from[i * m + j] * by;
}

aril_tensor *aril_init_orthogonal(aril_tensor *t, double gain)
{
    const char *what = "init_orthogonal";
    if (check(what, t, 2) < 0) return aril__poison();
    if (t->numel == 0) return t;
    int64_t rows = t->dim[0], columns = t->numel / rows;
    double *v = draw(t, true), *turned = v && rows < columns ? numbers(t) : NULL;
    if (v && rows < columns && !turned) {
        free(v);
        return put(what, t, NULL);
    }
    double by = gain != 0 ? gain : 1;
    aril_status s = ARIL_OK;
    if (turned) {
        transpose(v, rows, columns, 1, turned);
        s = orthonormal(turned, columns, rows);
        transpose(turned, columns, rows, by, v);
    } else if (v) {
        s = orthonormal(v, rows, columns);
        for (int64_t i = 0; i < t->numel; i++) v[i] *= by;
    }
    free(turned);
    if (s < 0) {
        free(v);
        return aril__poison();
    }
    return put(what, t, v);
}

aril_tensor *aril_init_eye(aril_tensor *t)
{
    const char *what = "init_eye";
    if (check(what, t, 0) < 0) return aril__poison();
    if (t->ndim != 2) {
        aril__fail(ARIL_ERR_SHAPE, "%s: expected a matrix, got %d dimensions", what, t->ndim);
        return aril__poison();
    }
    double *v = numbers(t);
    for (int64_t i = 0; v && i < t->dim[0] && i < t->dim[1]; i++) v[i * t->dim[1] + i] = 1;
    return put(what, t, v);
}

aril_tensor *aril_init_dirac(aril_tensor *t, int64_t groups)
{
    const char *what = "init_dirac";
    if (check(what, t, 3) < 0) return aril__poison();
    if (groups < 1 || t->dim[0] % groups) {
        aril__fail(ARIL_ERR_ARG, "%s: %lld groups do not divide %lld outputs", what,
                   (long long)groups, (long long)t->dim[0]);
        return aril__poison();
    }
    int64_t each = t->dim[0] / groups, field = 1, middle = 0;
    for (int i = 2; i < t->ndim; i++) {
        field *= t->dim[i];
        middle = middle * t->dim[i] + t->dim[i] / 2;
    }
    double *v = numbers(t);
    for (int64_t o = 0; v && field && o < t->dim[0]; o++)
        if (o % each < t->dim[1]) v[(o * t->dim[1] + o % each) * field + middle] = 1;
    return put(what, t, v);
}

typedef struct key {
    double at;
    int64_t row;
} key;

static int by_key(const void *a, const void *b)
{
    double x = ((const key *)a)->at, y = ((const key *)b)->at;
    return (x > y) - (x < y);
}

aril_tensor *aril_init_sparse(aril_tensor *t, double sparsity, double std)
{
    const char *what = "init_sparse";
    if (check(what, t, 0) < 0) return aril__poison();
    if (t->ndim != 2 || !(sparsity >= 0 && sparsity <= 1)) {
        aril__fail(ARIL_ERR_ARG, "%s: expected a matrix and a fraction between 0 and 1", what);
        return aril__poison();
    }
    int64_t rows = t->dim[0], columns = t->dim[1], zeros = (int64_t)ceil(sparsity * (double)rows);
    double *v = draw(t, true), *where = v ? draw(t, false) : NULL;
    key *order = where ? aril__malloc(((size_t)rows + 1) * sizeof *order) : NULL;
    if (!order) {
        free(v);
        v = NULL;
    }
    for (int64_t j = 0; v && j < columns; j++) {
        for (int64_t i = 0; i < rows; i++) order[i] = (key){ where[i * columns + j], i };
        qsort(order, (size_t)rows, sizeof *order, by_key);
        for (int64_t i = 0; i < rows; i++) v[order[i].row * columns + j] *= i < zeros ? 0 : std;
    }
    free(order);
    free(where);
    return put(what, t, v);
}

aril_tensor *aril_init_from(aril_tensor *t, aril_init_element *fn, void *ctx)
{
    const char *what = "init_from";
    if (check(what, t, 0) < 0) return aril__poison();
    if (!fn) {
        aril__fail(ARIL_ERR_ARG, "%s: the function is NULL", what);
        return aril__poison();
    }
    int64_t at[ARIL_MAX_DIMS] = { 0 };
    double *v = numbers(t);
    for (int64_t i = 0; v && i < t->numel; i++) {
        v[i] = fn(at, t->ndim, ctx);
        for (int d = t->ndim - 1; d >= 0 && ++at[d] == t->dim[d]; d--) at[d] = 0;
    }
    return put(what, t, v);
}

/* ---- parameters by name ---- */

static bool fits(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            from = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) { /* the last star matches one more character */
            pattern = star;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

int aril_module_init(aril_module *m, const char *pattern, aril_init_fn *fn, void *ctx)
{
    if (!pattern || !fn)
        return aril__fail(ARIL_ERR_ARG, "module_init: the %s is NULL", fn ? "pattern" : "function");
    const aril_named *all = aril_parameters(m);
    if (!all) return aril__last_status();
    int n = 0;
    for (int i = 0; i < all->n; i++) {
        if (!fits(pattern, all->name[i])) continue;
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        fn(all->at[i], all->name[i], ctx);
        n++;
    }
    if (n) return n;
    char names[400] = "";
    for (int i = 0; i < all->n; i++) {
        size_t at = strlen(names);
        bool fits = at + strlen(all->name[i]) + 8 < sizeof names;
        snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                 fits ? all->name[i] : "...");
        if (!fits) break;
    }
    return aril__fail(ARIL_ERR_ARG,
                      "module_init: no parameter matches \"%s\"; the parameters are %s", pattern,
                      *names ? names : "none");
}
