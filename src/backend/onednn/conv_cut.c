#include "backend/onednn/conv_cut.h"

#include "ops/elementwise/activation.h"
#include "ops/vision/conv.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_KINDS = 64, /* different piece sizes in one cut */
    TRIES = 6,      /* splits tried before falling back to a single piece */
};

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- pieces ---- */

/* The input range that results [from, to) of the first spatial dimension need; false when empty. */
static bool span_of(const aril__conv_plan *p, int64_t from, int64_t to, aril__conv_piece *s)
{
    const aril__conv *d = &p->d;
    int i = 3 - p->spatial;
    bool to_x = p->role == ARIL__CONV_X;
    int64_t step = d->stride[i], reach = (d->kernel[i] - 1) * d->dilation[i] + 1;
    if (from == 0 && to == (to_x ? d->in[i] : d->out[i])) { /* everything, also unread input */
        s->in0 = s->out0 = 0;
        s->in = d->in[i];
        s->out = d->out[i];
        s->begin = d->begin[i];
        s->end = max_of(0, (s->out - 1) * step + reach - s->in - s->begin);
    } else if (to_x) { /* x: the windows that read it */
        int64_t first = from + d->begin[i] - reach + 1;
        first = first > 0 ? (first + step - 1) / step : 0;
        first = min_of(first, (from + d->begin[i]) / step);
        s->in0 = from;
        s->in = to - from;
        s->out0 = first;
        s->out = min_of(d->out[i], (to - 1 + d->begin[i]) / step + 1) - first;
        s->begin = from + d->begin[i] - first * step;
        s->end = max_of(0, (s->out - 1) * step + reach - s->in - s->begin);
    } else { /* y: the input its windows cover */
        int64_t first = from * step - d->begin[i];
        int64_t last = (to - 1) * step - d->begin[i] + reach;
        s->in0 = max_of(first, 0);
        s->in = min_of(last, d->in[i]) - s->in0;
        s->out0 = from;
        s->out = to - from;
        s->begin = max_of(0, -first);
        s->end = max_of(0, last - d->in[i]);
    }
    return s->in > 0 && s->out > 0;
}

/* Whether kernel position q reads an element of x, not just padding, in any window. */
static bool is_touched(int64_t q, int64_t step, int64_t in, int64_t out, int64_t begin)
{
    int64_t first = begin > q ? (begin - q + step - 1) / step : 0;
    return first < out && first * step - begin + q < in;
}

static bool has_untouched(const aril__conv_plan *p, const aril__conv_piece *s)
{
    const aril__conv *d = &p->d;
    int cut_axis = 3 - p->spatial;
    for (int i = cut_axis; i < 3; i++) {
        bool first = i == cut_axis;
        for (int64_t q = 0; q < d->kernel[i]; q++)
            if (!is_touched(q * d->dilation[i], d->stride[i], first ? s->in : d->in[i],
                            first ? s->out : d->out[i], first ? s->begin : d->begin[i]))
                return true;
    }
    return false;
}

/* ---- primitives ---- */

/* For strided 1x1 kernels oneDNN 3.2 copies the selected pixels in full vectors of channels, into a
 * buffer that is too small when the last vector is partial. */
static bool writes_past_end(const aril__conv *d, const aril__conv_piece *s)
{
    bool pointwise = true, steps = false;
    for (int i = 0; i < 3; i++) {
        pointwise = pointwise && d->kernel[i] == 1;
        steps = steps || d->stride[i] > 1;
    }
    return pointwise && steps && s->xc / s->groups % 16 != 0;
}

