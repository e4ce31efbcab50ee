/* Elementwise formulas in uint8_t. */
#define T        uint8_t
#define BITS     8
#define KIND     u8
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"
