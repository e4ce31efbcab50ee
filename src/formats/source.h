/* A source of bytes: a file or memory. */
#ifndef ARIL_FORMATS_SOURCE_H
#define ARIL_FORMATS_SOURCE_H

#include "aril/base.h"

typedef struct aril__source {
    int fd; /* -1: memory */
    const unsigned char *memory;
    uint64_t size;
    char *name; /* name for messages */
} aril__source;

/* Opens a regular file, or memory, which must outlive the source. `what` names the kind of file in
 * messages. On failure there is nothing to close. */
aril_status aril__source_open(aril__source *s, const char *what, const char *path);
aril_status aril__source_memory(aril__source *s, const void *data, size_t size);
/* The same with a name for messages. */
aril_status aril__source_named(aril__source *s, const char *name, const void *data, size_t size);
void aril__source_close(aril__source *s);

/* Reads exactly `size` bytes at `offset`; an error if there are fewer. */
aril_status aril__source_read(const aril__source *s, uint64_t offset, void *to, size_t size);

#endif
