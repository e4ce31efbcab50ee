/* Elementwise formulas in float: f16, bf16 and f32. */
#define COMPUTE   float
#define TABLE     aril_cuda_ew_f32
#define OWN_TABLE aril_cuda_ew_f32_own
#define REAL_TYPE 1
#define WITH_FORMULAS
#include "backend/cuda/elementwise/kernels.inc"
