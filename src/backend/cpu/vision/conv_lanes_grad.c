/* Compiled with fused multiply-add: see CMakeLists.txt. */
#include "backend/cpu/vision/conv_lanes_grad.h"

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

/* The sizes of the part of x that kernels read; false when x has to be padded for that. */
static bool sizes_read(const aril__conv *d, int64_t *size)
{
    bool full = true;
    for (int i = 0; i < 3; i++) {
        size[i] = (d->out[i] - 1) * d->stride[i] + (d->kernel[i] - 1) * d->dilation[i] + 1;
        full = full && d->begin[i] == 0 && size[i] <= d->in[i];
    }
    if (full) memcpy(size, d->in, sizeof d->in);
    return full;
}

/* How the sums are cut, and the layout of the workspace. */
typedef struct layout {
    bool full;       /* x is read where it is; else padded into the workspace */
    int64_t size[3]; /* of x, padded */
    size_t x, pairs, sums, parts, partial, end; /* offsets */
} layout;

static size_t aligned(size_t bytes)
{
    return (bytes + MAX_VECTOR - 1) / MAX_VECTOR * MAX_VECTOR;
}

/* `bytes`: of the workspace, which limits the number of pieces; 0: not known yet. */
static layout layout_of(const aril__run *r, const aril__conv *d, job *j, size_t bytes)
{
    layout l = { 0 };
    l.full = sizes_read(d, l.size);
    int64_t taps = d->kernel[0] * d->kernel[1] * d->kernel[2];
    int64_t rows = d->out[0] * d->out[1], work = d->out[2] * d->batch * d->k * taps * d->c;
    j->pairs = taps * d->c;
    j->pieces = aril__parallel_pieces(rows, PIECE_WORK / work + 1);
    j->piece = (size_t)(d->k * j->pairs) * MAX_VECTOR;
    j->part = aril__dtype_bytes(r->type, d->out[2] * d->k * d->batch);
    j->partial_bytes = aril__dtype_bytes(r->type, d->k * j->pairs);
    int64_t padded = l.full ? 0 : l.size[0] * l.size[1] * l.size[2] * d->c * d->batch;
    l.pairs = aligned(aril__dtype_bytes(r->type, padded));
    l.sums = l.pairs + aligned((size_t)(2 * j->pairs) * sizeof *j->pair);
    size_t each = j->piece + j->part + j->partial_bytes;
    if (bytes) j->pieces = (int64_t)((bytes - l.sums) / each);
    size_t pieces = (size_t)j->pieces;
    l.parts = l.sums + pieces * j->piece;
    l.partial = l.parts + pieces * j->part;
    l.end = l.partial + pieces * j->partial_bytes;
    return l;
}

const char *aril__cpu_conv_lanes_grad_prepare(const aril__run *r, aril__plan *plan)
{
    const aril_tensor *g = r->in[0], *x = r->in[1], *w = r->out[0];
    if (w->numel <= 0 || g->numel <= 0 || x->numel <= 0) return "an empty tensor";
    if (((const struct conv_attrs *)r->attrs)->groups[0] != 1) return "groups";
    if (x->dim[0] % SAMPLES != 0) return "the batch size is not a multiple of 16";
    if (!turns(g) || !turns(x)) return "many channels";
    if (w->numel > MAX_SUMS) return "a large weight";
    if (aril__count(w->ndim - 2, w->dim + 2) == 1) return "a kernel of size 1";
    job j;
    aril__conv d;
    aril__conv_describe(r, &d);
    layout l = layout_of(r, &d, &j, 0);
    plan->in[0].order = ARIL_ORDER_SAMPLES_LAST;
    if (l.full) plan->in[1].order = ARIL_ORDER_SAMPLES_LAST;
    plan->workspace = l.end;
    return NULL;
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

/* Part of an image, in the axes of its tensor. */
static void narrow(aril_tensor *t, int axis, int64_t from, int64_t n)
{
    t->offset += from * t->stride[axis];
    t->numel = t->dim[axis] ? t->numel / t->dim[axis] * n : 0;
    t->dim[axis] = n;
}

/* Copies the part of x that kernels read to `space`, samples-last and padded with zeros. */
static void pad(const aril__run *r, const aril__conv *d, const int64_t *size, void *space)
{
    aril_tensor x = *r->in[1], to = x;
    aril__storage memory = { .device = r->device, .data = space };
    int lead = 3 - (x.ndim - 2);
    to.storage = &memory;
    to.offset = 0;
    for (int i = lead; i < 3; i++) to.dim[2 + i - lead] = size[i];
    to.numel = aril__count(to.ndim, to.dim);
    aril__samples_last_strides(to.ndim, to.dim, to.stride);
    int64_t from[3], end[3];
    for (int i = 0; i < 3; i++) {
        int64_t begin = d->begin[i], skipped = begin < 0 ? -begin : 0, n = d->in[i] - skipped;
        from[i] = begin < 0 ? 0 : begin < size[i] ? begin : size[i];
        if (n > size[i] - from[i]) n = size[i] - from[i];
        if (n < 0) n = 0;
        end[i] = from[i] + n;
        if (i < lead) continue;
        narrow(&to, 2 + i - lead, from[i], n);
        narrow(&x, 2 + i - lead, n ? skipped : 0, n);
    }
    zero_edges(space, size, from, end, aril__dtype_bytes(r->type, d->c * d->batch));
    if (to.numel) aril__copy_elements(&to, &x);
}

aril_status aril__cpu_conv_lanes_grad(aril__run *r)
{
    aril__conv sizes;
    aril__conv_describe(r, &sizes);
    const aril__conv *d = &sizes;
    job j = { .batch = d->batch, .c = d->c, .k = d->k, .w = d->w, .w_stride = d->w_stride[0] };
    layout l = layout_of(r, d, &j, r->workspace_bytes);
    const int64_t *size = l.size;
    int64_t taps = d->kernel[0] * d->kernel[1] * d->kernel[2];
    char *space = r->workspace;
    memcpy(j.out, d->out, sizeof j.out);
    if (!l.full) pad(r, d, size, space + l.x);

    int64_t x_position = j.c * j.batch, y_position = j.k * j.batch;
    int64_t across[3] = { size[1] * size[2] * x_position, size[2] * x_position, x_position };
    int64_t down[3] = { d->out[1] * d->out[2] * y_position, d->out[2] * y_position, y_position };
    for (int i = 0; i < 3; i++) {
        j.x_step[i] = across[i] * d->stride[i];
        j.y_step[i] = down[i];
    }
    j.pair = (int64_t *)(void *)(space + l.pairs);
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
    j.x = l.full ? aril__ptr(r->in[1]) : space + l.x;
    j.y = aril__ptr(r->in[0]);
    j.sums = space + l.sums;
    j.parts = space + l.parts;
    j.partial = space + l.partial;
    aril__parallel_for(j.pieces, 1, ARIL__PICK(pieces, r->type == ARIL_F64), &j);
    ARIL__PICK(finish, r->type == ARIL_F64)(&j);
    return ARIL_OK;
}
