/* Cast weights of an autocast region: the values of each weight in the dtype of the region, kept
 * until the outermost region of the thread ends, so that a weight is cast once per version.
 *
 * Only values are kept, without a graph: every use of a cast weight records a cast of its own, so
 * that a region may contain several backward passes and parts without gradients. */
#ifndef ARIL_CORE_CASTS_H
#define ARIL_CORE_CASTS_H

#include "core/tensor.h"

/* The values of `weight` in dtype `to`, borrowed; NULL if they are not kept, or if the weight was
 * written to since. */
const aril_tensor *aril__casts_find(const aril__thread *th, const aril_tensor *weight,
                                    aril_dtype to);

/* Keeps `cast`, the values of `weight` in another dtype. A no-op if the weight's memory can be
 * written to without our knowledge, or when out of memory. */
void aril__casts_keep(aril__thread *th, const aril_tensor *weight, const aril_tensor *cast);

/* Releases all of them. */
void aril__casts_drop(aril__thread *th);

#endif
