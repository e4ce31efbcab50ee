/* Kernels that were compiled at run time, in files: one for each key, in the user's cache folder.
 *
 * A key names all that the machine code depends on. A file is written under another name and then
 * renamed, so that readers see all of it or nothing; one that is damaged is ignored. When the files
 * take more than a limit, the oldest are removed. */
#include "backend/cuda/device/device.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER = PATH_MAX - 128 };
static const size_t most_bytes = (size_t)64 << 20;

typedef struct header {
    char magic[8];
    uint64_t key, check, bytes;
} header;
static const char magic[8] = "arilcub1";

static uint64_t hash_of(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* False if nothing is kept: ARIL_KERNEL_CACHE=0, or there is no home folder. */
static bool folder(char *path)
{
    const char *named = getenv("ARIL_KERNEL_CACHE"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = -1;
    if (named && strcmp(named, "0") == 0) return false;
    if (named && *named)
        n = snprintf(path, FOLDER, "%s", named);
    else if (cache && cache[0] == '/')
        n = snprintf(path, FOLDER, "%s/aril/kernels", cache);
    else if (home && home[0] == '/')
        n = snprintf(path, FOLDER, "%s/.cache/aril/kernels", home);
    return n > 0 && n < FOLDER;
}

static void make_folders(char *path)
{
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0777);
        *at = '/';
    }
    mkdir(path, 0777);
}

static bool read_all(int file, void *to, size_t n)
{
    char *at = to;
    while (n) {
        ssize_t got = read(file, at, n);
        if (got <= 0) return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

static bool write_all(int file, const void *from, size_t n)
{
    const char *at = from;
    while (n) {
        ssize_t put = write(file, at, n);
        if (put <= 0) return false;
        at += put;
        n -= (size_t)put;
    }
    return true;
}

char *aril_cuda_kernel_file_read(const char *key, size_t *bytes)
{
    char path[PATH_MAX];
    uint64_t hash = hash_of(key, strlen(key));
    if (!folder(path)) return NULL;
    size_t n = strlen(path);
    snprintf(path + n, sizeof path - n, "/%016llx.cubin", (unsigned long long)hash);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    header h;
    struct stat st;
    char *code = NULL;
    bool good = fstat(file, &st) == 0 && read_all(file, &h, sizeof h) &&
                memcmp(h.magic, magic, sizeof magic) == 0 && h.key == hash &&
                (uint64_t)st.st_size == sizeof h + h.bytes && (code = malloc(h.bytes)) &&
                read_all(file, code, h.bytes) && hash_of(code, h.bytes) == h.check;
    close(file);
    if (!good) {
        free(code);
        return NULL;
    }
    utimensat(AT_FDCWD, path, NULL, 0); /* the most recently used stay */
    *bytes = h.bytes;
    return code;
}

/* ---- keeping the folder small ---- */

typedef struct entry {
    char name[64];
    struct timespec used;
    size_t bytes;
} entry;

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const entry *)a)->used, *y = &((const entry *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Removes the files that were not used for the longest time, until a quarter of the room is free.
 */
static void trim(const char *path)
{
    entry *list = NULL;
    size_t n = 0, room = 0, all = 0;
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        struct stat st;
        if (d->d_name[0] == '.' || strlen(d->d_name) >= sizeof list->name ||
            fstatat(dirfd(dir), d->d_name, &st, 0) != 0)
            continue;
        if (n == room) {
            room = 2 * room + 64;
            entry *wider = realloc(list, room * sizeof *list);
            if (!wider) break;
            list = wider;
        }
        snprintf(list[n].name, sizeof list[n].name, "%s", d->d_name);
        list[n].used = st.st_mtim;
        list[n++].bytes = (size_t)st.st_size;
        all += (size_t)st.st_size;
    }
    if (all > most_bytes) {
        qsort(list, n, sizeof *list, by_use);
        for (size_t i = 0; i < n && all > most_bytes / 4 * 3; i++) {
            if (unlinkat(dirfd(dir), list[i].name, 0) == 0) all -= list[i].bytes;
        }
    }
    if (dir) closedir(dir);
    free(list);
}

void aril_cuda_kernel_file_write(const char *key, const char *code, size_t bytes)
{
    char path[PATH_MAX], made[PATH_MAX + 16];
    if (!folder(path)) return;
    make_folders(path);
    header h = { .key = hash_of(key, strlen(key)), .check = hash_of(code, bytes), .bytes = bytes };
    memcpy(h.magic, magic, sizeof magic);
    size_t n = strlen(path);
    snprintf(made, sizeof made, "%s/new-XXXXXX", path);
    int file = mkostemp(made, O_CLOEXEC);
    if (file < 0) return;
    bool good = write_all(file, &h, sizeof h) && write_all(file, code, bytes);
    good = close(file) == 0 && good;
    snprintf(path + n, sizeof path - n, "/%016llx.cubin", (unsigned long long)h.key);
    if (!good || rename(made, path) != 0) unlink(made);
    path[n] = '\0';
    trim(path);
}
