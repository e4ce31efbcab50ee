/* The files of hdf5.inc: "old.h5", "new.h5", "large.h5" and "repeated.h5", of make_hdf5.py. */
#ifndef ARIL_TESTS_FILES_HDF5_H
#define ARIL_TESTS_FILES_HDF5_H

#include "support/archive.h"

static const char *const hdf5_files_text[] = {
#include "files/hdf5.inc"
};

static inline bool hdf5_file(const char *name, aril__bytes *out)
{
    return archive_file(hdf5_files_text, sizeof hdf5_files_text / sizeof *hdf5_files_text, name,
                        out);
}

#endif
