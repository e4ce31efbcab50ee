/* Elementwise formulas in float, portable. */
#define TARGET
#define NAME(op) op##_f32
#define TABLE    aril__ew_f32
#include "backend/cpu/elementwise/elementwise_f32.inc"
