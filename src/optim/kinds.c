/* Kinds of optimizers: their options and defaults. */
#include "optim/optim.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- options ---- */

typedef enum option_type { NUMBER, WHOLE, FLAG } option_type;

typedef struct option {
    const char *name;
    option_type type;
    size_t offset;
    bool whole; /* per optimizer, not per group */
} option;

#define O(name, type)                                       \
    {                                                       \
#name, type, offsetof(aril_optim_opts, name), false \
    }
#define W(name, type)                                      \
    {                                                      \
#name, type, offsetof(aril_optim_opts, name), true \
    }
static const option options[] = {
    O(lr, NUMBER),
    O(weight_decay, NUMBER),
    O(momentum, NUMBER),
    O(dampening, NUMBER),
    O(decay, NUMBER),
    O(beta1, NUMBER),
    O(beta2, NUMBER),
    O(eps, NUMBER),
    O(alpha, NUMBER),
    O(momentum_decay, NUMBER),
    O(initial, NUMBER),
    O(eta_minus, NUMBER),
    O(eta_plus, NUMBER),
    O(step_min, NUMBER),
    O(step_max, NUMBER),
    O(trust, NUMBER),
    O(nesterov, FLAG),
    O(amsgrad, FLAG),
    O(centered, FLAG),
    O(decoupled, FLAG),
    O(maximize, FLAG),
    W(max_iter, WHOLE),
    W(max_eval, WHOLE),
    W(history, WHOLE),
    W(tolerance_grad, NUMBER),
    W(tolerance_change, NUMBER),
    W(strong_wolfe, FLAG),
    W(clip_norm, NUMBER),
    W(clip_value, NUMBER),
    W(accumulate, WHOLE),
    W(loss_scale, NUMBER),
    W(loss_scale_growth, WHOLE),
    W(keep_grads, FLAG),
};
#undef O
#undef W
enum { OPTIONS = sizeof options / sizeof *options };

/* ---- kinds ---- */

#define COMMON \
    "clip_norm", "clip_value", "accumulate", "loss_scale", "loss_scale_growth", "keep_grads", NULL
#define OPTIONS_OF(...)                                       \
    (const char *const[])                                     \
    {                                                         \
        "lr", "weight_decay", __VA_ARGS__, "maximize", COMMON \
    }

