#include "backend/onednn/norm.h"

#include "backend/onednn/cut.h"
#include "core/parallel.h"
#include "ops/norm/norm.h"

#include <math.h>
#include <stdlib.h>

enum {
    MIN_PIECE = 8 * 1024,   /* minimum elements per piece */
    MIN_SUMMED = 32 * 1024, /* ... when each piece has its own sums */
    MAX_SUMMED = 16,
    FEW = 8 * 1024, /* f32: Aril's own kernel is faster below this many elements, */
    MANY = 8 << 20, /* again from this many on, */
    LONG = 8 * 1024 /* and for rows at least this long */
};

/* rows of n elements; the gradient sums parameter gradients piece by piece. */
typedef struct norm_plan {
    int64_t rows, n;
    aril_dtype type;
    float eps;
    bool is_grad, weight, bias;
    aril__dnn_cut cut;
} norm_plan;

void aril__dnn_layer_norm_destroy(void *prepared)
{
    norm_plan *p = prepared;
    aril__dnn_cut_destroy(&p->cut);
    free(p);
}

static const char *make_layer_norm(void *ctx, int64_t rows, aril__dnn *made)
{
    const norm_plan *p = ctx;
    dnnl_memory_desc_t x = aril__dnn_dense(aril__dnn_type(p->type), 2, (int64_t[]){ rows, p->n });
    dnnl_memory_desc_t stat = aril__dnn_dense(dnnl_f32, 1, &rows);
    dnnl_primitive_attr_t attr = aril__dnn_attr(0);
    unsigned flags = (p->weight || p->is_grad ? dnnl_use_scale : 0u) |
                     (p->bias || p->is_grad ? dnnl_use_shift : 0u);
    dnnl_primitive_desc_t forward = NULL, back = NULL;
    dnnl_status_t st = dnnl_out_of_memory;
    if (x && stat && attr)
        st = aril__dnn_serially(dnnl_layer_normalization_forward_primitive_desc_create(
            &forward, aril__dnn_engine(), dnnl_forward_training, x, x, stat, p->eps, flags, attr));
    const char *why;
    if (p->is_grad) {
        if (st == dnnl_success)
            st = aril__dnn_serially(dnnl_layer_normalization_backward_primitive_desc_create(
                &back, aril__dnn_engine(), dnnl_backward, x, x, x, stat, p->eps, flags, forward,
                attr));
        if (forward) dnnl_primitive_desc_destroy(forward);
        why = aril__dnn_make(made, st, back, 9,
                             (int[]){ DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_MEAN,
                                      DNNL_ARG_VARIANCE, DNNL_ARG_DIFF_SRC, DNNL_ARG_SCALE,
                                      DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT, DNNL_ARG_SHIFT });
    } else {
        int arg[6] = { DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE }, n = 4;
        if (p->weight) arg[n++] = DNNL_ARG_SCALE;
        if (p->bias) arg[n++] = DNNL_ARG_SHIFT;
        why = aril__dnn_make(made, st, forward, n, arg);
    }
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (stat) dnnl_memory_desc_destroy(stat);
    if (x) dnnl_memory_desc_destroy(x);
    return why;
}

static int64_t padded(int64_t n)
{
    return (n + 15) / 16 * 16;
}

static const char *slower(const norm_plan *p)
{
    if (p->type != ARIL_F32) return NULL;
    if (p->rows * p->n < FEW) return "Aril's kernel is faster for few elements";
    if (p->rows * p->n >= MANY) return "Aril's kernel is faster when memory-bound";
    return p->n >= LONG ? "Aril's kernel is faster for long rows" : NULL;
}

