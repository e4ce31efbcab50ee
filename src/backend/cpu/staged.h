/* f16 and bf16 by way of f32, for rows whose kernels know f32 and f64 alone. */
#ifndef ARIL_CPU_STAGED_H
#define ARIL_CPU_STAGED_H

#include "ops/table/op.h"

/* Calls `run`: with r itself where it computes in f32 or f64; else with copies in f32 of what is of
 * r's type, and dense. */
aril_status aril__cpu_staged(aril__run *r, aril_status (*run)(aril__run *r));

#endif
