/* The matrix exponential, with a product of the caller's choice. */
#ifndef ARIL_OPS_MATRIX_EXP_H
#define ARIL_OPS_MATRIX_EXP_H

#include "ops/table/op.h"

/* c = a b, of [n,n] matrices. */
typedef void aril__multiply_fn(int64_t n, const double *a, const double *b, double *c);

aril_status aril__matrix_exp(aril__run *r, aril__multiply_fn *multiply);
size_t aril__matrix_exp_scratch(const aril__run *r); /* bytes of memory that it needs */

#endif
