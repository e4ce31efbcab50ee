#include "backend/onednn/resample.h"

#include "aril/conv.h"
#include "backend/onednn/cut.h"
#include "core/parallel.h"
#include "ops/vision/slide.h"

#include <stdlib.h>
#include <string.h>

enum { MIN_PIECE = 8 * 1024 }; /* minimum elements per piece */

/* x is the input, y the result. */
typedef struct resample_plan {
    bool is_grad, is_linear, last;
    aril_dtype type;
    int ndim;
    int64_t x_dim[5], y_dim[5];
    aril__dnn_cut cut;
} resample_plan;

static dnnl_memory_desc_t image(const resample_plan *p, int64_t samples, const int64_t *dim)
{
    int64_t sizes[5] = { samples, dim[1], dim[2], dim[3], dim[4] };
    return p->last ? aril__dnn_last(aril__dnn_type(p->type), p->ndim, sizes)
                   : aril__dnn_dense(aril__dnn_type(p->type), p->ndim, sizes);
}

static const char *make_resampling(void *ctx, int64_t samples, aril__dnn *made)
{
    const resample_plan *p = ctx;
    dnnl_memory_desc_t x = image(p, samples, p->x_dim), y = image(p, samples, p->y_dim);
    dnnl_primitive_attr_t attr = aril__dnn_attr(0);
    dnnl_alg_kind_t alg = p->is_linear ? dnnl_resampling_linear : dnnl_resampling_nearest;
    dnnl_primitive_desc_t forward = NULL, back = NULL;
    dnnl_status_t st = dnnl_out_of_memory;
    if (x && y && attr)
        st = aril__dnn_serially(dnnl_resampling_forward_primitive_desc_create(
            &forward, aril__dnn_engine(),
            p->is_grad ? dnnl_forward_training : dnnl_forward_inference, alg, NULL, x, y, attr));
    const char *why;
    if (p->is_grad) {
        if (st == dnnl_success)
            st = aril__dnn_serially(dnnl_resampling_backward_primitive_desc_create(
                &back, aril__dnn_engine(), alg, NULL, x, y, forward, attr));
        if (forward) dnnl_primitive_desc_destroy(forward);
        why = aril__dnn_make(made, st, back, 2, (int[]){ DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST });
    } else {
        why = aril__dnn_make(made, st, forward, 2, (int[]){ DNNL_ARG_SRC, DNNL_ARG_DST });
    }
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (y) dnnl_memory_desc_destroy(y);
    if (x) dnnl_memory_desc_destroy(x);
    return why;
}

void aril__dnn_resample_destroy(void *prepared)
{
    resample_plan *p = prepared;
    aril__dnn_cut_destroy(&p->cut);
    free(p);
}

static const void *attr_of(const aril__run *r, const char *name)
{
    for (int i = 0; i < r->op->n_attrs; i++)
        if (strcmp(r->op->attrs[i].name, name) == 0)
            return (const char *)r->attrs + r->op->attrs[i].offset;
    return NULL;
}

static const char *fill_plan(const aril__run *r, resample_plan *p)
{
    const aril_tensor *x = p->is_grad ? r->out[0] : r->in[0];
    const aril_tensor *y = p->is_grad ? r->in[0] : r->out[0];
    const int64_t *mode = attr_of(r, "mode"), *align = attr_of(r, "align_corners");
    const int64_t *smooth = attr_of(r, "antialias");
    const double *scale = attr_of(r, "scale");
    if (!mode || !align || !smooth || !scale) return "unknown attributes";
    if (x->numel == 0 || y->numel == 0) return "an empty tensor";
    if (*mode != ARIL_NEAREST && *mode != ARIL_NEAREST_EXACT && *mode != ARIL_LINEAR)
        return "mode is neither nearest nor linear";
    p->is_linear = *mode == ARIL_LINEAR;
    if (p->is_linear && *align) return "align_corners";
    if (*smooth) return "antialiasing";
    p->last = aril__dnn_takes_last(x, y);
    p->ndim = x->ndim;
    for (int i = 0; i < x->ndim; i++) {
        p->x_dim[i] = x->dim[i];
        p->y_dim[i] = y->dim[i];
        if (i < 2) continue;
        double by = scale[i - 2];
        if (by > 0 && (double)x->dim[i] * by != (double)y->dim[i])
            return "a scale other than the ratio of the sizes";
        /* For other ratios Aril and oneDNN pick different nearest neighbors. */
        if (!p->is_linear && y->dim[i] % x->dim[i]) return "not an integer number of copies";
    }
    return NULL;
}

/* When Aril's own kernels are faster. */
static const char *slower(const resample_plan *p)
{
    if (!p->last) return "Aril's kernel is faster in logical order";
    return p->is_grad && p->is_linear ? "Aril's kernel is faster for linear gradients" : NULL;
}

const char *aril__dnn_resample_prepare(const aril__run *r, aril__plan *plan)
{
    if (!aril__dnn_engine()) return "oneDNN failed to initialize";
    resample_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    p->is_grad = r->op == &aril__op_interpolate_grad;
    p->type = r->type;
    const char *why = fill_plan(r, p);
    if (!why && aril__force_row < 0) why = slower(p);
    if (!why) {
        int64_t work = aril__count(p->ndim, p->x_dim) + aril__count(p->ndim, p->y_dim);
        why = aril__dnn_cut_make(&p->cut, p->x_dim[0], aril__parallel_pieces(work, MIN_PIECE),
                                 make_resampling, p);
    }
    if (why) {
        free(p);
        return why;
    }
    plan->prepared = p;
    plan->in[0].order = plan->out[0].order = aril__dnn_image_order(p->last);
    aril__dnn_cut_ask(&p->cut, plan);
    return NULL;
}

aril_status aril__dnn_resample(aril__run *r)
{
    resample_plan *p = r->prepared;
    const aril_tensor *x = p->is_grad ? r->out[0] : r->in[0];
    const aril_tensor *y = p->is_grad ? r->in[0] : r->out[0];
    int64_t size = (int64_t)aril__dtype_bytes(p->type, 1);
    aril__dnn_args args = { .data = { aril__ptr(x), aril__ptr(y) },
                            .step = { aril__count(p->ndim - 1, p->x_dim + 1) * size,
                                      aril__count(p->ndim - 1, p->y_dim + 1) * size } };
    return aril__dnn_status(r->op->name, aril__dnn_cut_run(&p->cut, r, &args));
}
