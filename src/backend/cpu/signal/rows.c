/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/signal/rows.h"

#include "backend/cpu/signal/fft.h"
#include "backend/cpu/signal/frames.h"

#define SIGNAL(op_, run_)                                              \
    {                                                                  \
        .op = #op_, .name = "cpu_" #op_, .dtypes = DT_FLOAT,           \
        .native = DT(ARIL_F32) | DT(ARIL_F64), .run = aril__cpu_##run_ \
    }
const aril__row aril__cpu_signal_rows[] = { SIGNAL(fft_c2c, fft_c2c),
                                            SIGNAL(fft_r2c, fft_r2c),
                                            SIGNAL(fft_c2r, fft_c2r),
                                            SIGNAL(frames, frames),
                                            SIGNAL(frames_like, frames),
                                            SIGNAL(overlap_add, overlap_add),
                                            { 0 } };