static const char *make_primitive(const aril__conv_plan *p, const aril__conv_piece *s,
                                  const_dnnl_memory_desc_t w, aril__dnn *made)
{
    const aril__conv *d = &p->d;
    if (writes_past_end(d, s))
        return "oneDNN 3.2 writes past its memory for such strides and channels";
    int n = p->spatial, lead = 3 - n;
    dnnl_dims_t x = { s->batch, s->xc, s->in }, y = { s->batch, s->yc, s->out };
    dnnl_dims_t step, dilate, begin = { s->begin }, end = { s->end };
    dnnl_dims_t kernel = { s->groups, s->yc / s->groups, s->xc / s->groups };
    for (int i = 0; i < n; i++) {
        int j = lead + i;
        int64_t reach = (d->kernel[j] - 1) * d->dilation[j] + 1;
        step[i] = d->stride[j];
        dilate[i] = d->dilation[j] - 1;
        kernel[3 + i] = d->kernel[j];
        if (i == 0) continue;
        x[2 + i] = d->in[j];
        y[2 + i] = d->out[j];
        begin[i] = d->begin[j];
        end[i] = max_of(0, (d->out[j] - 1) * d->stride[j] + reach - d->in[j] - d->begin[j]);
    }
    dnnl_dim_t *k = kernel;
    int k_dims = n + 3;
    if (s->groups == 1) {
        k++;
        k_dims--;
    }
    bool transpose = p->op == &aril__op_conv_transpose, weights = p->role == ARIL__CONV_W;
    if (transpose) { /* conv_transpose puts output channels first */
        int64_t c = k[k_dims - n - 1];
        k[k_dims - n - 1] = k[k_dims - n - 2];
        k[k_dims - n - 2] = c;
    }
    dnnl_engine_t engine = aril__dnn_engine();
    dnnl_memory_desc_t xd = aril__dnn_last(p->type, n + 2, x),
                       yd = aril__dnn_last(p->type, n + 2, y);
    dnnl_memory_desc_t wd = w ? NULL : aril__dnn_any(weights ? dnnl_f32 : p->type, k_dims, k),
                       bd = NULL;
    int64_t channels = transpose ? x[1] : y[1];
    if (p->bias) bd = aril__dnn_dense(p->type, 1, &channels);
    dnnl_primitive_attr_t attr =
        aril__dnn_attr_adding(p->adds, p->after ? ARIL_NO_ACTIVATION : d->activation);
    dnnl_primitive_desc_t pd = NULL, hint = NULL;
    dnnl_status_t st = dnnl_out_of_memory;
    const char *why;
    if (!w) w = wd;
    int threads = aril__dnn_enter();
    if (!xd || !yd || !w || !attr || (p->bias && !bd)) {
        st = dnnl_out_of_memory;
    } else if (transpose) {
        st = dnnl_deconvolution_forward_primitive_desc_create(&pd, engine, dnnl_forward_inference,
                                                              dnnl_deconvolution_direct, yd, w, bd,
                                                              xd, step, dilate, begin, end, attr);
    } else if (p->role == ARIL__CONV_Y) {
        st = dnnl_convolution_forward_primitive_desc_create(&pd, engine, dnnl_forward_inference,
                                                            dnnl_convolution_direct, xd, w, bd, yd,
                                                            step, dilate, begin, end, attr);
    } else {
        dnnl_memory_desc_t any = aril__dnn_any(p->type, k_dims, k);
        st = any ? dnnl_convolution_forward_primitive_desc_create(
                       &hint, engine, dnnl_forward_training, dnnl_convolution_direct, xd, any, NULL,
                       yd, step, dilate, begin, end, attr)
                 : dnnl_out_of_memory;
        if (st == dnnl_success && weights)
            st = dnnl_convolution_backward_weights_primitive_desc_create(
                &pd, engine, dnnl_convolution_direct, xd, w, NULL, yd, step, dilate, begin, end,
                hint, attr);
        else if (st == dnnl_success)
            st = dnnl_convolution_backward_data_primitive_desc_create(&pd, engine,
                                                                      dnnl_convolution_direct, xd,
                                                                      w, yd, step, dilate, begin,
                                                                      end, hint, attr);
        if (any) dnnl_memory_desc_destroy(any);
    }
    aril__dnn_leave(threads);
    if (transpose)
        why =
            aril__dnn_make(made, st, pd, 3 + p->bias,
                           (int[]){ DNNL_ARG_DST, DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS });
    else if (p->role == ARIL__CONV_Y)
        why =
            aril__dnn_make(made, st, pd, 3 + p->bias,
                           (int[]){ DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS });
    else if (weights)
        why = aril__dnn_make(made, st, pd, 3,
                             (int[]){ DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS });
    else
        why = aril__dnn_make(made, st, pd, 3,
                             (int[]){ DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS });
    if (hint) dnnl_primitive_desc_destroy(hint);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (bd) dnnl_memory_desc_destroy(bd);
    if (wd) dnnl_memory_desc_destroy(wd);
    if (yd) dnnl_memory_desc_destroy(yd);
    if (xd) dnnl_memory_desc_destroy(xd);
    return why;
}

