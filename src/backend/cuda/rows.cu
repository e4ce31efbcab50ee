/* All rows of the plug-in, room by room. */
#include "backend/cuda/rows.cuh"

#include <stdlib.h>

static const aril_row *const rooms[] = {
    aril_cuda_elementwise_rows,
    aril_cuda_sequence_rows,
    aril_cuda_shape_rows,
    aril_cuda_linalg_rows,
    aril_cuda_signal_rows,
    aril_cuda_vision_rows,
};

const aril_row *aril_cuda_rows(int *n)
{
    enum { MOST = 2048 };
    static aril_row all[MOST];
    static int count;
    if (!count)
        for (const aril_row *room : rooms)
            for (const aril_row *row = room; row->op && count < MOST; row++) all[count++] = *row;
    *n = count;
    return all;
}
