#include "backend/cpu/staged.h"

#include "aril/ops.h"
#include "ops/table/apply.h"
#include "ops/shape/copy.h"

enum { MOST_IN = 16 };

static aril_status run_staged(aril__run *r, aril_status (*run)(aril__run *r))
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril__thread *th = aril__self();
    aril_tensor *in[MOST_IN], *out[ARIL__MAX_OUT];
    aril_status s = ARIL_OK;
    for (int i = 0; i < r->n_in && s == ARIL_OK; i++) {
        in[i] = r->in[i];
        if (!in[i] || in[i]->dtype != r->type) continue;
        in[i] = aril_cast(in[i], ARIL_F32);
        s = aril_tensor_status(in[i]);
    }
    for (int i = 0; i < r->n_out && s == ARIL_OK; i++) {
        aril_tensor *to = out[i] = r->out[i];
        if (to->dtype != r->type) continue;
        out[i] = aril__give(th, aril__tensor_new(th, ARIL_F32, to->ndim, to->dim, r->device));
        s = aril_tensor_status(out[i]);
    }
    if (s < 0) return s;
    aril__run staged = *r;
    staged.in = in;
    staged.out = out;
    staged.type = ARIL_F32;
    s = run(&staged);
    for (int i = 0; i < r->n_out && s == ARIL_OK; i++)
        if (out[i] != r->out[i]) aril__copy_elements(r->out[i], out[i]);
    return s;
}

aril_status aril__cpu_staged(aril__run *r, aril_status (*run)(aril__run *r))
{
    bool low = r->type == ARIL_F16 || r->type == ARIL_BF16;
    return low ? run_staged(r, run) : run(r);
}
