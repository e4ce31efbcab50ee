#include "ops/table/tuning.h"

#include "aril/device.h"
#include "core/environment.h"
#include "core/file.h"
#include "core/log.h"
#include "core/memory.h"
#include "ops/table/plans.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* The file: this line, then "KEY TAB CHOICE" per line, oldest first. */
static const char header[] = "aril tuning 1\n";
enum { MAX_FILE = ARIL__TUNING_RECORDS * (ARIL__TUNING_KEY + ARIL__TUNING_VALUE) };

typedef struct record {
    uint64_t hash;     /* of the key */
    char *key, *value; /* one block */
} record;

typedef struct records {
    int n, capacity;
    record *at;
} records;

static struct {
    pthread_mutex_t lock; /* guards the rest */
    bool read;
    records known;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- the switch ---- */

static atomic_int tuning = -1; /* -1: not asked for yet */

bool aril_tuning(void)
{
    int on = atomic_load_explicit(&tuning, memory_order_relaxed);
    if (on >= 0) return on;
    int from_environment = aril__env_switch("ARIL_TUNING", 0);
    if (atomic_compare_exchange_strong(&tuning, &on, from_environment)) return from_environment;
    return on; /* another thread has set it */
}

void aril_set_tuning(bool on)
{
    if (atomic_exchange(&tuning, on) != on) aril__plans_outdate();
}

/* ---- records ---- */

static uint64_t hash_of(const char *text)
{
    uint64_t h = 14695981039346656037u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h;
}

static int find(const records *r, const char *key)
{
    uint64_t hash = hash_of(key);
    for (int i = r->n - 1; i >= 0; i--)
        if (r->at[i].hash == hash && strcmp(r->at[i].key, key) == 0) return i;
    return -1;
}

static void drop(records *r, int i)
{
    free(r->at[i].key);
    memmove(r->at + i, r->at + i + 1, (size_t)(--r->n - i) * sizeof *r->at);
}

static void drop_all(records *r)
{
    while (r->n) free(r->at[--r->n].key);
    free(r->at);
    *r = (records){ 0 };
}

/* Adds a record as the newest one. Out of memory, there is one less. */
static void put(records *r, const char *key, const char *value)
{
    int before = find(r, key);
    if (before >= 0) drop(r, before);
    if (r->n == ARIL__TUNING_RECORDS) drop(r, 0);
    if (r->n == r->capacity) {
        int capacity = r->capacity ? 2 * r->capacity : 64;
        record *at = aril__malloc((size_t)capacity * sizeof *at);
        if (!at) return;
        if (r->n) memcpy(at, r->at, (size_t)r->n * sizeof *at);
        free(r->at);
        r->at = at;
        r->capacity = capacity;
    }
    size_t n = strlen(key) + 1, m = strlen(value) + 1;
    char *block = aril__malloc(n + m);
    if (!block) return;
    memcpy(block, key, n);
    memcpy(block + n, value, m);
    r->at[r->n++] = (record){ hash_of(key), block, block + n };
}

static bool is_text(const char *s, size_t size)
{
    size_t n = 0;
    for (; s[n]; n++)
        if ((unsigned char)s[n] < ' ' || s[n] == 127) return false;
    return n > 0 && n < size;
}

/* ---- the file ---- */

/* ARIL_TUNING_FILE, or aril/tuning in the user's cache folder. */
static bool path_of(char path[PATH_MAX])
{
    const char *named = getenv("ARIL_TUNING_FILE"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = -1;
    if (named && *named)
        n = snprintf(path, PATH_MAX, "%s", named);
    else if (cache && cache[0] == '/')
        n = snprintf(path, PATH_MAX, "%s/aril/tuning", cache);
    else if (home && home[0] == '/')
        n = snprintf(path, PATH_MAX, "%s/.cache/aril/tuning", home);
    return n > 0 && n < PATH_MAX - 8; /* room for ".new" */
}

/* The whole file, ended by 0, for free(). NULL with *foreign true: it is not a tuning file, or of
 * another version, and must stay as it is. */
static char *contents_of(const char *path, bool *foreign)
{
    struct stat st;
    const char *why = NULL;
    char *text = NULL;
    *foreign = false;
    int fd = aril__open_to_read(path, &st);
    if (fd < 0) {
        if (errno == ENOENT || errno == ENOTDIR) return NULL;
        why = strerror(errno);
    } else if (st.st_size > MAX_FILE) {
        why = "it is too large";
    } else if (!(text = aril__malloc((size_t)st.st_size + 1))) {
        why = "out of memory";
    } else {
        ssize_t n = 0, size = 0;
        while (size < st.st_size && (n = read(fd, text + size, (size_t)(st.st_size - size))) > 0)
            size += n;
        text[size] = '\0';
        if (n < 0)
            why = strerror(errno);
        else if (size && strncmp(text, header, sizeof header - 1) != 0)
            why = "it is not a tuning file of this version";
    }
    if (fd >= 0) close(fd);
    if (!why) return text;
    *foreign = true;
    aril__log(ARIL__LOG_TUNING, "%s is ignored: %s", path, why);
    free(text);
    return NULL;
}

/* Adds the records of a file's text; damaged lines are skipped. */
static void parse(records *r, const char *path, char *text)
{
    int damaged = 0;
    for (char *line = strchr(text, '\n'), *end; line && *++line; line = end) {
        end = strchr(line, '\n');
        char *tab = strchr(line, '\t');
        bool whole = end && tab && tab < end && strlen(line) >= (size_t)(end - line);
        if (whole) *end = *tab = '\0';
        if (whole && is_text(line, ARIL__TUNING_KEY) && is_text(tab + 1, ARIL__TUNING_VALUE))
            put(r, line, tab + 1);
        else
            damaged++;
        if (!end) break;
    }
    if (damaged)
        aril__log(ARIL__LOG_TUNING, "%s: ignored %d damaged line%s", path, damaged,
                  damaged == 1 ? "" : "s");
}

/* The records of the file. False if it is not ours to replace. */
static bool read_file(records *r, const char *path)
{
    bool foreign;
    char *text = contents_of(path, &foreign);
    if (text) parse(r, path, text);
    free(text);
    return !foreign;
}

static void read_once(void)
{
    char path[PATH_MAX];
    if (table.read) return;
    table.read = true;
    if (path_of(path)) read_file(&table.known, path);
}

/* Creates the folders of a path in the user's cache. */
static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

/* Locks the folder of a file, so that processes write one after the other; -1 on failure. */
static int lock_folder(const char *path)
{
    enum { TRIES = 1000 }; /* 10 seconds: a busy disk takes its time */
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (i < TRIES && (errno == EWOULDBLOCK || errno == EINTR)) {
            nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
            continue;
        }
        int e = errno;
        close(fd);
        fd = -1;
        errno = e;
    }
    return fd;
}

/* Writes a new file and renames it, so that others see the old one or the new one. */
static bool write_file(const records *r, const char *path)
{
    char fresh[PATH_MAX + 8];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f) {
        if (fd >= 0) close(fd);
        return false;
    }
    fputs(header, f);
    for (int i = 0; i < r->n; i++) fprintf(f, "%s\t%s\n", r->at[i].key, r->at[i].value);
    bool ok = !ferror(f);
    ok = fclose(f) == 0 && ok && rename(fresh, path) == 0;
    int e = errno;
    if (!ok) unlink(fresh);
    errno = e;
    return ok;
}

