#include "backend/cpu/loss/ctc.h"

#include "core/parallel.h"
#include "ops/loss/loss.h"

#include <math.h>

typedef struct ctc_job {
    const void *x, *g;
    const int64_t *target, *times, *length;
    int64_t *start; /* where each sample's labels start */
    void *out;
    int64_t batch, classes, blank;
    int64_t max_times;
    double *scratch;
    int64_t rows; /* of states, in the scratch memory of a sample */
    bool zero_infinity;
} ctc_job;

enum { LEAST = -746 }; /* the exponential of this and less is 0 */

/* Two rows of states that alternate or, for gradients, all times and two more. */
static int64_t rows_for(aril_tensor *const *in, bool grad)
{
    return 2 + (grad ? in[0]->dim[0] : 0);
}

/* The scratch memory of sample n: the samples before it have no more than 2 start[n] + n states. */
static double *states_of(const ctc_job *j, int64_t n)
{
    return j->scratch + (2 * j->start[n] + n) * j->rows;
}

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
                  .zero_infinity = a->zero_infinity[0] };
    j.start = r->workspace;
    j.scratch = (double *)(void *)(j.start + j.batch);
    j.rows = rows_for(in, g);
    aril_status s = aril__ctc_starts(r, in, j.start);
    bool f32 = r->type == ARIL_F32;
    if (s == ARIL_OK)
        aril__parallel_for(j.batch, 1,
                           g ? (f32 ? ctc_gradients_f32 : ctc_gradients_f64)
                             : (f32 ? ctc_losses_f32 : ctc_losses_f64),
                           &j);
    return s;
}

/* Starts, and the states of all samples: 2S + 1 for a target of S labels. */
static size_t scratch_for(aril_tensor *const *in, bool grad)
{
    int64_t batch = in[0]->dim[1], states = 2 * in[1]->numel + batch;
    return (size_t)batch * sizeof(int64_t) + (size_t)(states * rows_for(in, grad)) * sizeof(double);
}

size_t aril__cpu_ctc_loss_scratch(const aril__run *r)
{
    return scratch_for(r->in, false);
}

size_t aril__cpu_ctc_loss_grad_scratch(const aril__run *r)
{
    return scratch_for(r->in + 1, true);
}

aril_status aril__cpu_ctc_loss(aril__run *r)
{
    return run_ctc(r, NULL, r->in);
}

aril_status aril__cpu_ctc_loss_grad(aril__run *r)
{
    return run_ctc(r, r->in[0], r->in + 1);
}
