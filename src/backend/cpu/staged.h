/* Runs f16 and bf16 in f32, for rows whose kernels only support f32 and f64. */
#ifndef ARIL_CPU_STAGED_H
#define ARIL_CPU_STAGED_H

#include "ops/table/op.h"

/* Calls `run`: with r itself when it computes in f32 or f64; else with contiguous f32 copies of the
 * tensors of r's type. */
aril_status aril__cpu_staged(aril__run *r, aril_status (*run)(aril__run *r));

#endif
