/* The runs of this room. */
#ifndef ARIL_CUDA_RANDOM_CUH
#define ARIL_CUDA_RANDOM_CUH

#include "backend/cuda/host.cuh"

aril_status aril_cuda_rand_run(aril_run *r);
aril_status aril_cuda_randn_run(aril_run *r);
aril_status aril_cuda_randint_run(aril_run *r);
aril_status aril_cuda_bernoulli_fill_run(aril_run *r);
aril_status aril_cuda_bernoulli_run(aril_run *r);
aril_status aril_cuda_dropout_run(aril_run *r);

aril_status aril_cuda_randperm_run(aril_run *r);
size_t aril_cuda_randperm_bytes(const aril_run *r);
aril_status aril_cuda_multinomial_run(aril_run *r);
size_t aril_cuda_multinomial_bytes(const aril_run *r);

#endif
