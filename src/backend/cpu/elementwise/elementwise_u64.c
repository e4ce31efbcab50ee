/* Elementwise formulas in uint64_t, portable. */
#define TARGET
#define NAME(op) op##_u64
#define TABLE    aril__ew_u64
#include "backend/cpu/elementwise/elementwise_u64.inc"
