/* How the folders of the CPU backend list their kernels: each has a rows.c with one list, fastest
 * first for each op, that ends with an empty row. */
#ifndef ARIL_CPU_KERNEL_H
#define ARIL_CPU_KERNEL_H

#include "ops/table/rows.h"

/* KERNEL(sum, cpu_sum, .dtypes = DT_COMPUTE, .strided = true) is a row for the op `sum`. It runs
 * aril__cpu_sum, and logs call it cpu_sum. The other fields are those of aril_row (aril/plugin.h):
 * without .strided the kernel receives contiguous tensors, without .native it computes in every
 * dtype it accepts, and without .prepare it accepts every call. */
#define KERNEL(op_, run_, ...)                                      \
    {                                                               \
        .op = #op_, .name = #run_, .run = aril__##run_, __VA_ARGS__ \
    }

/* As .native: f16 and bf16 are staged through f32. */
#define F32_F64 (DT(ARIL_F32) | DT(ARIL_F64))

extern const aril__row aril__cpu_elementwise_rows[];
extern const aril__row aril__cpu_index_rows[];
extern const aril__row aril__cpu_linalg_rows[];
extern const aril__row aril__cpu_loss_rows[];
extern const aril__row aril__cpu_norm_rows[];
extern const aril__row aril__cpu_random_rows[];
extern const aril__row aril__cpu_reduce_rows[];
extern const aril__row aril__cpu_sequence_rows[];
extern const aril__row aril__cpu_shape_rows[];
extern const aril__row aril__cpu_signal_rows[];
extern const aril__row aril__cpu_update_rows[];
extern const aril__row aril__cpu_vision_rows[];

#endif
