#include "backend/cpu/vision/resample.h"

#include "core/memory.h"
#include "core/parallel.h"
#include "ops/vision/resample.h"

#include <stdlib.h>
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
    int64_t block; /* channels per unit of work */
    _Atomic bool out_of_memory;
} job;

/* The input pixels of one output pixel. */
typedef struct mix {
    int n;
    int64_t at[MIXED];
    double weight[MIXED];
} mix;

static const tap *taps_of(const job *j, int axis, int64_t o)
{
    return j->taps[axis] + o * j->width[axis];
}

/* The pixels of output position o: by offset, or by index. */
static inline void mix_all(const job *j, const int64_t *o, mix *m, bool by_number)
{
    const tap *t0 = taps_of(j, 0, o[2]), *t1 = taps_of(j, 1, o[3]), *t2 = taps_of(j, 2, o[4]);
    m->n = 0;
    for (int a = 0; a < j->width[0]; a++)
        for (int b = 0; b < j->width[1]; b++)
            for (int e = 0; e < j->width[2]; e++) {
                double weight = t0[a].weight * t1[b].weight * t2[e].weight;
                if (weight == 0) continue;
                m->weight[m->n] = weight;
                m->at[m->n++] =
                    by_number
                        ? (t0[a].pixel * j->x_dim[3] + t1[b].pixel) * j->x_dim[4] + t2[e].pixel
                        : t0[a].at + t1[b].at + t2[e].at;
            }
}

static void mix_taps(const job *j, const int64_t *o, mix *m)
{
    mix_all(j, o, m, false);
}

static void mix_pixels(const job *j, const int64_t *o, mix *m)
{
    mix_all(j, o, m, true);
}

/* The taps of the last dimension again, transposed to vectorize along it. */
static aril_status make_positions(const aril__run *r, job *j)
{
    int64_t n = j->y_dim[4] * j->width[2];
    j->positions = aril__malloc((size_t)n * sizeof *j->positions);
    j->weights = aril__malloc((size_t)n * sizeof *j->weights);
    if (!j->positions || !j->weights)
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", r->op->name);
    for (int64_t o = 0; o < j->y_dim[4]; o++)
        for (int e = 0; e < j->width[2]; e++) {
            j->positions[e * j->y_dim[4] + o] = (int32_t)taps_of(j, 2, o)[e].pixel;
            j->weights[e * j->y_dim[4] + o] = taps_of(j, 2, o)[e].weight;
        }
    return ARIL_OK;
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

static void run_job(job *j, bool back)
{
    enum { FEW = 8, LINE = 16 }; /* samples that keep threads busy; channels of a cache line */
    bool wide = j->type == ARIL_F64;
    int64_t channels = j->x_dim[1], planes = j->x_dim[0] * channels;
    int64_t area = j->y_dim[2] * j->y_dim[3] * j->y_dim[4];
    bool last = channels > 1 && j->x_stride[1] == 1 &&
                (int64_t)j->width[0] * j->width[1] * j->width[2] <= MIXED;
    if (last && back) {
        j->block = j->x_dim[0] >= FEW ? channels : LINE;
        int64_t blocks = (channels + j->block - 1) / j->block;
        aril__parallel_for(j->x_dim[0] * blocks, grain(area * j->block),
                           ARIL__PICK(give_last, wide), j);
    } else if (last) {
        aril__parallel_for(j->y_dim[0] * j->y_dim[2] * j->y_dim[3], grain(j->y_dim[4] * channels),
                           ARIL__PICK(read_last, wide), j);
    } else if (back) {
        aril__parallel_for(planes, grain(area), ARIL__PICK(give_planes, wide), j);
    } else {
        aril__parallel_for(planes * j->y_dim[2] * j->y_dim[3], grain(j->y_dim[4]),
                           ARIL__PICK(read_rows, wide), j);
    }
}

static aril_status run(aril__run *r, const aril_tensor *x, const aril_tensor *y, bool back)
{
    job j = { .x = aril__ptr(x),
              .y = aril__ptr(y),
              .type = r->type,
              .staged = r->type == ARIL_F16 || r->type == ARIL_BF16 };
    if (r->out[0]->numel == 0) return ARIL_OK;
    put(x, j.x_dim, j.x_stride);
    put(y, j.y_dim, j.y_stride);
    if (j.x_dim[4] > INT32_MAX)
        return aril__fail(ARIL_ERR_SHAPE, "%s: rows of more than 2^31 elements", r->op->name);
    aril__taps_table t;
    aril_status s = aril__resample_taps(r, x, y, &t);
    for (int i = 0; i < 3; i++) {
        j.width[i] = t.width[i];
        j.taps[i] = t.taps[i];
    }
    if (s == ARIL_OK) s = make_positions(r, &j);
    if (s == ARIL_OK) run_job(&j, back);
    if (j.out_of_memory) s = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", r->op->name);
    aril__resample_free(&t);
    free(j.positions);
    free(j.weights);
    return s;
}

aril_status aril__cpu_interpolate(aril__run *r)
{
    return run(r, r->in[0], r->out[0], false);
}

aril_status aril__cpu_interpolate_grad(aril__run *r)
{
    return run(r, r->out[0], r->in[0], true);
}
