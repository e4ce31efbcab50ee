/* Elementwise formulas in narrow integers, for operands that all have the dtype. */
#include "backend/cpu/elementwise/elementwise.h"

#define T        int32_t
#define BITS     32
#define KIND     i32
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"

#define T        int16_t
#define BITS     16
#define KIND     i16
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"

#define T        int8_t
#define BITS     8
#define KIND     i8
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"

#define T        uint8_t
#define BITS     8
#define KIND     u8
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"

/* Operands are 0 or 1, also where memory holds another byte that is not 0. */
#define T        uint8_t
#define BITS     8
#define KIND     bool8
#define TRUTH    1
#define FORMULAS "backend/cpu/elementwise/elementwise_signed.inc"
#include "backend/cpu/elementwise/elementwise_integers.inc"
