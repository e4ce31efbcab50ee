#include "backend/cpu/vision/conv_int8.h"

#include "backend/cpu/linalg/product_int8.h"
#include "core/cpu.h"
#include "core/parallel.h"
#include "ops/vision/conv.h"

#include <string.h>

enum {
    BLOCK = 8 * ARIL__INT8_ROWS, /* windows that are staged at a time */
    CHANNELS = 16,               /* of a depthwise convolution, at a time */
    TAPS = 64,                   /* positions of its kernel, at a time */
    MIN_WORK = 1 << 18,          /* multiplications per task */
};

typedef struct job {
    aril__conv d;
    aril__int8 g; /* of a group; depthwise: of all channels with the kernel */
    bool depthwise;
    int64_t taps, pixels; /* positions of y, of all samples */
    int64_t blocks;       /* for each group, */
    int64_t cuts;         /* and cuts of its columns, one after the other: tasks */
    const char *x;
    char *y;
    const char *packed; /* of each group, `bytes` apart */
    size_t bytes;
    const aril__int8_columns *columns; /* of each group */
    aril__rescale s;
    char *space; /* staged rows, for each slot */
    size_t each;
} job;

static job job_of(const aril__run *r)
{
    job j = { 0 };
    aril__conv *d = &j.d;
    aril__conv_describe(r, d);
    j.taps = d->kernel[0] * d->kernel[1] * d->kernel[2];
    j.pixels = d->batch * d->out[0] * d->out[1] * d->out[2];
    j.depthwise = d->c == 1 && d->k == 1 && d->groups > 1;
    j.g =
        aril__int8_of(j.taps * d->c, d->k, r->in[0]->dtype == ARIL_I8, r->in[1]->dtype == ARIL_I8);
    j.blocks = (j.pixels + BLOCK - 1) / BLOCK;
    j.cuts = aril__int8_cuts(&j.g, j.pixels, j.blocks * d->groups);
    j.each = BLOCK * aril__int8_space(&j.g);
    j.bytes = (aril__int8_packed(&j.g) + 63) / 64 * 64;
    return j;
}

/* Depthwise weights are i16 less their zero point, [taps, channels]; behind them what is added to
 * each channel's sum, and its scale. */
static size_t depth_bytes(const job *j)
{
    int64_t channels = j->d.groups;
    return (size_t)(j->taps * channels) * sizeof(int16_t) + 64 +
           (size_t)channels * (sizeof(int32_t) + sizeof(float));
}

static size_t columns_bytes(const job *j)
{
    size_t heads = ((size_t)j->d.groups * sizeof(aril__int8_columns) + 63) / 64 * 64;
    return heads + (size_t)j->d.groups * aril__int8_columns_bytes(j->g.n);
}

const char *aril__cpu_conv_int8_prepare(const aril__run *r, aril_plan *plan)
{
    if (r->out[0]->numel == 0 || r->in[0]->numel == 0) return "an empty tensor";
    job j = job_of(r);
    plan->in[0].order = plan->out[0].order = ARIL_ORDER_CHANNELS_LAST;
    for (int i = 1; i < r->n_in; i++) plan->in[i].order = ARIL_ORDER_CONTIGUOUS;
    if (j.depthwise) {
        plan->workspace = depth_bytes(&j);
        return NULL;
    }
    plan->workspace = columns_bytes(&j) +
                      (size_t)aril__parallel_slots(j.blocks * j.cuts * j.d.groups, 1) * j.each;
    plan->packs |= IN(1);
    return NULL;
}

/* Position `pixel` of y: its sample and place. */
static int64_t place_of(const aril__conv *d, int64_t pixel, int64_t *p)
{
    for (int i = 2; i >= 0; i--) {
        p[i] = pixel % d->out[i];
        pixel /= d->out[i];
    }
    return pixel;
}

/* ---- windows as rows ---- */

/* The window of a position: kernel positions, each with the channels of the group. */
static void stage_window(const job *j, int64_t pixel, int64_t group, void *row)
{
    const aril__conv *d = &j->d;
    int64_t p[3], n = place_of(d, pixel, p), channels = d->c * d->groups, at = 0, q[3], from[3];
    for (q[0] = 0; q[0] < d->kernel[0]; q[0]++)
        for (q[1] = 0; q[1] < d->kernel[1]; q[1]++) {
            bool row_there = aril__conv_reads(d, false, 0, p[0], q[0], &from[0]);
            row_there &= aril__conv_reads(d, false, 1, p[1], q[1], &from[1]);
            int64_t line = ((n * d->in[0] + from[0]) * d->in[1] + from[1]) * d->in[2];
            for (q[2] = 0; q[2] < d->kernel[2]; q[2]++, at += d->c) {
                if (row_there && aril__conv_reads(d, false, 2, p[2], q[2], &from[2]))
                    aril__int8_stage(&j->g, row, at,
                                     j->x + (line + from[2]) * channels + group * d->c, d->c, 1);
                else
                    aril__int8_fill(&j->g, row, at, j->s.a_zero, d->c);
            }
        }
    aril__int8_end(&j->g, row);
}

