#include "backend/cpu/index/indexing.h"

#include "core/loops.h"
#include "core/parallel.h"
#include "core/vector/targets.h"

#include <stdatomic.h>
#include <string.h>

enum { GRAIN = 32 * 1024, NARROW = 64 };

/* ---- runs ---- */

#define T       uint8_t
#define NAME(x) x##_1
#include "backend/cpu/index/indexing_move.inc"
#undef T
#undef NAME
#define T       uint16_t
#define NAME(x) x##_2
#include "backend/cpu/index/indexing_move.inc"
#undef T
#undef NAME
#define T       uint32_t
#define NAME(x) x##_4
#include "backend/cpu/index/indexing_move.inc"
#undef T
#undef NAME
#define T       uint64_t
#define NAME(x) x##_8
#include "backend/cpu/index/indexing_move.inc"
#undef T
#undef NAME

#define IS_NAN(v) ((v) != (v))
#define T         float
#define NAME(x)   x##_f32
#include "backend/cpu/index/indexing_combine.inc"
#undef T
#undef NAME
#define T       double
#define NAME(x) x##_f64
#include "backend/cpu/index/indexing_combine.inc"
#undef T
#undef NAME
#undef IS_NAN
#define IS_NAN(v) false
#define T         int64_t
#define NAME(x)   x##_i64
#include "backend/cpu/index/indexing_combine.inc"
#undef T
#undef NAME
#define T       uint64_t
#define NAME(x) x##_u64
#include "backend/cpu/index/indexing_combine.inc"
#undef T
#undef NAME
#undef IS_NAN

const aril__mover *aril__mover_of(aril_dtype dtype)
{
    static const aril__mover movers[] = {
        { gather_1, scatter_1, pick_1, copy_1, compress_1, spread_1 },
        { gather_2, scatter_2, pick_2, copy_2, compress_2, spread_2 },
        { gather_4, scatter_4, pick_4, copy_4, compress_4, spread_4 },
        { gather_8, scatter_8, pick_8, copy_8, compress_8, spread_8 }
    };
    unsigned bits = aril__dtypes[dtype].bits;
    return &movers[bits == 64 ? 3 : bits / 16];
}

const aril__combiner *aril__combiner_of(aril_dtype dtype)
{
    static const aril__combiner combiners[] = { { combine_f32, add_f32 },
                                                { combine_f64, add_f64 },
                                                { combine_i64, add_i64 },
                                                { combine_u64, add_u64 } };
    ARIL_ASSERT(dtype == ARIL_F32 || dtype == ARIL_F64 || dtype == ARIL_I64 || dtype == ARIL_U64);
    return &combiners[dtype == ARIL_F32 ? 0 : dtype == ARIL_F64 ? 1 : dtype == ARIL_I64 ? 2 : 3];
}

/* ---- checks ---- */

/* Whether any index is outside [low, high), without a branch. */
#define ANY_OUTSIDE(name, target)                                                    \
    target static bool name(const int64_t *at, int64_t n, int64_t low, int64_t high) \
    {                                                                                \
        int64_t any = 0;                                                             \
        for (int64_t i = 0; i < n; i++) any |= (at[i] < low) | (at[i] >= high);      \
        return any != 0;                                                             \
    }
ANY_OUTSIDE(any_outside, )
#if ARIL__TARGETS
ANY_OUTSIDE(any_outside_avx2, ARIL__AVX2)
#endif
#undef ANY_OUTSIDE

typedef struct check_job {
    const int64_t *at;
    int64_t low, high;
    atomic_bool outside;
} check_job;

bool aril__outside(const int64_t *at, int64_t n, int64_t low, int64_t high)
{
#if ARIL__TARGETS
    if (aril__cpu() >= ARIL__CPU_AVX2) return any_outside_avx2(at, n, low, high);
#endif
    return any_outside(at, n, low, high);
}

static void check_range(void *ctx, int64_t begin, int64_t end)
{
    check_job *j = ctx;
    if (aril__outside(j->at + begin, end - begin, j->low, j->high))
        atomic_store_explicit(&j->outside, true, memory_order_relaxed);
}

static bool any_beyond(const aril_tensor *index, int64_t low, int64_t high)
{
    check_job j = { .at = aril__ptr(index), .low = low, .high = high };
    int64_t pieces = aril__parallel_pieces(index->numel, 2 * GRAIN);
    aril__parallel_for(index->numel, (index->numel - 1) / pieces + 1, check_range, &j);
    return atomic_load_explicit(&j.outside, memory_order_relaxed);
}

