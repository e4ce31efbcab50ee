#include "backend/cpu/shape/pad.h"

#include "aril/index.h"
#include "backend/cpu/index/indexing.h"
#include "core/parallel.h"
#include "ops/shape/copy.h"
#include "ops/shape/pad.h"

#include <string.h>

enum { GRAIN = 16 * 1024 };

/* ---- constant ---- */

/* Restricts both headers to the part they have in common; false if it is empty. */
static bool common_part(aril_tensor *padded, aril_tensor *x, const struct pad_attrs *a)
{
    for (int d = 0; d < x->ndim; d++) {
        int64_t n = x->dim[d], before = a->before[d], after = a->after[d];
        int64_t skip = before < 0 ? -before : 0, cut = after < 0 ? -after : 0;
        int64_t size = n - skip - cut;
        if (size <= 0) return false;
        x->offset += skip * x->stride[d];
        padded->offset += (before > 0 ? before : 0) * padded->stride[d];
        x->dim[d] = padded->dim[d] = size;
    }
    x->numel = padded->numel = aril__count(x->ndim, x->dim);
    return true;
}

/* ---- the other modes: a table with the source of each position of an axis ---- */

typedef struct pad_map {
    int64_t *from[ARIL_MAX_DIMS];
    int64_t rows; /* of the padded tensor: the product of all dimensions but the last */
    int ndim;
    const aril_tensor *padded;
    const aril_tensor *x;
    int64_t bytes, batch; /* batch: rows of the padded tensor per index before the first padded
                           * axis */
    const aril__mover *mover;
    const aril__combiner *combiner;
} pad_map;

/* Bytes of all tables. */
static size_t map_bytes(const aril_tensor *padded, const struct pad_attrs *a)
{
    int64_t total = 0;
    for (int d = 0; d < padded->ndim; d++) total += padded->dim[d];
    return a->mode[0] == ARIL_PAD_CONSTANT ? 0 : (size_t)total * sizeof(int64_t);
}

size_t aril__cpu_pad_scratch(const aril__run *r)
{
    return map_bytes(r->out[0], r->attrs);
}

size_t aril__cpu_pad_grad_scratch(const aril__run *r)
{
    return map_bytes(r->in[0], r->attrs);
}

static void make_map(pad_map *m, const struct pad_attrs *a, int64_t *at)
{
    m->rows = m->batch = 1;
    bool padded = false;
    for (int d = 0; d < m->ndim; d++) {
        m->from[d] = at;
        padded |= a->before[d] != 0 || a->after[d] != 0;
        for (int64_t i = 0; i < m->padded->dim[d]; i++)
            *at++ = aril__pad_source(i - a->before[d], m->x->dim[d], a->mode[0]);
        if (d < m->ndim - 1) {
            m->rows *= m->padded->dim[d];
            if (padded) m->batch *= m->padded->dim[d];
        }
    }
}

/* The offset of the row of x that is the source of a row of the padded tensor. */
static int64_t row_source(const pad_map *m, int64_t row)
{
    int64_t offset = 0;
    for (int d = m->ndim - 2; d >= 0; d--) {
        int64_t i = row % m->padded->dim[d];
        row /= m->padded->dim[d];
        offset += m->from[d][i] * m->x->stride[d];
    }
    return offset;
}

static void pad_rows(void *ctx, int64_t begin, int64_t end)
{
    const pad_map *m = ctx;
    int last = m->ndim - 1;
    int64_t n = m->padded->dim[last];
    char *out = aril__ptr(m->padded);
    const char *x = aril__ptr(m->x);
    for (int64_t row = begin; row < end; row++)
        m->mover->pick(out + row * n * m->bytes, 1, x + row_source(m, row) * m->bytes, 0,
                       m->from[last], 1, n);
}

/* Batches do not share elements of x; within one, rows are added in order. */
static void unpad_batches(void *ctx, int64_t begin, int64_t end)
{
    const pad_map *m = ctx;
    int last = m->ndim - 1;
    int64_t n = m->padded->dim[last];
    const char *g = aril__ptr(m->padded);
    char *x = aril__ptr(m->x);
    for (int64_t row = begin * m->batch; row < end * m->batch; row++)
        m->combiner->scatter(ARIL__ADD, x + row_source(m, row) * m->bytes, 0, 1, m->from[last], 1,
                             m->x->dim[last], g + row * n * m->bytes, 1, n);
}

