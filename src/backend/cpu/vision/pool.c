#include "backend/cpu/vision/pool.h"

#include "aril/create.h"
#include "core/parallel.h"
#include "ops/shape/copy.h"
#include "core/vector/targets.h"
#include "ops/vision/pool.h"

#include <inttypes.h>
#include <math.h>
#include <limits.h>
#include <string.h>

typedef aril__taps taps;

/* The windows [begin, end) that may contain an element. */
typedef struct cover {
    int64_t begin, end;
} cover;

/* One run: x is the larger side, y the pooled one, both padded to three spatial dimensions (missing
 * ones come first, with size 1). */
typedef struct pool {
    int64_t x_dim[5], y_dim[5];
    int64_t x_stride[5], y_stride[5], index_stride[5];
    aril_dtype type;
    bool staged; /* f16 or bf16: computed in f32 */
    bool adaptive, include_pad;
    bool assign;      /* scatter: the last write wins */
    bool even;        /* spatial element i of x is at i * x_stride[4] */
    bool by_channel;  /* lanes are channels, else positions of a row of y */
    bool by_position; /* lines are single positions: there are few, with many channels */
    int64_t divisor;
    int64_t max_taps; /* maximum per window */
    taps *at[3];      /* per element of y */
    cover *over[3];   /* per element of x */
    const aril__slide *window;
    void *x, *y;
    int64_t *index;
    int64_t block;       /* channels per scatter unit */
    int64_t size[3];     /* of adjacent, non-overlapping windows, if scattering tries that first */
    _Atomic bool apart;  /* an index is outside such a window */
    _Atomic int64_t bad; /* an index out of range, */
    _Atomic bool found;  /* if there is one */
    char *scratch;       /* sums of a unit, `each` bytes for each slot */
    size_t each;
} pool;

enum {
    LANES = 512,  /* results processed at a time */
    SHORT = 4,    /* positions of a row that are computed together */
    LISTED = 128, /* maximum taps in a tap_list */
    GRAIN = 16 * 1024,
    LONG_RUN = 4096, /* elements whose maximum is found, and then searched, in L1 */
    RUN_FROM = 32,   /* elements of a window whose maximum is found in vectors */
    VECTOR_MAX = 16, /* elements of the longest vector */
    LINE = 16,       /* channels per cache line */
};

static int64_t divisor_of(const pool *p, const taps *a, const taps *b, const taps *c)
{
    if (p->divisor) return p->divisor;
    return p->include_pad ? a->counted * b->counted * c->counted : a->n * b->n * c->n;
}

static int64_t spatial_offset(const pool *p, int64_t at)
{
    if (p->even) return at * p->x_stride[4];
    const int64_t *dim = p->x_dim, *stride = p->x_stride;
    return at % dim[4] * stride[4] + at / dim[4] % dim[3] * stride[3] +
           at / (dim[4] * dim[3]) * stride[2];
}

static void note_bad(pool *p, int64_t index)
{
    p->bad = index;
    p->found = true;
}

/* The positions [*begin, *end) of a row of y whose k-th tap is inside x; returns the element read
 * by the first. */
static int64_t lanes_of(const aril__slide *w, int64_t k, int64_t in, int64_t out, int64_t *begin,
                        int64_t *end)
{
    int64_t from = k * w->dilation - w->begin; /* for position 0 */
    *begin = from < 0 ? (-from + w->stride - 1) / w->stride : 0;
    *end = in > from ? (in - from + w->stride - 1) / w->stride : 0;
    if (*end > out) *end = out;
    return from + *begin * w->stride;
}

/* The taps [*begin, *end) that are inside x at one of the positions [from, from + n) at least: a
 * kernel may be much larger than x. */
static void taps_inside(const aril__slide *w, int64_t in, int64_t from, int64_t n, int64_t *begin,
                        int64_t *end)
{
    int64_t first = from * w->stride - w->begin, last = first + (n - 1) * w->stride;
    *begin = last < 0 ? (-last + w->dilation - 1) / w->dilation : 0;
    *end = in > first ? (in - first + w->dilation - 1) / w->dilation : 0;
    if (*end > w->kernel) *end = w->kernel;
}

