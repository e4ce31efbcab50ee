/* L-BFGS: a quasi-Newton method that estimates curvature from the latest steps.
 *
 * All parameters are flattened into one vector. Directions come from the two-loop recursion over
 * pairs of changes of the parameters and of the gradient; the step length is lr, or comes from a
 * line search for the strong Wolfe conditions by cubic interpolation (Nocedal and Wright, chapters
 * 3 and 7). */
#include "optim/optim.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct pair {
    aril_tensor *y, *s; /* changes of the gradient and of the parameters */
    double rho;         /* 1 / (y . s) */
} pair;

struct aril__lbfgs {
    int64_t iterations;
    double scale;          /* of the initial inverse Hessian */
    double t;              /* length of the last step */
    aril_tensor *d, *grad; /* direction and gradient of the last iteration; NULL before the first */
    int n;
    pair *pairs; /* oldest first */
};

aril__lbfgs *aril__lbfgs_new(void)
{
    aril__lbfgs *b = aril__calloc(sizeof *b);
    if (!b)
        aril__fail(ARIL_ERR_MEMORY, "lbfgs: out of memory");
    else
        b->scale = 1;
    return b;
}

static void drop_pair(aril__lbfgs *b, int i)
{
    aril_release(b->pairs[i].y);
    aril_release(b->pairs[i].s);
    b->n--;
    memmove(b->pairs + i, b->pairs + i + 1, (size_t)(b->n - i) * sizeof *b->pairs);
}

void aril__lbfgs_free(aril__lbfgs *b)
{
    if (!b) return;
    while (b->n) drop_pair(b, b->n - 1);
    free(b->pairs);
    aril_release(b->d);
    aril_release(b->grad);
    free(b);
}

/* ---- vectors ---- */

static double dot(aril_tensor *a, aril_tensor *b)
{
    ARIL_SCOPE;
    return aril_item(aril_sum(aril_mul(a, b), ARIL_ALL));
}

static double largest(aril_tensor *a)
{
    ARIL_SCOPE;
    return aril_item(aril_norm(a, ARIL_ALL, INFINITY));
}

/* The dtype of the flattened vector. */
static aril_dtype vector_dtype(const aril_optim *opt)
{
    for (int i = 0; i < opt->n_params; i++)
        if (opt->params[i].p->dtype == ARIL_F64) return ARIL_F64;
    return ARIL_F32;
}

/* Parameters (or their gradients, zeros where missing) concatenated into one vector. */
static aril_tensor *flat(aril_optim *opt, bool grads)
{
    aril_dtype dtype = vector_dtype(opt);
    for (int i = 0; i < opt->n_params; i++) {
        aril_tensor *p = opt->params[i].p;
        aril_tensor *t = !grads             ? aril_detach(p)
                         : aril_has_grad(p) ? aril_grad(p)
                                            : aril_zeros_like(p);
        opt->grads[i] = aril_cast(aril_reshape(t, ARIL_SHAPE(-1)), dtype);
    }
    return aril_cat((aril_list){ opt->n_params, opt->grads }, 0);
}

/* Sets the parameters to x + t * d. */
static aril_status move_to(aril_optim *opt, aril_tensor *x, double t, aril_tensor *d)
{
    ARIL_SCOPE;
    aril_tensor *to = aril_add(x, aril_mul_scalar(d, t));
    int64_t at = 0;
    aril_status s = aril_tensor_status(to);
    for (int i = 0; i < opt->n_params && s == ARIL_OK; i++) {
        aril_tensor *p = opt->params[i].p;
        aril_tensor *piece = aril_slice(to, 0, at, at + aril_numel(p), 1);
        s = aril_tensor_status(aril_copy_(p, aril_reshape(piece, aril_shape_of(p))));
        at += aril_numel(p);
    }
    return s;
}

/* ---- loss evaluation ---- */

