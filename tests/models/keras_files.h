/* The files of tests/files/keras.inc: networks of Keras, with inputs and outputs. */
#ifndef ARIL_TESTS_MODELS_KERAS_FILES_H
#define ARIL_TESTS_MODELS_KERAS_FILES_H

#include "formats/zip.h"

#include <string.h>

static const char *const keras_files_text[] = {
#include "files/keras.inc"
};

static inline int keras_files_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* The archive, from base64. */
static inline void keras_files_archive(aril__bytes *out)
{
    uint32_t bits = 0;
    int n = 0;
    for (size_t i = 0; i < sizeof keras_files_text / sizeof *keras_files_text; i++)
        for (const char *c = keras_files_text[i]; *c; c++) {
            int digit = keras_files_digit(*c);
            if (digit < 0) continue;
            bits = bits << 6 | (uint32_t)digit;
            if ((n += 6) < 8) continue;
            unsigned char byte = (unsigned char)(bits >> (n -= 8));
            aril__bytes_add(out, &byte, 1);
        }
}

/* Reads one file of the archive; false if there is none. */
static inline bool keras_file(const char *name, aril__bytes *out)
{
    aril__bytes archive = { 0 };
    aril__source source;
    aril__zip z;
    bool found = false;
    keras_files_archive(&archive);
    if (aril__source_memory(&source, archive.at, archive.n) == ARIL_OK &&
        aril__zip_open(&z, source) == ARIL_OK) {
        for (int i = 0; i < z.n && !found; i++)
            if (strcmp(z.member[i].name, name) == 0) found = aril__zip_read(&z, i, out) == ARIL_OK;
        aril__zip_close(&z);
    }
    aril__bytes_free(&archive);
    return found;
}

#endif
