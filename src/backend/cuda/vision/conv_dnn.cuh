/* Convolutions and their gradients by engines of cuDNN. */
#ifndef ARIL_CUDA_CONV_DNN_CUH
#define ARIL_CUDA_CONV_DNN_CUH

#include "backend/cuda/vision/conv_way.cuh"

#ifdef ARIL_CUDA_CUDNN

enum { ARIL_CUDA_CONV_ENGINES = 64 }; /* the most that are listed */

/* Lists the engines for addresses that are multiples of `alignment`, as the heuristics order them,
 * with bias and activation in the graph or without; aril_cuda_engines_end releases them. */
int aril_cuda_conv_engines(const aril_cuda_conv_task *t, int64_t alignment, bool fused,
                           aril_cuda_engine to[ARIL_CUDA_CONV_ENGINES]);

/* Builds one of them; false if it does not build, or needs more than `workspace` bytes. */
bool aril_cuda_conv_engine_build(const aril_cuda_conv_task *t, aril_cuda_engine *engine,
                                 int64_t workspace, aril_cuda_dnn_plan *to);

/* Executes a plan, of which one thread at a time may make use. NULL, or why it failed. */
const char *aril_cuda_conv_engine_run(const aril_run *r, const aril_cuda_conv_task *t,
                                      const aril_cuda_dnn_plan *plan, bool fused,
                                      const aril_cuda_conv &d, void *workspace);

#endif
#endif
