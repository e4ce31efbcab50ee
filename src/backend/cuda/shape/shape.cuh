/* Moving and creating elements. */
#ifndef ARIL_CUDA_SHAPE_CUH
#define ARIL_CUDA_SHAPE_CUH

#include "backend/cuda/host.cuh"

/* Copies `from`, broadcast, to `to`, of the same dtype of whole bytes and any strides. */
aril_status aril_cuda_copy_strided(const aril_run *r, aril_tensor *to, const aril_tensor *from);
/* Fills a tensor of any strides with one element, given by its bytes. */
aril_status aril_cuda_fill(const aril_run *r, aril_tensor *to, const void *element);

/* Converts from or to a dtype that only stores: narrow.cu. */
aril_status aril_cuda_narrow_run(aril_run *r);
const char *aril_cuda_narrow_declines(const aril_tensor *out, const aril_tensor *in);

aril_status aril_cuda_copy_run(aril_run *r);
aril_status aril_cuda_cast_run(aril_run *r);
aril_status aril_cuda_full_run(aril_run *r);
aril_status aril_cuda_count_like_run(aril_run *r);
aril_status aril_cuda_arange_run(aril_run *r);
aril_status aril_cuda_linspace_run(aril_run *r);
aril_status aril_cuda_eye_run(aril_run *r);
const char *aril_cuda_cast_prepare(const aril_run *r, aril_plan *plan);

#endif
