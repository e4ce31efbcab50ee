/* Elementwise formulas in int64_t, for AVX2. */
#include "ops/vector/targets.h"

#if ARIL__TARGETS
#define TARGET   ARIL__AVX2
#define NAME(op) op##_i64_avx2
#define TABLE    aril__ew_i64_avx2
#include "backend/cpu/elementwise/elementwise_i64.inc"
#endif
