/* Gradients of elementwise formulas in double. */
#define COMPUTE   double
#define TABLE     aril_cuda_ew_f64_grads
#define REAL_TYPE 1
#define WITH_GRADIENTS
#include "backend/cuda/elementwise/kernels.inc"
