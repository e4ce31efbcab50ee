/* Compiled with fused multiply-add: see CMakeLists.txt. */
#include "backend/cpu/vision/conv_depth.h"

#include "core/parallel.h"
#include "ops/vision/conv.h"

#include <string.h>

enum {
    SUMS = 512,           /* weights summed at a time */
    LIST = 64,            /* kernel positions summed at a time */
    CHUNK_WORK = 1 << 16, /* multiplications per chunk of the loop */
    SLABS = 64,           /* maximum number of partial weight gradients */
    SLAB_POSITIONS = 64,  /* positions of y per slab that make a partial result worthwhile */
};

typedef struct job {
    aril__conv d;
    int64_t channels, taps;
    const void *w;      /* [taps, channels] */
    const void *bias;   /* [channels] or NULL */
    bool data;          /* computes x from y */
    int64_t slab, rows; /* rows of y per slab, and in total */
    int64_t slabs;
    void *partial; /* [slabs, taps, channels] */
} job;

#define TEMPLATE "backend/cpu/vision/conv_depth.inc"
#include "core/vector/each_target.inc"

/* Transposes the weights [channels, taps] into device memory, and makes the bias contiguous. */
#define TURN(T_)                                                                            \
    do {                                                                                    \
        const T_ *from = d->w, *bias = d->bias;                                             \
        T_ *to = (T_ *)(void *)space;                                                       \
        for (int64_t q = 0; q < j->taps; q++)                                               \
            for (int64_t c = 0; c < j->channels; c++)                                       \
                to[q * j->channels + c] = from[c * j->taps + q];                            \
        to += j->taps * j->channels;                                                        \
        for (int64_t c = 0; c < j->channels && bias; c++) to[c] = bias[c * d->bias_stride]; \
    } while (0)

static size_t images_scratch(const job *j, aril_dtype type)
{
    return aril__dtype_bytes(type, (j->taps + 1) * j->channels);
}

static void run_images(job *j, aril_dtype type, char *space)
{
    const aril__conv *d = &j->d;
    const int64_t *size = j->data ? d->in : d->out;
    if (type == ARIL_F64)
        TURN(double);
    else
        TURN(float);
    j->w = space;
    j->bias = d->bias ? space + aril__dtype_bytes(type, j->taps * j->channels) : NULL;
    int64_t work = size[2] * j->channels * j->taps;
    aril__parallel_for(d->batch * size[0] * size[1], work < CHUNK_WORK ? CHUNK_WORK / work : 1,
                       ARIL__PICK(depth_rows, type == ARIL_F64), j);
}

/* Cuts into slabs, and returns the bytes of their partial results. */
static size_t cut_weights(job *j, aril_dtype type)
{
    const aril__conv *d = &j->d;
    j->rows = d->batch * d->out[0] * d->out[1];
    j->slab = (j->rows + SLABS - 1) / SLABS;
    int64_t work = d->out[2] * j->channels * j->taps;
    if (work * j->slab < CHUNK_WORK) j->slab = CHUNK_WORK / work;
    if (d->out[2] * j->slab < SLAB_POSITIONS) j->slab = SLAB_POSITIONS / d->out[2];
    j->slabs = (j->rows + j->slab - 1) / j->slab;
    return aril__dtype_bytes(type, j->slabs * j->taps * j->channels);
}

static void run_weights(job *j, aril_dtype type, void *space)
{
    cut_weights(j, type);
    j->partial = space;
    aril__parallel_for(j->slabs, 1, ARIL__PICK(depth_slabs, type == ARIL_F64), j);
    aril__parallel_for(j->taps * j->channels, SUMS, ARIL__PICK(depth_sums, type == ARIL_F64), j);
}

static job job_of(const aril__op *op, const aril__conv *d)
{
    job j = { .d = *d, .channels = d->groups };
    j.taps = d->kernel[0] * d->kernel[1] * d->kernel[2];
    j.data = op == &aril__op_conv_dgrad || op == &aril__op_conv_transpose;
    return j;
}

/* f16 and bf16 are staged through f32. */
size_t aril__cpu_conv_depth_scratch(const aril__op *op, aril_dtype type, const aril__conv *d)
{
    job j = job_of(op, d);
    if (type != ARIL_F64) type = ARIL_F32;
    return op == &aril__op_conv_wgrad ? cut_weights(&j, type) : images_scratch(&j, type);
}

void aril__cpu_conv_depth(const aril__op *op, aril_dtype type, const aril__conv *d, void *scratch)
{
    job j = job_of(op, d);
    if (op == &aril__op_conv_wgrad)
        run_weights(&j, type, scratch);
    else
        run_images(&j, type, scratch);
}
