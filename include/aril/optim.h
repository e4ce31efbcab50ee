/* Optimizers: they change parameters by their gradients.
 *
 *     aril_optim *opt = aril_adam(aril_parameters(model), (aril_adam_opts){ .lr = 1e-3 });
 *     for (...) {
 *         ARIL_SCOPE;
 *         aril_backward(aril_mse_loss(aril_forward(model, x), y));
 *         aril_step(opt);
 *     }
 *     aril_optim_free(opt);
 *
 * All options are in one struct, where 0 stands for the default and ARIL_ZERO for a real 0; an
 * option that an optimizer does not have is an error that names those it has. The learning rate,
 * the number of steps and the scale of the loss are tensors of one element, so that they are values
 * like others: a schedule (aril/schedule.h) writes to them and nothing has to be made anew. */
#ifndef ARIL_OPTIM_H
#define ARIL_OPTIM_H

#include "aril/named.h"

ARIL_C_BEGIN

typedef struct aril_optim aril_optim;

/* Below, "lr 0.001" is a default. g is the gradient, p the parameter, t = 1, 2, ... the step. */
typedef struct aril_optim_opts {
    double lr; /* learning rate */
    double
        weight_decay; /* this much of p is added to g; adamw, lion, and with `decoupled`: p shrinks
                            by lr * weight_decay instead */
    double momentum;  /* sgd, rmsprop, lars: share of the last direction that is kept */
    double dampening; /* sgd: g enters the direction with weight 1 - dampening */
    double decay;     /* sgd (Keras), adagrad: the rate is lr / (1 + decay * (t - 1)) */
    double beta1;     /* adam and its kind, lion: share of the mean of g that is kept */
    double beta2;     /* the same of the mean of g^2 */
    double eps;       /* keeps divisors from 0 */
    double alpha;     /* rmsprop, adadelta: share of the mean of g^2 that is kept */
    double momentum_decay; /* nadam: how fast beta1 reaches its value */
    double initial;        /* adagrad: the sum of g^2 at the start */
    double eta_minus,
        eta_plus; /* rprop: factors of a step after a change of sign, and without one */
    double step_min, step_max; /* rprop: limits of a step */
    double trust;              /* lars: a step is this share of the norm of p */
    bool nesterov;             /* sgd: look ahead along the new direction */
    bool amsgrad;              /* adam, adamw: by the largest mean of g^2 so far */
    bool centered;             /* rmsprop: by the variance of g */
    bool decoupled;            /* adam, nadam, radam: weight decay apart from the gradient */
    bool maximize;             /* climb */

    /* lbfgs */
    int max_iter, max_eval;                  /* 20 and max_iter * 5 / 4: in one step */
    int history;                             /* 100: pairs that are remembered */
    double tolerance_grad, tolerance_change; /* 1e-7, 1e-9 */
    bool strong_wolfe;                       /* a line search; else steps of lr */

    /* Of the optimizer as a whole, not of a group. */
    double clip_norm;  /* gradients are scaled so that the norm of all of them is at most this */
    double clip_value; /* no element of a gradient is larger than this in size */
    int accumulate;    /* a step is made at each accumulate-th aril_step, by the mean of the
                          gradients that gathered; 0 or 1: at each */
    double loss_scale; /* see aril_scale_loss; 0: none */
    int loss_scale_growth; /* steps without an infinity until the scale doubles; 0: 2000,
                              ARIL_ZERO: it stays as it is */
    bool keep_grads;       /* aril_step leaves the gradients, for loops that drop them themselves */
} aril_optim_opts;

/* One type for all, under the names of each. */
typedef aril_optim_opts aril_sgd_opts, aril_adam_opts, aril_adamw_opts, aril_adamax_opts,
    aril_nadam_opts, aril_radam_opts, aril_adagrad_opts, aril_adadelta_opts, aril_rmsprop_opts,
    aril_rprop_opts, aril_lbfgs_opts, aril_lars_opts, aril_lamb_opts, aril_lion_opts;

/* ---- making ---- */

/* Each takes the parameters of one group, which it keeps (names are copied), or NULL: none yet, see
 * aril_optim_set_parameters. NULL, with an error, on failure. aril_optim_free ends them. */

/* lr 0.01.  b = momentum * b + (1 - dampening) * g (b = g at the first step);
 * p -= lr * (nesterov ? g + momentum * b : b) */
