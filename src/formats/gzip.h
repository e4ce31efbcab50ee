/* Unpacking what gzip and zip have packed, by zlib. */
#ifndef ARIL_FORMATS_GZIP_H
#define ARIL_FORMATS_GZIP_H

#include "formats/bytes.h"

/* Reads a whole file as aril__read_file does, and unpacks it where it is gzip's: to at most
 * ARIL__UNPACKED_TIMES its size and ARIL__UNPACKED_FREE bytes more, so that a small file does not
 * take all memory. Data compresses 2 to 50 times; gzip could do so 1000 times. */
enum { ARIL__UNPACKED_TIMES = 100, ARIL__UNPACKED_FREE = 1 << 24 };
aril_status aril__read_unpacked(const char *what, const char *path, aril__bytes *b);

/* Adds what a gzip file in memory holds to *out: at most `limit` bytes (0: any number). */
aril_status aril__gunzip(const char *what, const char *name, const void *data, size_t size,
                         uint64_t limit, aril__bytes *out);

/* Unpacks a deflate stream without a frame that holds exactly `want` bytes. */
aril_status aril__inflate(const char *what, const char *name, const void *data, size_t size,
                          void *to, size_t want);

#endif
