/* Libraries that are opened at run time: cuBLASLt and cuDNN. Each is opened once, when a row first
 * asks for it; a row that does not get it declines, and the plain kernels behind it run. */
#ifndef ARIL_CUDA_LIBRARY_H
#define ARIL_CUDA_LIBRARY_H

#include "backend/cuda/device/device.h"

#include <cublasLt.h>
#if defined __has_include
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define ARIL_CUDA_CUDNN 1
#endif
#endif

ARIL_C_BEGIN

/* Products and convolutions of f32 may be computed in TF32. */
bool aril_cuda_tf32(void);

/* Versions and files of the libraries, or why they are missing: for descriptions. Opens them. */
void aril_cuda_libraries_text(char *buf, size_t size);

/* ---- cuBLASLt ---- */

#define ARIL_CUDA_BLAS_FUNCTIONS(F)          \
    F(cublasLtCreate)                        \
    F(cublasLtDestroy)                       \
    F(cublasLtGetVersion)                    \
    F(cublasLtMatmul)                        \
    F(cublasLtMatmulAlgoGetHeuristic)        \
    F(cublasLtMatmulDescInit_internal)       \
    F(cublasLtMatmulDescSetAttribute)        \
    F(cublasLtMatrixLayoutInit_internal)     \
    F(cublasLtMatrixLayoutSetAttribute)      \
    F(cublasLtMatmulPreferenceInit_internal) \
    F(cublasLtMatmulPreferenceSetAttribute)

typedef struct aril_cuda_blas {
#define F(name) __typeof__(name) *name;
    ARIL_CUDA_BLAS_FUNCTIONS(F)
#undef F
} aril_cuda_blas;

/* NULL if it is missing; *why, if not NULL, then gets the reason. */
const aril_cuda_blas *aril_cuda_blas_library(const char **why);

/* The device's handle, which threads may share; NULL on failure. It is made on first use, and lives
 * as long as the process. */
cublasLtHandle_t aril_cuda_blas_handle(aril_cuda_device *d);

/* The matrices and the task of a product, d = a b + c, all in cuBLASLt's order. */
typedef struct aril_cuda_blas_task {
    cublasLtMatmulDescOpaque_t task;
    cublasLtMatrixLayoutOpaque_t a, b, c;
} aril_cuda_blas_task;

/* The heuristic's first choice whose sums are made in the compute type, always in the same order,
 * for addresses that are multiples of `alignment`. False if there is none. */
bool aril_cuda_blas_choose(const aril_cuda_blas *lt, cublasLtHandle_t handle, aril_cuda_blas_task t,
                           uint32_t alignment, size_t workspace,
                           cublasLtMatmulHeuristicResult_t *best);

/* ---- cuDNN ---- */

#ifdef ARIL_CUDA_CUDNN
#define ARIL_CUDA_DNN_FUNCTIONS(F)   \
    F(cudnnGetVersion)               \
    F(cudnnGetErrorString)           \
    F(cudnnCreate)                   \
    F(cudnnDestroy)                  \
    F(cudnnSetStream)                \
    F(cudnnBackendCreateDescriptor)  \
    F(cudnnBackendDestroyDescriptor) \
    F(cudnnBackendFinalize)          \
    F(cudnnBackendSetAttribute)      \
    F(cudnnBackendGetAttribute)      \
    F(cudnnBackendExecute)

typedef struct aril_cuda_dnn {
#define F(name) __typeof__(name) *name;
    ARIL_CUDA_DNN_FUNCTIONS(F)
#undef F
    size_t version; /* 91900: 9.19.0 */
} aril_cuda_dnn;

/* As aril_cuda_blas_library. It is opened from ARIL_CUDNN, a directory, or from where the loader
 * finds it; its parts come from the same directory. */
const aril_cuda_dnn *aril_cuda_dnn_library(const char **why);

/* A handle of the device that no other thread uses until it is given back; NULL on failure. */
cudnnHandle_t aril_cuda_dnn_take(aril_cuda_device *d);
void aril_cuda_dnn_give_back(aril_cuda_device *d, cudnnHandle_t handle);
#endif

ARIL_C_END

#endif
