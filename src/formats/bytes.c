#include "formats/bytes.h"

#include "core/error.h"
#include "core/file.h"
#include "core/memory.h"
#include "core/thread.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void aril__bytes_free(aril__bytes *b)
{
    free(b->at);
    *b = (aril__bytes){ 0 };
}

unsigned char *aril__bytes_add(aril__bytes *b, const void *data, size_t size)
{
    if (b->failed) return NULL;
    if (size > PTRDIFF_MAX - b->n - 1) goto fail;
    if (b->n + size + 1 > b->capacity) {
        size_t capacity = b->capacity < PTRDIFF_MAX / 2 ? b->capacity * 2 : b->capacity;
        if (capacity < 64) capacity = 64;
        if (capacity < b->n + size + 1) capacity = b->n + size + 1;
        unsigned char *at = aril__realloc(b->at, capacity);
        if (!at) goto fail;
        b->at = at;
        b->capacity = capacity;
    }
    unsigned char *begin = b->at + b->n;
    if (data && size) memcpy(begin, data, size);
    b->n += size;
    b->at[b->n] = 0;
    return begin;
fail:
    b->failed = true;
    return NULL;
}

void aril__bytes_print(aril__bytes *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->failed = true;
        return;
    }
    unsigned char *to = aril__bytes_add(b, NULL, (size_t)n);
    if (!to) return;
    va_start(ap, fmt);
    vsnprintf((char *)to, (size_t)n + 1, fmt, ap);
    va_end(ap);
}

int aril__utf8_length(const unsigned char *p, size_t n)
{
    if (n == 0) return 0;
    if (p[0] < 0x80) return 1;
    int length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || (size_t)length > n) return 0;
    for (int i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    /* Reject overlong forms, surrogates, and code points beyond U+10FFFF. */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return length;
}

void aril__bytes_json(aril__bytes *b, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = strlen(text);
    aril__bytes_add(b, "\"", 1);
    while (n > 0) {
        size_t plain = 0;
        while (plain < n && p[plain] >= 0x20 && p[plain] < 0x7f && p[plain] != '"' &&
               p[plain] != '\\')
            plain++;
        aril__bytes_add(b, p, plain);
        p += plain;
        n -= plain;
        if (n == 0) break;
        int length = aril__utf8_length(p, n);
        if (length > 1)
            aril__bytes_add(b, p, (size_t)length);
        else if (length == 0)
            aril__bytes_add(b, "\xef\xbf\xbd", 3);
        else if (*p == '"' || *p == '\\')
            aril__bytes_print(b, "\\%c", *p);
        else if (*p == '\n' || *p == '\t')
            aril__bytes_print(b, "\\%c", *p == '\n' ? 'n' : 't');
        else
            aril__bytes_print(b, "\\u%04x", *p);
        size_t taken = length > 0 ? (size_t)length : 1;
        p += taken;
        n -= taken;
    }
    aril__bytes_add(b, "\"", 1);
}

bool aril__read_at(int fd, void *to, size_t size, uint64_t offset)
{
    unsigned char *p = to;
    while (size > 0) {
        ssize_t n = pread(fd, p, size < (1u << 30) ? size : 1u << 30, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = 0;
        if (n <= 0) return false;
        p += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

aril_status aril__file_open(const char *what, const char *path, int *fd, uint64_t *size)
{
    if (!path || !*path) return aril__fail(ARIL_ERR_ARG, "%s: expected a file name", what);
    struct stat st = { 0 };
    *fd = aril__open_to_read(path, &st);
    if (*fd >= 0) {
        *size = (uint64_t)st.st_size;
        return ARIL_OK;
    }
    if (errno == ESPIPE)
        return aril__fail(ARIL_ERR_IO, "%s: %s is a %s; expected a regular file", what, path,
                          S_ISFIFO(st.st_mode)                         ? "pipe"
                          : S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) ? "device"
                                                                       : "socket");
    return aril__fail(ARIL_ERR_IO, "%s: cannot open %s: %s", what, path, strerror(errno));
}

aril_status aril__read_file(const char *what, const char *path, uint64_t limit, aril__bytes *b)
{
    int fd;
    uint64_t size;
    aril_status status = aril__file_open(what, path, &fd, &size);
    if (status != ARIL_OK) return status;
    if (size > 0 && (limit == 0 || size <= limit) && aril__bytes_add(b, NULL, (size_t)size))
        b->n = 0; /* reserve the whole size at once */
    for (;;) {
        size_t capacity = b->capacity > b->n + 1 ? b->capacity - b->n - 1 : 0;
        size_t had = b->n;
        if (capacity == 0) capacity = 1 << 16;
        unsigned char *to = aril__bytes_add(b, NULL, capacity);
        if (!to) {
            status = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory reading %s", what, path);
            break;
        }
        ssize_t n = read(fd, to, capacity);
        b->n = had + (n > 0 ? (size_t)n : 0);
        b->at[b->n] = 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            status = aril__fail(ARIL_ERR_IO, "%s: cannot read %s: %s", what, path, strerror(errno));
        else if (limit > 0 && b->n > limit)
            status = aril__fail(ARIL_ERR_FORMAT, "%s: %s is longer than the limit of %llu bytes",
                                what, path, (unsigned long long)limit);
        if (n <= 0 || status != ARIL_OK) break;
    }
    close(fd);
    if (status != ARIL_OK) aril__bytes_free(b);
    return status;
}
