/* Elementwise formulas in double. */
#define COMPUTE   double
#define TABLE     aril_cuda_ew_f64
#define REAL_TYPE 1
#define WITH_FORMULAS
#include "backend/cuda/elementwise/kernels.inc"
