/* Elementwise formulas in uint64_t, for each target. */
#include "core/vector/targets.h"

#define TARGET
#define NAME(op) op##_u64
#define TABLE    aril__ew_u64
#include "backend/cpu/elementwise/elementwise_u64.inc"

#if ARIL__TARGETS
#undef TARGET
#undef NAME
#undef TABLE
#define TARGET   ARIL__AVX2
#define NAME(op) op##_u64_avx2
#define TABLE    aril__ew_u64_avx2
#include "backend/cpu/elementwise/elementwise_u64.inc"

#undef TARGET
#undef NAME
#undef TABLE
#define TARGET   ARIL__AVX512
#define NAME(op) op##_u64_avx512
#define TABLE    aril__ew_u64_avx512
#include "backend/cpu/elementwise/elementwise_u64.inc"
#endif
