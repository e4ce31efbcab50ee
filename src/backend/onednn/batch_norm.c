/* Batch normalization: oneDNN computes the statistics and normalizes; running statistics, and 1 /
 * sqrt(var + eps) from the variance, are computed here. */
#include "backend/onednn/norm.h"

#include "backend/onednn/cut.h"
#include "core/parallel.h"
#include "ops/norm/norm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_PIECE = 8 * 1024 }; /* minimum elements per piece */

enum kind { TRAINING, EVAL, BACKWARD };

typedef struct batch_plan {
    enum kind kind;
    aril_dtype type;
    int ndim;
    int64_t dim[ARIL_MAX_DIMS];
    bool last, weight, bias;
    float eps;
    aril__dnn_cut cut;
} batch_plan;

static const char *make_norm(void *ctx, int64_t samples, aril__dnn *made)
{
    const batch_plan *p = ctx;
    int64_t dim[ARIL_MAX_DIMS];
    memcpy(dim, p->dim, sizeof dim);
    dim[0] = samples;
    dnnl_data_type_t type = aril__dnn_type(p->type);
    dnnl_memory_desc_t x =
        p->last ? aril__dnn_last(type, p->ndim, dim) : aril__dnn_dense(type, p->ndim, dim);
    dnnl_primitive_attr_t attr = aril__dnn_attr(0);
    bool back = p->kind == BACKWARD;
    unsigned flags = (p->weight || back ? dnnl_use_scale : 0u) |
                     (p->bias || back ? dnnl_use_shift : 0u) |
                     (p->kind == EVAL ? dnnl_use_global_stats : 0u);
    dnnl_primitive_desc_t forward = NULL, made_back = NULL;
    dnnl_status_t st = dnnl_out_of_memory;
    if (x && attr)
        st = aril__dnn_serially(dnnl_batch_normalization_forward_primitive_desc_create(
            &forward, aril__dnn_engine(),
            p->kind == EVAL ? dnnl_forward_inference : dnnl_forward_training, x, x, p->eps, flags,
            attr));
    const char *why;
    if (back) {
        if (st == dnnl_success)
            st = aril__dnn_serially(dnnl_batch_normalization_backward_primitive_desc_create(
                &made_back, aril__dnn_engine(), dnnl_backward, x, x, x, p->eps, flags, forward,
                attr));
        if (forward) dnnl_primitive_desc_destroy(forward);
        why = aril__dnn_make(made, st, made_back, 8,
                             (int[]){ DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC,
                                      DNNL_ARG_MEAN, DNNL_ARG_VARIANCE, DNNL_ARG_SCALE,
                                      DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT });
    } else {
        int arg[6] = { DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE }, n = 4;
        if (p->weight) arg[n++] = DNNL_ARG_SCALE;
        if (p->bias) arg[n++] = DNNL_ARG_SHIFT;
        why = aril__dnn_make(made, st, forward, n, arg);
    }
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (x) dnnl_memory_desc_destroy(x);
    return why;
}

/* ---- the plan ---- */

void aril__dnn_batch_norm_destroy(void *prepared)
{
    batch_plan *p = prepared;
    aril__dnn_cut_destroy(&p->cut);
    free(p);
}

/* Asks for images in one order, and for parameters and statistics as contiguous f32. */
static void ask_operands(const aril__run *r, const batch_plan *p, aril__plan *plan)
{
    for (int i = 0; i < r->n_in + r->n_out; i++) {
        const aril_tensor *t = i < r->n_in ? r->in[i] : r->out[i - r->n_in];
        aril_operand *o = i < r->n_in ? &plan->in[i] : &plan->out[i - r->n_in];
        if (!t) continue;
        if (t->ndim == p->ndim)
            o->order = aril__dnn_image_order(p->last);
        else if (t->ndim == 1)
            *o = (aril_operand){ 1 + ARIL_F32, ARIL_ORDER_CONTIGUOUS };
    }
}

static const char *fill_plan(const aril__run *r, batch_plan *p)
{
    const aril_tensor *x = r->in[0];
    if (x->numel == 0) return "an empty tensor";
    if (x->ndim > 5) return "more than 3 spatial dimensions";
    p->ndim = x->ndim;
    memcpy(p->dim, x->dim, sizeof p->dim);
    p->last = x->ndim > 2 && aril__dnn_takes_last(x, r->out[0]);
    if (p->kind == BACKWARD) {
        const struct batch_norm_grad_attrs *a = r->attrs;
        if (a && a->activation[0]) return "an activation";
        if (a && a->residual[0]) return "the gradient of a residual";
        p->weight = r->in[2] != NULL;
    } else {
        bool eval = p->kind == EVAL;
        const struct batch_norm_attrs *a = r->attrs;
        const struct batch_norm_eval_attrs *e = r->attrs;
        int residual = eval ? 5 : 6;
        if (r->n_in > residual && r->in[residual]) return "a residual";
        if (eval ? e->activation[0] : a->activation[0]) return "an activation";
        p->eps = (float)(eval ? e->eps[0] : a->eps[0]);
        p->weight = r->in[1] != NULL;
        p->bias = r->in[2] != NULL;
    }
    return NULL;
}

