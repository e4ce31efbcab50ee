#include "formats/array.h"

#include <string.h>

void aril__to_host_order(void *data, size_t size, int64_t n, bool big)
{
    const uint16_t one = 1;
    unsigned char low, *p = data;
    memcpy(&low, &one, 1);
    if (size < 2 || big == !low) return;
    for (int64_t i = 0; i < n; i++, p += size)
        for (size_t k = 0; k < size / 2; k++) {
            unsigned char swap = p[k];
            p[k] = p[size - 1 - k];
            p[size - 1 - k] = swap;
        }
}

bool aril__array_bytes(aril_shape shape, size_t size, uint64_t max, uint64_t *bytes)
{
    uint64_t n = size;
    bool empty = false;
    for (int i = 0; i < shape.ndim; i++) empty |= shape.dim[i] == 0;
    for (int i = 0; i < shape.ndim && !empty; i++)
        if (shape.dim[i] < 0 || __builtin_mul_overflow(n, (uint64_t)shape.dim[i], &n)) return false;
    *bytes = empty ? 0 : n;
    return *bytes <= max;
}
