#include "backend/cpu/norm/last.h"

const char *aril__cpu_norm_last_prepare(const aril__run *r, aril__plan *plan)
{
    const aril_tensor *x = r->in[0];
    if (x->ndim < 3 || x->numel == 0 || aril__is_dense(x) || !aril_is_channels_last(x))
        return "not channels-last";
    for (int i = 0; i < r->n_in + r->n_out; i++) {
        bool output = i >= r->n_in;
        const aril_tensor *t = output ? r->out[i - r->n_in] : r->in[i];
        if (!t) continue;
        bool image = t->ndim == x->ndim;
        if (image && t->dtype != r->type) return "mixed dtypes";
        if (!image && !aril__is_dense(t)) return "not channels-last";
        aril_operand *o = output ? &plan->out[i - r->n_in] : &plan->in[i];
        o->order = image ? ARIL_ORDER_CHANNELS_LAST : ARIL_ORDER_CONTIGUOUS;
    }
    return NULL;
}
