/* The matrix exponential, by fast products. */
#ifndef ARIL_CPU_MATRIX_EXP_H
#define ARIL_CPU_MATRIX_EXP_H

#include "ops/table/op.h"

aril_status aril__cpu_matrix_exp(aril__run *r);

#endif
