/* Compiled with fused multiply-add: see CMakeLists.txt. */
#include "backend/cpu/vision/conv_lanes_grad.h"

#include "aril/create.h"
#include "aril/view.h"
#include "backend/cpu/vision/conv_lanes.h"
#include "core/parallel.h"
#include "ops/vision/conv.h"
#include "ops/shape/copy.h"

#include <string.h>

enum {
    SAMPLES = 16,         /* divides the batch size: a vector of floats */
    FEW_CHANNELS = 8,     /* of an image that has to be transposed first */
    MAX_SUMS = 4096,      /* maximum weight elements: each is summed in a vector */
    PIECE_WORK = 1 << 20, /* multiplications that make a partial result worthwhile */
    MAX_VECTOR = 64,      /* bytes */
};

typedef struct job {
    int64_t batch, c, k;
    int64_t out[3];       /* sizes of y */
    int64_t x_step[3];    /* in x, between what adjacent positions read */
    int64_t y_step[3];    /* in y */
    int64_t pairs, *pair; /* (channel of x, kernel position): offset in x, */
    int64_t *w_at;        /* and in the weight */
    int64_t w_stride;     /* between channels of y */
    void *w;
    const void *x, *y;    /* [positions, c, batch], padded; [positions, k, batch] */
    int64_t pieces;       /* the rows of y are cut into this many */
    char *sums;           /* [pieces, k * pairs] vectors */
    size_t piece;         /* bytes of sums per piece */
    char *parts;          /* [pieces]: some channels of a row of y */
    size_t part;          /* bytes per part */
    char *partial;        /* [pieces, k * pairs] elements */
    size_t partial_bytes; /* per piece */
} job;

#define TEMPLATE "backend/cpu/vision/conv_lanes_grad.inc"
#include "core/vector/each_target.inc"

static bool turns(const aril_tensor *t)
{
    return t->dim[1] <= FEW_CHANNELS || aril__is_samples_last(t);
}

const char *aril__cpu_conv_lanes_grad_prepare(const aril__run *r, aril__plan *plan)
{
    (void)plan;
    const aril_tensor *g = r->in[0], *x = r->in[1], *w = r->out[0];
    if (w->numel <= 0 || g->numel <= 0 || x->numel <= 0) return "an empty tensor";
    if (((const struct conv_attrs *)r->attrs)->groups[0] != 1) return "groups";
    if (x->dim[0] % SAMPLES != 0) return "the batch size is not a multiple of 16";
    if (!turns(g) || !turns(x)) return "many channels";
    if (w->numel > MAX_SUMS) return "a large weight";
    return aril__count(w->ndim - 2, w->dim + 2) == 1 ? "a kernel of size 1" : NULL;
}

/* Zeroes everything outside [from, to) in an image of `size`, with `bytes` per position. */
static void zero_edges(char *all, const int64_t *size, const int64_t *from, const int64_t *to,
                       size_t bytes)
{
    size_t row = (size_t)size[2] * bytes;
    for (int64_t i = 0; i < size[0] * size[1]; i++, all += row) {
        int64_t i0 = i / size[1], i1 = i % size[1];
        if (i0 < from[0] || i0 >= to[0] || i1 < from[1] || i1 >= to[1]) {
            memset(all, 0, row);
            continue;
        }
        memset(all, 0, (size_t)from[2] * bytes);
        memset(all + (size_t)to[2] * bytes, 0, (size_t)(size[2] - to[2]) * bytes);
    }
}

/* The part of x that kernels read, samples-last and padded with zeros. `size` receives its
 * sizes. */
static aril_tensor *padded(const aril__run *r, const aril__conv *d, int64_t *size)
{
    aril_tensor *x = r->in[1];
    int spatial = x->ndim - 2;
    bool full = true;
    int64_t dim[ARIL_MAX_DIMS];
    for (int i = 0; i < 3; i++) {
        size[i] = (d->out[i] - 1) * d->stride[i] + (d->kernel[i] - 1) * d->dilation[i] + 1;
        full = full && d->begin[i] == 0 && size[i] <= d->in[i];
    }
    if (full) {
        memcpy(size, d->in, sizeof d->in);
        return aril_contiguous(aril_permute(x, aril__cpu_lanes_axes(x->ndim, false)));
    }
    for (int i = 0; i < spatial; i++) dim[i] = size[3 - spatial + i];
    dim[spatial] = d->c;
    dim[spatial + 1] = d->batch;
    aril__thread *th = aril__self();
    aril_tensor *all = aril__give(th, aril__tensor_new(th, r->type, x->ndim, dim, r->device));
    if (aril_tensor_status(all) < 0) return all;
    aril_tensor *to = aril_permute(all, aril__cpu_lanes_axes(x->ndim, true));
    int64_t from[3], end[3];
    bool empty = false;
    for (int i = 0; i < 3; i++) {
        int64_t begin = d->begin[i], skipped = begin < 0 ? -begin : 0, n = d->in[i] - skipped;
        from[i] = begin < 0 ? 0 : begin < size[i] ? begin : size[i];
        if (n > size[i] - from[i]) n = size[i] - from[i];
        if (n < 0) n = 0;
        end[i] = from[i] + n;
        empty = empty || n == 0;
        if (i < 3 - spatial || empty) continue;
        to = aril_narrow(to, 2 + i - (3 - spatial), from[i], n);
        x = aril_narrow(x, 2 + i - (3 - spatial), skipped, n);
    }
    if (aril_tensor_status(to) < 0) return to;
    if (aril_tensor_status(x) < 0) return x;
    zero_edges(aril__ptr(all), size, from, end, aril__dtype_bytes(r->type, d->c * d->batch));
    if (!empty) aril__copy_elements(to, x);
    return all;
}

