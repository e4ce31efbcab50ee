#include "backend/onednn/rows.h"

#include "backend/onednn/conv.h"
#include "backend/onednn/onednn.h"

#define LOW (DT(ARIL_BF16) | DT(ARIL_F16))

#define CONV(op_, last_)                 \
    { .op = #op_,                        \
      .name = "onednn_" #op_,            \
      .dtypes = DT(ARIL_F32) | LOW,      \
      .strided = true,                   \
      .channels_last = (last_),          \
      .prepare = aril__dnn_conv_prepare, \
      .run = aril__dnn_conv,             \
      .destroy = aril__dnn_conv_destroy },
static const aril__row rows[] = { CONV(conv, true) CONV(conv_dgrad, true) CONV(conv_wgrad, false)
                                      CONV(conv_transpose, true) };

aril_status aril__dnn_start(void)
{
    return aril__rows_register(ARIL__CPU, rows, sizeof rows / sizeof *rows);
}
