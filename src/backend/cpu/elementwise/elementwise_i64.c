/* Elementwise formulas in int64_t, for each target. */
#include "core/vector/targets.h"

#define TARGET
#define NAME(op) op##_i64
#define TABLE    aril__ew_i64
#include "backend/cpu/elementwise/elementwise_i64.inc"

#if ARIL__TARGETS
#undef TARGET
#undef NAME
#undef TABLE
#define TARGET   ARIL__AVX2
#define NAME(op) op##_i64_avx2
#define TABLE    aril__ew_i64_avx2
#include "backend/cpu/elementwise/elementwise_i64.inc"

#undef TARGET
#undef NAME
#undef TABLE
#define TARGET   ARIL__AVX512
#define NAME(op) op##_i64_avx512
#define TABLE    aril__ew_i64_avx512
#include "backend/cpu/elementwise/elementwise_i64.inc"
#endif
