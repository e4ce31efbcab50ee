/* Elementwise formulas in uint64_t. */
#define T        uint64_t
#define BITS     64
#define KIND     u64
#define FORMULAS "backend/cpu/elementwise/elementwise_unsigned.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"
