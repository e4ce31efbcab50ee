#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int aril__open_to_read(const char *path, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        if (errno == ENXIO) errno = ESPIPE; /* what opening a socket gives */
        return -1;
    }
    int wrong = fstat(fd, st) != 0     ? errno
                : S_ISREG(st->st_mode) ? 0
                : S_ISDIR(st->st_mode) ? EISDIR
                                       : ESPIPE;
    if (wrong == 0) return fd;
    close(fd);
    errno = wrong;
    return -1;
}
