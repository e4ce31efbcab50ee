#include "backend/onednn/pool.h"

#include "backend/onednn/cut.h"
#include "core/cpu.h"
#include "core/parallel.h"
#include "ops/vision/pool.h"

#include <math.h>
#include <stdlib.h>

enum {
    MIN_PIECE = 8 * 1024, /* minimum elements per piece */
    CHANNELS = 16,        /* contiguous channels from which Aril's own max_pool vectorizes well */
    MANY = 16 << 20,      /* elements from which max_pool should read each only once */
};

/* x is the larger side, y the pooled one. Arrays of three are for spatial dimensions. */
typedef struct pool_plan {
    const aril__op *op;
    aril_dtype type;
    int ndim;
    int64_t x_dim[5], y_dim[5];
    dnnl_dims_t kernel, stride, dilation, begin, end; /* in oneDNN's conventions */
    bool last;                                        /* channels-last */
    bool counts_pad;
    int64_t tap_bytes; /* of max_pool's index of the largest tap in a window: 1 or 4 */
    size_t taps_at;    /* where these begin in the workspace, after the offset of each tap */
    aril__dnn_cut cut;
} pool_plan;

static bool is_grad(const pool_plan *p)
{
    return p->op == &aril__op_avg_pool_grad || p->op == &aril__op_adaptive_avg_pool_grad;
}

static bool is_max(const pool_plan *p)
{
    return p->op == &aril__op_max_pool;
}

static dnnl_memory_desc_t image(const pool_plan *p, int64_t samples, const int64_t *dim)
{
    int64_t sizes[5] = { samples, dim[1], dim[2], dim[3], dim[4] };
    return p->last ? aril__dnn_last(aril__dnn_type(p->type), p->ndim, sizes)
                   : aril__dnn_dense(aril__dnn_type(p->type), p->ndim, sizes);
}

static const char *make_pool(void *ctx, int64_t samples, aril__dnn *made)
{
    const pool_plan *p = ctx;
    dnnl_memory_desc_t x = image(p, samples, p->x_dim), y = image(p, samples, p->y_dim);
    dnnl_primitive_attr_t attr = aril__dnn_attr(0);
    dnnl_alg_kind_t alg = is_max(p)       ? dnnl_pooling_max
                          : p->counts_pad ? dnnl_pooling_avg_include_padding
                                          : dnnl_pooling_avg_exclude_padding;
    dnnl_prop_kind_t kind =
        is_grad(p) || is_max(p) ? dnnl_forward_training : dnnl_forward_inference;
    dnnl_primitive_desc_t forward = NULL, back = NULL;
    dnnl_status_t st = dnnl_out_of_memory;
    if (x && y && attr)
        st = aril__dnn_serially(dnnl_pooling_forward_primitive_desc_create(
            &forward, aril__dnn_engine(), kind, alg, x, y, p->stride, p->kernel, p->dilation,
            p->begin, p->end, attr));
    const char *why;
    if (is_grad(p)) {
        if (st == dnnl_success)
            st = aril__dnn_serially(dnnl_pooling_backward_primitive_desc_create(
                &back, aril__dnn_engine(), alg, x, y, p->stride, p->kernel, p->dilation, p->begin,
                p->end, forward, attr));
        if (forward) dnnl_primitive_desc_destroy(forward);
        why = aril__dnn_make(made, st, back, 2, (int[]){ DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST });
    } else {
        why = aril__dnn_make(made, st, forward, 2 + is_max(p),
                             (int[]){ DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WORKSPACE });
    }
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (y) dnnl_memory_desc_destroy(y);
    if (x) dnnl_memory_desc_destroy(x);
    return why;
}

/* ---- the plan ---- */

void aril__dnn_pool_destroy(void *prepared)
{
    pool_plan *p = prepared;
    aril__dnn_cut_destroy(&p->cut);
    free(p);
}

/* Converts the windows of one dimension to oneDNN's terms; returns the reason when it cannot. */
static const char *take_window(pool_plan *p, int i, const struct pool_attrs *a, bool adaptive)
{
    int64_t in = p->x_dim[2 + i], out = p->y_dim[2 + i];
    if (adaptive) {
        if (in % out) return "windows of different sizes";
        p->kernel[i] = p->stride[i] = in / out;
        return NULL;
    }
    aril__slide w = aril__pool_window(a, i, in);
    if (w.dilation != 1) return "dilation";
    if (is_max(p) && w.kernel > in) return "a window larger than the image, most of it padding";
    p->kernel[i] = w.kernel;
    p->stride[i] = w.stride;
    p->begin[i] = w.begin;
    /* How far the last window reaches beyond the input, padding or not. */
    p->end[i] = (out - 1) * w.stride + w.kernel - in - w.begin;
    if (p->end[i] > w.end && p->counts_pad) return "a window that extends past the padding";
    if (p->end[i] < 0) p->end[i] = 0;
    if ((out - 1) * w.stride - w.begin >= in || w.begin >= w.kernel)
        return "a window entirely in the padding";
    return NULL;
}

