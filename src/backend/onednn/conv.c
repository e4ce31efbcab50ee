#include "backend/onednn/conv.h"

#include "backend/onednn/conv_cut.h"
#include "core/cpu.h"
#include "core/parallel.h"
#include "ops/elementwise/activation.h"
#include "ops/vision/conv.h"

#include <stdlib.h>
#include <string.h>

enum {
    MIN_WORK = 1 << 18, /* minimum multiplications per piece */
    AT_ONCE = 16 << 20, /* bytes of scratch memory for all pieces together */
};

static bool is_data(const aril__conv_plan *p)
{
    return p->role == ARIL__CONV_X;
}

/* The cut for the current number of threads. */
static aril__conv_cut *new_cut(const aril__conv_plan *p, const char **why)
{
    double max = aril__conv_work(&p->d) / MIN_WORK;
    int64_t wanted = aril__parallel_pieces(max < 1 ? 1 : max > 1 << 20 ? 1 << 20 : (int64_t)max, 1);
    return aril__conv_cut_new(p, wanted, why);
}

/* ---- the plan ---- */

void aril__dnn_conv_destroy(void *prepared)
{
    aril__conv_plan *p = prepared;
    if (p->cut) aril__conv_cut_free(p->cut);
    free(p);
}

/* A single piece writes the gradient of the weight in its own format. */
static bool writes_weight(const aril__conv_cut *c)
{
    return c->order.as_is && c->n == 1;
}

/* The workspace: partial results or weights in the primitives' format, then the scratch memory of
 * the pieces, or of the threads if that is much less. Returns its size. */
static size_t lay_out(aril__conv_plan *p)
{
    const aril__conv_cut *c = p->cut;
    size_t weights = c->order.as_is ? 0 : aril__conv_lines(c->order.bytes);
    if (p->role == ARIL__CONV_W)
        weights = writes_weight(c) ? 0 : aril__conv_lines(c->w_bytes) * (size_t)c->n_partials;
    p->pieces_at = weights;
    p->slots = c->n;
    if (c->space * (size_t)c->n > AT_ONCE) p->slots = aril__parallel_slots(c->n, 1);
    return weights + c->space * (size_t)p->slots;
}

/* A kernel of one position computes each pixel by itself: rows and samples are one line of pixels,
 * which can be cut anywhere. */
static void join_pixels(aril__conv_plan *p)
{
    aril__conv *d = &p->d;
    int64_t pixels = d->batch;
    for (int i = 0; i < 3; i++) {
        if (d->kernel[i] != 1 || d->stride[i] != 1 || d->begin[i] != 0 || d->in[i] != d->out[i])
            return;
        pixels *= d->in[i];
    }
    for (int i = 0; i < 3; i++) d->in[i] = d->out[i] = d->dilation[i] = 1;
    d->in[2] = d->out[2] = pixels;
    d->batch = 1;
    p->spatial = 1;
}

/* Fills in what does not depend on the dtype that oneDNN computes in. */
static const char *fill_plan(const aril__run *r, aril__conv_plan *p)
{
    p->op = r->op;
    p->adds = r->op == &aril__op_conv_add;
    p->role = aril__conv_is_forward(r->op)    ? ARIL__CONV_Y
              : r->op == &aril__op_conv_wgrad ? ARIL__CONV_W
                                              : ARIL__CONV_X;
    aril__conv *d = &p->d;
    aril__conv_describe(r, d);
    p->bias = d->bias != NULL;
    d->x = d->w = d->y = NULL; /* the plan serves other tensors too */
    d->bias = NULL;
    p->spatial = r->in[0]->ndim - 2;
    while (p->spatial > 1) { /* drop dimensions of size 1, so that the next can be cut */
        int i = 3 - p->spatial;
        if (d->in[i] != 1 || d->out[i] != 1 || d->kernel[i] != 1 || d->begin[i] != 0) break;
        p->spatial--;
    }
    join_pixels(p);
    bool clips = d->activation == ARIL_RELU || d->activation == ARIL_RELU6 ||
                 (d->activation == ARIL_SIGMOID && p->op == &aril__op_conv_transpose);
    if (clips) p->after = d->activation;
    if (d->activation && !clips && aril__cpu() == ARIL__CPU_BASELINE)
        return "oneDNN's activations lose NaN without AVX2";
    for (int i = 0; i < 3; i++)
        if (d->begin[i] < 0) return "negative padding";
    return NULL;
}

