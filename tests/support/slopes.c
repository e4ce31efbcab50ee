#include "support/slopes.h"

#include "aril/aril.h"
#include "ops/table/apply.h"
#include "support/run_op.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LEAVES = TEST_INPUTS + TEST_RESULTS, ELEMENTS = 48, ELEMENTS_2 = 16 };

static char text[600];

/* One evaluation: leaves are the inputs, then (for the second derivative) the weights. */
typedef struct problem {
    const test_sample *s;
    bool second;
    int n_leaves, n_in;
    int input_of[MAX_LEAVES]; /* the input, or result, of each leaf */
    aril_tensor *leaf[MAX_LEAVES];
    aril_tensor *in[TEST_INPUTS];
} problem;

static aril_tensor *fixed_values(aril_tensor *like, uint64_t seed)
{
    int64_t n = aril_numel(like);
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = test_random(&seed) * 2 - 0.9;
    aril_tensor *t = aril_cast(aril_from(v, aril_shape_of(like), ARIL_F64, aril_device_of(like)),
                               aril_dtype_of(like));
    free(v);
    return t;
}

static bool is_wanted(const test_sample *s, int i, const aril_tensor *t)
{
    return t && test_sample_wants(s, i) && aril_dtype_is_float(aril_dtype_of(t));
}

/* Results that have a gradient. */
static int differentiable(const test_sample *s, aril_tensor *const *out, aril_tensor **roots,
                          int *which)
{
    int n = 0;
    for (int k = 0; k < s->op->n_out; k++) {
        if (!aril_requires_grad(out[k]) || ARIL__IS_WRITE(s->op->out[k]) ||
            (k > 0 && s->flags & SAMPLE_FIRST))
            continue;
        which[n] = k;
        roots[n++] = out[k];
    }
    return n;
}

/* Prepares an op's inputs: those it writes to are copied, those that need gradients are leaves. */
static void take_inputs(const test_sample *s, aril_tensor *const *leaves, aril_tensor **x)
{
    ARIL_NO_GRAD;
    for (int i = 0; i < s->n_in; i++) {
        bool written = aril__changes(s->op, i);
        for (int k = 0; k < s->op->n_out; k++) written = written || s->op->out[k] == WRITES(i);
        x[i] = leaves[i] && written ? aril_copy(leaves[i]) : leaves[i];
    }
}

char *test_gradients(const test_sample *s, aril_tensor *const *in, aril_tensor **grads)
{
    aril_tensor *x[TEST_INPUTS], *leaf[TEST_INPUTS], *g[TEST_INPUTS];
    aril_tensor *out[TEST_RESULTS], *roots[TEST_RESULTS], *w[TEST_RESULTS];
    int which[TEST_RESULTS], of[TEST_INPUTS], n = 0;
    take_inputs(s, in, x);
    for (int i = 0; i < s->n_in; i++) {
        grads[i] = NULL;
        if (!is_wanted(s, i, x[i])) continue;
        x[i] = aril_detach(x[i]);
        aril_set_requires_grad(x[i], true);
        of[n] = i;
        leaf[n++] = x[i];
    }
    if (aril__apply(s->op, s->n_in, x, s->attrs, out) < 0) {
        snprintf(text, sizeof text, "%s", aril_error());
        return text;
    }
    int n_roots = differentiable(s, out, roots, which);
    if (n == 0 || n_roots == 0) return NULL;
    for (int k = 0; k < n_roots; k++) w[k] = fixed_values(roots[k], 77 + (uint64_t)which[k]);
    aril_grad_opts opts = { .allow_unused = true, .grad_outputs = { n_roots, w } };
    if (aril_gradients_n((aril_list){ n_roots, roots }, (aril_list){ n, leaf }, g, opts) < 0) {
        snprintf(text, sizeof text, "backward: %s", aril_error());
        return text;
    }
    for (int i = 0; i < n; i++) grads[of[i]] = g[i];
    return NULL;
}

/* ---- the function that is differentiated ---- */

