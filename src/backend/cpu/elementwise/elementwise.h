/* Elementwise kernels: one contiguous loop per formula and type, and the engine that brings any
 * tensors into that form. */
#ifndef ARIL_CPU_ELEMENTWISE_H
#define ARIL_CPU_ELEMENTWISE_H

#include "ops/elementwise/elementwise.h"
#include "core/vector/targets.h"

enum { ARIL__BAD_DIVISOR = 1, ARIL__BAD_POWER = 2 };

/* Writes n results to `out` from n contiguous elements of each input (NULL: unused), of the
 * kernel's type. Comparisons write bool. `out` may be one of the inputs. *bad receives a reason
 * when a value is outside the op's domain. */
typedef void aril__ew_fn(int64_t n, void *out, const void *const *in, const double *p, int *bad);

/* The types that kernels compute in: the compute types, and others that need no conversion where
 * all operands have that dtype. Few formulas have kernels of f16 and bf16. */
typedef enum aril__ew_type {
    ARIL__EW_BOOL8 = ARIL__C_COUNT,
    ARIL__EW_U8,
    ARIL__EW_I8,
    ARIL__EW_I16,
    ARIL__EW_I32,
    ARIL__EW_F16,
    ARIL__EW_BF16,
    ARIL__EW_TYPES
} aril__ew_type;

/* Indexed by the number of a formula; NULL where a type does not apply. */
#define ARIL__EW_TABLES(level)                         \
    extern aril__ew_fn *const aril__ew_f32##level[];   \
    extern aril__ew_fn *const aril__ew_f64##level[];   \
    extern aril__ew_fn *const aril__ew_i64##level[];   \
    extern aril__ew_fn *const aril__ew_u64##level[];   \
    extern aril__ew_fn *const aril__ew_bool8##level[]; \
    extern aril__ew_fn *const aril__ew_u8##level[];    \
    extern aril__ew_fn *const aril__ew_i8##level[];    \
    extern aril__ew_fn *const aril__ew_i16##level[];   \
    extern aril__ew_fn *const aril__ew_i32##level[];   \
    extern aril__ew_fn *const aril__ew_f16##level[];   \
    extern aril__ew_fn *const aril__ew_bf16##level[];

/* The kernel that raises to this power, of one input, where there is a faster one than pow's with
 * the same bits; NULL if not. */
#define ARIL__EW_POWERS(level)                               \
    aril__ew_fn *aril__ew_power_f32##level(double exponent); \
    aril__ew_fn *aril__ew_power_f64##level(double exponent);

ARIL__EW_TABLES()
ARIL__EW_POWERS()
#if ARIL__TARGETS
ARIL__EW_TABLES(_avx2)
ARIL__EW_POWERS(_avx2)
ARIL__EW_TABLES(_avx512)
ARIL__EW_POWERS(_avx512)
#endif

/* The kernel of a formula (ARIL__FORMULA_...) for this machine, or NULL. */
aril__ew_fn *aril__ew_kernel(int formula, aril__ctype type);

/* Reports what a kernel put into *bad. */
aril_status aril__ew_failed(const char *op, int bad);

/* Runs an elementwise op on tensors with any strides and dtypes. */
aril_status aril__cpu_elementwise(aril__run *r);
/* Bytes of memory that it needs, for ops that may fail: see aril__formula_may_fail. */
size_t aril__cpu_elementwise_scratch(const aril__run *r);

#endif
