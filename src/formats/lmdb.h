/* LMDB files: sorted key-value pairs, as used by Caffe and others for datasets. Supports the format
 * of 64-bit machines, main database only. The reader validates every page before using it, and
 * needs neither locks nor write access. */
#ifndef ARIL_FORMATS_LMDB_H
#define ARIL_FORMATS_LMDB_H

#include "formats/bytes.h"
#include "formats/source.h"

typedef struct aril__lmdb aril__lmdb;

/* Opens a database and reads its keys. Takes over the source, even on failure. NULL, with an error,
 * on failure. */
aril__lmdb *aril__lmdb_open(aril__source source);
void aril__lmdb_close(aril__lmdb *f);

int64_t aril__lmdb_count(const aril__lmdb *f);
/* The i-th key in sorted order, as text up to its first NUL byte. */
const char *aril__lmdb_key(const aril__lmdb *f, int64_t i);
/* Appends the i-th value to *out. Thread-safe. */
aril_status aril__lmdb_read(const aril__lmdb *f, int64_t i, aril__bytes *out);

/* A pair to write. */
typedef struct aril__lmdb_pair {
    const void *key, *value;
    size_t key_size, value_size;
} aril__lmdb_pair;

/* Writes a file of n pairs, sorted by unique keys of at most 511 bytes. */
aril_status aril__lmdb_write(const char *path, int64_t n, const aril__lmdb_pair *pair);

#endif
