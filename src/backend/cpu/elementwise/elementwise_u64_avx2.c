/* Elementwise formulas in uint64_t, for AVX2. */
#include "ops/vector/targets.h"

#if ARIL__TARGETS
#define TARGET   ARIL__AVX2
#define NAME(op) op##_u64_avx2
#define TABLE    aril__ew_u64_avx2
#include "backend/cpu/elementwise/elementwise_u64.inc"
#endif
