#include "backend/cuda/reduce/rows.cuh"

#include "backend/cuda/rows.cuh"

/* Any strides, except in ops that do not ask for them. */
#define ROW(op_, dtypes_, run_, workspace_)                                    \
    {                                                                          \
        .op = #op_, .name = "cuda_reduce", .dtypes = dtypes_, .strided = true, \
        .workspace = workspace_, .run = aril_cuda_##run_##_run                 \
    }
#define CONTIGUOUS(op_, dtypes_, workspace_)                                           \
    {                                                                                  \
        .op = #op_, .name = "cuda_reduce", .dtypes = dtypes_, .workspace = workspace_, \
        .run = aril_cuda_##op_##_run                                                   \
    }
#define ALL   ARIL_CUDA_DT_COMPUTE
#define FLOAT ARIL_CUDA_DT_FLOAT

const aril_row aril_cuda_reduce_rows[] = {
    ROW(sum, ALL, sum, aril_cuda_sum_workspace),
    ROW(mean, FLOAT, mean, aril_cuda_sum_workspace),
    ROW(prod, ALL, prod, aril_cuda_prod_workspace),
    ROW(amax, ALL, amax, aril_cuda_best_workspace),
    ROW(amin, ALL, amin, aril_cuda_best_workspace),
    ROW(max, ALL, max, aril_cuda_best_workspace),
    ROW(min, ALL, min, aril_cuda_best_workspace),
    ROW(argmax, ALL, argmax, aril_cuda_best_workspace),
    ROW(argmin, ALL, argmin, aril_cuda_best_workspace),
    ROW(any, ALL, any, aril_cuda_prod_workspace),
    ROW(all, ALL, all, aril_cuda_prod_workspace),
    ROW(count_nonzero, ALL, count_nonzero, aril_cuda_prod_workspace),
    ROW(logsumexp, FLOAT, logsumexp, aril_cuda_prod_workspace),
    ROW(var, FLOAT, var, aril_cuda_sum_workspace),
    ROW(std, FLOAT, std, aril_cuda_sum_workspace),
    ROW(var_mean, FLOAT, var, aril_cuda_sum_workspace),
    ROW(std_mean, FLOAT, std, aril_cuda_sum_workspace),
    ROW(norm, FLOAT, norm, aril_cuda_sum_workspace),
    ROW(linear_scan, FLOAT, linear_scan, aril_cuda_scan_workspace),
    ROW(cumsum, ALL, cumsum, aril_cuda_scan_workspace),
    ROW(cumprod, ALL, cumprod, aril_cuda_scan_workspace),
    ROW(cummax, ALL, cummax, aril_cuda_scan_workspace),
    ROW(cummin, ALL, cummin, aril_cuda_scan_workspace),
    ROW(logcumsumexp, FLOAT, logcumsumexp, aril_cuda_scan_workspace),
    ROW(sort, ALL, sort, aril_cuda_sort_workspace),
    ROW(topk, ALL, sort, aril_cuda_sort_workspace),
    ROW(kthvalue, ALL, kthvalue, aril_cuda_sort_workspace),
    ROW(median, ALL, median, aril_cuda_sort_workspace),
    ROW(nanmedian, ALL, nanmedian, aril_cuda_sort_workspace),
    ROW(mode, ALL, mode, aril_cuda_sort_workspace),
    CONTIGUOUS(unique, ALL, aril_cuda_unique_workspace),
    CONTIGUOUS(bincount, ARIL_CUDA_DT_INT, aril_cuda_bincount_workspace),
    CONTIGUOUS(histc, FLOAT, aril_cuda_histc_workspace),
    CONTIGUOUS(searchsorted, ALL, nullptr),
    {},
};
