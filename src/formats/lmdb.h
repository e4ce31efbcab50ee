/* LMDB files: sorted keys with values, as Caffe and others keep their data sets in. The format of
 * 64-bit machines, main database alone. Reading looks at each page's numbers before it believes
 * them, and needs neither locks nor write access. */
#ifndef ARIL_FORMATS_LMDB_H
#define ARIL_FORMATS_LMDB_H

#include "formats/bytes.h"
#include "formats/source.h"

typedef struct aril__lmdb aril__lmdb;

/* Reads the list of keys. The source is taken over, also on failure. NULL, with an error, on
 * failure. */
aril__lmdb *aril__lmdb_open(aril__source source);
void aril__lmdb_close(aril__lmdb *f);

int64_t aril__lmdb_count(const aril__lmdb *f);
/* The i-th key, in their order, as text up to its first 0 byte. */
const char *aril__lmdb_key(const aril__lmdb *f, int64_t i);
/* Adds the i-th value to *out. By several threads at once. */
aril_status aril__lmdb_read(const aril__lmdb *f, int64_t i, aril__bytes *out);

/* One pair to be written. */
typedef struct aril__lmdb_pair {
    const void *key, *value;
    size_t key_size, value_size;
} aril__lmdb_pair;

/* Writes a file of n pairs, sorted by their keys, each at most 511 bytes and used once. */
aril_status aril__lmdb_write(const char *path, int64_t n, const aril__lmdb_pair *pair);

#endif
