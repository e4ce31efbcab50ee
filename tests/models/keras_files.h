/* The files of tests/files/keras.inc: networks of Keras, with inputs and outputs. */
#ifndef ARIL_TESTS_MODELS_KERAS_FILES_H
#define ARIL_TESTS_MODELS_KERAS_FILES_H

#include "support/archive.h"

static const char *const keras_files_text[] = {
#include "files/keras.inc"
};

/* Reads one file of the archive; false if there is none. */
static inline bool keras_file(const char *name, aril__bytes *out)
{
    return archive_file(keras_files_text, sizeof keras_files_text / sizeof *keras_files_text, name,
                        out);
}

#endif
