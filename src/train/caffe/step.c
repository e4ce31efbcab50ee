/* One iteration: forward, backward and update, as a compiled program where it can be. */
#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "graph/tracing.h"
#include "nn/module.h"
#include "ops/table/apply.h"
#include "optim/optim.h"
#include "train/caffe/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the optimizer ---- */

static double nonzero(double v)
{
    return v == 0 ? ARIL_ZERO : v;
}

/* The optimizer with Caffe's update rule, for a group with these multipliers. */
static const char *options_of(const aril__caffe_settings *c, double lr_mult, double decay_mult,
                              aril_optim_opts *o)
{
    *o = (aril_optim_opts){ .lr = nonzero(c->base_lr * lr_mult),
                            .weight_decay = nonzero(c->l1 ? 0 : c->weight_decay * decay_mult) };
    if (strcmp(c->type, "Adam") == 0) {
        o->beta1 = nonzero(c->momentum);
        o->beta2 = nonzero(c->momentum2);
        o->eps = nonzero(c->delta);
        o->eps_hat = true;
        return "adam";
    }
    if (strcmp(c->type, "AdaDelta") == 0) {
        o->alpha = nonzero(c->momentum);
        o->eps = nonzero(c->delta);
        return "adadelta";
    }
    if (strcmp(c->type, "AdaGrad") == 0) {
        o->eps = nonzero(c->delta);
        return "adagrad";
    }
    if (strcmp(c->type, "RMSProp") == 0) {
        o->alpha = nonzero(c->rms_decay);
        o->eps = nonzero(c->delta);
        return "rmsprop";
    }
    if (c->momentum == 0) return "sgd";
    o->momentum = c->momentum;
    o->lr_in_momentum = true;
    o->nesterov = strcmp(c->type, "Nesterov") == 0;
    return "sgd";
}

/* The parameters with the same multipliers as blob i, which is the first of them. */
static aril_status add_group(aril_caffe_solver *s, int i, int *group, int n_groups)
{
    aril_caffe_param first = aril_caffe_param_at(s->train.net, i);
    aril_tensor **at = aril__malloc((size_t)s->n_params * sizeof *at);
    if (!at) return aril__fail(ARIL_ERR_MEMORY, "solver: out of memory");
    int n = 0;
    for (int k = i; k < s->n_params; k++) {
        aril_caffe_param p = aril_caffe_param_at(s->train.net, k);
        if (group[k] >= 0 || s->index[k] < 0 || p.lr_mult != first.lr_mult ||
            p.decay_mult != first.decay_mult)
            continue;
        group[k] = n_groups;
        at[n++] = p.tensor;
    }
    aril_optim_opts o;
    aril_named list = { .n = n, .at = at };
    const char *kind = options_of(&s->settings, first.lr_mult, first.decay_mult, &o);
    aril_status status = ARIL_OK;
    s->lr_mult[n_groups] = first.lr_mult;
    if (n_groups > 0) {
        int added = aril_optim_add_group(s->optim, &list, o);
        status = added < 0 ? (aril_status)added : ARIL_OK;
    } else {
        const aril__caffe_settings *c = &s->settings;
        if (c->clip > 0 && !c->l1) o.clip_norm = c->clip / (double)c->iter_size;
        s->optim = aril_optim_new(kind, &list, o);
        if (!s->optim) status = aril__latest_status();
    }
    free(at);
    return status;
}

/* Where each blob is among the parameters of the optimizer: s->index becomes that. */
static void number_params(aril_caffe_solver *s)
{
    for (int k = 0; k < s->n_params; k++) {
        if (s->index[k] < 0) continue;
        aril_tensor *t = aril_caffe_param_at(s->train.net, k).tensor;
        s->index[k] = -1;
        for (int i = 0; s->optim && i < s->optim->n_params; i++)
            if (s->optim->params[i].p == t) s->index[k] = i;
    }
}