typedef struct problem {
    aril_optim *opt;
    aril_closure *fn;
    void *ctx;
    aril_tensor *first; /* the loss of the first call; holds a reference */
    int calls;
} problem;

/* The loss at the current parameters, and its gradient in the innermost scope. */
static aril_status evaluate(problem *q, double *loss, aril_tensor **grad)
{
    aril_optim_zero_grad(q->opt);
    {
        ARIL_SCOPE;
        ARIL_ENABLE_GRAD;
        aril_tensor *y = q->fn(q->ctx);
        if (!y) return aril__fail(ARIL_ERR_ARG, "step_closure: the function returned NULL");
        aril_status s = aril_tensor_status(y);
        if (s < 0) return s;
        *loss = aril_item(y);
        if (!q->first) q->first = aril_keep(aril_detach(y));
    }
    q->calls++;
    *grad = flat(q->opt, true);
    return aril_tensor_status(*grad);
}

/* The same at x + t * d, with the slope along d. */
static aril_status evaluate_at(problem *q, aril_tensor *x, double t, aril_tensor *d, double *loss,
                               aril_tensor **grad, double *slope)
{
    aril_status s = move_to(q->opt, x, t, d);
    if (s == ARIL_OK) s = evaluate(q, loss, grad);
    if (s == ARIL_OK) *slope = dot(*grad, d);
    return s;
}

/* ---- line search ---- */

typedef struct point {
    double t, f, slope;
    aril_tensor *g;
} point;

/* The minimum of the cubic through two points with their slopes, within bounds. */
static double cubic(const point *a, const point *b, double low, double high)
{
    double d1 = a->slope + b->slope - 3 * (a->f - b->f) / (a->t - b->t);
    double square = d1 * d1 - a->slope * b->slope;
    if (!(square >= 0)) return (low + high) / 2;
    double d2 = sqrt(square), at;
    if (a->t <= b->t)
        at = b->t - (b->t - a->t) * ((b->slope + d2 - d1) / (b->slope - a->slope + 2 * d2));
    else
        at = a->t - (a->t - b->t) * ((a->slope + d2 - d1) / (a->slope - b->slope + 2 * d2));
    return fmin(fmax(at, low), high);
}

/* A length for which the loss falls enough and the slope has flattened, or the best one seen when
 * the evaluations of the step are used up. */
static aril_status line_search(problem *q, aril_tensor *x, aril_tensor *d, const point *start,
                               double t, double tolerance, point *found)
{
    const double enough = 1e-4, flatter = 0.9;
    const int max_tries = q->opt->opts.max_eval - q->calls;
    double reach = largest(d);
    point before = *start, now = { .t = t }, end[2];
    bool done = false, stuck = false;
    int tries = 0;
    aril_status s = evaluate_at(q, x, t, d, &now.f, &now.g, &now.slope);
    /* Extend the step until two points bracket a good one. */
    for (;; tries++) {
        if (s < 0) return s;
        if (tries >= max_tries) {
            end[0] = *start;
            end[1] = now;
            break;
        }
        end[0] = before;
        end[1] = now;
        if (now.f > start->f + enough * now.t * start->slope || (tries > 1 && now.f >= before.f))
            break;
        if (fabs(now.slope) <= -flatter * start->slope) {
            *found = now;
            return ARIL_OK;
        }
        if (now.slope >= 0) break;
        double next = cubic(&before, &now, now.t + 0.01 * (now.t - before.t), now.t * 10);
        before = now;
        now.t = next;
        s = evaluate_at(q, x, next, d, &now.f, &now.g, &now.slope);
    }
    /* Shrink the bracket. */
    int low = end[0].f <= end[1].f ? 0 : 1;
    while (!done && tries < max_tries && fabs(end[1].t - end[0].t) * reach >= tolerance) {
        double min = fmin(end[0].t, end[1].t), max = fmax(end[0].t, end[1].t);
        double edge = 0.1 * (max - min), next = cubic(&end[0], &end[1], min, max);
        if (fmin(max - next, next - min) < edge) { /* too close to an end, for the second time */
            if (stuck || next >= max || next <= min) {
                next = fabs(next - max) < fabs(next - min) ? max - edge : min + edge;
                stuck = false;
            } else {
                stuck = true;
            }
        } else {
            stuck = false;
        }
        now.t = next;
        s = evaluate_at(q, x, next, d, &now.f, &now.g, &now.slope);
        if (s < 0) return s;
        tries++;
        if (now.f > start->f + enough * now.t * start->slope || now.f >= end[low].f) {
            end[1 - low] = now;
            low = end[0].f <= end[1].f ? 0 : 1;
        } else {
            if (fabs(now.slope) <= -flatter * start->slope)
                done = true;
            else if (now.slope * (end[1 - low].t - end[low].t) >= 0)
                end[1 - low] = end[low];
            end[low] = now;
        }
    }
    *found = end[low];
    return ARIL_OK;
}