static double dot(aril_tensor *a, aril_tensor *b)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    const double *p = aril_data(aril_cast(a, ARIL_F64)), *q = aril_data(b);
    double sum = 0;
    for (int64_t i = 0; p && q && i < aril_numel(a); i++) sum += p[i] * q[i];
    return sum;
}

/* The value at the current leaves and, if `grads` is given, its gradient for each leaf. NaN with an
 * error when something fails. */
static double value(problem *p, aril_tensor **grads)
{
    const test_sample *s = p->s;
    aril_tensor *x[TEST_INPUTS], *out[TEST_RESULTS], *roots[TEST_RESULTS], *w[TEST_RESULTS];
    int which[TEST_RESULTS];
    aril_tensor *const *weights = p->leaf + p->n_in;
    take_inputs(s, p->in, x);
    if (aril__apply(s->op, s->n_in, x, s->attrs, out) < 0) return NAN;
    int n_roots = differentiable(s, out, roots, which);
    double sum = 0;
    for (int k = 0; k < n_roots; k++) {
        w[k] = p->second ? weights[k] : fixed_values(roots[k], 77 + (uint64_t)which[k]);
        if (!p->second) sum += dot(roots[k], w[k]);
    }
    aril_grad_opts opts = { .allow_unused = true,
                            .create_graph = p->second,
                            .grad_outputs = { n_roots, w } };
    if (!p->second) {
        if (grads && n_roots &&
            aril_gradients_n((aril_list){ n_roots, roots }, (aril_list){ p->n_leaves, p->leaf },
                             grads, opts) < 0)
            return NAN;
        return n_roots ? sum : INFINITY; /* nothing to differentiate */
    }
    aril_tensor *first[TEST_INPUTS], *again[TEST_INPUTS], *v[TEST_INPUTS];
    if (n_roots == 0) return INFINITY;
    if (aril_gradients_n((aril_list){ n_roots, roots }, (aril_list){ p->n_in, p->leaf }, first,
                         opts) < 0)
        return NAN;
    int n = 0;
    for (int i = 0; i < p->n_in; i++) {
        aril_tensor *fixed = fixed_values(first[i], 991 + (uint64_t)i);
        sum += dot(first[i], fixed);
        if (aril_requires_grad(first[i])) {
            again[n] = first[i];
            v[n++] = fixed;
        }
    }
    if (!grads) return sum;
    if (n == 0) return INFINITY;
    opts = (aril_grad_opts){ .allow_unused = true, .grad_outputs = { n, v } };
    aril_status status =
        aril_gradients_n((aril_list){ n, again }, (aril_list){ p->n_leaves, p->leaf }, grads, opts);
    return status < 0 ? NAN : sum;
}

/* ---- comparing ---- */

/* The value with another number at one element of a leaf, whose elements are in `all`. */
static double value_at(problem *p, aril_tensor *leaf, double *all, int64_t i, double x)
{
    double was = all[i];
    all[i] = x;
    aril_write(leaf, all);
    double y = value(p, NULL);
    all[i] = was;
    return y;
}

/* One-sided slopes of the value along one element. False when it cannot be evaluated. */
static bool slopes(problem *p, aril_tensor *leaf, double *all, int64_t i, double base, double *left,
                   double *right)
{
    double was = all[i], step = 1e-6 * fmax(1, fabs(was));
    double up = was + step, down = was - step;
    ARIL_SCOPE;
    double above = value_at(p, leaf, all, i, up);
    double below = value_at(p, leaf, all, i, down);
    *right = (above - base) / (up - was);
    *left = (base - below) / (was - down);
    return isfinite(above) && isfinite(below);
}

