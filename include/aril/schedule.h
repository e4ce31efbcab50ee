/* Schedules: the learning rate as a function of the epoch, or of the step.
 *
 *     aril_optim_schedule(opt, aril_cosine_schedule((aril_schedule_opts){ .total = 90 }));
 *     for (epoch ...) {
 *         for (batch ...) { ... aril_step(opt); }
 *         aril_optim_epoch(opt, validation_loss);
 *     }
 *
 * A schedule counts epochs; with `.per_batch` it counts calls of aril_step, which advance it. It
 * gives a rate for the count t = 0, 1, ... and a base, the optimizer's rate when the schedule was
 * attached. Several schedules can be attached: the rate of one is the base of the next. */
#ifndef ARIL_SCHEDULE_H
#define ARIL_SCHEDULE_H

#include "aril/optim.h"

ARIL_C_BEGIN

typedef struct aril_schedule aril_schedule;

/* A rate for count t; base: the rate it starts from. */
typedef double aril_schedule_fn(double base, int64_t t, void *ctx);

/* How many drops a multistep schedule can have. */
enum { ARIL_SCHEDULE_STEPS = 16 };

/* 0 stands for the default, ARIL_ZERO for a real 0. */
typedef struct aril_schedule_opts {
    bool per_batch;                  /* t counts steps, not epochs */
    int64_t total;                   /* cosine, polynomial, one_cycle, linear, constant: length */
    int64_t every;                   /* step: epochs between drops */
    int64_t at[ARIL_SCHEDULE_STEPS]; /* multistep: where the rate drops, ascending; 0 ends */
    double gamma;  /* step, multistep 0.1, exponential, inverse, sigmoid: factor */
    double power;  /* polynomial 1, inverse 0.75 */
    double min_lr; /* cosine, warm_restarts, plateau: not below this */
    double start;  /* linear, constant: factor at the start, 1/3 */
    double end;    /* linear: factor at the end, 1 */
    double growth; /* warm_restarts: each cycle is so many times the last one: 1 */
    /* one_cycle */
    double max_lr;         /* 0: the optimizer's rate */
    double warm_share;     /* share of the length that goes up: 0.3 */
    double div, final_div; /* max_lr / div at the start: 25; that / final_div at the end: 1e4 */
    bool straight;         /* straight lines, not cosines */
    bool three_phases;     /* down to the start as fast as up, then to the end */
    /* plateau */
    double factor;    /* of the rate: 0.1 */
    int64_t patience; /* epochs without an improvement that are borne: 10 */
    int64_t cooldown; /* epochs after a drop that do not count: 0 */
    double threshold; /* the least improvement, relative: 1e-4 */
    bool absolute;    /* ... or absolute */
    bool rising;      /* larger metrics are better */
    /* warm-up before the schedule itself: a straight line over so many counts from warm_start (1/3)
     * times its first rate; the schedule begins where that ends. For schedules made by name. */
    int64_t warmup;
    double warm_start;
} aril_schedule_opts;

/* ---- making ---- */

/* Each returns a schedule that belongs to the caller until it is attached, or NULL with an error. T
 * is opts.total. */

/* base * gamma^floor(t / every) */
ARIL_API aril_schedule *aril_step_schedule(aril_schedule_opts opts);
/* base * gamma^(how many of `at` t has reached) */
ARIL_API aril_schedule *aril_multistep_schedule(aril_schedule_opts opts);
/* base * gamma^t */
ARIL_API aril_schedule *aril_exponential_schedule(aril_schedule_opts opts);
/* min_lr + (base - min_lr) * (1 + cos(pi * t / T)) / 2 */
ARIL_API aril_schedule *aril_cosine_schedule(aril_schedule_opts opts);
/* The same over and over: T counts first, then `growth` times as many each time. */
ARIL_API aril_schedule *aril_warm_restarts_schedule(aril_schedule_opts opts);
/* base * (start + (end - start) * t / T), then base * end: warm-up, with the defaults */
ARIL_API aril_schedule *aril_linear_schedule(aril_schedule_opts opts);
/* base * start for t < T, then base */
ARIL_API aril_schedule *aril_constant_schedule(aril_schedule_opts opts);
/* base * (1 - t / T)^power, then 0 */
ARIL_API aril_schedule *aril_polynomial_schedule(aril_schedule_opts opts);
/* Up from max_lr / div to max_lr and down to nearly nothing. */
ARIL_API aril_schedule *aril_one_cycle_schedule(aril_schedule_opts opts);
/* times `factor` when the metric given to aril_optim_epoch has not become better for more than
 * `patience` epochs */
ARIL_API aril_schedule *aril_plateau_schedule(aril_schedule_opts opts);
/* base * (1 + gamma * t)^-power (Caffe) */
ARIL_API aril_schedule *aril_inverse_schedule(aril_schedule_opts opts);
/* base / (1 + exp(-gamma * (t - every))) (Caffe); gamma is below 0 for a rate that falls */
ARIL_API aril_schedule *aril_sigmoid_schedule(aril_schedule_opts opts);
/* What fn says. */
ARIL_API aril_schedule *aril_function_schedule(aril_schedule_fn *fn, void *ctx,
                                               aril_schedule_opts opts);
/* All n at once, the rate of one being the base of the next. Takes them over, also on failure. */
ARIL_API aril_schedule *aril_chained_schedule(int n, aril_schedule *const *parts);
/* One after the other: part i from count at[i - 1] on, where its own count is 0. Takes them
 * over. */
ARIL_API aril_schedule *aril_sequential_schedule(int n, aril_schedule *const *parts,
                                                 const int64_t *at);

/* One of the above by name: "step", "cosine", "one_cycle" ... (not functions and combinations). */
ARIL_API aril_schedule *aril_schedule_new(const char *name, aril_schedule_opts opts);
/* Those names, in alphabetical order, with NULL at the end. */
ARIL_API const char *const *aril_schedule_names(void);

/* Frees a schedule that is attached to no optimizer. NULL is allowed. */
ARIL_API void aril_schedule_free(aril_schedule *s);

/* The rate for count t from a base; NaN for a plateau, which depends on metrics. For drawings. */
ARIL_API double aril_schedule_at(const aril_schedule *s, double base, int64_t t);

/* ---- using ---- */

/* Attaches s, which opt takes over (also on failure), and sets the rate for count 0. */
ARIL_API aril_status aril_optim_schedule(aril_optim *opt, aril_schedule *s);

/* The end of an epoch: schedules that count epochs go on by one. metric: what a plateau looks at;
 * NaN where there is none. */
ARIL_API aril_status aril_optim_epoch(aril_optim *opt, double metric);

/* All schedules go on by one, whatever they count; for loops with a count of their own. */
ARIL_API aril_status aril_schedule_step(aril_optim *opt);

ARIL_C_END

#endif
