/* A stable sort of numbers by 64-bit keys, by CUB: the only instance of its radix sort here. */
#include "backend/cuda/index/index.cuh"

#include <cub/device/device_radix_sort.cuh>

static __global__ void count_up(uint32_t *to, int64_t n)
{
    ARIL_CUDA_LOOP(i, n) to[i] = (uint32_t)i;
}

static cudaError_t sort(const aril_cuda_sorting &s, void *temporary, size_t *bytes,
                        cudaStream_t stream)
{
    return cub::DeviceRadixSort::SortPairs(temporary, *bytes, s.given, s.key, s.number, s.order,
                                           (uint32_t)s.n, 0, s.bits, stream);
}

aril_cuda_sorting aril_cuda_sorting_of(aril_cuda_carver *w, int64_t n, int bits)
{
    aril_cuda_sorting s = {};
    s.n = n;
    s.bits = bits;
    s.given = w->take<uint64_t>(n);
    s.key = w->take<uint64_t>(n);
    s.number = w->take<uint32_t>(n);
    s.order = w->take<uint32_t>(n);
    sort(s, nullptr, &s.temporary_bytes, 0); /* only the size */
    s.temporary = w->take<char>((int64_t)s.temporary_bytes);
    return s;
}

aril_status aril_cuda_sort_given(const aril_run *r, const aril_cuda_sorting &s)
{
    size_t bytes = s.temporary_bytes;
    if (s.n == 0) return ARIL_OK;
    return aril_cuda_check(r, sort(s, s.temporary, &bytes, aril_cuda_stream(r)), "sort");
}

aril_status aril_cuda_sort(const aril_run *r, const aril_cuda_sorting &s)
{
    if (s.n == 0) return ARIL_OK;
    if (s.n >> 32)
        return aril_cuda_host->fail(ARIL_ERR_UNSUPPORTED, "%s: more than 2^32 - 1 indices",
                                    aril_cuda_host->op(r));
    count_up<<<aril_cuda_blocks(r, s.n, 1024), 256, 0, aril_cuda_stream(r)>>>(s.number, s.n);
    return aril_cuda_sort_given(r, s);
}
