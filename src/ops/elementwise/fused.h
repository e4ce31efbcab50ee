/* Fused ops: several elementwise steps, reductions of rows between them, and reductions of their
 * results, as one op.
 *
 * What such an op computes is a recipe, to which its attributes point. Recipes are created by the
 * graph's pass `fuse`, never change, and are shared: equal ones are the same object. Types and
 * shapes are not part of a recipe, they follow from the inputs of each call. The form that kernels
 * read, with types, is aril_fused (aril/plugin.h). */
#ifndef ARIL_OPS_FUSED_H
#define ARIL_OPS_FUSED_H

#include "aril/plugin.h"
#include "ops/table/op.h"

typedef struct aril__recipe_step {
    /* An elementwise op; cast; sum, mean or amax over the last axis, which stays with size 1; or
     * dropout of single elements to 0, with p = { probability, scale, kept }. */
    const aril__op *op;
    uint8_t n_in;
    uint8_t in[ARIL_FUSED_OPERANDS]; /* ARIL_FUSED_STEP and so on */
    uint8_t dtype;                   /* of a cast */
    double p[3];                     /* its parameters */
} aril__recipe_step;

typedef struct aril__recipe {
    uint8_t n_in, n_constants, n_steps, n_out;
    aril_fused_constant constant[ARIL_FUSED_CONSTANTS];
    aril__recipe_step step[ARIL_FUSED_STEPS];
    aril_fused_output out[ARIL_FUSED_OUTPUTS]; /* without dtype */
    /* Set by aril__recipe_share. */
    uint64_t id, hash;
    atomic_int refs;
    struct aril__recipe *next;
} aril__recipe;

/* The address of the recipe and its id: addresses are used again, ids are not. */
#define FUSED_ATTRS(A) A(fused, I64, 1, recipe, 0, NULL) A(fused, I64, 1, id, 0, NULL)
ATTRS(fused, FUSED_ATTRS)

/* The op for that many results, 1 to ARIL_FUSED_OUTPUTS. */
const aril__op *aril__fused_op(int n_out);
bool aril__is_fused(const aril__op *op);

/* A reference to the shared recipe that equals `r`, whose unused parts must be zero. NULL with an
 * error, also if `r` is malformed. */
aril__recipe *aril__recipe_share(const aril__recipe *r);
void aril__recipe_release(aril__recipe *r);

struct fused_attrs aril__fused_attrs(const aril__recipe *r);
const aril__recipe *aril__fused_recipe(const void *attrs);

/* host->fused of plug-ins: what a run computes. */
bool aril__fused_of(const aril__run *r, aril_fused *to);

#endif
