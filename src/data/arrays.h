/* Datasets from arrays read from a file. */
#ifndef ARIL_DATA_ARRAYS_H
#define ARIL_DATA_ARRAYS_H

#include "aril/data.h"

/* Creates a dataset from x and y (or NULL): integer y becomes i64, f64 becomes f32, u8 of three or
 * four dimensions are images. NULL, with an error, if their sizes do not match or one is poison. */
aril_dataset *aril__dataset_of_arrays(const char *path, aril_tensor *x, aril_tensor *y);

#endif