static const char *fill_plan(const aril__run *r, pool_plan *p)
{
    const struct pool_attrs *a = r->attrs;
    bool grad = is_grad(p);
    bool adaptive = aril__pool_is_adaptive(p->op);
    const aril_tensor *x = grad ? r->out[0] : r->in[0], *y = grad ? r->in[0] : r->out[0];
    if (x->numel == 0 || y->numel == 0) return "an empty tensor";
    const char *why = NULL;
    p->last = aril__dnn_takes_last(x, y);
    p->ndim = x->ndim;
    for (int i = 0; i < x->ndim; i++) {
        p->x_dim[i] = x->dim[i];
        p->y_dim[i] = y->dim[i];
    }
    p->counts_pad = !adaptive && !is_max(p) && a->include_pad[0];
    if (!adaptive && !is_max(p) && a->divisor[0]) why = "a custom divisor";
    for (int i = 0; i < x->ndim - 2 && !why; i++) why = take_window(p, i, a, adaptive);
    return why;
}

/* When Aril's own kernels are faster. */
static const char *slower(const aril__run *r, const pool_plan *p)
{
    const aril_tensor *x = is_grad(p) ? r->out[0] : r->in[0];
    if (!aril__is_dense(x) && aril__is_samples_last(x))
        return "Aril's kernel takes samples-last images as they are";
    if (p->op == &aril__op_adaptive_avg_pool_grad && aril__is_only_channels_last(x) &&
        aril_is_channels_last(r->in[0]))
        return "Aril's kernel is faster channels-last";
    if (!p->last && p->op != &aril__op_adaptive_avg_pool && aril__cpu() < ARIL__CPU_AVX512)
        return "oneDNN has no vector kernel for contiguous images on this CPU";
    if (!p->last && p->ndim == 3 && p->type == ARIL_F32)
        return "Aril's kernel is faster for contiguous signals";
    if (!p->last && p->op == &aril__op_adaptive_avg_pool &&
        aril__count(p->ndim - 2, p->y_dim + 2) == 1)
        return "Aril's kernel is faster for whole planes";
    if (!is_max(p)) return NULL;
    if (p->last && p->x_dim[1] >= CHANNELS) return "Aril's kernel is faster for many channels";
    return aril__count(p->ndim, p->x_dim) >= MANY ? "Aril's kernel is faster when memory-bound"
                                                  : NULL;
}

const char *aril__dnn_pool_prepare(const aril__run *r, aril__plan *plan)
{
    if (!aril__dnn_engine()) return "oneDNN failed to initialize";
    if (r->op == &aril__op_max_pool && !r->out[1]) return "Aril's kernel is faster without indices";
    pool_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    p->op = r->op;
    p->type = r->type;
    const char *why = fill_plan(r, p);
    if (!why && aril__force_row < 0) why = slower(r, p);
    if (!why) {
        int64_t numel = aril__count(p->ndim, p->x_dim);
        why = aril__dnn_cut_make(&p->cut, p->x_dim[0], aril__parallel_pieces(numel, MIN_PIECE),
                                 make_pool, p);
    }
    if (why) {
        free(p);
        return why;
    }
    if (is_max(p)) {
        p->tap_bytes = (int64_t)(aril__dnn_bytes(&p->cut.kind[0], DNNL_ARG_WORKSPACE) /
                                 (size_t)(p->cut.size[0] * aril__count(p->ndim - 1, p->y_dim + 1)));
        p->taps_at = (size_t)(aril__count(p->ndim - 2, p->kernel)) * sizeof(int64_t);
        p->taps_at = (p->taps_at + 63) / 64 * 64;
        plan->workspace = p->taps_at + (size_t)(p->tap_bytes * aril__count(p->ndim, p->y_dim));
    }
    plan->prepared = p;
    plan->in[0].order = plan->out[0].order = plan->out[1].order = aril__dnn_image_order(p->last);
    aril__dnn_cut_ask(&p->cut, plan);
    return NULL;
}

/* ---- running ---- */

/* oneDNN's maximum starts at the lowest finite number and skips NaN: checks that x has neither NaN
 * nor minus infinity. */
