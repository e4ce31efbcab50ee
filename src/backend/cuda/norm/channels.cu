#include "backend/cuda/norm/channels.cuh"

bool aril_cuda_is_channels_last(const aril_tensor *t)
{
    const aril_host *h = aril_cuda_host;
    int ndim = h->ndim(t);
    const int64_t *dim = h->dims(t), *stride = h->strides(t);
    int64_t step = 1;
    bool rows = true;
    for (int d = ndim - 1; d >= 0; d--) {
        if (dim[d] != 1 && stride[d] != step) rows = false;
        step *= dim[d];
    }
    if (rows || ndim < 3 || h->numel(t) == 0) return false;
    step = 1;
    for (int i = 0; i < ndim; i++) { /* C, then the positions from the last axis, then N */
        int d = i == 0 ? 1 : i < ndim - 1 ? ndim - i : 0;
        if (dim[d] != 1 && stride[d] != step) return false;
        step *= dim[d];
    }
    return true;
}

aril_cuda_channels aril_cuda_channels_of(const aril_tensor *x)
{
    const aril_host *h = aril_cuda_host;
    const int64_t *dim = h->dims(x);
    aril_cuda_channels l = { dim[0], dim[1], 1, false };
    for (int d = 2; d < h->ndim(x); d++) l.inner *= dim[d];
    l.last = l.inner == 1 || aril_cuda_is_channels_last(x);
    return l;
}

aril_cuda_reduction aril_cuda_channels_reduction(const aril_cuda_channels &l, uintptr_t bases,
                                                 int size, int lanes, int resident)
{
    aril_cuda_dims kept = {}, red = {};
    kept.ndim = 1;
    kept.dim[0] = l.c;
    kept.stride[0][0] = l.last ? 1 : l.inner;
    red.ndim = 2;
    red.dim[0] = l.batch;
    red.dim[1] = l.inner;
    red.stride[0][0] = l.c * l.inner;
    red.stride[0][1] = l.last ? l.c : 1;
    aril_cuda_dims_merge(&kept, false);
    aril_cuda_dims_merge(&red, false);
    aril_cuda_reduction r = aril_cuda_reduction_from(&kept, &red);
    /* Units are the same in kernels over all elements: along channels, or along positions. */
    bool along = l.last ? l.c % lanes == 0 : l.inner % lanes == 0;
    if (along && r.by_row != l.last) aril_cuda_reduction_vectors(&r, (void *)bases, size, lanes);
    aril_cuda_reduction_cut(&r, resident);
    return r;
}

size_t aril_cuda_channels_workspace(const aril_tensor *x, size_t acc, int resident)
{
    aril_cuda_channels l = aril_cuda_channels_of(x);
    int size = aril_cuda_size(aril_cuda_host->dtype(x));
    size_t most = 0;
    for (int lanes = 1; lanes <= 16 / size; lanes += 16 / size - 1) {
        size_t bytes =
            aril_cuda_reduce_bytes(aril_cuda_channels_reduction(l, 0, size, lanes, resident), acc);
        if (bytes > most) most = bytes;
    }
    return most;
}

int aril_cuda_channels_lanes(const aril_cuda_channels &l, uintptr_t bases, int dtype)
{
    int lanes = dtype == ARIL_F64 ? 1 : 16 / aril_cuda_size(dtype);
    return bases % 16 == 0 && (l.last ? l.c : l.inner) % lanes == 0 ? lanes : 1;
}
