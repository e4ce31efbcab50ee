#include "formats/source.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static aril_status named(aril__source *s, const char *name)
{
    s->name = aril__strdup(name);
    return s->name ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", name);
}

aril_status aril__source_open(aril__source *s, const char *what, const char *path)
{
    *s = (aril__source){ .fd = -1 };
    int fd;
    uint64_t size;
    aril_status status = aril__file_open(what, path, &fd, &size);
    if (status != ARIL_OK) return status;
    status = named(s, path);
    if (status != ARIL_OK) {
        close(fd);
        return status;
    }
    s->fd = fd;
    s->size = size;
    return ARIL_OK;
}

aril_status aril__source_named(aril__source *s, const char *name, const void *data, size_t size)
{
    *s = (aril__source){ .fd = -1, .memory = data, .size = size };
    return named(s, name);
}

aril_status aril__source_memory(aril__source *s, const void *data, size_t size)
{
    return aril__source_named(s, "the memory", data, size);
}

void aril__source_close(aril__source *s)
{
    if (s->fd >= 0) close(s->fd);
    free(s->name);
    *s = (aril__source){ .fd = -1 };
}

aril_status aril__source_read(const aril__source *s, uint64_t offset, void *to, size_t size)
{
    if (offset > s->size || size > s->size - offset)
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s is truncated: expected bytes %llu to %llu, but it has %llu", s->name,
                          (unsigned long long)offset, (unsigned long long)(offset + size),
                          (unsigned long long)s->size);
    if (s->fd < 0) {
        if (size) memcpy(to, s->memory + offset, size);
        return ARIL_OK;
    }
    errno = 0;
    if (aril__read_at(s->fd, to, size, offset)) return ARIL_OK;
    return aril__fail(ARIL_ERR_IO, "cannot read %s: %s", s->name,
                      errno ? strerror(errno) : "the file was truncated");
}
