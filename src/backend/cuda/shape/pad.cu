/* pad and its gradient, and roll: each element of the result has one source, or is a constant. */
#include "aril/index.h"
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/shape/rearrange.cuh"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"

/* Both tensors, dimension by dimension in the order of the result's memory. */
struct padding {
    int ndim;
    int mode;
    bool wide;                  /* positions do not fit in 31 bits */
    int64_t total;              /* elements of the result */
    int64_t dim[ARIL_MAX_DIMS]; /* of the padded tensor */
    int64_t n[ARIL_MAX_DIMS];   /* of the other one */
    int64_t before[ARIL_MAX_DIMS];
    int64_t padded[ARIL_MAX_DIMS], x[ARIL_MAX_DIMS]; /* strides */
    aril_cuda_divisor by[ARIL_MAX_DIMS];             /* the dimensions that are iterated over */

    /* Takes the last coordinate off position i, of a dimension of that size. */
    __device__ __forceinline__ int64_t coordinate(int64_t *i, int d, int64_t size) const
    {
        int64_t q = wide ? *i / size : (int64_t)by[d].divide((uint32_t)*i);
        int64_t k = *i - q * size;
        *i = q;
        return k;
    }
};

/* As aril__pad_source. */
static __device__ __forceinline__ int64_t source(int64_t i, int64_t n, int mode)
{
    if (mode == ARIL_PAD_REPLICATE) return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (mode == ARIL_PAD_CIRCULAR) return i < 0 ? i + n : i >= n ? i - n : i;
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

template <typename U>
static __global__ void pad(const __grid_constant__ padding p, U *__restrict__ out,
                           const U *__restrict__ x, U value)
{
    ARIL_CUDA_LOOP(i, p.total)
    {
        int64_t rest = i, to = 0, from = 0;
        bool constant = false;
#pragma unroll 1
        for (int d = p.ndim - 1; d >= 0; d--) {
            int64_t k = p.coordinate(&rest, d, p.dim[d]);
            to += k * p.padded[d];
            k -= p.before[d];
            if (p.mode != ARIL_PAD_CONSTANT)
                k = source(k, p.n[d], p.mode);
            else if (k < 0 || k >= p.n[d])
                constant = true;
            from += k * p.x[d];
        }
        out[to] = constant ? value : x[from];
    }
}

/* ---- the gradient ---- */

/* The positions of the padded axis whose source is k, in increasing order: their number, and
 * position number j of them. */
struct preimages {
    int64_t count, at[3]; /* a range from at[0] on (replicate), or up to three */
    bool range;

    __device__ __forceinline__ int64_t operator[](int64_t j) const
    {
        if (range) return at[0] + j;
        return j == 0 ? at[0] : j == 1 ? at[1] : at[2];
    }
};

static __device__ preimages preimages_of(int mode, int64_t k, int64_t n, int64_t before,
                                         int64_t size)
{
    preimages p = { 0, { 0, 0, 0 }, false };
    if (mode == ARIL_PAD_REPLICATE) {
        int64_t from = k == 0 ? 0 : before + k, to = k == n - 1 ? size - 1 : before + k;
        return { to - from + 1, { from, 0, 0 }, true };
    }
    int64_t own = before + k, first = own, last = own;
    if (mode == ARIL_PAD_REFLECT) {
        first = before - k;
        last = before + 2 * (n - 1) - k;
        if (k == 0) first = -1; /* the edges are not repeated */
        if (k == n - 1) last = size;
    } else if (mode == ARIL_PAD_CIRCULAR) {
        first = own - n;
        last = own + n;
    } else {
        first = -1;
        last = size;
    }
    if (first >= 0 && first < size) p.at[p.count++] = first;
    if (own >= 0 && own < size) p.at[p.count++] = own;
    if (last >= 0 && last < size) p.at[p.count++] = last;
    return p;
}

/* dx = the sum of g over all positions that come from an element, in the order of the CPU. */
template <typename S>
static __global__ void unpad(const __grid_constant__ padding p, S *__restrict__ dx,
                             const S *__restrict__ g)
{
    typedef typename aril_cuda_type<S>::compute C;
    ARIL_CUDA_LOOP(i, p.total)
    {
        int64_t rest = i, to = 0, many = 1, base = 0;
        preimages from[ARIL_MAX_DIMS];
#pragma unroll 1
        for (int d = p.ndim - 1; d >= 0; d--) {
            int64_t k = p.coordinate(&rest, d, p.n[d]);
            to += k * p.x[d];
            from[d] = preimages_of(p.mode, k, p.n[d], p.before[d], p.dim[d]);
            many *= from[d].count;
            base += from[d].count == 1 ? from[d][0] * p.padded[d] : 0;
        }
        C sum = 0;
        for (int64_t t = 0; t < many; t++) {
            int64_t left = t, at = base;
#pragma unroll 1
            for (int d = p.ndim - 1; d >= 0 && many > 1; d--) {
                if (from[d].count == 1) continue;
                at += from[d][left % from[d].count] * p.padded[d];
                left /= from[d].count;
            }
            sum += aril_cuda_to<C>(g[at]);
        }
        dx[to] = aril_cuda_from<S>(sum);
    }
}

/* ---- runs ---- */

/* Sorted by the strides of the tensor that is written, largest first. The order of additions in a
 * gradient follows: only its rounding may depend on it. */
static void sort_dims(padding *p, const int64_t *key)
{
    for (int i = 1; i < p->ndim; i++)
        for (int k = i; k > 0 && key[k] > key[k - 1]; k--)
            for (int64_t *a : { p->dim, p->n, p->before, p->padded, p->x }) {
                int64_t t = a[k];
                a[k] = a[k - 1];
                a[k - 1] = t;
            }
}

/* `over_padded`: the padded tensor is the one iterated over. */
static padding padding_of(const aril_tensor *padded, const aril_tensor *x, int mode,
                          const int64_t *before, bool over_padded)
{
    padding p = {};
    p.ndim = aril_cuda_host->ndim(padded);
    p.mode = mode;
    p.total = 1;
    for (int d = 0; d < p.ndim; d++) {
        p.dim[d] = aril_cuda_dim(padded, d);
        p.n[d] = aril_cuda_dim(x, d);
        p.before[d] = before[d];
        p.padded[d] = aril_cuda_host->strides(padded)[d];
        p.x[d] = aril_cuda_host->strides(x)[d];
        p.total *= over_padded ? p.dim[d] : p.n[d];
    }
    sort_dims(&p, over_padded ? p.padded : p.x);
    p.wide = p.total >> 31 != 0;
    for (int d = 0; d < p.ndim && !p.wide && p.total; d++)
        p.by[d] = aril_cuda_divisor_of(over_padded ? p.dim[d] : p.n[d]);
    return p;
}

template <typename U>
static aril_status pad_as(aril_run *r, const padding &p, aril_tensor *out, const aril_tensor *x,
                          U value)
{
    pad<U><<<aril_cuda_blocks(r, p.total, 1024, 8), 256, 0, aril_cuda_stream(r)>>>(
        p, static_cast<U *>(aril_cuda_data(out)), static_cast<const U *>(aril_cuda_data(x)), value);
    return aril_cuda_launched(r);
}

/* The bits of a constant of a dtype that computes. */
template <typename U> static U bits_of(aril_dtype dtype, double value)
{
    uint64_t bits[2] = { 0, 0 };
    aril_cuda_store<double>(bits, 0, dtype, value);
    return (U)bits[0];
}

const char *aril_cuda_pad_prepare(const aril_run *r, aril_plan *plan)
{
    (void)plan;
    bool constant = aril_cuda_attrs<pad_attrs>(r)->mode[0] == ARIL_PAD_CONSTANT;
    return constant && !(ARIL_CUDA_DT_COMPUTE >> aril_cuda_host->type(r) & 1)
               ? "a constant of a dtype that does not compute"
               : nullptr;
}

aril_status aril_cuda_pad_run(aril_run *r)
{
    const pad_attrs *a = aril_cuda_attrs<pad_attrs>(r);
    aril_tensor *out = aril_cuda_out(r, 0);
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_dtype dtype = aril_cuda_host->dtype(out);
    padding p = padding_of(out, x, (int)a->mode[0], a->before, true);
    if (p.total == 0) return ARIL_OK;
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(dtype), U,
                          return pad_as<U>(r, p, out, x, bits_of<U>(dtype, a->value[0])));
    return ARIL_OK;
}

