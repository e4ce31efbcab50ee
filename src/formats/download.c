#include "formats/download.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/memory.h"
#include "core/units.h"
#include "formats/atomic_file.h"
#include "formats/http.h"
#include "formats/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* Attempts in a row that bring nothing, times to start over; seconds. */
enum { ATTEMPTS = 5, RESTARTS = 5, STALL = 60 };

typedef struct download {
    const char *url, *path, *name; /* name: the last part of path */
    aril__download_opts opts;
    char part[PATH_MAX], from[PATH_MAX];
    int fd; /* of the part, locked */
    int64_t done, total, resumed;
    char version[160]; /* of the file that the part is of; "": unknown */
    char sha256[72];   /* what the hash has to begin with; "": unknown */
    aril__sha256 hash; /* of the first `done` bytes */
    bool accepted;     /* the answer's headers were looked at */
    int restarts;      /* how often data was dropped */
    int status_wanted; /* error of a callback, which has set it; ARIL_OK: none */
    double next_tick;
} download;

/* ---- errors ---- */

/* "; or download URL (97.8 MB) by other means to PATH" */
static const char *by_hand(const download *d, char *text, size_t size)
{
    char bytes[32] = "";
    bool exact = d->total > 0;
    int64_t total = exact ? d->total : d->opts.size;
    if (total > 0) aril__bytes_text(bytes, sizeof bytes, (double)total);
    snprintf(text, size, "download %s%s%s%s by other means and save it as %s", d->url,
             !*bytes ? ""
             : exact ? " ("
                     : " (about ",
             bytes, *bytes ? ")" : "", d->path);
    return text;
}

static aril_status cannot(const download *d, const char *why)
{
    char text[700];
    return aril__fail(ARIL_ERR_IO, "cannot download %s: %s; or %s", d->name, why,
                      by_hand(d, text, sizeof text));
}

/* A part that cannot be written: it stays, without what did not fit. */
static aril_status cannot_write(const download *d, int error)
{
    char kept[32];
    bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    return aril__fail(ARIL_ERR_IO, "cannot write %s: %s%s%s", d->part, strerror(error),
                      full ? "; free some space and run it again, it resumes after " : "",
                      full ? aril__bytes_text(kept, sizeof kept, (double)d->done) : "");
}

static aril_status stopped(const download *d)
{
    return aril__fail(ARIL_ERR_STATE, "the download of %s was stopped; run it again to resume",
                      d->name);
}

/* ---- watching ---- */

static bool watch(const download *d, aril__download_phase phase, const char *why)
{
    aril__download_at at = { phase, d->done, d->total, why };
    return !d->opts.watch || d->opts.watch(d->opts.ctx, &at);
}

/* Waits, ten times a second looking whether to stop. */
static bool pause_for(const download *d, double seconds, aril__download_phase phase,
                      const char *why)
{
    for (double end = aril__seconds() + seconds, left; (left = end - aril__seconds()) > 0;) {
        if (!watch(d, phase, why)) return false;
        struct timespec t = { .tv_nsec = (long)(1e9 * (left < 0.1 ? left : 0.1)) };
        nanosleep(&t, NULL);
    }
    return watch(d, phase, why);
}

/* ---- the part and its lock ---- */

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

/* Whether fd is still the file of that name: another process may have renamed or removed it between
 * open and lock. */
static bool is_named(int fd, const char *path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/* Opens and locks a part. 1: done, 0: in use by another process, -1: failed, see errno. */
static int lock_part(const char *part, int flags)
{
    for (;;) {
        int fd = open(part, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0666);
        struct stat st;
        if (fd < 0) return -1;
        if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
            close(fd);
            errno = EEXIST;
            return -1;
        }
        /* On a file system without locks, the hash finds out what two writers mixed up. */
        bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR);
        if (locked && is_named(fd, part)) return fd + 1;
        close(fd);
        if (!locked) return 0;
    }
}

