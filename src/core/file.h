/* Opening files to read. */
#ifndef ARIL_CORE_FILE_H
#define ARIL_CORE_FILE_H

#include <sys/stat.h>

/* Opens an ordinary file, and tells about it in *st. Never waits: a pipe without a writer would let
 * the caller wait for ever, a device might never end. -1, with errno, where that fails or where it
 * is no ordinary file: EISDIR for a folder, ESPIPE for pipes, devices and sockets. */
int aril__open_to_read(const char *path, struct stat *st);

#endif
