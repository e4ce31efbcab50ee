/* The datasets that a command uses, split and resized as in training. */
#ifndef ARIL_CLI_DATASETS_H
#define ARIL_CLI_DATASETS_H

#include "model_file.h"

/* The samples that a network is tested on: the split with that name; or, if split is NULL, the test
 * split, the samples held out in training, the val split, or the whole dataset if it has no splits.
 * `what` says which. NULL after an error. */
aril_dataset *open_test_samples(const char *data, const char *split, aril_open_opts opts,
                                const model_file *m, const char **what);

/* Takes ownership of the dataset and returns it with images resized to height x width. */
aril_dataset *resize_images(aril_dataset *d, int64_t height, int64_t width);

/* Whether samples differ in shape; checks only some of them. */
bool shapes_differ(aril_dataset *d);

/* A name for results, by the path of the data: "~/flowers/" -> "flowers", "iris.csv" -> "iris". */
void dataset_base_name(const char *data, char *to, size_t size);

#endif
