/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/linalg/cdist.h"
#include "backend/cpu/linalg/gemm.h"
#include "backend/cpu/linalg/matrix_exp.h"
#include "backend/cpu/linalg/product_int.h"
#include "backend/cpu/linalg/product_int8.h"
#include "ops/linalg/matrix_exp.h"

/* outer_sum needs contiguous inputs: its rows are not .strided. */
const aril__row aril__cpu_linalg_rows[] = {
    KERNEL(matmul, cpu_product, .dtypes = DT_FLOAT, .native = F32_F64, .strided = true),
    KERNEL(linear, cpu_product, .dtypes = DT_FLOAT, .native = F32_F64, .strided = true),
    KERNEL(outer_sum, cpu_product, .dtypes = DT_FLOAT, .native = F32_F64),
#if ARIL_HAVE_BLAS
    KERNEL(matmul, cpu_product_blas, .dtypes = DT_FLOAT, .native = F32_F64, .strided = true),
    KERNEL(linear, cpu_product_blas, .dtypes = DT_FLOAT, .native = F32_F64, .strided = true),
    KERNEL(outer_sum, cpu_product_blas, .dtypes = DT_FLOAT, .native = F32_F64),
#endif
    KERNEL(matmul, cpu_product_int, .dtypes = DT_INT, .strided = true),
    KERNEL(linear, cpu_product_int, .dtypes = DT_INT, .strided = true),
    KERNEL(outer_sum, cpu_product_int, .dtypes = DT_INT),
    KERNEL(matmul_integer, cpu_product_int8, .dtypes = DT(ARIL_U8) | DT(ARIL_I8), .strided = true,
           .prepare = aril__cpu_product_int8_prepare),
    KERNEL(matrix_exp, cpu_matrix_exp, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__matrix_exp_scratch),
    KERNEL(cdist, cpu_cdist, .dtypes = F32_F64, .prepare = aril__cpu_cdist_prepare),
    KERNEL(cdist_grad, cpu_cdist_grad, .dtypes = F32_F64, .prepare = aril__cpu_cdist_grad_prepare),
    { 0 },
};
