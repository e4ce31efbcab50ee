/* Elementwise formulas in float, for AVX2. */
#include "core/vector/targets.h"

#if ARIL__TARGETS
#define TARGET   ARIL__AVX2
#define NAME(op) op##_f32_avx2
#define TABLE    aril__ew_f32_avx2
#include "backend/cpu/elementwise/elementwise_f32.inc"
#endif
