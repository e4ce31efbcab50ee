/* Elementwise formulas in double, portable. */
#define TARGET
#define NAME(op) op##_f64
#define TABLE    aril__ew_f64
#define FUSED    ARIL__BASELINE_FMA
#include "backend/cpu/elementwise/elementwise_f64.inc"
