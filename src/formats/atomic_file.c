#include "formats/atomic_file.h"

#include "aril/formats.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/bytes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 1 << 16, SLOTS = 64, PIECE = 4 << 20 };

struct aril__file {
    int fd;
    bool direct; /* not a regular file: nothing to rename */
    bool old;    /* the file existed before */
    bool only_new;
    bool stored; /* all that was written is on the disk */
    aril_status status;
    char *path; /* path of the file, links resolved */
    char *fresh;
    bool is_part; /* of a set: commit does not rename it */
    int parts;    /* of an index: the parts that were begun */
    mode_t mode;  /* once it is complete */
    uint64_t size;
    size_t used;
    unsigned char buffer[BUFFER];
};

static aril_status cannot(aril__file *f, const char *what)
{
    int e = errno;
    const char *kept = f->direct ? "" : f->old ? "; the file that was there is as it was" : "";
    return f->status =
               aril__fail(ARIL_ERR_IO, "cannot %s %s: %s%s", what, f->path, strerror(e), kept);
}

static void file_free(aril__file *f)
{
    if (f->fd >= 0) close(f->fd);
    free(f->path);
    free(f->fresh);
    free(f);
}

/* ".NAME.newN" beside the file. */
static bool fresh_name(aril__file *f, long slot)
{
    const char *slash = strrchr(f->path, '/');
    size_t folder = slash ? (size_t)(slash - f->path) + 1 : 0, size = strlen(f->path) + 32;
    free(f->fresh);
    f->fresh = aril__malloc(size);
    if (!f->fresh) return false;
    snprintf(f->fresh, size, "%.*s.%s.new%ld", (int)folder, f->path, f->path + folder, slot);
    return true;
}

/* The sticky bit, which means nothing for a file, marks one that is being written until it has been
 * renamed: that tells it from files of users. */
enum { UNFINISHED = S_ISVTX };

/* Whether it was left by a killed process, of which only this name is known. */
static bool is_left_over(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_nlink == 1 &&
           (st->st_size == 0 || (st->st_mode & UNFINISHED));
}

static bool is_named(int fd, const char *path)
{
    struct stat now, named;
    return fstat(fd, &now) == 0 && lstat(path, &named) == 0 && now.st_ino == named.st_ino &&
           now.st_dev == named.st_dev;
}

/* Removes a file that a killed process left: its lock shows whether its writer is alive. False: it
 * is in use by another writer, or not one of ours. */
static bool remove_left_over(const char *path)
{
    /* Without O_NONBLOCK, opening a FIFO of that name would wait for its reader. */
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    bool removed = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 &&
                   is_left_over(&st) && is_named(fd, path) && unlink(path) == 0;
    if (fd >= 0) close(fd);
    return removed;
}

/* Creates the new file, and locks it. 1: done, 0: there is one of that name, -1: failure. */
static int claim(aril__file *f)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    struct stat st;
    f->fd = open(f->fresh, flags, 0666);
    if (f->fd < 0 && errno == EEXIST) {
        if (!remove_left_over(f->fresh)) return 0;
        f->fd = open(f->fresh, flags, 0666);
    }
    if (f->fd < 0) return errno == EEXIST ? 0 : -1;
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK || errno == EINTR) goto another;
        /* No locks on this file system: remove the file and use a name unique to this process. */
        static atomic_int count;
        close(f->fd);
        unlink(f->fresh);
        f->fd = -1;
        if (!fresh_name(f, (long)getpid() * 1000 + atomic_fetch_add(&count, 1) % 1000)) {
            errno = ENOMEM;
            return -1;
        }
        f->fd = open(f->fresh, flags, 0666);
        if (f->fd < 0) return errno == EEXIST ? 0 : -1;
    }
    /* Before our lock, another process may have taken it for one that is left over. */
    if (!is_named(f->fd, f->fresh) || fstat(f->fd, &st) != 0) goto another;
    if (!f->old) f->mode = st.st_mode & 06777;
    fchmod(f->fd, f->mode | UNFINISHED); /* best effort: a file system may have no modes */
    return 1;
another:
    close(f->fd);
    f->fd = -1;
    return 0;
}