static void run_blocks(void *ctx, int64_t begin, int64_t end, int slot)
{
    const job *j = ctx;
    char *rows = j->space + (size_t)slot * j->each;
    size_t row = aril__int8_row(&j->g), size = j->s.rescales ? 1 : sizeof(int32_t);
    int64_t filters = j->d.k * j->d.groups;
    for (; begin < end; begin++) {
        int64_t group = begin / j->cuts / j->blocks, cut = begin % j->cuts, from, to;
        int64_t first = begin / j->cuts % j->blocks * BLOCK;
        int64_t count = j->pixels - first < BLOCK ? j->pixels - first : BLOCK;
        for (int64_t i = 0; i < count; i++)
            stage_window(j, first + i, group, rows + (size_t)i * row);
        char *y = j->y + (size_t)(first * filters + group * j->d.k) * size;
        aril__int8_cut(&j->g, cut, j->cuts, &from, &to);
        aril__int8_rows(&j->g, &j->columns[group], j->packed + (size_t)group * j->bytes, rows,
                        count, from, to, y, filters);
    }
}

/* The weight [K,C,kernel...] with its kernel before its channels, as the windows have it. */
static void pack_group(void *ctx, const aril__int8 *g, int64_t part, void *to)
{
    const job *j = ctx;
    const aril__conv *d = &j->d;
    const char *w = d->w;
    char *turned = (char *)to + aril__int8_packed(g); /* behind the packed form */
    w += part * d->k * d->c * j->taps;
    for (int64_t k = 0; k < d->k; k++)
        for (int64_t q = 0; q < j->taps; q++)
            for (int64_t c = 0; c < d->c; c++)
                turned[(k * j->taps + q) * d->c + c] = w[(k * d->c + c) * j->taps + q];
    aril__int8_pack(g, turned, 1, g->k, to);
}

static aril_status run_windows(aril__run *r, job *j)
{
    size_t columns = columns_bytes(j);
    aril__int8_columns *heads = r->workspace;
    char *space =
        (char *)r->workspace + columns - (size_t)j->d.groups * aril__int8_columns_bytes(j->g.n);
    /* Room to turn the weights behind each part. */
    j->bytes += (size_t)(j->g.k * j->g.n + 63) / 64 * 64;
    aril__int8_form f = { r->op, j->g, j->d.groups, j->bytes, pack_group, j };
    aril__derived *form = aril__int8_form_of(&f, r->in[1], r->device);
    if (!form) return ARIL_ERR_MEMORY;
    j->packed = form->data;
    for (int64_t k = 0; k < j->d.groups; k++)
        heads[k] = aril__int8_columns_of(&j->g, &j->s, k * j->d.k, j->packed + (size_t)k * j->bytes,
                                         space + (size_t)k * aril__int8_columns_bytes(j->g.n));
    j->columns = heads;
    j->space = (char *)r->workspace + columns;
    int slots = j->each ? (int)((r->workspace_bytes - columns) / j->each) : 1;
    aril__parallel_for_slots(j->blocks * j->cuts * j->d.groups, 1, slots, run_blocks, j);
    aril__derived_release(form);
    return ARIL_OK;
}

/* ---- depthwise ---- */

typedef struct depth {
    const job *j;
    const int16_t *w; /* [taps, channels] */
    const int32_t *bias;
    const float *scale;
    int64_t per_task; /* positions */
} depth;

#define TARGET
#define NAME(x) x##_plain
#include "backend/cpu/vision/conv_int8.inc"
#undef TARGET
#undef NAME
#if ARIL__TARGETS
#define TARGET  ARIL__AVX2
#define NAME(x) x##_avx2
#include "backend/cpu/vision/conv_int8.inc"
#undef TARGET
#undef NAME
#define TARGET  ARIL__AVX512
#define NAME(x) x##_avx512
#include "backend/cpu/vision/conv_int8.inc"
#undef TARGET
#undef NAME
#endif

static aril__range_fn *depth_fn(void)
{
#if ARIL__TARGETS
    if (aril__cpu() == ARIL__CPU_AVX512) return depth_rows_avx512;
    if (aril__cpu() == ARIL__CPU_AVX2) return depth_rows_avx2;
#endif
    return depth_rows_plain;
}

static aril_status run_depthwise(aril__run *r, job *j)
{
    int64_t channels = j->d.groups;
    int32_t *bias = r->workspace;
    float *scale = (float *)(void *)(bias + channels);
    int16_t *w = (int16_t *)(void *)(scale + channels);
    const uint8_t *u = j->d.w;
    for (int64_t c = 0; c < channels; c++) {
        int zero = (int)aril__integer_of(j->s.b_zero, c);
        bias[c] = (int32_t)aril__integer_of(j->s.bias, c);
        scale[c] = j->s.rescales ? aril__scale_of(j->s.scale, c) : 0;
        for (int64_t q = 0; q < j->taps; q++) {
            uint8_t v = u[c * j->taps + q];
            w[q * channels + c] = (int16_t)((j->g.b_signed ? (int8_t)v : v) - zero);
        }
    }
    depth t = { j, w, bias, scale, 1 };
    int64_t work = channels * j->taps;
    t.per_task = work < MIN_WORK / 8 ? MIN_WORK / 8 / work : 1;
    aril__parallel_for(j->pixels, t.per_task, depth_fn(), &t);
    return ARIL_OK;
}

aril_status aril__cpu_conv_int8(aril__run *r)
{
    job j = job_of(r);
    j.s = aril__rescale_of(r);
    j.x = j.d.x;
    j.y = j.d.y;
    return j.depthwise ? run_depthwise(r, &j) : run_windows(r, &j);
}
