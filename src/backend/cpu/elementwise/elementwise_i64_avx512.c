/* Elementwise formulas in int64_t, for AVX-512. */
#include "ops/vector/targets.h"

#if ARIL__TARGETS
#define TARGET   ARIL__AVX512
#define NAME(op) op##_i64_avx512
#define TABLE    aril__ew_i64_avx512
#include "backend/cpu/elementwise/elementwise_i64.inc"
#endif
