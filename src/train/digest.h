/* XXH64, a fast digest that detects damaged files (not cryptographic). */
#ifndef ARIL_TRAIN_DIGEST_H
#define ARIL_TRAIN_DIGEST_H

#include "aril/named.h"

typedef struct aril__digest {
    uint64_t lane[4];
    uint64_t length;
    unsigned char rest[32];
    size_t used; /* bytes used of rest */
} aril__digest;

void aril__digest_start(aril__digest *d);
void aril__digest_add(aril__digest *d, const void *data, size_t size);
uint64_t aril__digest_end(const aril__digest *d);

/* Digest of tensors with their names, dtypes and shapes, independent of their order. */
aril_status aril__digest_named(const aril_named *tensors, uint64_t *digest);

#endif
