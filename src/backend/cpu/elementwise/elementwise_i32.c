/* Elementwise formulas in int32_t. */
#define T        int32_t
#define BITS     32
#define KIND     i32
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"
