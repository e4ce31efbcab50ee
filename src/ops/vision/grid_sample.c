/* Sampling images at points given by a grid:
 *
 *     grid_sample(x, grid)                x [N,C,H,W], grid [N,h,w,2] -> [N,C,h,w]
 *     grid_sample_grad_x(g, grid, x)      like x: the gradient for x, linear in g
 *     grid_sample_grad_grid(g, x, grid)   like grid: the gradient for the grid
 *
 * The gradient of the second is expressed by the first and the third; the third decomposes into
 * other ops, which are differentiable. */
#include "ops/vision/grid_sample.h"

#include "aril/conv.h"
#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "core/memory.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/shape/like.h"
#include "ops/table/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_grid_sample, aril__op_grid_sample_grad_grid,
    aril__op_grid_sample_grad_x;

ATTR_LIST(grid_sample, GRID_SAMPLE_ATTRS)

/* ---- shapes ---- */

static aril_status check(const aril__call *c, const aril_tensor *x, const aril_tensor *grid)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    bool fits = x->ndim == 4 && grid->ndim == 4 && (grid->dim[3] == 2 || grid->dim[3] < 0) &&
                (x->dim[0] < 0 || grid->dim[0] < 0 || x->dim[0] == grid->dim[0]);
    if (!fits || x->dim[2] == 0 || x->dim[3] == 0)
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: expected images [N,C,H,W] and a grid [N,h,w,2], got %s and %s",
                          c->op->name, aril__text(a, x), aril__text(b, grid));
    if (x->dtype != grid->dtype)
        return aril__fail(ARIL_ERR_DTYPE,
                          "%s: images and grid must have the same dtype, got %s and %s",
                          c->op->name, aril__dtypes[x->dtype].name, aril__dtypes[grid->dtype].name);
    return ARIL_OK;
}

static void sampled_shape(const aril_tensor *x, const aril_tensor *grid, int64_t *dim)
{
    dim[0] = x->dim[0] < 0 ? grid->dim[0] : x->dim[0];
    dim[1] = x->dim[1];
    dim[2] = grid->dim[1];
    dim[3] = grid->dim[2];
}

static aril_status check_g(const aril__call *c, const aril_tensor *x, const aril_tensor *grid)
{
    int64_t dim[4];
    const aril_tensor *g = c->in[0];
    aril_status s = check(c, x, grid);
    if (s < 0) return s;
    sampled_shape(x, grid, dim);
    bool fits = g->ndim == 4 && g->dtype == grid->dtype;
    for (int i = 0; i < 4 && fits; i++) fits = g->dim[i] < 0 || dim[i] < 0 || g->dim[i] == dim[i];
    if (fits) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: expected a gradient of shape %s, got %s", c->op->name,
                      aril__shape_text(a, 4, dim), aril__text(b, g));
}

static void set_shape(aril__call *c, const int64_t *dim)
{
    c->out[0].dtype = (aril_dtype)c->in[0]->dtype;
    c->out[0].ndim = 4;
    memcpy(c->out[0].dim, dim, 4 * sizeof *dim);
}

static aril_status grid_sample_infer(aril__call *c)
{
    int64_t dim[4];
    aril_status s = check(c, c->in[0], c->in[1]);
    if (s < 0) return s;
    sampled_shape(c->in[0], c->in[1], dim);
    set_shape(c, dim);
    return ARIL_OK;
}

static aril_status grid_sample_grad_x_infer(aril__call *c)
{
    aril_status s = check_g(c, c->in[2], c->in[1]);
    if (s == ARIL_OK) set_shape(c, c->in[2]->dim);
    return s;
}

static aril_status grid_sample_grad_grid_infer(aril__call *c)
{
    aril_status s = check_g(c, c->in[1], c->in[2]);
    if (s == ARIL_OK) set_shape(c, c->in[2]->dim);
    return s;
}

/* ---- points ---- */