aril_status aril__cpu_conv_lanes_grad(aril__run *r)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril__thread *th = aril__self();
    th->mode.anomaly = false; /* the result is checked once, at the end of the op */
    aril__conv sizes;
    aril__conv_describe(r, &sizes);
    const aril__conv *d = &sizes;
    job j = { .batch = d->batch, .c = d->c, .k = d->k, .w = d->w, .w_stride = d->w_stride[0] };
    int64_t size[3], taps = d->kernel[0] * d->kernel[1] * d->kernel[2];
    aril_tensor *x = padded(r, d, size);
    aril_tensor *y =
        aril_contiguous(aril_permute(r->in[0], aril__cpu_lanes_axes(r->in[0]->ndim, false)));
    j.pairs = taps * j.c;
    memcpy(j.out, d->out, sizeof j.out);
    int64_t rows = d->out[0] * d->out[1], work = d->out[2] * d->batch * j.k * j.pairs;
    j.pieces = aril__parallel_pieces(rows, PIECE_WORK / work + 1);
    j.piece = (size_t)(j.k * j.pairs) * MAX_VECTOR;
    int64_t twice = 2 * j.pairs;
    aril_tensor *pair = aril__give(th, aril__tensor_new(th, ARIL_I64, 1, &twice, r->device));
    j.part = aril__dtype_bytes(r->type, d->out[2] * j.k * j.batch);
    j.partial_bytes = aril__dtype_bytes(r->type, j.k * j.pairs);
    int64_t bytes = j.pieces * (int64_t)(j.piece + j.part + j.partial_bytes);
    aril_tensor *sums = aril__give(th, aril__tensor_new(th, ARIL_U8, 1, &bytes, r->device));
    aril_status s = aril_tensor_status(x);
    if (s == ARIL_OK) s = aril_tensor_status(y);
    if (s == ARIL_OK) s = aril_tensor_status(pair);
    if (s == ARIL_OK) s = aril_tensor_status(sums);
    if (s < 0) return s;

    int64_t x_position = j.c * j.batch, y_position = j.k * j.batch;
    int64_t across[3] = { size[1] * size[2] * x_position, size[2] * x_position, x_position };
    int64_t down[3] = { d->out[1] * d->out[2] * y_position, d->out[2] * y_position, y_position };
    for (int i = 0; i < 3; i++) {
        j.x_step[i] = across[i] * d->stride[i];
        j.y_step[i] = down[i];
    }
    j.pair = aril__ptr(pair);
    j.w_at = j.pair + j.pairs;
    for (int64_t q = 0; q < taps; q++) {
        int64_t q2 = q % d->kernel[2], q1 = q / d->kernel[2] % d->kernel[1],
                q0 = q / (d->kernel[2] * d->kernel[1]);
        int64_t at = q0 * d->dilation[0] * across[0] + q1 * d->dilation[1] * across[1] +
                     q2 * d->dilation[2] * across[2];
        int64_t w_at = q0 * d->w_stride[2] + q1 * d->w_stride[3] + q2 * d->w_stride[4];
        for (int64_t c = 0; c < j.c; c++) {
            j.pair[q * j.c + c] = at + c * j.batch;
            j.w_at[q * j.c + c] = w_at + c * d->w_stride[1];
        }
    }
    j.x = aril__ptr(x);
    j.y = aril__ptr(y);
    j.sums = aril__ptr(sums);
    j.parts = j.sums + (size_t)j.pieces * j.piece;
    j.partial = j.parts + (size_t)j.pieces * j.part;
    aril__parallel_for(j.pieces, 1, ARIL__PICK(pieces, r->type == ARIL_F64), &j);
    ARIL__PICK(finish, r->type == ARIL_F64)(&j);
    return ARIL_OK;
}
