/* What every row includes: the host table, and short names for what rows ask of a run. */
#ifndef ARIL_CUDA_HOST_CUH
#define ARIL_CUDA_HOST_CUH

#include "aril/error.h"
#include "aril/plugin.h"
#include "backend/cuda/device/device.h"

#include <cuda_runtime.h>

/* Tensors of a run. */
static inline void *aril_cuda_data(const aril_tensor *t)
{
    return aril_cuda_host->data(t);
}
static inline const aril_tensor *aril_cuda_in(const aril_run *r, int i)
{
    return aril_cuda_host->in(r, i);
}
static inline aril_tensor *aril_cuda_out(const aril_run *r, int i)
{
    return aril_cuda_host->out(r, i);
}
static inline int64_t aril_cuda_dim(const aril_tensor *t, int d) /* negative: from the end */
{
    int n = aril_cuda_host->ndim(t);
    return aril_cuda_host->dims(t)[d < 0 ? d + n : d];
}

/* The attributes of a run as their struct. Declare the struct's layout in the row:
 *     #include "backend/cuda/attrs.cuh"
 *     #include "ops/shape/create.h"
 *     const create_attrs *a = aril_cuda_attrs<create_attrs>(r);
 *     { .op = "arange", ..., .layout = ARIL_CUDA_LAYOUT(CREATE_ATTRS), ... } */
template <typename Attrs> static inline const Attrs *aril_cuda_attrs(const aril_run *r)
{
    return static_cast<const Attrs *>(aril_cuda_host->attrs(r));
}

/* The device of a run. */
static inline aril_cuda_device *aril_cuda_device_of(const aril_run *r)
{
    return static_cast<aril_cuda_device *>(aril_cuda_host->device(r));
}

/* Sets of dtypes, for aril_row.dtypes and .native. */
#define ARIL_CUDA_DT(t) (1u << (t))
#define ARIL_CUDA_DT_FLOAT                                                       \
    (ARIL_CUDA_DT(ARIL_F16) | ARIL_CUDA_DT(ARIL_BF16) | ARIL_CUDA_DT(ARIL_F32) | \
     ARIL_CUDA_DT(ARIL_F64))
#define ARIL_CUDA_DT_INT                                                       \
    (ARIL_CUDA_DT(ARIL_U8) | ARIL_CUDA_DT(ARIL_U16) | ARIL_CUDA_DT(ARIL_U32) | \
     ARIL_CUDA_DT(ARIL_U64) | ARIL_CUDA_DT(ARIL_I8) | ARIL_CUDA_DT(ARIL_I16) | \
     ARIL_CUDA_DT(ARIL_I32) | ARIL_CUDA_DT(ARIL_I64))
#define ARIL_CUDA_DT_BOOL    ARIL_CUDA_DT(ARIL_BOOL)
#define ARIL_CUDA_DT_COMPUTE (ARIL_CUDA_DT_FLOAT | ARIL_CUDA_DT_INT | ARIL_CUDA_DT_BOOL)

#endif
