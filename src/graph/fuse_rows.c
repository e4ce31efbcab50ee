/* Ops along rows as steps: reductions over the last axis, and elementwise steps between them. They
 * compute as the ops' own kernels do, in f32 or f64, and round the result once. */
#include "graph/fuse_maker.h"

#include "ops/elementwise/elementwise.h"
#include "ops/norm/norm.h"
#include "ops/norm/softmax.h"
#include "ops/random/dropout.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"

#include <string.h>

/* Named here: those that steps are. */
extern const aril__op aril__op_add, aril__op_exp, aril__op_log, aril__op_mul, aril__op_reciprocal,
    aril__op_sqrt, aril__op_square, aril__op_sub;
extern const aril__op aril__op_rms_norm, aril__op_rms_norm_grad;

aril__row_limits aril__fuse_rows_from = { .on_cpu = 1 << 20, .elsewhere = 1 << 18, .length = 64 };

bool aril__is_row_length(int64_t n)
{
    return n >= aril__fuse_rows_from.length && n <= 16384;
}

bool aril__has_many_rows(const aril__graph *g, aril__value_id v)
{
    bool on_cpu = g->values[v].device == aril__cpu_device;
    int64_t all = 1, least = on_cpu ? aril__fuse_rows_from.on_cpu : aril__fuse_rows_from.elsewhere;
    for (int d = 0; d < g->values[v].ndim; d++) {
        int64_t size = aril__graph_dims(g, v)[d];
        if (size >= 0 && __builtin_mul_overflow(all, size, &all)) return true;
    }
    return all >= least;
}

/* ---- which nodes ---- */

aril__value_id aril__row_loop(const aril__graph *g, const aril__graph_node *n)
{
    bool second = n->op == &aril__op_layer_norm_grad || n->op == &aril__op_rms_norm_grad ||
                  n->op == &aril__op_dropout;
    return aril__graph_in(g, n)[second ? 1 : 0];
}

/* Whether the op goes along the last of so many dimensions, and only along that. */
static bool is_along_last(const aril__graph_node *n, const void *attrs, int ndim)
{
    if (n->op == &aril__op_softmax || n->op == &aril__op_log_softmax ||
        n->op == &aril__op_softmax_grad || n->op == &aril__op_log_softmax_grad)
        return ((const struct softmax_attrs *)attrs)->axis[0] == ndim - 1;
    if (n->op == &aril__op_layer_norm || n->op == &aril__op_layer_norm_grad)
        return ((const struct layer_norm_attrs *)attrs)->axes[0] == 1;
    if (n->op == &aril__op_rms_norm || n->op == &aril__op_rms_norm_grad)
        return ((const struct rms_norm_attrs *)attrs)->axes[0] == 1;
    if (n->op == &aril__op_sum || n->op == &aril__op_mean || n->op == &aril__op_amax)
        return ((const struct reduce_attrs *)attrs)->mask[0] == (int64_t)1 << (ndim - 1);
    if (n->op != &aril__op_dropout) return false;
    const struct dropout_attrs *a = attrs;
    return a->lead[0] == -1 && a->dropped[0] == 0;
}

bool aril__is_row_op(const aril__graph *g, const aril__graph_node *n)
{
    const void *attrs = aril__graph_attrs(g, n);
    if (!attrs || n->n_in == 0 || n->n_in > 5 || n->sized || n->n_bodies) return false;
    aril__value_id loop = aril__row_loop(g, n);
    const aril__value *x = &g->values[loop];
    if (!loop || x->ndim == 0 || !is_along_last(n, attrs, x->ndim)) return false;
    const int64_t *dim = aril__graph_dims(g, loop);
    if (!aril__is_float((aril_dtype)x->dtype) || !aril__dtypes[x->dtype].computes ||
        !aril__is_row_length(dim[x->ndim - 1]))
        return false;
    for (uint32_t k = 0; k < n->n_out; k++)
        if (g->values[n->out + k].tensor_flags) return false;
    return aril__has_many_rows(g, loop);
}

/* ---- steps ---- */

static uint8_t one(aril__maker *m, const aril__op *op, uint8_t a)
{
    uint8_t result;
    aril__make_step(m, op, 1, &a, &result);
    return result;
}

static uint8_t two(aril__maker *m, const aril__op *op, uint8_t a, uint8_t b)
{
    uint8_t result, in[2] = { a, b };
    aril__make_step(m, op, 2, in, &result);
    return result;
}

static uint8_t number(aril__maker *m, double x)
{
    aril_fused_constant c;
    memset(&c, 0, sizeof c);
    c.dtype = ARIL_F64;
    c.weak = true;
    c.f64 = x;
    return aril__make_constant(m, &c);
}

