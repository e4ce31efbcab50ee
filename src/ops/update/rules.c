#include "ops/update/rules.h"

#include <math.h>
#include <string.h>

/* ---- slots and constants ---- */

#define UPDATE_FUNCTION static
#include "ops/update/constants.inc"

#define WANTS(i, slot) BY_KIND(WANTS, i, slot)
#define WANTS_SLOT(i, name, value) \
    if (number == (i)) return true;
#define WANTS_OPTIONAL(i, name, value, option) \
    if (number == (i)) return option != 0;
#define WANTS_SCALAR(i, name, value) \
    if (number == (i)) return true;
#define WANTS_NONE(i, ...)

#define INITIAL(i, slot) BY_KIND(INITIAL, i, slot)
#define INITIAL_SLOT(i, name, value) \
    if (number == (i)) return value;
#define INITIAL_OPTIONAL(i, name, value, option) \
    if (number == (i)) return value;
#define INITIAL_SCALAR(i, name, value) \
    if (number == (i)) return value;
#define INITIAL_NONE(i, ...)

#define RULE_ROW(rule, facts, slots, let, constants, direction, formula)              \
    static bool rule##_wants(const struct update_attrs *a, int number)                \
    {                                                                                 \
        OPTIM_OPTIONS(DECLARE, NOTHING)                                               \
        (void)number;                                                                 \
        EACH(WANTS, PART(slots))                                                      \
        return false;                                                                 \
    }                                                                                 \
                                                                                      \
    static double rule##_initial(const struct update_attrs *a, double lr, int number) \
    {                                                                                 \
        OPTIM_OPTIONS(DECLARE, NOTHING)                                               \
        (void)lr, (void)number;                                                       \
        EACH(INITIAL, PART(slots))                                                    \
        return 0;                                                                     \
    }
#include "ops/update/optimizers.def"

/* ---- formulas: one element, in double ---- */

#define T      double
#define k_sqrt sqrt
#define k_abs  fabs

#define CONSTANT(i, constant)                     \
    const T FIRST(constant) = k->FIRST(constant); \
    (void)FIRST(constant);

#define READ(i, slot) BY_KIND(READ, i, slot)
#define READ_SLOT(i, name, value) \
    T name = s[i];                \
    (void)name;
#define READ_OPTIONAL(i, name, value, option) \
    const bool has_##name = present >> i & 1; \
    (void)has_##name;                         \
    T name = s[i];                            \
    (void)name;
#define READ_SCALAR(i, ...)
#define READ_NONE(i, ...)

#define WRITE(i, slot)                         BY_KIND(WRITE, i, slot)
#define WRITE_SLOT(i, name, value)             s[i] = name;
#define WRITE_OPTIONAL(i, name, value, option) s[i] = name;
#define WRITE_SCALAR(i, ...)
#define WRITE_NONE(i, ...)

#define RULE_ROW(rule, facts, slots, let, constants, direction, formula)                          \
    static double rule##_update(const aril__update_constants *all, unsigned present, double x,    \
                                double g, double *s)                                              \
    {                                                                                             \
        const struct update_##rule *k = &all->of.rule;                                            \
        EACH(CONSTANT, PART(constants))                                                           \
        EACH(READ, PART(slots))                                                                   \
        (void)present, (void)g, (void)s;                                                          \
        PART(formula)                                                                             \
        EACH(WRITE, PART(slots))                                                                  \
        return x;                                                                                 \
    }                                                                                             \
                                                                                                  \
    static double rule##_direction(const aril__update_constants *all, unsigned present, double x, \
                                   double g, const double *s)                                     \
    {                                                                                             \
        const struct update_##rule *k = &all->of.rule;                                            \
        T d = 0;                                                                                  \
        EACH(CONSTANT, PART(constants))                                                           \
        EACH(READ, PART(slots))                                                                   \
        (void)present, (void)x, (void)g, (void)s;                                                 \
        PART(direction)                                                                           \
        return d;                                                                                 \
    }
#include "ops/update/optimizers.def"

/* ---- the table ---- */

#define NAME(i, slot)                         BY_KIND(NAME, i, slot)
#define NAME_SLOT(i, name, value)             #name,
#define NAME_OPTIONAL(i, name, value, option) #name,
#define NAME_SCALAR(i, name, value)           #name,
#define NAME_NONE(i, ...)                     NULL

#define IS_OPTIONAL(i, slot) BY_KIND(IS_OPTIONAL, i, slot)
#define IS_OPTIONAL_SLOT(i, ...)
#define IS_OPTIONAL_OPTIONAL(i, ...) | 1u << i
#define IS_OPTIONAL_SCALAR(i, ...)
#define IS_OPTIONAL_NONE(i, ...)

#define IS_SCALAR(i, slot) BY_KIND(IS_SCALAR, i, slot)
#define IS_SCALAR_SLOT(i, ...)
#define IS_SCALAR_OPTIONAL(i, ...)
#define IS_SCALAR_SCALAR(i, ...) | 1u << i
#define IS_SCALAR_NONE(i, ...)

const aril__rule_row aril__rules[ARIL__RULES] = {
#define RULE_ROW(rule, rule_facts, slots, let, consts, dir, formula) \
    { .name = #rule,                                                 \
      .facts = rule_facts,                                           \
      .slot = { EACH(NAME, PART(slots)) },                           \
      .optional = 0 EACH(IS_OPTIONAL, PART(slots)),                  \
      .scalar = 0 EACH(IS_SCALAR, PART(slots)),                      \
      .wants = rule##_wants,                                         \
      .initial = rule##_initial,                                     \
      .constants = rule##_constants,                                 \
      .update = rule##_update,                                       \
      .direction = rule##_direction },
#include "ops/update/optimizers.def"
};

/* ---- constants that all rules share ---- */

void aril__update_constants_of(const struct update_attrs *a, const aril__update_values *v,
                               aril__update_constants *k)
{
    const aril__rule_row *rule = &aril__rules[a->rule[0]];
    memset(k, 0, sizeof *k);
    shared_constants(a, v, rule->facts, k);
    if (k->skip) return;
    if (isnan(v->momentum)) {
        rule->constants(a, v, k);
        return;
    }
    struct update_attrs with = *a; /* no rule reads both */
    with.momentum[0] = with.beta1[0] = v->momentum;
    rule->constants(&with, v, k);
}
