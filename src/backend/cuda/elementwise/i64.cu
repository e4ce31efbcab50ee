/* Elementwise formulas in int64_t: bool and all integers except u64. */
#define COMPUTE   int64_t
#define TABLE     aril_cuda_ew_i64
#define REAL_TYPE 0
#define WITH_FORMULAS
#include "backend/cuda/elementwise/kernels.inc"
