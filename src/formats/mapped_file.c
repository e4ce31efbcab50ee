#include "formats/mapped_file.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/bytes.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_MAPPED = 1024 };

struct aril__mapped {
    atomic_int refs;
    char *what, *path;
    int fd;
    struct stat st; /* when it was opened */
    const void *data;
    size_t size;
    int slot; /* in `ranges`; -1: the contents are a copy */
};

/* ---- the handler ---- */

/* The mapped ranges, for the handler, which may neither lock nor allocate. A slot is free if its
 * begin is 0, and being set up if it is 1. */
static struct range {
    atomic_uintptr_t begin;
    atomic_size_t size; /* in whole pages */
    atomic_bool cut;    /* an access was beyond the end of the file */
} ranges[MOST_MAPPED];

static struct sigaction previous;

static struct range *range_of(uintptr_t address)
{
    for (int i = 0; i < MOST_MAPPED; i++) {
        uintptr_t begin = atomic_load(&ranges[i].begin);
        if (begin > 1 && address >= begin && address - begin < atomic_load(&ranges[i].size))
            return &ranges[i];
    }
    return NULL;
}

/* Puts zeros from the page of the address to the end of the range: the file ended before it. */
static bool patch(struct range *r, uintptr_t address, uintptr_t page)
{
    uintptr_t from = address & ~(page - 1);
    size_t size = atomic_load(&r->size) - (from - atomic_load(&r->begin));
    atomic_store(&r->cut, true);
    return mmap((void *)from, size, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

static uintptr_t page_size; /* sysconf may not be called from a handler */

static void on_bus_error(int signal, siginfo_t *info, void *context)
{
    int saved = errno;
    struct range *r = info->si_code > 0 ? range_of((uintptr_t)info->si_addr) : NULL;
    bool patched = r && patch(r, (uintptr_t)info->si_addr, page_size);
    errno = saved;
    if (patched) return;
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal);
    } else { /* the access is repeated, and ends the process as it would without this handler */
        struct sigaction plain = { .sa_handler = SIG_DFL };
        sigaction(SIGBUS, &plain, NULL);
        if (info->si_code <= 0) raise(SIGBUS); /* sent by a process: nothing is repeated */
    }
}

static void install(void)
{
    struct sigaction action = { .sa_sigaction = on_bus_error,
                                .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous);
}

/* ---- files ---- */

/* A slot of the table; -1 if all are in use. */
static int claim(void)
{
    for (int i = 0; i < MOST_MAPPED; i++) {
        uintptr_t none = 0;
        if (atomic_compare_exchange_strong(&ranges[i].begin, &none, 1)) return i;
    }
    return -1;
}

static aril_status map(aril__mapped *f)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    int slot = claim();
    if (slot < 0) return ARIL_ERR_UNSUPPORTED;
    void *data = mmap(NULL, f->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, f->fd, 0);
    if (data == MAP_FAILED) {
        atomic_store(&ranges[slot].begin, 0);
        return ARIL_ERR_UNSUPPORTED;
    }
    atomic_store(&ranges[slot].size, (f->size + page_size - 1) & ~(page_size - 1));
    atomic_store(&ranges[slot].cut, false);
    atomic_store(&ranges[slot].begin, (uintptr_t)data);
    f->slot = slot;
    f->data = data;
    return ARIL_OK;
}

/* What cannot be mapped (file systems without mmap, too many files) is read. */
static aril_status copy(aril__mapped *f)
{
    void *data = NULL;
    if (posix_memalign(&data, 4096, f->size) != 0)
        return aril__fail(ARIL_ERR_MEMORY, "%s: no memory for the %zu bytes of %s", f->what,
                          f->size, f->path);
    f->data = data;
    if (aril__read_at(f->fd, data, f->size, 0)) return ARIL_OK;
    return aril__fail(ARIL_ERR_IO, "%s: cannot read %s: %s", f->what, f->path,
                      errno ? strerror(errno) : "the file was truncated");
}

