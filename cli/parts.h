/* The datasets that a command works on, cut and sized as the network was trained on them. */
#ifndef ARIL_CLI_PARTS_H
#define ARIL_CLI_PARTS_H

#include "model_file.h"

/* What a training works on. */
typedef struct parts {
    aril_dataset *train;
    aril_dataset *val;  /* measured after each epoch: by it the best epoch is chosen */
    aril_dataset *test; /* measured once, at the end; NULL: there is no such part */
    double kept;  /* the share of the training samples that val is; 0: it is a part of the data */
    bool by_test; /* val is the part called test */
} parts;

/* The part called train, or all of what has no parts. NULL after an error. */
aril_dataset *parts_train(const char *data, aril_open_opts opts);

/* All parts. train: as parts_train opened it; taken over. Its classes and columns are those of the
 * others. The best epoch is chosen by a share of the training samples, drawn by the seed (share > 0;
 * a tenth where the data has neither), else by the part called val, else by the part called test.
 * False, with nothing to release, after an error. */
bool parts_open(const char *data, aril_open_opts opts, double share, uint64_t seed,
                aril_dataset *train, parts *p);
void parts_close(parts *p);

/* The samples that a network is tested on: a part by name, or, with split NULL, the part called
 * test, the samples that its training held out, the part called val, or all of what has no parts.
 * `what` says which that is. NULL after an error. */
aril_dataset *parts_to_test(const char *data, const char *split, aril_open_opts opts,
                            const model_file *m, const char **what);

/* The dataset, which is taken over, with its images made height x width. */
aril_dataset *parts_sized(aril_dataset *d, int64_t height, int64_t width);

/* Is it a table whose targets are integers without names? Opened again with .class_target, their
 * values are the names of the classes. */
bool parts_lack_names(aril_dataset *d);

/* Do samples differ in shape? Some of them are looked at. */
bool parts_differ(aril_dataset *d);

#endif
