/* Elementwise formulas in double, for AVX2. */
#include "core/vector/targets.h"

#if ARIL__TARGETS
#define TARGET   ARIL__AVX2
#define NAME(op) op##_f64_avx2
#define TABLE    aril__ew_f64_avx2
#define FUSED    1
#include "backend/cpu/elementwise/elementwise_f64.inc"
#endif
