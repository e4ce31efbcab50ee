/* While the recipe of a group of nodes is made: fuse_recipe.c adds elementwise steps and results,
 * fuse_rows.c what ops along rows consist of. */
#ifndef ARIL_GRAPH_FUSE_MAKER_H
#define ARIL_GRAPH_FUSE_MAKER_H

#include "graph/fuse.h"

enum { ARIL__FUSED_MADE = 3 * ARIL__FUSED_MEMBERS }; /* results of nodes: three at the most */

/* A result of a member. */
typedef struct aril__made {
    aril__value_id value;
    uint8_t step;   /* the step that computes it, or what is reduced at the end */
    uint8_t reduce; /* aril_fused_reduce, at the end of the loop */
    bool by_row;    /* has one element for each row */
    uint32_t axes;  /* of a reduction, or the last axis by rows */
    uint32_t dropped;
    uint32_t inside; /* its uses by other members */
} aril__made;

typedef struct aril__maker {
    const aril__graph *g;
    const aril__uses *uses;
    aril__fusion *to;
    aril__value_id loop; /* a value of the shape of the loop */
    int n_made;
    bool failed;
    aril__made made[ARIL__FUSED_MADE];
} aril__maker;

/* Operands. All of these set `failed` when there is no room. */
uint8_t aril__make_operand(aril__maker *m, aril__value_id v);
uint8_t aril__make_constant(aril__maker *m, const aril_fused_constant *c);

/* A new step, whose parameters the caller sets; *result: its operand. */
aril__recipe_step *aril__make_step(aril__maker *m, const aril__op *op, int n_in, const uint8_t *in,
                                   uint8_t *result);
aril__made *aril__make_result(aril__maker *m, aril__value_id v, uint8_t step);

/* The steps of an op along rows. */
void aril__make_rows(aril__maker *m, const aril__graph_node *n);

/* Notes whether the results of the node that was added last have one element for each row. */
void aril__note_by_row(aril__maker *m, const aril__graph_node *n);

#endif
