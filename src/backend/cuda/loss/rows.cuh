/* The runs of this folder's rows. */
#ifndef ARIL_CUDA_LOSS_ROWS_CUH
#define ARIL_CUDA_LOSS_ROWS_CUH

#include "backend/cuda/host.cuh"

#define ARIL_CUDA_RUN(op)       aril_status aril_cuda_##op##_run(aril_run *r);
#define ARIL_CUDA_WORKSPACE(op) size_t aril_cuda_##op##_workspace(const aril_run *r);

/* nll.cu */
ARIL_CUDA_RUN(nll_loss)
ARIL_CUDA_RUN(nll_loss_grad)
ARIL_CUDA_RUN(cross_entropy)
ARIL_CUDA_RUN(cross_entropy_grad)
ARIL_CUDA_WORKSPACE(nll_loss)
ARIL_CUDA_WORKSPACE(nll_loss_grad)
ARIL_CUDA_WORKSPACE(cross_entropy)
ARIL_CUDA_WORKSPACE(cross_entropy_grad)

/* margin.cu */
ARIL_CUDA_RUN(multi_margin_loss)
ARIL_CUDA_RUN(multi_margin_loss_grad)
ARIL_CUDA_RUN(multilabel_margin_loss)
ARIL_CUDA_RUN(multilabel_margin_loss_grad)

/* ctc.cu */
ARIL_CUDA_RUN(ctc_loss)
ARIL_CUDA_RUN(ctc_loss_grad)
ARIL_CUDA_WORKSPACE(ctc_loss)
ARIL_CUDA_WORKSPACE(ctc_loss_grad)

#undef ARIL_CUDA_RUN
#undef ARIL_CUDA_WORKSPACE

#endif
