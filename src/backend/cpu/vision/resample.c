#include "backend/cpu/vision/resample.h"

#include "core/parallel.h"
#include "ops/vision/resample.h"

#include <limits.h>
#include <string.h>

typedef aril__tap tap;

enum {
    LANES = 512, /* channels processed at a time */
    MIXED = 128, /* maximum pixels per output pixel if channels are contiguous */
};

typedef struct job {
    int64_t x_dim[5], y_dim[5], x_stride[5], y_stride[5];
    void *x, *y;
    aril_dtype type;
    bool staged;  /* f16 or bf16 */
    int width[3]; /* taps per output element */
    const tap *taps[3];
    int32_t *positions; /* the same for the last dimension: [taps, elements] */
    double *weights;
    bool by_lines; /* rows of pixels are mixed before the pixels within */
    int64_t block; /* channels per unit of work */
    char *scratch; /* `each` bytes for each slot */
    size_t each;
} job;

/* The input pixels of one output pixel. */
typedef struct mix {
    int n;
    int64_t at[MIXED + 1]; /* one more is written before its weight turns out to be 0 */
    double weight[MIXED + 1];
} mix;

static const tap *taps_of(const job *j, int axis, int64_t o)
{
    return j->taps[axis] + o * j->width[axis];
}

/* The rows of pixels of a row of the output, by offset or by index; then the pixels of its position
 * o, `pitch` apart. What weighs 0 is left out. */
static void mix_rows(const job *j, const int64_t *o, mix *row, bool by_number)
{
    const tap *t0 = taps_of(j, 0, o[2]), *t1 = taps_of(j, 1, o[3]);
    row->n = 0;
    for (int a = 0; a < j->width[0]; a++)
        for (int b = 0; b < j->width[1]; b++) {
            double weight = t0[a].weight * t1[b].weight;
            if (weight == 0) continue;
            row->weight[row->n] = weight;
            row->at[row->n++] = by_number ? (t0[a].pixel * j->x_dim[3] + t1[b].pixel) * j->x_dim[4]
                                          : t0[a].at + t1[b].at;
        }
}

static inline void mix_positions(const job *j, const mix *row, int64_t o, int64_t pitch, mix *m)
{
    const tap *t2 = taps_of(j, 2, o);
    int n = 0;
    for (int k = 0; k < row->n; k++)
        for (int e = 0; e < j->width[2]; e++) {
            double weight = row->weight[k] * t2[e].weight;
            m->weight[n] = weight;
            m->at[n] = row->at[k] + t2[e].pixel * pitch;
            n += weight != 0;
        }
    m->n = n;
}

/* The taps of the last dimension again, transposed to vectorize along it. */
static void make_positions(job *j)
{
    for (int64_t o = 0; o < j->y_dim[4]; o++)
        for (int e = 0; e < j->width[2]; e++) {
            j->positions[e * j->y_dim[4] + o] = (int32_t)taps_of(j, 2, o)[e].pixel;
            j->weights[e * j->y_dim[4] + o] = taps_of(j, 2, o)[e].weight;
        }
}

static int64_t longest_row(const job *j)
{
    return j->x_dim[4] > j->y_dim[4] ? j->x_dim[4] : j->y_dim[4];
}

#define TEMPLATE "backend/cpu/vision/resample.inc"
#include "core/vector/each_target.inc"

static void put(const aril_tensor *t, int64_t *dim, int64_t *stride)
{
    int lead = 5 - t->ndim;
    for (int i = 0; i < 5; i++) {
        bool there = i < 2 || i >= 2 + lead;
        int from = i < 2 ? i : i - lead;
        dim[i] = there ? t->dim[from] : 1;
        stride[i] = there ? t->stride[from] : 0;
    }
}

static int64_t grain(int64_t work)
{
    enum { MIN_CHUNK = 8 * 1024 };
    return work > 0 && work < MIN_CHUNK ? MIN_CHUNK / work : 1;
}

/* How the work is cut. */
typedef struct cut {
    int64_t units, grain;
    aril__slot_fn *fn;
} cut;

/* Channels of a unit of the gradient: enough units for all threads, with sums that fit the
 * cache. */
static int64_t channels_of_unit(int64_t samples, int64_t channels, int64_t bytes)
{
    enum { FEW = 8, LINE = 16, CACHED = 512 * 1024 }; /* samples; channels of a cache line; bytes */
    int64_t parts = samples >= FEW ? 1 : (FEW + samples - 1) / samples;
    int64_t block = (channels + parts - 1) / parts;
    if (samples < FEW && bytes * block > CACHED) block = CACHED / bytes;
    block = (block + LINE - 1) / LINE * LINE;
    return samples >= FEW ? channels : block > LINE ? block : LINE;
}