static const char *cut_in(aril__conv_plan *p, aril_dtype type)
{
    const char *why = NULL;
    p->type = aril__dnn_type(type);
    p->size = (int64_t)aril__dtype_bytes(type, 1);
    p->cut = new_cut(p, &why);
    return p->cut ? NULL : why; /* discard why other cuts failed */
}

/* Computes in f32, if the processor does not compute in f16 or bf16. Weights are converted with
 * everything else, to contiguous ones. */
static const char *cut_widened(aril__conv_plan *p)
{
    aril__conv *d = &p->d;
    int64_t step = 1;
    for (int i = 4; i >= 0; i--) {
        d->w_stride[i] = step;
        step *= i > 1 ? d->kernel[i - 2] : d->c;
    }
    p->widened = true;
    return cut_in(p, ARIL_F32);
}

/* One channel in and out of each group, and one spatial dimension: oneDNN gathers columns for long
 * kernels. */
static bool is_depthwise_line(const aril__run *r, const aril__conv_plan *p)
{
    const aril__conv *d = &p->d;
    return r->type == ARIL_F32 && p->spatial == 1 && d->groups > 1 && d->c == 1 && d->k == 1;
}

/* In bf16 the weight gradient of a dilated convolution is wrong in oneDNN 3.2 for some widths (31,
 * for example): uninitialized memory enters the sum. In f32 it is right. */
static bool misreads_dilated(const aril__conv_plan *p)
{
    const int64_t *by = p->d.dilation;
    return p->role == ARIL__CONV_W && (by[0] > 1 || by[1] > 1 || by[2] > 1);
}

static void ask_operands(const aril__conv_plan *p, aril__plan *plan)
{
    bool to_weight = p->role == ARIL__CONV_W;
    aril_operand image = { p->widened ? 1 + ARIL_F32 : 0, ARIL_ORDER_CHANNELS_LAST };
    aril_operand weight = { image.dtype, p->widened ? ARIL_ORDER_CONTIGUOUS : ARIL_ORDER_ANY };
    plan->in[0] = image;
    plan->in[1] = to_weight ? image : weight;
    plan->out[0] = to_weight ? weight : image;
    bool kept = p->op != &aril__op_conv_dgrad && !to_weight && !p->widened;
    if (kept && !p->cut->order.as_is && p->cut->order.key_size) plan->packs |= IN(1);
    if (p->adds) {
        plan->in[3] = image;
        plan->overlay |= IN(3);
    }
    if (p->bias) plan->in[2] = (aril_operand){ image.dtype, ARIL_ORDER_CONTIGUOUS };
}

const char *aril__dnn_conv_prepare(const aril__run *r, aril__plan *plan)
{
    const aril_tensor *w = r->op == &aril__op_conv_wgrad ? r->out[0] : r->in[1];
    const aril_tensor *x = r->op == &aril__op_conv_wgrad ? r->in[1] : r->out[0];
    if (r->out[0]->numel == 0 || r->in[0]->numel == 0 || x->numel == 0 || w->numel == 0)
        return "an empty tensor";
    if (!aril__dnn_engine()) return "oneDNN failed to initialize";
    if (aril__overlaps(w)) return "overlapping weights";
    aril__conv_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    const char *why = fill_plan(r, p);
    if (!why && aril__force_row < 0 && is_depthwise_line(r, p))
        why = "Aril's kernel is faster for depthwise signals";
    if (!why) {
        bool narrow = r->type != ARIL_F32;
        why = narrow && misreads_dilated(p) ? "" : cut_in(p, r->type);
        if (why && narrow) why = cut_widened(p);
    }
    if (why) {
        aril__dnn_conv_destroy(p);
        return why;
    }
    plan->prepared = p;
    plan->workspace = lay_out(p);
    ask_operands(p, plan);
    return NULL;
}

/* ---- running ---- */

