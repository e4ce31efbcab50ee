/* Decompression of gzip and zip data with zlib. */
#ifndef ARIL_FORMATS_GZIP_H
#define ARIL_FORMATS_GZIP_H

#include "formats/bytes.h"

/* Reads a whole file as aril__read_file does, and decompresses it if it is gzip: to at most
 * ARIL__UNPACKED_TIMES its size plus ARIL__UNPACKED_FREE bytes, so that a small file cannot exhaust
 * memory. Real data compresses 2 to 50 times; gzip can reach 1000 times. */
enum { ARIL__UNPACKED_TIMES = 100, ARIL__UNPACKED_FREE = 1 << 24 };
aril_status aril__read_unpacked(const char *what, const char *path, aril__bytes *b);

/* Decompresses a gzip file in memory and appends it to *out: at most `limit` bytes (0: no
 * limit). */
aril_status aril__gunzip(const char *what, const char *name, const void *data, size_t size,
                         uint64_t limit, aril__bytes *out);

/* Decompresses a raw deflate stream that holds exactly `want` bytes. */
aril_status aril__inflate(const char *what, const char *name, const void *data, size_t size,
                          void *to, size_t want);

/* Decompresses the first `want` bytes of a raw deflate stream, or all if there are fewer: *got. */
aril_status aril__inflate_first(const char *what, const char *name, const void *data, size_t size,
                                void *to, size_t want, size_t *got);

#endif