static uint8_t cast_to(aril__maker *m, uint8_t a, uint8_t dtype)
{
    uint8_t result;
    aril__make_step(m, &aril__op_cast, 1, &a, &result)->dtype = dtype;
    return result;
}

static uint8_t stat_dtype(uint8_t dtype)
{
    return dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
}

/* An operand in the dtype that the op computes in. */
static uint8_t wide(aril__maker *m, aril__value_id v)
{
    uint8_t operand = aril__make_operand(m, v), dtype = m->g->values[v].dtype;
    return m->failed || dtype == stat_dtype(dtype) ? operand : cast_to(m, operand, ARIL_F32);
}

/* A result, rounded from what the op computes in. */
static void round_to(aril__maker *m, aril__value_id v, uint8_t step)
{
    uint8_t dtype = m->g->values[v].dtype;
    if (dtype != stat_dtype(dtype)) step = cast_to(m, step, dtype);
    if (!m->failed) aril__make_result(m, v, step);
}

static void made_by_row(aril__maker *m, aril__value_id v, uint8_t step)
{
    if (!m->failed) aril__make_result(m, v, step);
}

/* A sum over all rows, if anything uses it. */
static void sum_of_rows(aril__maker *m, aril__value_id v, uint8_t step)
{
    if (m->failed || !m->uses->all[v]) return;
    aril__made *made = aril__make_result(m, v, step);
    int ndim = m->g->values[m->loop].ndim;
    made->reduce = ARIL_FUSED_SUM;
    made->axes = made->dropped = (1u << (ndim - 1)) - 1;
    if (!made->axes) m->failed = true;
}

/* ---- softmax ---- */

static void make_softmax(aril__maker *m, const aril__graph_node *n)
{
    uint8_t x = wide(m, aril__graph_in(m->g, n)[0]);
    uint8_t d = two(m, &aril__op_sub, x, one(m, &aril__op_amax, x)), e = one(m, &aril__op_exp, d);
    uint8_t sum = one(m, &aril__op_sum, e);
    if (n->op == &aril__op_log_softmax)
        round_to(m, n->out, two(m, &aril__op_sub, d, one(m, &aril__op_log, sum)));
    else
        round_to(m, n->out, two(m, &aril__op_mul, e, one(m, &aril__op_reciprocal, sum)));
}

/* y * (g - sum(g * y)), or g - exp(y) * sum(g) of the logarithm */
static void make_softmax_grad(aril__maker *m, const aril__graph_node *n)
{
    const aril__value_id *in = aril__graph_in(m->g, n);
    uint8_t g = wide(m, in[0]), y = wide(m, in[1]), dx;
    if (n->op == &aril__op_log_softmax_grad) {
        uint8_t e = one(m, &aril__op_exp, y);
        dx = two(m, &aril__op_sub, g, two(m, &aril__op_mul, e, one(m, &aril__op_sum, g)));
    } else {
        uint8_t sum = one(m, &aril__op_sum, two(m, &aril__op_mul, g, y));
        dx = two(m, &aril__op_mul, y, two(m, &aril__op_sub, g, sum));
    }
    round_to(m, n->out, dx);
}

/* ---- norms ---- */

/* 1 / sqrt(mean(d^2) + eps) */
static uint8_t invstd_of(aril__maker *m, uint8_t d, double eps)
{
    uint8_t var = one(m, &aril__op_mean, one(m, &aril__op_square, d));
    var = two(m, &aril__op_add, var, number(m, eps));
    return one(m, &aril__op_reciprocal, one(m, &aril__op_sqrt, var));
}

static void make_norm(aril__maker *m, const aril__graph_node *n)
{
    const aril__value_id *in = aril__graph_in(m->g, n);
    const void *attrs = aril__graph_attrs(m->g, n);
    bool layer = n->op == &aril__op_layer_norm;
    aril__value_id bias = layer ? in[2] : 0;
    uint8_t x = wide(m, in[0]), mean = ARIL_FUSED_NONE, s;
    if (layer) {
        mean = one(m, &aril__op_mean, x);
        x = two(m, &aril__op_sub, x, mean);
        s = invstd_of(m, x, ((const struct layer_norm_attrs *)attrs)->eps[0]);
    } else {
        aril_dtype type = (aril_dtype)m->g->values[in[0]].dtype;
        s = invstd_of(m, x, aril__rms_norm_eps(attrs, type));
    }
    uint8_t y = two(m, &aril__op_mul, x, s);
    if (in[1]) y = two(m, &aril__op_mul, y, wide(m, in[1]));
    if (bias) y = two(m, &aril__op_add, y, wide(m, bias));
    round_to(m, n->out, y);
    if (layer) made_by_row(m, n->out + 1, mean);
    made_by_row(m, n->out + (layer ? 2 : 1), s);
}

