/* Elementwise formulas in bool: operands are 0 or 1, also where memory holds another byte that is not 0. */
#define T        uint8_t
#define BITS     8
#define KIND     bool8
#define TRUTH    1
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"
