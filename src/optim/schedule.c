/* Schedules: learning rates as functions of a step or epoch count. */
#include "optim/optim.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

typedef struct schedule_kind {
    const char *name;
    double (*at)(const aril_schedule *s, double base, int64_t t);
    /* The momentum; NULL: it does not move. */
    double (*momentum)(const aril_schedule *s, int64_t t);
    aril_status (*check)(const aril_schedule_opts *o); /* NULL: nothing to check */
    aril_schedule_opts defaults;
    const char *const *options; /* names, NULL-terminated */
    bool needs_gamma;           /* .gamma has no default */
    /* For aril_schedule_for_training: whether it counts epochs, not steps; and what fills in the
     * options that follow from the training's length, in counts, where they are not set. */
    bool per_epoch;
    void (*horizon)(aril_schedule_opts *o, int64_t length);
} schedule_kind;

struct aril_schedule {
    const schedule_kind *kind;
    aril_schedule_opts opts;
    aril_schedule_fn *fn;
    void *ctx;
    int n_parts;
    aril_schedule **parts;
    int64_t *from; /* for a sequence: the start of each part */
    int64_t t;
    bool owned; /* by an optimizer, or by the schedule that contains it */
    /* plateau */
    int64_t drops, bad, cooling;
    double best;
    bool rising; /* larger metrics are better: set by the options, or by the watched metric */
};

/* ---- learning rates ---- */

static double step_at(const aril_schedule *s, double base, int64_t t)
{
    return base * pow(s->opts.gamma, (double)(t / s->opts.every));
}

static double multistep_at(const aril_schedule *s, double base, int64_t t)
{
    int reached = 0;
    for (int i = 0; i < ARIL_SCHEDULE_STEPS && s->opts.at[i] > 0; i++)
        reached += t >= s->opts.at[i];
    return base * pow(s->opts.gamma, reached);
}

static double exponential_at(const aril_schedule *s, double base, int64_t t)
{
    return base * pow(s->opts.gamma, (double)t);
}

static double cosine(double from, double to, double share)
{
    return to + (from - to) * (1 + cos(pi * share)) / 2;
}

static double cosine_at(const aril_schedule *s, double base, int64_t t)
{
    return cosine(base, s->opts.min_lr, (double)t / (double)s->opts.total);
}

static double warm_restarts_at(const aril_schedule *s, double base, int64_t t)
{
    double length = (double)s->opts.total, at = (double)t;
    if (s->opts.growth == 1) {
        at = (double)(t % s->opts.total);
    } else {
        while (at >= length) {
            at -= length;
            length *= s->opts.growth;
        }
    }
    return cosine(base, s->opts.min_lr, at / length);
}

static double linear_at(const aril_schedule *s, double base, int64_t t)
{
    double share = t < s->opts.total ? (double)t / (double)s->opts.total : 1;
    return base * (s->opts.start + (s->opts.end - s->opts.start) * share);
}

static double constant_at(const aril_schedule *s, double base, int64_t t)
{
    return t < s->opts.total ? base * s->opts.start : base;
}

static double polynomial_at(const aril_schedule *s, double base, int64_t t)
{
    return t < s->opts.total ? base * pow(1 - (double)t / (double)s->opts.total, s->opts.power) : 0;
}

/* A value that goes from `low` to `top` in the first phase of the cycle and back: in two phases to
 * `end`, in three to `low` first. */
static double over_cycle(const aril_schedule_opts *o, double low, double top, double end, int64_t t)
{
    double total = (double)o->total, up = o->warm_share * total - 1, at = (double)t;
    if (at > total - 1) at = total - 1;
    const struct {
        double to, first, last;
    } two[] = { { up, low, top }, { total - 1, top, end } },
      three[] = { { up, low, top }, { 2 * up, top, low }, { total - 1, low, end } },
      *phase = o->three_phases ? three : two;
    double begin = 0;
    while (at > phase->to && phase->to < total - 1) begin = phase++->to;
    double share = phase->to > begin ? (at - begin) / (phase->to - begin) : 1;
    return o->straight ? phase->first + (phase->last - phase->first) * share
                       : cosine(phase->first, phase->last, share);
}

static double one_cycle_at(const aril_schedule *s, double base, int64_t t)
{
    const aril_schedule_opts *o = &s->opts;
    double top = o->max_lr > 0 ? o->max_lr : base, low = top / o->div;
    return over_cycle(o, low, top, low / o->final_div, t);
}

/* Low where the learning rate is high. */
static double one_cycle_momentum(const aril_schedule *s, int64_t t)
{
    double high = s->opts.max_momentum;
    return over_cycle(&s->opts, high, s->opts.base_momentum, high, t);
}

