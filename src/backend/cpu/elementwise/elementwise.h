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

/* Indexed by the number of a formula; NULL where a type does not apply. */
extern aril__ew_fn *const aril__ew_f32[];
extern aril__ew_fn *const aril__ew_f64[];
extern aril__ew_fn *const aril__ew_i64[];
extern aril__ew_fn *const aril__ew_u64[];
#if ARIL__TARGETS
extern aril__ew_fn *const aril__ew_f32_avx2[];
extern aril__ew_fn *const aril__ew_f64_avx2[];
extern aril__ew_fn *const aril__ew_i64_avx2[];
extern aril__ew_fn *const aril__ew_u64_avx2[];
extern aril__ew_fn *const aril__ew_f32_avx512[];
extern aril__ew_fn *const aril__ew_f64_avx512[];
extern aril__ew_fn *const aril__ew_i64_avx512[];
extern aril__ew_fn *const aril__ew_u64_avx512[];
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
