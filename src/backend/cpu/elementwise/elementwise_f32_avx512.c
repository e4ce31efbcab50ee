/* Elementwise formulas in float, for AVX-512. */
#include "core/vector/targets.h"

#if ARIL__TARGETS
#define TARGET   ARIL__AVX512
#define NAME(op) op##_f32_avx512
#define TABLE    aril__ew_f32_avx512
#include "backend/cpu/elementwise/elementwise_f32.inc"
#endif