const char *aril__dnn_batch_norm_prepare(const aril__run *r, aril__plan *plan)
{
    if (!aril__dnn_engine()) return "oneDNN failed to initialize";
    batch_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    p->kind = r->op == &aril__op_batch_norm        ? TRAINING
              : r->op == &aril__op_batch_norm_eval ? EVAL
                                                   : BACKWARD;
    p->type = r->type;
    const char *why = fill_plan(r, p);
    if (!why) /* statistics cover the whole batch, so they rule out cutting it */
        why = aril__dnn_cut_make(&p->cut, p->dim[0],
                                 p->kind == EVAL ? aril__parallel_pieces(r->in[0]->numel, MIN_PIECE)
                                                 : 1,
                                 make_norm, p);
    if (why) {
        free(p);
        return why;
    }
    if (p->kind == BACKWARD) /* variances and ones */
        plan->workspace = 2 * sizeof(float) * (size_t)p->dim[1];
    plan->prepared = p;
    ask_operands(r, p, plan);
    aril__dnn_cut_ask(&p->cut, plan);
    return NULL;
}

/* ---- running ---- */

static int64_t sample_bytes(const batch_plan *p)
{
    return aril__count(p->ndim - 1, p->dim + 1) * (int64_t)aril__dtype_bytes(p->type, 1);
}

/* out: y, mean, 1 / sqrt(var + eps), then running mean, running variance and the batch count */
static void update(const aril__run *r, const batch_plan *p)
{
    const struct batch_norm_attrs *a = r->attrs;
    float *mean = aril__ptr(r->out[1]), *var = aril__ptr(r->out[2]);
    float *to_mean = r->out[3] ? aril__ptr(r->out[3]) : NULL;
    float *to_var = r->out[4] ? aril__ptr(r->out[4]) : NULL;
    int64_t *batches = r->out[5] ? aril__ptr(r->out[5]) : NULL;
    double count = (double)(r->in[0]->numel / p->dim[1]), part = a->momentum[0];
    if (batches) ++*batches;
    if (a->cumulative[0] && batches) part = 1 / (double)*batches;
    for (int64_t i = 0; i < p->dim[1]; i++) {
        if (to_mean) to_mean[i] = (float)((1 - part) * (double)to_mean[i] + part * (double)mean[i]);
        if (to_var)
            to_var[i] = (float)((1 - part) * (double)to_var[i] +
                                part * (double)var[i] * count / (count - 1));
        var[i] = 1 / sqrtf(var[i] + p->eps);
    }
}

aril_status aril__dnn_batch_norm(aril__run *r)
{
    batch_plan *p = r->prepared;
    bool eval = p->kind == EVAL;
    int64_t sample = sample_bytes(p);
    const aril_tensor *given[4] = { eval ? r->in[3] : r->out[1], eval ? r->in[4] : r->out[2],
                                    r->in[1], r->in[2] };
    aril__dnn_args args = { .data = { aril__ptr(r->in[0]), aril__ptr(r->out[0]) },
                            .step = { sample, sample } };
    for (int i = 0, n = 2; i < 4; i++)
        if (given[i]) args.data[n++] = aril__ptr(given[i]);
    dnnl_status_t st = aril__dnn_cut_run(&p->cut, r, &args);
    if (st == dnnl_success && !eval) update(r, p);
    return aril__dnn_status(r->op->name, st);
}

/* in: x, g, weight?, mean, invstd; out: dx, dweight, dbias */
aril_status aril__dnn_batch_norm_grad(aril__run *r)
{
    batch_plan *p = r->prepared;
    int64_t c = p->dim[1];
    float *var = r->workspace, *ones = var + c;
    const float *s = aril__ptr(r->in[4]);
    for (int64_t i = 0; i < c; i++) {
        var[i] = 1 / (s[i] * s[i]);
        ones[i] = 1;
    }
    aril__dnn_args args = { .data = { aril__ptr(r->in[0]), aril__ptr(r->in[1]),
                                      aril__ptr(r->out[0]), aril__ptr(r->in[3]), var,
                                      p->weight ? aril__ptr(r->in[2]) : ones, aril__ptr(r->out[1]),
                                      aril__ptr(r->out[2]) } };
    return aril__dnn_status(r->op->name, aril__dnn_cut_run(&p->cut, r, &args));
}