/* An image: its address, and the strides in bytes between samples, rows and pixels. */
typedef struct image {
    char *at;
    int64_t sample, row, pixel;
} image;

typedef struct job {
    const aril__conv_plan *p;
    aril__conv_cut *c;
    image x, y, added;
    char *w, *bias;
    size_t partial; /* bytes between partial results; 0: there is only one */
    char *space;    /* for all pieces or threads */
    atomic_int status;
} job;

/* Copies some channels of `rows` rows of an image to or from a contiguous block. */
static void stage(const image *m, int64_t samples, int64_t rows, char *at, char *block,
                  int64_t width, bool back)
{
    int64_t pixels = rows * (m->row / m->pixel);
    for (int64_t s = 0; s < samples; s++, at += m->sample) {
        char *pixel = at;
        for (int64_t i = 0; i < pixels; i++, pixel += m->pixel, block += width)
            memcpy(back ? pixel : block, back ? block : pixel, (size_t)width);
    }
}

/* Puts what is added to a piece of y where the piece is computed. */
static void fetch_added(const job *j, const aril__conv_piece *s, char *to, bool staged)
{
    const image *m = &j->added;
    char *from = m->at + s->batch0 * m->sample + s->out0 * m->row + s->y0 * j->p->size;
    if (from == to) return;
    if (staged) {
        stage(m, s->batch, s->out, from, to, s->yc * j->p->size, false);
        return;
    }
    for (int64_t i = 0; i < s->batch; i++)
        memcpy(to + i * m->sample, from + i * m->sample, (size_t)(s->out * m->row));
}

static dnnl_status_t run_in(const job *j, int64_t i, char *space)
{
    const aril__conv_plan *p = j->p;
    const aril__conv_piece *s = &j->c->at[i];
    aril__dnn *d = &j->c->kind[s->kind];
    size_t x_bytes = aril__conv_staged_x(p, s), y_bytes = aril__conv_staged_y(p, s);
    char *x = j->x.at + s->batch0 * j->x.sample + s->in0 * j->x.row + s->x0 * p->size;
    char *y = j->y.at + s->batch0 * j->y.sample + s->out0 * j->y.row + s->y0 * p->size;
    char *own_x = x_bytes ? space : x, *own_y = y_bytes ? space + x_bytes : y;
    char *scratch = d->scratch ? space + x_bytes + y_bytes : NULL;
    int64_t x_width = s->xc * p->size, y_width = s->yc * p->size;
    if (x_bytes && !is_data(p)) stage(&j->x, s->batch, s->in, x, own_x, x_width, false);
    if (y_bytes && p->role != ARIL__CONV_Y)
        stage(&j->y, s->batch, s->out, y, own_y, y_width, false);
    if (p->adds) fetch_added(j, s, own_y, y_bytes > 0);

    char *w = j->w + (size_t)s->partial * j->partial + j->c->part_at[s->part];
    char *bias = j->bias ? j->bias + (is_data(p) ? s->x0 : s->y0) * p->size : NULL;
    if (s->untouched) { /* oneDNN 3.2 does not write that part of the gradient */
        memset(w, 0, dnnl_memory_desc_get_size(aril__dnn_md(d, DNNL_ARG_DIFF_WEIGHTS)));
        if (scratch) memset(scratch, 0, d->scratch);
    }
    dnnl_status_t st = aril__dnn_run(d, (void *[]){ own_x, own_y, w, bias }, scratch);
    if (st != dnnl_success) return st;
    if (p->after && is_data(p))
        aril__dnn_activate(p->type, p->after, s->batch * s->in * (j->x.row / j->x.pixel) * s->xc,
                           own_x);
    else if (p->after)
        aril__dnn_activate(p->type, p->after, s->batch * s->out * (j->y.row / j->y.pixel) * s->yc,
                           own_y);
    if (x_bytes && is_data(p)) stage(&j->x, s->batch, s->in, x, own_x, x_width, true);
    if (y_bytes && p->role == ARIL__CONV_Y) stage(&j->y, s->batch, s->out, y, own_y, y_width, true);
    return st;
}

