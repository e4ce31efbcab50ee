#include "backend/onednn/conv.h"

#include "aril/ops.h"
#include "backend/onednn/onednn.h"
#include "core/cpu.h"
#include "core/parallel.h"
#include "ops/activation.h"
#include "ops/conv.h"
#include "ops/copy.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAST_WORK = 1 << 18, /* multiplications that are worth a piece of their own */
    MOST_KINDS = 64,      /* pieces of one cut that differ in size */
    NEAR = 1 << 15,       /* elements: a result of which two or more lie in no near cache */
};

/* One piece: samples [batch0, batch0 + batch) and a range of the first spatial dimension. */
typedef struct piece {
    int64_t batch0, batch;
    int64_t in0, in, out0, out, begin, end; /* positions, and the padding before and after them */
    int kind;                               /* the primitive that runs it */
} piece;

/* The work cut in one way: depends on the number of threads. */
typedef struct cut {
    struct cut *next;
    int64_t wanted;
    int n, n_kinds;
    aril__dnn *kind;       /* [n_kinds] */
    aril__dnn_order order; /* weights from the tensor's order to the primitives', or back */
    size_t w_bytes;        /* of the weights in the primitives' order */
    piece at[];
} cut;

typedef struct conv_plan {
    const aril__op *op;
    aril__conv d;
    int spatial;               /* dimensions, of which the first is cut */
    dnnl_data_type_t type;     /* of pictures and weights */
    dnnl_memory_desc_t w_desc; /* the weights as the tensor has them */
    bool bias;
    int64_t
        after; /* the activation, where oneDNN would make 0 of NaN: Aril makes it, piece by piece */
    int64_t work;         /* multiplications */
    pthread_mutex_t lock; /* of the list */
    cut *cuts;
} conv_plan;

static bool is_data(const conv_plan *p)
{
    return p->op == &aril__op_conv_dgrad || p->op == &aril__op_conv_transpose;
}

/* ---- pieces ---- */

static int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What results [from, to) of the first spatial dimension need; false where that is nothing. */
static bool span_of(const conv_plan *p, int64_t from, int64_t to, piece *s)
{
    const aril__conv *d = &p->d;
    int i = 3 - p->spatial;
    int64_t step = d->stride[i], reach = (d->kernel[i] - 1) * d->dilation[i] + 1;
    if (from == 0 && to == (is_data(p) ? d->in[i] : d->out[i])) { /* also what no window reads */
        s->in0 = s->out0 = 0;
        s->in = d->in[i];
        s->out = d->out[i];
        s->begin = d->begin[i];
        s->end = at_least(0, (s->out - 1) * step + reach - s->in - s->begin);
    } else if (is_data(p)) { /* of x: which windows touch it */
        int64_t first = from + d->begin[i] - reach + 1;
        first = first > 0 ? (first + step - 1) / step : 0;
        first = at_most(first, (from + d->begin[i]) / step);
        s->in0 = from;
        s->in = to - from;
        s->out0 = first;
        s->out = at_most(d->out[i], (to - 1 + d->begin[i]) / step + 1) - first;
        s->begin = from + d->begin[i] - first * step;
        s->end = at_least(0, (s->out - 1) * step + reach - s->in - s->begin);
    } else { /* of y: what its windows cover */
        int64_t first = from * step - d->begin[i];
        int64_t last = (to - 1) * step - d->begin[i] + reach;
        s->in0 = at_least(first, 0);
        s->in = at_most(last, d->in[i]) - s->in0;
        s->out0 = from;
        s->out = to - from;
        s->begin = at_least(0, -first);
        s->end = at_least(0, last - d->in[i]);
    }
    return s->in > 0 && s->out > 0;
}

