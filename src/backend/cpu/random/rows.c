/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/random/random.h"

const aril__row aril__cpu_random_rows[] = {
    KERNEL(rand, cpu_rand, .dtypes = DT_FLOAT),
    KERNEL(randn, cpu_randn, .dtypes = DT_FLOAT),
    KERNEL(randint, cpu_randint, .dtypes = DT_COMPUTE),
    KERNEL(randperm, cpu_randperm, .dtypes = DT_COMPUTE, .workspace = aril__cpu_randperm_scratch),
    KERNEL(bernoulli_fill, cpu_bernoulli_fill, .dtypes = DT_COMPUTE),
    KERNEL(bernoulli, cpu_bernoulli, .dtypes = DT_FLOAT, .native = F32_F64),
    KERNEL(dropout, cpu_dropout, .dtypes = DT_FLOAT, .native = F32_F64),
    { 0 },
};
