#include "backend/cpu/index/kernels.h"

#include "backend/cpu/index/indexing.h"
#include "core/loops.h"
#include "core/parallel.h"
#include "ops/index/gather.h"
#include "ops/shape/copy.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { GRAIN = 16 * 1024, BLOCK = 2048 };

/* A 0-d tensor counts as having size 1. */
static int64_t size_along(const aril_tensor *t, int axis)
{
    return t->ndim ? t->dim[axis] : 1;
}

static int64_t stride_along(const aril_tensor *t, int axis)
{
    return t->ndim ? t->stride[axis] : 0;
}

/* ---- gather ---- */

typedef struct gather_job {
    aril__loops loops; /* 0: out, 1: index, 2: x */
    int64_t base[3], along, size, bytes;
    const aril__mover *mover;
    char *out, *x;
    const int64_t *index;
    bool checked;        /* all indices have been checked */
    atomic_bool outside; /* an index is out of range */
} gather_job;

static void gather_range(void *ctx, int64_t begin, int64_t end)
{
    gather_job *j = ctx;
    const aril__loops *n = &j->loops;
    aril__loops_at p;
    int64_t step[3] = { aril__loops_step(n, 0), aril__loops_step(n, 1), aril__loops_step(n, 2) };
    aril__loops_seek(n, &p, begin, j->base);
    while (begin < end) {
        int64_t m = aril__loops_run(n, &p);
        if (m > end - begin) m = end - begin;
        if (!j->checked) {
            m = m < BLOCK ? m : BLOCK; /* check and use them while they are in the cache */
            if (aril__outside(j->index + p.offset[1], m, -j->size, j->size)) {
                atomic_store_explicit(&j->outside, true, memory_order_relaxed);
                return;
            }
        }
        j->mover->gather(j->out + p.offset[0] * j->bytes, step[0], j->x + p.offset[2] * j->bytes,
                         step[2], j->along, j->index + p.offset[1], step[1], j->size, m);
        begin += m;
        aril__loops_move(n, &p, m);
    }
}

aril_status aril__cpu_gather(aril__run *r)
{
    const struct gather_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0], *index = r->in[1];
    aril_tensor *out = r->out[0];
    int axis = (int)a->axis[0];
    if (out->numel == 0) return ARIL_OK;
    gather_job j = { .loops = aril__loops_of(index->ndim, index->dim),
                     .base = { out->offset, 0, x->offset },
                     .along = stride_along(x, axis),
                     .size = size_along(x, axis),
                     .bytes = aril__dtypes[x->dtype].bits / 8,
                     .mover = aril__mover_of((aril_dtype)x->dtype),
                     .out = aril__base(out),
                     .x = aril__base(x),
                     .index = aril__ptr(index) };
    aril__loops_add(&j.loops, out);
    aril__loops_add(&j.loops, index);
    j.loops.n = 3;
    for (int d = 0; d < index->ndim; d++) j.loops.stride[2][d] = d == axis ? 0 : stride_along(x, d);
    aril__loops_merge(&j.loops, 0);
    int last = j.loops.ndim - 1;
    j.checked = last < 0 || j.loops.stride[1][last] != 1;
    aril_status s = ARIL_OK;
    if (j.checked) s = aril__cpu_check_indices(r->op->name, index, j.size, axis, true);
    if (s < 0) return s;
    aril__parallel_for(out->numel, GRAIN, gather_range, &j);
    if (atomic_load_explicit(&j.outside, memory_order_relaxed))
        s = aril__cpu_check_indices(r->op->name, index, j.size, axis, true); /* reports which one */
    return s;
}

/* ---- scatter ---- */

typedef struct scatter_job {
    aril__loops lines; /* all dimensions but the axis; 0: out, 1: index, 2: src */
    int64_t base[3];
    int64_t along[3]; /* strides of the axis */
    int64_t size, n, bytes;
    const aril__mover *mover;
    const aril__combiner *combiner; /* NULL: overwrite */
    aril__combine how;
    char *out, *src;
    const int64_t *index;
} scatter_job;

/* m elements of one line, or one element from each of m lines. */
static void scatter_run(const scatter_job *j, const int64_t *at, int64_t so, int64_t si, int64_t ss,
                        int64_t m)
{
    void *out = j->out + at[0] * j->bytes;
    const void *src = j->src + at[2] * j->bytes;
    const int64_t *index = j->index + at[1];
    if (j->combiner)
        j->combiner->scatter(j->how, out, so, j->along[0], index, si, j->size, src, ss, m);
    else
        j->mover->scatter(out, so, j->along[0], index, si, j->size, src, ss, m);
}

