/* Rows of the signal room. */
#ifndef ARIL_CUDA_SIGNAL_CUH
#define ARIL_CUDA_SIGNAL_CUH

#include "backend/cuda/attrs.cuh"
#include "ops/signal/fft.h"

#include "backend/cuda/host.cuh"

/* By cuFFT, and as plain sums: fft.cu. */
const char *aril_cuda_fft_c2c_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_fft_r2c_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_fft_c2r_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_fft_run(aril_run *r);
void aril_cuda_fft_destroy(void *prepared);
aril_status aril_cuda_fft_c2c_plain(aril_run *r);
aril_status aril_cuda_fft_r2c_plain(aril_run *r);
aril_status aril_cuda_fft_c2r_plain(aril_run *r);

/* frames.cu */
aril_status aril_cuda_frames_run(aril_run *r);
aril_status aril_cuda_overlap_add_run(aril_run *r);
aril_status aril_cuda_resize_axis_run(aril_run *r);

#endif
