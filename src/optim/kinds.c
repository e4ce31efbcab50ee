/* Kinds of optimizers: their options and defaults. */
#include "optim/optim.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- options ---- */

typedef enum option_type { NUMBER, COUNT, FLAG } option_type;
typedef enum option_scope { GROUP, WHOLE } option_scope;

typedef struct option {
    const char *name;
    option_type type;
    option_scope scope;
    size_t offset;
    double below; /* values are from 0 to below this; ANY: any value */
} option;

#define ANY (-1)
#define OPTION(name, type, scope, below) \
    { #name, type, scope, offsetof(aril_optim_opts, name), below },
static const option options[] = { OPTIM_OPTIONS(OPTION, OPTION) };
enum { OPTIONS = sizeof options / sizeof *options };

/* ---- kinds: the rows of ops/update/optimizers.def, in alphabetical order ---- */

#define TEXT(i, name) #name,
#define KIND_ROW(kind, rule_, method_, doc_, facts_, options_, defaults_)  \
    { .name = #kind,                                                       \
      .doc = doc_,                                                         \
      .rule = rule_,                                                       \
      .method = method_,                                                   \
      .facts = facts_,                                                     \
      .options = (const char *const[]){ EACH(TEXT, PART(options_)) NULL }, \
      .defaults = PART(defaults_) },
static const aril__optim_kind kinds[] = {
#include "ops/update/optimizers.def"
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const char *const *aril_optim_names(void)
{
    static const char *const names[KINDS + 1] = {
#define KIND_ROW(name, ...) #name,
#include "ops/update/optimizers.def"
        NULL
    };
    return names;
}

const aril__optim_kind *aril__optim_kind_find(const char *name)
{
    for (int i = 0; i < KINDS && name; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    char near[512];
    aril__fail(ARIL_ERR_ARG, "unknown optimizer '%s'%s", name ? name : "NULL",
               aril__nearest(name ? name : "", aril_optim_names(), near, sizeof near));
    return NULL;
}

static bool has(const aril__optim_kind *kind, const char *name)
{
    for (int i = 0; kind->options[i]; i++)
        if (strcmp(kind->options[i], name) == 0) return true;
    return false;
}

aril_optim_opts aril__optim_kind_defaults(const aril__optim_kind *kind)
{
    aril_optim_opts defaults = kind->defaults;
    if (has(kind, "loss_scale_growth")) defaults.loss_scale_growth = 2000;
    return defaults;
}

const char *const *aril_optim_option_names(const char *name)
{
    const aril__optim_kind *kind = aril__optim_kind_find(name);
    return kind ? kind->options : NULL;
}

aril_optim_opts aril_optim_defaults(const char *name)
{
    const aril__optim_kind *kind = aril__optim_kind_find(name);
    return kind ? aril__optim_kind_defaults(kind) : (aril_optim_opts){ 0 };
}

const char *aril_optim_doc(const char *name)
{
    const aril__optim_kind *kind = aril__optim_kind_find(name);
    return kind ? kind->doc : NULL;
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
    size_t n = (size_t)snprintf(text, size, "; available:");
    for (int i = 0; names[i] && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s %s", i ? "," : "", names[i]);
    return text;
}

/* ---- values ---- */

/* The value as a number. */
static double value_of(const aril_optim_opts *o, const option *at)
{
    const char *p = (const char *)o + at->offset;
    double number;
    int count;
    bool flag;
    switch (at->type) {
    case NUMBER: memcpy(&number, p, sizeof number); return number;
    case COUNT: memcpy(&count, p, sizeof count); return count;
    default: memcpy(&flag, p, sizeof flag); return flag;
    }
}

static bool is_set(const aril_optim_opts *o, const option *at)
{
    return value_of(o, at) != 0;
}

/* Takes the given value, or else the default; ARIL_ZERO is 0. */
static void fill(const option *at, const aril_optim_opts *given, const aril_optim_opts *defaults,
                 aril_optim_opts *to)
{
    static const size_t sizes[] = {
        [NUMBER] = sizeof(double), [COUNT] = sizeof(int), [FLAG] = sizeof(bool)
    };
    const aril_optim_opts *from = is_set(given, at) ? given : defaults;
    char *p = (char *)to + at->offset;
    memcpy(p, (const char *)from + at->offset, sizes[at->type]);
    if (at->type != FLAG && value_of(to, at) == ARIL_ZERO) memset(p, 0, sizes[at->type]);
}

static aril_status check_range(const char *what, const option *at, double v)
{
    if (at->below == ANY || (v >= 0 && v < at->below)) return ARIL_OK;
    if (isinf(at->below))
        return aril__fail(ARIL_ERR_ARG, "%s: %s must be at least 0, got %g", what, at->name, v);
    return aril__fail(ARIL_ERR_ARG, "%s: %s must be at least 0 and below %g, got %g", what,
                      at->name, at->below, v);
}

static aril_status check(const char *what, const aril_optim_opts *o)
{
    for (int i = 0; i < OPTIONS; i++) {
        aril_status s = check_range(what, &options[i], value_of(o, &options[i]));
        if (s < 0) return s;
    }
    if (o->nesterov && (o->momentum == 0 || o->dampening != 0))
        return aril__fail(ARIL_ERR_ARG,
                          "%s: nesterov needs momentum above 0 and dampening 0, got %g and %g",
                          what, o->momentum, o->dampening);
    if (o->eta_plus != 0 && !(o->eta_plus > 1))
        return aril__fail(ARIL_ERR_ARG, "%s: eta_plus must be above 1, got %g", what, o->eta_plus);
    if (o->clip_update != 0 && !(o->clip_update >= 1))
        return aril__fail(ARIL_ERR_ARG, "%s: clip_update must be at least 1, got %g", what,
                          o->clip_update);
    if (o->loss_scale != 0 && !aril__is_loss_scale(o->loss_scale))
        return aril__fail(ARIL_ERR_ARG, "%s: loss_scale must be 2^-126 to 2^126, or 0, got %g",
                          what, o->loss_scale);
    if (o->step_max < o->step_min)
        return aril__fail(ARIL_ERR_ARG, "%s: step_min %g is above step_max %g", what, o->step_min,
                          o->step_max);
    return ARIL_OK;
}

aril_status aril__optim_resolve(const aril__optim_kind *kind, const char *what,
                                const aril_optim_opts *given, const aril_optim_opts *defaults,
                                bool group, aril_optim_opts *to)
{
    *to = *defaults;
    for (int i = 0; i < OPTIONS; i++) {
        const option *at = &options[i];
        bool changes = value_of(given, at) != value_of(defaults, at);
        if (is_set(given, at) && changes && !has(kind, at->name)) {
            char text[512];
            return aril__fail(ARIL_ERR_ARG, "%s has no option %s%s", kind->name, at->name,
                              aril__nearest("", kind->options, text, sizeof text));
        }
        if (is_set(given, at) && group && at->scope == WHOLE)
            return aril__fail(ARIL_ERR_ARG,
                              "%s: %s is an option of the optimizer, not of a group; set it when "
                              "creating the optimizer",
                              what, at->name);
        fill(at, given, defaults, to);
    }
    return check(what, to);
}

void aril__optim_attrs(const aril__optim_kind *kind, const aril_optim_opts *o,
                       struct update_attrs *a)
{
    *a = (struct update_attrs){ .rule = { kind->rule } };
#define SET(name, type, scope, below) a->name[0] = o->name;
    OPTIM_OPTIONS(SET, NOTHING)
#undef SET
}
