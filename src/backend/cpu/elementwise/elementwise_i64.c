/* Elementwise formulas in int64_t: for i64, u32 and u16, and where dtypes differ. */
#define T        int64_t
#define BITS     64
#define KIND     i64
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"
