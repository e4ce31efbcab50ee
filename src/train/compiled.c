#include "train/compiled.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "graph/compiled.h"
#include "nn/module.h"
#include "ops/table/apply.h"
#include "optim/optim.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS = 2 + ARIL_SAMPLE_EXTRA + ARIL_SAMPLE_EXTRA_Y + 1 };

/* One kind of step with its program. A trace is for the values in `plan` and `given`. */
typedef struct compiled_step {
    aril_model *m;
    aril__step_kind kind;
    aril__compiled *program;
    struct {
        aril__step_plan plan;
        uint32_t given;  /* which parts of a batch there are */
        uint32_t wanted; /* outputs that someone reads */
    } of;
} compiled_step;

struct aril__programs {
    compiled_step step[ARIL__STEP_KINDS];
};

/* ---- the step itself ---- */

static aril_status gradients(aril_model *m, const aril_batch *b, const aril__step_plan *plan,
                             aril__results *r)
{
    aril_status status = aril__model_forward(m, b, plan->n_out, r);
    if (status == ARIL_OK) status = aril__model_loss(m, b, plan->class_weight, r);
    if (status != ARIL_OK) return status;
    aril_tensor *from = plan->share != 1 ? aril_mul_scalar(r->loss, plan->share) : r->loss;
    return aril_backward(aril_scale_loss(m->opt, from));
}

/* For optimizers that evaluate several times (lbfgs). */
typedef struct evaluations {
    aril_model *m;
    const aril_batch *b;
    const aril__step_plan *plan;
    aril__results *first; /* the results of the first one are kept */
} evaluations;

/* Calls fn for each result of a batch. */
static void each_result(const aril__results *r, aril_tensor *(*fn)(aril_tensor *t))
{
    for (int k = 0; k < ARIL_MODEL_OUTPUTS; k++) {
        if (r->output[k] != NULL) fn(r->output[k]);
        if (r->each[k] != NULL) fn(r->each[k]);
    }
    if (r->weight != NULL) fn(r->weight);
    fn(r->loss);
}

static aril_tensor *closure(void *ctx)
{
    evaluations *e = ctx;
    aril__results r = { 0 };
    if (gradients(e->m, e->b, e->plan, &r) != ARIL_OK) return r.loss;
    if (e->first->loss == NULL) {
        *e->first = r;
        each_result(&r, aril_keep); /* the optimizer calls this in its own scope */
    }
    return r.loss;
}

static aril_status step_by_closure(aril_model *m, const aril_batch *b, const aril__step_plan *plan,
                                   aril__results *r)
{
    evaluations e = { m, b, plan, r };
    aril_tensor *loss = aril_step_closure(m->opt, closure, &e);
    aril_status status = loss != NULL ? aril_tensor_status(loss) : aril__latest_status();
    if (r->loss == NULL) return status != ARIL_OK ? status : aril__latest_status();
    each_result(r, aril_adopt);
    return status;
}

/* A step as in a hand-written loop. */
static aril_status step_now(aril_model *m, aril__step_kind kind, const aril_batch *b,
                            const aril__step_plan *plan, aril__results *r)
{
    aril_status status;
    switch (kind) {
    case ARIL__TRAIN_STEP:
        if (aril_optim_needs_closure(m->opt)) return step_by_closure(m, b, plan, r);
        status = gradients(m, b, plan, r);
        return status == ARIL_OK && plan->update ? aril_step(m->opt) : status;
    case ARIL__MEASURE_STEP:
        status = aril__model_forward(m, b, plan->n_out, r);
        return status == ARIL_OK ? aril__model_loss(m, b, plan->class_weight, r) : status;
    default: return aril__model_forward(m, b, plan->n_out, r);
    }
}

/* ---- as a program ---- */

/* The parts of a batch in order. */
static void list_parts(const aril_batch *b, aril_tensor **part)
{
    int n = 0;
    part[n++] = b->x;
    part[n++] = b->y;
    part[n++] = b->weight;
    for (int i = 0; i < ARIL_SAMPLE_EXTRA; i++) part[n++] = b->extra[i];
    for (int i = 0; i < ARIL_SAMPLE_EXTRA_Y; i++) part[n++] = b->extra_y[i];
}

