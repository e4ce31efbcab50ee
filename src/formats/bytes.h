/* A growable byte buffer, and numbers in bytes: building blocks of file readers and writers. */
#ifndef ARIL_FORMATS_BYTES_H
#define ARIL_FORMATS_BYTES_H

#include "aril/base.h"

/* ---- byte buffer ---- */

/* Initialize with { 0 }. A failure to grow is remembered in `failed`: check once, at the end. `at`
 * is NUL-terminated, so that text can be used directly. Free with aril__bytes_free. */
typedef struct aril__bytes {
    unsigned char *at;
    size_t n, capacity;
    bool failed;
} aril__bytes;

void aril__bytes_free(aril__bytes *b);

/* Appends `size` bytes; with NULL data, appends bytes for the caller to fill. Returns where they
 * begin, NULL when out of memory. */
unsigned char *aril__bytes_add(aril__bytes *b, const void *data, size_t size);

/* Appends printf-formatted text. */
void aril__bytes_print(aril__bytes *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends text as a quoted JSON string. Invalid UTF-8 becomes U+FFFD. */
void aril__bytes_json(aril__bytes *b, const char *text);

/* ---- files ---- */

/* Opens a regular file for reading; *size is its size. Pipes, devices and folders are rejected
 * without blocking. `what` names the kind of file in messages ("image"). */
aril_status aril__file_open(const char *what, const char *path, int *fd, uint64_t *size);

/* Reads a whole file into the empty *b; more than `limit` bytes are an error (0: no limit). On
 * failure *b is left empty. */
aril_status aril__read_file(const char *what, const char *path, uint64_t limit, aril__bytes *b);

/* Reads exactly `size` bytes at `offset`. False with errno set on failure (0: unexpected end of
 * file). */
bool aril__read_at(int fd, void *to, size_t size, uint64_t offset);

/* ---- numbers in bytes ---- */

static inline uint16_t aril__le16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t aril__le32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t aril__le64(const unsigned char *p)
{
    return aril__le32(p) | (uint64_t)aril__le32(p + 4) << 32;
}

static inline uint32_t aril__be32(const unsigned char *p)
{
    return p[3] | (uint32_t)p[2] << 8 | (uint32_t)p[1] << 16 | (uint32_t)p[0] << 24;
}

static inline uint16_t aril__be16(const unsigned char *p)
{
    return (uint16_t)(p[1] | p[0] << 8);
}

static inline void aril__put_le16(unsigned char *p, uint16_t v)
{
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

static inline void aril__put_le32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> 8 * i);
}

static inline void aril__put_le64(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(v >> 8 * i);
}

static inline void aril__put_be32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (24 - 8 * i));
}

/* ---- text ---- */

/* The length of the UTF-8 character at p, of which at most n bytes may be read; 0 if invalid. */
int aril__utf8_length(const unsigned char *p, size_t n);

/* The CRC-32 of zip, gzip and PNG; start with 0. */
uint32_t aril__crc32(uint32_t crc, const void *data, size_t size);

#endif