aril_status aril__caffe_optimizer(aril_caffe_solver *s)
{
    s->n_params = aril_caffe_params(s->train.net);
    if (s->n_params < 0) return aril__latest_status();
    size_t n = (size_t)s->n_params + 1;
    int *group = aril__malloc(n * sizeof *group), n_groups = 0;
    s->index = aril__calloc(n * sizeof *s->index);
    s->decay = aril__calloc(n * sizeof *s->decay);
    s->lr_mult = aril__calloc(n * sizeof *s->lr_mult);
    aril_status status = group && s->index && s->decay && s->lr_mult
                             ? ARIL_OK
                             : aril__fail(ARIL_ERR_MEMORY, "solver: out of memory");
    for (int i = 0; i < s->n_params && status == ARIL_OK; i++) {
        aril_caffe_param p = aril_caffe_param_at(s->train.net, i);
        group[i] = -1;
        s->decay[i] = s->settings.weight_decay * p.decay_mult;
        /* Statistics are buffers, and what is not learned needs no gradient. */
        bool trains = aril_requires_grad(p.tensor);
        if (trains && p.lr_mult == 0) status = aril_set_requires_grad(p.tensor, false);
        s->index[i] = trains && p.lr_mult != 0 ? 0 : -1;
    }
    for (int i = 0; i < s->n_params && status == ARIL_OK; i++)
        if (s->index[i] >= 0 && group[i] < 0) status = add_group(s, i, group, n_groups++);
    if (status == ARIL_OK) number_params(s);
    free(group);
    return status;
}

void aril__caffe_set_rate(aril_caffe_solver *s)
{
    double rate = aril__caffe_rate(&s->settings, s->iter);
    for (int g = 0; s->optim && g < aril_optim_groups(s->optim); g++)
        aril__number_set(aril_optim_group_lr(s->optim, g), rate * s->lr_mult[g]);
}

void aril__caffe_clear_grads(aril_caffe_solver *s)
{
    for (int k = 0; k < s->n_params; k++)
        aril_zero_grad(aril_caffe_param_at(s->train.net, k).tensor);
}

/* ---- the update ---- */

/* L1: adds decay * sign(w) to the gradients, after they were clipped. */
static aril_status add_signs(aril_caffe_solver *s)
{
    const aril__caffe_settings *c = &s->settings;
    if (c->clip > 0) {
        aril_tensor *norm =
            aril_clip_grad_norm(aril_optim_parameters(s->optim), c->clip / (double)c->iter_size, 2);
        if (aril_tensor_status(norm) != ARIL_OK) return aril_tensor_status(norm);
    }
    aril_status status = ARIL_OK;
    ARIL_NO_GRAD;
    for (int k = 0; k < s->n_params && status == ARIL_OK; k++) {
        aril_tensor *p = aril_caffe_param_at(s->train.net, k).tensor;
        if (s->index[k] < 0 || s->decay[k] == 0 || !aril_has_grad(p)) continue;
        aril_tensor *sign = aril_mul_scalar(aril_sign(p), s->decay[k]);
        status = aril_set_grad(p, aril_add(aril_grad(p), sign));
    }
    return status;
}

/* Zero gradients for the parameters that the loss does not reach: they decay, as in Caffe. */
static aril_status add_zeros(aril_caffe_solver *s)
{
    aril_status status = ARIL_OK;
    ARIL_NO_GRAD;
    for (int k = 0; k < s->n_params && status == ARIL_OK; k++) {
        aril_tensor *p = aril_caffe_param_at(s->train.net, k).tensor;
        if (s->index[k] >= 0 && !aril_has_grad(p)) status = aril_set_grad(p, aril_zeros_like(p));
    }
    return status;
}

/* `clip_gradients: 0` leaves nothing of them; decay remains. */
static aril_status drop_gradients(aril_caffe_solver *s)
{
    aril_status status = ARIL_OK;
    ARIL_NO_GRAD;
    for (int k = 0; k < s->n_params && status == ARIL_OK; k++) {
        aril_tensor *p = aril_caffe_param_at(s->train.net, k).tensor;
        if (s->index[k] >= 0) status = aril_set_grad(p, aril_zeros_like(p));
    }
    return status;
}