/* The taps of one position: the offset of each from the first element of its channel, and its
 * index. */
typedef struct tap_list {
    int n;
    int64_t row, first, along; /* of the listed position */
    int64_t offset[LISTED], index[LISTED];
} tap_list;

static void list_taps(const pool *p, const int64_t *o, tap_list *t)
{
    const taps *t0 = &p->at[0][o[2]], *t1 = &p->at[1][o[3]], *t2 = &p->at[2][o[4]];
    t->n = 0;
    t->row = o[2] * p->y_dim[3] + o[3];
    t->first = t2->first;
    t->along = t2->n;
    for (int64_t a = 0, i0 = t0->first; a < t0->n; a++, i0 += t0->step)
        for (int64_t b = 0, i1 = t1->first; b < t1->n; b++, i1 += t1->step)
            for (int64_t e = 0, i2 = t2->first; e < t2->n; e++, i2 += t2->step) {
                t->offset[t->n] = i0 * p->x_stride[2] + i1 * p->x_stride[3] + i2 * p->x_stride[4];
                t->index[t->n++] = (i0 * p->x_dim[3] + i1) * p->x_dim[4] + i2;
            }
}

/* Integers as wide as lanes of T, to count elements. */
typedef int32_t lane_indexf;
typedef int64_t lane_index;

#define LOWEST          (-INFINITY)
#define IS_NAN(v)       ((v) != (v))
#define BETTER(v, best) (~((v) <= (best)) & ((best) == (best))) /* NaN beats all but NaN */
#define FLOATING
#define TEMPLATE "backend/cpu/vision/pool.inc"
#include "core/vector/each_target.inc"
#undef LOWEST
#undef IS_NAN
#undef BETTER
#undef FLOATING

#define TARGET
#define T               int64_t
#define NAME(x)         x##_i64
#define M(fn)           fn
#define VECTOR          16
#define LOWEST          INT64_MIN
#define IS_NAN(v)       0
#define BETTER(v, best) ((v) > (best))
#include "backend/cpu/vision/pool.inc"
#undef TARGET
#undef T
#undef NAME
#undef M
#undef VECTOR
#undef LOWEST
#undef IS_NAN
#undef BETTER

#define RUN(p, fn) ((p)->type == ARIL_I64 ? fn##_i64 : ARIL__PICK(fn, (p)->type == ARIL_F64))

/* ---- description ---- */

static void spread(const aril_tensor *t, int64_t *dim, int64_t *stride)
{
    int lead = 5 - t->ndim;
    for (int i = 0; i < 5; i++) {
        int from = i < 2 ? i : i - lead;
        bool there = i < 2 || i >= 2 + lead;
        if (dim) dim[i] = there ? t->dim[from] : 1;
        stride[i] = there ? t->stride[from] : 0;
    }
}

static taps taps_at(const pool *p, int i, int64_t o)
{
    return aril__pool_taps(p->adaptive ? NULL : &p->window[i], p->x_dim[2 + i], p->y_dim[2 + i], o);
}

