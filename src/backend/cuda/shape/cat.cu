/* cat, pad_like and repeat: copies to parts of a result, or from a broadcast input. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/shape/rearrange.cuh"
#include "ops/shape/concat.h"

/* ---- one copy of any strides ---- */

template <typename U>
static __global__ void place(const __grid_constant__ aril_cuda_nest<2> nest, uint32_t n,
                             U *__restrict__ to, const U *__restrict__ from)
{
    const int most = 4;
    const uint32_t step = gridDim.x * blockDim.x;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += most * step) {
        U v[most];
        int32_t at[most][2];
#pragma unroll
        for (int k = 0; k < most; k++) {
            if (i + k * step >= n) continue;
            nest.offsets(i + k * step, at[k]);
            v[k] = from[at[k][1]];
        }
#pragma unroll
        for (int k = 0; k < most; k++)
            if (i + k * step < n) to[at[k][0]] = v[k];
    }
}

template <typename U>
static aril_status place_units(const aril_run *r, const aril_cuda_loops &l, void *to,
                               const void *from)
{
    return aril_cuda_each_piece(&l, [&](const aril_cuda_loops &piece) {
        uint32_t n = (uint32_t)aril_cuda_loops_numel(&piece);
        place<U><<<aril_cuda_blocks(r, n, 1024), 256, 0, aril_cuda_stream(r)>>>(
            aril_cuda_nest_of<2>(piece), n, static_cast<U *>(to) + piece.offset[0],
            static_cast<const U *>(from) + piece.offset[1]);
        return aril_cuda_launched(r);
    });
}

/* As many bytes at a time as sizes and addresses allow: the loops become those of units. */
static int64_t widen(aril_cuda_loops *l, const void *to, const void *from, int64_t bytes)
{
    int last = l->ndim - 1;
    if (last < 0 || l->stride[0][last] != 1 || l->stride[1][last] != 1) return bytes;
    for (int64_t wide = 16; wide > bytes; wide /= 2) {
        int64_t unit = wide / bytes;
        bool fits =
            l->dim[last] % unit == 0 && ((uintptr_t)to | (uintptr_t)from) % (uintptr_t)wide == 0;
        for (int d = 0; d < last; d++)
            fits = fits && l->stride[0][d] % unit == 0 && l->stride[1][d] % unit == 0;
        if (!fits) continue;
        l->dim[last] /= unit;
        for (int k = 0; k < 2; k++)
            for (int d = 0; d < last; d++) l->stride[k][d] /= unit;
        return wide;
    }
    return bytes;
}

aril_status aril_cuda_place(const aril_run *r, aril_cuda_loops loops, void *to, const void *from,
                            int64_t bytes)
{
    aril_status s = ARIL_OK;
    aril_cuda_loops_merge(&loops, 0);
    bytes = widen(&loops, to, from, bytes);
    if (bytes == 16) return place_units<uint4>(r, loops, to, from);
    ARIL_CUDA_SWITCH_SIZE(bytes, U, (s = place_units<U>(r, loops, to, from)));
    return s;
}

/* ---- cat ---- */

enum { INPUTS = 64 };

/* Inputs that are matrices [rows, run] in memory, side by side in a result with rows of `pitch`. */
struct blocks {
    int64_t pitch;
    struct input {
        const void *from;
        int64_t column; /* in the result */
        uint32_t n;     /* elements */
        aril_cuda_divisor run;
    } at[INPUTS];
};

template <typename U>
static __global__ void join(const __grid_constant__ blocks b, U *__restrict__ to)
{
    const blocks::input &x = b.at[blockIdx.y];
    const U *from = static_cast<const U *>(x.from);
    const int most = 4;
    const uint32_t step = gridDim.x * blockDim.x;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < x.n; i += most * step) {
        U v[most];
#pragma unroll
        for (int k = 0; k < most; k++)
            if (i + k * step < x.n) v[k] = from[i + k * step];
#pragma unroll
        for (int k = 0; k < most; k++) {
            uint32_t column, row = x.run.split(i + k * step, &column);
            if (i + k * step < x.n) to[row * b.pitch + x.column + column] = v[k];
        }
    }
}

/* A call of cat: a part of the result for each input. */
struct joint {
    aril_tensor *out;
    char *to;
    int axis;
    int64_t bytes;
};

