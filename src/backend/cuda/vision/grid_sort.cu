/* The only use of CUB in this room, in a file of its own: it compiles slowly. */
#include "backend/cuda/vision/grid_sample.cuh"

#include <cub/device/device_radix_sort.cuh>

cudaError_t aril_cuda_grid_sort(void *memory, size_t *bytes, const uint32_t *keys,
                                uint32_t *sorted_keys, const uint32_t *values,
                                uint32_t *sorted_values, int n, int bits, cudaStream_t stream)
{
    return cub::DeviceRadixSort::SortPairs(memory, *bytes, keys, sorted_keys, values, sorted_values,
                                           n, 0, bits, stream);
}