/* ---- directions ---- */

/* Stores the pair of the last step, if the loss curved upwards along it. */
static aril_status remember(aril__lbfgs *b, aril_tensor *grad, int max)
{
    ARIL_SCOPE;
    aril_tensor *y = aril_sub(grad, b->grad), *s = aril_mul_scalar(b->d, b->t);
    double ys = dot(y, s);
    if (!(ys > 1e-10)) return aril_ok() ? ARIL_OK : aril_tensor_status(s);
    if (b->n >= max && b->n > 0) drop_pair(b, 0);
    pair *grown = aril__realloc(b->pairs, (size_t)(b->n + 1) * sizeof *grown);
    if (!grown) return aril__fail(ARIL_ERR_MEMORY, "lbfgs: out of memory");
    b->pairs = grown;
    b->scale = ys / dot(y, y);
    if (max > 0) b->pairs[b->n++] = (pair){ aril_keep(y), aril_keep(s), 1 / ys };
    return aril_tensor_status(y);
}

static aril_status find_direction(aril__lbfgs *b, aril_tensor *grad)
{
    ARIL_SCOPE;
    double *share = aril__malloc((size_t)(b->n + 1) * sizeof *share);
    if (!share) return aril__fail(ARIL_ERR_MEMORY, "lbfgs: out of memory");
    aril_tensor *r = aril_neg(grad);
    for (int i = b->n - 1; i >= 0; i--) {
        share[i] = dot(b->pairs[i].s, r) * b->pairs[i].rho;
        r = aril_sub(r, aril_mul_scalar(b->pairs[i].y, share[i]));
    }
    r = aril_mul_scalar(r, b->scale);
    for (int i = 0; i < b->n; i++) {
        double back = dot(b->pairs[i].y, r) * b->pairs[i].rho;
        r = aril_add(r, aril_mul_scalar(b->pairs[i].s, share[i] - back));
    }
    free(share);
    aril_status s = aril_tensor_status(r);
    if (s == ARIL_OK) aril_set(&b->d, r);
    return s;
}

/* ---- step ---- */

