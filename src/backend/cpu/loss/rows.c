/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/loss/ctc.h"
#include "backend/cpu/loss/margin.h"
#include "backend/cpu/loss/nll.h"

const aril__row aril__cpu_loss_rows[] = {
    KERNEL(nll_loss, cpu_nll_loss, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_nll_scratch),
    KERNEL(nll_loss_grad, cpu_nll_loss_grad, .dtypes = DT_FLOAT, .native = F32_F64),
    KERNEL(cross_entropy, cpu_cross_entropy, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_nll_scratch),
    KERNEL(cross_entropy_grad, cpu_cross_entropy_grad, .dtypes = DT_FLOAT, .native = F32_F64),
    KERNEL(ctc_loss, cpu_ctc_loss, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_ctc_loss_scratch),
    KERNEL(ctc_loss_grad, cpu_ctc_loss_grad, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_ctc_loss_grad_scratch),
    KERNEL(multi_margin_loss, cpu_multi_margin_loss, .dtypes = DT_FLOAT, .native = F32_F64),
    KERNEL(multi_margin_loss_grad, cpu_multi_margin_loss_grad, .dtypes = DT_FLOAT,
           .native = F32_F64),
    KERNEL(multilabel_margin_loss, cpu_multilabel_margin_loss, .dtypes = DT_FLOAT,
           .native = F32_F64, .workspace = aril__cpu_multilabel_margin_loss_scratch),
    KERNEL(multilabel_margin_loss_grad, cpu_multilabel_margin_loss_grad, .dtypes = DT_FLOAT,
           .native = F32_F64, .workspace = aril__cpu_multilabel_margin_loss_grad_scratch),
    { 0 },
};