/* Maps a coordinate from -1 .. 1 to a pixel position on one axis; also outputs the derivative. */
static double unnormalize(const aril__grid *grid, double v, int64_t n, double *slope)
{
    *slope = grid->align ? (double)(n - 1) / 2 : (double)n / 2;
    return grid->align ? (v + 1) / 2 * (double)(n - 1) : ((v + 1) * (double)n - 1) / 2;
}

/* Maps p into the image according to the padding mode, and multiplies slope by the derivative. */
static double confine(const aril__grid *grid, double p, int64_t n, double *slope)
{
    double max = (double)(n - 1);
    if (grid->padding == ARIL_GRID_ZEROS) return p;
    if (grid->padding == ARIL_GRID_REFLECTION) {
        double low = grid->align ? 0 : -0.5, span = grid->align ? max : (double)n;
        if (span == 0) {
            *slope = 0;
            return 0;
        }
        double from = fabs(p - low), flips = floor(from / span), extra = from - flips * span;
        bool even = fmod(flips, 2) == 0;
        *slope *= (p < low ? -1 : 1) * (even ? 1 : -1);
        p = (even ? extra : span - extra) + low;
    }
    if (!(p > 0 && p < max)) *slope = 0;
    return p > 0 ? p < max ? p : max : 0;
}

/* The index of element (floor(py), floor(px)), or -1 outside. */
static int64_t element(const aril__grid *grid, double py, double px)
{
    bool inside = py >= 0 && px >= 0 && py <= (double)(grid->h - 1) && px <= (double)(grid->w - 1);
    return inside ? (int64_t)py * grid->w + (int64_t)px : -1;
}

/* Weights of the four taps of a cubic at fraction t of a pixel, and their derivatives. */
static void cubic_weights(double t, double *w, double *d)
{
    const double a = -0.75;
    for (int k = 0; k < 4; k++) {
        double s = k - 1 - t, x = fabs(s), sign = s < 0 ? 1 : -1; /* d|s|/dt */
        bool inner = k == 1 || k == 2;
        w[k] = inner ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((x - 5) * x + 8) * x * a - 4 * a;
        d[k] = sign * (inner ? (3 * (a + 2) * x - 2 * (a + 3)) * x : ((3 * x - 10) * x + 8) * a);
    }
}

/* The pixels of the taps along an axis from `first` on, inside the image unless zeros are around
 * it. */
static void tap_pixels(const aril__grid *grid, double first, int taps, int64_t n, double *at)
{
    bool confined = taps == 4 && grid->padding != ARIL_GRID_ZEROS;
    for (int k = 0; k < taps; k++) {
        double unused = 1;
        at[k] = first + k;
        if (confined) at[k] = nearbyint(confine(grid, at[k], n, &unused));
    }
}

void aril__grid_look_up(const aril__grid *grid, double gx, double gy, aril__grid_point *p)
{
    double sx, sy, px = unnormalize(grid, gx, grid->w, &sx),
                   py = unnormalize(grid, gy, grid->h, &sy);
    double wx[4] = { 1 }, wy[4] = { 1 }, dx[4] = { 0 }, dy[4] = { 0 };
    int taps = grid->mode == ARIL_GRID_BICUBIC ? 4 : grid->mode == ARIL_GRID_NEAREST ? 1 : 2;
    p->n = 0;
    if (taps < 4) {
        px = confine(grid, px, grid->w, &sx);
        py = confine(grid, py, grid->h, &sy);
    }
    if (!isfinite(px) || !isfinite(py) || fabs(px) > 1e9 || fabs(py) > 1e9) {
        if (taps < 4 || grid->padding == ARIL_GRID_ZEROS) return;
        px = isfinite(px) && fabs(px) <= 1e9 ? px : -100;
        py = isfinite(py) && fabs(py) <= 1e9 ? py : -100;
    }
    double x0 = taps == 1 ? nearbyint(px) : floor(px), y0 = taps == 1 ? nearbyint(py) : floor(py);
    if (taps == 2) {
        wx[1] = px - x0;
        wx[0] = 1 - wx[1];
        wy[1] = py - y0;
        wy[0] = 1 - wy[1];
        dx[0] = dy[0] = -1;
        dx[1] = dy[1] = 1;
    } else if (taps == 4) {
        cubic_weights(px - x0, wx, dx);
        cubic_weights(py - y0, wy, dy);
        x0--;
        y0--;
    }
    double ex[4], ey[4];
    tap_pixels(grid, x0, taps, grid->w, ex);
    tap_pixels(grid, y0, taps, grid->h, ey);
    for (int b = 0; b < taps; b++)
        for (int a = 0; a < taps; a++) {
            p->at[p->n] = element(grid, ey[b], ex[a]);
            p->weight[p->n] = wx[a] * wy[b];
            p->dx[p->n] = dx[a] * wy[b] * sx;
            p->dy[p->n] = wx[a] * dy[b] * sy;
            p->n += p->at[p->n] >= 0;
        }
}

