/* Internals of optimizers. */
#ifndef ARIL_OPTIM_OPTIM_H
#define ARIL_OPTIM_OPTIM_H

#include "aril/optim.h"
#include "aril/schedule.h"
#include "core/lifetime.h"
#include "ops/update/update.h"

/* ---- kinds ---- */

typedef struct aril__optim_kind {
    const char *name, *doc;
    int rule;                          /* or ARIL__NO_RULE: */
    const struct aril__method *method; /* how it steps */
    unsigned facts;                    /* NEEDS_CLOSURE */
    const char *const *options;        /* names, NULL-terminated */
    aril_optim_opts defaults;          /* defaults; other options default to 0 */
} aril__optim_kind;

const aril__optim_kind *aril__optim_kind_find(const char *name);
aril_optim_opts aril__optim_kind_defaults(const aril__optim_kind *kind);

/* Fills in unset options from `usual`; an error when one is invalid. `what` names the call. */
aril_status aril__optim_resolve(const aril__optim_kind *kind, const char *what,
                                const aril_optim_opts *given, const aril_optim_opts *defaults,
                                bool group, aril_optim_opts *to);

/* The attributes of the op `update` for these options. */
void aril__optim_attrs(const aril__optim_kind *kind, const aril_optim_opts *o,
                       struct update_attrs *a);

/* The text "; did you mean NAME?" when one of the names is close, otherwise (and for "") the list
 * of names. */
const char *aril__nearest(const char *name, const char *const *names, char *text, size_t size);

/* ---- an optimizer ---- */

typedef struct aril__optim_group {
    aril_optim_opts opts;
    struct update_attrs attrs;
    aril_tensor *lr;       /* [] f64, on the host */
    double base;           /* initial lr of schedules */
    aril_tensor *momentum; /* [] f64, on the host: in place of the option momentum or beta1, */
    bool moves_momentum;   /* when a schedule moves it */
} aril__optim_group;

typedef struct aril__optim_param {
    aril_tensor *p;
    char *name;
    int group;
    int64_t missed;            /* steps without a gradient: the parameter counts its own steps */
    aril_tensor *missed_there; /* with a loss scale, further ones, [] i64, beside opt->step: only
                                  the device knows which steps were skipped; NULL: none */
    bool ahead;                /* updated by a step that then failed: its repetition skips it */
    struct update_attrs own;   /* the group's, plus `missed` */
    aril_tensor *slot[ARIL__UPDATE_SLOTS];
} aril__optim_param;

/* Tensors with the names that users see. */
typedef struct aril__names {
    aril_named list;
    int n, cap;
    aril_tensor **at;
    char **name;
} aril__names;

