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

/* ---- a table with the source of each position of an axis ---- */

typedef struct pad_map {
    int64_t *from[ARIL_MAX_DIMS]; /* -1: the constant */
    int64_t rows; /* of the padded tensor: the product of all dimensions before `axis` */
    int ndim;
    const aril_tensor *padded;
    const aril_tensor *x;
    int64_t bytes, batch; /* batch: rows of the padded tensor per index before the first padded
                           * axis */
    int axis;             /* a row is all positions of this axis, */
    int64_t unit;         /* each of so many bytes, which are adjacent in both tensors */
    int64_t begin, end;   /* the positions of a row whose sources are adjacent, too */
    char fill[8];         /* the constant */
    bool zeros;           /* all of its bytes are 0 */
    const aril__combiner *combiner;
} pad_map;

/* Bytes of all tables. */
static size_t map_bytes(const aril_tensor *padded)
{
    int64_t total = 0;
    for (int d = 0; d < padded->ndim; d++) total += padded->dim[d];
    return (size_t)total * sizeof(int64_t);
}

size_t aril__cpu_pad_scratch(const aril__run *r)
{
    return map_bytes(r->out[0]);
}

size_t aril__cpu_pad_grad_scratch(const aril__run *r)
{
    const struct pad_attrs *a = r->attrs;
    return a->mode[0] == ARIL_PAD_CONSTANT ? 0 : map_bytes(r->in[0]);
}

static int64_t source_of(const struct pad_attrs *a, int d, int64_t i, int64_t n)
{
    if (a->mode[0] != ARIL_PAD_CONSTANT) return aril__pad_source(i - a->before[d], n, a->mode[0]);
    return i - a->before[d] >= 0 && i - a->before[d] < n ? i - a->before[d] : -1;
}

static void make_map(pad_map *m, const struct pad_attrs *a, int64_t *at)
{
    m->rows = m->batch = 1;
    bool padded = false;
    for (int d = 0; d < m->ndim; d++) {
        m->from[d] = at;
        padded |= a->before[d] != 0 || a->after[d] != 0;
        for (int64_t i = 0; i < m->padded->dim[d]; i++) *at++ = source_of(a, d, i, m->x->dim[d]);
        if (d < m->axis) {
            m->rows *= m->padded->dim[d];
            if (padded) m->batch *= m->padded->dim[d];
        }
    }
}

/* ---- padding: rows of units ---- */

/* A row is along the innermost padded axis, or along the next one if there are few rows with large
 * units. */
static void choose_rows(pad_map *m, const struct pad_attrs *a)
{
    enum { LARGE = 16 * 1024 };
    int last = m->ndim - 1;
    while (last > 0 && a->before[last] == 0 && a->after[last] == 0) last--;
    m->unit = m->bytes;
    for (int d = last + 1; d < m->ndim; d++) m->unit *= m->x->dim[d];
    while (m->unit >= LARGE && last < m->ndim - 1) m->unit /= m->x->dim[++last];
    int64_t n = m->x->dim[last], out = m->padded->dim[last], before = a->before[last];
    m->axis = last;
    m->begin = before > 0 ? before : 0;
    m->end = before + n < out ? before + n : out;
    if (m->begin > m->end) m->begin = m->end = out;
}

/* Rows of one position of the outer axes: those with the indices [begin, end) of the axis before
 * `axis`, if there is one. `x` NULL: all are the constant. */
typedef struct pad_part {
    char *to;
    const char *x;
    int64_t begin, end;
} pad_part;

/* The source of row i of a part; NULL if it is the constant. */
static const char *row_of(const pad_map *m, const pad_part *p, int64_t i)
{
    if (!p->x || m->axis == 0) return p->x;
    int64_t from = m->from[m->axis - 1][i];
    return from < 0 ? NULL : p->x + from * m->x->stride[m->axis - 1] * m->bytes;
}

