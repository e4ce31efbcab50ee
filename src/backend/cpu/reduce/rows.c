/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/reduce/counting.h"
#include "backend/cpu/reduce/reduce.h"
#include "backend/cpu/reduce/scan.h"
#include "backend/cpu/reduce/sort.h"
#include "backend/cpu/reduce/stats.h"
#include "backend/cpu/reduce/unique.h"

const aril__row aril__cpu_reduce_rows[] = {
    KERNEL(sum, cpu_sum, .dtypes = DT_COMPUTE, .strided = true, .workspace = aril__cpu_sum_scratch),
    KERNEL(mean, cpu_mean, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__cpu_mean_scratch),
    KERNEL(prod, cpu_prod, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_prod_scratch),
    KERNEL(amax, cpu_amax, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_amax_scratch),
    KERNEL(amin, cpu_amin, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_amin_scratch),
    KERNEL(max, cpu_max, .dtypes = DT_COMPUTE, .strided = true, .workspace = aril__cpu_max_scratch),
    KERNEL(min, cpu_min, .dtypes = DT_COMPUTE, .strided = true, .workspace = aril__cpu_min_scratch),
    KERNEL(argmax, cpu_argmax, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_argmax_scratch),
    KERNEL(argmin, cpu_argmin, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_argmin_scratch),
    KERNEL(any, cpu_any, .dtypes = DT_COMPUTE, .strided = true, .workspace = aril__cpu_any_scratch),
    KERNEL(all, cpu_all, .dtypes = DT_COMPUTE, .strided = true, .workspace = aril__cpu_all_scratch),
    KERNEL(count_nonzero, cpu_count_nonzero, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_count_nonzero_scratch),
    KERNEL(sum_to_like, cpu_sum_to_like, .dtypes = DT_ALL, .strided = true,
           .workspace = aril__cpu_sum_to_like_scratch),
    KERNEL(repeat_grad, cpu_repeat_grad, .dtypes = DT_FLOAT,
           .workspace = aril__cpu_repeat_grad_scratch),

    KERNEL(logsumexp, cpu_logsumexp, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__cpu_logsumexp_scratch),
    KERNEL(var, cpu_var, .dtypes = DT_FLOAT, .strided = true, .workspace = aril__cpu_var_scratch),
    KERNEL(std, cpu_std, .dtypes = DT_FLOAT, .strided = true, .workspace = aril__cpu_std_scratch),
    { .op = "var_mean",
      .name = "cpu_var_mean",
      .dtypes = DT_FLOAT,
      .strided = true,
      .workspace = aril__cpu_var_scratch,
      .run = aril__cpu_var },
    { .op = "std_mean",
      .name = "cpu_std_mean",
      .dtypes = DT_FLOAT,
      .strided = true,
      .workspace = aril__cpu_std_scratch,
      .run = aril__cpu_std },
    KERNEL(norm, cpu_norm, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__cpu_norm_scratch),

    KERNEL(linear_scan, cpu_linear_scan, .dtypes = DT_FLOAT, .strided = true),
    KERNEL(cumsum, cpu_cumsum, .dtypes = DT_COMPUTE, .strided = true),
    KERNEL(cumprod, cpu_cumprod, .dtypes = DT_COMPUTE, .strided = true),
    KERNEL(cummax, cpu_cummax, .dtypes = DT_COMPUTE, .strided = true),
    KERNEL(cummin, cpu_cummin, .dtypes = DT_COMPUTE, .strided = true),
    KERNEL(logcumsumexp, cpu_logcumsumexp, .dtypes = DT_FLOAT, .strided = true),

    KERNEL(sort, cpu_sort, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_sort_scratch),
    KERNEL(topk, cpu_topk, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_sort_scratch),
    KERNEL(kthvalue, cpu_kthvalue, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_sort_scratch),
    KERNEL(median, cpu_median, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_sort_scratch),
    KERNEL(nanmedian, cpu_nanmedian, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_sort_scratch),
    KERNEL(mode, cpu_mode, .dtypes = DT_COMPUTE, .strided = true,
           .workspace = aril__cpu_sort_scratch),

    KERNEL(unique, cpu_unique, .dtypes = DT_COMPUTE, .workspace = aril__cpu_unique_scratch),
    KERNEL(bincount, cpu_bincount, .dtypes = DT_INT, .strided = true),
    KERNEL(histc, cpu_histc, .dtypes = DT_FLOAT, .workspace = aril__cpu_histc_scratch),
    KERNEL(searchsorted, cpu_searchsorted, .dtypes = DT_COMPUTE,
           .workspace = aril__cpu_searchsorted_scratch),
    { 0 },
};