static void unlist_parts(aril_tensor *const *part, aril_batch *b)
{
    int n = 0;
    b->x = part[n++];
    b->y = part[n++];
    b->weight = part[n++];
    for (int i = 0; i < ARIL_SAMPLE_EXTRA; i++) b->extra[i] = part[n++];
    for (int i = 0; i < ARIL_SAMPLE_EXTRA_Y; i++) b->extra_y[i] = part[n++];
}

/* The results of a step as a list without gaps, and back: the loss, outputs that are wanted, losses
 * of named outputs, and the weight, which alone may be missing. */
static int results_of(const compiled_step *s, aril__results *r, aril_tensor ***at)
{
    const aril_model *m = s->m;
    int n = 0;
    if (s->kind != ARIL__PREDICT_STEP) at[n++] = &r->loss;
    for (int k = 0; k < s->of.plan.n_out; k++)
        if (s->of.wanted >> k & 1) at[n++] = &r->output[k];
    for (int k = 0; k < s->of.plan.n_out && s->kind != ARIL__PREDICT_STEP; k++)
        if (m->output[k].name != NULL && aril__output_has_loss(&m->output[k]))
            at[n++] = &r->each[k];
    if (s->kind != ARIL__PREDICT_STEP) at[n++] = &r->weight;
    return n;
}

enum { RESULTS = 2 + 2 * ARIL_MODEL_OUTPUTS };

/* The traced function: in[] are the parts of a batch that there are. */
static void traced_step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    compiled_step *s = ctx;
    aril_tensor *part[PARTS] = { NULL }, **at[RESULTS];
    aril_batch b = { 0 };
    aril__results r = { 0 };
    if (aril__trace_watch(&s->of, sizeof s->of) < 0) return;
    for (int i = 0, n = 0; i < PARTS; i++)
        if (s->of.given >> i & 1) part[i] = in[n++];
    unlist_parts(part, &b);
    if (step_now(s->m, s->kind, &b, &s->of.plan, &r) < 0) return;
    int n = results_of(s, &r, at);
    for (int i = 0; i < n; i++) out[i] = *at[i];
}

/* Outputs that metrics read, or that are predicted. */
static uint32_t wanted_outputs(const aril_model *m, aril__step_kind kind, int n_out)
{
    uint32_t wanted = kind == ARIL__PREDICT_STEP ? (1u << n_out) - 1 : 0;
    for (int i = 0; i < m->n_metrics && kind != ARIL__PREDICT_STEP; i++)
        wanted |= 1u << m->metric[i]->output;
    return wanted;
}

/* Hooks are called for each batch. */
static bool hooked(const aril_module *m)
{
    bool found = m->hooks != NULL;
    for (int i = 0; i < m->n_children && !found; i++) found = hooked(m->child[i].module);
    return found;
}

/* Why a step is not traced at all; NULL: it can be tried. */
static const char *obstacle(const aril_model *m, aril__step_kind kind)
{
    if (kind == ARIL__TRAIN_STEP && aril_optim_needs_closure(m->opt))
        return "the optimizer evaluates the loss several times in a step";
    if (aril__self()->mode.anomaly) return "anomaly detection looks at every operation";
    const char *why = aril__module_eager(m->net);
    if (why != NULL) return why;
    bool hooks = hooked(m->net);
    for (int k = 0; k < m->n_outputs && kind != ARIL__PREDICT_STEP; k++) {
        const aril__output *o = &m->output[k];
        if (o->loss_fn != NULL && o->loss_ctx != NULL)
            return "the loss function has a context, which may change between batches";
        if (o->loss_module == NULL) continue;
        if ((why = aril__module_eager(o->loss_module)) != NULL) return why;
        hooks = hooks || hooked(o->loss_module);
    }
    return hooks ? "a module has hooks, which are called for each batch" : NULL;
}