aril_status aril__cpu_check_indices(const char *op, const aril_tensor *index, int64_t size,
                                    int axis, bool negative)
{
    if (!any_beyond(index, negative ? -size : 0, size)) return ARIL_OK;
    return aril__check_indices(op, index, size, axis, negative); /* reports which one */
}

aril_status aril__check_and_wrap(const char *op, const aril_tensor *index, int64_t size, int axis,
                                 int64_t *wrap)
{
    *wrap = 0;
    if (aril__likely(!any_beyond(index, 0, size))) return ARIL_OK;
    *wrap = size;
    return aril__cpu_check_indices(op, index, size, axis, true);
}

typedef struct offset_job {
    int64_t *out;
    const int64_t *index;
    int64_t size, stride;
} offset_job;

static void offset_range(void *ctx, int64_t begin, int64_t end)
{
    const offset_job *j = ctx;
    for (int64_t i = begin; i < end; i++) j->out[i] += aril__wrap(j->index[i], j->size) * j->stride;
}

aril_status aril__indexing_offsets(const char *op, const aril_tensor *x, const aril__indexing *p,
                                   int n, aril_tensor *const *index, int64_t *offsets)
{
    int64_t count = aril__count(p->nb, p->dim + p->at), *out = offsets;
    if (count > 0) memset(out, 0, (size_t)count * sizeof *out);
    for (int k = 0, axis = 0; k < n; k++, axis++) {
        while (!(p->mask >> axis & 1)) axis++;
        int64_t size = x->dim[axis], stride = x->stride[axis], at = 0;
        aril_status s = aril__cpu_check_indices(op, index[k], size, axis, true);
        if (s < 0) return s;
        const int64_t *v = aril__ptr(index[k]);
        if (index[k]->numel == count || count == 0) { /* not broadcast, except over sizes of 1 */
            offset_job o = { out, v, size, stride };
            aril__parallel_for(count, GRAIN, offset_range, &o);
            continue;
        }
        aril__loops loops = aril__loops_of(p->nb, p->dim + p->at);
        aril__loops_at position;
        aril__loops_add(&loops, index[k]);
        aril__loops_seek(&loops, &position, 0, &at);
        for (; at < count; at++, aril__loops_move(&loops, &position, 1))
            out[at] += aril__wrap(v[position.offset[0]], size) * stride;
    }
    return ARIL_OK;
}

/* ---- reading ---- */

typedef struct read_job {
    aril__loops loops; /* 0: out, 1: x, 2: offsets */
    int64_t base[3];
    const aril__mover *mover;
    char *out, *x;
    const int64_t *offsets;
    int64_t bytes;
} read_job;

/* Contiguous rows, one per offset: units are rows, along the second-to-last dimension. */
#define READ_ROWS(bytes_)                       \
    for (int64_t i = 0; i < m; i++, out += row) \
        memcpy(out, x + f[i * sf] * j->bytes, (size_t)(bytes_));

static void read_rows(void *ctx, int64_t begin, int64_t end)
{
    const read_job *j = ctx;
    aril__loops n = j->loops; /* without the row itself */
    int64_t bytes = n.dim[--n.ndim] * j->bytes, sf = n.stride[2][n.ndim - 1];
    int64_t row = n.stride[0][n.ndim - 1] * j->bytes;
    aril__loops_at p;
    aril__loops_seek(&n, &p, begin, j->base);
    while (begin < end) {
        int64_t m = aril__loops_run(&n, &p);
        if (m > end - begin) m = end - begin;
        char *out = j->out + p.offset[0] * j->bytes;
        const char *x = j->x + p.offset[1] * j->bytes;
        const int64_t *f = j->offsets + p.offset[2];
        switch (bytes) { /* small constant sizes inline memcpy */
        case 4: READ_ROWS(4) break;
        case 8: READ_ROWS(8) break;
        case 16: READ_ROWS(16) break;
        case 32: READ_ROWS(32) break;
        case 64: READ_ROWS(64) break;
        default: READ_ROWS(bytes)
        }
        begin += m;
        aril__loops_move(&n, &p, m);
    }
}

static void read_range(void *ctx, int64_t begin, int64_t end)
{
    const read_job *j = ctx;
    const aril__loops *n = &j->loops;
    aril__loops_at p;
    int last = n->ndim - 1;
    int64_t step[3] = { 0, 0, 0 };
    for (int k = 0; k < 3 && last >= 0; k++) step[k] = n->stride[k][last];
    aril__loops_seek(n, &p, begin, j->base);
    while (begin < end) {
        int64_t m = aril__loops_run(n, &p);
        if (m > end - begin) m = end - begin;
        void *out = j->out + p.offset[0] * j->bytes;
        const char *x = j->x + p.offset[1] * j->bytes;
        const int64_t *f = j->offsets + p.offset[2];
        if (step[2] == 0)
            j->mover->copy(out, step[0], x + *f * j->bytes, step[1], m);
        else
            j->mover->pick(out, step[0], x, step[1], f, step[2], m);
        begin += m;
        aril__loops_move(n, &p, m);
    }
}

