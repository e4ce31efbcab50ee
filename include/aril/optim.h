/* Optimizers: they update parameters from their gradients.
 *
 *     aril_optim *opt = aril_adam(aril_parameters(model), (aril_adam_opts){ .lr = 1e-3 });
 *     for (...) {
 *         ARIL_SCOPE;
 *         aril_backward(aril_mse_loss(aril_forward(model, x), y));
 *         aril_step(opt);
 *     }
 *     aril_optim_free(opt);
 *
 * All options are in one struct, where 0 selects the default and ARIL_ZERO is an actual 0; an
 * option that an optimizer does not have is an error that lists the ones it has. The learning rate,
 * the step count and the loss scale are one-element tensors: a schedule (aril/schedule.h) writes to
 * them, and nothing has to be rebuilt. They are in host memory; with a loss scale, the step count
 * and the scale are on the device of the parameters after the first step, so that no step waits for
 * the device. */
#ifndef ARIL_OPTIM_H
#define ARIL_OPTIM_H

#include "aril/named.h"

ARIL_C_BEGIN

typedef struct aril_optim aril_optim;

/* Below, "lr 0.001" is a default. g is the gradient, p the parameter, t = 1, 2, ... the step. */
typedef struct aril_optim_opts {
    double lr;           /* learning rate */
    double weight_decay; /* adds weight_decay * p to g; adamw, lion, adafactor, muon, `decoupled`:
                            p -= lr * weight_decay * p instead */
    double momentum;     /* sgd, rmsprop, lars, muon: momentum factor */
    double dampening;    /* sgd: g enters the momentum with weight 1 - dampening */
    double decay;        /* sgd (Keras), adagrad: learning rate decay, lr / (1 + decay * (t - 1)) */
    double beta1;        /* adam and variants, lion: decay rate of the running mean of g */
    double beta2;        /* the same for the running mean of g^2 */
    double eps;          /* added to the denominator for numerical stability */
    double alpha;        /* rmsprop, adadelta: decay rate of the running mean of g^2 */
    double momentum_decay; /* nadam: how fast beta1 reaches its value */
    double beta2_decay;    /* adafactor: g^2 enters its running mean with weight t^-beta2_decay */
    double min_scale;      /* adafactor: steps are relative to the RMS of p, or to this if larger */
    double clip_update;    /* adafactor: limit of the RMS of an update */
    double initial;        /* adagrad: initial value of the sum of g^2 */
    double eta_minus, eta_plus; /* rprop: step factors after a sign change, and without one */
    double step_min, step_max;  /* rprop: limits of the step size */
    double trust;               /* lars: trust coefficient, a step relative to the norm of p */
    bool nesterov;              /* sgd: Nesterov momentum */
    bool amsgrad;               /* adam, adamw: use the largest running mean of g^2 so far */
    bool centered;              /* rmsprop: normalize by the variance of g */
    bool decoupled;             /* adam, nadam, radam: decoupled weight decay, as in AdamW */
    bool maximize;              /* maximize the loss instead of minimizing it */
    bool lr_in_momentum; /* sgd: the momentum holds steps, as in Caffe and Keras, so that a change
                            of the learning rate affects later gradients only */
    bool eps_hat;        /* adam, adamw: eps is added before v is corrected for its bias, as in
                            Caffe and Keras */
    int ns_steps;        /* muon: Newton-Schulz iterations */
    bool no_nesterov;    /* muon: momentum without Nesterov's look ahead */
    bool match_rms;      /* muon: steps of the RMS of AdamW's, to share its learning rate */
    bool master_weights; /* all but lbfgs: parameters in f16 and bf16 have a copy in f32, which is
                            updated and then rounded into the parameter; default off */

    /* lbfgs */
    int max_iter, max_eval;                  /* limits of one step; default 20 and max_iter * 5 /
                                                4 */
    int history;                             /* number of stored update pairs; default 100 */
    double tolerance_grad, tolerance_change; /* default 1e-7, 1e-9 */
    bool strong_wolfe;                       /* strong Wolfe line search; else fixed steps of lr */

    /* For the whole optimizer, not per group. */
    double clip_norm;  /* scales gradients so that their global norm is at most this */
    double clip_value; /* clips each gradient element to this absolute value */
    int accumulate;    /* gradient accumulation: only every accumulate-th aril_step updates, with
                          the mean of the accumulated gradients; 0 or 1: every one */
    double loss_scale; /* see aril_scale_loss; 0: none */
    int loss_scale_growth; /* finite steps until the scale doubles; default 2000, ARIL_ZERO:
                              never */
    bool keep_grads;       /* aril_step does not clear the gradients, for loops that clear them
                              themselves */
} aril_optim_opts;