/* ---- weights ---- */

static int weights_arg(const aril__conv_plan *p)
{
    return p->role == ARIL__CONV_W ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
}

/* The weights of a piece as stored in the tensor, with a dimension for groups; for conv_transpose,
 * output channels first. *at: their offset in bytes. */
static dnnl_memory_desc_t weights_desc(const aril__conv_plan *p, const aril__conv_piece *s,
                                       size_t *at)
{
    const aril__conv *d = &p->d;
    int lead = 3 - p->spatial, n = 0;
    bool transpose = p->op == &aril__op_conv_transpose;
    int64_t dim[6], stride[6], k = s->yc / s->groups, c = s->xc / s->groups;
    if (s->groups > 1) {
        dim[n] = s->groups;
        stride[n++] = d->k * d->w_stride[0];
    }
    dim[n] = transpose ? c : k;
    stride[n++] = d->w_stride[transpose];
    dim[n] = transpose ? k : c;
    stride[n++] = d->w_stride[!transpose];
    for (int i = lead; i < 3; i++) {
        dim[n] = d->kernel[i];
        stride[n++] = d->w_stride[2 + i];
    }
    int64_t first = s->y0 * d->w_stride[0]; /* rows are channels of y, in every group */
    if (d->groups == 1) first += s->x0 * d->w_stride[1];
    *at = (size_t)(first * p->size);
    return aril__dnn_strided(p->type, n, dim, stride);
}

/* Creates the reorders from the tensor's format to that of each part, or back. */
static const char *order_weights(const aril__conv_plan *p, aril__conv_cut *c)
{
    bool back = p->role == ARIL__CONV_W;
    const char *why = aril__dnn_text(dnnl_out_of_memory);
    aril__dnn_span *span = aril__calloc((size_t)c->n_parts * sizeof *span);
    dnnl_memory_desc_t *own = aril__calloc((size_t)c->n_parts * sizeof(dnnl_memory_desc_t));
    bool ok = span && own;
    for (int i = 0; i < c->n && ok && c->at[i].partial == 0; i++) {
        const aril__conv_piece *s = &c->at[i];
        const_dnnl_memory_desc_t mine = aril__dnn_md(&c->kind[s->kind], weights_arg(p));
        size_t at = 0;
        ok = (own[s->part] = weights_desc(p, s, &at)) != NULL;
        c->part_at[s->part] = c->w_bytes;
        span[s->part] = back ? (aril__dnn_span){ mine, own[s->part], c->w_bytes, at }
                             : (aril__dnn_span){ own[s->part], mine, at, c->w_bytes };
        size_t bytes = dnnl_memory_desc_get_size(mine);
        c->w_bytes += c->n_parts > 1 ? aril__conv_lines(bytes) : bytes;
    }
    if (ok) why = aril__dnn_order_make(&c->order, c->n_parts, span, c->w_bytes);
    for (int i = 0; own && i < c->n_parts; i++)
        if (own[i]) dnnl_memory_desc_destroy(own[i]);
    free(own);
    free(span);
    return why;
}