aril_status aril__cpu_pad(aril__run *r)
{
    const struct pad_attrs *a = r->attrs;
    aril_tensor *out = r->out[0];
    if (out->numel == 0) return ARIL_OK;
    if (a->mode[0] == ARIL_PAD_CONSTANT || out->ndim == 0) {
        double value = a->value[0];
        aril__storage one = { .data = &value, .bytes = sizeof value };
        aril_tensor fill = { .dtype = ARIL_F64, .numel = 1, .storage = &one };
        aril_tensor inner = *out, x = *r->in[0];
        aril__copy_elements(out, &fill);
        if (common_part(&inner, &x, a)) aril__copy_elements(&inner, &x);
        return ARIL_OK;
    }
    pad_map m = { .ndim = out->ndim,
                  .padded = out,
                  .x = r->in[0],
                  .bytes = aril__dtypes[out->dtype].bits / 8,
                  .mover = aril__mover_of((aril_dtype)out->dtype) };
    make_map(&m, a, r->workspace);
    int64_t grain = GRAIN / out->dim[out->ndim - 1];
    aril__parallel_for(m.rows, grain > 1 ? grain : 1, pad_rows, &m);
    return ARIL_OK;
}

aril_status aril__cpu_pad_grad(aril__run *r)
{
    const struct pad_attrs *a = r->attrs;
    aril_tensor *out = r->out[0];
    memset(aril__ptr(out), 0, aril__dtype_bytes((aril_dtype)out->dtype, out->numel));
    if (out->numel == 0 || r->in[0]->numel == 0) return ARIL_OK;
    if (a->mode[0] == ARIL_PAD_CONSTANT || out->ndim == 0) {
        aril_tensor inner = *r->in[0], x = *out;
        if (common_part(&inner, &x, a)) aril__copy_elements(&x, &inner);
        return ARIL_OK;
    }
    pad_map m = { .ndim = out->ndim,
                  .padded = r->in[0],
                  .x = out,
                  .bytes = aril__dtypes[out->dtype].bits / 8,
                  .combiner = aril__combiner_of(r->type) };
    make_map(&m, a, r->workspace);
    int64_t grain = GRAIN / (r->in[0]->numel / (m.rows / m.batch));
    aril__parallel_for(m.rows / m.batch, grain > 1 ? grain : 1, unpad_batches, &m);
    return ARIL_OK;
}

/* ---- channels-last: the same, with the axes in memory order ---- */

static const char *why_not_last(const aril__run *r)
{
    bool last = aril__is_only_channels_last(r->in[0]) && aril__is_only_channels_last(r->out[0]);
    return last && r->in[0]->numel && r->out[0]->numel ? NULL : "not channels-last";
}

const char *aril__cpu_pad_last_prepare(const aril__run *r, aril__plan *plan)
{
    plan->workspace = aril__cpu_pad_scratch(r);
    return why_not_last(r);
}

const char *aril__cpu_pad_grad_last_prepare(const aril__run *r, aril__plan *plan)
{
    plan->workspace = aril__cpu_pad_grad_scratch(r);
    return why_not_last(r);
}

/* Axis k in memory order: samples, spatial axes, channels. */
static int axis_in_memory(int k, int ndim)
{
    return k == 0 ? 0 : k == ndim - 1 ? 1 : k + 1;
}

static aril_tensor in_memory_order(const aril_tensor *t)
{
    aril_tensor to = *t;
    for (int k = 0; k < t->ndim; k++) {
        to.dim[k] = t->dim[axis_in_memory(k, t->ndim)];
        to.stride[k] = t->stride[axis_in_memory(k, t->ndim)];
    }
    return to;
}

static aril_status run_in_memory_order(aril__run *r, aril_status (*pad)(aril__run *r))
{
    const struct pad_attrs *a = r->attrs;
    struct pad_attrs moved = *a;
    int n = r->out[0]->ndim;
    for (int k = 0; k < n; k++) {
        moved.before[k] = a->before[axis_in_memory(k, n)];
        moved.after[k] = a->after[axis_in_memory(k, n)];
    }
    aril_tensor in = in_memory_order(r->in[0]), out = in_memory_order(r->out[0]);
    aril__run ordered = *r;
    ordered.attrs = &moved;
    ordered.in = (aril_tensor *[]){ &in, NULL };
    ordered.out = (aril_tensor *[]){ &out };
    return pad(&ordered);
}

aril_status aril__cpu_pad_last(aril__run *r)
{
    return run_in_memory_order(r, aril__cpu_pad);
}

aril_status aril__cpu_pad_grad_last(aril__run *r)
{
    return run_in_memory_order(r, aril__cpu_pad_grad);
}
