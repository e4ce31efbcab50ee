/* The rules of optimizers in f64. */
#include "backend/cuda/update/kernel.cuh"

const void *const aril_cuda_update_f64[ARIL__RULES] = {
#define RULE_ROW(rule, ...) \
    reinterpret_cast<const void *>(aril_cuda_update_kernel<double, aril_cuda_rule_##rule>),
#include "ops/update/optimizers.def"
};

const void *const aril_cuda_norms_f64[ARIL__RULES] = {
#define RULE_ROW(rule, ...) aril_cuda_norms_of<double, aril_cuda_rule_##rule>(),
#include "ops/update/optimizers.def"
};
