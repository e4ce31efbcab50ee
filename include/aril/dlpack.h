/* DLPack: the common form in which array libraries hand each other their memory, without a copy.
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
    uint32_t major; /* another one means another layout */
    uint32_t minor;
};

/* Where the memory is. */
struct DLDevice {
    int32_t device_type; /* 1: CPU, 2: CUDA, 3: host memory that CUDA has pinned, ... */
    int32_t device_id;
};

/* The type of an element. */
struct DLDataType {
    uint8_t code; /* 0: int, 1: unsigned, 2: float, 4: bfloat, 6: bool, 10..17: narrow floats */
    uint8_t bits;
    uint16_t lanes; /* numbers to an element; 1 unless the type is a vector */
};

/* A strided array. */
struct DLTensor {
    void *data;
    struct DLDevice device;
    int32_t ndim;
    struct DLDataType dtype;
    int64_t *shape;
    int64_t *strides;     /* in elements; NULL: dense in row-major order */
    uint64_t byte_offset; /* of the first element from `data` */
};

/* A tensor and how to give it back, as before version 1. */
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
 * the deleter, which must happen once, on any thread; t itself may go before. `read_only` asks the
 * receiver not to write. Works for tensors in host memory that want no gradient (aril_detach
 * makes one of any). NULL on failure. */
ARIL_API struct DLManagedTensorVersioned *aril_to_dlpack(aril_tensor *t, bool read_only);
ARIL_API struct DLManagedTensor *aril_to_dlpack_unversioned(aril_tensor *t);

/* A tensor over the memory of another library, which is taken over: its deleter is called once,
 * when the last tensor over that memory is gone, or at once on failure. Memory that is marked read
 * only is copied, since a tensor can be written to. Fails (poisoned) on devices other than the CPU,
 * on dtypes Aril does not have, on vectors (lanes), more than 8 dimensions, memory that is not
 * aligned to its elements and other major versions. */
ARIL_API aril_tensor *aril_from_dlpack(struct DLManagedTensorVersioned *m);
ARIL_API aril_tensor *aril_from_dlpack_unversioned(struct DLManagedTensor *m);

ARIL_C_END

#endif