/* How far up the cycle count t is: 0 at its ends, 1 at the first peak. */
static double height_at(const aril_schedule_opts *o, int64_t t)
{
    int64_t down = o->down ? o->down : o->up, cycle = t / (o->up + down), at = t % (o->up + down);
    double height =
        at <= o->up ? (double)at / (double)o->up : (double)(o->up + down - at) / (double)down;
    return o->halving ? height * pow(0.5, (double)cycle) : height;
}

static double cyclic_at(const aril_schedule *s, double base, int64_t t)
{
    const aril_schedule_opts *o = &s->opts;
    double top = o->max_lr > 0 ? o->max_lr : 4 * base;
    return base + (top - base) * height_at(o, t) * pow(o->gamma, (double)t);
}

static double cyclic_momentum(const aril_schedule *s, int64_t t)
{
    const aril_schedule_opts *o = &s->opts;
    double by = (o->max_momentum - o->base_momentum) * height_at(o, t);
    return o->max_momentum - by * pow(o->gamma, (double)t);
}

/* Skips a drop that would hardly change the learning rate. */
static double plateau_rate(const aril_schedule *s, double base)
{
    const double min = 1e-8;
    for (int64_t i = 0; i < s->drops; i++) {
        double next = fmax(base * s->opts.factor, s->opts.min_lr);
        if (base - next <= min) break;
        base = next;
    }
    return base;
}

static double plateau_at(const aril_schedule *s, double base, int64_t t)
{
    (void)s, (void)base, (void)t;
    return NAN;
}

static double inverse_at(const aril_schedule *s, double base, int64_t t)
{
    return base * pow(1 + s->opts.gamma * (double)t, -s->opts.power);
}

static double sigmoid_at(const aril_schedule *s, double base, int64_t t)
{
    return base / (1 + exp(-s->opts.gamma * (double)(t - s->opts.every)));
}

static double function_at(const aril_schedule *s, double base, int64_t t)
{
    return s->fn(base, t, s->ctx);
}

static double chained_at(const aril_schedule *s, double base, int64_t t)
{
    for (int i = 0; i < s->n_parts; i++) base = aril_schedule_at(s->parts[i], base, t);
    return base;
}

static int part_at(const aril_schedule *s, int64_t t)
{
    int i = 0;
    while (i + 1 < s->n_parts && t >= s->from[i + 1]) i++;
    return i;
}

static double sequential_at(const aril_schedule *s, double base, int64_t t)
{
    int i = part_at(s, t);
    return aril_schedule_at(s->parts[i], base, t - s->from[i]);
}

/* ---- checks of options ---- */

static aril_status needs_total(const aril_schedule_opts *o)
{
    return o->total >= 1 ? ARIL_OK
                         : aril__fail(ARIL_ERR_ARG,
                                      "schedule: .total, the length, must be at least 1, got %lld",
                                      (long long)o->total);
}

static aril_status needs_every(const aril_schedule_opts *o)
{
    return o->every >= 1
               ? ARIL_OK
               : aril__fail(ARIL_ERR_ARG,
                            "schedule: .every, epochs between drops, must be at least 1, got %lld",
                            (long long)o->every);
}

static aril_status needs_at(const aril_schedule_opts *o)
{
    for (int i = 0; i + 1 < ARIL_SCHEDULE_STEPS && o->at[i] > 0; i++)
        if (o->at[i + 1] != 0 && o->at[i + 1] < o->at[i])
            return aril__fail(ARIL_ERR_ARG, "schedule: .at must ascend, got %lld before %lld",
                              (long long)o->at[i], (long long)o->at[i + 1]);
    return o->at[0] > 0 ? ARIL_OK
                        : aril__fail(ARIL_ERR_ARG, "schedule: .at, the epochs where the learning "
                                                   "rate drops, must be given, each at least 1");
}

static aril_status needs_restarts(const aril_schedule_opts *o)
{
    if (o->growth < 1)
        return aril__fail(ARIL_ERR_ARG, "schedule: .growth must be at least 1, got %g", o->growth);
    return needs_total(o);
}

static aril_status needs_momenta(const aril_schedule_opts *o)
{
    return o->base_momentum >= 0 && o->base_momentum <= o->max_momentum && o->max_momentum < 1
               ? ARIL_OK
               : aril__fail(ARIL_ERR_ARG,
                            "schedule: .base_momentum must be at least 0 and at most "
                            ".max_momentum, which must be below 1, got %g and %g",
                            o->base_momentum, o->max_momentum);
}