static void describe(pool *p, const aril__run *r, const aril_tensor *x, const aril_tensor *y,
                     const aril_tensor *index)
{
    memset(p, 0, sizeof *p);
    spread(x, p->x_dim, p->x_stride);
    spread(y, p->y_dim, p->y_stride);
    /* The stride of a dimension of size 1 is arbitrary. */
    if (p->x_dim[4] == 1 && p->x_dim[3] > 1) p->x_stride[4] = p->x_stride[3];
    if (index) {
        spread(index, NULL, p->index_stride);
        p->index = aril__ptr(index);
    }
    /* If channels and samples are adjacent, treat them all as channels of one sample. */
    if (aril__is_samples_last(x) && aril__is_samples_last(y) &&
        (!index || aril__is_samples_last(index))) {
        p->x_dim[1] = p->y_dim[1] = x->dim[0] * x->dim[1];
        p->x_dim[0] = p->y_dim[0] = 1;
        p->x_stride[1] = p->y_stride[1] = p->index_stride[1] = 1;
    }
    p->even = (p->x_dim[3] == 1 || p->x_stride[3] == p->x_dim[4] * p->x_stride[4]) &&
              (p->x_dim[2] == 1 || p->x_stride[2] == p->x_dim[3] * p->x_dim[4] * p->x_stride[4]);
    p->by_channel = p->x_dim[1] > 1 && p->x_stride[1] == 1;
    p->type = r->type;
    p->staged = r->type == ARIL_F16 || r->type == ARIL_BF16;
    p->x = aril__ptr(x);
    p->y = aril__ptr(y);
    p->found = false;
}

/* Bytes of the tables for x and y. */
static size_t table_bytes(const aril_tensor *x, const aril_tensor *y)
{
    size_t bytes = 0;
    for (int i = 2; i < 5; i++) { /* missing dimensions have size 1 */
        bytes += (size_t)(i < y->ndim ? y->dim[i] : 1) * sizeof(taps);
        bytes += (size_t)(i < x->ndim ? x->dim[i] : 1) * sizeof(cover);
    }
    return (bytes + 63) / 64 * 64;
}

size_t aril__cpu_pool_scratch(const aril__run *r)
{
    return table_bytes(r->in[0], r->out[0]);
}

/* Creates the tables of windows, and of which windows contain an element, in the workspace. */
static void make_tables(pool *p, const aril__run *r, aril__slide *window, bool adaptive)
{
    const struct pool_attrs *a = r->attrs;
    int lead = 5 - r->in[0]->ndim;
    for (int i = 0; i < 3; i++) {
        window[i] = (aril__slide){ .kernel = 1, .stride = 1, .dilation = 1 };
        if (i >= lead) window[i] = aril__pool_window(a, i - lead, p->x_dim[2 + i]);
    }
    p->window = window;
    p->adaptive = adaptive;
    p->include_pad = a->include_pad[0];
    p->divisor = a->divisor[0];
    char *at = r->workspace;
    p->max_taps = 1;
    for (int i = 0; i < 3; i++) {
        int64_t in = p->x_dim[2 + i], out = p->y_dim[2 + i], max = 0;
        p->at[i] = (taps *)(void *)at;
        at += (size_t)out * sizeof(taps);
        p->over[i] = (cover *)(void *)at;
        at += (size_t)in * sizeof(cover);
        for (int64_t k = 0; k < in; k++) p->over[i][k] = (cover){ out, 0 };
        for (int64_t o = 0; o < out; o++) {
            taps t = p->at[i][o] = taps_at(p, i, o);
            max = t.n > max ? t.n : max;
            for (int64_t k = 0; k < t.n; k++) {
                cover *c = &p->over[i][t.first + k * t.step];
                if (o < c->begin) c->begin = o;
                if (o + 1 > c->end) c->end = o + 1;
            }
        }
        p->max_taps *= max;
    }
}

static aril_status bad_index(const aril__run *r, const pool *p)
{
    if (!p->found) return ARIL_OK;
    return aril__fail(ARIL_ERR_INDEX,
                      "%s: index %" PRId64 " is out of range for %" PRId64 " elements", r->op->name,
                      (int64_t)p->bad, p->x_dim[2] * p->x_dim[3] * p->x_dim[4]);
}

static int64_t grain(int64_t work)
{
    return work >= GRAIN ? 1 : GRAIN / (work > 0 ? work : 1);
}

/* ---- runs ---- */

