/* Elementwise formulas in double, for AVX-512. */
#include "core/vector/targets.h"

#if ARIL__TARGETS
#define TARGET   ARIL__AVX512
#define NAME(op) op##_f64_avx512
#define TABLE    aril__ew_f64_avx512
#define FUSED    1
#include "backend/cpu/elementwise/elementwise_f64.inc"
#endif