/* The same type under the name of each optimizer. */
typedef aril_optim_opts aril_sgd_opts, aril_adam_opts, aril_adamw_opts, aril_amsgrad_opts,
    aril_adamax_opts, aril_nadam_opts, aril_radam_opts, aril_adagrad_opts, aril_adadelta_opts,
    aril_rmsprop_opts, aril_rprop_opts, aril_lbfgs_opts, aril_lars_opts, aril_lamb_opts,
    aril_lion_opts, aril_adafactor_opts, aril_muon_opts;

/* ---- creating ---- */

/* Each takes the parameters of one group and holds references to them (names are copied), or NULL:
 * none yet, see aril_optim_set_parameters. Returns NULL, with an error, on failure. Free with
 * aril_optim_free. */

/* lr 0.01.  b = momentum * b + (1 - dampening) * g (b = g at the first step);
 * p -= lr * (nesterov ? g + momentum * b : b). lr_in_momentum: the same with lr * g for g, and
 * without the other lr */
ARIL_API aril_optim *aril_sgd(const aril_named *params, aril_sgd_opts opts);
/* lr 0.001, beta1 0.9, beta2 0.999, eps 1e-8.  m, v: running means of g and g^2;
 * p -= lr * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps). eps_hat: eps / sqrt(1 - beta2^t)
 * for eps */
ARIL_API aril_optim *aril_adam(const aril_named *params, aril_adam_opts opts);
/* The same, weight_decay 0.01, decoupled. */
ARIL_API aril_optim *aril_adamw(const aril_named *params, aril_adamw_opts opts);
/* aril_adam with the option amsgrad. */
ARIL_API aril_optim *aril_amsgrad(const aril_named *params, aril_amsgrad_opts opts);
/* lr 0.002, beta1 0.9, beta2 0.999, eps 1e-8.  u = max(beta2 * u, |g| + eps);
 * p -= lr / (1 - beta1^t) * m / u */
ARIL_API aril_optim *aril_adamax(const aril_named *params, aril_adamax_opts opts);
/* lr 0.002, beta1 0.9, beta2 0.999, eps 1e-8, momentum_decay 0.004.  Adam with Nesterov's
 * momentum. */
ARIL_API aril_optim *aril_nadam(const aril_named *params, aril_nadam_opts opts);
/* lr 0.001, beta1 0.9, beta2 0.999, eps 1e-8. Rectified Adam: the first steps, while the variance
 * of v is large, use m only. */
ARIL_API aril_optim *aril_radam(const aril_named *params, aril_radam_opts opts);
/* lr 0.01, eps 1e-10.  s += g^2; p -= lr / (1 + decay * (t - 1)) * g / (sqrt(s) + eps) */
ARIL_API aril_optim *aril_adagrad(const aril_named *params, aril_adagrad_opts opts);
/* lr 1, alpha 0.9, eps 1e-6.  v: running mean of g^2; d = sqrt(u + eps) / sqrt(v + eps) * g;
 * u: running mean of d^2; p -= lr * d */
ARIL_API aril_optim *aril_adadelta(const aril_named *params, aril_adadelta_opts opts);
/* lr 0.01, alpha 0.99, eps 1e-8. v: running mean of g^2, minus the squared running mean of g if
 * `centered`; b = momentum * b + g / (sqrt(v) + eps); p -= lr * b */
ARIL_API aril_optim *aril_rmsprop(const aril_named *params, aril_rmsprop_opts opts);
/* lr 0.01 (the initial step size), eta_minus 0.5, eta_plus 1.2, step_min 1e-6, step_max 50. Each
 * element has its own step size, which grows while g keeps its sign. For full-batch training. */
ARIL_API aril_optim *aril_rprop(const aril_named *params, aril_rprop_opts opts);
/* lr 1. Limited-memory BFGS, a quasi-Newton method. Requires aril_step_closure; for full-batch
 * training. */