/* ---- kinds of pieces ---- */

static bool same_channels(const aril__conv_piece *a, const aril__conv_piece *b)
{
    return a->xc == b->xc && a->yc == b->yc;
}

static bool same_kind(const aril__conv_piece *a, const aril__conv_piece *b)
{
    return same_channels(a, b) && a->batch == b->batch && a->in == b->in && a->out == b->out &&
           a->begin == b->begin && a->end == b->end;
}

/* Numbers the kinds; sample[k] is a piece of kind k. */
static const char *find_kinds(aril__conv_cut *c, const aril__conv_piece **sample)
{
    for (int i = 0; i < c->n; i++) {
        int k = 0;
        while (k < c->n_kinds && !same_kind(sample[k], &c->at[i])) k++;
        if (k == MAX_KINDS) return "too many different piece sizes";
        if (k == c->n_kinds) sample[c->n_kinds++] = &c->at[i];
        c->at[i].kind = k;
    }
    return NULL;
}

/* Creates the primitives of all pieces with the same channels as `first`, with weights in the
 * format that `first` prefers. */
static const char *make_alike(const aril__conv_plan *p, aril__conv_cut *c,
                              const aril__conv_piece **sample, int first)
{
    const char *why = make_primitive(p, sample[first], NULL, &c->kind[first]);
    if (why) return why;
    const_dnnl_memory_desc_t w = aril__dnn_md(&c->kind[first], weights_arg(p));
    for (int k = 0; k < c->n_kinds && !why; k++)
        if (k != first && same_channels(sample[k], sample[first]))
            why = make_primitive(p, sample[k], w, &c->kind[k]);
    for (int k = 0; k < c->n_kinds && why; k++)
        if (same_channels(sample[k], sample[first])) aril__dnn_destroy(&c->kind[k]);
    return why;
}

/* Pieces that share a part of the weights share its format: that of the first kind whose choice
 * gives all of them a fast kernel. */
static const char *make_kinds(const aril__conv_plan *p, aril__conv_cut *c)
{
    const aril__conv_piece *sample[MAX_KINDS];
    const char *why = find_kinds(c, sample);
    for (int k = 0; k < c->n_kinds && !why; k++) {
        if (c->kind[k].primitive) continue;
        for (int first = k; first < c->n_kinds; first++) {
            if (!same_channels(sample[first], sample[k])) continue;
            why = make_alike(p, c, sample, first);
            if (!why) break;
        }
    }
    return why;
}

/* ---- cuts ---- */

void aril__conv_cut_free(aril__conv_cut *c)
{
    for (int i = 0; i < c->n_kinds; i++) aril__dnn_destroy(&c->kind[i]);
    aril__dnn_order_destroy(&c->order);
    free(c->part_at);
    free(c->kind);
    free(c);
}

static aril__conv_cut *new_cut(const aril__conv_split *s)
{
    int64_t n = s->batch * s->rows * s->channels;
    aril__conv_cut *c = aril__calloc(sizeof *c + (size_t)n * sizeof *c->at);
    if (!c) return NULL;
    c->n = (int)n;
    c->n_parts = (int)s->channels;
    c->n_partials = (int)(s->batch * s->rows);
    c->kind = aril__calloc((size_t)min_of(n, MAX_KINDS) * sizeof *c->kind);
    c->part_at = aril__calloc((size_t)s->channels * sizeof *c->part_at);
    if (c->kind && c->part_at) return c;
    aril__conv_cut_free(c);
    return NULL;
}

