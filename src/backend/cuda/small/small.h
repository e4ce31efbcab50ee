/* Small runs that are recorded together: what capture.c needs of them. */
#ifndef ARIL_CUDA_SMALL_H
#define ARIL_CUDA_SMALL_H

#include "aril/plugin.h"

#include <cuda_runtime_api.h>

ARIL_C_BEGIN

/* The most steps of a run, and those that a kernel computes. */
enum { ARIL_CUDA_SMALL_STEPS = 40, ARIL_CUDA_SMALL_MOST = 1 << 14 };

typedef struct aril_cuda_small_step aril_cuda_small_step;

/* Bytes of n steps, with those that complete the last chunk. */
size_t aril_cuda_small_bytes(int n);

/* Describes a run as at most ARIL_CUDA_SMALL_STEPS steps, stored from `to`[first] on. 0: it is not
 * a small run. *shared: grows to the bytes of shared memory that it needs. */
int aril_cuda_small_describe(const aril_run *r, aril_cuda_small_step *to, int first, int *shared);

/* The first of these steps waits for those before. */
void aril_cuda_small_wait(aril_cuda_small_step *steps, int first);

/* Tries to compute a step with the product before it, whose result it uses: the thread that has an
 * element of the one goes on with that element of the other. */
bool aril_cuda_small_follows(aril_cuda_small_step *steps, int at);

/* Launches n steps, which are in the memory of the device. */
cudaError_t aril_cuda_small_launch(const aril_cuda_small_step *steps, int n, int shared,
                                   cudaStream_t stream);

/* A run of one step that may round differently from its row: that step, valid until the next call
 * by the thread; NULL for other runs. */
const aril_cuda_small_step *aril_cuda_small_product(const aril_run *r);
/* Launches such a step. */
cudaError_t aril_cuda_small_launch_one(const aril_cuda_small_step *step, cudaStream_t stream);

/* aril_device_ops.is_small. */
bool aril_cuda_is_small(void *self, const aril_run *r);

ARIL_C_END

#endif
