/* Datasets of arrays that a file held. */
#ifndef ARIL_DATA_ARRAYS_H
#define ARIL_DATA_ARRAYS_H

#include "aril/data.h"

/* x and y (or NULL) as a dataset: whole numbers in y become i64, f64 becomes f32, u8 of three or
 * four dimensions are images. NULL, with an error, where they do not belong together or are
 * poison. */
aril_dataset *aril__dataset_of_arrays(const char *path, aril_tensor *x, aril_tensor *y);

#endif
