#include "backend/onednn/reorder.h"

#include "backend/onednn/cut.h"
#include "core/cpu.h"
#include "core/parallel.h"

#include <stdlib.h>
#include <string.h>

enum {
    MIN_PIECE = 32 * 1024, /* minimum elements per piece */
    FEW = 16 * 1024,       /* below this many, Aril's kernel is faster */
};

typedef struct reorder_plan {
    int ndim, axis; /* the axis that is cut */
    int64_t dim[ARIL_MAX_DIMS], from_stride[ARIL_MAX_DIMS], to_stride[ARIL_MAX_DIMS];
    aril_dtype from, to;
    aril__dnn_cut cut;
} reorder_plan;

static const char *make_reorder(void *ctx, int64_t units, aril__dnn *made)
{
    const reorder_plan *p = ctx;
    int64_t dim[ARIL_MAX_DIMS];
    memcpy(dim, p->dim, sizeof dim);
    dim[p->axis] = units;
    dnnl_memory_desc_t from =
        aril__dnn_strided(aril__dnn_type(p->from), p->ndim, dim, p->from_stride);
    dnnl_memory_desc_t to = aril__dnn_strided(aril__dnn_type(p->to), p->ndim, dim, p->to_stride);
    const char *why = from && to ? aril__dnn_make_reorder(made, from, to) : "out of memory";
    if (to) dnnl_memory_desc_destroy(to);
    if (from) dnnl_memory_desc_destroy(from);
    return why;
}

void aril__dnn_reorder_destroy(void *prepared)
{
    reorder_plan *p = prepared;
    aril__dnn_cut_destroy(&p->cut);
    free(p);
}

static const char *misfit(const aril_tensor *x, const aril_tensor *y)
{
    if (y->numel == 0 || y->ndim == 0) return "an empty tensor";
    if (!aril__same_dims(x->ndim, x->dim, y->ndim, y->dim)) return "broadcasting";
    if (aril__overlaps(x) || aril__overlaps(y)) return "overlapping elements";
    for (int i = 0; i < x->ndim; i++)
        if (x->stride[i] < 0 || y->stride[i] < 0) return "negative strides";
    if (x->dtype != y->dtype && !(x->dtype == ARIL_BF16 && y->dtype == ARIL_F32))
        return "oneDNN does not support the dtype, or flushes denormals to 0";
    if (x->dtype == ARIL_BF16 && !aril__cpu_has(ARIL__CPU_BF16))
        return "oneDNN changes bits of bf16 on this CPU";
    if (x->dtype == y->dtype && aril__is_dense(x) && aril__is_dense(y)) return "a plain copy";
    return NULL;
}

const char *aril__dnn_reorder_prepare(const aril__run *r, aril__plan *plan)
{
    const aril_tensor *x = r->in[0], *y = r->out[0];
    const char *why = misfit(x, y);
    if (why) return why;
    if (x->numel < FEW && aril__force_row < 0) return "Aril's kernel is faster for few elements";
    if (!aril__dnn_engine()) return "oneDNN failed to initialize";
    reorder_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    p->ndim = x->ndim;
    memcpy(p->dim, x->dim, sizeof p->dim);
    p->from = (aril_dtype)x->dtype;
    p->to = (aril_dtype)y->dtype;
    for (int i = 0; i < p->ndim; i++) {
        p->from_stride[i] = x->stride[i] > 0 ? x->stride[i] : 1;
        p->to_stride[i] = y->stride[i] > 0 ? y->stride[i] : 1;
    }
    int64_t pieces = aril__parallel_pieces(x->numel, MIN_PIECE);
    while (p->axis < p->ndim - 1 && p->dim[p->axis] < pieces) p->axis++;
    if (p->dim[p->axis] < pieces) p->axis = 0;
    why = aril__dnn_cut_make(&p->cut, p->dim[p->axis], pieces, make_reorder, p);
    if (why) {
        free(p);
        return why;
    }
    plan->prepared = p;
    aril__dnn_cut_ask(&p->cut, plan);
    return NULL;
}

aril_status aril__dnn_reorder(aril__run *r)
{
    reorder_plan *p = r->prepared;
    aril__dnn_args args = { .data = { aril__ptr(r->in[0]), aril__ptr(r->out[0]) },
                            .step = {
                                p->from_stride[p->axis] * (int64_t)aril__dtype_bytes(p->from, 1),
                                p->to_stride[p->axis] * (int64_t)aril__dtype_bytes(p->to, 1) } };
    return aril__dnn_status(r->op->name, aril__dnn_cut_run(&p->cut, r, &args));
}
