/* The datasets that a command works on, cut and sized as the network was trained on them. */
#ifndef ARIL_CLI_PARTS_H
#define ARIL_CLI_PARTS_H

#include "model_file.h"

/* Both parts of a dataset. Without a part called test, or with share > 0, a share of the samples
 * (0: a tenth), drawn by the seed, is kept for it; *kept is that share, 0 where there was a part.
 * Fills in both or neither; false after an error. */
bool parts_open(const char *data, double share, uint64_t seed, aril_dataset **train,
                aril_dataset **test, double *kept);

/* The part that a network is tested on: by name, or, with split NULL, "test" or the samples that
 * its training kept apart. NULL after an error. */
aril_dataset *parts_to_test(const char *data, const char *split, const model_file *m);

/* The dataset, which is taken over, with its pictures made height x width. */
aril_dataset *parts_sized(aril_dataset *d, int64_t height, int64_t width);

/* Do samples differ in shape? Some of them are looked at. */
bool parts_differ(aril_dataset *d);

#endif
