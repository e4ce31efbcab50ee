#include "backend/cuda/loops.cuh"

static void swap_dims(aril_cuda_loops *l, int a, int b)
{
    int64_t t = l->dim[a];
    l->dim[a] = l->dim[b];
    l->dim[b] = t;
    for (int k = 0; k < l->n; k++) {
        t = l->stride[k][a];
        l->stride[k][a] = l->stride[k][b];
        l->stride[k][b] = t;
    }
}

static int64_t magnitude(int64_t v)
{
    return v < 0 ? -v : v;
}

void aril_cuda_loops_merge(aril_cuda_loops *l, int by)
{
    const int64_t *key = l->stride[by];
    int kept = 0;
    for (int i = 1; i < l->ndim; i++)
        for (int k = i; k > 0 && magnitude(key[k]) > magnitude(key[k - 1]); k--)
            swap_dims(l, k, k - 1);
    for (int i = 0; i < l->ndim; i++) {
        if (l->dim[i] == 1) continue;
        bool merges = kept > 0;
        for (int k = 0; k < l->n && merges; k++)
            merges = l->stride[k][kept - 1] == l->dim[i] * l->stride[k][i];
        int to = merges ? kept - 1 : kept++;
        l->dim[to] = merges ? l->dim[to] * l->dim[i] : l->dim[i];
        for (int k = 0; k < l->n; k++) l->stride[k][to] = l->stride[k][i];
    }
    l->ndim = kept;
}

/* Below 2^30, so that sums of a position and a tile do not overflow 31 bits. */
int aril_cuda_loops_too_large(const aril_cuda_loops *l)
{
    const int64_t most = (int64_t)1 << 30;
    int64_t numel = aril_cuda_loops_numel(l), reach = 0;
    for (int k = 0; k < l->n; k++) {
        int64_t span = 0;
        for (int d = 0; d < l->ndim; d++) span += (l->dim[d] - 1) * magnitude(l->stride[k][d]);
        if (span > reach) reach = span;
    }
    if (numel <= most && reach <= most) return -1;
    int best = -1;
    int64_t widest = 0;
    for (int d = 0; d < l->ndim; d++) {
        int64_t extent = l->dim[d]; /* what halving this dimension shortens */
        for (int k = 0; k < l->n && numel <= most; k++) {
            int64_t span = (l->dim[d] - 1) * magnitude(l->stride[k][d]);
            if (span > extent) extent = span;
        }
        if (l->dim[d] > 1 && extent > widest) {
            widest = extent;
            best = d;
        }
    }
    return best;
}

/* Granlund and Montgomery: for n < 2^31, n / by = (high(n * multiplier) + n) >> shift. */
aril_cuda_divisor aril_cuda_divisor_of(int64_t by)
{
    aril_cuda_divisor d = { (uint32_t)by, 0, 0 };
    while (d.shift < 32 && ((uint64_t)1 << d.shift) < (uint64_t)by) d.shift++;
    d.multiplier = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - (uint64_t)by)) /
                                  (uint64_t)by +
                              1);
    return d;
}
