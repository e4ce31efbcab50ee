#include "backend/cpu/linalg/matrix_exp.h"

#include "backend/cpu/linalg/gemm.h"
#include "ops/linalg/matrix_exp.h"

static void multiply(int64_t n, const double *a, const double *b, double *c)
{
    aril__gemm g = { .m = n,
                     .n = n,
                     .k = n,
                     .a = a,
                     .b = b,
                     .c = c,
                     .a_row = n,
                     .a_col = 1,
                     .b_row = n,
                     .b_col = 1,
                     .c_row = n,
                     .c_col = 1 };
    aril__cpu_gemm(ARIL_F64, &g);
}

aril_status aril__cpu_matrix_exp(aril__run *r)
{
    return aril__matrix_exp(r, multiply);
}