/* Lines of y: all channels of a row, or a row of one channel. */
static void run_lines(pool *p, aril__range_fn *fn, const int64_t *dim, int64_t taps_each)
{
    int64_t lines = dim[0] * dim[2] * dim[3] * (p->by_channel ? 1 : dim[1]);
    int64_t work = dim[4] * (p->by_channel ? dim[1] : 1) * (taps_each > 0 ? taps_each : 1);
    if (p->by_position) {
        lines *= dim[4];
        work /= dim[4];
    }
    aril__parallel_for(lines, grain(work / 2), fn, p);
}

aril_status aril__cpu_max_pool(aril__run *r)
{
    pool p;
    aril__slide window[3];
    describe(&p, r, r->in[0], r->out[0], r->out[1]);
    make_tables(&p, r, window, aril__pool_is_adaptive(r->op));
    p.by_position = p.by_channel && p.x_dim[0] == 1;
    if (r->out[0]->numel) run_lines(&p, RUN(&p, max_lines), p.y_dim, p.max_taps);
    return ARIL_OK;
}

aril_status aril__cpu_avg_pool(aril__run *r)
{
    pool p;
    aril__slide window[3];
    describe(&p, r, r->in[0], r->out[0], NULL);
    make_tables(&p, r, window, aril__pool_is_adaptive(r->op));
    if (r->out[0]->numel)
        run_lines(&p, ARIL__PICK(average_lines, p.type == ARIL_F64), p.y_dim, p.max_taps);
    return ARIL_OK;
}

static int64_t area_of(const pool *p)
{
    return p->x_dim[2] * p->x_dim[3] * p->x_dim[4];
}

static size_t bytes_of(const pool *p, int64_t elements)
{
    size_t size = p->type == ARIL_F64 || p->type == ARIL_I64 ? sizeof(double) : sizeof(float);
    return ((size_t)elements * size + 63) / 64 * 64;
}

/* How many slots for sums fit into the workspace from p->scratch on. */
static int slots_in(const aril__run *r, const pool *p)
{
    size_t left = r->workspace_bytes - (size_t)(p->scratch - (char *)r->workspace);
    return p->each ? (int)(left / p->each) : INT_MAX;
}

/* The sums of a plane of the gradient, unless they are computed in place. */
static size_t plane_bytes(const pool *p)
{
    bool direct = !p->staged && p->even && p->x_stride[4] == 1;
    return p->by_channel || direct ? 0 : bytes_of(p, area_of(p));
}

size_t aril__cpu_avg_pool_grad_scratch(const aril__run *r)
{
    pool p;
    if (r->out[0]->numel == 0) return 0;
    describe(&p, r, r->out[0], r->in[0], NULL);
    return table_bytes(r->out[0], r->in[0]) +
           (size_t)aril__parallel_slots(p.x_dim[0] * p.x_dim[1], grain(area_of(&p))) *
               plane_bytes(&p);
}

aril_status aril__cpu_avg_pool_grad(aril__run *r)
{
    pool p;
    aril__slide window[3];
    describe(&p, r, r->out[0], r->in[0], NULL);
    if (r->out[0]->numel == 0) return ARIL_OK;
    make_tables(&p, r, window, aril__pool_is_adaptive(r->op));
    p.scratch = (char *)r->workspace + table_bytes(r->out[0], r->in[0]);
    p.each = plane_bytes(&p);
    if (p.by_channel)
        run_lines(&p, ARIL__PICK(average_back_lines, p.type == ARIL_F64), p.x_dim, 2);
    else
        aril__parallel_for_slots(p.x_dim[0] * p.x_dim[1], grain(area_of(&p)), slots_in(r, &p),
                                 ARIL__PICK(average_back_planes, p.type == ARIL_F64), &p);
    return ARIL_OK;
}

/* Channels per unit of max_pool_grad in f16 and bf16, whose sums should fit in the cache. */
static int64_t staged_block(int64_t area, int64_t channels)
{
    enum { CACHED = 256 * 1024 }; /* elements */
    return area * channels <= CACHED ? channels : channels < LINE ? channels : LINE;
}