/* The loops of input i, whose part begins at `position` of the axis. */
static aril_cuda_loops part_of(const joint &c, const aril_tensor *x)
{
    aril_cuda_loops l = aril_cuda_loops_of(x);
    for (int d = 0; d < l.ndim; d++) {
        l.stride[0][d] = aril_cuda_host->strides(c.out)[d];
        l.stride[1][d] = aril_cuda_host->strides(x)[d];
    }
    l.n = 2;
    return l;
}

/* Whether merged loops are a matrix that is contiguous in the input, with contiguous rows in the
 * result. *pitch: of the result; 0 if there is one row. */
static bool is_matrix(const aril_cuda_loops &l, int64_t *rows, int64_t *run, int64_t *pitch)
{
    int last = l.ndim - 1;
    *rows = *run = 1;
    *pitch = 0;
    if (last < 0) return true;
    if (last == 0 && l.stride[0][0] != 1 && l.stride[1][0] == 1) { /* a column */
        *rows = l.dim[0];
        *pitch = l.stride[0][0];
        return true;
    }
    if (last > 1 || l.stride[0][last] != 1 || l.stride[1][last] != 1) return false;
    *run = l.dim[last];
    if (last == 0) return true;
    *rows = l.dim[0];
    *pitch = l.stride[0][0];
    return l.stride[1][0] == *run && *rows * *run < (int64_t)1 << 30;
}

/* Fills in all inputs from `first` on that fit, in elements; false if one is no such matrix. */
static bool collect(const aril_run *r, const joint &c, int first, int n, int64_t position,
                    blocks *b, int64_t *widest)
{
    *widest = 0;
    b->pitch = 0;
    for (int i = 0; i < n; i++) {
        const aril_tensor *x = aril_cuda_in(r, first + i);
        aril_cuda_loops l = part_of(c, x);
        int64_t rows, run, pitch, numel = aril_cuda_host->numel(x);
        blocks::input *in = &b->at[i];
        in->from = aril_cuda_data(x);
        in->column = position * aril_cuda_host->strides(c.out)[c.axis];
        position += aril_cuda_host->dims(x)[c.axis];
        in->n = (uint32_t)numel;
        in->run = aril_cuda_divisor_of(1);
        if (numel == 0) continue;
        aril_cuda_loops_merge(&l, 0);
        if (numel >= (int64_t)1 << 30 || !is_matrix(l, &rows, &run, &pitch)) return false;
        if (pitch && b->pitch && pitch != b->pitch) return false;
        if (pitch) b->pitch = pitch;
        in->run.by = (uint32_t)run; /* until the unit is known */
        if (numel > *widest) *widest = numel;
    }
    return true;
}

template <typename U>
static aril_status join_units(const aril_run *r, const joint &c, int n, const blocks &b,
                              int64_t widest)
{
    dim3 grid(aril_cuda_blocks(r, widest, 1024), (unsigned)n);
    join<U><<<grid, 256, 0, aril_cuda_stream(r)>>>(b, reinterpret_cast<U *>(c.to));
    return aril_cuda_launched(r);
}

/* The widest unit that suits all inputs; converts sizes to it. */
static int64_t choose_unit(const joint &c, int n, blocks *b, int64_t *widest)
{
    int64_t wide = 16;
    for (; wide > c.bytes; wide /= 2) {
        int64_t unit = wide / c.bytes;
        bool fits = (uintptr_t)c.to % (uintptr_t)wide == 0 && b->pitch % unit == 0;
        for (int i = 0; i < n && fits; i++) {
            const blocks::input *in = &b->at[i];
            if (in->n)
                fits = in->run.by % unit == 0 && in->column % unit == 0 &&
                       (uintptr_t)in->from % (uintptr_t)wide == 0;
        }
        if (fits) break;
    }
    int64_t unit = wide / c.bytes;
    b->pitch /= unit;
    *widest /= unit;
    for (int i = 0; i < n; i++) {
        blocks::input *in = &b->at[i];
        in->column /= unit;
        in->n = (uint32_t)(in->n / unit);
        in->run = aril_cuda_divisor_of(in->n ? in->run.by / unit : 1);
    }
    return wide;
}

