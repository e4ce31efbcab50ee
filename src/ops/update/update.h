/* In-place parameter updates: the rules of all optimizers, each written once. */
#ifndef ARIL_OPS_UPDATE_H
#define ARIL_OPS_UPDATE_H

#include "ops/table/op.h"

/* Optimizer rules, in the order of update.inc. */
typedef enum aril__rule {
    ARIL__RULE_SGD,
    ARIL__RULE_ADAM,
    ARIL__RULE_ADAMAX,
    ARIL__RULE_NADAM,
    ARIL__RULE_RADAM,
    ARIL__RULE_ADAGRAD,
    ARIL__RULE_ADADELTA,
    ARIL__RULE_RMSPROP,
    ARIL__RULE_RPROP,
    ARIL__RULE_LARS,
    ARIL__RULE_LAMB,
    ARIL__RULE_LION,
    ARIL__RULE_AVERAGE, /* moves p towards `grad`: weight averaging */
    ARIL__RULES,
} aril__rule;

enum { ARIL__UPDATE_SLOTS = 3 };

/* The state that a rule keeps for each parameter. */
typedef struct aril__rule_row {
    const char *name;
    const char *slot[ARIL__UPDATE_SLOTS]; /* names of the state; NULL: no more */
    unsigned optional;                    /* 1 << i: slot i may be absent */
    unsigned single;                      /* 1 << i: slot i is one f64 for any parameter dtype */
    bool norms;                           /* needs update_norms first */
} aril__rule_row;
extern const aril__rule_row aril__rules[ARIL__RULES];

/* in: p, grad, lr, step, factor?, norms?, slots; updates p and the slots.
 *
 * lr, step (i64, incremented before the update) and factor are scalars. The gradient is multiplied
 * by factor; a negative factor skips the update. norms: the result of update_norms. */
#define UPDATE_ATTRS(A)                        \
    A(update, I64, 1, rule, 0, NULL)           \
    A(update, I64, 1, missed, 0, NULL)         \
    A(update, I64, 1, nesterov, 0, NULL)       \
    A(update, I64, 1, decoupled, 0, NULL)      \
    A(update, I64, 1, maximize, 0, NULL)       \
    A(update, F64, 1, clip_value, 0, NULL)     \
    A(update, F64, 1, weight_decay, 0, NULL)   \
    A(update, F64, 1, momentum, 0, NULL)       \
    A(update, F64, 1, dampening, 0, NULL)      \
    A(update, F64, 1, decay, 0, NULL)          \
    A(update, F64, 1, beta1, 0, NULL)          \
    A(update, F64, 1, beta2, 0, NULL)          \
    A(update, F64, 1, eps, 0, NULL)            \
    A(update, F64, 1, alpha, 0, NULL)          \
    A(update, F64, 1, momentum_decay, 0, NULL) \
    A(update, F64, 1, eta_minus, 0, NULL)      \
    A(update, F64, 1, eta_plus, 0, NULL)       \
    A(update, F64, 1, step_min, 0, NULL)       \
    A(update, F64, 1, step_max, 0, NULL)       \
    A(update, F64, 1, trust, 0, NULL)
ATTRS(update, UPDATE_ATTRS)

/* One parameter's update in a step. */
typedef struct aril__update {
    aril_tensor *p, *grad, *lr, *step, *factor;
    aril_tensor *slot[ARIL__UPDATE_SLOTS];
    const struct update_attrs *attrs;
} aril__update;

/* Performs n updates: in one pass over all memory if possible (CPU kernels, packed f32 and
 * f64), else op by op. Runs in the caller's scope. room: a buffer of aril__update_buffer(n) bytes,
 * needed only during the call; with it, the single pass cannot fail. */
size_t aril__update_buffer(int n);
aril_status aril__update_all(int n, const aril__update *u, void *room);

#endif
