/* The element-wise rules of optimizers: tables generated from optimizers.def. */
#ifndef ARIL_OPS_UPDATE_RULES_H
#define ARIL_OPS_UPDATE_RULES_H

#include "ops/table/op.h"
#include "ops/update/each.h"
#include "ops/update/options.h"

/* The state of a parameter: the slots of its rule, and for every rule the master weights. */
enum {
    ARIL__RULE_SLOTS = 3, /* of one rule, at most */
    ARIL__MASTER_SLOT = ARIL__RULE_SLOTS,
    ARIL__UPDATE_SLOTS
};

typedef enum aril__rule {
#define RULE_ROW(name, ...) ARIL__RULE_##name,
#include "ops/update/optimizers.def"
    ARIL__RULES,
    ARIL__NO_RULE = -1, /* not element-wise */
} aril__rule;

/* Facts of rows. */
enum { QUICK = 1, NORMS = 2, OWN_DECAY = 4, NEEDS_CLOSURE = 8 };

/* ---- attributes of the ops ---- */

#define NOTHING(...)

typedef double aril__option_NUMBER;
typedef int64_t aril__option_FLAG;

struct update_attrs {
    int64_t rule[1];
    int64_t missed[1]; /* steps that these parameters did not take part in */
#define FIELD(name, type, scope, below) aril__option_##type name[1];
    OPTIM_OPTIONS(FIELD, NOTHING)
#undef FIELD
};

/* ---- constants ---- */

/* What they are computed from. */
typedef struct aril__update_values {
    double lr, t, factor;
    double momentum;                /* in place of the option momentum or beta1; NaN: none */
    double norm_p, norm_d;          /* of the parameter and of its direction; 0: none */
    double *slot[ARIL__RULE_SLOTS]; /* scalar slots, which may be written */
} aril__update_values;

/* Those of each rule: struct update_adam { double rate, ...; }. */
#define FIELD(i, constant) double FIRST(constant);
#define RULE_ROW(rule, facts, slots, let, constants, direction, formula) \
    struct update_##rule {                                               \
        EACH(FIELD, PART(constants))                                     \
    };
#include "ops/update/optimizers.def"
#undef FIELD

/* What is the same for all elements of a parameter. */
typedef struct aril__update_constants {
    bool skip;     /* a gradient overflowed: no update */
    bool plain;    /* factor, most, decay and shrink have no effect */
    double factor; /* multiplies the gradient, */
    double max;    /* whose elements are then limited to this, */
    double decay;  /* and to which this multiple of the parameter is added */
    double shrink; /* multiplies the parameter before the step */
    union {
#define RULE_ROW(rule, ...) struct update_##rule rule;
#include "ops/update/optimizers.def"
    } of;
} aril__update_constants;

/* Computes them; writes scalar slots. Once per parameter and step. */
void aril__update_constants_of(const struct update_attrs *a, const aril__update_values *v,
                               aril__update_constants *k);

/* ---- the table ---- */

typedef struct aril__rule_row {
    const char *name;
    unsigned facts;
    const char *slot[ARIL__RULE_SLOTS]; /* names of the state; NULL: no more */
    unsigned optional;                  /* 1 << i: slot i may be absent */
    unsigned scalar;                    /* 1 << i: slot i is one f64 for any parameter dtype */
    /* Whether slot i is needed with these options, and its initial value. */
    bool (*wants)(const struct update_attrs *a, int i);
    double (*initial)(const struct update_attrs *a, double lr, int i);
    void (*constants)(const struct update_attrs *a, const aril__update_values *v,
                      aril__update_constants *k);
    /* One element in double: returns the new x, and updates the slots s, or returns the direction.
     * `present` has bit i set if slot i is there. */
    double (*update)(const aril__update_constants *k, unsigned present, double x, double g,
                     double *s);
    double (*direction)(const aril__update_constants *k, unsigned present, double x, double g,
                        const double *s);
} aril__rule_row;
extern const aril__rule_row aril__rules[ARIL__RULES];

#endif
