/* Local response normalization and, with a second input, its gradient; of contiguous and of
 * channels-last tensors. */
#ifndef ARIL_CPU_LOCAL_RESPONSE_NORM_H
#define ARIL_CPU_LOCAL_RESPONSE_NORM_H

#include "ops/table/rows.h"

aril_status aril__cpu_local_response_norm(aril__run *r);
aril_status aril__cpu_local_response_norm_last(aril__run *r);

size_t aril__cpu_local_response_norm_scratch(const aril__run *r); /* bytes of memory it needs */
const char *aril__cpu_local_response_norm_last_prepare(const aril__run *r, aril__plan *plan);

#endif