/* ---- references ---- */

/* The i-th sampling point of the grid tensor [N,h,w,2]. */
static aril__grid_point point_at(const aril__grid *how, const aril_tensor *grid, int64_t i)
{
    aril__grid_point p;
    aril__grid_look_up(how, aril__get(grid, 2 * i), aril__get(grid, 2 * i + 1), &p);
    return p;
}

/* Element i of y, [N,C,h,w], is read at this point of the grid. */
static int64_t position_of(const aril_tensor *y, int64_t i)
{
    int64_t points = y->dim[2] * y->dim[3];
    return i / (points * y->dim[1]) * points + i % points;
}

/* y = the weighted sum of the elements of x that its point reads */
static aril_status grid_sample_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    aril_tensor *y = r->out[0];
    aril__grid how = aril__grid_of(r->attrs, x);
    for (int64_t i = 0; i < y->numel; i++) {
        aril__grid_point p = point_at(&how, r->in[1], position_of(y, i));
        int64_t image = i / (y->dim[2] * y->dim[3]) * how.h * how.w;
        double sum = 0;
        for (int k = 0; k < p.n; k++) sum += p.weight[k] * aril__get(x, image + p.at[k]);
        aril__put(y, i, sum);
    }
    return ARIL_OK;
}

/* Each y gives its gradient, by weight, to the elements of x that it read. */
static aril_status grid_sample_grad_x_ref(aril__run *r)
{
    const aril_tensor *g = r->in[0];
    aril_tensor *x = r->out[0];
    aril__grid how = aril__grid_of(r->attrs, x);
    double *sums = r->workspace;
    for (int64_t i = 0; i < x->numel; i++) sums[i] = 0;
    for (int64_t i = 0; i < g->numel; i++) {
        aril__grid_point p = point_at(&how, r->in[1], position_of(g, i));
        int64_t image = i / (g->dim[2] * g->dim[3]) * how.h * how.w;
        for (int k = 0; k < p.n; k++) sums[image + p.at[k]] += p.weight[k] * aril__get(g, i);
    }
    for (int64_t i = 0; i < x->numel; i++) aril__put(x, i, sums[i]);
    return ARIL_OK;
}

/* A sum for each element of x. */
static size_t grid_sample_grad_x_scratch(const aril__run *r)
{
    return (size_t)r->out[0]->numel * sizeof(double);
}

/* The derivatives of all channels of y by the coordinates of their point. */
static aril_status grid_sample_grad_grid_ref(aril__run *r)
{
    const aril_tensor *g = r->in[0], *x = r->in[1], *grid = r->in[2];
    aril__grid how = aril__grid_of(r->attrs, x);
    int64_t channels = x->dim[1], points = grid->dim[1] * grid->dim[2];
    for (int64_t i = 0; i < grid->numel / 2; i++) {
        aril__grid_point p = point_at(&how, grid, i);
        double along_x = 0, along_y = 0;
        for (int64_t c = 0; c < channels; c++) {
            int64_t plane = i / points * channels + c;
            double v = aril__get(g, plane * points + i % points);
            for (int k = 0; k < p.n; k++) {
                double at = aril__get(x, plane * how.h * how.w + p.at[k]);
                along_x += v * p.dx[k] * at;
                along_y += v * p.dy[k] * at;
            }
        }
        aril__put(r->out[0], 2 * i, along_x);
        aril__put(r->out[0], 2 * i + 1, along_y);
    }
    return ARIL_OK;
}