aril__file *aril__file_begin(const char *path)
{
    if (!path || !*path) {
        aril__fail(ARIL_ERR_ARG, "expected a file name to write to");
        return NULL;
    }
    aril__file *f = aril__malloc(sizeof *f);
    if (!f) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory writing %s", path);
        return NULL;
    }
    *f = (aril__file){ .fd = -1 };
    struct stat old = { 0 };
    char resolved[PATH_MAX];
    f->old = stat(path, &old) == 0;
    f->mode = old.st_mode & 06777;
    f->path = aril__strdup(f->old && realpath(path, resolved) ? resolved : path);
    if (!f->path) goto memory;
    if (f->old && S_ISDIR(old.st_mode)) {
        f->old = false; /* no file was there */
        errno = EISDIR;
        goto fail;
    }
    if (f->old && !S_ISREG(old.st_mode)) {
        f->direct = true;
        f->fd = open(f->path, O_WRONLY | O_CLOEXEC);
        if (f->fd < 0) goto fail;
        return f;
    }
    /* Fail on a read-only file, as opening it for writing would: rename would replace it. */
    if (f->old && access(f->path, W_OK) != 0) goto fail;
    for (int slot = 0; slot < SLOTS; slot++) {
        if (!fresh_name(f, slot)) goto memory;
        int claimed = claim(f);
        if (claimed < 0) goto fail;
        if (claimed > 0) return f;
    }
    errno = EBUSY;
fail:
    cannot(f, "write");
    aril__file_abandon(f);
    return NULL;
memory:
    aril__fail(ARIL_ERR_MEMORY, "out of memory writing %s", path);
    aril__file_abandon(f);
    return NULL;
}