/* Opens the part, when no other process is writing it. *there: the file itself has come. */
static aril_status claim(download *d, bool *there)
{
    for (;;) {
        *there = is_there(d->path);
        if (*there) return ARIL_OK;
        int locked = lock_part(d->part, O_CREAT);
        if (locked < 0) return cannot_write(d, errno);
        if (locked > 0) {
            d->fd = locked - 1;
            *there = is_there(d->path); /* its writer may have finished just now */
            if (*there) unlink(d->part);
            return ARIL_OK;
        }
        if (!pause_for(d, 0.1, ARIL__DOWNLOAD_WAITING, NULL)) return stopped(d);
    }
}

static aril_status empty_part(download *d)
{
    d->restarts += d->done > 0;
    d->done = d->resumed = 0;
    *d->version = '\0';
    aril__sha256_start(&d->hash);
    if (ftruncate(d->fd, 0) != 0 || lseek(d->fd, 0, SEEK_SET) != 0) return cannot_write(d, errno);
    return ARIL_OK;
}

/* ---- where a part is from: three lines, URL, version and size ---- */

/* The next line of *text, cut off there; NULL at the end. */
static char *next_line(char **text)
{
    char *line = *text, *end = line ? strchr(line, '\n') : NULL;
    if (!end) return NULL;
    *end = '\0';
    *text = end + 1;
    return line;
}

/* Reads version and size of the part. False if nothing is known of it. */
static bool read_from(download *d)
{
    char buffer[4096], *text = buffer;
    struct stat st;
    int fd = aril__open_to_read(d->from, &st);
    ssize_t n = fd >= 0 ? read(fd, buffer, sizeof buffer - 1) : -1;
    if (fd >= 0) close(fd);
    if (n <= 0) return false;
    buffer[n] = '\0';
    char *url = next_line(&text), *version = next_line(&text), *total = next_line(&text);
    if (!total || strlen(version) >= sizeof d->version) return false;
    d->total = strtoll(total, NULL, 10);
    if (d->total <= 0) d->total = -1;
    /* Another server gives the same file another version. */
    if (strcmp(url, d->url) == 0) snprintf(d->version, sizeof d->version, "%s", version);
    return true;
}

static aril_status write_from(const download *d)
{
    char text[4096];
    int n = snprintf(text, sizeof text, "%s\n%s\n%lld\n", d->url, d->version, (long long)d->total);
    if (n < 0 || (size_t)n >= sizeof text)
        return aril__fail(ARIL_ERR_ARG, "the URL %.80s... is too long", d->url);
    return aril__file_replace(d->from, text, (size_t)n);
}

/* Takes up what an earlier attempt left, hashing it. */
static aril_status resume_part(download *d)
{
    enum { BUFFER = 1 << 18 };
    struct stat st;
    if (fstat(d->fd, &st) != 0) return cannot_write(d, errno);
    if (st.st_size == 0 || !read_from(d) || (d->total >= 0 && st.st_size > d->total))
        return empty_part(d);
    unsigned char *buffer = aril__malloc(BUFFER);
    if (!buffer) return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", d->part);
    aril_status status = ARIL_OK;
    for (ssize_t n; status == ARIL_OK && (n = read(d->fd, buffer, BUFFER)) != 0;) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            status = cannot_write(d, errno);
        } else {
            aril__sha256_add(&d->hash, buffer, (size_t)n);
            d->done += n;
            if (!watch(d, ARIL__DOWNLOAD_CHECKING, NULL)) status = stopped(d);
        }
    }
    d->resumed = d->done;
    free(buffer);
    return status;
}

/* ---- receiving ---- */

/* Fails before a disk is full, when the size is known. */
static aril_status check_space(const download *d)
{
    struct statvfs disk;
    if (d->total < 0 || fstatvfs(d->fd, &disk) != 0 || disk.f_blocks == 0) return ARIL_OK;
    double have = (double)disk.f_bavail * (double)disk.f_frsize,
           want = (double)(d->total - d->done);
    char a[32], b[32];
    if (want <= have) return ARIL_OK;
    return aril__fail(
        ARIL_ERR_IO,
        "cannot write %s: it takes %s more, and the disk has %s left; free some space "
        "and run it again",
        d->part, aril__bytes_text(a, sizeof a, want), aril__bytes_text(b, sizeof b, have));
}

