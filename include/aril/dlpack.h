/* DLPack: the common interface for sharing tensors between array libraries without a copy.
 *
 * The structs below have the layout of DLPack 1.x and the names of its own header; when
 * <dlpack/dlpack.h> is included before this header, its declarations are used instead. */
#ifndef ARIL_DLPACK_H
#define ARIL_DLPACK_H

#include "aril/tensor.h"

ARIL_C_BEGIN

#ifndef DLPACK_DLPACK_H_

/* The version of the layout below. */
struct DLPackVersion {
    uint32_t major; /* a different number means an incompatible layout */
    uint32_t minor;
};

/* Where the memory is. */
struct DLDevice {
    int32_t device_type; /* 1: CPU, 2: CUDA, 3: pinned host memory (CUDA), ... */
    int32_t device_id;
};

/* The type of an element. */
struct DLDataType {
    uint8_t code; /* 0: int, 1: unsigned, 2: float, 4: bfloat, 6: bool, 10..17: narrow floats */
    uint8_t bits;
    uint16_t lanes; /* vector lanes per element; 1 for scalar types */
};

/* A strided array. */
struct DLTensor {
    void *data;
    struct DLDevice device;
    int32_t ndim;
    struct DLDataType dtype;
    int64_t *shape;
    int64_t *strides;     /* in elements; NULL: contiguous in row-major order */
    uint64_t byte_offset; /* of the first element from `data` */
};

/* A tensor and its deleter, as before version 1. */
struct DLManagedTensor {
    struct DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self); /* NULL: nothing to do */
};

/* The same with a version and flags. */
struct DLManagedTensorVersioned {
    struct DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t
        flags; /* 1: read only, 2: a copy was made, 4: each sub-byte element has its own byte */
    struct DLTensor dl_tensor;
};

#endif

/* The memory of t, with its strides, for another library. It stays valid until the receiver calls
 * the deleter, exactly once, on any thread; t itself may be released earlier. `read_only` asks the
 * receiver not to write. Works for tensors in host memory that do not require a gradient (see
 * aril_detach). NULL on failure. */
ARIL_API struct DLManagedTensorVersioned *aril_to_dlpack(aril_tensor *t, bool read_only);
ARIL_API struct DLManagedTensor *aril_to_dlpack_unversioned(aril_tensor *t);

/* A tensor that shares the memory of another library. Takes ownership of m: its deleter is called
 * once, when the last tensor that uses the memory is released, or immediately on failure. Read-only
 * memory is copied, since tensors are writable. Fails (poisoned) for devices other than the CPU,
 * unsupported dtypes, vector types (lanes), more than 8 dimensions, memory that is not aligned to
 * its elements, and other major versions. */
ARIL_API aril_tensor *aril_from_dlpack(struct DLManagedTensorVersioned *m);
ARIL_API aril_tensor *aril_from_dlpack_unversioned(struct DLManagedTensor *m);

ARIL_C_END

#endif
