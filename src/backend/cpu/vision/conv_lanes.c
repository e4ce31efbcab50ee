/* Compiled with fused multiply-add: see CMakeLists.txt. */
#include "backend/cpu/vision/conv_lanes.h"

#include "core/parallel.h"
#include "backend/activation.h"
#include "ops/vision/conv.h"

enum {
    SAMPLES = 16,         /* divides the batch size: a vector of floats */
    FEW_CHANNELS = 8,     /* of an image that has to be transposed first */
    MAX_CHANNELS = 16,    /* of the result, when the source is already samples-last */
    MAX_TAPS = 128,       /* of the kernel */
    CHUNK_WORK = 1 << 18, /* multiplications per chunk of the loop */
};

typedef struct job {
    aril__conv d;
    bool data;            /* computes x from y */
    bool joined;          /* adjacent kernel positions of a row read adjacent positions */
    aril_dtype type;      /* f32 or f64 */
    int64_t from_c, to_c; /* channels of the source and of the result */
    const void *source;   /* [positions, from_c, batch] */
    void *result;         /* [positions, to_c, batch] */
    const void *w;        /* [taps, from_c, to_c]; rows of taps are reversed when data is joined */
    const void *bias;     /* [to_c] */
} job;

/* What one position of the result reads: n steps starting at x in the source and w in the
 * weights. */
typedef struct strip {
    int64_t x, w, n;
} strip;

/* The strips of the last position listed: its neighbors in a row, except at the edges, have the
 * same ones, shifted. */
typedef struct strips {
    int n;
    int64_t row, position, lo, hi; /* that position, and the taps of a row that it reads */
    strip at[MAX_TAPS];
} strips;

/* Lists in s the strips of position p2 of a row, or reuses those of an earlier position: returns
 * the offset to add to x. */
static int64_t list_strips(const job *j, int64_t row, int64_t p2, strips *s)
{
    const aril__conv *d = &j->d;
    const int64_t *other = j->data ? d->out : d->in, *kernel = d->kernel;
    int64_t step = j->from_c * d->batch, weights = j->from_c * j->to_c, a0, a1, a2;
    int64_t first = j->data ? p2 + d->begin[2] - (kernel[2] - 1) : p2 * d->stride[2] - d->begin[2];
    int64_t lo = first < 0 ? -first : 0;
    int64_t hi = first + kernel[2] > other[2] ? other[2] - first : kernel[2];
    if (j->joined && s->row == row && s->lo == lo && s->hi == hi)
        return (p2 - s->position) * (j->data ? 1 : d->stride[2]) * step;
    int64_t rows = (j->data ? d->in : d->out)[1], p1 = row % rows, p0 = row / rows;
    int n = 0;
    strip *to = s->at;
    for (int64_t q0 = 0; q0 < kernel[0]; q0++) {
        if (!aril__conv_reads(d, j->data, 0, p0, q0, &a0)) continue;
        for (int64_t q1 = 0; q1 < kernel[1]; q1++) {
            if (!aril__conv_reads(d, j->data, 1, p1, q1, &a1)) continue;
            int64_t line = (a0 * other[1] + a1) * other[2], tap = (q0 * kernel[1] + q1) * kernel[2];
            if (j->joined && lo < hi)
                to[n++] = (strip){ (line + first + lo) * step, (tap + lo) * weights,
                                   (hi - lo) * j->from_c };
            for (int64_t q2 = 0; q2 < kernel[2] && !j->joined; q2++)
                if (aril__conv_reads(d, j->data, 2, p2, q2, &a2))
                    to[n++] = (strip){ (line + a2) * step, (tap + q2) * weights, j->from_c };
        }
    }
    s->n = n;
    s->row = row;
    s->position = p2;
    s->lo = lo;
    s->hi = hi;
    return 0;
}

#define TEMPLATE "backend/cpu/vision/conv_lanes.inc"
#include "core/vector/each_target.inc"

