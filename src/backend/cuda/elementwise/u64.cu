/* Elementwise formulas in uint64_t: u64. */
#define COMPUTE   uint64_t
#define TABLE     aril_cuda_ew_u64
#define REAL_TYPE 0
#define WITH_FORMULAS
#include "backend/cuda/elementwise/kernels.inc"
