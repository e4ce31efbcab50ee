/* Sizes of blocks of memory, as the allocator of a device counts them. */
#ifndef ARIL_CORE_BLOCKS_H
#define ARIL_CORE_BLOCKS_H

#include "core/device.h"

/* By how much an allocation of so many bytes raises the memory in use. */
size_t aril__device_block(const aril__device *d, size_t bytes);

#endif