ARIL_API aril_optim *aril_lbfgs(const aril_named *params, aril_lbfgs_opts opts);
/* lr 0.1, momentum 0.9, trust 0.001. SGD with the learning rate of each parameter multiplied by
 * trust * |p| / (|g| + weight_decay * |p|) */
ARIL_API aril_optim *aril_lars(const aril_named *params, aril_lars_opts opts);
/* lr 0.001, beta1 0.9, beta2 0.999, eps 1e-6.  u: Adam's direction plus weight_decay * p;
 * p -= lr * |p| / |u| * u */
ARIL_API aril_optim *aril_lamb(const aril_named *params, aril_lamb_opts opts);
/* lr 0.0001, beta1 0.9, beta2 0.99.  p -= lr * sign(beta1 * m + (1 - beta1) * g);
 * m = beta2 * m + (1 - beta2) * g */
ARIL_API aril_optim *aril_lion(const aril_named *params, aril_lion_opts opts);
/* lr 0.01, beta2_decay 0.8, min_scale 1e-3, clip_update 1, eps: the machine epsilon of the
 * parameter, or of its master weights.
 * Adafactor: v, the running mean of g^2 with weight t^-beta2_decay, is kept as its means over rows
 * and columns for matrices, [...,n,1] and [...,1,m]; u = g / max(sqrt(v), eps);
 * p -= min(lr, 1 / sqrt(t)) * max(min_scale, RMS(p)) * u / max(1, RMS(u) / clip_update). Weight
 * decay is decoupled. */
ARIL_API aril_optim *aril_adafactor(const aril_named *params, aril_adafactor_opts opts);
/* lr 0.001, weight_decay 0.1 (decoupled), momentum 0.95, eps 1e-7, ns_steps 5. Muon: m is a running
 * mean of g; its orthogonal factor, approximated by Newton-Schulz iterations in the dtype of the
 * state, is the direction: p -= lr * sqrt(max(1, rows / columns)) * orthogonal(m), or with
 * match_rms lr * 0.2 * sqrt(max(rows, columns)). For matrices only: give other parameters to
 * another optimizer. */
ARIL_API aril_optim *aril_muon(const aril_named *params, aril_muon_opts opts);

/* Creates one of the above by name: "sgd", "adam", ... */
ARIL_API aril_optim *aril_optim_new(const char *name, const aril_named *params,
                                    aril_optim_opts opts);
/* All names, in alphabetical order, NULL-terminated. */
ARIL_API const char *const *aril_optim_names(void);
/* The options of the optimizer of that name, as in aril_optim_opts, NULL-terminated. NULL, with an
 * error, for an unknown name. */
ARIL_API const char *const *aril_optim_option_names(const char *name);
/* The defaults of those options. All 0, with an error, for an unknown name. */
ARIL_API aril_optim_opts aril_optim_defaults(const char *name);

/* One line about the optimizer of that name. NULL, with an error, for an unknown name. */
ARIL_API const char *aril_optim_doc(const char *name);

/* Frees an optimizer and releases its references to the parameters, which keep their values. NULL
 * is allowed. */
ARIL_API void aril_optim_free(aril_optim *opt);

/* Sets the parameters of an optimizer that was created without any. */
ARIL_API aril_status aril_optim_set_parameters(aril_optim *opt, const aril_named *params);

/* Adds a parameter group with its own options; options that are 0 are those of the first group.
 * Returns the index of the group (the first is 0), or a negative status. A parameter can be in only
 * one group. */
ARIL_API int aril_optim_add_group(aril_optim *opt, const aril_named *params, aril_optim_opts opts);

/* ---- stepping ---- */

/* Updates every parameter that has a gradient and clears the gradients. Several aril_backward calls
 * before a step sum their gradients. It is an error if no parameter has a gradient. A step that
 * fails for lack of memory changes nothing and can be repeated. On a device without kernels for
 * updates, which the host then computes, it may have updated some parameters, which its repetition
 * skips, if it needed several calls (parameters with different options, dtypes or devices). Not
 * recorded for gradients. */
ARIL_API aril_status aril_step(aril_optim *opt);

/* Calls fn, which computes the loss, calls aril_backward and returns the loss, as often as the
 * optimizer needs (once, except for lbfgs), and steps. Gradients are cleared before each call.
 * Returns the first loss, or a poisoned tensor on failure. Random numbers that fn draws differ from
 * call to call. */