aril_status aril_cuda_pad_grad_run(aril_run *r)
{
    const pad_attrs *a = aril_cuda_attrs<pad_attrs>(r);
    aril_tensor *dx = aril_cuda_out(r, 0);
    const aril_tensor *g = aril_cuda_in(r, 0);
    padding p = padding_of(g, dx, (int)a->mode[0], a->before, false);
    if (p.total == 0) return ARIL_OK;
    if (p.ndim == 0) return aril_cuda_copy_whole(r, dx, 0);
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->dtype(dx), S, {
        unpad<S><<<aril_cuda_blocks(r, p.total, 256, 8), 256, 0, aril_cuda_stream(r)>>>(
            p, static_cast<S *>(aril_cuda_data(dx)), static_cast<const S *>(aril_cuda_data(g)));
    });
    return aril_cuda_launched(r);
}

/* A roll takes position k - shift, wrapped around. */
aril_status aril_cuda_roll_run(aril_run *r)
{
    const roll_attrs *a = aril_cuda_attrs<roll_attrs>(r);
    aril_tensor *out = aril_cuda_out(r, 0);
    const aril_tensor *x = aril_cuda_in(r, 0);
    int64_t shift[ARIL_MAX_DIMS];
    if (aril_cuda_host->numel(out) == 0) return ARIL_OK;
    for (int d = 0; d < aril_cuda_host->ndim(x); d++) {
        int64_t n = aril_cuda_dim(x, d), k = a->shift[d] % n;
        shift[d] = k < 0 ? k + n : k;
    }
    padding p = padding_of(out, x, ARIL_PAD_CIRCULAR, shift, true);
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(aril_cuda_host->dtype(out)), U,
                          return pad_as<U>(r, p, out, x, (U)0));
    return ARIL_OK;
}
