/* aril data import: datasets as databases of Caffe. */
#ifndef ARIL_CLI_IMPORT_H
#define ARIL_CLI_IMPORT_H

#include "commands.h"

typedef struct import_options {
    const char *root, *size, *encoded, *mean;
    int64_t seed;
    bool gray, shuffle, rgb, same_size, force, strict;
} import_options;

/* Imports the dataset or image list `source` to an LMDB in the folder `to`; split NULL: all of it,
 * or "train". Returns the exit status. */
int import_data(const char *source, const char *split, const char *to, const import_options *o);

/* Writes the mean image of an LMDB. */
int import_mean(const char *folder, const char *to);

#endif
