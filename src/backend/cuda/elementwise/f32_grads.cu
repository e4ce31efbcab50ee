/* Gradients of elementwise formulas in float. */
#define COMPUTE   float
#define TABLE     aril_cuda_ew_f32_grads
#define OWN_TABLE aril_cuda_ew_f32_grads_own
#define REAL_TYPE 1
#define WITH_GRADIENTS
#include "backend/cuda/elementwise/kernels.inc"