/* Strides of x along the kept dimensions of the result shape, 0 along the index dimensions. */
static void kept_strides(const aril_tensor *x, const aril__indexing *p, int64_t *stride)
{
    for (int d = 0, kept = 0; d < p->ndim; d++) {
        stride[d] = 0;
        if (d >= p->at && d < p->at + p->nb) continue;
        while (p->mask >> kept & 1) kept++;
        stride[d] = x->stride[kept++];
    }
}

void aril__indexing_read(aril_tensor *out, const aril_tensor *x, const aril__indexing *p,
                         const int64_t *offsets)
{
    if (out->numel == 0) return;
    read_job j = { .loops = aril__loops_of(p->ndim, p->dim),
                   .base = { out->offset, x->offset, 0 },
                   .mover = aril__mover_of((aril_dtype)x->dtype),
                   .out = aril__base(out),
                   .x = aril__base(x),
                   .offsets = offsets,
                   .bytes = aril__dtypes[x->dtype].bits / 8 };
    aril__loops_add(&j.loops, out);
    kept_strides(x, p, j.loops.stride[1]);
    aril__dense_strides(p->nb, p->dim + p->at, j.loops.stride[2] + p->at);
    j.loops.n = 3;
    aril__loops_merge(&j.loops, 0);
    int last = j.loops.ndim - 1;
    if (last > 0 && j.loops.stride[0][last] == 1 && j.loops.stride[1][last] == 1 &&
        j.loops.stride[2][last] == 0 && j.loops.stride[1][last - 1] == 0) {
        int64_t run = j.loops.dim[last];
        aril__parallel_for(out->numel / run, GRAIN / run, read_rows, &j);
        return;
    }
    aril__parallel_for(out->numel, GRAIN, read_range, &j);
}

/* ---- writing ---- */

typedef struct write_job {
    aril__loops kept; /* 0: x, 1: value */
    int64_t base[2], n, bytes;
    const aril__mover *mover;
    const aril__combiner *combiner; /* NULL: overwrite */
    char *x, *value;
    const int64_t *offsets;
    const int64_t *from; /* offsets in value, or NULL: `step` apart */
    int64_t step;
    int64_t low, high, pieces; /* range of the offsets, split among threads */
} write_job;

static void write_run(const write_job *j, const int64_t *at, int64_t sx, int64_t sv, int64_t m)
{
    for (int64_t b = 0; b < j->n; b++) {
        if (j->offsets[b] == ARIL__FETCH_SKIP) continue;
        void *x = j->x + (at[0] + j->offsets[b]) * j->bytes;
        const void *v = j->value + (at[1] + (j->from ? j->from[b] : b * j->step)) * j->bytes;
        if (j->combiner)
            j->combiner->add(x, sx, v, sv, m);
        else
            j->mover->copy(x, sx, v, sv, m);
    }
}

/* Prefetches the start of a row; the hardware prefetcher takes over from there. */
static inline void ask_for(const char *row, int64_t bytes)
{
    enum { MAX_BYTES = 1024, CACHE_LINE = 64 };
    for (int64_t i = 0; i < bytes && i < MAX_BYTES; i += CACHE_LINE) __builtin_prefetch(row + i);
}

/* Units are ranges of x, split among threads: each applies the indices that fall in its own range,
 * in order. Rows are prefetched one index ahead because they are scattered in memory. */
static void write_positions(void *ctx, int64_t begin, int64_t end)
{
    const write_job *j = ctx;
    int64_t m = j->kept.dim[0], sv = j->kept.stride[1][0], bytes = m * j->bytes;
    for (; begin < end; begin++) {
        int64_t low = j->low + (j->high - j->low) * begin / j->pieces;
        int64_t high = j->low + (j->high - j->low) * (begin + 1) / j->pieces;
        char *x = NULL;
        const char *v = NULL;
        for (int64_t b = 0; b <= j->n; b++) {
            if (b < j->n && (j->offsets[b] < low || j->offsets[b] >= high)) continue;
            char *x_next = NULL;
            const char *v_next = NULL;
            if (b < j->n) {
                x_next = j->x + (j->base[0] + j->offsets[b]) * j->bytes;
                v_next = j->value + (j->base[1] + (j->from ? j->from[b] : b * j->step)) * j->bytes;
                ask_for(x_next, bytes);
                if (sv == 1) ask_for(v_next, bytes);
            }
            if (x && j->combiner)
                j->combiner->add(x, 1, v, sv, m);
            else if (x)
                j->mover->copy(x, 1, v, sv, m);
            x = x_next;
            v = v_next;
        }
    }
}

