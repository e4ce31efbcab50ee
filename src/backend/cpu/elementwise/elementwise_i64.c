/* Elementwise formulas in int64_t, portable. */
#define TARGET
#define NAME(op) op##_i64
#define TABLE    aril__ew_i64
#include "backend/cpu/elementwise/elementwise_i64.inc"
