/* The runs of this folder's rows. */
#ifndef ARIL_CUDA_REDUCE_ROWS_CUH
#define ARIL_CUDA_REDUCE_ROWS_CUH

#include "backend/cuda/host.cuh"

#define ARIL_CUDA_RUN(op) aril_status aril_cuda_##op##_run(aril_run *r);

/* reduce.cu */
ARIL_CUDA_RUN(sum)
ARIL_CUDA_RUN(mean)
ARIL_CUDA_RUN(prod)
ARIL_CUDA_RUN(amax)
ARIL_CUDA_RUN(amin)
ARIL_CUDA_RUN(max)
ARIL_CUDA_RUN(min)
ARIL_CUDA_RUN(argmax)
ARIL_CUDA_RUN(argmin)
ARIL_CUDA_RUN(any)
ARIL_CUDA_RUN(all)
ARIL_CUDA_RUN(count_nonzero)
size_t aril_cuda_sum_workspace(const aril_run *r);
size_t aril_cuda_prod_workspace(const aril_run *r);
size_t aril_cuda_best_workspace(const aril_run *r);

/* stats.cu */
ARIL_CUDA_RUN(logsumexp)
ARIL_CUDA_RUN(var)
ARIL_CUDA_RUN(std)
ARIL_CUDA_RUN(norm)

/* scan.cu */
ARIL_CUDA_RUN(linear_scan)
ARIL_CUDA_RUN(cumsum)
ARIL_CUDA_RUN(cumprod)
ARIL_CUDA_RUN(cummax)
ARIL_CUDA_RUN(cummin)
ARIL_CUDA_RUN(logcumsumexp)
size_t aril_cuda_scan_workspace(const aril_run *r);

/* sort.cu */
ARIL_CUDA_RUN(sort)
ARIL_CUDA_RUN(kthvalue)
ARIL_CUDA_RUN(median)
ARIL_CUDA_RUN(nanmedian)
ARIL_CUDA_RUN(mode)
size_t aril_cuda_sort_workspace(const aril_run *r);

/* counting.cu */
ARIL_CUDA_RUN(unique)
ARIL_CUDA_RUN(bincount)
ARIL_CUDA_RUN(histc)
ARIL_CUDA_RUN(searchsorted)
size_t aril_cuda_unique_workspace(const aril_run *r);
size_t aril_cuda_bincount_workspace(const aril_run *r);
size_t aril_cuda_histc_workspace(const aril_run *r);

#undef ARIL_CUDA_RUN

#endif
