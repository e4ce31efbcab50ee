/* File kinds that aril_dataset_open supports: suffix and open function. */
#ifndef ARIL_DATA_OPEN_H
#define ARIL_DATA_OPEN_H

#include "aril/datasets.h"

/* Tables take options when opened. */
aril_dataset *aril__open_csv(const char *path, const char *split, const aril_open_opts *opts);
aril_dataset *aril__open_npz(const char *path, const char *split);
aril_dataset *aril__open_npy(const char *path, const char *split);
aril_dataset *aril__open_text(const char *path, const char *split);
aril_dataset *aril__open_hdf5(const char *path, const char *split);

/* Suffix, open function, and open function with options. */
#define ARIL__FILE_KINDS                                                     \
    { ".csv", NULL, aril__open_csv }, { ".tsv", NULL, aril__open_csv },      \
        { ".npz", aril__open_npz, NULL }, { ".npy", aril__open_npy, NULL },  \
        { ".txt", aril__open_text, NULL }, { ".h5", aril__open_hdf5, NULL }, \
        { ".hdf5", aril__open_hdf5, NULL },
#define ARIL__FILE_KIND_NAMES ".csv, .tsv, .npz, .npy, .txt and .h5"

#endif
