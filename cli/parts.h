/* The datasets that a command uses, split and resized as in training. */
#ifndef ARIL_CLI_PARTS_H
#define ARIL_CLI_PARTS_H

#include "model_file.h"

/* The datasets of a training. */
typedef struct parts {
    aril_dataset *train;
    aril_dataset *val;  /* evaluated after each epoch, to select the best one */
    aril_dataset *test; /* evaluated once, at the end; NULL: there is no such split */
    double kept;  /* fraction of the training samples used as val; 0: val is a split of the data */
    bool by_test; /* val is the test split */
} parts;

/* The train split, or the whole dataset if it has no splits. NULL after an error. */
aril_dataset *parts_train(const char *data, aril_open_opts opts);

/* Opens all splits. train: from parts_train; ownership is taken. The others get its classes and
 * columns. The best epoch is selected on a fraction of the training samples, drawn with the seed
 * (share > 0; 0.1 if the data has neither split), otherwise on the val split, otherwise on the test
 * split. False, with nothing to release, after an error. */
bool parts_open(const char *data, aril_open_opts opts, double share, uint64_t seed,
                aril_dataset *train, parts *p);
void parts_close(parts *p);

/* The samples that a network is tested on: the split with that name; or, if split is NULL, the test
 * split, the samples held out in training, the val split, or the whole dataset if it has no splits.
 * `what` says which. NULL after an error. */
aril_dataset *parts_to_test(const char *data, const char *split, aril_open_opts opts,
                            const model_file *m, const char **what);

/* Takes ownership of the dataset and returns it with images resized to height x width. */
aril_dataset *parts_sized(aril_dataset *d, int64_t height, int64_t width);

/* Whether it is a table with unnamed integer targets. When it is reopened with .class_target, their
 * values become the class names. */
bool parts_lack_names(aril_dataset *d);

/* Whether samples differ in shape; checks only some of them. */
bool parts_differ(aril_dataset *d);

#endif
