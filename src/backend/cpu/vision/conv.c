#include "backend/cpu/vision/conv.h"

#include "backend/cpu/vision/conv_depth.h"
#include "backend/cpu/linalg/gemm.h"
#include "core/parallel.h"
#include "backend/activation.h"
#include "ops/vision/conv.h"

#include <limits.h>
#include <string.h>

/* Work is cut by size alone, so results do not depend on the number of threads. */
enum {
    COLUMNS = 128 * 1024, /* column elements gathered at a time */
    MIN_BLOCK = 48,       /* positions */
    UNITS = 32,           /* target number of pieces of a large job */
    UNIT_WORK = 1 << 15,  /* multiplications per piece, at least: smaller pieces run together */
};

typedef struct job {
    aril__conv d;
    bool last;              /* channels-last */
    bool direct;            /* a 1x1 kernel: the image needs no gathering into columns */
    int64_t taps, area;     /* kernel positions; positions of y */
    int64_t x_step, y_step; /* between adjacent positions */
    int64_t cb, c_blocks;   /* channels of x per block, and number of blocks */
    int64_t block, blocks;  /* positions of y per block, and number of blocks */
    int64_t units, grain;   /* of work, and how many to run together */
    char *scratch;          /* columns of a block, `each` bytes for each slot */
    size_t each;            /* 0: not needed */
} job;

typedef struct matrix {
    void *at;
    int64_t row, col;
} matrix;

/* c = a b, [m,n] = [m,k] [k,n]; computes c^T = b^T a^T when c is column-major. */
static void product(aril_dtype type, int64_t m, int64_t n, int64_t k, matrix a, matrix b, matrix c,
                    bool add)
{
    bool turn = c.col != 1 && c.row == 1;
    aril__gemm g = { .m = turn ? n : m, .n = turn ? m : n, .k = k, .c = c.at, .add = add };
    g.a = turn ? b.at : a.at;
    g.b = turn ? a.at : b.at;
    g.a_row = turn ? b.col : a.row;
    g.a_col = turn ? b.row : a.col;
    g.b_row = turn ? a.col : b.row;
    g.b_col = turn ? a.row : b.col;
    g.c_row = turn ? c.col : c.row;
    g.c_col = turn ? c.row : c.col;
    aril__cpu_gemm(type, &g);
}

static void position_of(const aril__conv *d, int64_t p, int64_t *o)
{
    o[2] = p % d->out[2];
    o[1] = p / d->out[2] % d->out[1];
    o[0] = p / (d->out[2] * d->out[1]);
}

/* The offset in a channels-last image that kernel position q of the window at o reads; -1:
 * padding. */
static int64_t tap_offset(const aril__conv *d, const int64_t *o, int64_t q)
{
    int64_t at[3] = { q / (d->kernel[1] * d->kernel[2]), q / d->kernel[2] % d->kernel[1],
                      q % d->kernel[2] };
    int64_t offset = 0;
    for (int s = 0; s < 3; s++) {
        int64_t i = o[s] * d->stride[s] - d->begin[s] + at[s] * d->dilation[s];
        if (i < 0 || i >= d->in[s]) return -1;
        offset += i * d->x_stride[2 + s];
    }
    return offset;
}

/* One kernel position applied to rows of a contiguous image: results [lo, hi) of a row read inside
 * the image. */
typedef struct row_taps {
    int64_t at[3], lo, hi;
} row_taps;

static row_taps row_taps_of(const aril__conv *d, int64_t q)
{
    row_taps t = { .at = { q / (d->kernel[1] * d->kernel[2]), q / d->kernel[2] % d->kernel[1],
                           q % d->kernel[2] } };
    int64_t shift = d->begin[2] - t.at[2] * d->dilation[2], s = d->stride[2];
    t.lo = shift > 0 ? (shift + s - 1) / s : 0;
    int64_t end = d->in[2] + shift; /* one past the last position */
    t.hi = end > 0 ? (end + s - 1) / s : 0;
    if (t.hi > d->out[2]) t.hi = d->out[2];
    return t;
}

/* The offset that result 0 of the row containing o reads; false when that row is padding. */
static bool row_start(const aril__conv *d, const row_taps *t, const int64_t *o, int64_t *start)
{
    int64_t offset = t->at[2] * d->dilation[2] - d->begin[2];
    for (int s = 0; s < 2; s++) {
        int64_t i = o[s] * d->stride[s] - d->begin[s] + t->at[s] * d->dilation[s];
        if (i < 0 || i >= d->in[s]) return false;
        offset += i * d->x_stride[2 + s];
    }
    *start = offset;
    return true;
}

/* The columns of a thread; NULL if none are needed. */
static void *columns_of(const job *j, int slot)
{
    return j->each ? j->scratch + (size_t)slot * j->each : NULL;
}

/* Columns as a matrix [channels and taps, positions]. */
static matrix columns(const job *j, void *col, int64_t np)
{
    return j->last ? (matrix){ col, 1, j->cb * j->taps } : (matrix){ col, np, 1 };
}