/* ---- the gradient for the grid, decomposed into other ops ---- */

/* One axis: the pixel below each sampling point, and the weights of the taps from there. All of
 * shape [N, places]. */
typedef struct axis {
    aril_tensor *size, *max, *first, *slope; /* size and most: scalars */
    aril_tensor *w[4], *d[4];
} axis;

static aril_tensor *either(aril_tensor *truth, double yes, double no, aril_tensor *like)
{
    return aril_where(truth, aril_full_like(like, yes), aril_full_like(like, no));
}

static aril_tensor *within(aril_tensor *p, const axis *a)
{
    return aril_minimum(aril_maximum(p, aril_zeros_like(p)), a->max);
}

static aril_tensor *confined(const struct grid_sample_attrs *at, axis *a, aril_tensor *p)
{
    if (at->padding[0] == ARIL_GRID_ZEROS) return p;
    if (at->padding[0] == ARIL_GRID_REFLECTION) {
        double low = at->align_corners[0] ? 0 : -0.5;
        aril_tensor *span = at->align_corners[0] ? a->max : a->size;
        span = aril_where(aril_eq_scalar(span, 0), aril_ones_like(span), span);
        aril_tensor *apart = aril_sub_scalar(p, low), *from = aril_abs(apart);
        aril_tensor *flips = aril_floor(aril_div(from, span));
        aril_tensor *extra = aril_sub(from, aril_mul(flips, span));
        aril_tensor *even = aril_eq_scalar(aril_remainder_scalar(flips, 2), 0);
        a->slope = aril_mul(a->slope, aril_mul(either(aril_lt_scalar(apart, 0), -1, 1, p),
                                               either(even, 1, -1, p)));
        p = aril_add_scalar(aril_where(even, extra, aril_sub(span, extra)), low);
    }
    aril_tensor *inside = aril_logical_and(aril_gt_scalar(p, 0), aril_lt(p, a->max));
    a->slope = aril_mul(a->slope, either(inside, 1, 0, p));
    return within(p, a);
}

/* Axis `k` (3: x, 2: y) of the image, for the grid coordinates g. */
static axis axis_of(const struct grid_sample_attrs *at, aril_tensor *x, aril_tensor *g, int k)
{
    axis a = { .size = aril__count_like(x, aril_slice(x, k, 0, 1, 1)) };
    bool align = at->align_corners[0];
    a.max = aril_sub_scalar(a.size, 1);
    aril_tensor *p = aril_mul(aril_add_scalar(g, 1), align ? a.max : a.size);
    p = aril_mul_scalar(align ? p : aril_sub_scalar(p, 1), 0.5);
    a.slope = aril_mul_scalar(aril__expand_like(align ? a.max : a.size, p), 0.5);
    if (at->mode[0] != ARIL_GRID_BICUBIC) p = confined(at, &a, p);
    a.first = aril_floor(p);
    aril_tensor *t = aril_sub(p, a.first);
    if (at->mode[0] != ARIL_GRID_BICUBIC) {
        a.w[1] = t;
        a.w[0] = aril_add_scalar(aril_neg(t), 1);
        a.d[1] = aril_ones_like(t);
        a.d[0] = aril_full_like(t, -1);
        return a;
    }
    a.first = aril_sub_scalar(a.first, 1);
    const double c = -0.75;
    for (int i = 0; i < 4; i++) { /* the polynomials of cubic_weights in s = |i - 1 - t| */
        double sign = i < 2 ? 1 : -1;
        aril_tensor *s = aril_add_scalar(aril_mul_scalar(t, sign), sign * (1 - i));
        double p3 = i == 1 || i == 2 ? c + 2 : c, p2 = i == 1 || i == 2 ? -(c + 3) : -5 * c;
        double p1 = i == 1 || i == 2 ? 0 : 8 * c, p0 = i == 1 || i == 2 ? 1 : -4 * c;
        aril_tensor *s2 = aril_mul(s, s);
        a.w[i] = aril_add(aril_mul(s2, aril_add_scalar(aril_mul_scalar(s, p3), p2)),
                          aril_add_scalar(aril_mul_scalar(s, p1), p0));
        a.d[i] = aril_mul_scalar(
            aril_add_scalar(aril_add(aril_mul_scalar(s2, 3 * p3), aril_mul_scalar(s, 2 * p2)), p1),
            sign);
    }
    return a;
}