static aril_status needs_cycle(const aril_schedule_opts *o)
{
    if (!(o->warm_share > 0 && o->warm_share < 1) || !(o->div > 0) || !(o->final_div > 0))
        return aril__fail(ARIL_ERR_ARG,
                          "schedule: .warm_share must be between 0 and 1, .div and .final_div "
                          "above 0, got %g, %g, %g",
                          o->warm_share, o->div, o->final_div);
    aril_status s = needs_momenta(o);
    return s < 0 ? s : needs_total(o);
}

static aril_status needs_peaks(const aril_schedule_opts *o)
{
    enum { MAX_STEPS = 1 << 30 };
    if (o->max_lr < 0)
        return aril__fail(
            ARIL_ERR_ARG,
            "schedule: .max_lr, the learning rate at the peaks, must be at least 0, got %g",
            o->max_lr);
    if (o->up >= 1 && o->up <= MAX_STEPS && o->down >= 0 && o->down <= MAX_STEPS)
        return needs_momenta(o);
    return aril__fail(
        ARIL_ERR_ARG,
        "schedule: .up and .down, the steps of each half, must be from 1 to %d, got %lld and %lld",
        MAX_STEPS, (long long)o->up, (long long)o->down);
}

static aril_status needs_factor(const aril_schedule_opts *o)
{
    return o->factor >= 0 && o->factor < 1 && o->patience >= 0 && o->cooldown >= 0
               ? ARIL_OK
               : aril__fail(ARIL_ERR_ARG,
                            "schedule: .factor must be at least 0 and below 1, .patience and "
                            ".cooldown at least 0, got %g, %lld, %lld",
                            o->factor, (long long)o->patience, (long long)o->cooldown);
}

/* ---- kinds ---- */

/* ---- over a whole training ---- */

/* Three levels. */
static void step_horizon(aril_schedule_opts *o, int64_t length)
{
    if (o->every == 0) o->every = (length + 2) / 3;
}

/* Drops after a half and after three quarters. */
static void multistep_horizon(aril_schedule_opts *o, int64_t length)
{
    if (o->at[0] != 0) return;
    o->at[0] = (length + 1) / 2;
    if (length * 3 / 4 > o->at[0]) o->at[1] = length * 3 / 4;
}

/* Half of the learning rate in the middle. */
static void sigmoid_horizon(aril_schedule_opts *o, int64_t length)
{
    if (o->every == 0) o->every = length / 2;
}

/* The optimizer's learning rate throughout: as a factor over the whole length it is not a
 * warm-up. */
static void constant_horizon(aril_schedule_opts *o, int64_t length)
{
    (void)length;
    if (o->start == 0) o->start = 1;
}

/* Down to 0, for the same reason. */
static void linear_horizon(aril_schedule_opts *o, int64_t length)
{
    (void)length;
    if (o->start != 0 || o->end != 0) return;
    o->start = 1;
    o->end = ARIL_ZERO;
}

/* Four cycles. */
static void cyclic_horizon(aril_schedule_opts *o, int64_t length)
{
    if (o->up == 0) o->up = (length + 7) / 8;
}