static void run_pieces(void *ctx, int64_t begin, int64_t end, int slot)
{
    job *j = ctx;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = j->p->slots == j->c->n ? i : slot;
        dnnl_status_t st = run_in(j, i, j->space ? j->space + (size_t)at * j->c->space : NULL);
        if (st != dnnl_success) atomic_store(&j->status, (int)st);
    }
}

static dnnl_status_t run_all(job *j)
{
    aril__parallel_for_slots(j->c->n, 1, j->p->slots, run_pieces, j);
    return (dnnl_status_t)atomic_load(&j->status);
}

/* Adds partial weight gradients in order. */
typedef struct sums {
    float *to;
    size_t step; /* elements */
    int n;
} sums;

static void add_partials(void *ctx, int64_t begin, int64_t end)
{
    const sums *s = ctx;
    for (int k = 1; k < s->n; k++) {
        const float *from = s->to + (size_t)k * s->step;
        for (int64_t i = begin; i < end; i++) s->to[i] += from[i];
    }
}

/* Each partial result is a full weight in the primitives' format; their sum is reordered to w's. */
static aril_status run_weights(aril__run *r, job *j, aril_tensor *w)
{
    aril__conv_cut *c = j->c;
    size_t step = aril__conv_lines(c->w_bytes);
    if (writes_weight(c)) {
        j->w = aril__ptr(w);
        return aril__dnn_status(r->op->name, run_all(j));
    }
    char *space = r->workspace;
    j->w = space;
    j->partial = step;
    dnnl_status_t st = run_all(j);
    if (st == dnnl_success) {
        sums s = { (float *)(void *)space, step / sizeof(float), c->n_partials };
        if (c->n_partials > 1)
            aril__parallel_for((int64_t)(c->w_bytes / sizeof(float)), 1 << 14, add_partials, &s);
        if (c->order.as_is)
            memcpy(aril__ptr(w), space, c->w_bytes);
        else
            st = aril__dnn_order_run(&c->order, space, aril__ptr(w));
    }
    return aril__dnn_status(r->op->name, st);
}

/* A channels-last image with the given channels and sizes. */
static image image_of(const aril__conv_plan *p, const aril_tensor *t, int64_t channels,
                      const int64_t *dim)
{
    int axis = 3 - p->spatial;
    image m = { .at = aril__ptr(t), .pixel = channels * p->size };
    m.row = m.pixel;
    for (int i = axis + 1; i < 3; i++) m.row *= dim[i];
    m.sample = m.row * dim[axis];
    return m;
}

static aril_status run_ready(aril__run *r, aril_tensor *x, aril_tensor *y, aril_tensor *w,
                             aril_tensor *b)
{
    const aril__conv_plan *p = r->prepared;
    const aril__conv *d = &p->d;
    aril__conv_cut *c = p->cut;
    job j = { .p = p,
              .c = c,
              .space = r->workspace ? (char *)r->workspace + p->pieces_at : NULL,
              .x = image_of(p, x, d->c * d->groups, d->in),
              .y = image_of(p, y, d->k * d->groups, d->out),
              .bias = b ? aril__ptr(b) : NULL };
    if (p->role == ARIL__CONV_W) return run_weights(r, &j, w);
    if (p->adds) j.added = image_of(p, r->in[3], d->k * d->groups, d->out);
    /* A widened weight is a temporary: what is kept with it would be lost. */
    bool keep = !p->widened && r->op != &aril__op_conv_dgrad && aril__dnn_keeps(w);
    aril__dnn_packed packed = aril__dnn_pack(&c->order, r->op->name, w, keep, r->workspace);
    if (!packed.data) return ARIL_ERR_MEMORY;
    j.w = packed.data;
    dnnl_status_t st = run_all(&j);
    aril__dnn_unpack(&packed);
    return aril__dnn_status(r->op->name, st);
}

aril_status aril__dnn_conv(aril__run *r)
{
    aril__conv_plan *p = r->prepared;
    aril_tensor *b = p->bias ? r->in[2] : NULL;
    if (p->role == ARIL__CONV_W) return run_ready(r, r->in[1], r->in[0], r->out[0], b);
    return is_data(p) ? run_ready(r, r->out[0], r->in[0], r->in[1], b)
                      : run_ready(r, r->in[0], r->out[0], r->in[1], b);
}