static const char *make_primitive(const conv_plan *p, const piece *s, const_dnnl_memory_desc_t w,
                                  aril__dnn *made)
{
    const aril__conv *d = &p->d;
    int n = p->spatial, lead = 3 - n;
    dnnl_dims_t x = { s->batch, d->c * d->groups, s->in },
                y = { s->batch, d->k * d->groups, s->out };
    dnnl_dims_t step, dilate, begin = { s->begin }, end = { s->end };
    dnnl_dims_t kernel = { d->groups, d->k, d->c };
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
        end[i] = at_least(0, (d->out[j] - 1) * d->stride[j] + reach - d->in[j] - d->begin[j]);
    }
    dnnl_dim_t *k = kernel;
    int k_dims = n + 3;
    if (d->groups == 1) {
        k++;
        k_dims--;
    }
    bool transpose = p->op == &aril__op_conv_transpose, weights = p->op == &aril__op_conv_wgrad;
    if (transpose) { /* in its own terms, channels of the result come first */
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
    dnnl_primitive_attr_t attr = aril__dnn_attr(p->after ? ARIL_NO_ACTIVATION : d->activation);
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
    } else if (p->op == &aril__op_conv) {
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
    else if (p->op == &aril__op_conv)
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

/* ---- cuts ---- */

static void free_cut(cut *c)
{
    for (int i = 0; i < c->n_kinds; i++) aril__dnn_destroy(&c->kind[i]);
    aril__dnn_order_destroy(&c->order);
    free(c->kind);
    free(c);
}

static int weights_arg(const conv_plan *p)
{
    return p->op == &aril__op_conv_wgrad ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
}

/* The primitive for a piece: one of those there are, or a new one. All take the weights in the
 * order that the first one chose. */
static const char *find_kind(const conv_plan *p, cut *c, int i)
{
    piece *s = &c->at[i];
    for (int k = 0; k < i; k++) {
        const piece *o = &c->at[k];
        if (o->batch == s->batch && o->in == s->in && o->out == s->out && o->begin == s->begin &&
            o->end == s->end) {
            s->kind = o->kind;
            return NULL;
        }
    }
    if (c->n_kinds == MOST_KINDS) return "too many kinds of pieces";
    s->kind = c->n_kinds;
    const_dnnl_memory_desc_t w = c->n_kinds ? aril__dnn_md(&c->kind[0], weights_arg(p)) : NULL;
    const char *why = make_primitive(p, s, w, &c->kind[s->kind]);
    if (!why) c->n_kinds++;
    return why;
}

static const char *fill_cut(const conv_plan *p, cut *c)
{
    const char *why = NULL;
    for (int i = 0; i < c->n && !why; i++) why = find_kind(p, c, i);
    if (why) return why;
    if (aril__dnn_is_reference(&c->kind[0])) return "oneDNN has plain loops alone for it";
    const_dnnl_memory_desc_t mine = aril__dnn_md(&c->kind[0], weights_arg(p));
    c->w_bytes = dnnl_memory_desc_get_size(mine);
    return p->op == &aril__op_conv_wgrad ? aril__dnn_order_make(&c->order, mine, p->w_desc)
                                         : aril__dnn_order_make(&c->order, p->w_desc, mine);
}

static cut *new_cut(int64_t n)
{
    cut *c = aril__calloc(sizeof *c + (size_t)n * sizeof *c->at);
    if (!c) return NULL;
    c->n = (int)n;
    c->kind = aril__calloc((size_t)at_most(n, MOST_KINDS) * sizeof *c->kind);
    if (c->kind) return c;
    free(c);
    return NULL;
}

/* Elements of one sample of the result. */
static int64_t result_size(const conv_plan *p)
{
    const aril__conv *d = &p->d;
    return is_data(p) ? d->c * d->groups * d->in[0] * d->in[1] * d->in[2]
                      : d->k * d->groups * d->out[0] * d->out[1] * d->out[2];
}

/* Pieces that may each make weights of their own: all of those together are held to 128 MB. */
static int64_t most_partials(const conv_plan *p)
{
    const aril__conv *d = &p->d;
    if (p->op != &aril__op_conv_wgrad) return INT64_MAX;
    int64_t size = d->groups * d->k * d->c * d->kernel[0] * d->kernel[1] * d->kernel[2];
    return at_least(2, (1 << 25) / size);
}

/* Cuts by samples where there are enough of them, else every sample by rows. */
static cut *make_cut(const conv_plan *p, int64_t wanted, const char **why)
{
    const aril__conv *d = &p->d;
    int axis = 3 - p->spatial;
    int64_t rows = is_data(p) ? d->in[axis] : d->out[axis];
    int64_t by_batch = at_most(wanted, d->batch), by_rows = 1;
    if (p->after && result_size(p) >= NEAR) by_batch = d->batch; /* still near when activated */
    if (d->batch % wanted && d->batch < 4 * wanted && rows >= wanted) {
        by_batch = d->batch;
        by_rows = wanted;
    }
    int64_t most = most_partials(p);
    if (by_batch * by_rows > most) {
        by_batch = at_most(at_most(wanted, d->batch), most);
        by_rows = d->batch == 1 ? at_most(at_most(wanted, rows), most) : 1;
    }
    *why = aril__dnn_text(dnnl_out_of_memory);
    cut *c = new_cut(by_batch * by_rows);
    if (!c) return NULL;
    bool spans = true;
    for (int64_t i = 0; i < c->n && spans; i++) {
        int64_t b = i / by_rows, r = i % by_rows;
        piece *s = &c->at[i];
        s->batch0 = d->batch * b / by_batch;
        s->batch = d->batch * (b + 1) / by_batch - s->batch0;
        spans = span_of(p, rows * r / by_rows, rows * (r + 1) / by_rows, s);
    }
    *why = spans ? fill_cut(p, c) : "nothing to be done for a part";
    if (!*why) {
        c->wanted = wanted;
        return c;
    }
    free_cut(c);
    return NULL;
}

static int64_t pieces_wanted(const conv_plan *p)
{
    return aril__parallel_pieces(at_least(1, p->work / LEAST_WORK), 1);
}

/* The cut for the present number of threads, made or found; where it cannot be made, a whole. */
static cut *cut_for(conv_plan *p, const char **why)
{
    int64_t wanted = pieces_wanted(p);
    pthread_mutex_lock(&p->lock);
    cut *c = p->cuts;
    while (c && c->wanted != wanted) c = c->next;
    if (!c) {
        c = make_cut(p, wanted, why);
        if (!c && wanted > 1 && (c = make_cut(p, 1, why))) c->wanted = wanted;
        if (c) {
            c->next = p->cuts;
            p->cuts = c;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return c;
}

/* ---- the plan ---- */

void aril__dnn_conv_destroy(void *prepared)
{
    conv_plan *p = prepared;
    while (p->cuts) {
        cut *c = p->cuts;
        p->cuts = c->next;
        free_cut(c);
    }
    if (p->w_desc) dnnl_memory_desc_destroy(p->w_desc);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* The weights as they lie, with groups apart; for conv_transpose channels of the result first. */
static dnnl_memory_desc_t weights_desc(const conv_plan *p)
{
    const aril__conv *d = &p->d;
    int lead = 3 - p->spatial, n = 0;
    bool transpose = p->op == &aril__op_conv_transpose;
    int64_t dim[6], stride[6];
    if (d->groups > 1) {
        dim[n] = d->groups;
        stride[n++] = d->k * d->w_stride[0];
    }
    dim[n] = transpose ? d->c : d->k;
    stride[n++] = d->w_stride[transpose];
    dim[n] = transpose ? d->k : d->c;
    stride[n++] = d->w_stride[!transpose];
    for (int i = lead; i < 3; i++) {
        dim[n] = d->kernel[i];
        stride[n++] = d->w_stride[2 + i];
    }
    return aril__dnn_strided(p->type, n, dim, stride);
}

const char *aril__dnn_conv_prepare(const aril__run *r, aril__plan *plan)
{
    const aril_tensor *w = r->op == &aril__op_conv_wgrad ? r->out[0] : r->in[1];
    const aril_tensor *x = r->op == &aril__op_conv_wgrad ? r->in[1] : r->out[0];
    if (r->out[0]->numel == 0 || r->in[0]->numel == 0 || x->numel == 0 || w->numel == 0)
        return "nothing to be done";
    if (!aril__dnn_engine()) return "oneDNN did not start";
    if (aril__overlaps(w)) return "weights that share memory";
    conv_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    p->op = r->op;
    p->type = aril__dnn_type(r->type);
    aril__conv_describe(r, &p->d);
    const aril__conv *d = &p->d;
    p->spatial = x->ndim - 2;
    while (p->spatial > 1) { /* what has no extent needs no dimension, and the next can be cut */
        int i = 3 - p->spatial;
        if (d->in[i] != 1 || d->out[i] != 1 || d->kernel[i] != 1 || d->begin[i] != 0) break;
        p->spatial--;
    }
    p->bias = p->d.bias != NULL;
    bool clips = d->activation == ARIL_RELU || d->activation == ARIL_RELU6;
    if (clips) p->after = d->activation;
    p->work = d->batch * d->groups * d->c * d->k;
    for (int i = 0; i < 3; i++) p->work *= d->out[i] * d->kernel[i];
    pthread_mutex_init(&p->lock, NULL);
    const char *why = NULL;
    if (d->activation && !clips && aril__cpu() == ARIL__CPU_BASELINE)
        why = "oneDNN's activations lose NaN without AVX2";
    for (int i = 0; i < 3; i++)
        if (d->begin[i] < 0) why = "negative padding";
    if (!why && !(p->w_desc = weights_desc(p))) why = "oneDNN does not take these weights";
    if (!why) cut_for(p, &why);
    if (why && p->cuts) why = NULL; /* the whole stands for a cut that could not be */
    p->d.x = p->d.w = p->d.y = NULL;
    p->d.bias = NULL;
    if (why)
        aril__dnn_conv_destroy(p);
    else
        plan->prepared = p;
    return why;
}

/* ---- running ---- */

typedef struct job {
    const conv_plan *p;
    cut *c;
    aril__device *device;
    char *x, *y, *w, *bias;
    int64_t x_sample, x_row, y_sample, y_row; /* bytes */
    int64_t size;                             /* of an element */
    size_t partial; /* bytes from one partial result to the next; 0: one */
    atomic_int status;
} job;

static void run_pieces(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;
    for (int64_t i = begin; i < end; i++) {
        const piece *s = &j->c->at[i];
        aril__dnn *d = &j->c->kind[s->kind];
        char *x = j->x + s->batch0 * j->x_sample + s->in0 * j->x_row;
        char *y = j->y + s->batch0 * j->y_sample + s->out0 * j->y_row;
        void *data[4] = { x, y, j->w + (size_t)i * j->partial, j->bias };
        void *scratch = NULL;
        dnnl_status_t st = dnnl_out_of_memory;
        if (!d->scratch || (scratch = aril__device_alloc(j->device, d->scratch)))
            st = aril__dnn_run(d, data, scratch);
        if (scratch) aril__device_free(j->device, scratch, d->scratch);
        if (st != dnnl_success)
            atomic_store(&j->status, (int)st);
        else if (j->p->after)
            aril__dnn_clip(j->p->type, j->p->after,
                           is_data(j->p) ? s->batch * s->in * j->x_row / j->size
                                         : s->batch * s->out * j->y_row / j->size,
                           is_data(j->p) ? x : y);
    }
}

/* Partial results of weights, added in order. */
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

/* Each piece makes weights of its own, in the primitive's order; their sum is brought to w's. */
static aril_status run_weights(aril__run *r, job *j, aril_tensor *w)
{
    cut *c = j->c;
    size_t step = (c->w_bytes + 63) / 64 * 64, bytes = step * (size_t)c->n;
    if (c->order.as_is && c->n == 1) {
        j->w = aril__ptr(w);
        run_pieces(j, 0, 1);
        return aril__dnn_status(r->op->name, (dnnl_status_t)atomic_load(&j->status));
    }
    char *space = aril__device_alloc(r->device, bytes);
    if (!space) return ARIL_ERR_MEMORY;
    j->w = space;
    j->partial = step;
    aril__parallel_for(c->n, 1, run_pieces, j);
    dnnl_status_t st = (dnnl_status_t)atomic_load(&j->status);
    if (st == dnnl_success) {
        sums s = { (float *)(void *)space, step / sizeof(float), c->n };
        if (c->n > 1)
            aril__parallel_for((int64_t)(c->w_bytes / sizeof(float)), 1 << 14, add_partials, &s);
        if (c->order.as_is)
            memcpy(aril__ptr(w), space, c->w_bytes);
        else
            st = aril__dnn_order_run(&c->order, space, aril__ptr(w));
    }
    aril__device_free(r->device, space, bytes);
    return aril__dnn_status(r->op->name, st);
}

/* With pictures channels-last, and a bias without gaps. */
static aril_status run_ready(aril__run *r, cut *c, aril_tensor *x, aril_tensor *y, aril_tensor *w,
                             aril_tensor *b)
{
    const conv_plan *p = r->prepared;
    const aril__conv *d = &p->d;
    int64_t size = (int64_t)aril__dtype_bytes(r->type, 1);
    job j = { .p = p, .c = c, .device = r->device, .x = aril__ptr(x), .y = aril__ptr(y) };
    j.size = size;
    int axis = 3 - p->spatial;
    j.x_sample = size * d->c * d->groups;
    j.y_sample = size * d->k * d->groups;
    for (int i = 0; i < 3; i++) {
        if (i == axis + 1) {
            j.x_row = 1;
            j.y_row = 1;
        }
        if (i <= axis) continue;
        j.x_row *= d->in[i];
        j.y_row *= d->out[i];
    }
    if (axis == 2) j.x_row = j.y_row = 1;
    j.x_row *= j.x_sample;
    j.y_row *= j.y_sample;
    j.x_sample = j.x_row * d->in[axis];
    j.y_sample = j.y_row * d->out[axis];
    j.bias = b ? aril__ptr(b) : NULL;

    if (r->op == &aril__op_conv_wgrad) return run_weights(r, &j, w);
    bool keep = r->op != &aril__op_conv_dgrad && aril__dnn_keeps(w);
    aril__dnn_packed packed = aril__dnn_pack(&c->order, r->op->name, w, keep);
    if (!packed.data) return ARIL_ERR_MEMORY;
    j.w = packed.data;
    aril__parallel_for(c->n, 1, run_pieces, &j);
    aril__dnn_unpack(&c->order, w, &packed);
    return aril__dnn_status(r->op->name, (dnnl_status_t)atomic_load(&j.status));
}

aril_status aril__dnn_conv(aril__run *r)
{
    conv_plan *p = r->prepared;
    bool weights = r->op == &aril__op_conv_wgrad;
    const char *why = NULL;
    cut *c = cut_for(p, &why);
    if (!c) return aril__fail(ARIL_ERR_MEMORY, "%s: %s", r->op->name, why);
    aril_tensor *x = weights ? r->in[1] : r->in[0], *y = weights ? r->in[0] : r->out[0];
    aril_tensor *w = weights ? r->out[0] : r->in[1], *b = p->bias ? r->in[2] : NULL;
    bool to_last = !weights && (!aril_is_channels_last(y) || y == r->in[0] || y == r->in[1]);
    if (aril_is_channels_last(x) && (!weights || aril_is_channels_last(y)) && !to_last &&
        (!b || aril__is_dense(b)) && w != r->in[0])
        return is_data(p) ? run_ready(r, c, y, x, w, b) : run_ready(r, c, x, y, w, b);

    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril__thread *th = aril__self();
    aril_tensor *from_x = aril_channels_last(x), *to = y;
    if (weights) {
        to = aril_channels_last(y);
    } else if (to_last) {
        to = aril__give(th, aril__tensor_new(th, (aril_dtype)y->dtype, y->ndim, y->dim, r->device));
        if (aril_tensor_status(to) == ARIL_OK)
            aril__channels_last_strides(to->ndim, to->dim, to->stride);
    }
    if (b) b = aril_contiguous(b);
    aril_tensor *result = w;
    if (weights && (w == r->in[0] || w == r->in[1])) {
        result =
            aril__give(th, aril__tensor_new(th, (aril_dtype)w->dtype, w->ndim, w->dim, r->device));
        if (aril_tensor_status(result) == ARIL_OK)
            memcpy(result->stride, w->stride, sizeof result->stride);
    }
    aril_status s = aril_tensor_status(from_x);
    if (s == ARIL_OK) s = aril_tensor_status(to);
    if (s == ARIL_OK && b) s = aril_tensor_status(b);
    if (s == ARIL_OK) s = aril_tensor_status(result);
    if (s == ARIL_OK)
        s = is_data(p) ? run_ready(r, c, to, from_x, w, b) : run_ready(r, c, from_x, to, result, b);
    if (s == ARIL_OK && !weights && to != y) aril__copy_elements(y, to);
    if (s == ARIL_OK && weights && result != w) aril__copy_elements(w, result);
    return s;
}
