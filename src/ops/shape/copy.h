/* Copies between tensors of any strides, dtypes and devices. */
#ifndef ARIL_OPS_COPY_H
#define ARIL_OPS_COPY_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_cast, aril__op_contiguous, aril__op_copy, aril__op_repeat,
    aril__op_repeat_grad, aril__op_to_device;

/* Copies `src`, broadcast, to `dst`, both in host memory; converts between dtypes. */
void aril__copy_elements(aril_tensor *dst, const aril_tensor *src);

/* Copies `src`, broadcast, to `dst`, on any two devices; converts between dtypes. */
aril_status aril__copy_across(aril_tensor *dst, aril_tensor *src);

/* Attributes of ops that change only the dtype, or only the device. */
#define CAST_ATTRS(A) A(cast, I64, 1, dtype, 0, "to")
ATTRS(cast, CAST_ATTRS)
#define TO_DEVICE_ATTRS(A) A(to_device, I64, 2, device, 0, NULL) A(to_device, I64, 2, from, 0, NULL)
ATTRS(to_device, TO_DEVICE_ATTRS)

/* A kind of device in those attributes: that of the session which runs a defined graph. Until then
 * values there are on the CPU. */
enum { ARIL__SESSION_DEVICE = -1 };
/* Moves a tensor there; and to a device, also where a defined graph has it on the CPU. */
aril_tensor *aril__to_session(aril_tensor *x);
aril_tensor *aril__to_placed(aril_tensor *x, aril_device device);

#endif