/* Ends a download that is longer than it should be. */
static aril_status too_long(download *d, int64_t most, const char *told)
{
    char why[128], bytes[32];
    aril_status status = empty_part(d);
    unlink(d->from);
    snprintf(why, sizeof why, "the server sends more than %s%s",
             aril__bytes_text(bytes, sizeof bytes, (double)most), told);
    return status != ARIL_OK ? status : cannot(d, why);
}

static aril_status check_limit(download *d, int64_t size)
{
    if (d->opts.limit > 0 && size > d->opts.limit)
        return too_long(d, d->opts.limit, ", which this file cannot have");
    return ARIL_OK;
}

/* Looks at the headers of an answer with data: whether it continues the part or starts over. */
static aril_status accept_answer(download *d, const aril__http_head *head)
{
    d->accepted = true;
    bool fits = head->status == 206 && head->from == d->done &&
                (d->total < 0 || head->total < 0 || head->total == d->total);
    if (head->status == 206 && !fits) {
        /* Not what was asked for: forget the part, and ask for all of it. */
        aril_status status = empty_part(d);
        unlink(d->from);
        return status != ARIL_OK ? status : 1;
    }
    if (head->status == 200) {
        if (d->done > 0 && empty_part(d) != ARIL_OK) return aril__latest_status();
        d->total = head->length;
    } else if (head->total >= 0) {
        d->total = head->total;
    }
    snprintf(d->version, sizeof d->version, "%s", head->version);
    if (!*d->sha256 && strlen(head->sha256) == ARIL__SHA256_HEX)
        memcpy(d->sha256, head->sha256, ARIL__SHA256_HEX + 1);
    aril_status status = check_limit(d, d->total);
    if (status == ARIL_OK) status = write_from(d);
    return status != ARIL_OK ? status : check_space(d);
}