/* Adds t, holding a reference, under a printf-formatted name. */
aril_status aril__names_add(aril__names *l, aril_tensor *t, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Drops all but the first n. */
void aril__names_cut(aril__names *l, int n);
void aril__names_clear(aril__names *l);
void aril__names_free(aril__names *l);
const aril_named *aril__names_list(aril__names *l);

/* Hash table of a list of tensors by name, so that looking up n of them takes time proportional to
 * n. It refers to the list. */
typedef struct aril__name_lookup {
    const aril_named *list;
    int *slot;    /* 1 + the index of a tensor; 0: free */
    size_t slots; /* a power of two */
} aril__name_lookup;

/* `what` names the caller in the error when memory runs out. */
aril_status aril__names_index(aril__name_lookup *l, const char *what, const aril_named *list);
void aril__names_index_free(aril__name_lookup *l);
/* The index of the first tensor with that name, or -1. */
int aril__names_index_find(const aril__name_lookup *l, const char *name);
/* The first tensor with a printf-formatted name, or NULL. */
aril_tensor *aril__named_find(const aril__name_lookup *from, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Copies its values to `copy`; an error when it is missing or has another dtype or size. */
aril_status aril__named_numbers(const char *what, const aril__name_lookup *from, const char *name,
                                aril_dtype dtype, int64_t n, void *copy);

/* Reads counts from 0 to 2^53: doubles do not hold larger integers exactly, and no run reaches
 * them. */
aril_status aril__named_counts(const char *what, const aril__name_lookup *from, const char *name,
                               int64_t n, int64_t *copy);
/* Checks that a value of the tensor with that name is a valid count. */
aril_status aril__check_count(const char *what, const char *name, double value);

/* Hash table of the parameters by tensor and by name. */
typedef struct aril__param_lookup {
    int *slot;
    size_t slots; /* a power of two */
} aril__param_lookup;

typedef struct aril__lbfgs aril__lbfgs;

struct aril_optim {
    aril__lifetime_slot life; /* for programs that step it */
    const aril__optim_kind *kind;
    aril_optim_opts opts; /* of the first group and of the optimizer */
    aril__optim_group *groups;
    int n_groups;
    aril__optim_param *params;
    int n_params;
    aril__param_lookup lookup;
    aril__names listed, state;
    aril__update *updates; /* buffer for one step, followed by that of aril__update_all */
    aril_tensor **grads;
    bool *took;         /* for each parameter: whether the latest step updated it */
    aril_tensor *share; /* [] f64, 1 / accumulate; NULL: none */
    /* Numbers of the host. With a loss scale a step computes them, so that from the first one on
     * they are on the device of the parameters. */
    aril_tensor *step;  /* [] i64 */
    aril_tensor *scale; /* [] f32, loss scale; NULL: none */
    aril_tensor *good;  /* [] i64, steps since the scale changed */
    int64_t pending;    /* calls of aril_step that only accumulated */
    bool moved; /* in a trace: the end of a run will change learning rates, which the traced code
                   must not use from there on */
    aril_schedule **schedules;
    int n_schedules;
    aril__lbfgs *lbfgs;
};

/* Makes room in the lookup for n parameters; false when out of memory. */
bool aril__lookup_reserve(aril_optim *opt, size_t n);
/* Adds parameter i, for which there is room. */
void aril__lookup_add(aril_optim *opt, int i);
/* Enters the parameters anew after some were dropped. */
void aril__lookup_reset(aril_optim *opt);
/* The index of the parameter, or -1. After aril__lookup_reserve. */
int aril__lookup_tensor(const aril_optim *opt, const aril_tensor *p);
int aril__lookup_name(const aril_optim *opt, const char *name);

/* The name of parameter i in messages and state. */
const char *aril__param_name(const aril_named *params, int i, char *text, size_t size);
/* Checks a list of parameters. */
aril_status aril__params_check(const char *what, const aril_named *params);
/* A scalar in host memory that combines with tensors on any device: ops get it by value. The caller
 * releases it. NULL with an error. */
aril_tensor *aril__number_new(double value, aril_dtype dtype);
/* Sets a number of the host. */
void aril__number_set(aril_tensor *t, double value);
/* Moves its value: to a device, where ops read it, or back to the host. The tensor stays the same
 * for those who hold it. */
aril_status aril__number_to(aril_tensor *t, aril__device *device);

/* The gradient of a parameter as a step uses it; NULL when there is none. Borrowed. */
aril_tensor *aril__grad_of(aril_tensor *p);

/* A part of a parameter's state. */
typedef struct aril__slot {
    const char *name;
    bool wanted; /* with the options of p's group */
    bool scalar; /* one f64, whatever the parameter's dtype */
    aril_shape shape;
    double initial;
} aril__slot;
aril__slot aril__slot_of(const aril_optim *opt, const aril__optim_param *p, int i);
/* Prepares the state of a parameter for its next step; creates it at the first. */
aril_status aril__slots_ready(aril_optim *opt, aril__optim_param *p);
void aril__slots_drop(aril__optim_param *p);

/* Everything that one call of aril_step does on the host, besides applying ops: counts the calls
 * that only accumulate; in a call that updates, counts the steps that parameters without a gradient
 * missed (took[i]: parameter i had one; with a loss scale, ops count them) and advances the
 * schedules that count steps, which set the learning rates and momenta of the next step.
 *
 * aril_step calls it after its ops. Recording a step (aril__tracer) runs no ops and does none of
 * this, except that calls that accumulate are counted, so that a recording holds the same calls as
 * a program that runs. Replaying it applies the ops, which read the learning rate, the momentum and
 * the step count anew; after that the player calls this function once for each call of aril_step in
 * the recording, with opt->took as the recording left it. Then k replays leave the same bits as k
 * rounds of eager steps. A recording is valid for the parameters that had a gradient when it was
 * made; when others have one, or one of them missed a step since, record anew. */
void aril__step_host(aril_optim *opt, const bool *took);

/* A loss scale is a normal f32: at 0 or infinity it would stay there forever. */
#define ARIL__MIN_SCALE 0x1p-126
#define ARIL__MAX_SCALE 0x1p126
static inline bool aril__is_loss_scale(double scale)
{
    return scale >= ARIL__MIN_SCALE && scale <= ARIL__MAX_SCALE;
}
/* In a trace, has each run end with fn(opt, data), which changes learning rates. */
aril_status aril__optim_defer(aril_optim *opt, void (*fn)(void *opt, const void *data),
                              const void *data, size_t bytes);
/* An error of `what` where the traced code has deferred such a change before. */
aril_status aril__optim_check_moved(const aril_optim *opt, const char *what);

/* Ends a step whose ops were applied or recorded: sets opt->took, drops gradients, and does the
 * host's part unless the step is being recorded. */
void aril__step_done(aril_optim *opt);

/* ---- methods that are not element-wise ---- */

/* Writes that a step makes when all new values are computed, so that it is all or nothing. */
typedef struct aril__writes {
    int n;
    struct {
        aril_tensor *to, *value; /* of the same dtype; holds a reference to the value */
    } at[];
} aril__writes;

/* A number of a step that the host knows; or, in a trace and where only the parameter's device
 * knows it, a tensor there. */
typedef struct aril__step_number {
    double known;       /* unless */
    aril_tensor *there; /* [] f64; NULL: it is known */
} aril__step_number;
/* a + b * n, [] of a dtype, for ops on the parameter's device. */
aril_tensor *aril__method_number(const aril__step_number *n, double a, double b, aril_dtype dtype);

/* The values of one step for one parameter. */
typedef struct aril__step_values {
    aril__step_number lr, momentum;
    aril__step_number t;  /* the number of the step for this parameter */
    aril_tensor *skip;    /* [] bool, on the device: whether nothing changes; NULL: it does */
    aril__writes *writes; /* has room for all slots, the master and the parameter */
} aril__step_values;

typedef struct aril__method {
    const char *slot[ARIL__RULE_SLOTS]; /* names of the state; NULL: no more */
    /* The shape of slot i for a parameter of that shape; false: it has none. */
    bool (*slot_shape)(aril_shape p, int i, aril_shape *shape);
    /* Whether the parameter can be trained; optional. */
    aril_status (*check)(const char *what, const char *name, const aril_tensor *p);
    /* Computes new values of a parameter and its slots, and stores them with aril__method_store
     * and aril__method_store_value: g is contiguous, of the state's dtype, scaled and
     * clipped. NULL for methods that take a closure. */
    aril_status (*step)(const aril_optim_opts *o, const aril__step_values *v, aril__optim_param *p,
                        aril_tensor *g);
} aril__method;
extern const aril__method aril__method_lbfgs, aril__method_adafactor, aril__method_muon;

/* The value of a parameter for a method, of that dtype: of its master where it has one. */
aril_tensor *aril__method_value(const aril__optim_param *p, aril_dtype dtype);
/* Stores the new value of a slot, or of a parameter and its master, when those of all parameters
 * are computed, unless the step is skipped. */
aril_status aril__method_store(const aril__step_values *v, aril_tensor *to, aril_tensor *value);
aril_status aril__method_store_value(const aril__step_values *v, aril__optim_param *p,
                                     aril_tensor *value);

/* Steps all parameters of `updates`: computes their values one by one, then writes them. */
aril_status aril__method_step_all(aril_optim *opt, int n, aril__update *updates);

/* ---- lbfgs ---- */

aril__lbfgs *aril__lbfgs_new(void);
void aril__lbfgs_free(aril__lbfgs *b);
aril_tensor *aril__lbfgs_step(aril_optim *opt, aril_closure *fn, void *ctx);
aril_status aril__lbfgs_state(const aril__lbfgs *b, aril__names *to);
/* Reads a state from names, to replace the current one; *known counts the names used. */
aril_status aril__lbfgs_read(const aril_optim *opt, const aril__name_lookup *from, aril__lbfgs **to,
                             int *known);

/* ---- schedules ---- */

/* The state of a schedule: its numbers and those of all nested schedules, in order. */
enum { ARIL__SCHEDULE_NUMBERS = 5 };
int aril__schedule_count(const aril_schedule *s);
void aril__schedule_get(const aril_schedule *s, double *numbers);
/* Checks that these numbers, from the tensor with that name, are a valid schedule state. */
aril_status aril__schedule_check(const aril_schedule *s, const char *name, const double *numbers);
void aril__schedule_put(aril_schedule *s, const double *numbers);
/* Advances the schedules that count batches (otherwise those that count epochs), and sets all
 * learning rates and momenta. */
void aril__schedules_advance(aril_optim *opt, bool batches, bool all, double metric);
void aril__schedules_apply(aril_optim *opt);
/* Whether it counts steps, not epochs. */
bool aril__schedule_per_batch(const aril_schedule *s);
/* Sets the momenta alone. */
void aril__schedules_apply_momentum(aril_optim *opt);
/* Sets the name of the metric passed to aril_optim_epoch, and whether larger values are better;
 * plateaus follow it. An error when one was created for the other direction. */
aril_status aril__schedules_watch(aril_optim *opt, const char *name, bool rising);

#endif
