/* Local response normalization, forward only: oneDNN's gradient needs the workspace of its own
 * forward pass. */
#include "backend/onednn/norm.h"

#include "backend/onednn/cut.h"
#include "core/parallel.h"
#include "ops/norm/norm.h"

#include <stdlib.h>

enum { MIN_PIECE = 8 * 1024 }; /* minimum elements per piece */

typedef struct lrn_plan {
    aril_dtype type;
    int64_t samples, channels, inner;
    bool last;
    struct local_response_norm_attrs a;
    aril__dnn_cut cut;
} lrn_plan;

static const char *make_lrn(void *ctx, int64_t samples, aril__dnn *made)
{
    const lrn_plan *p = ctx;
    int64_t dim[4] = { samples, p->channels, p->inner, 1 };
    dnnl_data_type_t type = aril__dnn_type(p->type);
    dnnl_memory_desc_t x = p->last ? aril__dnn_last(type, 4, dim) : aril__dnn_dense(type, 4, dim);
    dnnl_primitive_attr_t attr = aril__dnn_attr(0);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = dnnl_out_of_memory;
    if (x && attr)
        st = aril__dnn_serially(dnnl_lrn_forward_primitive_desc_create(
            &pd, aril__dnn_engine(), dnnl_forward_inference, dnnl_lrn_across_channels, x, x,
            p->a.size[0], (float)p->a.alpha[0], (float)p->a.beta[0], (float)p->a.k[0], attr));
    const char *why = aril__dnn_make(made, st, pd, 2, (int[]){ DNNL_ARG_SRC, DNNL_ARG_DST });
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (x) dnnl_memory_desc_destroy(x);
    return why;
}

const char *aril__dnn_local_response_norm_prepare(const aril__run *r, aril__plan *plan)
{
    const aril_tensor *x = r->in[0];
    const struct local_response_norm_attrs *a = r->attrs;
    if (x->numel == 0) return "an empty tensor";
    if (a->size[0] % 2 == 0) return "a window of even size, which oneDNN places differently";
    if (!aril__dnn_engine()) return "oneDNN failed to initialize";
    lrn_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    *p = (lrn_plan){ .type = r->type,
                     .samples = x->dim[0],
                     .channels = x->dim[1],
                     .inner = aril__count(x->ndim - 2, x->dim + 2),
                     .last = aril__dnn_takes_last(x, r->out[0]),
                     .a = *a };
    int64_t pieces = aril__parallel_pieces(x->numel, MIN_PIECE);
    const char *why = aril__dnn_cut_make(&p->cut, p->samples, pieces, make_lrn, p);
    if (why) {
        free(p);
        return why;
    }
    plan->prepared = p;
    plan->in[0].order = plan->out[0].order = aril__dnn_image_order(p->last);
    aril__dnn_cut_ask(&p->cut, plan);
    return NULL;
}

aril_status aril__dnn_local_response_norm(aril__run *r)
{
    lrn_plan *p = r->prepared;
    int64_t sample = p->channels * p->inner * (int64_t)aril__dtype_bytes(p->type, 1);
    aril__dnn_args args = { .data = { aril__ptr(r->in[0]), aril__ptr(r->out[0]) },
                            .step = { sample, sample } };
    return aril__dnn_status(r->op->name, aril__dnn_cut_run(&p->cut, r, &args));
}

void aril__dnn_local_response_norm_destroy(void *prepared)
{
    lrn_plan *p = prepared;
    aril__dnn_cut_destroy(&p->cut);
    free(p);
}
