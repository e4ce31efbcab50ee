/* Formulas of elementwise ops as text and as small programs.
 *
 * The text of a formula comes from elementwise.def. Parsing it shows which values a derivative
 * needs, and lets it run in public ops: that is how an elementwise gradient is differentiated
 * again. */
#ifndef ARIL_OPS_FORMULA_H
#define ARIL_OPS_FORMULA_H

#include "ops/table/op.h"

typedef enum aril__ew_rule {
    ARIL__EW_REAL,
    ARIL__EW_NUM,
    ARIL__EW_NUMX,
    ARIL__EW_INT,
    ARIL__EW_INTX,
    ARIL__EW_CMP,
    ARIL__EW_FLT,
    ARIL__EW_SEL
} aril__ew_rule;

typedef enum aril__ew_domain {
    ARIL__EW_ANY,
    ARIL__EW_POS,     /* (0.2, 3) */
    ARIL__EW_UNIT,    /* (-0.9, 0.9) */
    ARIL__EW_PROB,    /* (0.1, 0.9) */
    ARIL__EW_GE1,     /* (1.1, 4) */
    ARIL__EW_NONZERO, /* away from 0, either sign */
    ARIL__EW_KINK,    /* away from 0 and from small integers */
    ARIL__EW_ORDER    /* (1.1, 4); the first input counts as a constant */
} aril__ew_domain;

enum { ARIL__EW_PARAMS = 3 };

/* Attributes of every elementwise op: its parameters. */
struct ew_attrs {
    double p[ARIL__EW_PARAMS];
};

struct aril__formula {
    uint16_t number; /* ARIL__FORMULA_...: finds its kernels */
    uint8_t arity;
    uint8_t rule;
    uint8_t domain;
    bool is_grad;       /* inputs are g, then the op's own, then y */
    const char *params; /* "alpha": names of p0, p1, p2; NULL if there are none */
    const char *text;
    const char *grad[3]; /* derivatives; NULL in a gradient op */
    const aril__op *grad_op[3];
    const aril__op *grad_of; /* of a gradient op: whose gradient it is, and of which input */
    uint8_t grad_input;
};

/* Variables of a formula, in the order in which programs number them. */
enum { ARIL__VAR_A, ARIL__VAR_B, ARIL__VAR_C, ARIL__VAR_Y, ARIL__VAR_G, ARIL__VAR_COUNT };

typedef struct aril__formula_code aril__formula_code;

/* How a derivative is best computed. */
typedef enum aril__shortcut {
    ARIL__USE_OP,   /* by its one-pass gradient op */
    ARIL__IS_G,     /* it is g itself */
    ARIL__IS_ZERO,  /* 0 everywhere */
    ARIL__IS_ONE_OP /* it is a single public op */
} aril__shortcut;

/* Parsed derivatives of an op; NULL if there is none. Created by aril__formulas_start. */
typedef struct aril__derivative {
    aril__formula_code *program;
    aril__shortcut shortcut;
    uint32_t saves; /* IN and OUT masks of what it reads */
} aril__derivative;

const aril__derivative *aril__derivatives(const aril__op *op); /* array of `arity` */

/* Parses all derivatives and looks up all functions; an error means that elementwise.def is
 * malformed. */
aril_status aril__formulas_start(void);
void aril__formulas_shutdown(void);

/* What follows from the functions that an elementwise op's formula calls: whether it is
 * memory-bound, since each of them takes an instruction or two; and whether it may fail midway when
 * it computes in integers, with part of the result written. */
bool aril__formula_is_quick(const aril__op *op);
bool aril__formula_may_fail(const aril__op *op);

/* Evaluates a parsed formula in public ops. */
aril_tensor *aril__program_eval(const aril__formula_code *p,
                                aril_tensor *const var[ARIL__VAR_COUNT], const double *params);

/* Marks a value that was computed from host numbers alone, whose flags are given, as one: so it
 * joins tensors of any device too. */
aril_tensor *aril__as_number(aril_tensor *y, unsigned flags);

/* Parses any formula text: for tests. Free with aril__program_free. NULL without an error when
 * malformed, with one when out of memory. */
aril__formula_code *aril__program_parse(const char *text);
void aril__program_free(aril__formula_code *p);

#endif
