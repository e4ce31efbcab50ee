/* Networks without memory: parameters that are one zero seen in any shape, and a tracer that only
 * counts what operations would cost. */
#include "nn/module.h"

#include "aril/create.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/flops.h"

#include <string.h>

extern _Thread_local bool aril__sketches __attribute__((tls_model("initial-exec")));
_Thread_local bool aril__sketches __attribute__((tls_model("initial-exec")));

bool aril__sketch(bool on)
{
    bool before = aril__sketches;
    aril__sketches = on;
    return before;
}

aril_tensor *aril__sketched(aril_shape shape, aril_dtype dtype, aril_device device)
{
    aril_shape one = { .ndim = shape.ndim };
    for (int i = 0; i < shape.ndim; i++) one.dim[i] = shape.dim[i] ? 1 : 0;
    return aril_expand(aril_zeros(one, dtype, device), shape);
}

/* ---- counting ---- */

typedef struct counter {
    aril__tracer tracer; /* must be first: count() casts its pointer to counter */
    double flop;
} counter;

/* Results have shapes only; FLOPs follow from them. */
static aril_status count(aril__tracer *self, const aril__call *c, aril_tensor *dest,
                         aril_tensor **out)
{
    aril__thread *th = aril__self();
    for (int i = 0; i < c->op->n_out; i++) {
        int kind = c->op->out[i];
        aril_tensor *written = i == 0 && dest         ? dest
                               : ARIL__IS_WRITE(kind) ? c->in[kind - 32]
                                                      : NULL;
        out[i] = written ? aril__tensor_keep(written) : NULL;
        if (out[i] || ARIL__IS_WRITE(kind)) continue;
        out[i] = aril__symbolic_out(th, c, i, NULL);
        if (out[i]) continue;
        while (i-- > 0) aril__tensor_release(th, out[i]);
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", c->op->name);
    }
    aril__run run = { .op = c->op,
                      .attrs = c->attrs,
                      .n_in = c->n_in,
                      .n_out = c->op->n_out,
                      .in = c->in,
                      .out = out,
                      .type = c->type,
                      .device = c->device };
    bool moves = !(c->op->n_out && ARIL__IS_VIEW(c->op->out[0]));
    if (moves) ((counter *)self)->flop += aril__flops(&run);
    return ARIL_OK;
}

aril_status aril__sketch_flops(aril_module *m, aril_shape input, aril_dtype dtype, double *flop)
{
    counter c = { .tracer = { .apply = count } };
    aril_shape batch = { .ndim = input.ndim + 1, .dim = { 1 } };
    memcpy(batch.dim + 1, input.dim, (size_t)input.ndim * sizeof *input.dim);
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril__thread *th = aril__self();
    aril_tensor *x = aril__symbolic_new(th, dtype, batch.ndim, batch.dim, NULL);
    if (!x) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", aril_module_type(m));
    aril__own(th, x);
    bool training = aril_module_training(m);
    aril_module_eval(m);
    aril__tracer *before = aril__trace(&c.tracer);
    /* All results, as aril_module_cost requests them. */
    enum { MAX_OUT = 16 };
    aril_tensor *out[MAX_OUT];
    int n_out = !m->layer && m->type->outputs > 1 ? m->type->outputs : 1;
    aril_status s = aril_forward_all(m, ARIL_LIST(x), n_out < MAX_OUT ? n_out : MAX_OUT, out);
    aril__trace(before);
    if (training) aril_module_train(m);
    aril__sizes_free(&c.tracer.sizes);
    *flop = c.flop;
    return s;
}
