/* Forward and backward each take one pass over the scores. */
#include "backend/cpu/loss/nll.h"

#include "core/parallel.h"
#include "ops/loss/loss.h"
#include "core/vector/targets.h"
#include "core/vector/vecmath.h"

#include <math.h>
#include <string.h>

enum {
    GRAIN = 16 * 1024,
    CLASSES = 1024, /* exponentials summed at a time */
    COLS = 256,     /* adjacent rows processed together */
};

typedef struct nll_job {
    const void *x, *w, *g;
    const int64_t *target;
    void *out;
    int64_t classes, inner, ignore; /* x is [rows / inner, classes, inner] */
    double smoothing;
    double divisor; /* of the mean; else 1 */
    double weights; /* the sum of all class weights */
    double *part;   /* sums of losses, one per chunk of rows */
    int64_t grain;
    bool softmax; /* x holds scores, not log-probabilities */
    bool each;    /* no reduction */
} nll_job;

#define TEMPLATE "backend/cpu/loss/nll.inc"
#include "core/vector/each_target.inc"

static double weight_at(const aril__run *r, const void *w, int64_t c)
{
    return !w ? 1 : r->type == ARIL_F32 ? (double)((const float *)w)[c] : ((const double *)w)[c];
}

/* Rows in a chunk. */
static int64_t grain_of(int64_t classes)
{
    int64_t grain = GRAIN / (classes > 0 ? classes : 1);
    return grain > 1 ? grain : 1;
}

/* Fills the job from shapes, attributes and targets; validates every target. */
static aril_status prepare(const aril__run *r, const aril_tensor *x, const aril_tensor *target,
                           const aril_tensor *weight, nll_job *j)
{
    const struct nll_attrs *a = r->attrs;
    j->classes = x->dim[x->ndim > 1];
    j->inner = 1;
    for (int d = 2; d < x->ndim; d++) j->inner *= x->dim[d];
    j->target = aril__ptr(target);
    j->w = weight ? aril__ptr(weight) : NULL;
    j->out = aril__ptr(r->out[0]);
    j->ignore = a->ignore_index[0];
    j->smoothing = a->label_smoothing[0];
    j->each = a->reduction[0] == ARIL_NONE;
    j->grain = grain_of(j->classes);
    for (int64_t c = 0; c < j->classes; c++) j->weights += weight_at(r, j->w, c);
    double divisor = 0;
    for (int64_t i = 0; i < target->numel; i++) {
        int64_t y = j->target[i];
        if (y == j->ignore) continue;
        if (y < 0 || y >= j->classes) return aril__class_error(r->op->name, y, j->classes);
        divisor += weight_at(r, j->w, y);
    }
    j->divisor = a->reduction[0] == ARIL_MEAN ? divisor : 1;
    return ARIL_OK;
}

static aril_status run_losses(aril__run *r, bool softmax)
{
    nll_job j = { .x = aril__ptr(r->in[0]), .softmax = softmax, .part = r->workspace };
    int64_t rows = r->in[1]->numel;
    if (prepare(r, r->in[0], r->in[1], r->in[2], &j) < 0) return ARIL_ERR_INDEX;
    int64_t chunks = aril__parallel_chunks(rows, j.grain);
    aril__parallel_for(rows, j.grain, ARIL__PICK(losses, r->type == ARIL_F64), &j);
    if (j.each) return ARIL_OK;
    double sum = 0;
    for (int64_t i = 0; i < chunks; i++) sum += j.part[i];
    sum /= j.divisor; /* NaN if there is nothing to average */
    if (r->type == ARIL_F32)
        *(float *)j.out = (float)sum;
    else
        *(double *)j.out = sum;
    return ARIL_OK;
}

/* Unless each loss is a result: partial sums. */
size_t aril__cpu_nll_scratch(const aril__run *r)
{
    const aril_tensor *x = r->in[0];
    if (((const struct nll_attrs *)r->attrs)->reduction[0] == ARIL_NONE) return 0;
    int64_t grain = grain_of(x->dim[x->ndim > 1]);
    return (size_t)aril__parallel_chunks(r->in[1]->numel, grain) * sizeof(double);
}

static aril_status run_gradients(aril__run *r, const aril_tensor *x, const aril_tensor *target,
                                 const aril_tensor *weight, bool softmax)
{
    nll_job j = { .x = softmax ? aril__ptr(x) : NULL,
                  .g = aril__ptr(r->in[0]),
                  .softmax = softmax };
    if (prepare(r, x, target, weight, &j) < 0) return ARIL_ERR_INDEX;
    aril__parallel_for(target->numel, j.grain, ARIL__PICK(gradients, r->type == ARIL_F64), &j);
    return ARIL_OK;
}

aril_status aril__cpu_nll_loss(aril__run *r)
{
    return run_losses(r, false);
}

aril_status aril__cpu_cross_entropy(aril__run *r)
{
    return run_losses(r, true);
}

aril_status aril__cpu_nll_loss_grad(aril__run *r)
{
    return run_gradients(r, r->in[3], r->in[1], r->in[2], false);
}

aril_status aril__cpu_cross_entropy_grad(aril__run *r)
{
    return run_gradients(r, r->in[1], r->in[2], r->in[3], true);
}