/* `all`: the elements of the leaf, which is f64 and contiguous. */
static char *compare_elements(problem *p, int k, aril_tensor *grad, double *all, double base,
                              test_slopes *count)
{
    const double *got = aril_data(grad);
    int64_t n = aril_numel(p->leaf[k]), max = p->second ? ELEMENTS_2 : ELEMENTS;
    uint64_t seed = 5;
    double tol = p->s->tol > 0 ? p->s->tol : p->second ? 1e-5 : 1e-6;
    if (!aril__same_dims(grad->ndim, grad->dim, p->leaf[k]->ndim, p->leaf[k]->dim) ||
        grad->dtype != p->leaf[k]->dtype) {
        snprintf(text, sizeof text, "the gradient of %s %d has another shape or dtype",
                 k < p->n_in ? "input" : "weight", p->input_of[k]);
        return text;
    }
    for (int64_t j = 0; j < n && j < max; j++) {
        int64_t i = n <= max ? j : (int64_t)(test_random(&seed) * (double)n);
        double left, right;
        if (!slopes(p, p->leaf[k], all, i, base, &left, &right)) {
            snprintf(text, sizeof text, "not finite beside element %" PRId64 " of input %d: %s", i,
                     p->input_of[k], aril_ok() ? "" : aril_error());
            return text;
        }
        double mid = (left + right) / 2, scale = 1 + fabs(mid) + 1e-5 * fabs(base);
        if (fabs(left - right) > 1e-3 * scale) {
            count->kinks++;
            continue;
        }
        count->compared++;
        if (fabs(got[i] - mid) <= tol * scale) continue;
        snprintf(text, sizeof text,
                 "by element %" PRId64 " of %s %d: %.9g, finite differences give %.9g", i,
                 k < p->n_in ? "input" : "the gradient of result", p->input_of[k], got[i], mid);
        return text;
    }
    return NULL;
}

static char *compare_leaf(problem *p, int k, aril_tensor *grad, double base, test_slopes *count)
{
    double *all = malloc((size_t)(aril_numel(p->leaf[k]) + 1) * sizeof *all);
    aril_read(p->leaf[k], all);
    char *why = compare_elements(p, k, grad, all, base, count);
    aril_write(p->leaf[k], all);
    free(all);
    return why;
}

char *test_slope_difference(const test_sample *s, aril_tensor *const *in, bool second,
                            test_slopes *count)
{
    ARIL_SCOPE;
    problem p = { .s = s, .second = second };
    bool empty = false;
    for (int i = 0; i < s->n_in; i++) {
        empty = empty || (in[i] && aril_numel(in[i]) == 0 && second);
        p.in[i] = in[i];
        if (!is_wanted(s, i, in[i]) || aril_dtype_of(in[i]) != ARIL_F64) continue;
        p.in[i] = aril_copy(aril_contiguous(in[i]));
        aril_set_requires_grad(p.in[i], true);
        p.input_of[p.n_leaves] = i;
        p.leaf[p.n_leaves++] = p.in[i];
    }
    p.n_in = p.n_leaves;
    if (p.n_in == 0) return NULL;
    if (second) { /* the incoming gradient is a variable too */
        aril_tensor *x[TEST_INPUTS], *out[TEST_RESULTS], *roots[TEST_RESULTS];
        int which[TEST_RESULTS];
        take_inputs(s, p.in, x);
        if (aril__apply(s->op, s->n_in, x, s->attrs, out) < 0) goto failed;
        int n = differentiable(s, out, roots, which);
        for (int k = 0; k < n; k++) {
            aril_tensor *w = fixed_values(roots[k], 77 + (uint64_t)which[k]);
            aril_set_requires_grad(w, true);
            p.input_of[p.n_leaves] = which[k];
            p.leaf[p.n_leaves++] = w;
        }
    }
    aril_tensor *grads[MAX_LEAVES];
    double base = value(&p, grads);
    if (isnan(base) && !aril_ok()) goto failed;
    if (isnan(base)) {
        snprintf(text, sizeof text, "the value is NaN");
        return text;
    }
    if (isinf(base)) /* no gradient flows */
        return NULL;
    for (int k = 0; k < p.n_leaves && !empty; k++) { /* the mean of an empty tensor is NaN */
        char *why = compare_leaf(&p, k, grads[k], base, count);
        if (why) return why;
    }
    return NULL;
failed:
    snprintf(text, sizeof text, "%s", aril_error());
    aril_clear_error();
    return text;
}
