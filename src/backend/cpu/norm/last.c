#include "backend/cpu/norm/last.h"

#include "aril/create.h"
#include "ops/table/apply.h"

const char *aril__cpu_norm_last_prepare(const aril__run *r, aril__plan *plan)
{
    (void)plan;
    const aril_tensor *x = r->in[0];
    if (x->ndim < 3 || aril__is_dense(x) || x->numel == 0) return "not channels-last";
    for (int i = 0; i < r->n_in + r->n_out; i++) {
        const aril_tensor *t = i < r->n_in ? r->in[i] : r->out[i - r->n_in];
        if (!t) continue;
        if (t->ndim != x->ndim ? !aril__is_dense(t)
                               : !aril_is_channels_last(t) && (i == 0 || i >= r->n_in))
            return "not channels-last";
        if (t->ndim == x->ndim && t->dtype != r->type) return "mixed dtypes";
    }
    return NULL;
}

aril_status aril__cpu_norm_last(aril__run *r, aril_status (*run)(aril__run *r, bool last))
{
    enum { MAX_IN = 8 };
    aril_tensor *in[MAX_IN];
    aril__run ordered = *r;
    bool turned = false;
    for (int i = 1; i < r->n_in && !turned; i++)
        turned = r->in[i] && r->in[i]->ndim == r->in[0]->ndim && !aril_is_channels_last(r->in[i]);
    ARIL_SCOPE;
    if (turned) {
        ARIL_INFERENCE;
        for (int i = 0; i < r->n_in; i++) {
            in[i] = r->in[i];
            if (in[i] && in[i]->ndim == r->in[0]->ndim && !aril_is_channels_last(in[i]))
                in[i] = aril_channels_last(in[i]);
            if (in[i] && aril_tensor_status(in[i]) < 0) return aril_tensor_status(in[i]);
        }
        ordered.in = in;
    }
    return run(&ordered, true);
}