aril__mapped *aril__mapped_open(const char *what, const char *path)
{
    uint64_t size;
    int fd;
    if (aril__file_open(what, path, &fd, &size) != ARIL_OK) return NULL;
    aril__mapped *f = aril__calloc(sizeof *f);
    if (!f) {
        close(fd);
        aril__fail(ARIL_ERR_MEMORY, "%s: out of memory opening %s", what, path);
        return NULL;
    }
    atomic_init(&f->refs, 1);
    f->fd = fd;
    f->slot = -1;
    f->size = (size_t)size;
    f->what = aril__strdup(what);
    f->path = aril__strdup(path);
    aril_status status = ARIL_OK;
    if (!f->what || !f->path)
        status = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory opening %s", what, path);
    else if (fstat(fd, &f->st) != 0 || (uint64_t)f->st.st_size != size)
        status = aril__fail(ARIL_ERR_IO, "%s: %s changed while it was opened", what, path);
    else if (size > 0 && map(f) != ARIL_OK)
        status = copy(f);
    if (status == ARIL_OK) return f;
    aril__mapped_close(f);
    return NULL;
}

aril__mapped *aril__mapped_keep(aril__mapped *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

void aril__mapped_close(aril__mapped *f)
{
    if (!f || atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) > 1) return;
    if (f->slot >= 0) {
        atomic_store(&ranges[f->slot].begin, 1); /* taken until it is unmapped */
        munmap((void *)(uintptr_t)f->data, f->size);
        atomic_store(&ranges[f->slot].begin, 0);
    } else {
        free((void *)(uintptr_t)f->data);
    }
    close(f->fd);
    free(f->what);
    free(f->path);
    free(f);
}

const void *aril__mapped_data(const aril__mapped *f)
{
    return f->data ? f->data : "";
}

size_t aril__mapped_size(const aril__mapped *f)
{
    return f->size;
}

void aril__mapped_rest(const aril__mapped *f)
{
    if (f->slot >= 0) madvise((void *)(uintptr_t)f->data, f->size, MADV_DONTNEED);
}

/* Whether a file is what a server says instead of a file. */
static bool is_html(const char *data, size_t size)
{
    static const char *const begins[] = { "<!doctype html", "<html", "<head", "<?xml" };
    size_t at = 0;
    while (at < size && memchr(" \t\r\n", data[at], 4)) at++;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t n = strlen(begins[i]);
        if (size - at >= n && strncasecmp(data + at, begins[i], n) == 0) return true;
    }
    return false;
}

bool aril__mapped_is_other(const aril__mapped *f, const char *path, const char *expected)
{
    size_t size = aril__mapped_size(f);
    if (size == 0)
        aril__fail(ARIL_ERR_FORMAT, "%s is empty; expected %s", path, expected);
    else if (is_html(aril__mapped_data(f), size))
        aril__fail(ARIL_ERR_FORMAT, "%s is an HTML page (a failed download?); expected %s", path,
                   expected);
    else
        return false;
    return true;
}

/* The time of the last status change would tell more, but removing or replacing a file, which does
 * no harm, sets it too. */
aril_status aril__mapped_check(const aril__mapped *f)
{
    struct stat now;
    const char *how = NULL;
    if (f->slot >= 0 && atomic_load(&ranges[f->slot].cut))
        how = "was truncated";
    else if (fstat(f->fd, &now) != 0)
        how = "is no longer accessible";
    else if (now.st_size != f->st.st_size)
        how = now.st_size < f->st.st_size ? "was truncated" : "has grown";
    else if (now.st_mtim.tv_sec != f->st.st_mtim.tv_sec ||
             now.st_mtim.tv_nsec != f->st.st_mtim.tv_nsec)
        how = "was written to";
    if (!how) return ARIL_OK;
    return aril__fail(ARIL_ERR_IO,
                      "%s: %s %s while it was in use; load it again, and replace files by renaming "
                      "new ones over them",
                      f->what, f->path, how);
}