/* Tap i along an axis: the pixel as i64, and a mask of 0 or 1 for whether it is inside. */
static aril_tensor *pixel(const struct grid_sample_attrs *at, axis a, int i, aril_tensor **inside)
{
    aril_tensor *p = aril_add_scalar(a.first, i);
    if (at->mode[0] == ARIL_GRID_BICUBIC) p = aril_round(confined(at, &a, p));
    *inside = either(aril_logical_and(aril_ge_scalar(p, 0), aril_le(p, a.max)), 1, 0, p);
    return aril_cast(within(p, &a), ARIL_I64);
}

static void grid_sample_grad_grid_decompose(aril__call *c, aril_tensor **out)
{
    const struct grid_sample_attrs *at = c->attrs;
    aril_tensor *g = c->in[0], *x = c->in[1], *grid = c->in[2];
    if (at->mode[0] == ARIL_GRID_NEAREST) {
        out[0] = aril_zeros_like(grid);
        return;
    }
    ARIL_SCOPE;
    aril_tensor *gx = aril_slice(grid, 3, 0, 1, 1), *gy = aril_slice(grid, 3, 1, 2, 1);
    axis ax = axis_of(at, x, aril_flatten(gx, 1, 3), 3);
    axis ay = axis_of(at, x, aril_flatten(gy, 1, 3), 2);
    aril_tensor *flat = aril_flatten(x, 2, 3), *grads = aril_flatten(g, 2, 3); /* [N,C,..] */
    aril_tensor *dx = NULL, *dy = NULL, *width = aril_cast(ax.size, ARIL_I64);
    int taps = at->mode[0] == ARIL_GRID_BICUBIC ? 4 : 2;
    for (int b = 0; b < taps; b++) {
        for (int a = 0; a < taps; a++) {
            aril_tensor *in_x, *in_y;
            aril_tensor *px = pixel(at, ax, a, &in_x), *py = pixel(at, ay, b, &in_y);
            aril_tensor *index = aril_unsqueeze(aril_add(aril_mul(py, width), px), 1);
            aril_tensor *v = aril_gather(flat, aril__expand_like(index, grads), 2);
            aril_tensor *sum = aril_sum(aril_mul(grads, v), ARIL_AXES(1)); /* [N, places] */
            sum = aril_mul(sum, aril_mul(in_x, in_y));
            aril_tensor *sx = aril_mul(sum, aril_mul(ax.d[a], ay.w[b]));
            aril_tensor *sy = aril_mul(sum, aril_mul(ax.w[a], ay.d[b]));
            dx = dx ? aril_add(dx, sx) : sx;
            dy = dy ? aril_add(dy, sy) : sy;
        }
    }
    dx = aril__reshape_like(aril_mul(dx, ax.slope), gx);
    dy = aril__reshape_like(aril_mul(dy, ay.slope), gy);
    out[0] = aril_escape(aril_cat(ARIL_LIST(dx, dy), 3));
}

/* ---- op table rows ---- */