static bool write_all(int fd, const unsigned char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size < (1u << 30) ? size : 1u << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* Writes in pieces and has the kernel store each while the next is copied, so that the sync at the
 * end has little left to wait for. A hint only: that sync is what counts. */
static bool write_and_store(aril__file *f, const unsigned char *data, size_t size)
{
#ifdef __linux__
    off_t at = f->direct ? -1 : lseek(f->fd, 0, SEEK_CUR);
    for (; at >= 0 && size > PIECE; data += PIECE, size -= PIECE, at += PIECE) {
        if (!write_all(f->fd, data, PIECE)) return false;
        sync_file_range(f->fd, at, PIECE, SYNC_FILE_RANGE_WRITE);
    }
#endif
    return write_all(f->fd, data, size);
}

static aril_status flush(aril__file *f)
{
    if (f->status == ARIL_OK && !write_all(f->fd, f->buffer, f->used)) cannot(f, "write");
    f->used = 0;
    return f->status;
}

aril_status aril__file_write(aril__file *f, const void *data, size_t size)
{
    if (f->status != ARIL_OK || size == 0) return f->status;
    f->stored = false;
    f->size += size;
    if (size > BUFFER - f->used && flush(f) != ARIL_OK) return f->status;
    if (size >= BUFFER) {
        if (!write_and_store(f, data, size)) cannot(f, "write");
        return f->status;
    }
    memcpy(f->buffer + f->used, data, size);
    f->used += size;
    return ARIL_OK;
}

aril_status aril__file_overwrite(aril__file *f, uint64_t at, const void *data, size_t size)
{
    ARIL_ASSERT(at <= f->size && size <= f->size - at);
    if (flush(f) != ARIL_OK) return f->status;
    f->stored = false;
    const unsigned char *from = data;
    while (size > 0) {
        ssize_t n = pwrite(f->fd, from, size, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return cannot(f, "write");
        from += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return ARIL_OK;
}

uint64_t aril__file_size(const aril__file *f)
{
    return f->size;
}

/* The folder of a file. False: its path is too long. */
static bool folder_of(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + (slash == path) : 1;
    if (n >= PATH_MAX) return false;
    memcpy(folder, slash ? path : ".", n);
    folder[n] = 0;
    return true;
}

/* The rename is durable only once the folder is synced too. */
static int sync_folder(const char *path)
{
    char folder[PATH_MAX];
    if (!folder_of(path, folder)) return 0;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return 0; /* a folder with write but no read permission: cannot be synced */
    int rc = fsync(fd);
    if (rc != 0 && (errno == EINVAL || errno == ENOTSUP || errno == EROFS)) rc = 0;
    int e = errno;
    close(fd);
    errno = e;
    return rc;
}

aril_status aril__folder_sync(const char *file)
{
    if (sync_folder(file) == 0) return ARIL_OK;
    return aril__fail(ARIL_ERR_IO, "cannot sync the folder of %s: %s", file, strerror(errno));
}

aril_status aril__file_store(aril__file *f)
{
    if (flush(f) != ARIL_OK || f->direct || f->stored) return f->status;
    f->stored = fsync(f->fd) == 0 || errno == EINVAL || errno == ENOTSUP;
    return f->stored ? ARIL_OK : cannot(f, "sync");
}

const char *aril__file_fresh(const aril__file *f)
{
    return f->direct ? f->path : f->fresh;
}

void aril__file_only_new(aril__file *f)
{
    f->only_new = true;
}

/* Gives the new contents their name where no file has it. A hard link replaces nothing; where there
 * are none, the name is looked up before the rename. */
static int name_new(const aril__file *f)
{
    if (link(f->fresh, f->path) == 0) return unlink(f->fresh);
    if (errno == EEXIST || errno == ENOENT || errno == ENOSPC || errno == EACCES) return -1;
    if (access(f->path, F_OK) == 0) {
        errno = EEXIST;
        return -1;
    }
    return rename(f->fresh, f->path);
}

/* ---- sets of files ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The temporary name of the i-th part, which the caller frees: in the folder of `path`, and
 * protected by the lock of the index, from whose temporary name it is derived. */
static char *part_name(const aril__file *index, const char *path, int i)
{
    const char *fresh = base_name(index->fresh);
    size_t folder = (size_t)(base_name(path) - path), size = folder + strlen(fresh) + 16;
    char *name = aril__malloc(size);
    if (name) snprintf(name, size, "%.*s%s.%d", (int)folder, path, fresh, i);
    return name;
}

/* Removes the temporary parts of an index: its own, or those that a killed process left. */
static void remove_parts(const aril__file *index)
{
    char path[PATH_MAX];
    const char *fresh = base_name(index->fresh);
    size_t folder = (size_t)(fresh - index->fresh), n = strlen(fresh);
    snprintf(path, sizeof path, "%.*s.", (int)folder, index->fresh);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const char *number = e->d_name + n + 1;
        if (strncmp(e->d_name, fresh, n) != 0 || e->d_name[n] != '.' || !*number ||
            number[strspn(number, "0123456789")])
            continue;
        snprintf(path, sizeof path, "%.*s%s", (int)folder, index->fresh, e->d_name);
        struct stat st;
        if (lstat(path, &st) == 0 && S_ISREG(st.st_mode)) unlink(path);
    }
    if (dir) closedir(dir);
}

aril__file *aril__file_begin_part(aril__file *index, const char *path)
{
    aril__file *f = aril__malloc(sizeof *f);
    if (!f) goto memory;
    *f = (aril__file){ .fd = -1, .is_part = true, .path = aril__strdup(path) };
    if (index->parts == 0 && !index->direct) remove_parts(index);
    f->fresh = f->path && !index->direct ? part_name(index, f->path, index->parts) : NULL;
    if (!f->path || (!f->fresh && !index->direct)) goto memory;
    if (index->direct) {
        errno = EINVAL;
        goto fail;
    }
    unlink(f->fresh); /* left in another folder, where a link led */
    f->fd = open(f->fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->fd < 0) goto fail;
    index->parts++;
    return f;
fail:
    cannot(f, "write");
    aril__file_abandon(f);
    return NULL;
memory:
    aril__fail(ARIL_ERR_MEMORY, "out of memory writing %s", path);
    aril__file_abandon(f);
    return NULL;
}

/* Renames the i-th part, which stays marked as unfinished until the index names it. */
static aril_status rename_part(aril__file *index, const char *path, int i)
{
    char *from = part_name(index, path, i);
    if (!from) {
        index->status = aril__fail(ARIL_ERR_MEMORY, "out of memory writing %s", path);
        return index->status;
    }
    chmod(from, index->mode | UNFINISHED);
    if (rename(from, path) != 0)
        index->status = aril__fail(ARIL_ERR_IO, "cannot create %s: %s", path, strerror(errno));
    free(from);
    return index->status;
}

aril_status aril__file_commit_parts(aril__file *index, int n, char *const *paths)
{
    int renamed = 0;
    aril_status status = ARIL_OK;
    if (aril__file_store(index) != ARIL_OK) goto fail;
    for (; renamed < n; renamed++)
        if (rename_part(index, paths[renamed], renamed) != ARIL_OK) goto fail;
    if (n > 0 && sync_folder(paths[0]) != 0) {
        cannot(index, "sync the folder of");
        goto fail;
    }
    if (rename(index->fresh, index->path) != 0) {
        cannot(index, "replace");
        goto fail;
    }
    fchmod(index->fd, index->mode);
    for (int i = 0; i < n; i++) chmod(paths[i], index->mode);
    index->old = false; /* the new index has replaced it */
    if (sync_folder(index->path) != 0) status = cannot(index, "sync the folder of");
    file_free(index);
    return status;
fail:
    status = index->status;
    while (renamed > 0) unlink(paths[--renamed]);
    aril__file_abandon(index);
    return status;
}

bool aril__file_is_unfinished(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & UNFINISHED);
}

void aril__file_mark(const char *path, bool unfinished)
{
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) return;
    mode_t mode = st.st_mode & 07777;
    chmod(path, unfinished ? mode | UNFINISHED : mode & ~(mode_t)UNFINISHED);
}

