#include "backend/onednn/softmax.h"

#include "backend/onednn/cut.h"
#include "core/parallel.h"
#include "ops/norm/softmax.h"

#include <stdlib.h>

enum { MIN_PIECE = 4 * 1024 }; /* minimum elements per piece */

/* Tensors are viewed as [outer, n, inner]. */
typedef struct softmax_plan {
    int64_t outer, n, inner;
    bool is_log, is_grad;
    aril_dtype type;
    aril__dnn_cut cut;
} softmax_plan;

static const char *make_softmax(void *ctx, int64_t units, aril__dnn *made)
{
    const softmax_plan *p = ctx;
    dnnl_memory_desc_t md = aril__dnn_dense(aril__dnn_type(p->type), p->inner == 1 ? 2 : 3,
                                            (int64_t[]){ units, p->n, p->inner });
    dnnl_primitive_attr_t attr = aril__dnn_attr(0);
    dnnl_alg_kind_t alg = p->is_log ? dnnl_softmax_log : dnnl_softmax_accurate;
    dnnl_primitive_desc_t forward = NULL, back = NULL;
    dnnl_status_t st = dnnl_out_of_memory;
    if (md && attr)
        st = aril__dnn_serially(dnnl_softmax_forward_primitive_desc_create(
            &forward, aril__dnn_engine(),
            p->is_grad ? dnnl_forward_training : dnnl_forward_inference, alg, md, md, 1, attr));
    const char *why;
    if (p->is_grad) {
        if (st == dnnl_success)
            st = aril__dnn_serially(dnnl_softmax_backward_primitive_desc_create(
                &back, aril__dnn_engine(), alg, md, md, md, 1, forward, attr));
        if (forward) dnnl_primitive_desc_destroy(forward);
        why = aril__dnn_make(made, st, back, 3,
                             (int[]){ DNNL_ARG_DIFF_DST, DNNL_ARG_DST, DNNL_ARG_DIFF_SRC });
    } else {
        why = aril__dnn_make(made, st, forward, 2, (int[]){ DNNL_ARG_SRC, DNNL_ARG_DST });
    }
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (md) dnnl_memory_desc_destroy(md);
    return why;
}

void aril__dnn_softmax_destroy(void *prepared)
{
    softmax_plan *p = prepared;
    aril__dnn_cut_destroy(&p->cut);
    free(p);
}

const char *aril__dnn_softmax_prepare(const aril__run *r, aril__plan *plan)
{
    const aril_tensor *x = r->in[0];
    int axis = (int)((const struct softmax_attrs *)r->attrs)->axis[0];
    if (x->numel == 0 || x->ndim == 0) return "an empty tensor";
    if (!aril__dnn_engine()) return "oneDNN failed to initialize";
    softmax_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    p->n = x->dim[axis];
    p->inner = aril__count(x->ndim - axis - 1, x->dim + axis + 1);
    p->outer = x->numel / (p->n * p->inner);
    p->is_log = r->op == &aril__op_log_softmax || r->op == &aril__op_log_softmax_grad;
    p->is_grad = r->op == &aril__op_softmax_grad || r->op == &aril__op_log_softmax_grad;
    p->type = r->type;
    int64_t pieces = aril__parallel_pieces(x->numel, MIN_PIECE);
    const char *why = aril__dnn_cut_make(&p->cut, p->outer, pieces, make_softmax, p);
    if (why) {
        free(p);
        return why;
    }
    plan->prepared = p;
    aril__dnn_cut_ask(&p->cut, plan);
    return NULL;
}

aril_status aril__dnn_softmax(aril__run *r)
{
    softmax_plan *p = r->prepared;
    int64_t row = p->n * p->inner * (int64_t)aril__dtype_bytes(p->type, 1);
    aril__dnn_args args = { .step = { row, row, row } };
    args.data[0] = aril__ptr(r->in[0]);
    args.data[1] = aril__ptr(p->is_grad ? r->in[1] : r->out[0]);
    args.data[2] = aril__ptr(r->out[0]);
    return aril__dnn_status(r->op->name, aril__dnn_cut_run(&p->cut, r, &args));
}