/* One iteration from `at`, whose g the caller holds; *more says whether to continue. */
static aril_status iterate(problem *q, point *at, bool last, bool *more)
{
    aril_optim *opt = q->opt;
    aril__lbfgs *b = opt->lbfgs;
    const aril_optim_opts *o = &opt->opts;
    double lr = *(double *)aril__ptr(opt->groups[0].lr), before = at->f;
    ARIL_SCOPE;
    aril_status s = ARIL_OK;
    *more = false;
    if (b->iterations > 0) s = remember(b, at->g, o->history);
    if (s == ARIL_OK) s = find_direction(b, at->g);
    if (s < 0) return s;
    b->iterations++;
    aril_set(&b->grad, at->g);
    b->t = lr;
    if (b->iterations == 1) {
        double size = aril_item(aril_norm(at->g, ARIL_ALL, 1));
        b->t = fmin(1, 1 / size) * lr;
    }
    at->slope = dot(at->g, b->d);
    if (!(at->slope <= -o->tolerance_change)) return ARIL_OK;
    aril_tensor *x = flat(opt, false), *g = at->g;
    if (o->strong_wolfe) {
        point start = { .t = 0, .f = at->f, .slope = at->slope, .g = at->g }, found;
        s = line_search(q, x, b->d, &start, b->t, o->tolerance_change, &found);
        if (s == ARIL_OK) s = move_to(opt, x, found.t, b->d);
        if (s < 0) return s;
        b->t = found.t;
        at->f = found.f;
        g = found.g;
    } else {
        s = move_to(opt, x, b->t, b->d);
        if (s == ARIL_OK && !last) s = evaluate(q, &at->f, &g);
        if (s < 0) return s;
    }
    aril_set(&at->g, g);
    *more = !last && q->calls < o->max_eval && largest(at->g) > o->tolerance_grad &&
            largest(b->d) * fabs(b->t) > o->tolerance_change &&
            fabs(at->f - before) >= o->tolerance_change;
    return ARIL_OK;
}

aril_tensor *aril__lbfgs_step(aril_optim *opt, aril_closure *fn, void *ctx)
{
    if (opt->n_params == 0) {
        aril__fail(
            ARIL_ERR_STATE,
            "step_closure: this lbfgs has no parameters; add them with aril_optim_set_parameters");
        return aril__poison();
    }
    if (opt->opts.max_eval == 0) opt->opts.max_eval = opt->opts.max_iter * 5 / 4;
    problem q = { .opt = opt, .fn = fn, .ctx = ctx };
    point at = { 0 };
    aril_status s;
    {
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        aril_tensor *g;
        s = evaluate(&q, &at.f, &g);
        if (s == ARIL_OK) aril_set(&at.g, g);
        bool more = s == ARIL_OK && largest(at.g) > opt->opts.tolerance_grad;
        for (int i = 1; i <= opt->opts.max_iter && more && s == ARIL_OK; i++)
            s = iterate(&q, &at, i == opt->opts.max_iter, &more);
        if (s == ARIL_OK) {
            aril__number_set(opt->step, (double)(*(int64_t *)aril__ptr(opt->step) + 1));
            aril__step_done(opt);
        }
        aril_release(at.g);
    }
    if (s < 0) {
        aril_release(q.first);
        return aril__poison();
    }
    return aril_adopt(q.first);
}

/* ---- state ---- */

enum { NUMBERS = 5 };

aril_status aril__lbfgs_state(const aril__lbfgs *b, aril__names *to)
{
    double numbers[NUMBERS] = { (double)b->iterations, b->scale, b->t, b->n, b->d != NULL };
    aril_status s =
        aril__names_add(to, aril_from(numbers, ARIL_SHAPE(NUMBERS), ARIL_F64, aril_cpu()),
                        "optim.lbfgs");
    if (s == ARIL_OK && b->d) s = aril__names_add(to, b->d, "optim.lbfgs.direction");
    if (s == ARIL_OK && b->d) s = aril__names_add(to, b->grad, "optim.lbfgs.grad");
    for (int i = 0; i < b->n && s == ARIL_OK; i++) {
        s = aril__names_add(to, b->pairs[i].y, "optim.lbfgs.y.%d", i);
        if (s == ARIL_OK) s = aril__names_add(to, b->pairs[i].s, "optim.lbfgs.s.%d", i);
        aril_tensor *rho = aril_from(&b->pairs[i].rho, ARIL_SHAPE(), ARIL_F64, aril_cpu());
        if (s == ARIL_OK) s = aril__names_add(to, rho, "optim.lbfgs.rho.%d", i);
    }
    return s;
}