int aril__folder_lock(const char *file)
{
    char folder[PATH_MAX];
    if (!folder_of(file, folder)) return -1;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), locked = 0;
    while (fd >= 0 && (locked = flock(fd, LOCK_EX)) != 0 && errno == EINTR) continue;
    if (fd >= 0 && locked != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

void aril__folder_unlock(int lock)
{
    if (lock < 0) return;
    flock(lock, LOCK_UN); /* for processes forked meanwhile, too */
    close(lock);
}

aril_status aril__file_commit(aril__file *f)
{
    if (aril__file_store(f) == ARIL_OK && !f->direct && !f->is_part) {
        if (f->only_new && name_new(f) != 0)
            cannot(f, "create");
        else if (!f->only_new && rename(f->fresh, f->path) != 0)
            cannot(f, "replace");
        else
            fchmod(f->fd, f->mode);
    }
    aril_status status = f->status;
    if (status != ARIL_OK) {
        aril__file_abandon(f);
        return status;
    }
    if (f->direct) {
        int fd = f->fd;
        f->fd = -1;
        if (close(fd) != 0) status = cannot(f, "write");
    } else if (!f->is_part && sync_folder(f->path) != 0) {
        f->old = false; /* the new file has replaced it already */
        status = cannot(f, "sync the folder of");
    }
    file_free(f);
    return status;
}

void aril__file_abandon(aril__file *f)
{
    if (!f) return;
    if (f->parts > 0) remove_parts(f);
    if (!f->direct && f->fresh && f->fd >= 0) unlink(f->fresh);
    file_free(f);
}

aril_status aril__file_replace(const char *path, const void *data, size_t size)
{
    aril__file *f = aril__file_begin(path);
    if (!f) return aril__latest_status();
    aril__file_write(f, data, size);
    return aril__file_commit(f);
}

aril_status aril__folder_create(const char *what, const char *path)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= PATH_MAX)
        return aril__fail(ARIL_ERR_ARG, "%s: the path '%.80s...' is too long", what, path);
    for (char *c = part + 1;; c++) {
        char end = *c;
        if (end != '/' && end != '\0') continue;
        *c = '\0';
        struct stat s;
        if (mkdir(part, 0777) != 0 &&
            (errno != EEXIST || stat(part, &s) != 0 || !S_ISDIR(s.st_mode)))
            return errno == EEXIST || errno == ENOTDIR
                       ? aril__fail(ARIL_ERR_IO, "%s: '%s' is not a folder", what, part)
                       : aril__fail(ARIL_ERR_IO, "%s: the folder '%s' cannot be created: %s", what,
                                    part, strerror(errno));
        if (end == '\0') return ARIL_OK;
        *c = end;
    }
}

aril_status aril_folder_create(const char *path)
{
    if (!path || !*path)
        return aril__fail(ARIL_ERR_ARG, "folder_create: expected a path, got %s",
                          path ? "\"\"" : "NULL");
    return aril__folder_create("folder_create", path);
}

aril_status aril__folder_create_for(const char *what, const char *file)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(file, '/');
    if (slash == NULL || slash == file) return ARIL_OK;
    if (snprintf(folder, sizeof folder, "%.*s", (int)(slash - file), file) >= PATH_MAX)
        return aril__fail(ARIL_ERR_ARG, "%s: the path '%.80s...' is too long", what, file);
    return aril__folder_create(what, folder);
}
