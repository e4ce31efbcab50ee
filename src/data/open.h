/* The kinds of files that aril_dataset_open knows: the end of a name, and what opens such a
 * file. */
#ifndef ARIL_DATA_OPEN_H
#define ARIL_DATA_OPEN_H

#include "aril/datasets.h"

aril_dataset *aril__open_csv(const char *path, const char *split);
aril_dataset *aril__open_npz(const char *path, const char *split);
aril_dataset *aril__open_npy(const char *path, const char *split);
aril_dataset *aril__open_text(const char *path, const char *split);
aril_dataset *aril__open_hdf5(const char *path, const char *split);

#define ARIL__FILE_KINDS                                                                     \
    { ".csv", aril__open_csv }, { ".tsv", aril__open_csv }, { ".npz", aril__open_npz },      \
        { ".npy", aril__open_npy }, { ".txt", aril__open_text }, { ".h5", aril__open_hdf5 }, \
        { ".hdf5", aril__open_hdf5 },
#define ARIL__FILE_KIND_NAMES ".csv, .tsv, .npz, .npy, .txt and .h5"

#endif
