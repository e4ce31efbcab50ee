#include "backend/cpu/reduce/stats.h"

#include "backend/cpu/reduce/reduce_loop.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/stats.h"
#include "core/vector/targets.h"
#include "core/vector/vecmath.h"

#include <math.h>
#include <string.h>

/* ==== states ==== */

/* ---- logsumexp: the running maximum in plane 0, the sum of exp(x - maximum) in plane 1 ---- */

static void lse_start(const aril__reduce_params *p, void *state, int64_t plane, int64_t m,
                      int64_t at)
{
    (void)p, (void)at;
    double *top = state, *sum = top + plane;
    for (int64_t i = 0; i < m; i++) {
        top[i] = -INFINITY;
        sum[i] = 0;
    }
}

/* Adds `s` times exp(v) to (top, sum). */
static void lse_take(double *top, double *sum, double v, double s)
{
    if (v == -INFINITY || isnan(*top)) return;
    if (v <= *top) {
        *sum += v == *top ? s : s * exp(v - *top);
    } else { /* a new maximum, or NaN */
        *sum = (*sum == 0 ? 0 : *sum * exp(*top - v)) + s;
        *top = v;
    }
}

static void lse_merge(const aril__reduce_params *p, void *state, int64_t plane, const void *later,
                      int64_t later_plane, int64_t m)
{
    (void)p;
    double *top = state;
    const double *x = later;
    for (int64_t i = 0; i < m; i++) lse_take(&top[i], &top[plane + i], x[i], x[later_plane + i]);
}

static void lse_finish(const aril__reduce_params *p, void *state, int64_t plane, int64_t m)
{
    (void)p;
    double *top = state;
    for (int64_t i = 0; i < m; i++) top[i] = isinf(top[i]) ? top[i] : top[i] + log(top[plane + i]);
}

/* ---- var, std, var_mean: count, mean and sum of squared differences in planes 0, 1, 2 ---- */

static void var_start(const aril__reduce_params *p, void *state, int64_t plane, int64_t m,
                      int64_t at)
{
    (void)p, (void)at;
    for (int k = 0; k < 3; k++) memset((double *)state + k * plane, 0, (size_t)m * sizeof(double));
}

/* Merges a group of n elements with its own mean and sum of squares into the state. */
static void var_join(double *s, int64_t plane, double n, double mean, double squares)
{
    double total = s[0] + n, d = mean - s[plane];
    if (n == 0) return;
    s[plane] += d * (n / total);
    s[2 * plane] += squares + d * d * (s[0] * n / total);
    s[0] = total;
}

static void var_merge(const aril__reduce_params *p, void *state, int64_t plane, const void *later,
                      int64_t later_plane, int64_t m)
{
    (void)p;
    const double *x = later;
    for (int64_t i = 0; i < m; i++)
        var_join((double *)state + i, plane, x[i], x[later_plane + i], x[2 * later_plane + i]);
}

static void var_finish(const aril__reduce_params *p, void *state, int64_t plane, int64_t m)
{
    double *s = state, n = (double)p->count - p->p;
    for (int64_t i = 0; i < m; i++) {
        s[i] = s[2 * plane + i] / (n > 0 ? n : 0);
        if (p->count == 0) s[plane + i] = NAN;
    }
}

static void std_finish(const aril__reduce_params *p, void *state, int64_t plane, int64_t m)
{
    double *s = state;
    var_finish(p, state, plane, m);
    for (int64_t i = 0; i < m; i++) s[i] = sqrt(s[i]);
}

/* ---- norm ---- */

static void norm_start(const aril__reduce_params *p, void *state, int64_t plane, int64_t m,
                       int64_t at)
{
    (void)plane, (void)at;
    for (int64_t i = 0; i < m; i++) ((double *)state)[i] = p->p == -INFINITY ? INFINITY : 0;
}

static double norm_more(double p, double s, double x)
{
    if (p == INFINITY) return x > s || x != x ? x : s;
    if (p == -INFINITY) return x < s || x != x ? x : s;
    return s + x;
}

static void norm_merge(const aril__reduce_params *p, void *state, int64_t plane, const void *later,
                       int64_t later_plane, int64_t m)
{
    (void)plane, (void)later_plane;
    double *s = state;
    for (int64_t i = 0; i < m; i++) s[i] = norm_more(p->p, s[i], ((const double *)later)[i]);
}

static void norm_finish(const aril__reduce_params *p, void *state, int64_t plane, int64_t m)
{
    (void)plane;
    double *s = state;
    if (p->p == 0 || p->p == 1 || isinf(p->p)) return;
    for (int64_t i = 0; i < m; i++) s[i] = p->p == 2 ? sqrt(s[i]) : pow(s[i], 1 / p->p);
}

/* ==== accumulation of elements, by type and target ==== */

enum {
    STRETCH = 2048, /* elements that share one center, */
    ROWS = 256,     /* and rows of them */
    SIDE = 8,       /* rows whose exponentials share one maximum */
};

#define TEMPLATE "backend/cpu/reduce/stats_real.inc"
#include "core/vector/each_target.inc"
#define WIDE(r) ((r)->in[0]->dtype == ARIL_F64)

/* ==== the kernels ==== */

/* var and std also give the mean if the op has a second result. */
#define KERNEL_OF(op_, attrs_, p_, reducer, n_out_)                                                \
    aril_status aril__cpu_##op_(aril__run *r)                                                      \
    {                                                                                              \
        const struct attrs_ *a = r->attrs;                                                         \
        return aril__reduce_run(ARIL__PICK(&reducer, WIDE(r)), (aril__reduce_params){ .p = (p_) }, \
                                r->in[0], (unsigned)a->mask[0], (n_out_), r->out, r->workspace);   \
    }                                                                                              \
    size_t aril__cpu_##op_##_scratch(const aril__run *r)                                           \
    {                                                                                              \
        const struct attrs_ *a = r->attrs;                                                         \
        return aril__reduce_scratch(ARIL__PICK(&reducer, WIDE(r)), r->in[0], (unsigned)a->mask[0], \
                                    (n_out_), r->out);                                             \
    }
KERNEL_OF(logsumexp, reduce_attrs, 0, lse, 1)
KERNEL_OF(var, stats_attrs, a->p[0], variance, r->n_out)
KERNEL_OF(std, stats_attrs, a->p[0], deviation, r->n_out)
KERNEL_OF(norm, stats_attrs, a->p[0], norm, 1)