/* In alphabetical order. */
static const aril__optim_kind kinds[] = {
    { "adadelta",
      ARIL__RULE_ADADELTA,
      OPTIONS_OF("alpha", "eps"),
      { .lr = 1, .alpha = 0.9, .eps = 1e-6 } },
    { "adagrad",
      ARIL__RULE_ADAGRAD,
      OPTIONS_OF("decay", "initial", "eps"),
      { .lr = 0.01, .eps = 1e-10 } },
    { "adam",
      ARIL__RULE_ADAM,
      OPTIONS_OF("beta1", "beta2", "eps", "amsgrad", "decoupled"),
      { .lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 } },
    { "adamax",
      ARIL__RULE_ADAMAX,
      OPTIONS_OF("beta1", "beta2", "eps"),
      { .lr = 0.002, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 } },
    { "adamw",
      ARIL__RULE_ADAM,
      OPTIONS_OF("beta1", "beta2", "eps", "amsgrad"),
      { .lr = 0.001,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .weight_decay = 0.01,
        .decoupled = true } },
    { "amsgrad",
      ARIL__RULE_ADAM,
      OPTIONS_OF("beta1", "beta2", "eps", "decoupled"),
      { .lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .amsgrad = true } },
    { "lamb",
      ARIL__RULE_LAMB,
      OPTIONS_OF("beta1", "beta2", "eps"),
      { .lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6 } },
    { "lars",
      ARIL__RULE_LARS,
      OPTIONS_OF("momentum", "trust", "eps"),
      { .lr = 0.1, .momentum = 0.9, .trust = 0.001 } },
    { "lbfgs",
      ARIL__NO_RULE,
      (const char *const[]){ "lr", "max_iter", "max_eval", "history", "tolerance_grad",
                             "tolerance_change", "strong_wolfe", NULL },
      { .lr = 1,
        .max_iter = 20,
        .history = 100,
        .tolerance_grad = 1e-7,
        .tolerance_change = 1e-9 } },
    { "lion",
      ARIL__RULE_LION,
      OPTIONS_OF("beta1", "beta2"),
      { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .decoupled = true } },
    { "nadam",
      ARIL__RULE_NADAM,
      OPTIONS_OF("beta1", "beta2", "eps", "momentum_decay", "decoupled"),
      { .lr = 0.002, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 4e-3 } },
    { "radam",
      ARIL__RULE_RADAM,
      OPTIONS_OF("beta1", "beta2", "eps", "decoupled"),
      { .lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 } },
    { "rmsprop",
      ARIL__RULE_RMSPROP,
      OPTIONS_OF("alpha", "eps", "momentum", "centered"),
      { .lr = 0.01, .alpha = 0.99, .eps = 1e-8 } },
    { "rprop",
      ARIL__RULE_RPROP,
      (const char *const[]){ "lr", "eta_minus", "eta_plus", "step_min", "step_max", "maximize",
                             COMMON },
      { .lr = 0.01, .eta_minus = 0.5, .eta_plus = 1.2, .step_min = 1e-6, .step_max = 50 } },
    { "sgd",
      ARIL__RULE_SGD,
      OPTIONS_OF("momentum", "dampening", "decay", "nesterov"),
      { .lr = 0.01 } },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const char *const *aril_optim_names(void)
{
    static const char *const names[KINDS + 1] = { "adadelta", "adagrad", "adam",  "adamax",
                                                  "adamw",    "amsgrad", "lamb",  "lars",
                                                  "lbfgs",    "lion",    "nadam", "radam",
                                                  "rmsprop",  "rprop",   "sgd",   NULL };
    return names;
}

const aril__optim_kind *aril__optim_kind_find(const char *name)
{
    for (int i = 0; i < KINDS && name; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    char near[512];
    aril__fail(ARIL_ERR_ARG, "there is no optimizer '%s'%s", name ? name : "NULL",
               aril__nearest(name ? name : "", aril_optim_names(), near, sizeof near));
    return NULL;
}

const char *const *aril_optim_option_names(const char *name)
{
    const aril__optim_kind *kind = aril__optim_kind_find(name);
    return kind ? kind->options : NULL;
}

/* ---- suggestions for misspelled names ---- */

const char *aril__nearest(const char *name, const char *const *names, char *text, size_t size)
{
    int count = 0;
    while (names[count]) count++;
    const char *near = aril_nearest(name, names, count);
    if (near) {
        snprintf(text, size, "; did you mean %s?", near);
        return text;
    }
    size_t n = (size_t)snprintf(text, size, "; there are");
    for (int i = 0; names[i] && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s %s", i ? "," : "", names[i]);
    return text;
}

/* ---- values ---- */

static bool has(const aril__optim_kind *kind, const char *name)
{
    for (int i = 0; kind->options[i]; i++)
        if (strcmp(kind->options[i], name) == 0) return true;
    return false;
}

static bool is_set(const aril_optim_opts *o, const option *at)
{
    const char *p = (const char *)o + at->offset;
    double number;
    int whole;
    bool flag;
    switch (at->type) {
    case NUMBER: memcpy(&number, p, sizeof number); return number != 0;
    case WHOLE: memcpy(&whole, p, sizeof whole); return whole != 0;
    default: memcpy(&flag, p, sizeof flag); return flag;
    }
}

static void fill(const option *at, const aril_optim_opts *given, const aril_optim_opts *usual,
                 aril_optim_opts *to)
{
    static const size_t sizes[] = {
        [NUMBER] = sizeof(double), [WHOLE] = sizeof(int), [FLAG] = sizeof(bool)
    };
    const aril_optim_opts *from = is_set(given, at) ? given : usual;
    memcpy((char *)to + at->offset, (const char *)from + at->offset, sizes[at->type]);
}

/* Replaces ARIL_ZERO by 0. */
static void settle(const option *at, aril_optim_opts *to)
{
    char *p = (char *)to + at->offset;
    double number;
    int whole;
    if (at->type == NUMBER) {
        memcpy(&number, p, sizeof number);
        if (number == ARIL_ZERO) memset(p, 0, sizeof number);
    } else if (at->type == WHOLE) {
        memcpy(&whole, p, sizeof whole);
        if (whole == ARIL_ZERO) memset(p, 0, sizeof whole);
    }
}

static aril_status check_number(const char *what, const char *name, double v, double low,
                                double below)
{
    if (v >= low && v < below) return ARIL_OK;
    if (isinf(below))
        return aril__fail(ARIL_ERR_ARG, "%s: %s is at least %g, got %g", what, name, low, v);
    return aril__fail(ARIL_ERR_ARG, "%s: %s is from %g to below %g, got %g", what, name, low, below,
                      v);
}

static aril_status check(const char *what, const aril_optim_opts *o)
{
    const struct {
        const char *name;
        double value, below;
    } numbers[] = {
        { "lr", o->lr, INFINITY },
        { "weight_decay", o->weight_decay, INFINITY },
        { "momentum", o->momentum, INFINITY },
        { "dampening", o->dampening, INFINITY },
        { "decay", o->decay, INFINITY },
        { "beta1", o->beta1, 1 },
        { "beta2", o->beta2, 1 },
        { "eps", o->eps, INFINITY },
        { "alpha", o->alpha, 1 },
        { "momentum_decay", o->momentum_decay, INFINITY },
        { "initial", o->initial, INFINITY },
        { "eta_minus", o->eta_minus, 1 },
        { "step_min", o->step_min, INFINITY },
        { "trust", o->trust, INFINITY },
        { "clip_norm", o->clip_norm, INFINITY },
        { "clip_value", o->clip_value, INFINITY },
        { "accumulate", o->accumulate, INFINITY },
        { "loss_scale", o->loss_scale, INFINITY },
        { "loss_scale_growth", o->loss_scale_growth, INFINITY },
        { "max_iter", o->max_iter, INFINITY },
        { "max_eval", o->max_eval, INFINITY },
        { "history", o->history, INFINITY },
        { "tolerance_grad", o->tolerance_grad, INFINITY },
        { "tolerance_change", o->tolerance_change, INFINITY },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        aril_status s = check_number(what, numbers[i].name, numbers[i].value, 0, numbers[i].below);
        if (s < 0) return s;
    }
    if (o->nesterov && (o->momentum == 0 || o->dampening != 0))
        return aril__fail(ARIL_ERR_ARG,
                          "%s: nesterov needs momentum, and no dampening (they are %g and %g)",
                          what, o->momentum, o->dampening);
    if (o->eta_plus != 0 && !(o->eta_plus > 1))
        return aril__fail(ARIL_ERR_ARG, "%s: eta_plus is above 1, got %g", what, o->eta_plus);
    if (o->step_max < o->step_min)
        return aril__fail(ARIL_ERR_ARG, "%s: step_min %g is above step_max %g", what, o->step_min,
                          o->step_max);
    return ARIL_OK;
}

aril_status aril__optim_resolve(const aril__optim_kind *kind, const char *what,
                                const aril_optim_opts *given, const aril_optim_opts *usual,
                                bool group, aril_optim_opts *to)
{
    *to = *usual;
    for (int i = 0; i < OPTIONS; i++) {
        const option *at = &options[i];
        if (is_set(given, at) && !has(kind, at->name)) {
            char text[512];
            return aril__fail(ARIL_ERR_ARG, "%s has no option %s%s", kind->name, at->name,
                              aril__nearest("", kind->options, text, sizeof text));
        }
        if (is_set(given, at) && group && at->whole)
            return aril__fail(ARIL_ERR_ARG,
                              "%s: %s belongs to the optimizer, not to a group; give it where the "
                              "optimizer is made",
                              what, at->name);
        fill(at, given, usual, to);
        settle(at, to);
    }
    return check(what, to);
}