/* Why these rows decline a convolution from `from` with weights w to sizes `to`. */
static const char *unsuited(const aril_tensor *from, const aril_tensor *w, int ndim,
                            const int64_t *to)
{
    int64_t taps = aril__count(ndim - 2, w->dim + 2);
    if (aril__count(ndim, to) <= 0 || from->numel <= 0) return "an empty tensor";
    if (to[0] % SAMPLES != 0) return "the batch size is not a multiple of 16";
    if (to[1] > (aril__is_samples_last(from) ? MAX_CHANNELS : FEW_CHANNELS)) return "many channels";
    if (taps > MAX_TAPS) return "a large kernel";
    return taps == 1 ? "a kernel of size 1" : NULL;
}

static int64_t groups_of(const aril__op *op, const void *attrs)
{
    return op == &aril__op_conv_transpose ? ((const struct conv_transpose_attrs *)attrs)->groups[0]
                                          : ((const struct conv_attrs *)attrs)->groups[0];
}

const char *aril__cpu_conv_lanes_prepare(const aril__run *r, aril__plan *plan)
{
    if (groups_of(r->op, r->attrs) != 1) return "groups";
    plan->in[0].order = plan->out[0].order = ARIL_ORDER_SAMPLES_LAST;
    const aril_tensor *w = r->in[1], *y = r->out[0];
    plan->workspace = aril__dtype_bytes(r->type, w->numel + y->dim[1]); /* see pack */
    return unsuited(r->in[0], w, r->out[0]->ndim, r->out[0]->dim);
}

/* Weights as [taps, from_c, to_c], then the bias. */
static void pack(const job *j, int64_t taps, void *space)
{
    const aril__conv *d = &j->d;
    for (int64_t q = 0; q < taps; q++) {
        int64_t q2 = q % d->kernel[2], q1 = q / d->kernel[2] % d->kernel[1],
                q0 = q / (d->kernel[2] * d->kernel[1]);
        if (j->data && j->joined) q2 = d->kernel[2] - 1 - q2;
        int64_t at = q0 * d->w_stride[2] + q1 * d->w_stride[3] + q2 * d->w_stride[4];
        for (int64_t f = 0; f < j->from_c; f++)
            for (int64_t t = 0; t < j->to_c; t++) {
                int64_t k = j->data ? f : t, c = j->data ? t : f;
                int64_t from = at + k * d->w_stride[0] + c * d->w_stride[1];
                int64_t to = (q * j->from_c + f) * j->to_c + t;
                if (j->type == ARIL_F64)
                    ((double *)space)[to] = ((const double *)d->w)[from];
                else
                    ((float *)space)[to] = ((const float *)d->w)[from];
            }
    }
    for (int64_t t = 0; t < j->to_c; t++) {
        int64_t to = taps * j->from_c * j->to_c + t, from = t * d->bias_stride;
        if (j->type == ARIL_F64)
            ((double *)space)[to] = d->bias ? ((const double *)d->bias)[from] : 0;
        else
            ((float *)space)[to] = d->bias ? ((const float *)d->bias)[from] : 0;
    }
}

aril_status aril__cpu_conv_lanes(aril__run *r)
{
    job j = { .data = r->op != &aril__op_conv,
              .type = r->type,
              .source = aril__ptr(r->in[0]),
              .result = aril__ptr(r->out[0]),
              .w = r->workspace };
    aril__conv_describe(r, &j.d);
    const aril__conv *d = &j.d;
    j.joined = d->dilation[2] == 1 && (!j.data || d->stride[2] == 1);
    j.from_c = j.data ? d->k : d->c;
    j.to_c = j.data ? d->c : d->k;
    int64_t taps = d->kernel[0] * d->kernel[1] * d->kernel[2];
    pack(&j, taps, r->workspace);
    j.bias = (char *)r->workspace + aril__dtype_bytes(r->type, taps * j.from_c * j.to_c);
    const int64_t *size = j.data ? d->in : d->out;
    int64_t work = taps * j.from_c * j.to_c * d->batch;
    aril__parallel_for(size[0] * size[1] * size[2], work < CHUNK_WORK ? CHUNK_WORK / work : 1,
                       ARIL__PICK(conv_lanes, r->type == ARIL_F64), &j);
    return ARIL_OK;
}