static void take_channels(const aril__conv_plan *p, const aril__conv_job *j, int64_t parts,
                          aril__conv_piece *s)
{
    const aril__conv *d = &p->d;
    int64_t begin, end;
    aril__conv_channels(j, s->part, parts, &begin, &end);
    bool grouped = d->groups > 1, to_x = p->role == ARIL__CONV_X;
    s->groups = grouped ? end - begin : 1;
    s->x0 = grouped ? begin * d->c : to_x ? begin : 0;
    s->xc = grouped ? (end - begin) * d->c : to_x ? end - begin : d->c;
    s->y0 = grouped ? begin * d->k : to_x ? 0 : begin;
    s->yc = grouped ? (end - begin) * d->k : to_x ? d->k : end - begin;
}

/* Fills in the pieces, grouped by partial result. False when a piece would have no input. */
static bool place_pieces(const aril__conv_plan *p, const aril__conv_job *j,
                         const aril__conv_split *split, aril__conv_cut *c)
{
    int64_t samples = p->d.batch, rows = aril__conv_rows(j);
    for (int i = 0; i < c->n; i++) {
        aril__conv_piece *s = &c->at[i];
        s->part = i % c->n_parts;
        s->partial = i / c->n_parts;
        int64_t b = s->partial / split->rows, r = s->partial % split->rows;
        s->batch0 = samples * b / split->batch;
        s->batch = samples * (b + 1) / split->batch - s->batch0;
        take_channels(p, j, split->channels, s);
        if (!span_of(p, rows * r / split->rows, rows * (r + 1) / split->rows, s)) return false;
        s->untouched = p->role == ARIL__CONV_W && has_untouched(p, s);
    }
    return true;
}

static size_t bytes_of(const aril__conv_plan *p, int64_t samples, int64_t channels, int64_t rows,
                       const int64_t *dim)
{
    int64_t n = samples * channels * rows;
    for (int i = 4 - p->spatial; i < 3; i++) n *= dim[i];
    return aril__conv_lines((size_t)(n * p->size));
}

size_t aril__conv_staged_x(const aril__conv_plan *p, const aril__conv_piece *s)
{
    return s->xc == p->d.c * p->d.groups ? 0 : bytes_of(p, s->batch, s->xc, s->in, p->d.in);
}

size_t aril__conv_staged_y(const aril__conv_plan *p, const aril__conv_piece *s)
{
    return s->yc == p->d.k * p->d.groups ? 0 : bytes_of(p, s->batch, s->yc, s->out, p->d.out);
}

static void find_space(const aril__conv_plan *p, aril__conv_cut *c)
{
    for (int i = 0; i < c->n; i++) {
        const aril__conv_piece *s = &c->at[i];
        size_t bytes = aril__conv_lines(c->kind[s->kind].scratch) + aril__conv_staged_x(p, s) +
                       aril__conv_staged_y(p, s);
        if (bytes > c->space) c->space = bytes;
    }
}

static aril__conv_cut *cut_by(const aril__conv_plan *p, const aril__conv_job *j,
                              const aril__conv_split *split, const char **why)
{
    *why = aril__dnn_text(dnnl_out_of_memory);
    aril__conv_cut *c = new_cut(split);
    if (!c) return NULL;
    *why = place_pieces(p, j, split, c) ? make_kinds(p, c) : "an empty piece";
    if (!*why) *why = order_weights(p, c);
    if (!*why) {
        find_space(p, c);
        return c;
    }
    aril__conv_cut_free(c);
    return NULL;
}

aril__conv_cut *aril__conv_cut_new(const aril__conv_plan *p, int64_t wanted, const char **why)
{
    aril__conv_job j = { .d = &p->d,
                         .role = p->role,
                         .axis = 3 - p->spatial,
                         .threads = wanted,
                         .activates = p->after != ARIL_NO_ACTIVATION };
    aril__conv_split split[TRIES + 1];
    int n = aril__conv_splits(&j, split, TRIES + 1);
    aril__conv_cut *c = NULL;
    for (int i = 0; i < n && !c; i++) c = cut_by(p, &j, &split[i], why);
    if (c) c->wanted = wanted;
    return c;
}
