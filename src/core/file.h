/* Opening files to read. */
#ifndef ARIL_CORE_FILE_H
#define ARIL_CORE_FILE_H

#include <sys/stat.h>

/* Opens a regular file and fills *st. Never blocks: a pipe without a writer would block the caller
 * forever, a device might never end. Returns -1, with errno set, on failure or if it is not a
 * regular file: EISDIR for a directory, ESPIPE for pipes, devices and sockets. */
int aril__open_to_read(const char *path, struct stat *st);

#endif
