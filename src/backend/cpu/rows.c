#include "backend/cpu/rows.h"

#include "backend/cpu/elementwise/elementwise.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/linalg/gemm.h"
#include "backend/cpu/signal/fft.h"
#include "backend/cpu/vision/conv_lanes.h"
#include "backend/cpu/vision/conv_lanes_grad.h"

/* Elementwise ops all run on one engine. */
static const aril__row elementwise_row = {
    .name = "cpu_elementwise", .dtypes = DT_COMPUTE, .strided = true, .run = aril__cpu_elementwise
};
/* Those that may fail: they must not leave a result half written. */
static const aril__row careful_row = { .name = "cpu_elementwise",
                                       .dtypes = DT_COMPUTE,
                                       .strided = true,
                                       .workspace = aril__cpu_elementwise_scratch,
                                       .run = aril__cpu_elementwise };

/* Convolutions of few channels, faster than a library's. */
static const aril__row lanes_rows[] = {
    KERNEL(conv, cpu_conv_lanes, .dtypes = F32_F64, .strided = true,
           .prepare = aril__cpu_conv_lanes_prepare),
    KERNEL(conv_dgrad, cpu_conv_lanes, .dtypes = F32_F64, .strided = true,
           .prepare = aril__cpu_conv_lanes_prepare),
    KERNEL(conv_transpose, cpu_conv_lanes, .dtypes = F32_F64, .strided = true,
           .prepare = aril__cpu_conv_lanes_prepare),
};

static const aril__row lanes_grad_rows[] = {
    { .op = "conv_wgrad",
      .name = "cpu_conv_lanes",
      .dtypes = F32_F64,
      .strided = true,
      .prepare = aril__cpu_conv_lanes_grad_prepare,
      .run = aril__cpu_conv_lanes_grad },
};

aril_status aril__cpu_start_ahead(void)
{
    int n = sizeof lanes_rows / sizeof *lanes_rows;
    aril_status s = aril__rows_register(ARIL__CPU, lanes_rows, n);
    return s == ARIL_OK ? aril__rows_register(ARIL__CPU, lanes_grad_rows, 1) : s;
}

/* The lists of the folders: rows.c of each. */
static const aril__row *const lists[] = {
    aril__cpu_elementwise_rows, aril__cpu_index_rows,    aril__cpu_linalg_rows,
    aril__cpu_loss_rows,        aril__cpu_norm_rows,     aril__cpu_random_rows,
    aril__cpu_reduce_rows,      aril__cpu_sequence_rows, aril__cpu_shape_rows,
    aril__cpu_signal_rows,      aril__cpu_update_rows,   aril__cpu_vision_rows,
};

static aril_status register_lists(void)
{
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < sizeof lists / sizeof *lists && s == ARIL_OK; i++) {
        int n = 0;
        while (lists[i][n].op) n++;
        s = aril__rows_register(ARIL__CPU, lists[i], n);
    }
    return s;
}

aril_status aril__cpu_start(void)
{
    aril_status s = aril__rows_register_formulas(ARIL__CPU, &elementwise_row, &careful_row);
    return s == ARIL_OK ? register_lists() : s;
}

void aril__cpu_end(void)
{
    aril__gemm_shutdown();
    aril__cpu_fft_end();
}