#define OPTIONS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* In alphabetical order. */
static const schedule_kind kinds[] = {
    { .name = "constant",
      .options = OPTIONS("total", "start"),
      .at = constant_at,
      .check = needs_total,
      .defaults = { .total = 5, .start = 1.0 / 3 },
      .horizon = constant_horizon },
    { .name = "cosine",
      .options = OPTIONS("total", "min_lr"),
      .at = cosine_at,
      .check = needs_total },
    { .name = "cyclic",
      .options = OPTIONS("max_lr", "up", "down", "halving", "gamma"),
      .at = cyclic_at,
      .momentum = cyclic_momentum,
      .check = needs_peaks,
      .defaults = { .gamma = 1, .up = 2000, .base_momentum = 0.8, .max_momentum = 0.9 },
      .horizon = cyclic_horizon },
    { .name = "exponential",
      .options = OPTIONS("gamma"),
      .at = exponential_at,
      .needs_gamma = true,
      .per_epoch = true },
    { .name = "inverse",
      .options = OPTIONS("gamma", "power"),
      .at = inverse_at,
      .needs_gamma = true,
      .defaults = { .power = 0.75 } },
    { .name = "linear",
      .options = OPTIONS("total", "start", "end"),
      .at = linear_at,
      .check = needs_total,
      .defaults = { .total = 5, .start = 1.0 / 3, .end = 1 },
      .horizon = linear_horizon },
    { .name = "multistep",
      .options = OPTIONS("at", "gamma"),
      .at = multistep_at,
      .check = needs_at,
      .defaults = { .gamma = 0.1 },
      .per_epoch = true,
      .horizon = multistep_horizon },
    { .name = "one_cycle",
      .options =
          OPTIONS("total", "max_lr", "warm_share", "div", "final_div", "straight", "three_phases"),
      .at = one_cycle_at,
      .momentum = one_cycle_momentum,
      .check = needs_cycle,
      .defaults = { .warm_share = 0.3,
                    .div = 25,
                    .final_div = 1e4,
                    .base_momentum = 0.85,
                    .max_momentum = 0.95 } },
    { .name = "plateau",
      .options =
          OPTIONS("factor", "patience", "cooldown", "threshold", "absolute", "rising", "min_lr"),
      .at = plateau_at,
      .check = needs_factor,
      .defaults = { .factor = 0.1, .patience = 10, .threshold = 1e-4 },
      .per_epoch = true },
    { .name = "polynomial",
      .options = OPTIONS("total", "power"),
      .at = polynomial_at,
      .check = needs_total,
      .defaults = { .total = 5, .power = 1 } },
    { .name = "sigmoid",
      .options = OPTIONS("gamma", "every"),
      .at = sigmoid_at,
      .needs_gamma = true,
      .horizon = sigmoid_horizon },
    { .name = "step",
      .options = OPTIONS("every", "gamma"),
      .at = step_at,
      .check = needs_every,
      .defaults = { .gamma = 0.1 },
      .per_epoch = true,
      .horizon = step_horizon },
    { .name = "warm_restarts",
      .options = OPTIONS("total", "min_lr", "growth"),
      .at = warm_restarts_at,
      .check = needs_restarts,
      .defaults = { .growth = 1 } },
};
enum { KINDS = sizeof kinds / sizeof *kinds };
static const schedule_kind function_kind = { .name = "function", .at = function_at };
static const schedule_kind chained_kind = { .name = "chained", .at = chained_at };
static const schedule_kind sequential_kind = { .name = "sequential", .at = sequential_at };

const char *const *aril_schedule_names(void)
{
    static const char *const names[KINDS + 1] = { "constant",      "cosine",    "cyclic",
                                                  "exponential",   "inverse",   "linear",
                                                  "multistep",     "one_cycle", "plateau",
                                                  "polynomial",    "sigmoid",   "step",
                                                  "warm_restarts", NULL };
    return names;
}

static double or_default(double given, double defaults)
{
    return given == 0 ? defaults : given == ARIL_ZERO ? 0 : given;
}

static int64_t or_default_int(int64_t given, int64_t defaults)
{
    return given == 0 ? defaults : given == ARIL_ZERO ? 0 : given;
}

static aril_schedule_opts resolve(const aril_schedule_opts *o, const aril_schedule_opts *defaults)
{
    aril_schedule_opts to = *o;
    to.total = or_default_int(o->total, defaults->total);
    to.every = or_default_int(o->every, defaults->every);
    to.up = or_default_int(o->up, defaults->up);
    to.gamma = or_default(o->gamma, defaults->gamma);
    to.power = or_default(o->power, defaults->power);
    to.min_lr = or_default(o->min_lr, defaults->min_lr);
    to.start = or_default(o->start, defaults->start);
    to.end = or_default(o->end, defaults->end);
    to.growth = or_default(o->growth, defaults->growth);
    to.warm_share = or_default(o->warm_share, defaults->warm_share);
    to.div = or_default(o->div, defaults->div);
    to.final_div = or_default(o->final_div, defaults->final_div);
    to.base_momentum = or_default(o->base_momentum, defaults->base_momentum);
    to.max_momentum = or_default(o->max_momentum, defaults->max_momentum);
    to.factor = or_default(o->factor, defaults->factor);
    to.patience = or_default_int(o->patience, defaults->patience);
    to.threshold = or_default(o->threshold, defaults->threshold);
    to.warm_start = or_default(o->warm_start, 1.0 / 3);
    return to;
}

static aril_schedule *schedule_new(const schedule_kind *kind, const aril_schedule_opts *o)
{
    aril_schedule *s = aril__calloc(sizeof *s);
    if (!s) {
        aril__fail(ARIL_ERR_MEMORY, "schedule: out of memory");
        return NULL;
    }
    s->kind = kind;
    s->opts = resolve(o, &kind->defaults);
    s->rising = s->opts.rising;
    s->best = s->rising ? -INFINITY : INFINITY;
    return s;
}

