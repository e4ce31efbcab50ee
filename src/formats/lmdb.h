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

/* ---- writing ---- */

/* Writes a database pair by pair, in sorted order, in memory that does not grow with it:
 *
 *     aril__lmdb_writer *w = aril__lmdb_begin("data.mdb");
 *     for (...) aril__lmdb_add(w, key, key_size, value, value_size);
 *     return aril__lmdb_commit(w);
 *
 * The first failure is remembered: later calls do nothing and return it again. */
typedef struct aril__lmdb_writer aril__lmdb_writer;

/* NULL, with an error, if the file cannot be created. */
aril__lmdb_writer *aril__lmdb_begin(const char *path);
/* The commit is an error if the file exists by then. */
void aril__lmdb_only_new(aril__lmdb_writer *w);
/* Keys are unique, sorted by their bytes, of at most 511 bytes. */
aril_status aril__lmdb_add(aril__lmdb_writer *w, const void *key, size_t key_size,
                           const void *value, size_t value_size);
/* Replaces the file atomically and frees w; after a failure, does what aril__lmdb_abandon does. */
aril_status aril__lmdb_commit(aril__lmdb_writer *w);
/* Leaves the old file as it was and frees w. NULL is allowed. */
void aril__lmdb_abandon(aril__lmdb_writer *w);

/* The same for n pairs in memory. */
typedef struct aril__lmdb_pair {
    const void *key, *value;
    size_t key_size, value_size;
} aril__lmdb_pair;
aril_status aril__lmdb_write(const char *path, int64_t n, const aril__lmdb_pair *pair);

#endif
