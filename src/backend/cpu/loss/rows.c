/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/loss/rows.h"

#include "backend/cpu/loss/ctc.h"
#include "backend/cpu/loss/margin.h"
#include "backend/cpu/loss/nll.h"

#define LOSS(op_)                                                     \
    {                                                                 \
        .op = #op_, .name = "cpu_" #op_, .dtypes = DT_FLOAT,          \
        .native = DT(ARIL_F32) | DT(ARIL_F64), .run = aril__cpu_##op_ \
    }
const aril__row aril__cpu_loss_rows[] = { LOSS(nll_loss),
                                          LOSS(nll_loss_grad),
                                          LOSS(cross_entropy),
                                          LOSS(cross_entropy_grad),
                                          LOSS(ctc_loss),
                                          LOSS(ctc_loss_grad),
                                          LOSS(multi_margin_loss),
                                          LOSS(multi_margin_loss_grad),
                                          LOSS(multilabel_margin_loss),
                                          LOSS(multilabel_margin_loss_grad),
                                          { 0 } };
