/* matmul_integer: products of 8-bit integers. */
#ifndef ARIL_BACKEND_CPU_PRODUCT_INT8_H
#define ARIL_BACKEND_CPU_PRODUCT_INT8_H

#include "backend/cpu/linalg/gemm_int8.h"
#include "core/derived.h"
#include "ops/table/rows.h"

const char *aril__cpu_product_int8_prepare(const aril__run *r, aril_plan *plan);
aril_status aril__cpu_product_int8(aril__run *r);

/* The packed form of a weight: `n_parts` packed matrices of `bytes` each, cached with the weight,
 * or made by `pack`. Owned by the caller; NULL with an error. */
typedef struct aril__int8_form {
    const aril__op *op;
    aril__int8 g;
    int64_t parts;
    size_t bytes;
    void (*pack)(void *ctx, const aril__int8 *g, int64_t part, void *to);
    void *ctx;
} aril__int8_form;

aril__derived *aril__int8_form_of(const aril__int8_form *f, aril_tensor *w, aril__device *device);

#endif