static aril_status join_blocks(const aril_run *r, const joint &c, int n, blocks *b, int64_t widest)
{
    int64_t wide = choose_unit(c, n, b, &widest);
    aril_status s = ARIL_OK;
    if (widest == 0) return ARIL_OK;
    if (wide == 16) return join_units<uint4>(r, c, n, *b, widest);
    ARIL_CUDA_SWITCH_SIZE(wide, U, (s = join_units<U>(r, c, n, *b, widest)));
    return s;
}

aril_status aril_cuda_cat_run(aril_run *r)
{
    joint c = {};
    c.out = aril_cuda_out(r, 0);
    c.to = static_cast<char *>(aril_cuda_data(c.out));
    c.axis = (int)aril_cuda_attrs<cat_attrs>(r)->axis[0];
    c.bytes = aril_cuda_size(aril_cuda_host->dtype(c.out));
    int n = aril_cuda_host->n_in(r);
    int64_t position = 0;
    aril_status s = ARIL_OK;
    for (int first = 0; first < n && s == ARIL_OK; first += INPUTS) {
        int m = n - first < INPUTS ? n - first : INPUTS;
        int64_t widest;
        blocks b;
        bool matrices = collect(r, c, first, m, position, &b, &widest);
        if (matrices) s = join_blocks(r, c, m, &b, widest);
        for (int i = 0; i < m && s == ARIL_OK; i++) {
            const aril_tensor *x = aril_cuda_in(r, first + i);
            char *to = c.to + position * aril_cuda_host->strides(c.out)[c.axis] * c.bytes;
            if (!matrices && aril_cuda_host->numel(x))
                s = aril_cuda_place(r, part_of(c, x), to, aril_cuda_data(x), c.bytes);
            position += aril_cuda_host->dims(x)[c.axis];
        }
    }
    return s;
}

/* ---- pad_like ---- */

aril_status aril_cuda_pad_like_run(aril_run *r)
{
    const narrow_like_attrs *a = aril_cuda_attrs<narrow_like_attrs>(r);
    const aril_tensor *x = aril_cuda_in(r, 0);
    joint c = {};
    c.out = aril_cuda_out(r, 0);
    c.to = static_cast<char *>(aril_cuda_data(c.out));
    c.axis = (int)a->axis[0];
    c.bytes = aril_cuda_size(aril_cuda_host->dtype(c.out));
    aril_status s = aril_cuda_clear(r, c.to, (size_t)(aril_cuda_host->numel(c.out) * c.bytes));
    if (s < 0 || aril_cuda_host->numel(x) == 0) return s;
    int64_t before =
        a->part[0] == ARIL__FIRST ? 0 : aril_cuda_dim(c.out, c.axis) - aril_cuda_dim(x, c.axis);
    char *to = c.to + before * aril_cuda_host->strides(c.out)[c.axis] * c.bytes;
    return aril_cuda_place(r, part_of(c, x), to, aril_cuda_data(x), c.bytes);
}

/* ---- repeat ---- */

/* The result as [outer, times, n, inner], or with `each` as [outer, n, times, inner]; x is
 * broadcast along `times`. */
aril_status aril_cuda_repeat_run(aril_run *r)
{
    const repeat_attrs *a = aril_cuda_attrs<repeat_attrs>(r);
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_tensor *out = aril_cuda_out(r, 0);
    if (aril_cuda_host->numel(out) == 0) return ARIL_OK;
    int axis = (int)a->axis[0], along = a->each[0] ? 2 : 1;
    aril_cuda_loops l = {};
    l.ndim = 4;
    l.n = 2;
    l.dim[0] = l.dim[3] = 1;
    for (int d = 0; d < aril_cuda_host->ndim(x); d++)
        if (d != axis) l.dim[d < axis ? 0 : 3] *= aril_cuda_dim(x, d);
    l.dim[along] = a->times[0];
    l.dim[3 - along] = aril_cuda_dim(x, axis);
    int64_t to = 1, from = 1;
    for (int d = 3; d >= 0; d--) {
        l.stride[0][d] = to;
        l.stride[1][d] = d == along ? 0 : from;
        to *= l.dim[d];
        if (d != along) from *= l.dim[d];
    }
    return aril_cuda_place(r, l, aril_cuda_data(out), aril_cuda_data(x),
                           aril_cuda_size(aril_cuda_host->dtype(out)));
}
