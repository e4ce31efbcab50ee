/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/random/rows.h"

#include "backend/cpu/random/random.h"

#define RANDOM_ROW(op_, dtypes_, native_)                                          \
    {                                                                              \
        .op = #op_, .name = "cpu_" #op_, .dtypes = (dtypes_), .native = (native_), \
        .run = aril__cpu_##op_                                                     \
    }
const aril__row aril__cpu_random_rows[] = {
    RANDOM_ROW(rand, DT_FLOAT, 0),
    RANDOM_ROW(randn, DT_FLOAT, 0),
    RANDOM_ROW(randint, DT_COMPUTE, 0),
    RANDOM_ROW(randperm, DT_COMPUTE, 0),
    RANDOM_ROW(bernoulli_fill, DT_COMPUTE, 0),
    RANDOM_ROW(bernoulli, DT_FLOAT, DT(ARIL_F32) | DT(ARIL_F64)),
    RANDOM_ROW(dropout, DT_FLOAT, DT(ARIL_F32) | DT(ARIL_F64)),
    { 0 }
};
