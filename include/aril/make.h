/* Making tensors, and changing their dtype or device. */
#ifndef ARIL_MAKE_H
#define ARIL_MAKE_H

#include "aril/rng.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* Memory that is not cleared; zeros; ones; a number everywhere. [shape] */
ARIL_API aril_tensor *aril_empty(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_zeros(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_ones(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_full(aril_shape shape, aril_number value, aril_dtype dtype,
                                aril_device device);

/* The same in the shape, dtype and device of x. */
ARIL_API aril_tensor *aril_zeros_like(aril_tensor *x);
ARIL_API aril_tensor *aril_ones_like(aril_tensor *x);
ARIL_API aril_tensor *aril_full_like(aril_tensor *x, double value);

/* A copy in memory of its own. aril_copy_ writes src, broadcast and cast, into dst. */
ARIL_API aril_tensor *aril_copy(aril_tensor *x);
ARIL_API aril_tensor *aril_copy_(aril_tensor *dst, aril_tensor *src);

/* x in another dtype; x itself when it has that dtype. Floats lose their fraction on the way to
 * integers; anything not 0 is true. */
ARIL_API aril_tensor *aril_cast(aril_tensor *x, aril_dtype dtype);

/* x on a device; x itself when it is there. */
ARIL_API aril_tensor *aril_to(aril_tensor *x, aril_device device);

/* x with its elements in logical order without gaps; x itself when they are. */
ARIL_API aril_tensor *aril_contiguous(aril_tensor *x);

ARIL_C_END

#ifndef __cplusplus
#define aril_full(shape, v, dtype, device) aril_full((shape), ARIL_NUMBER(v), (dtype), (device))
#endif

#endif
