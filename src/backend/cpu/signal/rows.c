/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/signal/fft.h"
#include "backend/cpu/signal/frames.h"

const aril__row aril__cpu_signal_rows[] = {
    KERNEL(fft_c2c, cpu_fft_c2c, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_fft_c2c_scratch),
    KERNEL(fft_r2c, cpu_fft_r2c, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_fft_r2c_scratch),
    KERNEL(fft_c2r, cpu_fft_c2r, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_fft_c2r_scratch),
    KERNEL(frames, cpu_frames, .dtypes = DT_FLOAT, .native = F32_F64),
    { .op = "frames_like",
      .name = "cpu_frames_like",
      .dtypes = DT_FLOAT,
      .native = F32_F64,
      .run = aril__cpu_frames },
    KERNEL(overlap_add, cpu_overlap_add, .dtypes = DT_FLOAT, .native = F32_F64),
    { 0 },
};
