#include "backend/cpu/loss/ctc.h"

#include "core/parallel.h"
#include "core/vector/targets.h"
#include "core/vector/vecmath.h"
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

/* The memory of a sample: for each state whether it can be entered from the one before the last (0
 * or minus infinity), and its label; then rows of log-sums. */
typedef struct ctc_states {
    int64_t states, pitch; /* pitch: elements of a row */
    double *skip;          /* [pitch] */
    int64_t *label;        /* [pitch] */
    double *alpha;
} ctc_states;

/* Rows of a sample: of log-sums, two that alternate or, for gradients, all times and two more, then
 * one of shares; and the two that describe the states. */
static int64_t rows_for(aril_tensor *const *in, bool grad)
{
    return 4 + (grad ? 1 + in[0]->dim[0] : 0);
}

/* The samples before n have no more than 2 start[n] + 3 n elements in each row. */
static ctc_states states_of(const ctc_job *j, int64_t n)
{
    const int64_t *label = j->target + j->start[n];
    ctc_states a = { .states = 2 * j->length[n] + 1 };
    a.pitch = a.states + 2;
    a.skip = j->scratch + (2 * j->start[n] + 3 * n) * j->rows;
    a.label = (int64_t *)(void *)(a.skip + a.pitch);
    a.alpha = a.skip + 2 * a.pitch;
    for (int64_t s = 0; s < a.pitch; s++) {
        bool inside = s & 1 && s < a.states;
        a.skip[s] = inside && s > 1 && label[s / 2] != label[s / 2 - 1] ? 0 : -INFINITY;
        a.label[s] = inside ? label[s / 2] : j->blank;
    }
    return a;
}

#define TEMPLATE "backend/cpu/loss/ctc.inc"
#include "core/vector/each_target.inc"

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
    bool wide = r->type == ARIL_F64;
    if (s == ARIL_OK)
        aril__parallel_for(j.batch, 1,
                           g ? ARIL__PICK(ctc_gradients, wide) : ARIL__PICK(ctc_losses, wide), &j);
    return s;
}

/* Starts, and the rows of all samples: 2S + 3 elements for a target of S labels. */
static size_t scratch_for(aril_tensor *const *in, bool grad)
{
    int64_t batch = in[0]->dim[1], states = 2 * in[1]->numel + 3 * batch;
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