ARIL_API aril_optim *aril_sgd(const aril_named *params, aril_sgd_opts opts);
/* lr 0.001, beta1 0.9, beta2 0.999, eps 1e-8.  m, v: running means of g and g^2;
 * p -= lr * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) */
ARIL_API aril_optim *aril_adam(const aril_named *params, aril_adam_opts opts);
/* The same, weight_decay 0.01, decoupled. */
ARIL_API aril_optim *aril_adamw(const aril_named *params, aril_adamw_opts opts);
/* lr 0.002, beta1 0.9, beta2 0.999, eps 1e-8.  u = max(beta2 * u, |g| + eps);
 * p -= lr / (1 - beta1^t) * m / u */
ARIL_API aril_optim *aril_adamax(const aril_named *params, aril_adamax_opts opts);
/* lr 0.002, beta1 0.9, beta2 0.999, eps 1e-8, momentum_decay 0.004.  Adam with Nesterov's
 * momentum. */
ARIL_API aril_optim *aril_nadam(const aril_named *params, aril_nadam_opts opts);
/* lr 0.001, beta1 0.9, beta2 0.999, eps 1e-8.  Adam whose first steps, while the variance of v is
 * large, go along m alone. */
ARIL_API aril_optim *aril_radam(const aril_named *params, aril_radam_opts opts);
/* lr 0.01, eps 1e-10.  s += g^2; p -= lr / (1 + decay * (t - 1)) * g / (sqrt(s) + eps) */
ARIL_API aril_optim *aril_adagrad(const aril_named *params, aril_adagrad_opts opts);
/* lr 1, alpha 0.9, eps 1e-6.  v: running mean of g^2; d = sqrt(u + eps) / sqrt(v + eps) * g;
 * u: running mean of d^2; p -= lr * d */
ARIL_API aril_optim *aril_adadelta(const aril_named *params, aril_adadelta_opts opts);
/* lr 0.01, alpha 0.99, eps 1e-8.  v: running mean of g^2, less that of g squared where `centered`;
 * b = momentum * b + g / (sqrt(v) + eps); p -= lr * b */
ARIL_API aril_optim *aril_rmsprop(const aril_named *params, aril_rmsprop_opts opts);
/* lr 0.01 (the first steps), eta_minus 0.5, eta_plus 1.2, step_min 1e-6, step_max 50.  Each element
 * has a step of its own that grows while g keeps its sign. For whole batches. */
ARIL_API aril_optim *aril_rprop(const aril_named *params, aril_rprop_opts opts);
/* lr 1.  Newton's method with the curvature seen in the last steps. Wants aril_step_closure, and
 * whole batches. */
ARIL_API aril_optim *aril_lbfgs(const aril_named *params, aril_lbfgs_opts opts);
/* lr 0.1, momentum 0.9, trust 0.001.  SGD with the rate of each parameter times
 * trust * |p| / (|g| + weight_decay * |p|) */
ARIL_API aril_optim *aril_lars(const aril_named *params, aril_lars_opts opts);
/* lr 0.001, beta1 0.9, beta2 0.999, eps 1e-6.  u: Adam's direction plus weight_decay * p;
 * p -= lr * |p| / |u| * u */
ARIL_API aril_optim *aril_lamb(const aril_named *params, aril_lamb_opts opts);
/* lr 0.0001, beta1 0.9, beta2 0.99.  p -= lr * sign(beta1 * m + (1 - beta1) * g);
 * m = beta2 * m + (1 - beta2) * g */
ARIL_API aril_optim *aril_lion(const aril_named *params, aril_lion_opts opts);

/* One of the above by its name: "sgd", "adam", ..., or "amsgrad" for adam with that option. */
ARIL_API aril_optim *aril_optim_new(const char *name, const aril_named *params,
                                    aril_optim_opts opts);
/* All names, in alphabetical order, with NULL at the end. */
ARIL_API const char *const *aril_optim_names(void);
/* The options of the optimizer of that name, as in aril_optim_opts; NULL at the end. NULL, with an
 * error, for a name that is none. */
ARIL_API const char *const *aril_optim_option_names(const char *name);

/* NULL is allowed. Parameters lose the optimizer's hold, and keep their values. */
ARIL_API void aril_optim_free(aril_optim *opt);

/* Gives the parameters to an optimizer that was made without any. */
ARIL_API aril_status aril_optim_set_parameters(aril_optim *opt, const aril_named *params);

/* Adds parameters with options of their own; what is 0 there is as in the first group. Returns the
 * number of the group (the first is 0), or a negative status. A parameter can be in one group
 * only. */