static bool write_data(download *d, const unsigned char *data, size_t size)
{
    d->status_wanted = d->total >= 0 && (int64_t)size > d->total - d->done
                           ? too_long(d, d->total, ", the size that it told")
                           : check_limit(d, d->done + (int64_t)size);
    if (d->status_wanted != ARIL_OK) return false;
    while (size > 0) {
        ssize_t n = write(d->fd, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            d->status_wanted = cannot_write(d, n == 0 ? ENOSPC : errno);
            return false;
        }
        aril__sha256_add(&d->hash, data, (size_t)n);
        d->done += n;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static bool on_tick(void *ctx)
{
    download *d = ctx;
    double now = aril__seconds();
    if (now < d->next_tick) return true;
    d->next_tick = now + 0.05;
    if (watch(d, ARIL__DOWNLOAD_RECEIVING, NULL)) return true;
    d->status_wanted = stopped(d);
    return false;
}

static bool on_data(void *ctx, const aril__http_head *head, const void *data, size_t size)
{
    download *d = ctx;
    if (!d->accepted) d->status_wanted = accept_answer(d, head);
    return d->status_wanted == ARIL_OK && write_data(d, data, size) && on_tick(d);
}

/* What an answer means: done, try again, or an error that was set. */
typedef enum verdict { COMPLETE, AGAIN, FAILED } verdict;

/* An answer that is no file. */
static verdict judge_status(download *d, const aril__http_head *head, char *why, size_t size)
{
    int status = head->status;
    if (status == 416 && d->done > 0) { /* nothing comes after the part: it is whole, or wrong */
        if (head->total == d->done) return COMPLETE;
        snprintf(why, size, "the server has another version of the file");
        unlink(d->from);
        return empty_part(d) == ARIL_OK ? AGAIN : FAILED;
    }
    snprintf(why, size, "the server answers with HTTP status %d%s", status,
             status == 404 || status == 410   ? " (no such file)"
             : status == 401 || status == 403 ? " (not allowed)"
             : status == 429                  ? " (too many requests)"
             : status >= 500                  ? " (an error of the server)"
                                              : "");
    if (status >= 500 || status == 429 || status == 408) return AGAIN;
    cannot(d, why);
    return FAILED;
}

static verdict judge(download *d, const aril__http_answer *a, char *why, size_t size)
{
    if (d->status_wanted > 0) { /* the answer did not fit the part */
        snprintf(why, size, "the server sent another part of the file");
        return AGAIN;
    }
    if (d->status_wanted != ARIL_OK) return FAILED;
    snprintf(why, size, "%s", a->why);
    switch (a->end) {
    case ARIL__HTTP_DONE: break;
    case ARIL__HTTP_CUT: return AGAIN;
    case ARIL__HTTP_NO_SERVER: /* after an interruption it may come back */
        if (d->done > d->resumed) return AGAIN;
        cannot(d, a->why);
        return FAILED;
    default: cannot(d, a->why); return FAILED;
    }
    if (a->head.status != 200 && a->head.status != 206) return judge_status(d, &a->head, why, size);
    aril_status status = d->accepted ? ARIL_OK : accept_answer(d, &a->head); /* without data */
    if (status < 0) return FAILED;
    if (status == ARIL_OK && (d->total < 0 || d->done == d->total)) return COMPLETE;
    snprintf(why, size, "the server sent less than it told");
    return AGAIN;
}

/* Receives until all is there. Attempts that bring nothing come at growing intervals. */
static aril_status receive(download *d)
{
    char why[300] = "";
    double first_pause = d->opts.pause > 0 ? d->opts.pause : 0.5, pause = first_pause;
    for (int failed = 0;;) {
        int64_t before = d->done;
        aril__http_get get = { .url = d->url,
                               .from = d->done,
                               .version = d->version,
                               .stall = d->opts.stall > 0 ? d->opts.stall : STALL,
                               .data = on_data,
                               .tick = on_tick,
                               .ctx = d };
        aril__http_answer answer;
        d->accepted = false;
        d->status_wanted = ARIL_OK;
        if (d->done > 0 && d->done == d->total) return ARIL_OK;
        aril__http_request(&get, &answer);
        verdict v = judge(d, &answer, why, sizeof why);
        if (v == COMPLETE) return ARIL_OK;
        if (v == FAILED) return aril__latest_status();
        if (d->done > before) failed = 0, pause = first_pause;
        if (++failed >= ATTEMPTS || d->restarts > RESTARTS) return cannot(d, why);
        if (!pause_for(d, pause, ARIL__DOWNLOAD_PAUSING, why)) return stopped(d);
        pause *= 3;
    }
}

/* ---- the whole ---- */

/* Removes a part with the wrong hash. Returns 1 if it is worth starting over: what was resumed may
 * have been damaged. */
static aril_status check_hash(download *d)
{
    char text[ARIL__SHA256_HEX + 1];
    aril__sha256_text(&d->hash, text);
    if (!*d->sha256 || aril__sha256_matches(text, d->sha256)) return ARIL_OK;
    bool again = d->resumed > 0;
    unlink(d->from);
    if (again) return empty_part(d) == ARIL_OK ? 1 : aril__latest_status();
    unlink(d->part);
    return aril__fail(ARIL_ERR_FORMAT,
                      "%s has another hash than published: SHA-256 %s, expected %s%s; what came "
                      "from %s was removed",
                      d->name, text,
                      strlen(d->sha256) < ARIL__SHA256_HEX ? "one that begins with " : "",
                      d->sha256, d->url);
}

static aril_status finish(download *d)
{
    aril_status status = d->opts.accept ? d->opts.accept(d->opts.ctx, d->part) : ARIL_OK;
    if (status != ARIL_OK) {
        unlink(d->from);
        unlink(d->part);
        return status;
    }
    if (fsync(d->fd) != 0 && errno != EINVAL && errno != ENOTSUP) return cannot_write(d, errno);
    if (rename(d->part, d->path) != 0) return cannot_write(d, errno);
    unlink(d->from);
    return aril__folder_sync(d->path);
}

static aril_status download_part(download *d)
{
    aril__sha256_start(&d->hash);
    aril_status status = resume_part(d);
    do {
        if (status >= 0) status = receive(d);
        if (status == ARIL_OK) status = check_hash(d);
    } while (status > 0);
    return status == ARIL_OK ? finish(d) : status;
}

static bool set_paths(download *d, const char *path)
{
    const char *slash = strrchr(path, '/');
    d->path = path;
    d->name = slash ? slash + 1 : path;
    int n = snprintf(d->part, sizeof d->part, "%s.part", path);
    int m = snprintf(d->from, sizeof d->from, "%s.part.from", path);
    if (n > 0 && m > 0 && (size_t)m < sizeof d->from) return true;
    aril__fail(ARIL_ERR_ARG, "the path '%.80s...' is too long", path);
    return false;
}

/* Removes an empty part, which nothing can be resumed from. */
static void leave(download *d)
{
    if (d->fd < 0) return;
    struct stat st;
    if (fstat(d->fd, &st) == 0 && st.st_size == 0 && is_named(d->fd, d->part)) {
        unlink(d->from);
        unlink(d->part);
    }
    close(d->fd);
}

aril_status aril__download(const char *url, const char *path, aril__download_opts opts,
                           aril__downloaded *result)
{
    download d = { .url = url, .opts = opts, .fd = -1, .total = -1 };
    bool there = is_there(path);
    aril_status status = ARIL_OK;
    if (!set_paths(&d, path)) return aril__latest_status();
    if (opts.sha256) snprintf(d.sha256, sizeof d.sha256, "%s", opts.sha256);
    if (!there && opts.offline) {
        char text[700];
        return aril__fail(ARIL_ERR_IO, "%s is not there, and this is offline: %s", d.name,
                          by_hand(&d, text, sizeof text));
    }
    if (!there) status = aril__folder_create_for("download", path);
    if (!there && status == ARIL_OK) status = claim(&d, &there);
    if (!there && status == ARIL_OK) status = download_part(&d);
    leave(&d);
    struct stat st = { 0 };
    if (status == ARIL_OK && stat(path, &st) != 0) status = cannot_write(&d, errno);
    *result = (aril__downloaded){ there, (int64_t)st.st_size, d.resumed };
    return status;
}

aril_status aril__file_sha256(const char *path, char text[65])
{
    enum { BUFFER = 1 << 18 };
    struct stat st;
    aril__sha256 hash;
    unsigned char *buffer = aril__malloc(BUFFER);
    if (!buffer) return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", path);
    int fd = aril__open_to_read(path, &st);
    ssize_t n = fd >= 0 ? 1 : -1;
    aril__sha256_start(&hash);
    while (n > 0 || (n < 0 && fd >= 0 && errno == EINTR))
        if ((n = read(fd, buffer, BUFFER)) > 0) aril__sha256_add(&hash, buffer, (size_t)n);
    int error = errno;
    if (fd >= 0) close(fd);
    free(buffer);
    if (n < 0) return aril__fail(ARIL_ERR_IO, "cannot read %s: %s", path, strerror(error));
    aril__sha256_text(&hash, text);
    return ARIL_OK;
}

int64_t aril__download_part_size(const char *path)
{
    char part[PATH_MAX];
    struct stat st;
    int n = snprintf(part, sizeof part, "%s.part", path);
    if (n < 0 || n >= PATH_MAX || lstat(part, &st) != 0 || !S_ISREG(st.st_mode)) return 0;
    return (int64_t)st.st_size;
}

static aril_status remove_file(const char *path, int64_t *removed)
{
    struct stat st;
    if (lstat(path, &st) != 0 && errno == ENOENT) return ARIL_OK;
    if (unlink(path) != 0)
        return aril__fail(ARIL_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    *removed += (int64_t)st.st_size;
    return ARIL_OK;
}

aril_status aril__download_remove(const char *path, int64_t *removed)
{
    download d = { .fd = -1 };
    *removed = 0;
    if (!set_paths(&d, path)) return aril__latest_status();
    int locked = lock_part(d.part, 0);
    if (locked == 0)
        return aril__fail(ARIL_ERR_STATE, "%s is being downloaded by another process", d.name);
    aril_status status = remove_file(d.from, removed);
    if (status == ARIL_OK) status = remove_file(d.part, removed);
    if (locked > 0) close(locked - 1);
    return status == ARIL_OK ? remove_file(path, removed) : status;
}