/* Copies the vector of that name; the caller owns it. */
static aril_status read_vector(const aril_optim *opt, const aril__name_lookup *from,
                               const char *name, aril_tensor **to)
{
    char text[ARIL__SHAPE_TEXT];
    int64_t n = 0;
    for (int i = 0; i < opt->n_params; i++) n += aril_numel(opt->params[i].p);
    aril_tensor *t = aril__named_find(from, "%s", name);
    if (!t) return aril__fail(ARIL_ERR_FORMAT, "optim_load_state: '%s' is missing", name);
    aril_status s = aril__check_value("optim_load_state", t);
    if (s < 0) return s;
    if (t->ndim != 1 || t->numel != n || t->dtype != vector_dtype(opt))
        return aril__fail(ARIL_ERR_FORMAT, "optim_load_state: '%s' is %s %s, expected %s [%lld]",
                          name, aril__dtypes[t->dtype].name, aril__text(text, t),
                          aril__dtypes[vector_dtype(opt)].name, (long long)n);
    t = aril_copy(t);
    s = aril_tensor_status(t);
    if (s == ARIL_OK) *to = aril_keep(t);
    return s;
}

static aril_status read_into(const aril_optim *opt, const aril__name_lookup *from, aril__lbfgs *b,
                             int *known)
{
    double numbers[NUMBERS];
    aril_status s =
        aril__named_numbers("optim_load_state", from, "optim.lbfgs", ARIL_F64, NUMBERS, numbers);
    if (s == ARIL_OK) s = aril__check_count("optim_load_state", "optim.lbfgs", numbers[0]);
    if (s == ARIL_OK) s = aril__check_count("optim_load_state", "optim.lbfgs", numbers[3]);
    if (s < 0) return s;
    if (numbers[3] > opt->opts.history)
        return aril__fail(
            ARIL_ERR_FORMAT,
            "optim_load_state: the state has a history of %g pairs, this lbfgs holds at most %d",
            numbers[3], opt->opts.history);
    int n = (int)numbers[3];
    b->iterations = (int64_t)numbers[0];
    b->scale = numbers[1];
    b->t = numbers[2];
    *known += 1 + 3 * n;
    if (numbers[4] != 0) {
        *known += 2;
        s = read_vector(opt, from, "optim.lbfgs.direction", &b->d);
        if (s == ARIL_OK) s = read_vector(opt, from, "optim.lbfgs.grad", &b->grad);
    }
    if (s == ARIL_OK && !(b->pairs = aril__calloc((size_t)(n + 1) * sizeof *b->pairs)))
        s = aril__fail(ARIL_ERR_MEMORY, "optim_load_state: out of memory");
    for (int i = 0; i < n && s == ARIL_OK; i++) {
        char y[48], change[48], rho[48];
        snprintf(y, sizeof y, "optim.lbfgs.y.%d", i);
        snprintf(change, sizeof change, "optim.lbfgs.s.%d", i);
        snprintf(rho, sizeof rho, "optim.lbfgs.rho.%d", i);
        b->n = i + 1;
        s = read_vector(opt, from, y, &b->pairs[i].y);
        if (s == ARIL_OK) s = read_vector(opt, from, change, &b->pairs[i].s);
        if (s == ARIL_OK)
            s = aril__named_numbers("optim_load_state", from, rho, ARIL_F64, 1, &b->pairs[i].rho);
    }
    return s;
}

aril_status aril__lbfgs_read(const aril_optim *opt, const aril__name_lookup *from, aril__lbfgs **to,
                             int *known)
{
    aril__lbfgs *b = aril__lbfgs_new();
    if (!b) return ARIL_ERR_MEMORY;
    aril_status s = read_into(opt, from, b, known);
    if (s < 0)
        aril__lbfgs_free(b);
    else
        *to = b;
    return s;
}

/* Its state is that of all parameters together; it steps by a closure. */
const aril__method aril__method_lbfgs = { .slot = { NULL } };