#define T       float
#define TYPE    ARIL_F32
#define NAME(x) x##_f32
#include "backend/cpu/vision/conv.inc"
#undef T
#undef TYPE
#undef NAME
#define T       double
#define TYPE    ARIL_F64
#define NAME(x) x##_f64
#include "backend/cpu/vision/conv.inc"
#undef T
#undef TYPE
#undef NAME

static int64_t pieces(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

static int64_t grain_of(int64_t work)
{
    return work < UNIT_WORK ? UNIT_WORK / (work > 0 ? work : 1) : 1;
}

/* Chooses as many positions as fit into COLUMNS, but few enough to leave work for all units. */
static void choose_blocks(job *j, int64_t width, int64_t others)
{
    int64_t max = COLUMNS / (width > 0 ? width : 1);
    int64_t even = pieces(j->area * others, UNITS);
    j->block = max < MIN_BLOCK ? MIN_BLOCK : max;
    if (even < j->block) j->block = even < MIN_BLOCK ? MIN_BLOCK : even;
    if (j->block > j->area) j->block = j->area;
    j->blocks = pieces(j->area, j->block);
    j->block = pieces(j->area, j->blocks);
}

/* Chooses the channels of x per unit, given `others` units along other dimensions. */
static void choose_channels(job *j, int64_t others)
{
    int64_t wanted = pieces(UNITS, others > 0 ? others : 1);
    j->cb = pieces(j->d.c, wanted < j->d.c ? wanted : j->d.c);
    if (j->cb * j->taps < MIN_BLOCK) j->cb = pieces(MIN_BLOCK, j->taps);
    if (j->cb > j->d.c) j->cb = j->d.c;
    j->c_blocks = pieces(j->d.c, j->cb);
}

/* Adds what conv_add adds, and applies the activation; all images have the same order. */
static void finish_range(void *ctx, int64_t begin, int64_t end)
{
    const aril__run *r = ctx;
    size_t at = aril__dtype_bytes(r->type, begin);
    char *y = (char *)aril__ptr(r->out[0]) + at;
    int64_t act = r->op == &aril__op_conv_transpose
                      ? ((const struct conv_transpose_attrs *)r->attrs)->activation[0]
                      : ((const struct conv_attrs *)r->attrs)->activation[0];
    const char *added = r->op == &aril__op_conv_add ? (const char *)aril__ptr(r->in[3]) + at : NULL;
    if (added && r->type == ARIL_F64)
        for (int64_t i = 0; i < end - begin; i++)
            ((double *)(void *)y)[i] += ((const double *)(const void *)added)[i];
    else if (added)
        for (int64_t i = 0; i < end - begin; i++)
            ((float *)(void *)y)[i] += ((const float *)(const void *)added)[i];
    if (act) aril__activation_run(r->type, act, end - begin, y);
}

static void finish(aril__run *r, const aril__conv *d)
{
    if (d->activation || d->added) aril__parallel_for(r->out[0]->numel, UNIT_WORK, finish_range, r);
}

/* Sizes and the cut into units and blocks, which do not depend on the memory order of the images.
 */
static void cut_job(const aril__run *r, job *j)
{
    bool forward = aril__conv_is_forward(r->op), weights = r->op == &aril__op_conv_wgrad;
    aril__conv_describe(r, &j->d);
    const aril__conv *d = &j->d;
    j->taps = d->kernel[0] * d->kernel[1] * d->kernel[2];
    j->area = d->out[0] * d->out[1] * d->out[2];
    j->direct = j->taps == 1;
    for (int i = 0; i < 3; i++)
        j->direct = j->direct && d->stride[i] == 1 && d->begin[i] == 0 && d->in[i] == d->out[i];
    if (forward) {
        j->cb = d->c;
        choose_blocks(j, j->cb * j->taps, d->batch * d->groups);
        j->units = d->batch * d->groups * j->blocks;
        j->grain = grain_of(j->block * j->taps * d->c * d->k);
    } else {
        int64_t others = weights ? d->groups : d->batch * d->groups;
        choose_channels(j, others);
        choose_blocks(j, j->cb * j->taps, UNITS);
        j->units = others * j->c_blocks;
        j->grain = grain_of(j->area * j->taps * j->cb * d->k * (weights ? d->batch : 1));
    }
    size_t size = r->type == ARIL_F64 ? sizeof(double) : sizeof(float);
    size_t bytes = (size_t)(j->cb * j->taps * j->block) * size;
    j->each = j->direct ? 0 : (bytes + 63) / 64 * 64;
}

/* One channel of x per group, contiguous: without matrix products. */
static void run_planes(const aril__run *r, job *j)
{
    bool forward = aril__conv_is_forward(r->op), weights = r->op == &aril__op_conv_wgrad;
    bool wide = r->type == ARIL_F64;
    const aril__conv *d = &j->d;
    int64_t work = j->area * j->taps * d->k;
    int64_t planes = forward   ? d->batch * d->k * d->groups
                     : weights ? d->k * d->groups
                               : d->batch * d->groups;
    aril__parallel_for(planes,
                       grain_of(forward   ? work / d->k
                                : weights ? work * d->batch
                                          : work),
                       forward   ? wide ? depth_forward_f64 : depth_forward_f32
                       : weights ? wide ? depth_weights_f64 : depth_weights_f32
                       : wide    ? depth_data_f64
                                 : depth_data_f32,
                       j);
}

/* Operands are ready: all contiguous, or images channels-last. */
static aril_status run_ready(aril__run *r, bool last)
{
    job j = { .last = last, .scratch = r->workspace };
    bool forward = aril__conv_is_forward(r->op), weights = r->op == &aril__op_conv_wgrad;
    bool wide = r->type == ARIL_F64;
    cut_job(r, &j);
    const aril__conv *d = &j.d;
    /* Dimensions of size 1 may have any stride, so compute the strides from the sizes. */
    j.x_step = last ? d->c * d->groups : 1;
    j.y_step = last ? d->k * d->groups : 1;
    j.d.x_stride[1] = last ? 1 : d->in[0] * d->in[1] * d->in[2];
    j.d.y_stride[1] = last ? 1 : j.area;
    j.d.w_stride[0] = d->c * j.taps;
    if (d->c == 1 && d->groups > 1 && !last)
        run_planes(r, &j);
    else
        aril__parallel_for_slots(j.units, j.grain,
                                 j.each ? (int)(r->workspace_bytes / j.each) : INT_MAX,
                                 forward   ? wide ? run_forward_f64 : run_forward_f32
                                 : weights ? wide ? run_weights_f64 : run_weights_f32
                                 : wide    ? run_data_f64
                                           : run_data_f32,
                                 &j);
    finish(r, d);
    return ARIL_OK;
}

static aril_status run_depth(aril__run *r)
{
    aril__conv d;
    aril__conv_describe(r, &d);
    aril__cpu_conv_depth(r->op, r->type, &d, r->workspace);
    finish(r, &d);
    return ARIL_OK;
}

/* The images of a convolution, its weight, and what kind it is. */
typedef struct operands {
    const aril_tensor *from, *to, *w; /* from, to: images */
    bool weights;                     /* both images are inputs */
    bool depth;                       /* one channel of x per group */
    bool planes;                      /* and several of y */
} operands;

static operands operands_of(const aril__run *r)
{
    operands o = { .from = r->in[0], .weights = r->op == &aril__op_conv_wgrad };
    o.to = o.weights ? r->in[1] : r->out[0];
    o.w = o.weights ? r->out[0] : r->in[1];
    int64_t groups = r->op == &aril__op_conv_transpose
                         ? ((const struct conv_transpose_attrs *)r->attrs)->groups[0]
                         : ((const struct conv_attrs *)r->attrs)->groups[0];
    o.depth = groups > 1 && o.w->dim[1] == 1;
    o.planes = o.depth && o.w->dim[0] != groups;
    return o;
}

/* Bytes of scratch memory. */
static size_t scratch_for(const aril__run *r, const operands *o, bool contiguous)
{
    job j = { 0 };
    if (o->from->numel <= 0 || o->to->numel <= 0 || o->w->numel <= 0) return 0;
    cut_job(r, &j);
    if (o->depth) return contiguous ? 0 : aril__cpu_conv_depth_scratch(r->op, r->type, &j.d);
    return (size_t)aril__parallel_slots(j.units, j.grain) * j.each;
}

/* Images are channels-last, unless all operands that are already in memory are contiguous or
 * channels are processed plane by plane. */
const char *aril__cpu_conv_prepare(const aril__run *r, aril__plan *plan)
{
    operands o = operands_of(r);
    bool dense = o.to->storage && aril__is_dense(o.from) && aril__is_dense(o.to);
    /* Kernels over channels are so much faster for signals that they are worth the copies. */
    if (o.depth && o.weights && o.from->ndim == 3) dense = false;
    aril_operand image = { .order = dense || o.planes ? ARIL_ORDER_CONTIGUOUS
                                                      : ARIL_ORDER_CHANNELS_LAST };
    plan->in[0] = image;
    plan->in[1].order = plan->in[2].order = plan->out[0].order = ARIL_ORDER_CONTIGUOUS;
    *(o.weights ? &plan->in[1] : &plan->out[0]) = image;
    if (r->op == &aril__op_conv_add) plan->in[3] = image;
    plan->workspace = scratch_for(r, &o, image.order == ARIL_ORDER_CONTIGUOUS);
    return NULL;
}

aril_status aril__cpu_conv(aril__run *r)
{
    operands o = operands_of(r);
    if (r->out[0]->numel == 0) return ARIL_OK;
    if (o.from->numel == 0 || o.to->numel == 0 || o.w->numel == 0) return r->op->ref(r);
    bool last = !(aril__is_dense(o.from) && aril__is_dense(o.to));
    return o.depth && last ? run_depth(r) : run_ready(r, last);
}