/* With h = g * weight: dx = invstd * (h - mean(h) - xhat * mean(h * xhat)), without mean(h) in RMS
 * norm; dweight = sum of g * xhat and dbias = sum of g over rows. */
static void make_norm_grad(aril__maker *m, const aril__graph_node *n)
{
    const aril__value_id *in = aril__graph_in(m->g, n);
    bool layer = n->op == &aril__op_layer_norm_grad;
    uint8_t g = wide(m, in[0]), x = wide(m, in[1]), h = g;
    uint8_t s = aril__make_operand(m, in[layer ? 4 : 3]);
    if (layer) x = two(m, &aril__op_sub, x, aril__make_operand(m, in[3]));
    uint8_t xhat = two(m, &aril__op_mul, x, s), gx = ARIL_FUSED_NONE;
    if (in[2]) {
        h = two(m, &aril__op_mul, g, wide(m, in[2]));
        if (m->uses->all[n->out + 1]) gx = two(m, &aril__op_mul, g, xhat);
    }
    uint8_t hx = two(m, &aril__op_mul, h, xhat), dx = h;
    uint8_t slope = one(m, &aril__op_mean, hx);
    if (layer) dx = two(m, &aril__op_sub, h, one(m, &aril__op_mean, h));
    dx = two(m, &aril__op_sub, dx, two(m, &aril__op_mul, xhat, slope));
    if (m->uses->all[n->out]) round_to(m, n->out, two(m, &aril__op_mul, s, dx));
    sum_of_rows(m, n->out + 1, in[2] ? gx : hx);
    if (layer) sum_of_rows(m, n->out + 2, g);
}

/* ---- the others ---- */

static void make_reduction(aril__maker *m, const aril__graph_node *n)
{
    const struct reduce_attrs *a = aril__graph_attrs(m->g, n);
    uint8_t step = one(m, n->op, aril__make_operand(m, aril__graph_in(m->g, n)[0]));
    if (m->failed) return;
    aril__made *made = aril__make_result(m, n->out, step);
    if (!a->keep[0]) made->dropped = 1u << (m->g->values[m->loop].ndim - 1);
}

static void make_dropout(aril__maker *m, const aril__graph_node *n)
{
    const struct dropout_attrs *a = aril__graph_attrs(m->g, n);
    uint8_t in[2], step;
    for (int i = 0; i < 2; i++) in[i] = aril__make_operand(m, aril__graph_in(m->g, n)[i]);
    if (ARIL_FUSED_KIND(in[0]) != ARIL_FUSED_INPUT(0)) m->failed = true;
    aril__recipe_step *s = aril__make_step(m, n->op, 2, in, &step);
    if (m->failed) return;
    s->p[0] = a->p[0];
    s->p[1] = a->scale[0];
    s->p[2] = a->kept[0];
    aril__make_result(m, n->out, step);
}

void aril__make_rows(aril__maker *m, const aril__graph_node *n)
{
    const aril__op *op = n->op;
    if (op == &aril__op_softmax || op == &aril__op_log_softmax)
        make_softmax(m, n);
    else if (op == &aril__op_softmax_grad || op == &aril__op_log_softmax_grad)
        make_softmax_grad(m, n);
    else if (op == &aril__op_layer_norm || op == &aril__op_rms_norm)
        make_norm(m, n);
    else if (op == &aril__op_layer_norm_grad || op == &aril__op_rms_norm_grad)
        make_norm_grad(m, n);
    else if (op == &aril__op_dropout)
        make_dropout(m, n);
    else
        make_reduction(m, n);
}

void aril__note_by_row(aril__maker *m, const aril__graph_node *n)
{
    const aril__value *loop = &m->g->values[m->loop];
    uint32_t last = loop->ndim ? 1u << (loop->ndim - 1) : 0;
    for (int i = m->n_made - 1; i >= 0; i--) {
        aril__made *made = &m->made[i];
        const aril__value *v = &m->g->values[made->value];
        if (m->g->nodes[v->from].out != n->out) return;
        if (made->reduce) continue;
        bool whole = aril__same_dims(v->ndim, aril__graph_dims(m->g, made->value), loop->ndim,
                                     aril__graph_dims(m->g, m->loop));
        if (whole) continue;
        made->by_row = true;
        made->axes = last;
    }
}
