/* Local response normalization and, with a second input, its gradient; of contiguous and of
 * channels-last tensors. */
#ifndef ARIL_CPU_LOCAL_RESPONSE_NORM_H
#define ARIL_CPU_LOCAL_RESPONSE_NORM_H

#include "ops/table/op.h"

aril_status aril__cpu_local_response_norm(aril__run *r);
aril_status aril__cpu_local_response_norm_last(aril__run *r);

#endif
