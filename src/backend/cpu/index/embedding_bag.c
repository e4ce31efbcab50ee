#include "ops/index/embedding_bag.h"

#include "backend/cpu/index/kernels.h"
#include "core/parallel.h"

#include <string.h>

enum { BLOCK = 64, GRAIN = 16 * 1024, AHEAD = 24 /* entries whose rows are requested early */ };

typedef struct bag_job {
    const void *weight, *scale, *g;
    const int64_t *index;
    const int64_t *start; /* of aril__bags */
    const double *count;
    void *out, *present;
    int64_t bags, rows, width, padding;
    bool mean;
} bag_job;

#define TEMPLATE "backend/cpu/index/embedding_bag.inc"
#include "core/vector/each_target.inc"

typedef enum bag_kernel { SUMS, SPREAD, DOTS, ARGMAX } bag_kernel;

/* Columns of a piece: whole cache lines of each row, since every piece reads all indices. */
static int64_t columns_of(const bag_job *j, int64_t entries, bool wide)
{
    int64_t line = wide ? 8 : 16,
            pieces = aril__parallel_pieces((j->rows + entries) * j->width, GRAIN);
    int64_t columns = (j->width + pieces - 1) / pieces;
    return (columns + line - 1) / line * line;
}

static aril_status run_bag(aril__run *r, bag_kernel kind, const aril_tensor *g,
                           const aril_tensor *weight, const aril_tensor *index,
                           const aril_tensor *offsets, const aril_tensor *scale)
{
    bool wide = r->type == ARIL_F64;
    aril__range_fn *const kernel[] = { [SUMS] = ARIL__PICK(bag_sums, wide),
                                       [SPREAD] = ARIL__PICK(bag_spread, wide),
                                       [DOTS] = ARIL__PICK(bag_dots, wide),
                                       [ARGMAX] = ARIL__PICK(bag_argmax, wide) };
    const struct bag_attrs *at = r->attrs;
    bag_job j = { .weight = kind == SPREAD ? NULL : aril__ptr(weight),
                  .scale = scale ? aril__ptr(scale) : NULL,
                  .g = g ? aril__ptr(g) : NULL,
                  .index = aril__ptr(index),
                  .out = aril__ptr(r->out[0]),
                  .present = kind == ARGMAX ? aril__ptr(r->out[1]) : NULL,
                  .rows = weight->dim[0],
                  .width = weight->dim[1],
                  .padding = at->padding[0],
                  .mean = at->mean[0] };
    aril__bags bags;
    aril_status s = aril__bags_find(r, index, offsets, weight->dim[0], &bags);
    j.bags = bags.n;
    j.start = bags.start;
    j.count = bags.count;
    if (s == ARIL_OK) {
        if (kind == DOTS) /* entries outside every bag */
            for (int64_t i = 0; i < index->numel; i++)
                aril__dtypes[r->type].store[ARIL__C_F64](j.out, i, 1, &(double){ 0 }, 1);
        /* Split by columns where bags write to the same rows, else by bags. */
        int64_t n = kind == SPREAD ? j.width : j.bags;
        int64_t each = j.width * (index->numel / (j.bags ? j.bags : 1) + 1);
        int64_t grain =
            kind == SPREAD ? columns_of(&j, index->numel, wide) : GRAIN / (each > 0 ? each : 1);
        aril__parallel_for(n, grain > 1 ? grain : 1, kernel[kind], &j);
    }
    return s;
}

aril_status aril__cpu_embedding_bag(aril__run *r)
{
    return run_bag(r, SUMS, NULL, r->in[0], r->in[1], r->in[2], r->in[3]);
}

aril_status aril__cpu_embedding_bag_grad(aril__run *r)
{
    return run_bag(r, SPREAD, r->in[0], r->in[4], r->in[1], r->in[2], r->in[3]);
}

aril_status aril__cpu_embedding_bag_scale_grad(aril__run *r)
{
    return run_bag(r, DOTS, r->in[0], r->in[1], r->in[2], r->in[3], NULL);
}

aril_status aril__cpu_embedding_bag_argmax(aril__run *r)
{
    return run_bag(r, ARGMAX, NULL, r->in[0], r->in[1], r->in[2], NULL);
}