/* Adds one record to what is in the file now, which may be more than this process knows. */
static void save(const char *key, const char *value)
{
    char path[PATH_MAX];
    if (!path_of(path)) return;
    const char *named = getenv("ARIL_TUNING_FILE");
    if (!named || !*named) make_folders(path);
    int lock = lock_folder(path);
    records all = { 0 };
    bool ours = lock >= 0 && read_file(&all, path);
    if (ours) put(&all, key, value);
    if (lock < 0 || (ours && !write_file(&all, path)))
        aril__log(ARIL__LOG_TUNING, "cannot write %s: %s", path, strerror(errno));
    if (lock >= 0) close(lock);
    drop_all(&all);
}

/* ---- calls ---- */

bool aril__tuned(const char *key, char *value, size_t size)
{
    pthread_mutex_lock(&table.lock);
    read_once();
    int i = find(&table.known, key);
    bool found = i >= 0 && strlen(table.known.at[i].value) < size;
    if (found) strcpy(value, table.known.at[i].value);
    pthread_mutex_unlock(&table.lock);
    return found;
}

void aril__tune(const char *key, const char *value)
{
    if (!is_text(key, ARIL__TUNING_KEY) || !is_text(value, ARIL__TUNING_VALUE)) return;
    pthread_mutex_lock(&table.lock);
    read_once();
    put(&table.known, key, value);
    save(key, value);
    aril__log(ARIL__LOG_TUNING, "%s: %s", key, value);
    pthread_mutex_unlock(&table.lock);
}

void aril__tuning_shutdown(void)
{
    pthread_mutex_lock(&table.lock);
    drop_all(&table.known);
    table.read = false;
    pthread_mutex_unlock(&table.lock);
}
