/* SHA-256 (FIPS 180-4), in pieces: the hash that publishers of files name. */
#ifndef ARIL_FORMATS_SHA256_H
#define ARIL_FORMATS_SHA256_H

#include "aril/base.h"

enum { ARIL__SHA256_HEX = 64 }; /* hexadecimal digits of a hash */

typedef struct aril__sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes added */
    unsigned char rest[64];
} aril__sha256;

void aril__sha256_start(aril__sha256 *h);
void aril__sha256_add(aril__sha256 *h, const void *data, size_t size);

/* The hash of all that was added, as lower-case digits. h stays as it is: more can be added. */
void aril__sha256_text(const aril__sha256 *h, char text[ARIL__SHA256_HEX + 1]);

/* Whether a hash is the published one, of which `published` may give only the first digits, at
 * least 8. Case does not matter. */
bool aril__sha256_matches(const char *text, const char *published);

#endif