static aril_status update(aril_caffe_solver *s)
{
    if (!s->optim) return ARIL_OK;
    aril_status zeros = s->settings.clip == 0 ? drop_gradients(s) : add_zeros(s);
    if (zeros != ARIL_OK) return zeros;
    if (s->settings.l1) {
        aril_status status = add_signs(s);
        if (status != ARIL_OK) return status;
    }
    return aril_step(s->optim);
}

/* ---- what an update changed ---- */

aril_status aril__caffe_keep_before(aril_caffe_solver *s)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    if (!s->before && !(s->before = aril__calloc(((size_t)s->n_params + 1) * sizeof *s->before)))
        return aril__fail(ARIL_ERR_MEMORY, "solver: out of memory");
    aril_status status = ARIL_OK;
    for (int k = 0; k < s->n_params && status == ARIL_OK; k++) {
        aril_tensor *t = aril_detach(aril_caffe_param_at(s->train.net, k).tensor);
        aril_tensor *to = s->before[k] ? aril_copy_(s->before[k], t) : aril_copy(t);
        status = aril_tensor_status(to);
        if (status == ARIL_OK && !s->before[k]) s->before[k] = aril_keep(to);
    }
    return status;
}

aril_tensor *aril__caffe_diff(const aril_caffe_solver *s, int k)
{
    ARIL_NO_GRAD;
    aril_tensor *t = aril_detach(aril_caffe_param_at(s->train.net, k).tensor);
    bool changes = s->before && s->updated && s->index[k] >= 0;
    return changes ? aril_sub(s->before[k], t) : aril_zeros_like(t);
}

/* ---- passes ---- */

aril_tensor *aril__caffe_outputs(aril__caffe_part *p, aril_list in, aril_tensor **outputs)
{
    aril_tensor *all[ARIL__CAFFE_OUTPUTS + 1] = { NULL };
    if (!p->n_written) return aril_caffe_loss(p->net, in, outputs);
    int n = p->n_out + p->n_written;
    aril_status status = aril_forward_all(p->net, in, n + 1, all);
    for (int i = 0; i < n; i++) outputs[i] = all[i < p->n_out ? i : i + 1];
    aril_tensor *loss = status == ARIL_OK ? all[p->n_out] : all[0];
    return loss ? loss : aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu());
}

aril_status aril__caffe_write(aril__caffe_part *p, aril_tensor *const *outputs)
{
    if (!p->n_written) return ARIL_OK;
    aril_status status = aril__caffe_sink_keep(p->sink, outputs + p->n_out);
    return status == ARIL_OK ? aril_caffe_sink_write(p->sink) : status;
}

/* out: the loss, then the outputs; `debug` may be NULL. */
static aril_status train_now(aril__caffe_part *p, bool updates, const aril__caffe_debug *debug,
                             aril_list in, aril_tensor **out)
{
    aril_caffe_solver *s = p->solver;
    out[0] = aril__caffe_outputs(p, in, out + 1);
    aril_status status = aril_tensor_status(out[0]);
    if (status != ARIL_OK) return status;
    int64_t parts = s->settings.iter_size;
    aril_tensor *from = parts > 1 ? aril_mul_scalar(out[0], 1.0 / (double)parts) : out[0];
    if (s->optim && from->node) status = aril_backward(from);
    if (status == ARIL_OK && debug) aril__caffe_debug_backward(debug);
    return status == ARIL_OK && updates ? update(s) : status;
}

/* The same, with what debug_info prints. */
static aril_status train_debug(aril__caffe_part *p, bool updates, aril_list in, aril_tensor **out)
{
    aril_caffe_solver *s = p->solver;
    aril__caffe_debug *debug = aril__caffe_debug_begin(s, p->net);
    if (!debug) return aril__latest_status();
    aril_status status = train_now(p, updates, debug, in, out), end = aril__caffe_debug_end(debug);
    if (status == ARIL_OK) status = end;
    s->updated |= updates && status == ARIL_OK;
    if (status == ARIL_OK && updates) aril__caffe_debug_update(s);
    return status;
}

