#include "backend/cpu/loss/ctc.h"

#include "core/parallel.h"
#include "ops/loss/loss.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct ctc_job {
    const void *x, *g;
    const int64_t *target, *times, *length;
    int64_t *start; /* where each sample's labels start */
    void *out;
    int64_t batch, classes, blank;
    int64_t max_times, max_states;
    double *scratch;
    int64_t scratch_size; /* doubles of scratch memory per sample */
    bool zero_infinity;
} ctc_job;

#define TEMPLATE "backend/cpu/loss/ctc.inc"
#include "ops/table/each_real.inc"

static aril_status run_ctc(aril__run *r, const aril_tensor *g, aril_tensor *const *in)
{
    const struct ctc_attrs *a = r->attrs;
    ctc_job j = { .x = aril__ptr(in[0]),
                  .g = g ? aril__ptr(g) : NULL,
                  .target = aril__ptr(in[1]),
                  .times = aril__ptr(in[2]),
                  .length = aril__ptr(in[3]),
                  .out = aril__ptr(r->out[0]),
                  .batch = in[0]->dim[1],
                  .classes = in[0]->dim[2],
                  .blank = a->blank[0],
                  .max_times = in[0]->dim[0],
                  .max_states = 1,
                  .zero_infinity = a->zero_infinity[0] };
    j.start = aril__malloc((size_t)(j.batch + 1) * sizeof *j.start);
    if (!j.start)
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for %" PRId64 " samples", r->op->name,
                          j.batch);
    aril_status s = aril__ctc_starts(r, in, j.start);
    if (s == ARIL_OK) {
        for (int64_t n = 0; n < j.batch; n++)
            if (2 * j.length[n] + 1 > j.max_states) j.max_states = 2 * j.length[n] + 1;
        j.scratch_size = j.max_states * (g ? j.max_times + 2 : 2);
        j.scratch = aril__malloc((size_t)(j.batch * j.scratch_size + 1) * sizeof *j.scratch);
        if (!j.scratch)
            s = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for %" PRId64 " alignments",
                           r->op->name, j.batch * j.scratch_size);
    }
    bool f32 = r->type == ARIL_F32;
    if (s == ARIL_OK)
        aril__parallel_for(j.batch, 1,
                           g ? (f32 ? ctc_gradients_f32 : ctc_gradients_f64)
                             : (f32 ? ctc_losses_f32 : ctc_losses_f64),
                           &j);
    free(j.scratch);
    free(j.start);
    return s;
}

aril_status aril__cpu_ctc_loss(aril__run *r)
{
    return run_ctc(r, NULL, r->in);
}

aril_status aril__cpu_ctc_loss_grad(aril__run *r)
{
    return run_ctc(r, r->in[0], r->in + 1);
}