/* Rows whose units are elements of T. */
#define ROWS(T)                                                                              \
    static void rows_##T(const pad_map *m, const pad_part *p)                                \
    {                                                                                        \
        const int64_t *source = m->from[m->axis];                                            \
        int64_t n = m->padded->dim[m->axis], begin = m->begin, end = m->end;                 \
        T fill, *to = (T *)(void *)p->to;                                                    \
        memcpy(&fill, m->fill, sizeof fill);                                                 \
        for (int64_t r = p->begin; r < p->end; r++, to += n) {                               \
            const T *x = (const T *)(const void *)row_of(m, p, r);                           \
            if (!x) {                                                                        \
                for (int64_t i = 0; i < n; i++) to[i] = fill;                                \
                continue;                                                                    \
            }                                                                                \
            for (int64_t i = 0; i < begin; i++) to[i] = source[i] < 0 ? fill : x[source[i]]; \
            if (begin < end)                                                                 \
                memcpy(to + begin, x + source[begin], (size_t)(end - begin) * sizeof(T));    \
            for (int64_t i = end; i < n; i++) to[i] = source[i] < 0 ? fill : x[source[i]];   \
        }                                                                                    \
    }
ROWS(uint8_t)
ROWS(uint16_t)
ROWS(uint32_t)
ROWS(uint64_t)

/* Elements of the constant. */
static void fill_constant(const pad_map *m, char *to, int64_t bytes)
{
    for (int64_t i = 0; i < bytes && !m->zeros; i += m->bytes)
        memcpy(to + i, m->fill, (size_t)m->bytes);
    if (m->zeros) memset(to, 0, (size_t)bytes);
}

/* Rows whose units are several elements. */
static void rows_of_units(const pad_map *m, const pad_part *p)
{
    const int64_t *source = m->from[m->axis];
    int64_t n = m->padded->dim[m->axis];
    char *to = p->to;
    for (int64_t r = p->begin; r < p->end; r++) {
        const char *x = row_of(m, p, r);
        if (!x) fill_constant(m, to, n * m->unit);
        if (!x) to += n * m->unit;
        for (int64_t i = 0; i < n && x;) {
            int64_t units = i == m->begin && m->end > i ? m->end - i : 1;
            if (source[i] < 0)
                fill_constant(m, to, m->unit);
            else
                memcpy(to, x + source[i] * m->unit, (size_t)(units * m->unit));
            i += units;
            to += units * m->unit;
        }
    }
}

static void pad_rows(void *ctx, int64_t begin, int64_t end)
{
    const pad_map *m = ctx;
    void (*rows)(const pad_map *, const pad_part *) = m->unit > m->bytes ? rows_of_units
                                                      : m->bytes == 1    ? rows_uint8_t
                                                      : m->bytes == 2    ? rows_uint16_t
                                                      : m->bytes == 4    ? rows_uint32_t
                                                                         : rows_uint64_t;
    int64_t each = m->axis > 0 ? m->padded->dim[m->axis - 1] : 1;
    int64_t bytes = m->padded->dim[m->axis] * m->unit;
    for (int64_t row = begin; row < end;) {
        int64_t at = row / each, first = row % each;
        pad_part p = { .to = (char *)aril__ptr(m->padded) + row * bytes,
                       .x = aril__ptr(m->x),
                       .begin = first,
                       .end = each - first < end - row ? each : first + end - row };
        for (int d = m->axis - 2; d >= 0; d--) {
            int64_t from = m->from[d][at % m->padded->dim[d]];
            at /= m->padded->dim[d];
            p.x = from < 0 || !p.x ? NULL : p.x + from * m->x->stride[d] * m->bytes;
        }
        rows(m, &p);
        row += p.end - p.begin;
    }
}

static void make_fill(pad_map *m, double value)
{
    aril__storage one = { .data = &value, .bytes = sizeof value };
    aril__storage to = { .data = m->fill, .bytes = sizeof m->fill };
    aril_tensor from = { .dtype = ARIL_F64, .numel = 1, .storage = &one };
    aril_tensor fill = { .dtype = m->padded->dtype, .numel = 1, .storage = &to };
    aril__copy_elements(&fill, &from);
    m->zeros = true;
    for (size_t i = 0; i < sizeof m->fill; i++) m->zeros &= m->fill[i] == 0;
}

/* ---- the gradient of the other modes ---- */

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
    if (out->ndim == 0) {
        aril__copy_elements(out, r->in[0]);
        return ARIL_OK;
    }
    pad_map m = {
        .ndim = out->ndim, .padded = out, .x = r->in[0], .bytes = aril__dtypes[out->dtype].bits / 8
    };
    choose_rows(&m, a);
    make_map(&m, a, r->workspace);
    make_fill(&m, a->value[0]);
    int64_t grain = GRAIN * m.bytes / (out->dim[m.axis] * m.unit);
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
                  .axis = out->ndim - 1,
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