/* A NaN learning rate would destroy every weight at the next step. */
static aril_status all_numbers(const aril_schedule_opts *o)
{
    const struct {
        const char *name;
        double value;
    } all[] = {
        { "gamma", o->gamma },
        { "power", o->power },
        { "min_lr", o->min_lr },
        { "start", o->start },
        { "end", o->end },
        { "growth", o->growth },
        { "max_lr", o->max_lr },
        { "warm_share", o->warm_share },
        { "div", o->div },
        { "final_div", o->final_div },
        { "base_momentum", o->base_momentum },
        { "max_momentum", o->max_momentum },
        { "factor", o->factor },
        { "threshold", o->threshold },
        { "warm_start", o->warm_start },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!isfinite(all[i].value))
            return aril__fail(ARIL_ERR_ARG, "schedule: .%s is %g, expected a finite number",
                              all[i].name, all[i].value);
    return ARIL_OK;
}

static aril_schedule *made(const schedule_kind *kind, aril_schedule_opts opts)
{
    aril_schedule_opts o = resolve(&opts, &kind->defaults);
    if (all_numbers(&o) < 0) return NULL;
    if (kind->needs_gamma && o.gamma == 0) {
        aril__fail(ARIL_ERR_ARG, "schedule: .gamma, the decay factor, must be set");
        return NULL;
    }
    if (kind->check && kind->check(&o) < 0) return NULL;
    if (o.warmup <= 0) return schedule_new(kind, &opts);
    aril_schedule *parts[2];
    int64_t at = o.warmup;
    parts[0] = aril_linear_schedule(
        (aril_schedule_opts){ .per_batch = opts.per_batch,
                              .total = o.warmup,
                              .start = o.warm_start == 0 ? ARIL_ZERO : o.warm_start });
    opts.warmup = 0;
    parts[1] = schedule_new(kind, &opts);
    return aril_sequential_schedule(2, parts, &at);
}

