/* Elementwise formulas in integers of 64 bits: for i64, u64, u32 and u16, and where dtypes
 * differ. */
#include "backend/cpu/elementwise/elementwise.h"

#define T        int64_t
#define BITS     64
#define KIND     i64
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"

#define T        uint64_t
#define BITS     64
#define KIND     u64
#define FORMULAS "backend/cpu/elementwise/elementwise_unsigned.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"