VJP(grid_sample)
{
    aril_tensor *g = c->g[0];
    if (!g) return;
    GRAD(0, aril__op_with(c->attrs, &aril__op_grid_sample_grad_x, g, c->x[1], c->x[0]));
    GRAD(1, aril__op_with(c->attrs, &aril__op_grid_sample_grad_grid, g, c->x[0], c->x[1]));
}

VJP(grid_sample_grad_x)
{
    aril_tensor *h = c->g[0]; /* like x */
    if (!h) return;
    GRAD(0, aril__op_with(c->attrs, &aril__op_grid_sample, h, c->x[1]));
    GRAD(1, aril__op_with(c->attrs, &aril__op_grid_sample_grad_grid, c->x[0], h, c->x[1]));
}

#define HOW(mode_, padding_, align_)  \
    &(const struct grid_sample_attrs) \
    {                                 \
        { mode_ }, { padding_ },      \
        {                             \
            align_                    \
        }                             \
    }

static const aril__sample grid_sample_samples[] = {
    { .in = { "[2,2,4,3]", "u[2,2,3,2]" },
      .attrs = HOW(ARIL_GRID_BILINEAR, ARIL_GRID_ZEROS, 0),
      .flags = SAMPLE_BATCH | SAMPLE_NO_LOW },
    { .in = { "[1,2,3,4]", "[1,3,2,2]" },
      .attrs = HOW(ARIL_GRID_BILINEAR, ARIL_GRID_BORDER, 1),
      .flags = SAMPLE_NO_LOW },
    { .in = { "[1,2,3,4]", "[1,3,2,2]" },
      .attrs = HOW(ARIL_GRID_BILINEAR, ARIL_GRID_REFLECTION, 0),
      .flags = SAMPLE_NO_LOW },
    { .in = { "[1,2,3,4]", "u[1,3,2,2]" },
      .attrs = HOW(ARIL_GRID_NEAREST, ARIL_GRID_ZEROS, 0),
      .flags = SAMPLE_NO_LOW },
    { .in = { "[1,1,4,5]", "u[1,2,2,2]" },
      .attrs = HOW(ARIL_GRID_BICUBIC, ARIL_GRID_ZEROS, 0),
      .flags = SAMPLE_NO_LOW },
    { .in = { "[1,1,4,5]", "u[1,2,2,2]" },
      .attrs = HOW(ARIL_GRID_BICUBIC, ARIL_GRID_BORDER, 1),
      .flags = SAMPLE_NO_LOW },
    { .in = { "[1,7,3,2]", "[1,2,2,2]" },
      .attrs = HOW(ARIL_GRID_NEAREST, ARIL_GRID_BORDER, 1),
      .flags = SAMPLE_NO_LOW },
    { .in = { "[0,2,4,3]", "u[0,2,3,2]" }, .attrs = HOW(ARIL_GRID_BILINEAR, ARIL_GRID_ZEROS, 0) },
    SAMPLE_END
};
OP(grid_sample, .doc = "samples images at the points of a grid", .onnx = "GridSample", .min_in = 2,
   .max_in = 2, .n_out = 1, .cast = CAST_F32, .flags = STRIDED, .types = DT_FLOAT,
   .infer = grid_sample_infer, .ref = grid_sample_ref, .vjp = grid_sample_vjp,
   .saves = { IN(1) | LIKE(0), IN(0) | IN(1) }, .samples = grid_sample_samples,
   WITH_ATTRS(grid_sample));