/* Chooses the kernel and its scratch memory: tables of taps and positions must not be there yet. */
static cut cut_job(job *j, bool back)
{
    bool wide = j->type == ARIL_F64;
    size_t size = wide ? sizeof(double) : sizeof(float);
    int64_t channels = j->x_dim[1], planes = j->x_dim[0] * channels;
    int64_t area = j->y_dim[2] * j->y_dim[3] * j->y_dim[4];
    int64_t x_area = j->x_dim[2] * j->x_dim[3] * j->x_dim[4], elements = 0;
    bool last = channels > 1 && j->x_stride[1] == 1 &&
                (int64_t)j->width[0] * j->width[1] * j->width[2] <= MIXED;
    cut c;
    j->by_lines = last && j->x_dim[4] <= 2 * j->y_dim[4];
    if (last && back) {
        j->block = channels_of_unit(j->x_dim[0], channels, x_area * (int64_t)size);
        int64_t blocks = (channels + j->block - 1) / j->block;
        c = (cut){ j->x_dim[0] * blocks, grain(area * j->block), ARIL__PICK(give_last, wide) };
        elements = (x_area + j->x_dim[4]) * (channels < j->block ? channels : j->block);
    } else if (last) {
        if (j->by_lines || j->staged) elements = j->x_dim[4] * channels;
        c = (cut){ j->y_dim[0] * j->y_dim[2] * j->y_dim[3], grain(j->y_dim[4] * channels),
                   ARIL__PICK(read_last, wide) };
    } else if (back) {
        c = (cut){ planes, grain(area), ARIL__PICK(give_planes, wide) };
        elements = 3 * longest_row(j) + x_area;
    } else {
        c = (cut){ planes * j->y_dim[2] * j->y_dim[3], grain(j->y_dim[4]),
                   ARIL__PICK(read_rows, wide) };
        elements = 3 * longest_row(j);
    }
    j->each = ((size_t)elements * size + 63) / 64 * 64;
    return c;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* The workspace: taps, weights, positions, and the scratch memory of each thread. */
typedef struct parts {
    size_t weights, positions, scratch; /* where they begin */
} parts;

static parts lay_out(const aril__run *r, const aril_tensor *x, const aril_tensor *y, const job *j)
{
    size_t n = (size_t)(j->y_dim[4] * j->width[2]);
    parts p = { .weights = rounded(aril__resample_scratch(r, x, y)) };
    p.positions = p.weights + rounded(n * sizeof *j->weights);
    p.scratch = p.positions + rounded(n * sizeof *j->positions);
    return p;
}

static job job_of(const aril__run *r, const aril_tensor *x, const aril_tensor *y)
{
    job j = { .type = r->type, .staged = r->type == ARIL_F16 || r->type == ARIL_BF16 };
    put(x, j.x_dim, j.x_stride);
    put(y, j.y_dim, j.y_stride);
    aril__resample_widths(r, x, y, j.width);
    return j;
}

static size_t scratch_for(const aril__run *r, const aril_tensor *x, const aril_tensor *y, bool back)
{
    if (r->out[0]->numel == 0) return 0;
    job j = job_of(r, x, y);
    cut c = cut_job(&j, back);
    return lay_out(r, x, y, &j).scratch + (size_t)aril__parallel_slots(c.units, c.grain) * j.each;
}

static aril_status run(aril__run *r, const aril_tensor *x, const aril_tensor *y, bool back)
{
    if (r->out[0]->numel == 0) return ARIL_OK;
    job j = job_of(r, x, y);
    if (j.x_dim[4] > INT32_MAX)
        return aril__fail(ARIL_ERR_SHAPE, "%s: rows of more than 2^31 elements", r->op->name);
    cut c = cut_job(&j, back);
    parts at = lay_out(r, x, y, &j);
    char *memory = r->workspace;
    aril__taps_table t;
    aril__resample_taps(r, x, y, &t, memory);
    for (int i = 0; i < 3; i++) j.taps[i] = t.taps[i];
    j.x = aril__ptr(x);
    j.y = aril__ptr(y);
    j.weights = (double *)(void *)(memory + at.weights);
    j.positions = (int32_t *)(void *)(memory + at.positions);
    j.scratch = memory + at.scratch;
    make_positions(&j);
    int slots = j.each ? (int)((r->workspace_bytes - at.scratch) / j.each) : INT_MAX;
    aril__parallel_for_slots(c.units, c.grain, slots, c.fn, &j);
    return ARIL_OK;
}

size_t aril__cpu_interpolate_scratch(const aril__run *r)
{
    return scratch_for(r, r->in[0], r->out[0], false);
}

size_t aril__cpu_interpolate_grad_scratch(const aril__run *r)
{
    return scratch_for(r, r->out[0], r->in[0], true);
}

aril_status aril__cpu_interpolate(aril__run *r)
{
    return run(r, r->in[0], r->out[0], false);
}

aril_status aril__cpu_interpolate_grad(aril__run *r)
{
    return run(r, r->out[0], r->in[0], true);
}
