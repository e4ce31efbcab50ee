/* Learning rate schedules: the learning rate as a function of the epoch, or of the step.
 *
 *     aril_optim_schedule(opt, aril_cosine_schedule((aril_schedule_opts){ .total = 90 }));
 *     for (epoch ...) {
 *         for (batch ...) { ... aril_step(opt); }
 *         aril_optim_epoch(opt, validation_loss);
 *     }
 *
 * A schedule counts epochs; with `.per_batch` it counts calls of aril_step, which advance it. It
 * computes a learning rate from the count t = 0, 1, ... and the base, the optimizer's learning rate
 * when the schedule was attached. Several schedules can be attached: the rate of one is the base of
 * the next. */
#ifndef ARIL_SCHEDULE_H
#define ARIL_SCHEDULE_H

#include "aril/optim.h"

ARIL_C_BEGIN

typedef struct aril_schedule aril_schedule;

/* Returns the learning rate for count t; base: the initial learning rate. */
typedef double aril_schedule_fn(double base, int64_t t, void *ctx);

/* How many drops a multistep schedule can have. */
enum { ARIL_SCHEDULE_STEPS = 16 };

/* 0 selects the default, ARIL_ZERO is an actual 0. */
typedef struct aril_schedule_opts {
    bool per_batch;                  /* t counts steps, not epochs */
    int64_t total;                   /* cosine, polynomial, one_cycle, linear, constant: length */
    int64_t every;                   /* step: epochs between drops */
    int64_t at[ARIL_SCHEDULE_STEPS]; /* multistep: milestones where the rate drops, ascending,
                                        0-terminated */
    double gamma;  /* step, multistep (default 0.1), exponential, inverse, sigmoid: factor;
                      cyclic: the height at count t is multiplied by gamma^t (default 1) */
    double power;  /* polynomial (default 1), inverse (default 0.75) */
    double min_lr; /* cosine, warm_restarts, plateau: lower bound */
    double start;  /* linear, constant: initial factor; default 1/3 */
    double end;    /* linear: final factor; default 1 */
    double growth; /* warm_restarts: length of each cycle relative to the last; default 1 */
    /* one_cycle, cyclic */
    double max_lr;         /* 0: for one_cycle the optimizer's learning rate, for cyclic four times
                              that */
    double warm_share;     /* fraction of the length spent increasing; default 0.3 */
    double div, final_div; /* starts at max_lr / div (default 25), ends at that / final_div (default
                              1e4) */
    bool straight;         /* linear instead of cosine annealing */
    bool three_phases;     /* decrease to the initial rate as fast as it rose, then to the final
                              rate */
    /* The momentum goes the other way, from max_momentum to base_momentum where the learning rate
     * is highest and back: the option beta1 of optimizers that have one, otherwise momentum, even
     * if that is 0. Optimizers without either have nothing to move. */
    double base_momentum; /* default 0.85 for one_cycle, 0.8 for cyclic */
    double max_momentum;  /* default 0.95 for one_cycle, 0.9 for cyclic */
    bool fixed_momentum;  /* the momentum stays as it is: PyTorch's cycle_momentum=False */
    /* cyclic */
    int64_t up, down; /* counts that the rate rises (default 2000) and falls (default: as many) */
    bool halving;     /* each cycle rises half as high as the one before */
    /* plateau */
    double factor;    /* of the learning rate; default 0.1 */
    int64_t patience; /* epochs without an improvement before a drop; default 10 */
    int64_t cooldown; /* epochs to ignore after a drop; default 0 */
    double threshold; /* minimum relative improvement; default 1e-4 */
    bool absolute;    /* the threshold is absolute, not relative */
    bool rising;      /* larger metrics are better */
    /* linear warm-up before the schedule, over so many counts, from warm_start (default 1/3) times
     * the schedule's first rate; the schedule starts after it. For schedules created by name. */
    int64_t warmup;
    double warm_start;
} aril_schedule_opts;

/* ---- creating ---- */

/* Each returns a schedule that belongs to the caller until it is attached, or NULL with an error. T
 * is opts.total. */

/* base * gamma^floor(t / every) */
ARIL_API aril_schedule *aril_step_schedule(aril_schedule_opts opts);
/* base * gamma^(number of entries of `at` that t has reached) */
ARIL_API aril_schedule *aril_multistep_schedule(aril_schedule_opts opts);
/* base * gamma^t */
ARIL_API aril_schedule *aril_exponential_schedule(aril_schedule_opts opts);
/* min_lr + (base - min_lr) * (1 + cos(pi * t / T)) / 2 */
ARIL_API aril_schedule *aril_cosine_schedule(aril_schedule_opts opts);
/* Cosine with warm restarts: the first cycle has length T, each later one `growth` times the
 * last. */
