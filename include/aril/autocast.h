/* Autocast: products and convolutions in bf16 or f16, with weights, losses and sensitive operations
 * in f32. docs/mixed-precision.md explains it. */
#ifndef ARIL_AUTOCAST_H
#define ARIL_AUTOCAST_H

#include "aril/scope.h"

ARIL_C_BEGIN

/* The functions behind the macros below, for compilers without the cleanup attribute. End each with
 * aril_guard_end. `dtype` is ARIL_BF16 or ARIL_F16, or ARIL_F32 to disable autocast; any other is
 * an error, and changes nothing. aril_autocast_on_begin leaves other kinds of devices as they
 * are. */
ARIL_API aril_guard aril_autocast_begin(aril_dtype dtype);
ARIL_API aril_guard aril_autocast_on_begin(aril_device device, aril_dtype dtype);
ARIL_API aril_guard aril_no_autocast_begin(void);

/* From here to the closing brace, operations on this thread cast their floating-point inputs as
 * `aril ops NAME` says: to `dtype` (products, convolutions, attention, recurrent layers),
 * to f32 (losses, decompositions, Fourier transforms), or to the widest dtype among them (cat); all
 * others run in the dtype of their inputs. f64 inputs are never cast, nor are the inputs of
 * in-place operations. The backward pass runs in the dtypes of the forward pass, so call
 * aril_backward after the block. Regions nest. */
#define ARIL_AUTOCAST(dtype)            ARIL__GUARD_OF(aril_autocast_begin(dtype))
/* The same on devices of one kind only, such as aril_cpu(). */
#define ARIL_AUTOCAST_ON(device, dtype) ARIL__GUARD_OF(aril_autocast_on_begin(device, dtype))
/* Disables autocast inside an ARIL_AUTOCAST. Values that were computed in bf16 stay bf16: cast them
 * with aril_cast where f32 is wanted. */
#define ARIL_NO_AUTOCAST                ARIL__GUARD(aril_no_autocast_begin)

/* The dtype that operations on devices of that kind are cast to on this thread: ARIL_BF16 or
 * ARIL_F16; ARIL_F32 while autocast is off. */
ARIL_API aril_dtype aril_autocast_dtype(aril_device device);

ARIL_C_END

#endif
