/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cuda/rows.cuh"
#include "backend/cuda/signal/signal.cuh"

enum : uint32_t { F32_F64 = ARIL_CUDA_DT(ARIL_F32) | ARIL_CUDA_DT(ARIL_F64) };

#define FFT(op_)                                                                           \
    { .op = #op_,                                                                          \
      .name = "cufft_" #op_,                                                               \
      .dtypes = ARIL_CUDA_DT_FLOAT,                                                        \
      .native = F32_F64,                                                                   \
      .layout = ARIL_CUDA_LAYOUT(FFT_ATTRS),                                               \
      .prepare = aril_cuda_##op_##_prepare,                                                \
      .run = aril_cuda_fft_run,                                                            \
      .destroy = aril_cuda_fft_destroy },                                                  \
    {                                                                                      \
        .op = #op_, .name = "cuda_" #op_, .dtypes = ARIL_CUDA_DT_FLOAT, .native = F32_F64, \
        .layout = ARIL_CUDA_LAYOUT(FFT_ATTRS), .run = aril_cuda_##op_##_plain              \
    }
#define FRAMES(op_, run_)                                               \
    {                                                                   \
        .op = #op_, .name = "cuda_" #op_, .dtypes = ARIL_CUDA_DT_FLOAT, \
        .layout = ARIL_CUDA_LAYOUT(FRAMES_ATTRS), .run = run_           \
    }

const aril_row aril_cuda_signal_rows[] = {
    FFT(fft_c2c),
    FFT(fft_r2c),
    FFT(fft_c2r),
    { .op = "resize_axis",
      .name = "cuda_resize_axis",
      .dtypes = ARIL_CUDA_DT_COMPUTE,
      .layout = ARIL_CUDA_LAYOUT(RESIZE_AXIS_ATTRS),
      .run = aril_cuda_resize_axis_run },
    FRAMES(frames, aril_cuda_frames_run),
    FRAMES(frames_like, aril_cuda_frames_run),
    FRAMES(overlap_add, aril_cuda_overlap_add_run),
    {},
};