ARIL_API aril_schedule *aril_warm_restarts_schedule(aril_schedule_opts opts);
/* base * (start + (end - start) * t / T), then base * end: warm-up, with the defaults */
ARIL_API aril_schedule *aril_linear_schedule(aril_schedule_opts opts);
/* base * start for t < T, then base */
ARIL_API aril_schedule *aril_constant_schedule(aril_schedule_opts opts);
/* base * (1 - t / T)^power, then 0 */
ARIL_API aril_schedule *aril_polynomial_schedule(aril_schedule_opts opts);
/* The 1cycle policy: up from max_lr / div to max_lr, then down to nearly 0; the momentum goes the
 * other way. */
ARIL_API aril_schedule *aril_one_cycle_schedule(aril_schedule_opts opts);
/* Up from the base to max_lr in a straight line over `up` counts, down again over `down`, and so
 * on, and the momentum the other way: PyTorch's CyclicLR. Usually with .per_batch. */
ARIL_API aril_schedule *aril_cyclic_schedule(aril_schedule_opts opts);
/* multiplies the rate by `factor` when the metric given to aril_optim_epoch has not improved for
 * more than `patience` epochs */
ARIL_API aril_schedule *aril_plateau_schedule(aril_schedule_opts opts);
/* base * (1 + gamma * t)^-power (Caffe) */
ARIL_API aril_schedule *aril_inverse_schedule(aril_schedule_opts opts);
/* base / (1 + exp(-gamma * (t - every))) (Caffe); gamma is negative for a decreasing rate */
ARIL_API aril_schedule *aril_sigmoid_schedule(aril_schedule_opts opts);
/* The result of fn. */
ARIL_API aril_schedule *aril_function_schedule(aril_schedule_fn *fn, void *ctx,
                                               aril_schedule_opts opts);
/* Chains n schedules: the rate of one is the base of the next. Takes ownership of them, even on
 * failure. */
ARIL_API aril_schedule *aril_chained_schedule(int n, aril_schedule *const *parts);
/* Runs schedules in sequence: part i starts at count at[i - 1], where its own count is 0. Takes
 * ownership of them. */
ARIL_API aril_schedule *aril_sequential_schedule(int n, aril_schedule *const *parts,
                                                 const int64_t *at);

/* Creates one of the above by name: "step", "cosine", "one_cycle" ... (except functions and
 * combinations). */
ARIL_API aril_schedule *aril_schedule_new(const char *name, aril_schedule_opts opts);
/* The same for a whole training of `epochs` epochs with `steps` updates each: cosine, one_cycle and
 * the like count steps and end with the training; step, multistep, exponential and plateau count
 * epochs. Lengths in opts (total, every, at, warmup, up, down) are in epochs here, and those left 0
 * follow from the training: step drops at each third, multistep after a half and after three
 * quarters, sigmoid is at its midpoint halfway, cyclic has four cycles, linear decreases to 0. A
 * warm-up is part of the training.
 *
 *     int64_t steps = aril_loader_length(batches);
 *     aril_schedule *s = aril_schedule_for_training("one_cycle", epochs, steps,
 *                                                   (aril_schedule_opts){ .max_lr = 0.01 }); */
ARIL_API aril_schedule *aril_schedule_for_training(const char *name, int64_t epochs, int64_t steps,
                                                   aril_schedule_opts opts);
/* Those names, in alphabetical order, NULL-terminated. */
ARIL_API const char *const *aril_schedule_names(void);
/* The options that the schedule of that name has, as in aril_schedule_opts, besides .per_batch and
 * the warm-up; NULL-terminated. NULL, with an error, for an unknown name. */
ARIL_API const char *const *aril_schedule_option_names(const char *name);
/* True if the schedule of that name needs .gamma, which has no default for it. False, with an
 * error, for an unknown name. */
ARIL_API bool aril_schedule_needs_gamma(const char *name);

/* Frees a schedule that is not attached to an optimizer. NULL is allowed. */
ARIL_API void aril_schedule_free(aril_schedule *s);

/* The learning rate for count t from a base; NaN for a plateau, which depends on metrics. For
 * plots. */
ARIL_API double aril_schedule_at(const aril_schedule *s, double base, int64_t t);
/* The momentum for count t: base, the optimizer's own, unless the schedule moves it. */
ARIL_API double aril_schedule_momentum_at(const aril_schedule *s, double base, int64_t t);

/* ---- using ---- */

/* Attaches s, which opt takes ownership of (even on failure), and sets the learning rate for count
 * 0. */
ARIL_API aril_status aril_optim_schedule(aril_optim *opt, aril_schedule *s);

/* Ends an epoch: advances schedules that count epochs by one. metric: the value a plateau monitors;
 * NaN if there is none. */
ARIL_API aril_status aril_optim_epoch(aril_optim *opt, double metric);

/* Advances all schedules by one, whatever they count; for loops that keep their own count. */
ARIL_API aril_status aril_schedule_step(aril_optim *opt);

ARIL_C_END

#endif
