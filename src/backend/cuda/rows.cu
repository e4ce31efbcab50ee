/* All rows of the plug-in, room by room. */
#include "backend/cuda/rows.cuh"

#include <stdlib.h>

static const aril_row *const rooms[] = {
    aril_cuda_elementwise_rows, aril_cuda_shape_rows,    aril_cuda_rearrange_rows,
    aril_cuda_reduce_rows,      aril_cuda_index_rows,    aril_cuda_vision_rows,
    aril_cuda_norm_rows,        aril_cuda_sequence_rows, aril_cuda_linalg_rows,
    aril_cuda_signal_rows,      aril_cuda_loss_rows,     aril_cuda_random_rows,
    aril_cuda_update_rows,      aril_cuda_fused_rows,
};

const aril_row *aril_cuda_rows(int *n)
{
    enum { MAX_ROWS = 2048 };
    static aril_row all[MAX_ROWS];
    static int count;
    if (!count)
        for (const aril_row *room : rooms)
            for (const aril_row *row = room; row->op && count < MAX_ROWS; row++)
                all[count++] = *row;
    *n = count;
    return all;
}
