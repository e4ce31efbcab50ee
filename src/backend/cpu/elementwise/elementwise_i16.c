/* Elementwise formulas in int16_t. */
#define T        int16_t
#define BITS     16
#define KIND     i16
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"