static void write_range(void *ctx, int64_t begin, int64_t end)
{
    const write_job *j = ctx;
    const aril__loops *n = &j->kept;
    aril__loops_at p;
    int last = n->ndim - 1;
    int64_t sx = last < 0 ? 0 : n->stride[0][last], sv = last < 0 ? 0 : n->stride[1][last];
    aril__loops_seek(n, &p, begin, j->base);
    while (begin < end) {
        int64_t m = aril__loops_run(n, &p);
        if (m > end - begin) m = end - begin;
        if (sx != 1) /* the indexed axis has the smaller stride: one line at a time */
            m = 1;
        write_run(j, p.offset, sx, sv, m);
        begin += m;
        aril__loops_move(n, &p, m);
    }
}

/* Whether the positions of the loops, in logical order, are evenly spaced, *step apart. */
static bool even_steps(const aril__loops *n, int64_t *step)
{
    int64_t next = 0;
    *step = 0;
    for (int d = n->ndim - 1; d >= 0; d--) {
        if (n->dim[d] == 1) continue;
        if (next == 0)
            *step = n->stride[0][d];
        else if (n->stride[0][d] != next)
            return false;
        next = n->stride[0][d] * n->dim[d];
        if (next == 0) { /* broadcast: evenly spaced only if the outer dimensions are too */
            for (int k = d - 1; k >= 0; k--)
                if (n->dim[k] != 1 && n->stride[0][k] != 0) return false;
            return true;
        }
    }
    return true;
}

void aril__indexing_write(aril_tensor *x, const aril_tensor *value, const aril__indexing *p,
                          const int64_t *offsets, bool add, int64_t *spare)
{
    write_job j = { .base = { x->offset, value->offset },
                    .n = aril__count(p->nb, p->dim + p->at),
                    .bytes = aril__dtypes[x->dtype].bits / 8,
                    .mover = aril__mover_of((aril_dtype)x->dtype),
                    .combiner = add ? aril__combiner_of((aril_dtype)x->dtype) : NULL,
                    .x = aril__base(x),
                    .value = aril__base(value),
                    .offsets = offsets };
    if (aril__count(p->ndim, p->dim) == 0) return;
    aril__loops full = aril__loops_of(p->ndim, p->dim), picked = { .n = 1 };
    int64_t stride[ARIL_MAX_DIMS], lines = 1;
    aril__loops_add(&full, value);
    kept_strides(x, p, stride);
    j.kept.n = 2;
    for (int d = 0; d < p->ndim; d++) {
        if (d >= p->at && d < p->at + p->nb) {
            picked.dim[picked.ndim] = p->dim[d];
            picked.stride[0][picked.ndim++] = full.stride[0][d];
            continue;
        }
        lines *= p->dim[d];
        j.kept.dim[j.kept.ndim] = p->dim[d];
        j.kept.stride[0][j.kept.ndim] = stride[d];
        j.kept.stride[1][j.kept.ndim++] = full.stride[0][d];
    }
    aril__loops_merge(&j.kept, 0);
    if (!even_steps(&picked, &j.step)) {
        int64_t start = 0;
        aril__loops_at at;
        aril__loops_seek(&picked, &at, 0, &start);
        for (int64_t b = 0; b < j.n; b++, aril__loops_move(&picked, &at, 1))
            spare[b] = at.offset[0];
        j.from = spare;
    }
    /* Threads split the lines or the destinations, never the writes to one destination: each
     * element sees its values in order. */
    if (j.kept.ndim == 1 && j.kept.stride[0][0] == 1 && lines >= 16 && j.n >= 64) {
        j.low = INT64_MAX;
        j.high = INT64_MIN;
        for (int64_t b = 0; b < j.n; b++) {
            if (offsets[b] == ARIL__FETCH_SKIP) continue;
            j.low = offsets[b] < j.low ? offsets[b] : j.low;
            j.high = offsets[b] >= j.high ? offsets[b] + 1 : j.high;
        }
        j.pieces = aril__parallel_pieces(lines * j.n, GRAIN);
        if (j.high > j.low) aril__parallel_for(j.pieces, 1, write_positions, &j);
        return;
    }
    int64_t grain = GRAIN / j.n;
    aril__parallel_for(lines, grain > NARROW ? grain : NARROW, write_range, &j);
}
