/* The rules of optimizers in f32, for parameters in f16, bf16 and f32. */
#include "backend/cuda/update/kernel.cuh"

const void *const aril_cuda_update_f32[ARIL__RULES] = {
#define RULE_ROW(rule, ...) \
    reinterpret_cast<const void *>(aril_cuda_update_kernel<float, aril_cuda_rule_##rule>),
#include "ops/update/optimizers.def"
};

const void *const aril_cuda_norms_f32[ARIL__RULES] = {
#define RULE_ROW(rule, ...) aril_cuda_norms_of<float, aril_cuda_rule_##rule>(),
#include "ops/update/optimizers.def"
};
