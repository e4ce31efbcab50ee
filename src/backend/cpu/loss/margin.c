/* Forward and backward each take one pass over a sample's scores. */
#include "backend/cpu/loss/margin.h"

#include "core/parallel.h"
#include "ops/loss/loss.h"

enum { GRAIN = 16 * 1024 };

typedef struct margin_job {
    const void *x, *w, *g;
    const int64_t *target;
    void *out;
    int64_t classes;
    double margin, divisor;
    int p;
    bool *marks; /* multilabel: which classes are targets, per sample */
} margin_job;

#define TEMPLATE "backend/cpu/loss/margin.inc"
#include "ops/table/each_real.inc"

static margin_job job_of(const aril__run *r, const aril_tensor *x, const aril_tensor *target)
{
    return (margin_job){ .x = aril__ptr(x),
                         .target = aril__ptr(target),
                         .out = aril__ptr(r->out[0]),
                         .classes = x->dim[x->ndim - 1] };
}

static int64_t samples_of(const aril_tensor *x)
{
    return x->ndim == 2 ? x->dim[0] : 1;
}

static int64_t grain_of(const margin_job *j)
{
    int64_t grain = GRAIN / (j->classes > 0 ? j->classes : 1);
    return grain > 1 ? grain : 1;
}

static aril_status run_multi_margin(aril__run *r, const aril_tensor *g, const aril_tensor *x,
                                    const aril_tensor *target, const aril_tensor *w)
{
    const struct multi_margin_attrs *a = r->attrs;
    margin_job j = job_of(r, x, target);
    if (aril__check_classes(r, target, 0, j.classes) < 0) return ARIL_ERR_INDEX;
    j.w = w ? aril__ptr(w) : NULL;
    j.g = g ? aril__ptr(g) : NULL;
    j.p = (int)a->p[0];
    j.margin = a->margin[0];
    j.divisor = a->sum_classes[0] ? 1 : (double)j.classes;
    bool f32 = r->type == ARIL_F32;
    aril__parallel_for(samples_of(x), grain_of(&j),
                       g ? (f32 ? multi_margin_grad_f32 : multi_margin_grad_f64)
                         : (f32 ? multi_margin_f32 : multi_margin_f64),
                       &j);
    return ARIL_OK;
}

aril_status aril__cpu_multi_margin_loss(aril__run *r)
{
    return run_multi_margin(r, NULL, r->in[0], r->in[1], r->in[2]);
}

aril_status aril__cpu_multi_margin_loss_grad(aril__run *r)
{
    return run_multi_margin(r, r->in[0], r->in[1], r->in[2], r->in[3]);
}

static aril_status run_multilabel(aril__run *r, const aril_tensor *g, const aril_tensor *x,
                                  const aril_tensor *target)
{
    margin_job j = job_of(r, x, target);
    if (aril__check_classes(r, target, -1, j.classes) < 0) return ARIL_ERR_INDEX;
    j.g = g ? aril__ptr(g) : NULL;
    j.divisor = (double)j.classes;
    j.marks = r->workspace;
    aril__parallel_for(samples_of(x), grain_of(&j),
                       r->type == ARIL_F32 ? multilabel_margin_f32 : multilabel_margin_f64, &j);
    return ARIL_OK;
}

size_t aril__cpu_multilabel_margin_loss_scratch(const aril__run *r)
{
    return (size_t)r->in[0]->numel * sizeof(bool);
}

size_t aril__cpu_multilabel_margin_loss_grad_scratch(const aril__run *r)
{
    return (size_t)r->in[1]->numel * sizeof(bool);
}

aril_status aril__cpu_multilabel_margin_loss(aril__run *r)
{
    return run_multilabel(r, NULL, r->in[0], r->in[1]);
}

aril_status aril__cpu_multilabel_margin_loss_grad(aril__run *r)
{
    return run_multilabel(r, r->in[0], r->in[1], r->in[2]);
}
