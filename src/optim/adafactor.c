/* Adafactor (Shazeer and Stern, 2018) as PyTorch has it: the running mean of g^2 of a matrix is
 * kept as its means over rows and over columns. */
#include "optim/optim.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/scope.h"

#include <float.h>
#include <math.h>

enum { ROWS, COLUMNS, WHOLE }; /* slots */

static bool slot_shape(aril_shape p, int i, aril_shape *shape)
{
    *shape = p;
    if (i == ROWS && p.ndim > 1) shape->dim[p.ndim - 1] = 1;
    if (i == COLUMNS && p.ndim > 1) shape->dim[p.ndim - 2] = 1;
    return p.ndim > 1 ? i != WHOLE : i == WHOLE;
}

/* The machine epsilon of a dtype. */
static double epsilon(aril_dtype t)
{
    switch (t) {
    case ARIL_F64: return DBL_EPSILON;
    case ARIL_F16: return 0x1p-10;
    case ARIL_BF16: return 0x1p-7;
    default: return FLT_EPSILON;
    }
}

/* sqrt(mean(x^2)), []. */
static aril_tensor *rms(aril_tensor *x)
{
    return aril_mul_scalar(aril_norm(x, ARIL_ALL, 2), 1 / sqrt((double)aril_numel(x)));
}

/* What depends on the number of the step: the learning rate relative to the parameter, and the
 * weight of the new g^2 in their mean. */
static void by_count(const aril_optim_opts *o, const aril__step_values *v, aril_dtype dtype,
                     aril_tensor **rate, aril_tensor **weight)
{
    aril_tensor *t = v->t.there, *lr = v->lr.there;
    if (!t) {
        *weight = aril_scalar(pow(v->t.known, -o->beta2_decay));
        *rate = aril_scalar(fmin(v->lr.known, 1 / sqrt(v->t.known)));
        return;
    }
    *weight = aril_cast(aril_pow_scalar(t, -o->beta2_decay), dtype);
    *rate = lr ? aril_minimum(aril_rsqrt(t), lr) : aril_clamp_max(aril_rsqrt(t), v->lr.known);
    *rate = aril_cast(*rate, dtype);
}

static aril_status step(const aril_optim_opts *o, const aril__step_values *v, aril__optim_param *p,
                        aril_tensor *g)
{
    const aril_tensor *updated = p->slot[ARIL__MASTER_SLOT] ? p->slot[ARIL__MASTER_SLOT] : p->p;
    double eps = o->eps != 0 ? o->eps : epsilon((aril_dtype)updated->dtype);
    aril_tensor *x = aril_contiguous(aril__method_value(p, aril_dtype_of(g)));
    aril_tensor *now[ARIL__RULE_SLOTS] = { NULL }, *mean; /* of g^2 */
    aril_tensor *rate, *weight;
    by_count(o, v, aril_dtype_of(g), &rate, &weight);
    if (aril_numel(g) == 0) return aril_tensor_status(g);
    aril_tensor *square = aril_square(g), *scale = aril_clamp_min(rms(x), o->min_scale);
    if (p->slot[WHOLE]) {
        mean = now[WHOLE] = aril_lerp(p->slot[WHOLE], square, weight);
    } else {
        now[ROWS] = aril_lerp(p->slot[ROWS], aril_mean(square, ARIL_KEEPDIM(-1)), weight);
        now[COLUMNS] = aril_lerp(p->slot[COLUMNS], aril_mean(square, ARIL_KEEPDIM(-2)), weight);
        aril_tensor *of_rows = aril_clamp_min(aril_mean(now[ROWS], ARIL_KEEPDIM(-2)), eps);
        mean = aril_div(aril_mul(now[ROWS], now[COLUMNS]), of_rows);
    }
    aril_tensor *u = aril_mul(g, aril_rsqrt(aril_clamp_min(mean, eps * eps)));
    aril_tensor *limit = aril_clamp_min(aril_mul_scalar(rms(u), 1 / o->clip_update), 1);
    aril_tensor *by = aril_mul(aril_div(scale, limit), rate);
    if (o->weight_decay != 0)
        x = aril_mul(x, aril__method_number(&v->lr, 1, -o->weight_decay, aril_dtype_of(g)));
    x = aril_sub(x, aril_mul(u, by));
    aril_status s = aril_tensor_status(x);
    for (int i = 0; i < ARIL__RULE_SLOTS && s == ARIL_OK; i++)
        if (now[i]) s = aril__method_store(v, p->slot[i], now[i]);
    return s == ARIL_OK ? aril__method_store_value(v, p, x) : s;
}

const aril__method aril__method_adafactor = { .slot = { "row_var", "col_var", "variance" },
                                              .slot_shape = slot_shape,
                                              .step = step };