/* The sums of max_pool_grad in f16 and bf16, whatever the order of its operands. */
static size_t index_scratch(const aril__run *r)
{
    const aril_tensor *x = r->out[0];
    bool staged = r->type == ARIL_F16 || r->type == ARIL_BF16;
    if (!staged || x->numel == 0) return 0;
    int64_t area = aril__count(x->ndim - 2, x->dim + 2), channels = x->dim[1];
    int64_t one = staged_block(area, channels), all = staged_block(area, channels * x->dim[0]);
    pool p = { .type = r->type };
    return (size_t)aril__parallel_slots(x->dim[0] * channels, 1) *
           bytes_of(&p, area * (one > all ? one : all));
}

/* Indices as i64, in their own memory order: those of max pooling keep the order of its input. */
const char *aril__cpu_pool_index_prepare(const aril__run *r, aril__plan *plan)
{
    plan->in[1].dtype = 1 + ARIL_I64;
    if (aril__is_samples_last(r->out[0])) plan->in[0].order = ARIL_ORDER_SAMPLES_LAST;
    return NULL;
}

const char *aril__cpu_pool_scatter_prepare(const aril__run *r, aril__plan *plan)
{
    plan->workspace = index_scratch(r);
    return aril__cpu_pool_index_prepare(r, plan);
}

/* Whether non-overlapping windows, as many as y has elements, tile x. This is the common case, and
 * then every element of x is written once. The indices tell whether these really were the
 * windows. */
static bool tiled(pool *p)
{
    int64_t all = 1;
    for (int i = 0; i < 3; i++) {
        int64_t in = p->x_dim[2 + i], out = p->y_dim[2 + i];
        if (out == 0 || in % out) return false;
        all *= p->size[i] = in / out;
    }
    return all <= LISTED && !p->assign && !p->staged && p->by_channel && p->y_stride[1] == 1 &&
           p->index_stride[1] == 1 && p->x_dim[1] >= VECTOR_MAX &&
           p->x_dim[2] * p->x_dim[3] * p->x_dim[4] < INT32_MAX;
}

aril_status aril__cpu_max_pool_grad(aril__run *r)
{
    enum { FEW = 8 }; /* samples that keep threads busy */
    pool p;
    describe(&p, r, r->out[0], r->in[0], r->in[1]);
    p.assign = r->op == &aril__op_max_unpool;
    if (r->out[0]->numel == 0) return ARIL_OK;
    int64_t area = p.x_dim[2] * p.x_dim[3] * p.x_dim[4], channels = p.x_dim[1];
    if (tiled(&p)) {
        p.by_position = p.x_dim[0] == 1;
        run_lines(&p, RUN(&p, window_lines), p.y_dim, p.size[0] * p.size[1] * p.size[2]);
        if (!p.apart) return ARIL_OK;
        p.by_position = false;
    }
    /* Enough units for all threads; f16 and bf16 need extra sums. */
    p.block = !p.by_channel ? 1 : p.staged ? staged_block(area, channels) : channels;
    if (p.by_channel && !p.staged && p.x_dim[0] < FEW &&
        aril__parallel_pieces(FEW, 1) > p.x_dim[0]) /* no bit depends on it */
        p.block = channels < LINE ? channels : LINE;
    int64_t blocks = (channels + p.block - 1) / p.block;
    p.scratch = r->workspace;
    p.each = p.staged ? bytes_of(&p, area * p.block) : 0;
    aril__parallel_for_slots(p.x_dim[0] * blocks, grain(area * p.block), slots_in(r, &p),
                             RUN(&p, scatter_units), &p);
    return bad_index(r, &p);
}

aril_status aril__cpu_max_pool_pick(aril__run *r)
{
    pool p;
    describe(&p, r, r->in[0], r->out[0], r->in[1]);
    if (r->out[0]->numel == 0) return ARIL_OK;
    run_lines(&p, RUN(&p, pick_lines), p.y_dim, 2);
    return bad_index(r, &p);
}
