/* Files that other programs wrote, in an archive that a test holds as base64. */
#ifndef ARIL_TESTS_SUPPORT_ARCHIVE_H
#define ARIL_TESTS_SUPPORT_ARCHIVE_H

#include "formats/zip.h"

#include <string.h>

static inline int archive_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Reads one file of an archive, of which `text` holds the base64 in n parts; false if there is
 * none. */
static inline bool archive_file(const char *const *text, size_t n, const char *name,
                                aril__bytes *out)
{
    aril__bytes archive = { 0 };
    uint32_t bits = 0;
    int held = 0;
    for (size_t i = 0; i < n; i++)
        for (const char *c = text[i]; *c; c++) {
            int digit = archive_digit(*c);
            if (digit < 0) continue;
            bits = bits << 6 | (uint32_t)digit;
            if ((held += 6) < 8) continue;
            unsigned char byte = (unsigned char)(bits >> (held -= 8));
            aril__bytes_add(&archive, &byte, 1);
        }
    aril__source source;
    aril__zip z;
    bool found = false;
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