static const schedule_kind *find_kind(const char *name)
{
    for (int i = 0; i < KINDS && name; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    char near[512];
    aril__fail(ARIL_ERR_ARG, "unknown schedule '%s'%s", name ? name : "NULL",
               aril__nearest(name ? name : "", aril_schedule_names(), near, sizeof near));
    return NULL;
}

const char *const *aril_schedule_option_names(const char *name)
{
    const schedule_kind *kind = find_kind(name);
    return kind ? kind->options : NULL;
}

bool aril_schedule_needs_gamma(const char *name)
{
    const schedule_kind *kind = find_kind(name);
    return kind && kind->needs_gamma;
}

aril_schedule *aril_schedule_new(const char *name, aril_schedule_opts opts)
{
    const schedule_kind *kind = find_kind(name);
    return kind ? made(kind, opts) : NULL;
}

aril_schedule *aril_schedule_for_training(const char *name, int64_t epochs, int64_t steps,
                                          aril_schedule_opts opts)
{
    const schedule_kind *kind = find_kind(name);
    if (!kind) return NULL;
    if (epochs < 1 || steps < 1 || epochs > INT64_MAX / steps) {
        aril__fail(ARIL_ERR_ARG,
                   "%s_schedule: got %lld epochs of %lld steps each; expected at least 1 of both",
                   name, (long long)epochs, (long long)steps);
        return NULL;
    }
    int64_t count = kind->per_epoch ? 1 : steps, length = epochs * count;
    int64_t *const lengths[] = { &opts.total, &opts.every, &opts.warmup, &opts.up, &opts.down };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        if (*lengths[i] > 0 && *lengths[i] <= INT64_MAX / count) *lengths[i] *= count;
    opts.per_batch = !kind->per_epoch;
    if (kind->horizon) kind->horizon(&opts, length);
    /* The schedule starts after the warm-up and shares the steps with it. */
    if (opts.total == 0)
        opts.total = opts.per_batch && length > opts.warmup ? length - opts.warmup : length;
    return made(kind, opts);
}

#define MAKE(name)                                                 \
    aril_schedule *aril_##name##_schedule(aril_schedule_opts opts) \
    {                                                              \
        return aril_schedule_new(#name, opts);                     \
    }
MAKE(step)
MAKE(multistep)
MAKE(exponential)
MAKE(cosine)
MAKE(warm_restarts)
MAKE(linear)
MAKE(constant)
MAKE(polynomial)
MAKE(one_cycle)
MAKE(cyclic)
MAKE(plateau)
MAKE(inverse)
MAKE(sigmoid)
#undef MAKE

aril_schedule *aril_function_schedule(aril_schedule_fn *fn, void *ctx, aril_schedule_opts opts)
{
    if (!fn) {
        aril__fail(ARIL_ERR_ARG, "function_schedule: the function is NULL");
        return NULL;
    }
    aril_schedule *s = schedule_new(&function_kind, &opts);
    if (s) {
        s->fn = fn;
        s->ctx = ctx;
    }
    return s;
}

static aril_schedule *combine(const schedule_kind *kind, int n, aril_schedule *const *parts,
                              const int64_t *at)
{
    aril_schedule *s = NULL;
    bool valid = n > 0 && parts, batches = valid && parts[0] && parts[0]->opts.per_batch;
    for (int i = 0; i < n && parts; i++) {
        if (!parts[i]) {
            if (valid) aril__fail(ARIL_ERR_ARG, "%s_schedule: part %d is NULL", kind->name, i);
            valid = false;
        } else if (valid && parts[i]->opts.per_batch != batches) {
            aril__fail(ARIL_ERR_ARG,
                       "%s_schedule: some parts count batches, others epochs; attach them to the "
                       "optimizer one by one",
                       kind->name);
            valid = false;
        }
        for (int j = 0; j <= i && valid; j++) {
            if (!parts[i]->owned && (j == i || parts[j] != parts[i])) continue;
            aril__fail(ARIL_ERR_ARG, "%s_schedule: part %d is already in use; create another one",
                       kind->name, i);
            valid = false;
        }
        if (valid && i && at && at[i - 1] <= (i > 1 ? at[i - 2] : 0)) {
            aril__fail(ARIL_ERR_ARG, "%s_schedule: counts must be positive and ascending",
                       kind->name);
            valid = false;
        }
    }
    if (n < 1 || !parts)
        aril__fail(ARIL_ERR_ARG, "%s_schedule: expected at least one part, got %d", kind->name, n);
    if (valid) s = schedule_new(kind, &(aril_schedule_opts){ .per_batch = batches });
    size_t count = (size_t)n;
    if (s) {
        s->parts = aril__calloc(count * sizeof *s->parts);
        s->from = aril__calloc(count * sizeof *s->from);
        if (!s->parts || !s->from) {
            aril__fail(ARIL_ERR_MEMORY, "%s_schedule: out of memory", kind->name);
            aril_schedule_free(s);
            s = NULL;
        }
    }
    for (int i = 0; i < n && parts; i++) {
        if (s) {
            s->parts[i] = parts[i];
            s->parts[i]->owned = true;
            if (at && i) s->from[i] = at[i - 1];
            continue;
        }
        bool again = !parts[i] || parts[i]->owned;
        for (int j = i + 1; j < n && !again; j++) again = parts[j] == parts[i];
        if (!again) aril_schedule_free(parts[i]);
    }
    if (s) s->n_parts = n;
    return s;
}

aril_schedule *aril_chained_schedule(int n, aril_schedule *const *parts)
{
    return combine(&chained_kind, n, parts, NULL);
}

aril_schedule *aril_sequential_schedule(int n, aril_schedule *const *parts, const int64_t *at)
{
    static const int64_t none[1];
    return combine(&sequential_kind, n, parts, at ? at : none);
}

void aril_schedule_free(aril_schedule *s)
{
    if (!s) return;
    for (int i = 0; i < s->n_parts; i++) aril_schedule_free(s->parts[i]);
    free(s->parts);
    free(s->from);
    free(s);
}

/* Whether it moves the momentum itself: not one of its parts. */
static bool moves_momentum(const aril_schedule *s)
{
    return s->kind->momentum && !s->opts.fixed_momentum;
}

double aril_schedule_at(const aril_schedule *s, double base, int64_t t)
{
    return s ? s->kind->at(s, base, t) : NAN;
}

double aril_schedule_momentum_at(const aril_schedule *s, double base, int64_t t)
{
    if (!s) return NAN;
    if (s->kind == &chained_kind)
        for (int i = 0; i < s->n_parts; i++) base = aril_schedule_momentum_at(s->parts[i], base, t);
    if (s->kind == &sequential_kind) {
        int i = part_at(s, t);
        return aril_schedule_momentum_at(s->parts[i], base, t - s->from[i]);
    }
    return moves_momentum(s) ? s->kind->momentum(s, t) : base;
}

/* ---- use by an optimizer ---- */

/* The current learning rate: like `at`, including the state of plateaus. */
static double now(const aril_schedule *s, double base, int64_t t)
{
    if (s->kind->at == plateau_at) return plateau_rate(s, base);
    if (s->kind == &chained_kind) {
        for (int i = 0; i < s->n_parts; i++) base = now(s->parts[i], base, t);
        return base;
    }
    if (s->kind == &sequential_kind) {
        int i = part_at(s, t);
        return now(s->parts[i], base, t - s->from[i]);
    }
    return s->kind->at(s, base, t);
}

/* Updates a plateau with a metric. */
static void look(aril_schedule *s, double metric)
{
    const aril_schedule_opts *o = &s->opts;
    double margin = o->absolute ? o->threshold : o->threshold * fabs(s->best);
    bool better = isinf(s->best) ? s->rising ? metric > s->best : metric < s->best
                  : s->rising    ? metric > s->best + margin
                                 : metric < s->best - margin;
    if (better) {
        s->best = metric;
        s->bad = 0;
    } else {
        s->bad++;
    }
    if (s->cooling > 0) {
        s->cooling--;
        s->bad = 0;
    }
    if (s->bad > o->patience) {
        s->drops++;
        s->cooling = o->cooldown;
        s->bad = 0;
    }
}

static void show(aril_schedule *s, int64_t t, double metric)
{
    if (s->kind->at == plateau_at && !isnan(metric)) look(s, metric);
    if (s->kind == &chained_kind)
        for (int i = 0; i < s->n_parts; i++) show(s->parts[i], t, metric);
    if (s->kind == &sequential_kind) {
        int i = part_at(s, t);
        show(s->parts[i], t - s->from[i], metric);
    }
}

/* Whether it, or one of its parts, moves the momentum. */
static bool has_momentum(const aril_schedule *s)
{
    bool any = moves_momentum(s);
    for (int i = 0; i < s->n_parts; i++) any |= has_momentum(s->parts[i]);
    return any;
}

/* The option of an optimizer that a schedule of the momentum moves; NULL: it has none. */
static double *momentum_option(const aril__optim_kind *kind, aril_optim_opts *o)
{
    double *found = NULL;
    for (int i = 0; kind->options[i]; i++) {
        if (strcmp(kind->options[i], "beta1") == 0) return &o->beta1;
        if (strcmp(kind->options[i], "momentum") == 0) found = &o->momentum;
    }
    return found;
}

void aril__schedules_apply_momentum(aril_optim *opt)
{
    bool moves = false;
    for (int k = 0; k < opt->n_schedules; k++) moves |= has_momentum(opt->schedules[k]);
    for (int i = 0; i < opt->n_groups && moves; i++) {
        aril__optim_group *g = &opt->groups[i];
        const double *option = momentum_option(opt->kind, &g->opts);
        if (!option) return;
        double momentum = *option;
        for (int k = 0; k < opt->n_schedules; k++)
            momentum = aril_schedule_momentum_at(opt->schedules[k], momentum, opt->schedules[k]->t);
        aril__number_set(g->momentum, momentum);
        g->moves_momentum = true;
        if (option == &g->opts.momentum && *option == 0)
            g->attrs.momentum[0] = 1; /* so that it has a slot */
    }
}

void aril__schedules_apply(aril_optim *opt)
{
    if (opt->n_schedules == 0) return;
    aril__schedules_apply_momentum(opt);
    for (int i = 0; i < opt->n_groups; i++) {
        double lr = opt->groups[i].base;
        for (int k = 0; k < opt->n_schedules; k++)
            lr = now(opt->schedules[k], lr, opt->schedules[k]->t);
        aril__number_set(opt->groups[i].lr, lr);
    }
}

void aril__schedules_advance(aril_optim *opt, bool batches, bool all, double metric)
{
    bool any = false;
    for (int k = 0; k < opt->n_schedules; k++) {
        aril_schedule *s = opt->schedules[k];
        if (!all && s->opts.per_batch != batches) continue;
        show(s, s->t, metric);
        s->t++;
        any = true;
    }
    if (any) aril__schedules_apply(opt);
}

static aril_status watch(aril_schedule *s, const char *name, bool rising)
{
    aril_status status = ARIL_OK;
    for (int i = 0; i < s->n_parts && status == ARIL_OK; i++)
        status = watch(s->parts[i], name, rising);
    if (status != ARIL_OK || s->kind->at != plateau_at) return status;
    if (s->opts.rising && !rising)
        return aril__fail(ARIL_ERR_ARG,
                          "the plateau schedule has .rising set, but monitors %s, where smaller is "
                          "better; set .schedule_monitor to the metric to monitor",
                          name);
    s->rising = rising;
    if (isinf(s->best)) s->best = rising ? -INFINITY : INFINITY;
    return ARIL_OK;
}

aril_status aril__schedules_watch(aril_optim *opt, const char *name, bool rising)
{
    aril_status status = ARIL_OK;
    for (int i = 0; i < opt->n_schedules && status == ARIL_OK; i++)
        status = watch(opt->schedules[i], name, rising);
    return status;
}

aril_status aril_optim_schedule(aril_optim *opt, aril_schedule *s)
{
    aril_schedule **grown = NULL;
    if (aril__self()->tracer) {
        aril_schedule_free(s && !s->owned ? s : NULL);
        return aril__fail(ARIL_ERR_STATE, "optim_schedule: a program would not repeat this; attach "
                                          "the schedule before the function is traced");
    }
    if (s && s->owned)
        return aril__fail(ARIL_ERR_ARG,
                          "optim_schedule: the schedule is already in use; create another one");
    if (opt && s)
        grown = aril__realloc(opt->schedules, (size_t)(opt->n_schedules + 1) * sizeof *grown);
    if (!grown) {
        aril_schedule_free(s);
        return opt && s ? aril__fail(ARIL_ERR_MEMORY, "optim_schedule: out of memory")
                        : aril__fail(ARIL_ERR_ARG, "optim_schedule: the %s is NULL",
                                     opt ? "schedule" : "optimizer");
    }
    opt->schedules = grown;
    grown[opt->n_schedules++] = s;
    s->owned = true;
    aril__schedules_apply(opt);
    return ARIL_OK;
}

static void advance_epochs(void *opt, const void *metric)
{
    aril__schedules_advance(opt, false, false, *(const double *)metric);
}

static void advance_all(void *opt, const void *metric)
{
    aril__schedules_advance(opt, false, true, *(const double *)metric);
}

/* At once, or at the end of each run of the program that is traced. */
static aril_status advance(aril_optim *opt, void (*fn)(void *opt, const void *metric),
                           double metric)
{
    if (aril__self()->tracer) return aril__optim_defer(opt, fn, &metric, sizeof metric);
    fn(opt, &metric);
    return ARIL_OK;
}

aril_status aril_optim_epoch(aril_optim *opt, double metric)
{
    if (!opt) return aril__fail(ARIL_ERR_ARG, "optim_epoch: the optimizer is NULL");
    return advance(opt, advance_epochs, metric);
}

aril_status aril_schedule_step(aril_optim *opt)
{
    if (!opt) return aril__fail(ARIL_ERR_ARG, "schedule_step: the optimizer is NULL");
    return advance(opt, advance_all, NAN);
}

bool aril__schedule_per_batch(const aril_schedule *s)
{
    return s->opts.per_batch;
}

/* ---- state ---- */

int aril__schedule_count(const aril_schedule *s)
{
    int n = ARIL__SCHEDULE_NUMBERS;
    for (int i = 0; i < s->n_parts; i++) n += aril__schedule_count(s->parts[i]);
    return n;
}

void aril__schedule_get(const aril_schedule *s, double *numbers)
{
    const double own[ARIL__SCHEDULE_NUMBERS] = { (double)s->t, (double)s->drops, (double)s->bad,
                                                 (double)s->cooling, s->best };
    memcpy(numbers, own, sizeof own);
    numbers += ARIL__SCHEDULE_NUMBERS;
    for (int i = 0; i < s->n_parts; i++) {
        aril__schedule_get(s->parts[i], numbers);
        numbers += aril__schedule_count(s->parts[i]);
    }
}

aril_status aril__schedule_check(const aril_schedule *s, const char *name, const double *numbers)
{
    aril_status status = ARIL_OK;
    for (int i = 0; i < ARIL__SCHEDULE_NUMBERS - 1 && status == ARIL_OK; i++)
        status = aril__check_count("optim_load_state", name, numbers[i]);
    if (status == ARIL_OK && isnan(numbers[ARIL__SCHEDULE_NUMBERS - 1]))
        status =
            aril__fail(ARIL_ERR_FORMAT, "optim_load_state: the best value in '%s' is NaN", name);
    numbers += ARIL__SCHEDULE_NUMBERS;
    for (int i = 0; i < s->n_parts && status == ARIL_OK; i++) {
        status = aril__schedule_check(s->parts[i], name, numbers);
        numbers += aril__schedule_count(s->parts[i]);
    }
    return status;
}

void aril__schedule_put(aril_schedule *s, const double *numbers)
{
    s->t = (int64_t)numbers[0];
    s->drops = (int64_t)numbers[1];
    s->bad = (int64_t)numbers[2];
    s->cooling = (int64_t)numbers[3];
    s->best = numbers[4];
    numbers += ARIL__SCHEDULE_NUMBERS;
    for (int i = 0; i < s->n_parts; i++) {
        aril__schedule_put(s->parts[i], numbers);
        numbers += aril__schedule_count(s->parts[i]);
    }
}