static const aril__sample grid_sample_grad_x_samples[] = {
    { .in = { "[2,2,2,3]", "u[2,2,3,2]", "[2,2,4,3]" },
      .attrs = HOW(ARIL_GRID_BILINEAR, ARIL_GRID_ZEROS, 0),
      .flags = SAMPLE_BATCH | SAMPLE_NO_LOW },
    { .in = { "[1,2,3,2]", "[1,3,2,2]", "[1,2,3,4]" },
      .attrs = HOW(ARIL_GRID_BILINEAR, ARIL_GRID_REFLECTION, 1),
      .flags = SAMPLE_NO_LOW },
    { .in = { "[1,7,2,2]", "u[1,2,2,2]", "[1,7,2,3]" },
      .attrs = HOW(ARIL_GRID_BILINEAR, ARIL_GRID_ZEROS, 1),
      .flags = SAMPLE_NO_LOW },
    { .in = { "[1,2,3,2]", "u[1,3,2,2]", "[1,2,3,4]" },
      .attrs = HOW(ARIL_GRID_NEAREST, ARIL_GRID_ZEROS, 0),
      .flags = SAMPLE_NO_LOW },
    SAMPLE_END
};
OP(grid_sample_grad_x,
   .doc = "gradient of grid_sample for the images, in the shape of the third input", .min_in = 3,
   .max_in = 3, .n_out = 1, .shape_only = IN(2), .flags = GRADIENT | STRIDED, .types = DT_FLOAT,
   .infer = grid_sample_grad_x_infer, .ref = grid_sample_grad_x_ref,
   .workspace = grid_sample_grad_x_scratch, .vjp = grid_sample_grad_x_vjp,
   .saves = { IN(1), IN(0) | IN(1) }, .samples = grid_sample_grad_x_samples,
   WITH_ATTRS(grid_sample));

static const aril__sample grid_sample_grad_grid_samples[] = {
    { .in = { "[2,2,2,3]", "[2,2,4,3]", "u[2,2,3,2]" },
      .attrs = HOW(ARIL_GRID_BILINEAR, ARIL_GRID_ZEROS, 0),
      .flags = SAMPLE_BATCH | SAMPLE_NO_LOW },
    { .in = { "[1,2,3,2]", "[1,2,3,4]", "[1,3,2,2]" },
      .attrs = HOW(ARIL_GRID_BILINEAR, ARIL_GRID_REFLECTION, 0),
      .flags = SAMPLE_NO_LOW },
    { .in = { "[1,2,3,2]", "[1,2,3,4]", "[1,3,2,2]" },
      .attrs = HOW(ARIL_GRID_BILINEAR, ARIL_GRID_BORDER, 1),
      .flags = SAMPLE_NO_LOW },
    { .in = { "[1,1,2,2]", "[1,1,4,5]", "u[1,2,2,2]" },
      .attrs = HOW(ARIL_GRID_BICUBIC, ARIL_GRID_ZEROS, 0),
      .flags = SAMPLE_NO_LOW },
    { .in = { "[1,1,2,2]", "[1,1,4,5]", "u[1,2,2,2]" },
      .attrs = HOW(ARIL_GRID_BICUBIC, ARIL_GRID_REFLECTION, 1),
      .flags = SAMPLE_NO_LOW },
    SAMPLE_END
};
OP(grid_sample_grad_grid, .doc = "gradient of grid_sample with respect to the grid", .min_in = 3,
   .max_in = 3, .n_out = 1, .flags = GRADIENT | STRIDED, .types = DT_FLOAT,
   .infer = grid_sample_grad_grid_infer, .ref = grid_sample_grad_grid_ref,
   .decompose = grid_sample_grad_grid_decompose, .samples = grid_sample_grad_grid_samples,
   WITH_ATTRS(grid_sample));

/* ---- public ---- */

aril_tensor *aril_grid_sample(aril_tensor *x, aril_tensor *grid, aril_grid_opts opts)
{
    struct grid_sample_attrs a = { { opts.mode }, { opts.padding }, { opts.align_corners } };
    if ((int)opts.mode < 0 || opts.mode > ARIL_GRID_BICUBIC || (int)opts.padding < 0 ||
        opts.padding > ARIL_GRID_REFLECTION) {
        aril__fail(ARIL_ERR_ARG, "grid_sample: unknown mode %d or padding mode %d", (int)opts.mode,
                   (int)opts.padding);
        return aril__poison();
    }
    return aril__op_with(&a, &aril__op_grid_sample, x, grid);
}
