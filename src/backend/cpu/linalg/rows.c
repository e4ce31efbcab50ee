/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/linalg/rows.h"

#include "backend/cpu/linalg/cdist.h"
#include "backend/cpu/linalg/gemm.h"
#include "backend/cpu/linalg/matrix_exp.h"
#include "backend/cpu/linalg/product_int.h"

#define ROW(op_, dtypes_, native_, strided_, run_)                           \
    {                                                                        \
        .op = #op_, .name = #run_, .dtypes = (dtypes_), .native = (native_), \
        .strided = (strided_), .run = aril__##run_                           \
    }
/* outer_sum needs contiguous inputs. */
#define PRODUCTS(dtypes_, native_, run_)                                                  \
    ROW(matmul, dtypes_, native_, true, run_), ROW(linear, dtypes_, native_, true, run_), \
        ROW(outer_sum, dtypes_, native_, false, run_)

const aril__row aril__cpu_linalg_rows[] = {
    PRODUCTS(DT_FLOAT, DT(ARIL_F32) | DT(ARIL_F64), cpu_product),
#if ARIL_HAVE_BLAS
    PRODUCTS(DT_FLOAT, DT(ARIL_F32) | DT(ARIL_F64), cpu_product_blas),
#endif
    PRODUCTS(DT_INT, DT(ARIL_I64) | DT(ARIL_U64), cpu_product_int),
    ROW(matrix_exp, DT_FLOAT, 0, true, cpu_matrix_exp),
    KERNEL(cdist, DT(ARIL_F32) | DT(ARIL_F64), aril__cpu_cdist_prepare, cpu_cdist),
    KERNEL(cdist_grad, DT(ARIL_F32) | DT(ARIL_F64), aril__cpu_cdist_grad_prepare, cpu_cdist_grad),
    { 0 }
};
