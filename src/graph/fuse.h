/* Fusion: which nodes become one, and as which recipe. fuse.c finds groups of nodes, fuse_recipe.c
 * and fuse_rows.c turn a group into a fused op (ops/elementwise/fused.h). */
#ifndef ARIL_GRAPH_FUSE_H
#define ARIL_GRAPH_FUSE_H

#include "graph/graph.h"
#include "ops/elementwise/fused.h"

enum { ARIL__FUSED_MEMBERS = ARIL_FUSED_STEPS + ARIL_FUSED_OUTPUTS };

/* How often each value is used by nodes, outputs and effects, and how often only its shape. */
typedef struct aril__uses {
    uint32_t *all, *shape;
} aril__uses;
bool aril__uses_count(const aril__graph *g, aril__uses *u);
void aril__uses_free(aril__uses *u);

/* A group of nodes as a fused op. */
typedef struct aril__fusion {
    aril__recipe recipe;
    aril__value_id in[ARIL_FUSED_INPUTS];   /* its inputs, */
    aril__value_id out[ARIL_FUSED_OUTPUTS]; /* and the values that its results replace */
    int n_shapes;                           /* values of which only the shape is used outside, */
    aril__value_id shape[3 * ARIL__FUSED_MEMBERS];
    aril__value_id like[3 * ARIL__FUSED_MEMBERS]; /* and values of the same shape and dtype */
} aril__fusion;

/* The fused op of n nodes, in the order of the graph, over a loop of the shape of value `loop`;
 * false if they cannot be one. */
bool aril__fusion_of(const aril__graph *g, const aril__uses *uses, aril__value_id loop, int n,
                     const aril__node_id *members, aril__fusion *to);

/* Whether a node can be a step of a recipe, some steps along rows, or a reduction at its end. */
bool aril__is_fusible(const aril__graph *g, const aril__graph_node *n);
bool aril__is_row_op(const aril__graph *g, const aril__graph_node *n);
bool aril__is_fusible_tail(const aril__graph *g, const aril__uses *uses, const aril__graph_node *n);

/* The input of an op along rows that has the shape of the loop. */
aril__value_id aril__row_loop(const aril__graph *g, const aril__graph_node *n);

/* Whether kernels hold rows of that length; and whether a value has enough elements, where unknown
 * sizes count as 1. */
bool aril__is_row_length(int64_t n);
bool aril__has_many_rows(const aril__graph *g, aril__value_id v);

/* From how many elements ops along rows, and sums over rows on other devices, are fused, and from
 * which length of rows. On the CPU, what fits into a cache gains nothing; small networks keep the
 * bits of single ops everywhere. Tests set them. */
typedef struct aril__row_limits {
    int64_t on_cpu, elsewhere, length;
} aril__row_limits;
extern aril__row_limits aril__fuse_rows_from;

#endif
