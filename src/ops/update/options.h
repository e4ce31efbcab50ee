/* Options of optimizers, in the order in which they are checked: fields of aril_optim_opts. */
#ifndef ARIL_OPS_UPDATE_OPTIONS_H
#define ARIL_OPS_UPDATE_OPTIONS_H

/* RULE(name, type, scope, below): rules read it; it is an attribute of the op `update` too.
 * OTHER(name, type, scope, below): only the optimizer itself reads it.
 *
 * type: NUMBER (double), COUNT (int) or FLAG (bool). scope: GROUP if each parameter group may have
 * its own value, WHOLE if it belongs to the optimizer. A number is from 0 to below `below`; ANY:
 * not checked by this table. */
/* clang-format off */
#define OPTIM_OPTIONS(RULE, OTHER)                       \
    OTHER(lr, NUMBER, GROUP, INFINITY)                   \
    RULE(weight_decay, NUMBER, GROUP, INFINITY)          \
    RULE(momentum, NUMBER, GROUP, INFINITY)              \
    RULE(dampening, NUMBER, GROUP, INFINITY)             \
    RULE(decay, NUMBER, GROUP, INFINITY)                 \
    RULE(beta1, NUMBER, GROUP, 1)                        \
    RULE(beta2, NUMBER, GROUP, 1)                        \
    RULE(eps, NUMBER, GROUP, INFINITY)                   \
    RULE(alpha, NUMBER, GROUP, 1)                        \
    RULE(momentum_decay, NUMBER, GROUP, INFINITY)        \
    OTHER(beta2_decay, NUMBER, GROUP, INFINITY)          \
    OTHER(min_scale, NUMBER, GROUP, INFINITY)            \
    OTHER(clip_update, NUMBER, GROUP, INFINITY)          \
    OTHER(ns_steps, COUNT, GROUP, 100)                   \
    OTHER(no_nesterov, FLAG, GROUP, ANY)                 \
    OTHER(match_rms, FLAG, GROUP, ANY)                   \
    RULE(initial, NUMBER, GROUP, INFINITY)               \
    RULE(eta_minus, NUMBER, GROUP, 1)                    \
    RULE(eta_plus, NUMBER, GROUP, ANY)                   \
    RULE(step_min, NUMBER, GROUP, INFINITY)              \
    RULE(step_max, NUMBER, GROUP, ANY)                   \
    RULE(trust, NUMBER, GROUP, INFINITY)                 \
    RULE(nesterov, FLAG, GROUP, ANY)                     \
    RULE(amsgrad, FLAG, GROUP, ANY)                      \
    RULE(centered, FLAG, GROUP, ANY)                     \
    RULE(decoupled, FLAG, GROUP, ANY)                    \
    RULE(maximize, FLAG, GROUP, ANY)                     \
    RULE(lr_in_momentum, FLAG, GROUP, ANY)               \
    RULE(eps_hat, FLAG, GROUP, ANY)                      \
    OTHER(max_iter, COUNT, WHOLE, INFINITY)              \
    OTHER(max_eval, COUNT, WHOLE, INFINITY)              \
    OTHER(history, COUNT, WHOLE, INFINITY)               \
    OTHER(tolerance_grad, NUMBER, WHOLE, INFINITY)       \
    OTHER(tolerance_change, NUMBER, WHOLE, INFINITY)     \
    OTHER(strong_wolfe, FLAG, WHOLE, ANY)                \
    OTHER(clip_norm, NUMBER, WHOLE, INFINITY)            \
    RULE(clip_value, NUMBER, WHOLE, INFINITY)            \
    OTHER(accumulate, COUNT, WHOLE, INFINITY)            \
    OTHER(loss_scale, NUMBER, WHOLE, INFINITY)           \
    OTHER(loss_scale_growth, COUNT, WHOLE, INFINITY)     \
    OTHER(master_weights, FLAG, GROUP, ANY)              \
    OTHER(keep_grads, FLAG, WHOLE, ANY)
/* clang-format on */

#endif
