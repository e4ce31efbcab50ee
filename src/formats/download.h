/* Downloads of large files: resumed after an interruption, checked by their hash, and complete or
 * absent under their name.
 *
 * Data goes to PATH.part, locked while it is written: a second process waits and then finds the
 * file, or takes over where a killed one stopped. PATH.part.from says where the data comes from, so
 * that only the same version of a file is resumed. When all has arrived and the hash is right, the
 * part is synced and renamed to PATH. */
#ifndef ARIL_FORMATS_DOWNLOAD_H
#define ARIL_FORMATS_DOWNLOAD_H

#include "aril/base.h"

typedef enum aril__download_phase {
    ARIL__DOWNLOAD_WAITING,   /* for another process that downloads the same file */
    ARIL__DOWNLOAD_CHECKING,  /* hashes what was there before */
    ARIL__DOWNLOAD_RECEIVING, /* connects and receives */
    ARIL__DOWNLOAD_PAUSING,   /* before the next attempt */
} aril__download_phase;

typedef struct aril__download_at {
    aril__download_phase phase;
    int64_t done, total; /* bytes; total -1: unknown */
    const char *why;     /* PAUSING: what went wrong; otherwise NULL */
} aril__download_at;

typedef struct aril__download_opts {
    const char
        *sha256;   /* hexadecimal, all digits or the first ones; NULL: the server's, if it tells
                           one */
    int64_t size;  /* about how large it is; 0: unknown */
    int64_t limit; /* more bytes are an error; 0: none */
    bool offline;  /* do not connect: fail unless the file is there */
    int stall;     /* seconds without a byte before an attempt ends; 0: 60 */
    double pause;  /* seconds after a failed attempt, then longer; 0: 0.5 */
    /* Called several times a second; false stops the download. NULL: none. */
    bool (*watch)(void *ctx, const aril__download_at *at);
    /* Looks at what arrived, under a temporary name, before it gets its own: an error removes it.
     * NULL: anything is accepted. */
    aril_status (*accept)(void *ctx, const char *path);
    void *ctx;
} aril__download_opts;

typedef struct aril__downloaded {
    bool was_there; /* or another process downloaded it in the meantime */
    int64_t size;
    int64_t resumed; /* bytes that were there from an earlier attempt */
} aril__downloaded;

/* Downloads url to path, whose folder is created, unless path exists and is not empty. Data ends
 * where the server said that it would. The error after a failure says what to put where by hand. */
aril_status aril__download(const char *url, const char *path, aril__download_opts opts,
                           aril__downloaded *result);

/* The SHA-256 of a file, as digits. */
aril_status aril__file_sha256(const char *path, char text[65]);

/* Removes path and what an interrupted download left beside it. *removed: the bytes; fails if
 * another process is downloading it. */
aril_status aril__download_remove(const char *path, int64_t *removed);

/* The bytes of an unfinished download; 0: there is none. */
int64_t aril__download_part_size(const char *path);

#endif
