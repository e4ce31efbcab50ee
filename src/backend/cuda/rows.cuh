/* The rows of each room; each list ends with an empty row. */
#ifndef ARIL_CUDA_ROWS_CUH
#define ARIL_CUDA_ROWS_CUH

#include "backend/cuda/host.cuh"

extern const aril_row aril_cuda_elementwise_rows[];
extern const aril_row aril_cuda_fused_rows[];
extern const aril_row aril_cuda_shape_rows[];
extern const aril_row aril_cuda_rearrange_rows[];
extern const aril_row aril_cuda_reduce_rows[];
extern const aril_row aril_cuda_index_rows[];
extern const aril_row aril_cuda_vision_rows[];
extern const aril_row aril_cuda_norm_rows[];
extern const aril_row aril_cuda_sequence_rows[];
extern const aril_row aril_cuda_linalg_rows[];
extern const aril_row aril_cuda_signal_rows[];
extern const aril_row aril_cuda_loss_rows[];
extern const aril_row aril_cuda_random_rows[];
extern const aril_row aril_cuda_update_rows[];

#endif