static compiled_step *step_of(aril_model *m, aril__step_kind kind)
{
    static const char *const names[] = { "train step", "evaluation step", "prediction step" };
    if (m->programs == NULL) m->programs = aril__calloc(sizeof *m->programs);
    if (m->programs == NULL) return NULL;
    compiled_step *s = &m->programs->step[kind];
    if (s->program == NULL) {
        s->m = m;
        s->kind = kind;
        s->program = aril__compiled_new(names[kind], traced_step, s, true);
    }
    return s->program != NULL ? s : NULL;
}

/* The inputs of the program: the parts of the batch, on the model's device. */
static aril_status gather_inputs(compiled_step *s, const aril_batch *b, aril_tensor **in, int *n)
{
    aril_tensor *part[PARTS];
    list_parts(b, part);
    s->of.given = 0;
    *n = 0;
    for (int i = 0; i < PARTS; i++) {
        if (part[i] == NULL) continue;
        s->of.given |= 1u << i;
        aril_tensor *t = aril_to(part[i], s->m->device);
        if (aril_tensor_status(t) < 0) return aril_tensor_status(t);
        in[(*n)++] = t->node != NULL ? aril_detach(t) : t;
    }
    return ARIL_OK;
}

/* Runs the step from its program; false: it has to be run as it is. */
static bool step_compiled(compiled_step *s, const aril_batch *b, aril__results *r,
                          aril_status *status)
{
    aril_tensor *in[PARTS], *out[RESULTS + 1] = { NULL }, **at[RESULTS];
    int n_in;
    if (gather_inputs(s, b, in, &n_in) < 0) return false;
    if (!aril__compiled_run(s->program, (aril_list){ n_in, in }, false, out, status)) return false;
    int n = results_of(s, r, at);
    for (int i = 0; i < n && *status == ARIL_OK; i++) *at[i] = out[i];
    return true;
}

aril_status aril__model_step(aril_model *m, aril__step_kind kind, const aril_batch *b,
                             aril__step_plan plan, aril__results *r)
{
    bool tries = !m->eager && aril__self()->tracer == NULL && aril__compiling();
    compiled_step *s = tries ? step_of(m, kind) : NULL;
    const char *why =
        s != NULL && aril__compiled_reason(s->program) == NULL ? obstacle(m, kind) : NULL;
    if (why != NULL) aril__compiled_refuse(s->program, why);
    /* The first batch creates parameters, in the order in which the module uses them. */
    if (s == NULL || !m->built || aril__compiled_reason(s->program) != NULL)
        return step_now(m, kind, b, &plan, r);
    memset(&s->of, 0, sizeof s->of); /* it is compared as bytes */
    s->of.plan.n_out = plan.n_out;
    s->of.plan.update = plan.update;
    s->of.plan.share = plan.share;
    s->of.plan.class_weight = plan.class_weight;
    s->of.wanted = wanted_outputs(m, kind, plan.n_out);
    aril_status status;
    if (step_compiled(s, b, r, &status)) return status;
    status = step_now(m, kind, b, &plan, r);
    aril__compiled_ran(s->program, status);
    return status;
}

void aril__model_drop_programs(aril_model *m)
{
    for (int k = 0; m->programs != NULL && k < ARIL__STEP_KINDS; k++)
        aril__compiled_free(m->programs->step[k].program);
    free(m->programs);
    m->programs = NULL;
}

void aril__model_try_again(aril_model *m)
{
    for (int k = 0; m->programs != NULL && k < ARIL__STEP_KINDS; k++)
        aril__compiled_reset(m->programs->step[k].program);
}

int aril__model_traces(const aril_model *m, aril__step_kind kind)
{
    return m->programs != NULL ? aril__compiled_traces(m->programs->step[kind].program) : 0;
}

const char *aril_model_eager_reason(const aril_model *m)
{
    if (m == NULL) return NULL;
    if (m->eager) return "the model was compiled with .eager";
    if (!aril__compiling()) return "ARIL_JIT=0 in the environment";
    for (int k = 0; m->programs != NULL && k < ARIL__STEP_KINDS; k++) {
        const char *why = aril__compiled_reason(m->programs->step[k].program);
        if (why != NULL) return why;
    }
    return NULL;
}
