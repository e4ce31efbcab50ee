/* Element types: their names, sizes and type promotion. */
#ifndef ARIL_DTYPE_H
#define ARIL_DTYPE_H

#include "aril/base.h"

ARIL_C_BEGIN

/* The short name, such as "f32" or "bool"; "?" for an invalid dtype. Never freed. */
ARIL_API const char *aril_dtype_name(aril_dtype dtype);

/* Bytes of one element: 4 for ARIL_F32. 0 for types smaller than a byte, and for an invalid
 * dtype. */
ARIL_API size_t aril_dtype_size(aril_dtype dtype);

/* Bits of one element: 32 for ARIL_F32, 4 for ARIL_I4. 0 for an invalid dtype. */
ARIL_API int aril_dtype_bits(aril_dtype dtype);

/* True for f16, bf16, f32, f64 and the 8- and 4-bit floats. */
ARIL_API bool aril_dtype_is_float(aril_dtype dtype);

/* Type promotion: the result type of an operation on tensors of types a and b, as in PyTorch: float
   wins over integer, integer over bool, wider over narrower; u8 with i8 gives i16, and f16 with
   bf16 f32. Where PyTorch refuses (u16, u32, u64 with bool or another integer) it is the smallest
   type that holds both; u64 with a signed type gives i64, so values from 2^63 up wrap. Storage-only
   types promote only with themselves; otherwise it is an error (aril/error.h) and a is returned.
   Cast first. */
ARIL_API aril_dtype aril_promote_types(aril_dtype a, aril_dtype b);

/* Finds a dtype by its short name ("f32", "f8e4m3fn") or PyTorch's ("float32", "float8_e4m3fn",
   with or without "torch."). On failure the status is negative and *out unchanged. */
ARIL_API aril_status aril_dtype_from_name(const char *name, aril_dtype *out);

ARIL_C_END

#endif