static void scatter_range(void *ctx, int64_t begin, int64_t end)
{
    const scatter_job *j = ctx;
    const aril__loops *n = &j->lines;
    aril__loops_at p;
    int64_t step[3] = { aril__loops_step(n, 0), aril__loops_step(n, 1), aril__loops_step(n, 2) };
    aril__loops_seek(n, &p, begin, j->base);
    while (begin < end) {
        int64_t m = aril__loops_run(n, &p);
        if (m > end - begin) m = end - begin;
        int64_t at[3] = { p.offset[0], p.offset[1], p.offset[2] };
        if (step[0] != 1) { /* one line at a time */
            for (int64_t k = 0; k < m; k++) {
                scatter_run(j, at, 0, j->along[1], j->along[2], j->n);
                for (int i = 0; i < 3; i++) at[i] += step[i];
            }
        } else { /* adjacent lines together */
            for (int64_t k = 0; k < j->n; k++) {
                scatter_run(j, at, step[0], step[1], step[2], m);
                at[1] += j->along[1];
                at[2] += j->along[2];
            }
        }
        begin += m;
        aril__loops_move(n, &p, m);
    }
}

/* wrap: the size along the axis if some indices are negative, else 0. */
static void scatter_to(aril_tensor *out, const aril_tensor *index, const aril_tensor *src, int axis,
                       int64_t wrap, const aril__combiner *combiner, aril__combine how)
{
    scatter_job j = { .base = { out->offset, 0, src->offset },
                      .along = { stride_along(out, axis), stride_along(index, axis),
                                 stride_along(src, axis) },
                      .size = wrap,
                      .n = size_along(index, axis),
                      .bytes = aril__dtypes[out->dtype].bits / 8,
                      .mover = aril__mover_of((aril_dtype)out->dtype),
                      .combiner = combiner,
                      .how = how,
                      .out = aril__base(out),
                      .src = aril__base(src),
                      .index = aril__ptr(index) };
    int64_t lines = 1;
    if (index->numel == 0) return;
    j.lines.n = 3;
    for (int d = 0; d < index->ndim; d++) {
        if (d == axis) continue;
        int k = j.lines.ndim++;
        lines *= j.lines.dim[k] = index->dim[d];
        j.lines.stride[0][k] = out->stride[d];
        j.lines.stride[1][k] = index->stride[d];
        j.lines.stride[2][k] = stride_along(src, d);
    }
    aril__loops_merge(&j.lines, 0);
    /* Adjacent lines share cache lines. */
    bool beside = aril__loops_step(&j.lines, 0) == 1;
    int64_t few = beside ? 16 : 1, worth = GRAIN / 2 / j.n;
    if (worth < few) worth = few;
    int64_t grain = (lines - 1) / aril__parallel_pieces(lines, worth) + 1;
    aril__parallel_for(lines, grain > few ? grain : few, scatter_range, &j);
}

static aril_status scatter_with(aril__run *r, const aril__combiner *combiner, aril__combine how)
{
    const struct scatter_attrs *a = r->attrs;
    int axis = (int)a->axis[0];
    aril_tensor *out = r->out[0];
    const aril_tensor *index = r->in[1];
    int64_t wrap;
    aril_status s = aril__check_and_wrap(r->op->name, index, size_along(out, axis), axis, &wrap);
    if (s < 0) return s;
    if (out != r->in[0]) aril__copy_elements(out, r->in[0]);
    if (combiner && a->alone[0]) { /* start from the identity element */
        static const double reals[] = { 0, 1, -INFINITY, INFINITY };
        static const int64_t integers[] = { 0, 1, INT64_MIN, INT64_MAX };
        static const uint64_t unsigneds[] = { 0, 1, 0, UINT64_MAX };
        uint64_t bits;
        if (aril__is_float((aril_dtype)out->dtype))
            aril__dtypes[out->dtype].store[ARIL__C_F64](&bits, 0, 1, &reals[how], 1);
        else if (out->dtype == ARIL_U64)
            bits = unsigneds[how];
        else
            memcpy(&bits, &integers[how], sizeof bits);
        aril__storage one = { .data = &bits, .bytes = 8 };
        aril_tensor neutral = { .dtype = out->dtype, .numel = 1, .storage = &one };
        scatter_to(out, index, &neutral, axis, wrap, NULL, how);
    }
    scatter_to(out, index, r->in[2], axis, wrap, combiner, how);
    return ARIL_OK;
}

aril_status aril__cpu_scatter(aril__run *r)
{
    return scatter_with(r, NULL, ARIL__ADD);
}

aril_status aril__cpu_scatter_add(aril__run *r)
{
    return scatter_with(r, aril__combiner_of(r->type), ARIL__ADD);
}

aril_status aril__cpu_scatter_mul(aril__run *r)
{
    return scatter_with(r, aril__combiner_of(r->type), ARIL__MUL);
}

aril_status aril__cpu_scatter_max(aril__run *r)
{
    return scatter_with(r, aril__combiner_of(r->type), ARIL__MAX);
}

aril_status aril__cpu_scatter_min(aril__run *r)
{
    return scatter_with(r, aril__combiner_of(r->type), ARIL__MIN);
}