const char *aril__dnn_layer_norm_prepare(const aril__run *r, aril__plan *plan)
{
    const struct layer_norm_attrs *a = r->attrs;
    bool grad = r->op == &aril__op_layer_norm_grad;
    const aril_tensor *x = r->in[grad];
    if (x->numel == 0) return "an empty tensor";
    if (!aril__dnn_engine()) return "oneDNN failed to initialize";
    if (grad && (r->in[3]->dtype != ARIL_F32 || r->in[4]->dtype != ARIL_F32))
        return "statistics that are not f32";
    norm_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    p->rows = aril__count(x->ndim - (int)a->axes[0], x->dim);
    p->n = x->numel / p->rows;
    p->type = r->type;
    p->is_grad = grad;
    p->weight = r->in[1 + grad] != NULL;
    p->bias = !grad && r->in[2];
    p->eps = grad ? 0 : (float)a->eps[0]; /* the gradient's variance already includes it */
    const char *why = aril__force_row < 0 ? slower(p) : NULL;
    /* Parameter sums depend on the cut, so the cut must not depend on the number of threads. */
    int64_t pieces = grad ? x->numel / MIN_SUMMED : aril__parallel_pieces(x->numel, MIN_PIECE);
    if (grad) pieces = pieces < 1 ? 1 : pieces > MAX_SUMMED ? MAX_SUMMED : pieces;
    if (!why) why = aril__dnn_cut_make(&p->cut, p->rows, pieces, make_layer_norm, p);
    if (why) {
        free(p);
        return why;
    }
    if (grad) /* variances, ones, a weight, and each piece's sums */
        plan->workspace =
            (size_t)(padded(p->rows) + padded(p->n) * (2 + 2 * p->cut.pieces)) * sizeof(float);
    else if (r->type != ARIL_F32) /* a weight and a bias */
        plan->workspace = (size_t)(2 * padded(p->n)) * sizeof(float);
    plan->prepared = p;
    aril__dnn_cut_ask(&p->cut, plan);
    return NULL;
}

aril_status aril__dnn_layer_norm(aril__run *r)
{
    norm_plan *p = r->prepared;
    int64_t row = p->n * (int64_t)aril__dtype_bytes(p->type, 1);
    float *var = aril__ptr(r->out[2]);
    aril__dnn_args args = { .data = { aril__ptr(r->in[0]), aril__ptr(r->out[0]),
                                      aril__ptr(r->out[1]), var },
                            .step = { row, row, sizeof(float), sizeof(float) } };
    int n = 4;
    float *space = r->workspace;
    if (p->weight) args.data[n++] = aril__dnn_floats(r->in[1], p->n, space);
    if (p->bias)
        args.data[n++] = aril__dnn_floats(r->in[2], p->n, space ? space + padded(p->n) : NULL);
    dnnl_status_t st = aril__dnn_cut_run(&p->cut, r, &args);
    for (int64_t i = 0; i < p->rows && st == dnnl_success; i++) var[i] = 1 / sqrtf(var[i] + p->eps);
    return aril__dnn_status(r->op->name, st);
}

/* in: g, x, weight?, mean, invstd */
aril_status aril__dnn_layer_norm_grad(aril__run *r)
{
    norm_plan *p = r->prepared;
    int64_t row = p->n * (int64_t)aril__dtype_bytes(p->type, 1), lead = padded(p->n);
    float *var = r->workspace, *ones = var + padded(p->rows), *weight = ones + lead;
    float *sums = weight + lead;
    const float *s = aril__ptr(r->in[4]);
    for (int64_t i = 0; i < p->rows; i++) var[i] = 1 / (s[i] * s[i]);
    for (int64_t i = 0; i < p->n; i++)
        ones[i] = 1; /* oneDNN also requires a bias, and ignores it */
    weight = p->weight ? aril__dnn_floats(r->in[2], p->n, weight) : ones;
    int64_t part = 2 * lead * (int64_t)sizeof(float);
    aril__dnn_args args = { .data = { aril__ptr(r->in[0]), aril__ptr(r->in[1]), aril__ptr(r->in[3]),
                                      var, aril__ptr(r->out[0]), weight, sums, sums + lead, ones },
                            .step = { row, row, sizeof(float), sizeof(float), row },
                            .part = { [6] = part, [7] = part } };
    dnnl_status_t st = aril__dnn_cut_run(&p->cut, r, &args);
    for (int k = 0; k < 2; k++) {
        float *to = aril__ptr(r->out[1 + k]);
        const float *from = sums + k * lead;
        for (int64_t i = 0; i < p->n && st == dnnl_success; i++) {
            float sum = 0;
            for (int64_t j = 0; j < p->cut.pieces; j++) sum += from[j * 2 * lead + i];
            to[i] = sum;
        }
    }
    return aril__dnn_status(r->op->name, st);
}