typedef aril_tensor *aril_closure(void *ctx);
ARIL_API aril_tensor *aril_step_closure(aril_optim *opt, aril_closure *fn, void *ctx);

/* Whether the optimizer computes the loss several times in a step, so that it needs
 * aril_step_closure instead of aril_step (lbfgs). */
ARIL_API bool aril_optim_needs_closure(const aril_optim *opt);

/* Clears the gradients of all parameters. */
ARIL_API void aril_optim_zero_grad(aril_optim *opt);

/* ---- queries ---- */

/* The name, such as "adam"; the number of groups; the parameters of all groups, borrowed until
 * groups change. */
ARIL_API const char *aril_optim_name(const aril_optim *opt);
ARIL_API int aril_optim_groups(const aril_optim *opt);
ARIL_API const aril_named *aril_optim_parameters(const aril_optim *opt);

/* The learning rate, [] f64, of the first group or of another: borrowed, valid as long as opt. */
ARIL_API aril_tensor *aril_optim_lr(aril_optim *opt);
ARIL_API aril_tensor *aril_optim_group_lr(aril_optim *opt, int group);
/* Sets the learning rate of the first group and scales those of the others in proportion; a
 * schedule continues from there. In a compiled function: at the end of each run. */
ARIL_API aril_status aril_optim_set_lr(aril_optim *opt, double lr);
/* Steps so far, [] i64; borrowed. Skipped steps do not count. */
ARIL_API aril_tensor *aril_optim_steps(aril_optim *opt);

/* ---- state ---- */

/* Everything that later steps depend on: "WEIGHT.m" and the like for each parameter, "optim.lr",
 * "optim.step", schedules, and accumulated gradients. Tensors and names belong to opt and are valid
 * until its next step, schedule or change. NULL, with an error, on failure. */
ARIL_API const aril_named *aril_optim_state(aril_optim *opt);
/* Loads such a state into an optimizer created the same way. Missing, mismatched or unknown entries
 * are an error, and then nothing changes. */
ARIL_API aril_status aril_optim_load_state(aril_optim *opt, const aril_named *from);

/* ---- gradients ---- */

/* Scales all gradients in place so that their norm is at most max_norm (norm order p: 0 means 2;
 * INFINITY: the maximum norm). Returns the norm before clipping, []. Parameters without a gradient
 * are skipped. */
ARIL_API aril_tensor *aril_clip_grad_norm(const aril_named *params, double max_norm, double p);
/* Clamps every element of the gradients to -most .. most, in place. */
ARIL_API aril_status aril_clip_grad_value(const aril_named *params, double max);

/* Loss scaling: the loss times the optimizer's scale, for backward when gradients would underflow
 * (f16). aril_step divides the gradients by it; if a gradient is infinite or NaN it skips the step
 * (the step count stays) and halves the scale, and after loss_scale_growth finite steps it doubles
 * the scale. Without loss_scale, returns the loss itself. */
ARIL_API aril_tensor *aril_scale_loss(aril_optim *opt, aril_tensor *loss);
/* The scale, [] f32; borrowed. NULL if there is none. */
ARIL_API aril_tensor *aril_optim_loss_scale(aril_optim *opt);

/* ---- weight averaging ---- */

typedef struct aril_average aril_average;

typedef struct aril_average_opts {
    double decay; /* decay rate of the exponential moving average (EMA); default 0.999 */
    bool equal;   /* equal weights for all updates: stochastic weight averaging (SWA) */
} aril_average_opts;

/* An average of parameters over updates, starting with the first aril_average_update.
 * aril_average_free frees it; if the averages are swapped in, the parameters keep them. */
ARIL_API aril_average *aril_average_new(const aril_named *params, aril_average_opts opts);
ARIL_API void aril_average_free(aril_average *a);
/* Adds the current values to the average. An error while the averages are swapped in. */
ARIL_API aril_status aril_average_update(aril_average *a);
/* Swaps the values of the parameters with their averages; a second call swaps them back. A swap
 * that fails for lack of memory changes nothing; it needs as much as the parameters have. */
ARIL_API aril_status aril_average_swap(aril_average *a);
/* As for optimizers. */
ARIL_API const aril_named *aril_average_state(aril_average *a);
ARIL_API aril_status aril_average_load_state(aril_average *a, const aril_named *from);

ARIL_C_END

#endif
