/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/reduce/rows.h"

#include "backend/cpu/reduce/counting.h"
#include "backend/cpu/reduce/reduce.h"
#include "backend/cpu/reduce/scan.h"
#include "backend/cpu/reduce/sort.h"
#include "backend/cpu/reduce/stats.h"

/* STRIDED rows take any strides, DENSE ones contiguous tensors. */
#define ROW(op_, dtypes_, strided_, run_)                                                          \
    {                                                                                              \
        .op = #op_, .name = "cpu_" #op_, .dtypes = (dtypes_), .strided = (strided_), .run = (run_) \
    }
#define STRIDED_ROW(op_, dtypes_) ROW(op_, dtypes_, true, aril__cpu_##op_)
#define DENSE_ROW(op_, dtypes_)   ROW(op_, dtypes_, false, aril__cpu_##op_)

const aril__row aril__cpu_reduce_rows[] = { STRIDED_ROW(sum, DT_COMPUTE),
                                            STRIDED_ROW(mean, DT_FLOAT),
                                            STRIDED_ROW(prod, DT_COMPUTE),
                                            STRIDED_ROW(amax, DT_COMPUTE),
                                            STRIDED_ROW(amin, DT_COMPUTE),
                                            STRIDED_ROW(max, DT_COMPUTE),
                                            STRIDED_ROW(min, DT_COMPUTE),
                                            STRIDED_ROW(argmax, DT_COMPUTE),
                                            STRIDED_ROW(argmin, DT_COMPUTE),
                                            STRIDED_ROW(any, DT_COMPUTE),
                                            STRIDED_ROW(all, DT_COMPUTE),
                                            STRIDED_ROW(count_nonzero, DT_COMPUTE),
                                            STRIDED_ROW(sum_to_like, DT_ALL),
                                            DENSE_ROW(repeat_grad, DT_FLOAT),

                                            STRIDED_ROW(logsumexp, DT_FLOAT),
                                            STRIDED_ROW(var, DT_FLOAT),
                                            STRIDED_ROW(std, DT_FLOAT),
                                            ROW(var_mean, DT_FLOAT, true, aril__cpu_var),
                                            ROW(std_mean, DT_FLOAT, true, aril__cpu_std),
                                            STRIDED_ROW(norm, DT_FLOAT),

                                            STRIDED_ROW(linear_scan, DT_FLOAT),
                                            STRIDED_ROW(cumsum, DT_COMPUTE),
                                            STRIDED_ROW(cumprod, DT_COMPUTE),
                                            STRIDED_ROW(cummax, DT_COMPUTE),
                                            STRIDED_ROW(cummin, DT_COMPUTE),
                                            STRIDED_ROW(logcumsumexp, DT_FLOAT),

                                            STRIDED_ROW(sort, DT_COMPUTE),
                                            STRIDED_ROW(topk, DT_COMPUTE),
                                            STRIDED_ROW(kthvalue, DT_COMPUTE),
                                            STRIDED_ROW(median, DT_COMPUTE),
                                            STRIDED_ROW(nanmedian, DT_COMPUTE),
                                            STRIDED_ROW(mode, DT_COMPUTE),

                                            STRIDED_ROW(bincount, DT_INT),
                                            DENSE_ROW(histc, DT_FLOAT),
                                            DENSE_ROW(searchsorted, DT_COMPUTE),
                                            { 0 } };
