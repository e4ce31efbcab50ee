/* Elementwise formulas in int8_t. */
#define T        int8_t
#define BITS     8
#define KIND     i8
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"
