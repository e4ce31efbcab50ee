#include "backend/cuda/reduce/layout.cuh"

static int64_t magnitude(int64_t v)
{
    return v < 0 ? -v : v;
}

static void swap_dims(aril_cuda_dims *d, int a, int b)
{
    int64_t t = d->dim[a];
    d->dim[a] = d->dim[b];
    d->dim[b] = t;
    for (int k = 0; k < ARIL_CUDA_AXES_OPERANDS; k++) {
        t = d->stride[k][a];
        d->stride[k][a] = d->stride[k][b];
        d->stride[k][b] = t;
    }
}

void aril_cuda_dims_merge(aril_cuda_dims *d, bool sorted)
{
    int kept = 0;
    for (int i = 1; i < d->ndim && sorted; i++)
        for (int k = i; k > 0 && magnitude(d->stride[0][k]) > magnitude(d->stride[0][k - 1]); k--)
            swap_dims(d, k, k - 1);
    for (int i = 0; i < d->ndim; i++) {
        if (d->dim[i] == 1) continue;
        bool merges = kept > 0;
        for (int k = 0; k < ARIL_CUDA_AXES_OPERANDS && merges; k++)
            merges = d->stride[k][kept - 1] == d->dim[i] * d->stride[k][i];
        int to = merges ? kept - 1 : kept++;
        d->dim[to] = merges ? d->dim[to] * d->dim[i] : d->dim[i];
        for (int k = 0; k < ARIL_CUDA_AXES_OPERANDS; k++) d->stride[k][to] = d->stride[k][i];
    }
    d->ndim = kept;
}

/* Sizes of 0 stay: nothing is then visited. */
aril_cuda_axes aril_cuda_axes_of(const aril_cuda_dims *d)
{
    aril_cuda_axes a = {};
    a.ndim = d->ndim;
    a.count = 1;
    for (int i = 0; i < d->ndim; i++) {
        int from = d->ndim - 1 - i;
        a.dim[i] = d->dim[from];
        a.count *= a.dim[i];
        for (int k = 0; k < ARIL_CUDA_AXES_OPERANDS; k++) a.stride[k][i] = d->stride[k][from];
    }
    a.wide = a.count > INT32_MAX;
    for (int i = 0; i < a.ndim && !a.wide; i++)
        a.by[i] = aril_cuda_divisor_of(a.dim[i] > 0 ? a.dim[i] : 1);
    return a;
}

/* The stride of the innermost dimension; without any, larger than all others. */
static int64_t innermost(const aril_cuda_axes *a)
{
    return a->ndim ? magnitude(a->stride[0][0]) : INT64_MAX;
}

aril_cuda_reduction aril_cuda_reduction_from(const aril_cuda_dims *kept, const aril_cuda_dims *red)
{
    aril_cuda_reduction r = {};
    r.kept = aril_cuda_axes_of(kept);
    r.red = aril_cuda_axes_of(red);
    r.results = r.kept.count;
    r.each = r.red.count;
    r.lanes = 1;
    /* A broadcast dimension (stride 0) is no reason to read along it. */
    int64_t along = innermost(&r.red), across = innermost(&r.kept);
    r.by_row = across == INT64_MAX || (along && along < across) || (!across && along != INT64_MAX);
    return r;
}

aril_cuda_reduction aril_cuda_reduction_of(const aril_tensor *x, int64_t mask, bool in_order,
                                           const aril_tensor *out0, const aril_tensor *out1)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *out[] = { out0, out1 };
    aril_cuda_dims kept = {}, red = {};
    int ndim = h->ndim(x), at = 0;
    bool keep = out0 && h->ndim(out0) == ndim; /* or nothing is reduced: then it is the same */
    for (int d = 0; d < ndim; d++) {
        bool reduced = mask >> d & 1;
        aril_cuda_dims *to = reduced ? &red : &kept;
        to->dim[to->ndim] = h->dims(x)[d];
        to->stride[0][to->ndim] = h->strides(x)[d];
        for (int k = 0; k < 2 && !reduced; k++)
            to->stride[1 + k][to->ndim] = out[k] ? h->strides(out[k])[keep ? d : at] : 0;
        at += !reduced;
        to->ndim++;
    }
    aril_cuda_dims_merge(&kept, !in_order);
    aril_cuda_dims_merge(&red, !in_order);
    return aril_cuda_reduction_from(&kept, &red);
}

/* Whether all strides of operand 0 but the innermost allow reads of `lanes` elements. */
static bool strides_allow(const aril_cuda_axes *a, int first, int lanes)
{
    for (int d = first; d < a->ndim; d++)
        if (a->stride[0][d] % lanes) return false;
    return true;
}

bool aril_cuda_reduction_vectors(aril_cuda_reduction *r, const void *base, int size, int lanes)
{
    aril_cuda_axes *in = r->by_row ? &r->red : &r->kept;
    if (lanes == 1 || in->ndim == 0 || in->stride[0][0] != 1 || in->dim[0] % lanes ||
        (uintptr_t)base % (uintptr_t)(lanes * size) || !strides_allow(&r->red, r->by_row, lanes) ||
        !strides_allow(&r->kept, !r->by_row, lanes))
        return false;
    r->lanes = lanes;
    in->dim[0] /= lanes;
    in->count /= lanes;
    for (int k = 0; k < ARIL_CUDA_AXES_OPERANDS; k++) {
        if (!r->by_row) r->lane[k] = in->stride[k][0];
        in->stride[k][0] *= lanes;
    }
    in->wide = in->count > INT32_MAX;
    for (int i = 0; i < in->ndim && !in->wide; i++)
        in->by[i] = aril_cuda_divisor_of(in->dim[i] > 0 ? in->dim[i] : 1);
    return true;
}

/* Columns are cut into tiles of equal width, 32 units where there are rows enough for the block. */
static int column_width(int64_t columns, int64_t rows)
{
    const int threads = ARIL_CUDA_REDUCE_THREADS;
    int64_t most = 32;
    while (most < threads && 2 * (threads / most) > rows) most *= 2;
    int64_t tiles = (columns + most - 1) / most;
    return tiles ? (int)((columns + tiles - 1) / tiles) : 1;
}

void aril_cuda_reduction_cut(aril_cuda_reduction *r, int resident)
{
    enum { MULTIPROCESSORS = 132 }; /* of a large GPU: one full load */
    const int threads = ARIL_CUDA_REDUCE_THREADS;
    int64_t m = r->kept.count, k = r->red.count;
    r->width = !r->by_row ? column_width(m, k)
               : k > 512  ? threads
               : k > 32   ? 32
                          : (int)aril_cuda_pow2(k);
    int64_t per_block = r->by_row ? threads / r->width : r->width;
    int64_t step = r->by_row ? r->width : threads / r->width;
    int64_t tiles = (m + per_block - 1) / per_block;
    int64_t splits = tiles ? MULTIPROCESSORS * resident / tiles : 1,
            most = k / (step * ARIL_CUDA_REDUCE_UNROLL);
    if (splits > most) splits = most;
    r->splits = splits < 1 ? 1 : (int)splits;
}