ARIL_API int aril_optim_add_group(aril_optim *opt, const aril_named *params, aril_optim_opts opts);

/* ---- stepping ---- */

/* Updates every parameter that has a gradient and drops the gradients. backward called several
 * times before it sums the gradients. It is an error when none has a gradient. Not recorded. */
ARIL_API aril_status aril_step(aril_optim *opt);

/* Calls fn, which computes the loss, walks back from it and returns it, as often as the optimizer
 * wants (once, but for lbfgs), and steps. Gradients are dropped before each call. Returns the first
 * loss, or poison. Random numbers that fn draws differ from call to call. */
typedef aril_tensor *aril_closure(void *ctx);
ARIL_API aril_tensor *aril_step_closure(aril_optim *opt, aril_closure *fn, void *ctx);

/* Drops the gradients of all parameters. */
ARIL_API void aril_optim_zero_grad(aril_optim *opt);

/* ---- looking in ---- */

/* "adam"; the number of groups; the parameters of all groups, borrowed until groups change. */
ARIL_API const char *aril_optim_name(const aril_optim *opt);
ARIL_API int aril_optim_groups(const aril_optim *opt);
ARIL_API const aril_named *aril_optim_parameters(const aril_optim *opt);

/* The learning rate, [] f64, of the first group or of another: borrowed, lives as long as opt. */
ARIL_API aril_tensor *aril_optim_lr(aril_optim *opt);
ARIL_API aril_tensor *aril_optim_group_lr(aril_optim *opt, int group);
/* Sets the rate of the first group, and those of the others in proportion; a schedule goes on from
 * there. */
ARIL_API aril_status aril_optim_set_lr(aril_optim *opt, double lr);
/* Steps so far, [] i64; borrowed. */
ARIL_API aril_tensor *aril_optim_steps(aril_optim *opt);

/* ---- state ---- */

/* Everything that a later step depends on: "WEIGHT.m" and the like for each parameter, "optim.lr",
 * "optim.step", schedules, and gradients that wait to be accumulated. Tensors and names belong to
 * opt, until its next step, schedule or change. NULL, with an error, on failure. */
ARIL_API const aril_named *aril_optim_state(aril_optim *opt);
/* Copies such a state into an optimizer made the same way. What is missing, does not fit or is not
 * known is an error, and then nothing is changed. */
ARIL_API aril_status aril_optim_load_state(aril_optim *opt, const aril_named *from);

/* ---- gradients ---- */

/* Scales all gradients in place so that their norm is at most max_norm (p: 0 means 2; INFINITY: by
 * the largest element). Returns the norm before, []. Parameters without a gradient do not count. */
ARIL_API aril_tensor *aril_clip_grad_norm(const aril_named *params, double max_norm, double p);
/* Cuts every element of the gradients to -most .. most, in place. */
ARIL_API aril_status aril_clip_grad_value(const aril_named *params, double most);

/* The loss times the optimizer's scale, to walk back from where gradients are small for their dtype
 * (f16). aril_step divides by it; where a gradient is infinite or NaN it makes no step (the
 * count stays) and halves the scale, and after loss_scale_growth good steps it doubles it. Without
 * loss_scale the loss itself. */
ARIL_API aril_tensor *aril_scale_loss(aril_optim *opt, aril_tensor *loss);
/* The scale, [] f32; borrowed. NULL where there is none. */
ARIL_API aril_tensor *aril_optim_loss_scale(aril_optim *opt);

/* ---- averages of weights ---- */

typedef struct aril_average aril_average;

typedef struct aril_average_opts {
    double
        decay; /* share of the average that is kept at each update: 0.999; an exponential average */
    bool equal; /* all updates count the same (stochastic weight averaging) */
} aril_average_opts;

/* An average of parameters over their updates, beginning with the first one. aril_average_free ends
 * it; after a swap the parameters stay as they are. */
ARIL_API aril_average *aril_average_new(const aril_named *params, aril_average_opts opts);
ARIL_API void aril_average_free(aril_average *a);
/* Takes the present values in. An error while the averages are swapped in. */
ARIL_API aril_status aril_average_update(aril_average *a);
/* Exchanges the values of the parameters and of their averages; again: back. */
ARIL_API aril_status aril_average_swap(aril_average *a);
/* As for optimizers. */
ARIL_API const aril_named *aril_average_state(aril_average *a);
ARIL_API aril_status aril_average_load_state(aril_average *a, const aril_named *from);

ARIL_C_END

#endif