static void train_traced(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril__caffe_part *p = ctx;
    if (aril__trace_watch(&p->of, sizeof p->of) < 0) return;
    aril_list list = { .n = p->n_in, .at = in };
    train_now(p, p->of.update, NULL, list, out);
}

/* out: the outputs, then the loss, then what is written. */
static aril_status test_now(aril__caffe_part *p, aril_list in, aril_tensor **out)
{
    return aril_forward_all(p->net, in, p->n_out + 1 + p->n_written, out);
}

static void test_traced(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril__caffe_part *p = ctx;
    test_now(p, (aril_list){ .n = p->n_in, .at = in }, out);
}

static bool compiles(aril__caffe_part *p, const char *name, aril_fn *fn)
{
    if (p->solver->opts.eager || aril__self()->tracer || !aril__compiling()) return false;
    if (!p->program) {
        const char *why = aril__module_eager(p->net);
        p->program = aril__compiled_new(name, fn, p, true);
        if (why) aril__compiled_refuse(p->program, why);
    }
    return p->program && !aril__compiled_reason(p->program);
}

aril_status aril__caffe_pass(aril_caffe_solver *s, bool updates, double *loss,
                             aril_tensor **outputs)
{
    aril__caffe_part *p = &s->train;
    aril_tensor *in[ARIL__CAFFE_OUTPUTS] = { NULL }, *out[ARIL__CAFFE_OUTPUTS + 1] = { NULL };
    aril_status status = aril_caffe_feed_next(p->feed, in);
    if (status != ARIL_OK) return status;
    aril_list list = { .n = p->n_in, .at = in };
    p->of.update = updates;
    if (s->debugs) {
        status = train_debug(p, updates, list, out);
    } else if (!compiles(p, "caffe step", train_traced)) {
        status = train_now(p, updates, NULL, list, out);
    } else if (!aril__compiled_run(p->program, list, false, out, &status)) {
        status = train_now(p, updates, NULL, list, out);
        aril__compiled_ran(p->program, status);
    }
    if (status != ARIL_OK) return status;
    *loss = aril_item(out[0]);
    for (int i = 0; i < p->n_out; i++) outputs[i] = out[1 + i];
    status = aril_tensor_status(out[0]);
    return status == ARIL_OK ? aril__caffe_write(p, out + 1) : status;
}

aril_status aril__caffe_forward(aril__caffe_part *p, aril_tensor **outputs, aril_tensor **loss)
{
    ARIL_NO_GRAD;
    aril_tensor *in[ARIL__CAFFE_OUTPUTS] = { NULL }, *out[ARIL__CAFFE_OUTPUTS + 1] = { NULL };
    aril_status status = aril_caffe_feed_next(p->feed, in);
    if (status != ARIL_OK) return status;
    aril_list list = { .n = p->n_in, .at = in };
    if (p->solver->settings.debug) {
        aril__caffe_debug *debug = aril__caffe_debug_begin(p->solver, p->net);
        if (!debug) return aril__latest_status();
        status = test_now(p, list, out);
        aril_status end = aril__caffe_debug_end(debug);
        if (status == ARIL_OK) status = end;
    } else if (!compiles(p, "caffe test", test_traced)) {
        status = test_now(p, list, out);
    } else if (!aril__compiled_run(p->program, list, false, out, &status)) {
        status = test_now(p, list, out);
        aril__compiled_ran(p->program, status);
    }
    for (int i = 0; i < p->n_out && status == ARIL_OK; i++) {
        outputs[i] = out[i];
        status = aril_tensor_status(out[i]);
    }
    *loss = out[p->n_out];
    return status == ARIL_OK ? aril__caffe_sink_keep(p->sink, out + p->n_out + 1) : status;
}