typedef struct scan {
    const void *x;
    aril_dtype type;
    atomic_bool odd;
} scan;

static void look(void *ctx, int64_t begin, int64_t end)
{
    scan *s = ctx;
    bool odd = false;
    if (s->type == ARIL_F32) {
        const float *x = s->x;
        for (int64_t i = begin; i < end; i++) odd |= !(x[i] > -INFINITY);
    } else { /* the bits of minus infinity, and of NaN without their sign */
        const uint16_t *x = s->x;
        uint16_t inf = s->type == ARIL_BF16 ? 0x7f80 : 0x7c00;
        for (int64_t i = begin; i < end; i++)
            odd |= x[i] == (inf | 0x8000) || (x[i] & 0x7fff) > inf;
    }
    if (odd) atomic_store_explicit(&s->odd, true, memory_order_relaxed);
}

/* Converts the index of the largest tap in a window to an index in the image. */
typedef struct placing {
    const pool_plan *p;
    const void *taps;
    int64_t *index;
    int64_t run;     /* elements processed together: channels, or a row of windows */
    int64_t step;    /* between the first elements of adjacent windows in the run */
    int64_t *offset; /* of each tap from the first element of its window */
} placing;

static void scatter(void *ctx, int64_t begin, int64_t end)
{
    const placing *l = ctx;
    const pool_plan *p = l->p;
    int n = p->ndim - 2;
    for (; begin < end; begin++) {
        int64_t rest = begin, first = 0, size = 1;
        for (int i = n - 1; i >= 0; i--) {
            int64_t o = p->last || i < n - 1 ? rest % p->y_dim[2 + i] : 0;
            if (p->last || i < n - 1) rest /= p->y_dim[2 + i];
            first += (o * p->stride[i] - p->begin[i]) * size;
            size *= p->x_dim[2 + i];
        }
        int64_t *to = l->index + begin * l->run;
        if (p->tap_bytes == 1) {
            const uint8_t *tap = (const uint8_t *)l->taps + begin * l->run;
            for (int64_t i = 0; i < l->run; i++) to[i] = first + i * l->step + l->offset[tap[i]];
        } else {
            const int32_t *tap = (const int32_t *)l->taps + begin * l->run;
            for (int64_t i = 0; i < l->run; i++) to[i] = first + i * l->step + l->offset[tap[i]];
        }
    }
}

static aril_status place_all(aril__run *r, const pool_plan *p)
{
    int n = p->ndim - 2;
    int64_t taps = aril__count(n, p->kernel);
    placing l = { .p = p,
                  .taps = (const char *)r->workspace + p->taps_at,
                  .index = aril__ptr(r->out[1]),
                  .offset = r->workspace };
    l.run = p->last ? p->y_dim[1] : p->y_dim[p->ndim - 1];
    l.step = p->last ? 0 : p->stride[n - 1];
    for (int64_t t = 0; t < taps; t++) {
        int64_t rest = t, size = 1;
        l.offset[t] = 0;
        for (int i = n - 1; i >= 0; rest /= p->kernel[i], size *= p->x_dim[2 + i], i--)
            l.offset[t] += rest % p->kernel[i] * size;
    }
    int64_t grain = MIN_PIECE / l.run;
    aril__parallel_for(r->out[1]->numel / l.run, grain > 1 ? grain : 1, scatter, &l);
    return ARIL_OK;
}

aril_status aril__dnn_pool(aril__run *r)
{
    pool_plan *p = r->prepared;
    aril_tensor *x = is_grad(p) ? r->out[0] : r->in[0], *y = is_grad(p) ? r->in[0] : r->out[0];
    int64_t size = (int64_t)aril__dtype_bytes(p->type, 1);
    int64_t y_each = aril__count(p->ndim - 1, p->y_dim + 1);
    if (is_max(p)) {
        scan s = { .x = aril__ptr(x), .type = p->type };
        aril__parallel_for(x->numel, MIN_PIECE, look, &s);
        if (atomic_load(&s.odd)) return aril__dnn_leave_it(r);
    }
    aril__dnn_args args = { .data = { aril__ptr(x), aril__ptr(y),
                                      is_max(p) ? (char *)r->workspace + p->taps_at : NULL },
                            .step = { aril__count(p->ndim - 1, p->x_dim + 1) * size, y_each * size,
                                      y_each * p->tap_bytes } };
    dnnl_status_t st = aril__dnn_cut_run(&p->cut, r, &args);
    if (st == dnnl_success && is_max(p)) return place_all(r, p);
    return aril__dnn_status(r->op->name, st);
}
